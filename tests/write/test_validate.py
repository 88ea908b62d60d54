"""The one validator, rule by rule: what it finds, what it says, and what it looks at."""

from __future__ import annotations

import shutil

import lance
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
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import NodeType, Property
from omnigraph.lang.types import PropType, Scalar
from omnigraph.storage.table import Table
from omnigraph.write.delta import Effect, TableDelta, TableRows
from omnigraph.write.validate import Validator
from omnigraph.write.validate.values import table_violations

SCHEMA = """\
node P {
  name: String @key
  age: I32?
  mail: String? @unique
  first: String?  last: String?
  @unique(first, last)
  @range(age, 0..150)
}
node Q { name: String @key }
node Plain { name: String @key  v: I32? }
edge Knows: P -> P
edge To: P -> Q @card(1..2) { tone: enum(warm, cold)? }
edge Back: Q -> P { n: I32? @unique }
edge Once: P -> Q { @unique(src, dst) }
"""
APPEND, UPSERT, UPDATE = Effect.APPEND, Effect.UPSERT, Effect.UPDATE
OVERWRITE, DELETE = Effect.OVERWRITE, Effect.DELETE


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Nodes a, b, c of P and x, y of Q, and edges between them."""
    place = tmp_path_factory.mktemp("validate") / "g.omni"
    with Graph.init(place, SCHEMA, durability="os") as graph:
        people = [
            {"name": "a", "mail": "a@", "first": "A", "last": "One"},
            {"name": "b", "mail": "b@", "first": "B", "last": "One"},
            {"name": "c"},
        ]
        edges = [
            ("Knows", "k1", "a", "b"),
            ("Knows", "k2", "c", "c"),
            ("To", "t1", "a", "x"),
            ("To", "t2", "a", "y"),
            ("To", "t3", "b", "x"),
            ("Back", "b1", "x", "a"),
            ("Once", "o1", "a", "x"),
        ]
        graph.load(
            [{"type": "P", "data": row} for row in people]
            + [{"type": "Q", "data": {"name": name}} for name in "xy"]
            + [
                {"edge": kind, "from": src, "to": dst, "data": {"id": row_id}}
                for kind, row_id, src, dst in edges
            ]
        )
    return place


@pytest.fixture
def graph(template, tmp_path):
    shutil.copytree(template, tmp_path / "g.omni")
    with Graph.open(tmp_path / "g.omni", durability="os") as graph:
        yield graph


def delta(graph, type_name, effect, *rows, deleted=(), new_ids=False):
    """A delta of rows as dicts; a keyed node needs no id, an edge is (id, src, dst)."""
    kind = graph.catalog.node(type_name) or graph.catalog.edge(type_name)
    records = [
        dict(zip(("id", "src", "dst"), row, strict=True)) if isinstance(row, tuple) else row
        for row in rows
    ]
    records = [{"id": row.get("name"), **row} for row in records]
    source = None if effect is DELETE else TableRows(_table(records, kind.arrow_schema()))
    return TableDelta(kind, effect, source, pa.array(deleted, pa.string()), new_ids)


def _table(records, schema):
    """Every row a chunk of its own, so that nothing rests on columns being in one piece."""
    chunks = [pa.Table.from_pylist([record], schema=schema) for record in records]
    return pa.concat_tables(chunks) if chunks else schema.empty_table()


def judged(graph, *deltas, limit=None):
    validator = Validator(graph._store, graph.catalog, {d.table_key: d for d in deltas})
    return validator.judge(graph._store.manifest(None).current(), limit)


def found(graph, *deltas):
    """What breaks rules, as (class, row id, position)."""
    return [(v.error_class, v.row_id, v.row) for v in judged(graph, *deltas).violations]


def texts(graph, *deltas):
    return [violation.message for violation in judged(graph, *deltas).violations]


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
    "a look-behind, which Arrow does not know": (
        "String",
        '@check(v, "(?<=a)b")',
        ["ab", "cb"],
        "@check violation on T.v: value 'cb' does not match pattern '(?<=a)b'",
    ),
    "a repeated group, which Arrow does not know": (
        "String",
        '@check(v, "(a|b)\\\\1")',
        ["aa", None, "ab"],
        "@check violation on T.v: value 'ab' does not match pattern '(a|b)\\1'",
    ),
    "more repeats than Arrow takes": ("String", '@check(v, "a{1500}")', ["a" * 1500], None),
    "an enum": (
        "enum(b, a)",
        "",
        ["a", "c", "b"],
        "invalid enum value 'c' for T.v (expected: a, b)",
    ),
}


@pytest.mark.parametrize(("type_", "rule", "given", "text"), VALUES.values(), ids=list(VALUES))
def test_values(type_, rule, given, text):
    """7: null is always fine, bounds are inside, and the text names type, property and value."""
    kind = compile_schema(f"node T {{ k: String @key  v: {type_}? {rule} }}").node("T")
    values = [*given, None]
    records = [{"id": str(i), "k": str(i), "v": value} for i, value in enumerate(values)]
    violations = list(table_violations(kind, _table(records, kind.arrow_schema())))
    assert [violation.message for violation in violations] == ([] if text is None else [text])
    for violation in violations:
        assert violation.error_class is ValueViolation
        assert violation.row_id == str(violation.row)


def test_the_items_of_a_list_of_enums():
    """7: no schema text has one, a stored schema may."""
    type_ = PropType(Scalar.STRING, True, is_list=True, enum_values=("a", "b"))
    kind = NodeType("T", {"v": Property("v", type_)})
    lists = [["a", "b"], [], None, ["b", None, "c"], ["d"]]
    records = [{"id": str(i), "v": value} for i, value in enumerate(lists)]
    violations = list(table_violations(kind, _table(records, kind.arrow_schema())))
    assert [(v.row, v.row_id, v.message) for v in violations] == [
        (3, "3", "invalid enum value 'c' for T.v (expected: a, b)"),
        (4, "4", "invalid enum value 'd' for T.v (expected: a, b)"),
    ]


def test_a_pattern_that_is_none_refuses_values_and_lets_nulls_pass():
    """The schema is accepted with a warning; the write says what is wrong."""
    kind = compile_schema('node T { k: String @key  v: String? @check(v, "(") }').node("T")
    schema = kind.arrow_schema()
    assert list(table_violations(kind, _table([{"id": "a", "k": "a"}], schema))) == []
    with pytest.raises(InputError, match=r"the pattern '\(' of @check on T\.v"):
        list(table_violations(kind, _table([{"id": "a", "k": "a", "v": "x"}], schema)))


def test_rules_of_a_column_that_is_not_written_are_not_asked(graph):
    rows = TableRows(pa.table({"id": ["a"], "name": ["a"]}))
    change = TableDelta(graph.catalog.node("P"), UPDATE, rows)
    assert judged(graph, change).violations == ()


def test_values_of_edges(graph):
    rows = [{"id": "n", "src": "c", "dst": "x", "tone": "loud"}]
    assert texts(graph, delta(graph, "To", APPEND, *rows)) == [
        "invalid enum value 'loud' for To.tone (expected: cold, warm)"
    ]


# -- uniqueness -------------------------------------------------------------------------------


def test_two_rows_of_one_write_with_one_value(graph):
    new = [{"name": n, "mail": m} for n, m in (("p", "m"), ("q", "n"), ("r", "m"), ("s", "m"))]
    change = delta(graph, "P", UPSERT, *new)
    assert texts(graph, change) == [
        "@unique violation on P.mail: value 'm' held by 'p' and 'r'",
        "@unique violation on P.mail: value 'm' held by 'p' and 's'",
    ]
    assert found(graph, change) == [(UniqueViolation, "r", 2), (UniqueViolation, "s", 3)]


def test_a_value_that_another_row_has_already(graph):
    """280, 153"""
    for effect in (APPEND, UPSERT):
        change = delta(graph, "P", effect, {"name": "p"}, {"name": "q", "mail": "b@"})
        assert texts(graph, change) == [
            "@unique violation on P.mail: value 'b@' held by 'b' and 'q'"
        ]
        assert found(graph, change) == [(UniqueViolation, "q", 1)]


def test_a_tuple_that_another_row_has_already(graph):
    """139, 140: the whole tuple counts, and each part of it alone does not."""
    same = {"name": "p", "first": "A", "last": "One"}
    assert texts(graph, delta(graph, "P", UPSERT, same)) == [
        "@unique violation on P.(first, last): value '(A, One)' held by 'a' and 'p'"
    ]
    fine = [
        {"name": "p", "first": "A", "last": "Two"},
        {"name": "q", "first": "One", "last": "A"},
        {"name": "r", "first": "A, One", "last": ""},
    ]
    assert texts(graph, delta(graph, "P", UPSERT, *fine)) == []
    assert texts(graph, delta(graph, "P", UPSERT, *fine, {**fine[0], "name": "s"})) == [
        "@unique violation on P.(first, last): value '(A, Two)' held by 'p' and 's'"
    ]


def test_a_null_in_any_column_is_free(graph):
    rows = [{"name": n, "first": "A", "last": None, "mail": None} for n in ("p", "q", "c")]
    rows += [{"name": "r", "first": None, "last": "One"}]
    assert texts(graph, delta(graph, "P", UPSERT, *rows)) == []


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
def test_a_value_that_the_same_write_frees(graph, change):
    """281, 154: the edges are taken away with what is deleted, so that only this rule speaks."""
    ((effect, rows, deleted),) = change
    deltas = [delta(graph, "P", effect, *rows, deleted=deleted)]
    if deleted:
        gone = {"Knows": ["k1"], "To": ["t1", "t2"], "Back": ["b1"], "Once": ["o1"]}
        deltas += [delta(graph, name, DELETE, deleted=ids) for name, ids in gone.items()]
    assert texts(graph, *deltas) == []


def test_uniqueness_of_edges(graph):
    assert texts(graph, delta(graph, "Once", APPEND, ("n", "a", "x"), ("m", "a", "y"))) == [
        "@unique violation on Once.(dst, src): value '(x, a)' held by 'o1' and 'n'"
    ]
    rows = [{"id": i, "src": "x", "dst": "a", "n": 1} for i in ("n", "m")]
    assert texts(graph, delta(graph, "Back", APPEND, *rows)) == [
        "@unique violation on Back.n: value '1' held by 'n' and 'm'"
    ]


def test_an_id_that_one_write_has_twice_ends_the_rule(graph):
    """138, 7: nothing more is said about uniqueness."""
    rows = [{"name": "p", "mail": "m"}, {"name": "p", "mail": "m"}]
    for effect in (APPEND, UPSERT, OVERWRITE):
        change = delta(graph, "Plain", effect, {"name": "p"}, {"name": "p"})
        assert texts(graph, change) == [
            "@unique violation on Plain.name: value 'p' held by 'p' and 'p'"
        ]
    assert len(texts(graph, delta(graph, "P", UPSERT, *rows))) == 1
    assert texts(graph, delta(graph, "Knows", APPEND, ("n", "a", "b"), ("n", "b", "a"))) == [
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
    """155: inside a write, against what is there, alone and in a tuple."""
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


# -- endpoints --------------------------------------------------------------------------------


def test_an_edge_needs_both_of_its_ends(graph):
    """141, 152"""
    change = delta(graph, "Back", APPEND, ("n", "x", "a"), ("o", "no", "a"), ("p", "y", "gone"))
    assert texts(graph, change) == [
        "edge Back: src 'no' not found in Q",
        "edge Back: dst 'gone' not found in P",
    ]
    assert found(graph, change) == [(OrphanEdge, "o", 1), (OrphanEdge, "p", 2)]


def test_an_edge_may_end_at_nodes_of_the_same_write(graph):
    edges = delta(graph, "Knows", APPEND, ("n", "new", "a"), ("m", "new", "new"))
    assert texts(graph, edges, delta(graph, "P", UPSERT, {"name": "new"})) == []
    assert len(texts(graph, edges, delta(graph, "Q", UPSERT, {"name": "new"}))) == 3


def test_a_changed_edge_is_judged_at_its_new_ends(graph):
    assert texts(graph, delta(graph, "Knows", UPSERT, ("k1", "a", "gone"))) == [
        "edge Knows: dst 'gone' not found in P"
    ]
    assert texts(graph, delta(graph, "Knows", UPSERT, ("k1", "b", "a"))) == []


def test_an_edge_to_a_node_that_the_same_write_deletes(graph):
    node = delta(graph, "P", DELETE, deleted=["c"])
    edge = delta(graph, "Knows", UPSERT, ("n", "a", "c"), deleted=["k2"])
    assert texts(graph, node, edge) == ["edge Knows: dst 'c' not found in P"]


def test_a_node_whose_edges_stay_cannot_go(graph):
    """7: edges of every type, in both directions."""
    change = delta(graph, "P", DELETE, deleted=["a", "c"])
    assert texts(graph, change) == [
        "edge Back: dst 'a' not found in P",
        "edge Knows: src 'a' not found in P",
        "edge Knows: src 'c' not found in P",
        "edge Knows: dst 'c' not found in P",
        "edge Once: src 'a' not found in P",
        "edge To: src 'a' not found in P",
        "edge To: src 'a' not found in P",
    ]
    assert found(graph, change)[0] == (OrphanEdge, "b1", None)


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
def test_a_node_may_go_with_its_edges(graph, edges):
    """150: deleted, and overwritten by rows without it."""
    changes = [
        delta(graph, name, effect, *rows, deleted=gone) for name, effect, rows, gone in edges
    ]
    assert texts(graph, delta(graph, "P", DELETE, deleted=["b"]), *changes) == []
    kept = [{"name": "a", "mail": "a@"}, {"name": "c"}]
    assert texts(graph, delta(graph, "P", OVERWRITE, *kept), *changes) == []


def test_an_overwrite_of_nodes_must_not_leave_edges_behind(graph):
    """151"""
    assert texts(graph, delta(graph, "P", OVERWRITE, {"name": "a"}, {"name": "c"})) == [
        "edge Knows: dst 'b' not found in P",
        "edge To: src 'b' not found in P",
    ]
    assert texts(graph, delta(graph, "P", OVERWRITE, *({"name": n} for n in "abcd"))) == []


def test_an_overwrite_of_edges_is_judged_against_the_nodes_that_stay(graph):
    """150"""
    nodes = delta(graph, "P", OVERWRITE, *({"name": n} for n in "abc"), {"name": "d"})
    assert texts(graph, nodes, delta(graph, "Knows", OVERWRITE, ("n", "d", "a"))) == []
    edges = delta(graph, "Knows", OVERWRITE, ("n", "d", "z"))
    assert texts(graph, nodes, edges) == ["edge Knows: dst 'z' not found in P"]


# -- cardinality ------------------------------------------------------------------------------


def test_too_many_edges(graph):
    """143: those that are there count."""
    assert texts(graph, delta(graph, "To", APPEND, ("n", "a", "x"))) == [
        "@card violation on edge To: source 'a' has 3 edges (max 2)"
    ]
    change = delta(graph, "To", APPEND, *((i, "c", "x") for i in "nmo"))
    assert texts(graph, change) == ["@card violation on edge To: source 'c' has 3 edges (max 2)"]
    assert found(graph, change) == [(CardinalityViolation, "c", 2)]
    assert texts(graph, delta(graph, "To", APPEND, ("n", "b", "x"), ("m", "c", "x"))) == []


def test_too_few_edges(graph):
    """282"""
    change = delta(graph, "To", DELETE, deleted=["t1", "t3"])
    assert texts(graph, change) == ["@card violation on edge To: source 'b' has 0 edges (min 1)"]
    assert found(graph, change) == [(CardinalityViolation, "b", None)]


def test_a_node_that_never_had_an_edge_is_left_alone(graph):
    """7"""
    assert texts(graph, delta(graph, "P", UPSERT, {"name": "new"})) == []
    assert texts(graph, delta(graph, "To", DELETE, deleted=["t1"])) == []


def test_an_edge_that_moves_leaves_its_old_source(graph):
    """156"""
    assert texts(graph, delta(graph, "To", UPSERT, ("t3", "c", "x"))) == [
        "@card violation on edge To: source 'b' has 0 edges (min 1)"
    ]
    swapped = delta(graph, "To", UPSERT, ("t3", "c", "x"), ("t2", "b", "x"))
    assert texts(graph, swapped) == []


def test_an_edge_that_is_replaced_counts_once(graph):
    """158"""
    assert texts(graph, delta(graph, "To", UPSERT, ("t1", "a", "y"), ("t2", "a", "y"))) == []


def test_a_source_that_is_deleted_needs_no_edges(graph):
    """7: also one that an overwrite leaves out."""
    node = delta(graph, "P", DELETE, deleted=["b"])
    others = delta(graph, "Knows", DELETE, deleted=["k1"])
    assert texts(graph, node, others, delta(graph, "To", DELETE, deleted=["t3"])) == []
    nodes = delta(graph, "P", OVERWRITE, {"name": "a"}, {"name": "c"})
    kept = delta(graph, "To", OVERWRITE, ("t1", "a", "x"))
    assert texts(graph, nodes, others, kept) == []


def test_an_overwrite_counts_its_own_edges_only(graph):
    assert texts(graph, delta(graph, "To", OVERWRITE, ("t1", "a", "x"), ("n", "b", "x"))) == []
    assert texts(graph, delta(graph, "To", OVERWRITE, *((i, "c", "x") for i in "nmo"))) == [
        "@card violation on edge To: source 'c' has 3 edges (max 2)",
        "@card violation on edge To: source 'a' has 0 edges (min 1)",
        "@card violation on edge To: source 'b' has 0 edges (min 1)",
    ]


def test_an_update_of_edges_moves_none(graph):
    rows = [{"id": "t1", "src": "a", "dst": "x", "tone": "warm"}]
    assert texts(graph, delta(graph, "To", UPDATE, *rows)) == []


# -- first and all ----------------------------------------------------------------------------


def everything_wrong(graph):
    return (
        delta(graph, "P", UPSERT, {"name": "p", "age": 151}, {"name": "q", "mail": "a@"}),
        delta(graph, "To", APPEND, ("n", "gone", "x"), ("m", "a", "x")),
    )


def test_all_violations_come_in_a_fixed_order(graph):
    """7: values, uniqueness, ends, cardinality."""
    assert [kind for kind, _, _ in found(graph, *everything_wrong(graph))] == [
        ValueViolation,
        UniqueViolation,
        OrphanEdge,
        CardinalityViolation,
    ]
    assert found(graph, *reversed(everything_wrong(graph))) == found(
        graph, *everything_wrong(graph)
    )


def test_a_write_reports_the_first_violation_only(graph):
    deltas = {change.table_key: change for change in everything_wrong(graph)}
    assert len(judged(graph, *deltas.values(), limit=1).violations) == 1
    validator = Validator(graph._store, graph.catalog, deltas)
    with pytest.raises(ValueViolation) as caught:
        validator.check(graph._store.manifest(None).current())
    assert caught.value.details == {"table_key": "node:P", "id": "p"}


# -- what it looks at -------------------------------------------------------------------------


class Looks:
    """Every read of a table, with its columns and whether it was a lookup."""

    def __init__(self, patch):
        self.lookups, self.scans = [], []
        for name in ("read", "scan"):
            patch.setattr(Table, name, self._spied(getattr(Table, name)))

    def _spied(self, real):
        def spy(table, columns=None, condition=None, **how):
            told = self.scans if condition is None and how.get("limit") != 0 else self.lookups
            told.append((table.ref.path, condition))
            return real(table, columns, condition, **how)

        return spy


@pytest.fixture
def looks(monkeypatch):
    return Looks(monkeypatch)


LOOKS = {
    "a keyed node without other rules": ([("Plain", UPSERT, [{"name": "p"}], [])], 0, []),
    "an update of it": ([("Plain", UPDATE, [{"name": "p"}], [])], 0, []),
    "a node without a unique value": ([("P", UPSERT, [{"name": "p"}], [])], 0, []),
    "a node with one": ([("P", UPSERT, [{"name": "p", "mail": "m"}], [])], 1, []),
    "a strict append of a node": ([("Q", APPEND, [{"name": "p"}], [])], 1, []),
    "an edge": ([("Knows", APPEND, [("n", "a", "b")], [])], 3, ["node:P"]),
    "an edge between two types": (
        [("Back", APPEND, [("n", "x", "a")], [])],
        3,
        ["node:P", "node:Q"],
    ),
    "an edge with its ends": (
        [("Knows", UPSERT, [("n", "p", "p")], []), ("P", UPSERT, [{"name": "p"}], [])],
        0,
        [],
    ),
    "an edge with one of its ends": (
        [("Knows", UPSERT, [("n", "p", "a")], []), ("P", UPSERT, [{"name": "p"}], [])],
        1,
        [],
    ),
    "an edge that is counted": ([("To", UPSERT, [("n", "c", "x")], [])], 4, ["node:P", "node:Q"]),
    "an update of an edge": ([("Knows", UPDATE, [("k1", "a", "b")], [])], 0, []),
    "a delete of an edge": ([("Knows", DELETE, [], ["k1"])], 0, []),
    "a delete of an edge that is counted": ([("To", DELETE, [], ["t1"])], 2, []),
    "a delete of a node": (
        [("Q", DELETE, [], ["y"]), ("To", DELETE, [], ["t2"])],
        5,
        ["edge:Back", "edge:Once"],
    ),
    "an overwrite of edges": ([("Knows", OVERWRITE, [("n", "a", "b")], [])], 2, ["node:P"]),
    "an overwrite of a node type without edges": (
        [("Plain", OVERWRITE, [{"name": "p"}], [])],
        0,
        [],
    ),
}


@pytest.mark.parametrize(("changes", "lookups", "consulted"), LOOKS.values(), ids=list(LOOKS))
def test_few_rows_are_looked_up_and_nothing_is_scanned(graph, looks, changes, lookups, consulted):
    """7: the cost follows the delta, and what was consulted is told to the fence."""
    deltas = [delta(graph, name, effect, *rows, deleted=d) for name, effect, rows, d in changes]
    judgement = judged(graph, *deltas)
    assert judgement.violations == ()
    assert (len(looks.lookups), looks.scans) == (lookups, [])
    versions = {key: table["version"] for key, table in graph.snapshot().tables.items()}
    assert judgement.consulted == {key: versions[key] for key in consulted}


def test_ids_that_are_new_are_not_looked_for(graph, looks):
    change = delta(graph, "Plain", APPEND, {"name": "p"}, new_ids=True)
    assert judged(graph, change).consulted == {}
    assert (looks.lookups, looks.scans) == ([], [])


def test_an_overwrite_of_nodes_reads_their_ids_and_looks_for_edges_of_those_that_go(graph, looks):
    judged(graph, delta(graph, "Q", OVERWRITE, {"name": "x"}, {"name": "y"}))
    assert (len(looks.lookups), len(looks.scans)) == (0, 1)


def test_a_table_of_a_delta_without_rows_is_asserted_like_any_other(graph):
    """Nothing of it is written, so nothing else would notice that it moved."""
    nodes = delta(graph, "P", UPSERT)
    edges = delta(graph, "Knows", APPEND, ("n", "a", "b"))
    assert list(judged(graph, nodes, edges).consulted) == ["node:P"]


def test_many_rows_are_compared_in_one_pass(graph, looks):
    """A lookup of thousands of keys would be slower than a look at the column."""
    rows = [{"name": f"p{i}", "mail": f"m{i}"} for i in range(1_200)]
    change = delta(graph, "P", APPEND, *rows, {"name": "b", "mail": "a@"})
    assert texts(graph, change) == [
        "node:P: there is a row with id 'b' already",
    ]
    assert [path for path, _ in looks.scans] == [looks.scans[0][0]] * 2
    assert looks.lookups == []


def test_lookups_are_answered_by_the_index(graph, looks):
    """137: every condition of a small delta is one that Lance answers from the index."""
    graph.indexes.ensure()
    looks.lookups.clear()
    edges = delta(graph, "To", UPSERT, ("n", "c", "x"))
    nodes = delta(graph, "P", APPEND, {"name": "p", "mail": "m"})
    assert judged(graph, edges, nodes).violations == ()
    assert len(looks.lookups) >= 5
    for path, condition in looks.lookups:
        plan = lance.dataset(f"{graph.uri}/{path}").scanner(filter=condition).explain_plan()
        # A property without @index has none.
        assert ("ScalarIndexQuery" in plan) is ("mail" not in str(condition))


def test_results_do_not_depend_on_indexes(graph):
    """7 of the rules: the same verdict with and without."""
    before = found(graph, *everything_wrong(graph))
    graph.indexes.ensure()
    assert found(graph, *everything_wrong(graph)) == before
    assert len(before) == 4
