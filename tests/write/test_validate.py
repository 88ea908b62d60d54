"""The one validator, rule by rule: what it finds, what it says, and what it looks at."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import (
    CardinalityViolation,
    InputError,
    OrphanEdge,
    UniqueViolation,
    ValueViolation,
)
from omnigraph.lang.schema.catalog import NodeType, Property
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.patterns import matches
from omnigraph.lang.types import PropType, Scalar
from omnigraph.write.delta import TableDelta, TableRows
from omnigraph.write.validate.rules import table_violations
from tests.write.deltas import (
    APPEND,
    DELETE,
    OVERWRITE,
    UPDATE,
    UPSERT,
    actual,
    delta,
    judged,
    table_of,
    texts,
)

pytestmark = pytest.mark.rotates(2)

# -- values -----------------------------------------------------------------------------------

NAN = float("nan")
VALUES = {
    "below a range": (
        "I32",
        "@range(v, 0..150)",
        [-1, 0],
        "@range violation on T.v: value -1 < min 0",
    ),
    "above a range": (
        "I32",
        "@range(v, 0..150)",
        [150, 151],
        "@range violation on T.v: value 151 > max 150",
    ),
    "a range without end": (
        "I64",
        "@range(v, 5..)",
        [2**62, 4],
        "@range violation on T.v: value 4 < min 5",
    ),
    "a range without start": (
        "F64",
        "@range(v, ..0.5)",
        [0.5, 0.75, -1e300],
        "@range violation on T.v: value 0.75 > max 0.5",
    ),
    "a fraction around integers": (
        "I32",
        "@range(v, 0.5..1.5)",
        [1, 2],
        "@range violation on T.v: value 2 > max 1.5",
    ),
    "a single that is nearest to its bound": ("F32", "@range(v, 0.1..0.3)", [0.1, 0.3], None),
    "a single beyond": (
        "F32",
        "@range(v, 0.0..0.5)",
        [0.75],
        "@range violation on T.v: value 0.75 > max 0.5",
    ),
    "the greatest unsigned": (
        "U64",
        "@range(v, 1..10)",
        [1, 10, 2**64 - 1],
        "@range violation on T.v: value 18446744073709551615 > max 10",
    ),
    "an unsigned above nothing": ("U64", "@range(v, -5..)", [0, 2**64 - 1], None),
    "NaN": ("F64", "@range(v, 0.0..)", [NAN, 1.0], "@range violation on T.v: value NaN"),
    "NaN in singles": ("F32", "@range(v, ..1.0)", [NAN], "@range violation on T.v: value NaN"),
    "a range on a list": ("[I32]", "@range(v, 0..1)", [[5], None, []], None),
    "a pattern anywhere": (
        "String",
        '@check(v, "a+")',
        ["bab", "bb", "a"],
        "@check violation on T.v: value 'bb' does not match pattern 'a+'",
    ),
    "an anchored pattern": (
        "String",
        '@check(v, "^[a-z]+$")',
        ["abc", "aBc"],
        "@check violation on T.v: value 'aBc' does not match pattern '^[a-z]+$'",
    ),
    "the empty text": (
        "String",
        '@check(v, ".")',
        ["", "é"],
        "@check violation on T.v: value '' does not match pattern '.'",
    ),
    "digits of every script": ("String", r'@check(v, "^\\d+$")', ["12", "٣४"], None),
    "letters of every script": (
        "String",
        r'@check(v, "^\\w+$")',
        ["Zoë_1", "名前", "नमस्ते", "a b"],
        r"@check violation on T.v: value 'a b' does not match pattern '^\w+$'",
    ),
    "a line end is no end": (
        "String",
        '@check(v, "^a$")',
        ["a", "a\n"],
        "@check violation on T.v: value 'a\n' does not match pattern '^a$'",
    ),
    "an enum": (
        "enum(b, a)",
        "",
        ["a", "c", "b"],
        "invalid enum value 'c' for T.v (expected: a, b)",
    ),
}


@pytest.mark.parametrize(("type_", "rule", "given", "text"), VALUES.values(), ids=list(VALUES))
def test_values(type_, rule, given, text):
    """Null is always fine, bounds are inside, and the text names type, property and value."""
    kind = compile_schema(f"node T {{ k: String @key  v: {type_}? {rule} }}").node("T")
    values = [*given, None]
    records = [{"id": str(i), "k": str(i), "v": value} for i, value in enumerate(values)]
    violations = list(table_violations(kind, table_of(records, kind.arrow_schema())))
    assert [violation.message for violation in violations] == ([] if text is None else [text])
    for violation in violations:
        assert violation.error_class is ValueViolation
        assert violation.row_id == str(violation.row)


def test_the_items_of_a_list_of_enums():
    """No schema text has one, a stored schema may."""
    type_ = PropType(Scalar.STRING, True, is_list=True, enum_values=("a", "b"))
    kind = NodeType("T", {"v": Property("v", type_)})
    lists = [["a", "b"], [], None, ["b", None, "c"], ["d"]]
    records = [{"id": str(i), "v": value} for i, value in enumerate(lists)]
    violations = list(table_violations(kind, table_of(records, kind.arrow_schema())))
    assert [(v.row, v.row_id, v.message) for v in violations] == [
        (3, "3", "invalid enum value 'c' for T.v (expected: a, b)"),
        (4, "4", "invalid enum value 'd' for T.v (expected: a, b)"),
    ]


def test_a_pattern_that_is_none_refuses_values_and_lets_nulls_pass():
    """The schema is accepted with a warning; the write says what is wrong."""
    kind = compile_schema('node T { k: String @key  v: String? @check(v, "(") }').node("T")
    schema = kind.arrow_schema()
    assert list(table_violations(kind, table_of([{"id": "a", "k": "a"}], schema))) == []
    with pytest.raises(InputError, match=r"the pattern '\(' of @check on T\.v"):
        list(table_violations(kind, table_of([{"id": "a", "k": "a", "v": "x"}], schema)))


@pytest.mark.parametrize("pattern", ["(?<=a)b", r"(a|b)\\1", "a{1500}", "("])
def test_a_pattern_is_refused_that_the_engine_does_not_know(pattern):
    """There is one dialect: no pattern means something else for some values."""
    kind = compile_schema(f'node T {{ k: String @key  v: String? @check(v, "{pattern}") }}').node(
        "T"
    )
    rows = table_of([{"id": "a", "k": "a", "v": "ab"}], kind.arrow_schema())
    with pytest.raises(InputError, match="is not a valid regular expression") as caught:
        list(table_violations(kind, rows))
    assert "look-around and back references are not supported" in caught.value.hint


SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
CLASSES = {
    r"\d": ("09٣४", "a½²Ⅷ "),
    r"\w": ("aZ_9é名٣Ⅷ", "- .½\u2014"),
    r"\s": (SPACES, "a\u200b\u180e-"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_those_of_unicode(name):
    """By themselves, turned round, and as a part of another class."""
    inside, outside = CLASSES[name]
    turned = name.upper()
    forms = [name, f"[{name}]", f"[^{turned}]", f"[]{name}]", f"[^[:^alpha:]{turned}]*{name}"]
    for pattern in forms:
        assert matches(pa.chunked_array([list(inside)]), f"^{pattern}$").to_pylist() == [
            True
        ] * len(inside), pattern
        assert not any(matches(pa.chunked_array([list(outside)]), f"^{pattern}$").to_pylist())
    for pattern in (turned, f"[{turned}]", f"[^{name}]"):
        assert all(matches(pa.chunked_array([list(outside)]), f"^{pattern}$").to_pylist()), pattern
    assert all(
        matches(pa.chunked_array([list(inside + outside)]), rf"^[{name}{turned}]$").to_pylist()
    )


def test_rules_of_a_column_that_is_not_written_are_not_asked(ruled):
    rows = TableRows(pa.table({"id": ["a"], "name": ["a"]}))
    change = TableDelta(ruled.catalog.node("P"), UPDATE, rows)
    assert judged(ruled, change).violations == ()


def test_values_of_edges(ruled):
    rows = [{"id": "n", "src": "c", "dst": "x", "tone": "loud"}]
    assert texts(ruled, delta(ruled, "To", APPEND, *rows)) == [
        "invalid enum value 'loud' for To.tone (expected: cold, warm)"
    ]


# -- uniqueness -------------------------------------------------------------------------------


def test_two_rows_of_one_write_with_one_value(ruled):
    new = [{"name": n, "mail": m} for n, m in (("p", "m"), ("q", "n"), ("r", "m"), ("s", "m"))]
    change = delta(ruled, "P", UPSERT, *new)
    assert texts(ruled, change) == [
        "@unique violation on P.mail: value 'm' held by 'p' and 'r'",
        "@unique violation on P.mail: value 'm' held by 'p' and 's'",
    ]
    assert actual(ruled, change) == [(UniqueViolation, "r", 2), (UniqueViolation, "s", 3)]


def test_a_value_that_another_row_has_already(ruled):
    for effect in (APPEND, UPSERT):
        change = delta(ruled, "P", effect, {"name": "p"}, {"name": "q", "mail": "b@"})
        assert texts(ruled, change) == [
            "@unique violation on P.mail: value 'b@' held by 'b' and 'q'"
        ]
        assert actual(ruled, change) == [(UniqueViolation, "q", 1)]


def test_a_tuple_that_another_row_has_already(ruled):
    """The whole tuple counts, and each part of it alone does not."""
    same = {"name": "p", "first": "A", "last": "One"}
    assert texts(ruled, delta(ruled, "P", UPSERT, same)) == [
        "@unique violation on P.(first, last): value '(A, One)' held by 'a' and 'p'"
    ]
    fine = [
        {"name": "p", "first": "A", "last": "Two"},
        {"name": "q", "first": "One", "last": "A"},
        {"name": "r", "first": "A, One", "last": ""},
    ]
    assert texts(ruled, delta(ruled, "P", UPSERT, *fine)) == []
    assert texts(ruled, delta(ruled, "P", UPSERT, *fine, {**fine[0], "name": "s"})) == [
        "@unique violation on P.(first, last): value '(A, Two)' held by 'p' and 's'"
    ]


def test_a_null_in_any_column_is_free(ruled):
    rows = [{"name": n, "first": "A", "last": None, "mail": None} for n in ("p", "q", "c")]
    rows += [{"name": "r", "first": None, "last": "One"}]
    assert texts(ruled, delta(ruled, "P", UPSERT, *rows)) == []


FREED = {
    "by a replacement": [(UPSERT, [{"name": "a", "mail": "new"}, {"name": "p", "mail": "a@"}], [])],
    "by an exchange": [(UPSERT, [{"name": "a", "mail": "b@"}, {"name": "b", "mail": "a@"}], [])],
    "by null": [(UPSERT, [{"name": "a"}, {"name": "p", "mail": "a@"}], [])],
    "by a deletion": [(UPSERT, [{"name": "p", "mail": "a@"}], ["a"])],
    "by an overwrite": [(OVERWRITE, [{"name": n, "mail": f"{n}@"} for n in "cba"], [])],
    "by the row itself": [(UPSERT, [{"name": "a", "mail": "a@", "first": "A", "last": "One"}], [])],
    "by the row itself in an update": [(UPDATE, [{"name": "a", "mail": "a@"}], [])],
}


@pytest.mark.parametrize("change", FREED.values(), ids=list(FREED))
def test_a_value_that_the_same_write_frees(ruled, change):
    """The edges are taken away with what is deleted, so that only this rule speaks."""
    ((effect, rows, deleted),) = change
    deltas = [delta(ruled, "P", effect, *rows, deleted=deleted)]
    if deleted:
        gone = {"Knows": ["k1"], "To": ["t1", "t2"], "Back": ["b1"], "Once": ["o1"]}
        deltas += [delta(ruled, name, DELETE, deleted=ids) for name, ids in gone.items()]
    assert texts(ruled, *deltas) == []


def test_uniqueness_of_edges(ruled):
    assert texts(ruled, delta(ruled, "Once", APPEND, ("n", "a", "x"), ("m", "a", "y"))) == [
        "@unique violation on Once.(src, dst): value '(a, x)' held by 'o1' and 'n'"
    ]
    rows = [{"id": i, "src": "x", "dst": "a", "n": 1} for i in ("n", "m")]
    assert texts(ruled, delta(ruled, "Back", APPEND, *rows)) == [
        "@unique violation on Back.n: value '1' held by 'n' and 'm'"
    ]


def test_an_id_that_one_write_has_twice_ends_the_rule(ruled):
    """Nothing more is said about uniqueness."""
    rows = [{"name": "p", "mail": "m"}, {"name": "p", "mail": "m"}]
    for effect in (APPEND, UPSERT, OVERWRITE):
        change = delta(ruled, "Plain", effect, {"name": "p"}, {"name": "p"})
        assert texts(ruled, change) == [
            "@unique violation on Plain.name: value 'p' held by 'p' and 'p'"
        ]
    assert len(texts(ruled, delta(ruled, "P", UPSERT, *rows))) == 1
    assert texts(ruled, delta(ruled, "Knows", APPEND, ("n", "a", "b"), ("n", "b", "a"))) == [
        "@unique violation on Knows.id: value 'n' held by 'n' and 'n'"
    ]


UNIQUE_TYPES = {
    "String": ("é", "e"),
    "Bool": (True, False),
    "I32": (-1, 1),
    "I64": (2**62, 2**62 + 1),
    "U32": (2**32 - 1, 0),
    "U64": (2**64 - 1, 2**64 - 2),
    "F32": (0.1, 0.2),
    "F64": (0.1, 0.1 + 2**-54),
    "Date": ("2024-05-01", "2024-05-02"),
    "DateTime": ("2024-05-01T10:00:00.123Z", "2024-05-01T10:00:00.124Z"),
    "enum(a, b)": ("a", "b"),
}


@pytest.mark.parametrize(("type_", "values"), UNIQUE_TYPES.items(), ids=list(UNIQUE_TYPES))
def test_uniqueness_of_every_type(tmp_path, type_, values):
    """Inside a write, against what is there, alone and in a tuple."""
    schema = (
        f"node T {{ k: String @key  v: {type_}? @unique  w: {type_}?  x: I32?  @unique(w, x) }}"
    )
    one, two = values
    shown = {True: "true"}.get(one, 0.10000000149011612 if type_ == "F32" else one)

    def load(*rows):
        graph.load([{"type": "T", "data": row} for row in rows])

    with Graph.init(tmp_path / "g.omni", schema, durability="os") as graph:
        load({"k": "a", "v": one, "w": one, "x": 1})
        load({"k": "b", "v": two, "w": two, "x": 1})
        load({"k": "a", "v": one, "w": one, "x": 1}, {"k": "c", "w": one, "x": 2})
        with pytest.raises(UniqueViolation, match="held by 'a' and 'd'") as caught:
            load({"k": "d", "v": one})
        assert f"on T.v: value '{shown}'" in caught.value.message
        with pytest.raises(UniqueViolation, match=r"T\.\(w, x\).* held by 'c' and 'd'"):
            load({"k": "d", "w": one, "x": 2})
        with pytest.raises(UniqueViolation, match="held by 'd' and 'e'"):
            load({"k": "d", "w": two, "x": 3}, {"k": "e", "w": two, "x": 3})
        assert graph.snapshot().count("T") == 3


@pytest.mark.parametrize("type_", ["F64", "F32"])
def test_zero_and_minus_zero_are_one_value(tmp_path, type_):
    """They compare equal, so they are no two values of a unique property."""
    schema = f"node T {{ k: String @key  v: {type_}? @unique }}"
    with Graph.init(tmp_path / "g", schema, durability="os") as graph:
        graph.load({"T": pa.table({"k": ["a"], "v": [0.0]})})
        with pytest.raises(UniqueViolation, match="held by 'a' and 'b'"):
            graph.load({"T": pa.table({"k": ["b"], "v": [-0.0]})})
        with pytest.raises(UniqueViolation, match="held by 'c' and 'd'"):
            graph.load({"T": pa.table({"k": ["c", "d"], "v": [-0.0, 0.0]})}, mode="overwrite")


# -- endpoints --------------------------------------------------------------------------------


def test_an_edge_needs_both_of_its_ends(ruled):
    change = delta(ruled, "Back", APPEND, ("n", "x", "a"), ("o", "no", "a"), ("p", "y", "gone"))
    assert texts(ruled, change) == [
        "edge Back: src 'no' not found in Q",
        "edge Back: dst 'gone' not found in P",
    ]
    assert actual(ruled, change) == [(OrphanEdge, "o", 1), (OrphanEdge, "p", 2)]


def test_an_edge_may_end_at_nodes_of_the_same_write(ruled):
    edges = delta(ruled, "Knows", APPEND, ("n", "new", "a"), ("m", "new", "new"))
    assert texts(ruled, edges, delta(ruled, "P", UPSERT, {"name": "new"})) == []
    assert len(texts(ruled, edges, delta(ruled, "Q", UPSERT, {"name": "new"}))) == 3


def test_a_changed_edge_is_judged_at_its_new_ends(ruled):
    assert texts(ruled, delta(ruled, "Knows", UPSERT, ("k1", "a", "gone"))) == [
        "edge Knows: dst 'gone' not found in P"
    ]
    assert texts(ruled, delta(ruled, "Knows", UPSERT, ("k1", "b", "a"))) == []


def test_an_edge_to_a_node_that_the_same_write_deletes(ruled):
    node = delta(ruled, "P", DELETE, deleted=["c"])
    edge = delta(ruled, "Knows", UPSERT, ("n", "a", "c"), deleted=["k2"])
    assert texts(ruled, node, edge) == ["edge Knows: dst 'c' not found in P"]


def test_a_node_whose_edges_stay_cannot_go(ruled):
    """Edges of every type, in both directions."""
    change = delta(ruled, "P", DELETE, deleted=["a", "c"])
    assert texts(ruled, change) == [
        "edge Back: dst 'a' not found in P",
        "edge Knows: src 'a' not found in P",
        "edge Knows: src 'c' not found in P",
        "edge Knows: dst 'c' not found in P",
        "edge Once: src 'a' not found in P",
        "edge To: src 'a' not found in P",
        "edge To: src 'a' not found in P",
    ]
    assert actual(ruled, change)[0] == (OrphanEdge, "b1", None)


LEAVES_B = {
    "they are deleted": [("Knows", DELETE, [], ["k1"]), ("To", DELETE, [], ["t3"])],
    "they are moved": [
        ("Knows", UPSERT, [("k1", "a", "c")], []),
        ("To", UPSERT, [("t3", "c", "x")], []),
    ],
    "they are replaced": [
        ("Knows", OVERWRITE, [("n", "a", "a")], []),
        ("To", OVERWRITE, [("t1", "a", "x")], []),
    ],
}


@pytest.mark.parametrize("edges", LEAVES_B.values(), ids=list(LEAVES_B))
def test_a_node_may_go_with_its_edges(ruled, edges):
    """Deleted, and overwritten by rows without it."""
    changes = [
        delta(ruled, name, effect, *rows, deleted=gone) for name, effect, rows, gone in edges
    ]
    assert texts(ruled, delta(ruled, "P", DELETE, deleted=["b"]), *changes) == []
    kept = [{"name": "a", "mail": "a@"}, {"name": "c"}]
    assert texts(ruled, delta(ruled, "P", OVERWRITE, *kept), *changes) == []


def test_an_overwrite_of_nodes_must_not_leave_edges_behind(ruled):
    assert texts(ruled, delta(ruled, "P", OVERWRITE, {"name": "a"}, {"name": "c"})) == [
        "edge Knows: dst 'b' not found in P",
        "edge To: src 'b' not found in P",
    ]
    assert texts(ruled, delta(ruled, "P", OVERWRITE, *({"name": n} for n in "abcd"))) == []


def test_an_overwrite_of_edges_is_judged_against_the_nodes_that_stay(ruled):
    nodes = delta(ruled, "P", OVERWRITE, *({"name": n} for n in "abc"), {"name": "d"})
    assert texts(ruled, nodes, delta(ruled, "Knows", OVERWRITE, ("n", "d", "a"))) == []
    edges = delta(ruled, "Knows", OVERWRITE, ("n", "d", "z"))
    assert texts(ruled, nodes, edges) == ["edge Knows: dst 'z' not found in P"]


# -- cardinality ------------------------------------------------------------------------------


def test_too_many_edges(ruled):
    """Those that are there count."""
    assert texts(ruled, delta(ruled, "To", APPEND, ("n", "a", "x"))) == [
        "@card violation on edge To: source 'a' has 3 edges (max 2)"
    ]
    change = delta(ruled, "To", APPEND, *((i, "c", "x") for i in "nmo"))
    assert texts(ruled, change) == ["@card violation on edge To: source 'c' has 3 edges (max 2)"]
    assert actual(ruled, change) == [(CardinalityViolation, "c", 2)]
    assert texts(ruled, delta(ruled, "To", APPEND, ("n", "b", "x"), ("m", "c", "x"))) == []


def test_too_few_edges(ruled):
    change = delta(ruled, "To", DELETE, deleted=["t1", "t3"])
    assert texts(ruled, change) == ["@card violation on edge To: source 'b' has 0 edges (min 1)"]
    assert actual(ruled, change) == [(CardinalityViolation, "b", None)]


def test_a_node_that_never_had_an_edge_is_left_alone(ruled):
    assert texts(ruled, delta(ruled, "P", UPSERT, {"name": "new"})) == []
    assert texts(ruled, delta(ruled, "To", DELETE, deleted=["t1"])) == []


def test_an_edge_that_moves_leaves_its_old_source(ruled):
    assert texts(ruled, delta(ruled, "To", UPSERT, ("t3", "c", "x"))) == [
        "@card violation on edge To: source 'b' has 0 edges (min 1)"
    ]
    swapped = delta(ruled, "To", UPSERT, ("t3", "c", "x"), ("t2", "b", "x"))
    assert texts(ruled, swapped) == []


def test_an_edge_that_is_replaced_counts_once(ruled):
    assert texts(ruled, delta(ruled, "To", UPSERT, ("t1", "a", "y"), ("t2", "a", "y"))) == []


def test_a_source_that_is_deleted_needs_no_edges(ruled):
    """Also one that an overwrite leaves out."""
    node = delta(ruled, "P", DELETE, deleted=["b"])
    others = delta(ruled, "Knows", DELETE, deleted=["k1"])
    assert texts(ruled, node, others, delta(ruled, "To", DELETE, deleted=["t3"])) == []
    nodes = delta(ruled, "P", OVERWRITE, {"name": "a"}, {"name": "c"})
    kept = delta(ruled, "To", OVERWRITE, ("t1", "a", "x"))
    assert texts(ruled, nodes, others, kept) == []


def test_an_overwrite_counts_its_own_edges_only(ruled):
    assert texts(ruled, delta(ruled, "To", OVERWRITE, ("t1", "a", "x"), ("n", "b", "x"))) == []
    assert texts(ruled, delta(ruled, "To", OVERWRITE, *((i, "c", "x") for i in "nmo"))) == [
        "@card violation on edge To: source 'c' has 3 edges (max 2)",
        "@card violation on edge To: source 'a' has 0 edges (min 1)",
        "@card violation on edge To: source 'b' has 0 edges (min 1)",
    ]


def test_an_update_of_edges_moves_none(ruled):
    rows = [{"id": "t1", "src": "a", "dst": "x", "tone": "warm"}]
    assert texts(ruled, delta(ruled, "To", UPDATE, *rows)) == []
