"""A graph of people and companies, and how tests look at it."""

from __future__ import annotations

from typing import Any

from omnigraph import Graph

SCHEMA = """\
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
"""
AGES = {"Alice": 30, "Bob": 25, "Charlie": 35, "Diana": 28}
KNOWS = [("Alice", "Bob"), ("Alice", "Charlie"), ("Bob", "Diana")]
WORKS_AT = [("Alice", "Acme"), ("Bob", "Globex")]


def fill(graph: Graph) -> None:
    graph.load(
        [
            *({"type": "Person", "data": {"name": n, "age": a}} for n, a in AGES.items()),
            *({"type": "Company", "data": {"name": name}} for name in ("Acme", "Globex")),
            *({"edge": "Knows", "from": a, "to": b} for a, b in KNOWS),
            *({"edge": "WorksAt", "from": a, "to": b} for a, b in WORKS_AT),
        ]
    )


def changed(*pairs: tuple[str, str], schema: str = SCHEMA) -> str:
    """The schema with some texts in the place of others."""
    for old, new in pairs:
        assert old in schema, old
        schema = schema.replace(old, new)
    return schema


RENAMED = changed(
    ("node Person {", 'node Human @rename_from("Person") {'),
    ("Person -> Person", "Human -> Human"),
    ("Person -> Company", "Human -> Company"),
)
"""Person is called Human."""


def rows(
    graph: Graph, source: str, *, engine: Any = "auto", spark: Any = None, **at: Any
) -> list[tuple[Any, ...]]:
    """The rows of a query as tuples."""
    result = graph.snapshot(**at).query(source, engine=engine, spark=spark)
    return [tuple(row.values()) for row in result.rows()]


def values(graph: Graph, type_name: str, column: str, **at: Any) -> dict[str, Any]:
    """The values of one column by id."""
    actual = graph.snapshot(**at).read(type_name, ["id", column])
    return dict(zip(actual["id"].to_pylist(), actual[column].to_pylist(), strict=True))


def friends(graph: Graph, type_name: str = "Person", **at: Any) -> list[tuple[Any, ...]]:
    """Who knows whom, by a traversal."""
    return rows(
        graph,
        f"query q() {{ match {{ $a: {type_name} $a knows $b }} "
        "return { $a.name, $b.name } order { $a.name, $b.name } }",
        **at,
    )
