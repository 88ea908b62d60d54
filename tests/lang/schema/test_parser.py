"""The schema parser: what it takes, what it refuses, and how it goes on after an error."""

from __future__ import annotations

import pytest

from omnigraph.errors import SchemaError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.schema.ast import (
    Cardinality,
    CheckConstraint,
    EdgeDecl,
    IndexConstraint,
    InterfaceDecl,
    KeyConstraint,
    NodeDecl,
    RangeConstraint,
    UniqueConstraint,
)
from omnigraph.lang.schema.catalog import Catalog, NodeType
from omnigraph.lang.schema.compile import analyze_schema, compile_schema
from omnigraph.lang.schema.parser import parse_schema


def node(text: str, name: str = "A") -> NodeType:
    actual = compile_schema(text).node(name)
    assert actual is not None
    return actual


def constraints(text: str) -> list[object]:
    return list(compile_schema(text).ir.nodes[0].constraints)


def messages(text: str) -> list[str]:
    return [d.message for d in analyze_schema(Source("s.pg", text))[1]]


def test_a01_declarations_keep_their_source_order() -> None:
    text = "edge E: B -> A  node B { }  interface I { }  node A { }"
    file, diagnostics = parse_schema(Source("s.pg", text))
    assert [d.name for d in file.declarations] == ["E", "B", "I", "A"]
    assert diagnostics == []


def test_a02_a_question_mark_makes_a_property_nullable() -> None:
    actual = node("node A { a: String  b: String? }")
    assert [actual.properties[n].type.nullable for n in ("a", "b")] == [False, True]


def test_a03_an_edge_needs_no_body_and_is_unbounded() -> None:
    edge = compile_schema("node A { } edge E: A -> A").edge("E")
    assert edge is not None
    assert edge.cardinality == Cardinality(0, None)
    assert edge.properties == {}


def test_a04_an_interface_has_properties() -> None:
    catalog = compile_schema("interface I { a: String  b: I32? }")
    assert list(catalog.interfaces["I"].properties) == ["a", "b"]


def test_a05_a_node_receives_the_properties_of_its_interface() -> None:
    actual = node("interface I { b: String } node A implements I { a: I32 }")
    assert list(actual.properties) == ["a", "b"]


def test_a06_several_interfaces_bring_properties_and_the_key() -> None:
    text = (
        "interface I { a: String @key } interface J { b: I32? @index } node A implements I, J { }"
    )
    actual = node(text)
    assert actual.key == ("a",)
    assert ("b",) in actual.indexes
    assert actual.implements == ("I", "J")


def test_a06_two_interfaces_with_the_same_key_give_one_key() -> None:
    text = "interface I { a: String @key } interface J { a: String @key } node A implements J, I {}"
    assert constraints(text) == [KeyConstraint(("a",))]


def test_a09_property_constraints_become_constraints_and_stay_annotations() -> None:
    text = "node A { a: String @key  b: String @unique  c: String @index }"
    assert constraints(text) == [
        IndexConstraint(("c",)),
        KeyConstraint(("a",)),
        UniqueConstraint(("b",)),
    ]
    assert [a.name for a in node(text).properties["b"].annotations] == ["unique"]


def test_a10_a_body_key_equals_the_property_form() -> None:
    body = node("node A { a: String @key(a) }")
    assert body.key == node("node A { a: String @key }").key == ("a",)


def test_a11_a_composite_unique_keeps_its_columns() -> None:
    assert constraints("node A { x: String y: String @unique(x, y) }") == [
        UniqueConstraint(("x", "y"))
    ]


def test_a12_a_composite_index_keeps_its_columns() -> None:
    assert constraints("node A { x: String y: Date @index(y, x) }") == [IndexConstraint(("x", "y"))]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param("0..200", (0, 200), id="a13_integers"),
        pytest.param("0.5..1.5", (0.5, 1.5), id="a14_floats"),
        pytest.param("-1.5..-0.5", (-1.5, -0.5), id="a15_negative_floats"),
        pytest.param("-10..-1", (-10, -1), id="a16_negative_integers"),
        pytest.param("0..", (0, None), id="lower_only"),
        pytest.param("..10", (None, 10), id="upper_only"),
        pytest.param("-9223372036854775808..", (-(2**63), None), id="smallest"),
    ],
)
def test_range_bounds(bounds: str, expected: tuple[float | None, float | None]) -> None:
    (actual,) = node(f"node A {{ p: F64? @range(p, {bounds}) }}").ranges
    assert (actual.min, actual.max) == expected
    assert [type(actual.min), type(actual.max)] == [type(bound) for bound in expected]


def test_a17_a_check_keeps_its_pattern() -> None:
    assert node(r'node A { c: String @check(c, "^[A-Z]\\d{2}$") }').checks == (
        CheckConstraint("c", r"^[A-Z]\d{2}$"),
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param("@card(0..1)", Cardinality(0, 1), id="a20_both"),
        pytest.param("@card(1..)", Cardinality(1, None), id="a21_open"),
        pytest.param("@card(1..1) @x", Cardinality(1, 1), id="before_annotations"),
    ],
)
def test_cardinality(written: str, expected: Cardinality) -> None:
    edge = compile_schema(f"node A {{ }} edge E: A -> A {written}").edge("E")
    assert edge is not None
    assert edge.cardinality == expected


@pytest.mark.parametrize(
    ("body", "unique", "indexes"),
    [
        pytest.param("@unique(src, dst)", (("dst", "src"),), (), id="a22_endpoints"),
        pytest.param("w: I32 @index", (), (("w",),), id="a23_index"),
        pytest.param("w: I32 @unique", (("w",),), (), id="a24_unique"),
        pytest.param("w: I32 @index(src, w)", (), (("src", "w"),), id="index_on_an_endpoint"),
    ],
)
def test_edge_constraints(body: str, unique: object, indexes: object) -> None:
    edge = compile_schema(f"node A {{ }} edge E: A -> A {{ {body} }}").edge("E")
    assert edge is not None
    assert (edge.unique, edge.indexes) == (unique, indexes)


@pytest.mark.parametrize(
    ("written", "source", "model"),
    [
        pytest.param("@embed(title)", "title", None, id="a25_bare"),
        pytest.param('@embed("title", model="m")', "title", "m", id="a26_model"),
        pytest.param('@embed("title")', "title", None, id="a27_no_model"),
    ],
)
def test_embed(written: str, source: str, model: str | None) -> None:
    catalog = compile_schema(f"node A {{ title: String? v: Vector(3)? {written} }}")
    embed = catalog.node_types["A"].embeds["v"]
    assert (embed.source, embed.model) == (source, model)
    assert ("kwargs" in catalog.ir.compact()) == (model is not None)


def test_a34_rename_from_is_kept_on_nodes_edges_and_properties() -> None:
    text = 'node A @rename_from("B") { p: I32 @rename_from("q") } edge E: A -> A @rename_from("F")'
    catalog = compile_schema(text)
    node_type, edge = catalog.node_types["A"], catalog.edge_types["E"]
    actual = [node_type.annotations, node_type.properties["p"].annotations, edge.annotations]
    assert [a[0].value for a in actual] == ["B", "q", "F"]


def test_a38_enums_are_sorted_and_lists_parse() -> None:
    actual = node("node A { s: enum(open, closed, blocked)  t: [String]? }")
    assert actual.properties["s"].type.enum_values == ("blocked", "closed", "open")
    assert str(actual.properties["t"].type) == "[String]?"


def test_enum_values_may_hold_hyphens_and_start_with_digits() -> None:
    actual = node("node A { s: enum(phase-1, 1on1, lp-institution, 2024-05, -x, a_b)? }")
    assert actual.properties["s"].type.enum_values == (
        "-x", "1on1", "2024-05", "a_b", "lp-institution", "phase-1",
    )  # fmt: skip


def test_a40_descriptions_and_instructions_are_accepted() -> None:
    text = (
        'node A @description("d") @instruction("i") { p: I32 @description("p") }'
        'edge E: A -> A @description("d") @instruction("i")'
    )
    assert [a.name for a in node(text).annotations] == ["description", "instruction"]


def test_a41_escapes_are_decoded() -> None:
    actual = node(r'node A @description("a\n\t\"\\\r") { }')
    assert actual.annotations[0].value == 'a\n\t"\\\r'


def test_a42_an_unknown_escape_is_an_error() -> None:
    assert messages(r'node A @description("a\q") { }') == [r"unsupported escape sequence: \q"]


def test_a46_a_vector_has_a_dimension() -> None:
    assert node("node A { v: Vector(2147483647) }").properties["v"].type.dimension == 2147483647


def test_a47_a_syntax_error_has_a_span_of_at_least_one_byte() -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema("node Ä")
    spans = [d.to_json()["span"] for d in caught.value.diagnostics]
    assert spans
    assert all(span["end"] > span["start"] for span in spans)
    with pytest.raises(SchemaError) as caught:
        compile_schema("node A")
    assert caught.value.diagnostics[0].to_json()["span"] == {"start": 6, "end": 7}


def test_unknown_annotations_are_accepted_with_any_argument() -> None:
    actual = node('node A @x @y(5) @z(name, k=1.50, b=true) @w("s") { p: I32 @vector("cosine") }')
    assert [(a.name, a.value, a.kwargs) for a in actual.annotations] == [
        ("w", "s", ()),
        ("x", None, ()),
        ("y", "5", ()),
        ("z", "name", (("b", "true"), ("k", "1.50"))),
    ]


def test_keywords_need_no_space_after_them() -> None:
    catalog = compile_schema("nodePerson { a: I32 } interfaceI { } edgeKnows: Person -> Person")
    assert (list(catalog.node_types), list(catalog.edge_types)) == (["Person"], ["Knows"])


def test_annotations_may_also_stand_after_the_interfaces() -> None:
    before = "interface I { } node A @x implements I { }"
    after = "interface I { } node A implements I @x { }"
    assert compile_schema(before) == compile_schema(after)


def test_a_constraint_after_a_property_does_not_belong_to_it() -> None:
    file, _ = parse_schema(Source("s.pg", "node A { a: String @unique(a, b) b: String @unique }"))
    (actual,) = file.declarations
    assert isinstance(actual, NodeDecl)
    assert [type(m).__name__ for m in actual.members] == [
        "PropertyDecl",
        "UniqueConstraint",
        "PropertyDecl",
    ]


def test_equality_of_trees_ignores_layout() -> None:
    first, _ = parse_schema(Source("a", "node A { a: I32 } edge E: A -> A { }"))
    second, _ = parse_schema(Source("b", "node A\n{a:I32}\n// x\nedge E:A->A{}"))
    assert first == second
    assert isinstance(second.declarations[1], EdgeDecl)


# -- recovery -----------------------------------------------------------------------------------


def test_a_broken_property_does_not_hide_the_next_error() -> None:
    text = "node A { a: Strin  b: I32  c Bool  d: Vector(0)  e: [Blob] }"
    assert [m.split(",")[0] for m in messages(text)] == [
        "unknown type `Strin`",
        "expected `:` after the property name `c`",
        "Vector dimension must be greater than zero",
        "list of Blob is not supported",
    ]


def test_a_broken_declaration_does_not_hide_the_next() -> None:
    file, diagnostics = parse_schema(Source("s", "node a { x: I32 } interface I { } edge E A -> B"))
    assert [type(d) for d in file.declarations] == [InterfaceDecl]
    assert [d.code for d in diagnostics] == ["P010", "P010"]


def test_a_missing_brace_is_reported_once_and_the_next_type_is_read() -> None:
    file, diagnostics = parse_schema(Source("s", "node A { x: I32\nnode B { y: I32 }"))
    assert [d.name for d in file.declarations] == ["A", "B"]
    assert [d.message for d in diagnostics] == ["the `{` of this node is not closed"]


def test_a_part_that_could_not_be_read_causes_no_further_complaints() -> None:
    text = "node A { name: Strin  @key(name) } node b { } edge E: A -> B"
    assert [d.code for d in analyze_schema(Source("s", text))[1]] == ["S002", "P010"]


def test_names_that_look_like_keywords_are_property_names() -> None:
    words = "type kind when until since date from to blob node edge enum query interface implements"
    body = " ".join(f"{word}: String?" for word in words.split())
    assert sorted(words.split()) == list(node(f"node A {{ {body} }}").properties)


def big_schema() -> str:
    lines = ['// ── Types ── { "quoted" isn\'t → closed', "/* @unique(src,dst) } */", ""]
    for number in range(12):
        lines.append(f"node N{number} {{ // @key(x) {{")
        lines += [
            "  slug: String @key",
            "  kind: enum(",
            "    a-1, // first }",
            "    b,",
            "    c)?",
        ]
        lines += ["  when: DateTime?", "  dates: [Date]?", "  text: String? @index"]
        lines += ['  vec: Vector(3072) @embed("text") @index', "  blob: Blob?", "}"]
    for number in range(70):
        source, target = number % 12, (number * 7) % 12
        body = " { note: String? @unique(src) }" if number % 9 == 0 else ""
        card = " @card(0..1)" if number % 7 == 0 else ""
        lines.append(f"edge Link{number}: N{source} -> N{target}{card}{body} // → {number}")
    return "\n".join(lines)


def test_a_schema_of_the_size_of_real_projects_compiles() -> None:
    catalog: Catalog = compile_schema(big_schema())
    assert (len(catalog.node_types), len(catalog.edge_types)) == (12, 70)
    assert catalog.edge("link63") is not None
    assert catalog.edge_types["Link63"].unique == (("src",),)
    assert isinstance(catalog.node_types["N0"].ranges, tuple)


def test_ranges_are_kept_per_property() -> None:
    actual = node("node A { a: I32 b: F32 @range(a, 0..1) @range(b, 0.0..1.0) }").ranges
    assert actual == (RangeConstraint("a", 0, 1), RangeConstraint("b", 0.0, 1.0))
