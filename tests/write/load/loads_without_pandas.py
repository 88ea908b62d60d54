"""Loads of every kind in one process; prints those after which pandas is loaded, with the cause."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import Graph
from omnigraph.errors import OmniGraphError
from omnigraph.write.load import spool

SCHEMA = """
node Person {
  name: String @key
  nick: String? @unique
  age: I32?
  score: F64?
  born: Date?
  seen: DateTime?
  kind: enum(a, b)?
  tags: [String]?
  at: Vector(2)? @index
  bio: String? @index
  photo: Blob?
  @range(age, 0..200)
}
node City { name: String }
edge Knows: Person -> Person @card(0..3) { since: Date?  weight: F64? }
edge Near: City -> City
"""


class PandasImports:
    """Notes who asks for pandas first, and lets the import go on."""

    causes: list[str]

    def __init__(self) -> None:
        self.causes = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            self.causes.append("".join(traceback.format_stack(limit=14)))


def person(number: int, **more: Any) -> dict[str, Any]:
    data = {"name": f"p{number}", "nick": f"n{number}", "age": number, "score": 0.5, **more}
    data |= {"born": "2001-02-03", "seen": "2001-02-03T04:05:06Z", "kind": "a", "tags": ["x"]}
    data |= {"at": [1.0, float(number + 1)], "bio": "words", "photo": "base64:AAEC"}
    return {"type": "Person", "data": data}


def knows(one: int, other: int) -> dict[str, Any]:
    return {"edge": "Knows", "from": f"p{one}", "to": f"p{other}", "data": {"weight": 1.5}}


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def loads(graph: Graph, folder: Path) -> None:
    people = [person(n) for n in range(6)]
    cities = [{"type": "City", "id": f"x{n}", "data": {"name": "x"}} for n in range(3)]
    near = [{"edge": "Near", "from": "x0", "to": "x1"}]
    first = write_lines(folder / "a.ndjson", [*people, *cities, *near, knows(0, 1)])
    graph.load(first, idempotency_key="first")
    graph.load(first, idempotency_key="first")
    again = write_lines(folder / "b.ndjson", [*people, person(9), knows(1, 2), *cities])
    graph.load(again)
    graph.load(again, "overwrite")
    bad = [person(20, age=500), knows(0, 77), {"type": "Person", "data": {"name": 3}}]
    wrong = write_lines(folder / "c.ndjson", [*bad, person(21), person(21)])
    graph.load(wrong, rejects=folder / "rejects", max_rejects=9)
    pq.write_table(pa.table({"name": pa.array(["q", "r"], pa.string())}), folder / "Person.parquet")
    graph.load(folder / "Person.parquet")
    ends = pa.table({"src": pa.array(["q"], pa.string()), "dst": pa.array(["r"], pa.string())})
    graph.load({"Knows": ends})
    (folder / "Person.csv").write_text("name,age,born\nc1,4,2001-02-03\nc2,,\n")
    graph.load(folder / "Person.csv")
    graph.load([person(30), person(31)])
    graph.append({"Knows": pa.table({"src": ["q"], "dst": ["q"]}, ends.schema)})
    graph.indexes.ensure()
    graph.commit(graph.commits()[-1].commit_id)
    graph.load([person(40)], branch="review", from_branch="main")
    spool._IN_MEMORY = 0
    many = write_lines(folder / "d.ndjson", [person(n) for n in range(150)])
    graph.load(many)
    graph.load(many, max_rejects=1)
    try:
        graph.load(write_lines(folder / "e.ndjson", [knows(1, 5)] * 4))
    except OmniGraphError as error:
        print(error.code)


if __name__ == "__main__":
    imports = PandasImports()
    sys.meta_path.insert(0, imports)  # type: ignore[arg-type]
    where = Path(sys.argv[1])
    with Graph.init(where / "graph", SCHEMA) as graph:
        loads(graph, where)
    print("\n".join(imports.causes), "pandas" in sys.modules)
