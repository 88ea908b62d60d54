"""Queries and writes on damaged files, each in a process of its own, since some used to end it.

Run as a program: it imports everything, uses nothing of Lance, and forks a child for each case, so
that a case costs no start of an interpreter. It reads one case per line from its input and answers
with a line each.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from omnigraph import Graph
from omnigraph.errors import OmniGraphError

SCHEMA = """\
node Doc {
  name: String @key
  number: I64? @index
  body: String? @index
  vector: Vector(4)? @index
}
edge Likes: Doc -> Doc
"""
DAMAGED = "damaged.omni"
"""Beside the graph that is copied: its copy with a damaged file."""
ROWS = 2_000
_VECTOR = [0.1, 0.9, 0.2, 0.4]
QUERIES = {
    "key": 'query q() { match { $d: Doc { name: "d0100" } } return { $d.number } }',
    "range": "query q() { match { $d: Doc  $d.number > 1900 } return { $d.name } "
    "order { $d.name } }",
    "text": 'query q() { match { $d: Doc  search($d.body, "w7") } return { $d.name } '
    "order { $d.name } }",
    "near": "query q($v: Vector(4)) { match { $d: Doc } return { $d.name } "
    "order { nearest($d.vector, $v) } limit 5 }",
    "walk": 'query q() { match { $d: Doc { name: "d0100" } $d likes $e } return { $e.name } }',
    "names": "query q() { match { $d: Doc } return { $d.name } order { $d.name } }",
    "count": "query q() { match { $d: Doc } return { count($d) as c } }",
}
WRITES = (
    'query q() { update Doc set { number: 7777 } where name = "d0100" }',
    'query q() { insert Doc { name: "new", number: 5 } }',
    'query q() { delete Doc where name = "d0200" }',
    "query q() { delete Doc where number > 1950 }",
)


def make(path: Path) -> None:
    """A graph with every kind of index, and deletion files of both forms."""
    names = [f"d{n:04}" for n in range(ROWS)]
    vectors = [[(n * k % 101 + 1) / 101 for k in (3, 7, 11, 13)] for n in range(ROWS)]
    docs = pa.table(
        {
            "name": names,
            "number": range(ROWS),
            "body": [f"w{n % 23} w{n % 31} common" for n in range(ROWS)],
            "vector": pa.array(vectors, pa.list_(pa.float32(), 4)),
        }
    )
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.load({"Doc": docs})
        graph.load([{"edge": "Likes", "from": n, "to": m} for n, m in pairwise(names)])
        graph.indexes.ensure()
        graph.mutate("query q() { delete Doc where number < 10 }")
        graph.mutate('query q() { delete Likes where from = "d0500" }')


class Case(NamedTuple):
    """A file below a graph and what becomes of it."""

    file: str
    kind: str
    at: int

    def apply(self, path: Path) -> None:
        target = path / self.file
        raw = bytearray(target.read_bytes())
        if self.kind == "zero":
            raw[self.at : self.at + 512] = bytes(len(raw[self.at : self.at + 512]))
        elif self.kind == "flip":
            raw[self.at] ^= 0xFF
        elif self.kind.startswith("bit "):
            raw[self.at] ^= 1 << int(self.kind.removeprefix("bit "))
        else:
            del raw[self.at :]
        target.write_bytes(raw)


def responses(path: Path, *, writes: bool) -> dict[str, Any]:
    """What every query gives, or the code of its error; after some writes if asked for."""
    given: dict[str, Any] = {}
    try:
        graph = Graph.open(path, "rw" if writes else "r", durability="os")
    except OmniGraphError as error:
        return {"open": error.code}
    for number, source in enumerate(WRITES if writes else ()):
        try:
            graph.mutate(source)
        except OmniGraphError as error:
            given[f"write {number}"] = error.code
    for name, source in QUERIES.items():
        try:
            rows = graph.query(source, params={"v": _VECTOR} if name == "near" else None).rows()
            given[name] = [list(row.values()) for row in rows]
        except OmniGraphError as error:
            given[name] = error.code
    return given


def serve(made: Path, answer: Callable[[Path, dict[str, Any]], object]) -> None:
    """Answer orders: each on a copy of a graph with one damaged file, in a child of its own."""
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    location = made.with_name(DAMAGED)
    for line in sys.stdin:
        order = json.loads(line)
        shutil.rmtree(location, ignore_errors=True)
        shutil.copytree(made, location)
        if order["case"] is not None:
            Case(*order["case"]).apply(location)
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(writer, "w") as out:
                json.dump(answer(location, order), out)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as given:
            text = given.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"exit": code, "answers": json.loads(text or "{}")}), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), lambda location, order: responses(location, writes=order["writes"]))
