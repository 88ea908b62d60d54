"""The graph that loads go to, and looks at it."""

from __future__ import annotations

import json
from pathlib import Path

SCHEMA = """\
node Person {
  name: String @key
  age: I32?
  email: String? @unique
  born: Date? @unique
  status: enum(active, away)?
  @range(age, 0..150)
  @check(email, "@")
}
node Company { name: String @key  founded: Date? }
node Note { text: String  stars: I32? }
node Seat { row: String  number: I32  label: String?  @key(row, number) }
node Code { value: I64 @key  first: String?  second: String?  @unique(first, second) }
node Thing {
  slug: String @key
  i32: I32?  i64: I64?  u32: U32?  u64: U64?
  f32: F32?  f64: F64?
  ok: Bool?
  text: String?
  day: Date?
  moment: DateTime?
  kind: enum(note, paper)?
  words: [String]?
  numbers: [I32]?
  bigs: [U64]?
  floats: [F64]?
  flags: [Bool]?
  days: [Date]?
  moments: [DateTime]?
  vector: Vector(3)?
  body: Blob?
}
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge WorksAt: Person -> Company @card(0..1) { title: String? }
edge Signs: Person -> Note @card(1..) { at: DateTime? }
"""


def node(type_name, **data):
    return {"type": type_name, "data": data}


def edge(type_name, source, target, **data):
    return {"edge": type_name, "from": source, "to": target, "data": data}


def people(*names):
    return [node("Person", name=name) for name in names]


def write(path: Path, records) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def rows(graph, type_name, *columns, **at):
    """The rows of a type as tuples, in order."""
    actual = graph.snapshot(**at).read(type_name, list(columns))
    values = [actual[name].to_pylist() for name in columns]
    return sorted(zip(*values, strict=True), key=repr)


def names(graph, **at):
    return [name for (name,) in rows(graph, "Person", "name", **at)]


def listing(graph):
    """Every file of the graph with its size and time: two that are equal had no write between."""
    top = Path(graph.uri)
    return {
        str(path.relative_to(top)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in top.rglob("*")
        if path.is_file()
    }
