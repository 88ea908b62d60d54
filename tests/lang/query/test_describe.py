"""Operation descriptors: what a query gives back, reads and writes."""

from __future__ import annotations

import pytest

from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query.checker import check_query
from omnigraph.lang.query.describe import describe
from omnigraph.lang.query.parser import read_queries
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.json_form import to_json

CATALOG = compile_schema(
    """
    node Person { name: String @key  age: I32?  big: U64?  score: F32?  born: Date?
                  seen: DateTime?  tags: [String]?  days: [Date]?  vec: Vector(3)?  ok: Bool? }
    node Company { name: String @key }
    edge Knows: Person -> Person { since: Date? }
    edge WorksAt: Person -> Company
    """
)


def operation(text):
    source = Source("q.gq", text)
    (query,) = read_queries(source).queries
    return to_json(describe(CATALOG, check_query(CATALOG, source, query)))


def names(uses):
    return [f"{use['kind']}:{use['type_name']}" for use in uses]


def test_result_fields_have_the_names_and_kinds_of_the_real_columns():
    actual = operation(
        """query q($x: [I64]) { match { $p: Person }
        return { $p.name, $p.age as years, $p.big, $p.score, $p.born, $p.seen, $p.tags, $p.days,
                 $p.vec, $p.ok, $p, $x, 1, now() as at, bm25($p.name, "x") as s } }"""
    )
    assert actual["result"] == [
        {"name": "p.name", "kind": "string", "nullable": False},
        {"name": "years", "kind": "int", "nullable": True},
        {"name": "p.big", "kind": "bigint", "nullable": True},
        {"name": "p.score", "kind": "float", "nullable": True},
        {"name": "p.born", "kind": "date", "nullable": True},
        {"name": "p.seen", "kind": "datetime", "nullable": True},
        {"name": "p.tags", "kind": "list", "item_kind": "string", "nullable": True},
        {"name": "p.days", "kind": "list", "item_kind": "date", "nullable": True},
        {"name": "p.vec", "kind": "vector", "vector_dim": 3, "nullable": True},
        {"name": "p.ok", "kind": "bool", "nullable": True},
        {"name": "p", "kind": "string", "nullable": False},
        {"name": "x", "kind": "list", "item_kind": "bigint", "nullable": False},
        {"name": "literal", "kind": "bigint", "nullable": False},
        {"name": "at", "kind": "datetime", "nullable": False},
        {"name": "s", "kind": "float", "nullable": True},
    ]


def test_aggregates_have_their_own_types():
    actual = operation(
        """query q() { match { $p: Person } return { $p.ok, count($p) as n, sum($p.age) as s,
        avg($p.age) as a, min($p.born) as lo, max($p.name) as hi, count(distinct $p.age) as d } }"""
    )
    assert [(f["name"], f["kind"], f["nullable"]) for f in actual["result"]] == [
        ("p.ok", "bool", True),
        ("n", "bigint", False),
        ("s", "float", True),
        ("a", "float", True),
        ("lo", "date", True),
        ("hi", "string", True),
        ("d", "bigint", False),
    ]


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        (
            "query q() { match { $p knows $f not { $f worksAt $_ } } return { $p.name } }",
            ["edge:Knows", "edge:WorksAt", "node:Company", "node:Person"],
            [],
        ),
        (
            "query q($a: String) { insert Person { name: $a } }",
            ["node:Person"],
            ["node:Person"],
        ),
        (
            "query q($a: String) { insert WorksAt { from: $a, to: $a } }",
            ["edge:WorksAt", "node:Company", "node:Person"],
            ["edge:WorksAt"],
        ),
        (
            "query q($a: String) { delete Company where name = $a }",
            ["edge:WorksAt", "node:Company"],
            ["edge:WorksAt", "node:Company"],
        ),
        (
            "query q($a: Date) { update Knows set { since: $a } where since is null }",
            ["edge:Knows"],
            ["edge:Knows"],
        ),
    ],
    ids=["traversal and negation", "insert node", "insert edge", "cascade", "update edge"],
)
def test_reads_and_writes_name_every_type_touched(text, reads, writes):
    actual = operation(text)
    assert (names(actual["reads"]), names(actual["writes"])) == (reads, writes)
