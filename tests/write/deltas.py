"""Deltas made by hand, and what the validator says about them."""

from __future__ import annotations

import pyarrow as pa

from omnigraph import Graph
from omnigraph.write.delta import Effect, TableDelta, TableRows
from omnigraph.write.validate import Validator

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


def fill(location):
    """Nodes a, b, c of P and x, y of Q, and edges between them."""
    with Graph.init(location, SCHEMA, durability="os") as graph:
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


def delta(graph, type_name, effect, *rows, deleted=(), new_ids=False):
    """A delta of rows as dicts; a keyed node needs no id, an edge is (id, src, dst)."""
    kind = graph.catalog.node(type_name) or graph.catalog.edge(type_name)
    records = [
        dict(zip(("id", "src", "dst"), row, strict=True)) if isinstance(row, tuple) else row
        for row in rows
    ]
    records = [{"id": row.get("name"), **row} for row in records]
    source = None if effect is DELETE else TableRows(table_of(records, kind.arrow_schema()))
    return TableDelta(kind, effect, source, pa.array(deleted, pa.string()), new_ids)


def table_of(records, schema):
    """Every row a chunk of its own, so that nothing rests on columns being in one piece."""
    chunks = [pa.Table.from_pylist([record], schema=schema) for record in records]
    return pa.concat_tables(chunks) if chunks else schema.empty_table()


def judged(graph, *deltas, limit=None):
    validator = Validator(graph._handle.store, graph.catalog, {d.table_key: d for d in deltas})
    return validator.judge(graph._handle.store.manifest(None).current(), limit)


def actual(graph, *deltas):
    """What breaks rules, as (class, row id, position)."""
    return [(v.error_class, v.row_id, v.row) for v in judged(graph, *deltas).violations]


def texts(graph, *deltas):
    return [violation.message for violation in judged(graph, *deltas).violations]


def everything_wrong(graph):
    return (
        delta(graph, "P", UPSERT, {"name": "p", "age": 151}, {"name": "q", "mail": "a@"}),
        delta(graph, "To", APPEND, ("n", "gone", "x"), ("m", "a", "x")),
    )
