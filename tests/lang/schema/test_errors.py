"""Everything that can be wrong with a schema: text, code, message, place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import omnigraph.lang.schema as package
from omnigraph.errors import SchemaError
from omnigraph.lang.diagnostics import Phase, Source
from omnigraph.lang.schema.check import check_schema
from omnigraph.lang.schema.codes import SCHEMA_CODES
from omnigraph.lang.schema.compile import analyze_schema, compile_schema
from omnigraph.lang.schema.parser import parse_schema

Case = tuple[str, str, str, int, int]

CASES: dict[str, Case] = {
    "a07_unknown_interface_is_an_error": (
        "interface Named { }\nnode A implements Name { }",
        "S051",
        "node A implements unknown interface 'Name'",
        2,
        19,
    ),
    "a08_interface_type_clash": (
        "interface I { p: String }\nnode A implements I { p: String? }",
        "S052",
        "node A property 'p' has type String? but interface I declares it as String",
        2,
        26,
    ),
    "a08_interface_enum_clash": (
        "interface I { p: enum(a, b) } node A implements I { p: enum(a) }",
        "S052",
        "node A property 'p' has type enum(a) but interface I declares it as enum(a, b)",
        1,
        56,
    ),
    "a18_range_on_a_string": (
        "node A { p: String @range(p, 0..1) }",
        "S043",
        "requires a numeric type, got String",
        1,
        27,
    ),
    "a19_check_on_an_integer": (
        'node A { p: I32 @check(p, "x") }',
        "S044",
        "requires String type, got I32",
        1,
        24,
    ),
    "check_on_a_list": (
        'node A { p: [String] @check(p, "x") }',
        "S044",
        "requires String type, got [String]",
        1,
        29,
    ),
    "a28_embed_keyword": (
        'node A { t: String v: Vector(2) @embed(t, mode="x") }',
        "S033",
        "has unknown argument 'mode=' (only 'model' is supported)",
        1,
        33,
    ),
    "a29_embed_without_source": (
        "node A { v: Vector(2) @embed }",
        "S030",
        "requires a source property name",
        1,
        23,
    ),
    "embed_with_an_empty_source": (
        'node A { v: Vector(2) @embed("") }',
        "S030",
        "requires a source property name",
        1,
        23,
    ),
    "a30_embed_on_a_string": (
        "node A { t: String v: String @embed(t) }",
        "S029",
        "@embed is only supported on vector properties (A.v)",
        1,
        30,
    ),
    "a31_embed_unknown_source": (
        "node A { text: String v: Vector(2) @embed(tekst) }",
        "S031",
        "references unknown source property tekst",
        1,
        36,
    ),
    "a32_embed_source_no_string": (
        "node A { t: I32 v: Vector(2) @embed(t) }",
        "S032",
        "@embed source property A.t must be String",
        1,
        30,
    ),
    "a33_embed_on_an_edge": (
        "node A { } edge E: A -> A { t: String v: Vector(2) @embed(t) }",
        "S026",
        "@embed is not supported on edge properties (edge E.v)",
        1,
        52,
    ),
    "a33_key_on_an_edge_property": (
        "node A { } edge E: A -> A { t: String @key }",
        "S026",
        "@key is not supported on edge properties (edge E.t)",
        1,
        39,
    ),
    "a35_two_keys": (
        "node A { a: String @key b: String @key }",
        "S040",
        "node type A has multiple @key constraints; only one is supported",
        1,
        35,
    ),
    "two_keys_in_two_forms": (
        "node A { a: String @key @key(a) }",
        "S040",
        "multiple @key constraints",
        1,
        25,
    ),
    "two_keys_through_an_interface": (
        "interface I { a: String @key }\nnode A implements I { b: String @key }",
        "S040",
        "multiple @key constraints",
        2,
        33,
    ),
    "a36_unique_with_a_string": (
        'node A { a: String @unique("x") }',
        "S009",
        "@unique takes property names only",
        1,
        28,
    ),
    "a36_index_with_a_string": (
        'node A { a: String @index("x") }',
        "S009",
        "@index takes property names only",
        1,
        27,
    ),
    "a37_unique_on_a_node_header": (
        "node A @unique { a: String }",
        "S020",
        "@unique is only supported on node properties or as body constraint (node A)",
        1,
        8,
    ),
    "a37_index_on_a_node_header": (
        "node A @index { a: String }",
        "S020",
        "@index is only supported on node properties or as body constraint (node A)",
        1,
        8,
    ),
    "embed_on_a_node_header": (
        "node A @embed(a) { a: String }",
        "S020",
        "@embed is only supported on node properties (node A)",
        1,
        8,
    ),
    "unique_on_an_edge_header": (
        "node A { } edge E: A -> A @unique",
        "S021",
        "@unique is not supported on edges (edge E)",
        1,
        27,
    ),
    "a39_duplicate_enum_value": (
        "node A { s: enum(a, b, a) }",
        "S007",
        "enum type cannot include duplicate values",
        1,
        24,
    ),
    "a42_unknown_escape": (
        r'node A @x("\q") { }',
        "P004",
        r"unsupported escape sequence: \q",
        1,
        12,
    ),
    "a43_repeated_description": (
        'node A @description("a") @description("b") { }',
        "S022",
        "declares @description multiple times",
        1,
        26,
    ),
    "a43_repeated_property_description": (
        'node A { p: I32 @description("a") @description("b") }',
        "S022",
        "declares @description multiple times",
        1,
        35,
    ),
    "empty_description": (
        'node A @description(" ") { }',
        "S023",
        "@description on node A requires a non-empty value",
        1,
        8,
    ),
    "description_without_value": (
        "node A { p: I32 @description }",
        "S023",
        "@description on property A.p requires a non-empty value",
        1,
        17,
    ),
    "a44_instruction_on_a_property": (
        'node A { p: I32 @instruction("x") }',
        "S024",
        "@instruction is only supported on node and edge types (property A.p)",
        1,
        17,
    ),
    "a45_key_on_a_list": (
        "node A { p: [String] @key }",
        "S025",
        "@key is not supported on list property A.p",
        1,
        22,
    ),
    "embed_on_a_list": (
        "node A { p: [String] @embed(p) }",
        "S025",
        "@embed is not supported on list property A.p",
        1,
        22,
    ),
    "unique_on_a_vector": (
        "node A { p: Vector(2) @unique }",
        "S025",
        "@unique is not supported on vector property A.p",
        1,
        23,
    ),
    "index_on_a_blob": (
        "node A { p: Blob @index }",
        "S025",
        "@index is not supported on blob property A.p",
        1,
        18,
    ),
    "key_on_a_list_in_an_interface": (
        "interface I { p: [String] @key }",
        "S025",
        "@key is not supported on list property I.p",
        1,
        27,
    ),
    "a46_vector_zero": (
        "node A { v: Vector(0) }",
        "S003",
        "Vector dimension must be greater than zero",
        1,
        20,
    ),
    "a46_vector_too_big": (
        "node A { v: Vector(2147483648) }",
        "S004",
        "exceeds maximum supported 2147483647",
        1,
        20,
    ),
    "vector_far_too_big": (
        f"node A {{ v: Vector({'9' * 5000}) }}",
        "S004",
        "exceeds maximum supported 2147483647",
        1,
        20,
    ),
    "list_of_blob": ("node A { v: [Blob] }", "S005", "list of Blob is not supported", 1, 13),
    "list_of_enum": ("node A { v: [enum(a)] }", "S006", "lists of enums are not supported", 1, 14),
    "list_of_vector": (
        "node A { v: [Vector(3)] }",
        "S006",
        "lists of vectors are not supported",
        1,
        14,
    ),
    "list_of_list": ("node A { v: [[I32]] }", "S006", "lists of lists are not supported", 1, 14),
    "cardinality_order": (
        "node A { } edge E: A -> A @card(2..1)",
        "S008",
        "cardinality min (2) exceeds max (1)",
        1,
        27,
    ),
    "card_later": (
        "node A { } edge E: A -> A @x @card(0..1)",
        "S001",
        "@card is not allowed here",
        1,
        30,
    ),
    "card_on_a_node": ("node A @card(0..1) { }", "S001", "@card is not allowed here", 1, 8),
    "card_on_a_property": (
        "node A { p: I32 @card(0..1) }",
        "S001",
        "@card is not allowed here",
        1,
        17,
    ),
    "repeated_annotation": (
        "node A { p: String @index @index }",
        "S027",
        "property A.p declares @index multiple times",
        1,
        27,
    ),
    "repeated_rename": (
        'node A @rename_from("B") @rename_from("C") { }',
        "S027",
        "node A declares @rename_from multiple times",
        1,
        26,
    ),
    "rename_without_a_name": (
        "node A @rename_from { }",
        "S028",
        "requires the previous name",
        1,
        8,
    ),
    "repeated_keyword": (
        'node A @x(1, k="a", k="b") { }',
        "S014",
        "@x has two arguments 'k='",
        1,
        21,
    ),
    "key_on_unknown": (
        "node A { name: String @key(nam) }",
        "S041",
        "@key on A references unknown property 'nam'",
        1,
        28,
    ),
    "unique_on_unknown": (
        "node A { @unique(p) }",
        "S041",
        "@unique on A references unknown property 'p'",
        1,
        18,
    ),
    "index_on_unknown": (
        "node A { @index(p) }",
        "S041",
        "@index on A references unknown property 'p'",
        1,
        17,
    ),
    "range_on_unknown": (
        "node A { @range(p, 0..1) }",
        "S041",
        "@range on A references unknown property 'p'",
        1,
        17,
    ),
    "check_on_unknown": (
        'node A { @check(p, "x") }',
        "S041",
        "@check on A references unknown property 'p'",
        1,
        17,
    ),
    "endpoints_on_a_node": (
        "node A { @unique(src) }",
        "S041",
        "@unique on A references unknown property 'src'",
        1,
        18,
    ),
    "nullable_key": (
        "node A { p: String? @key(p) }",
        "S042",
        "@key property A.p cannot be nullable",
        1,
        26,
    ),
    "nullable_key_annotation": (
        "node A { p: String? @key }",
        "S042",
        "@key property A.p cannot be nullable",
        1,
        21,
    ),
    "key_on_edge": (
        "node A { } edge E: A -> A { p: I32 @key(p) }",
        "S045",
        "@key constraint is not supported on edges (edge E)",
        1,
        36,
    ),
    "range_on_edge": (
        "node A { } edge E: A -> A { p: I32 @range(p, 0..1) }",
        "S045",
        "@range constraint is not supported on edges (edge E)",
        1,
        36,
    ),
    "check_on_edge": (
        'node A { } edge E: A -> A { p: String @check(p, "x") }',
        "S045",
        "@check constraint is not supported on edges (edge E)",
        1,
        39,
    ),
    "range_without_bounds": (
        "node A { p: I32 @range(p) }",
        "S010",
        "@range requires property name and bounds",
        1,
        17,
    ),
    "range_with_a_number": (
        "node A { p: I32 @range(p, 5) }",
        "S010",
        "expected range bounds (min..max)",
        1,
        27,
    ),
    "range_bound_too_large": (
        "node A { p: I32 @range(p, 0..9223372036854775808) }",
        "S012",
        "range bound is out of range",
        1,
        30,
    ),
    "range_float_too_large": (
        f"node A {{ p: F64 @range(p, 0..{'9' * 400}.0) }}",
        "S012",
        "range bound is too large",
        1,
        30,
    ),
    "check_without_pattern": (
        "node A { p: String @check(p) }",
        "S011",
        "@check requires property name and pattern",
        1,
        20,
    ),
    "body_key_on_vector": (
        "node A { p: Vector(2) @key(p) }",
        "S046",
        "@key is not supported on vector property A.p",
        1,
        28,
    ),
    "body_unique_on_blob": (
        "node A { p: Blob @unique(p) }",
        "S047",
        "@unique is not supported on blob property A.p",
        1,
        26,
    ),
    "body_unique_on_list": (
        "node A { p: [I32] @unique(p) }",
        "S047",
        "@unique is not supported on list property A.p",
        1,
        27,
    ),
    "body_index_on_blob": (
        "node A { p: Blob @index(p) }",
        "S048",
        "@index is not supported on blob property A.p",
        1,
        25,
    ),
    "column_twice": (
        "node A { p: I32 @unique(p, p) }",
        "S049",
        "@unique on A names property 'p' twice",
        1,
        28,
    ),
    "reserved_id": ("node A { id: String }", "S050", "property name 'id' is reserved", 1, 10),
    "reserved_src_on_a_node": (
        "node A { src: String }",
        "S050",
        "property name 'src' is reserved",
        1,
        10,
    ),
    "reserved_dst_on_an_edge": (
        "node A { } edge E: A -> A { dst: I32 }",
        "S050",
        "property name 'dst' is reserved",
        1,
        29,
    ),
    "reserved_rowid": (
        "interface I { _rowid: I64 }",
        "S050",
        "property name '_rowid' is reserved",
        1,
        15,
    ),
    "interface_annotation": ("interface I @x { }", "S013", "interfaces have no annotations", 1, 13),
    "interface_constraint": (
        "interface I { p: I32 @index(p) }",
        "S013",
        "@index constraints are not supported in an interface body",
        1,
        22,
    ),
    "unknown_type": ("node A { p: Integer }", "S002", "unknown type `Integer`", 1, 13),
    "not_unicode": ("node A { } // \ud800", "S015", "not valid Unicode", 1, 15),
    "b51_duplicate_node": ("node A { }\nnode A { }", "S101", "duplicate node type: A", 2, 6),
    "duplicate_edge": (
        "node A { } edge E: A -> A edge E: A -> A",
        "S102",
        "duplicate edge type: E",
        1,
        32,
    ),
    "duplicate_interface": (
        "interface I { } interface I { }",
        "S103",
        "duplicate interface: I",
        1,
        27,
    ),
    "b52_unknown_source": (
        "node A { }\nedge E: B -> A",
        "S104",
        "edge E references unknown source type: B",
        2,
        9,
    ),
    "b52_unknown_target": (
        "node A { }\nedge E: A -> B",
        "S104",
        "edge E references unknown target type: B",
        2,
        14,
    ),
    "b53_casing_clash": (
        "node A { } edge Ab: A -> A edge AB: A -> A",
        "S105",
        "edge name collision after case folding: 'AB' conflicts with 'Ab'",
        1,
        33,
    ),
    "duplicate_property": ("node A { p: I32 p: I64 }", "S108", "property id collision", 1, 17),
    "syntax": (
        "node A { p String }",
        "P010",
        "expected `:` after the property name `p`, found `String`",
        1,
        12,
    ),
    "comma": ("node A { p: I32, q: I32 }", "P010", "found `,`", 1, 16),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_wrong_schema_is_reported_with_its_place(case: Case) -> None:
    text, code, fragment, line, column = case
    source = Source("s.pg", text)
    _, diagnostics = analyze_schema(source)
    assert [(d.code, source.position(d.span.start)) for d in diagnostics] == [
        (code, (line, column))
    ]
    assert fragment in diagnostics[0].message
    phase = Phase.CATALOG if code.startswith("S1") else Phase.PARSE
    assert diagnostics[0].text.startswith(f"{phase} error: {code}: ")
    with pytest.raises(SchemaError):
        compile_schema(source)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("node Person { } edge E: Person -> Persn", "did you mean `Person`?"),
        ("interface Named { } node A implements named { }", "upper-case letter: `Named`"),
        ("node A { name: String @index(nam) }", "did you mean `name`?"),
        ("interface I { } node A { } edge E: A -> I", "an interface has no rows"),
        ("node A { p: Text }", "did you mean `String`?"),
        ("node A { p: string }", "did you mean `String`?"),
        ('node A { p: enum("a") }', "without quotes"),
        ("node A { } edge E: A -> A @x @card(0..1)", "right after the target type"),
        ("node A { p: I32, }", "no comma"),
        ("node A { id: String }", "choose another name"),
    ],
)
def test_hints_say_what_to_do(text: str, hint: str) -> None:
    actual = [d.hint or "" for d in analyze_schema(Source("s.pg", text))[1]]
    assert any(hint in shown for shown in actual)


def test_all_errors_are_reported_in_source_order() -> None:
    text = "node A { id: I32 @range(x, 0..1) p: Vector(0) } edge E: A -> B edge e: A -> A"
    with pytest.raises(SchemaError) as caught:
        compile_schema(text)
    assert [d.code for d in caught.value.diagnostics] == ["S050", "S041", "S003", "S104", "P010"]


def test_type_ids_that_collide_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.lang.schema.check.type_id", lambda kind, name: 1)
    source = Source("s.pg", "node A { } node B { }")
    (actual,) = check_schema(parse_schema(source)[0], source)
    assert (actual.code, actual.message) == (
        "S106",
        "type id collision: node B and node A have the same id 1",
    )


def test_property_ids_that_collide_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.lang.schema.check.property_id", lambda kind, owner, name: 1)
    source = Source("s.pg", "node A { a: I32 b: I32 }")
    (actual,) = check_schema(parse_schema(source)[0], source)
    assert actual.code == "S107"
    assert actual.message.startswith("property id collision: ")


def test_every_code_is_used_and_every_used_code_is_registered() -> None:
    used: set[str] = set()
    for path in Path(package.__path__[0]).glob("*.py"):
        if path.name != "codes.py":
            used |= set(re.findall(r'"(S\d{3})"', path.read_text(encoding="utf-8")))
    assert used == set(SCHEMA_CODES)


def test_every_code_but_the_collisions_has_an_example_here() -> None:
    shown = {case[1] for case in CASES.values()}
    # S034 is only for schemas that are new: see tests/maintain/test_vector_indexes.py.
    assert set(SCHEMA_CODES) - shown == {"S034", "S106", "S107"}


def test_two_interfaces_of_a_node_must_agree() -> None:
    text = "interface I { a: String } interface J { a: I32 } node A implements I, J { }"
    source = Source("s.pg", text)
    (actual,) = analyze_schema(source)[1]
    assert (actual.code, text[actual.span.start : actual.span.end]) == ("S052", "J")
    assert "has type String but interface J declares it as I32" in actual.message
