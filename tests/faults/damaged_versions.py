"""Version files with a flipped bit under everything that reads them; see ``damaged_reads``.

Run as a program. Each case is opened to read and to write, on main and on a branch, and verified.
An answer is what came of it, or the code of the error with the file that it names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omnigraph import Graph, verify_graph
from omnigraph.errors import OmniGraphError
from omnigraph.maintain.verify import Weight
from tests.faults.damaged_reads import serve

SCHEMA = """\
node Person { name: String @key  age: I32? @index }
edge Knows: Person -> Person
"""
BRANCH = "work"
_QUERY = "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
_BY_AGE = "query q() { match { $p: Person  $p.age = 37 } return { $p.name } }"
_WALK = "query q() { match { $p: Person  $p knows $f } return { $p.name, $f.name } }"


def make(path: Path) -> None:
    """Rows, an index, deleted rows; a branch with copies of its own, and a parent that moved on."""
    with Graph.init(path, SCHEMA, durability="os") as graph:
        people = [
            {"type": "Person", "data": {"name": f"p{n}", "age": 30 + n % 10}} for n in range(30)
        ]
        graph.load(people)
        graph.indexes.ensure()
        graph.load([{"edge": "Knows", "from": "p1", "to": "p2", "data": {"id": "k1"}}])
        graph.mutate('query q() { delete Person where name = "p9" }')
        graph.branches.create(BRANCH)
        for branch in (BRANCH, "main"):
            graph.mutate('query q() { insert Person { name: "new", age: 37 } }', branch=branch)
            graph.mutate('query q() { delete Person where name = "p8" }', branch=branch)


def outcome(operation: Callable[[], Any]) -> Any:
    """What an operation gives, or the code of its error and the file that the error names."""
    try:
        return operation()
    except OmniGraphError as error:
        return [error.code, str(error.details.get("path", ""))]


def responses(path: Path) -> dict[str, Any]:
    """What every kind of reader and writer gets."""
    actual: dict[str, Any] = {}
    for branch in ("main", BRANCH):
        actual |= {f"read {branch} {key}": value for key, value in _reads(path, branch).items()}
    actual["verify"] = outcome(lambda: _verified(path))
    for branch in ("main", BRANCH):
        actual[f"write {branch}"] = outcome(lambda branch=branch: _written(path, branch))
    return actual


def _reads(path: Path, branch: str) -> dict[str, Any]:
    try:
        graph = Graph.open(path, "r")
    except OmniGraphError as error:
        return {"open": [error.code, str(error.details.get("path", ""))]}
    with graph:
        queries = {"all": _QUERY, "index": _BY_AGE, "walk": _WALK}
        actual = {
            name: outcome(lambda text=text: graph.query(text, branch=branch).rows())
            for name, text in queries.items()
        }
        actual["export"] = outcome(lambda: "".join(graph.snapshot(branch).export()))
        actual["commits"] = outcome(lambda: len(graph.commits(branch)))
    return actual


def _verified(path: Path) -> list[str]:
    problems = verify_graph(path).problems
    return sorted({p.file for p in problems if p.weight is Weight.ERROR and p.file is not None})


def _written(path: Path, branch: str) -> Any:
    with Graph.open(path, durability="os") as graph:
        graph.mutate('query q() { insert Person { name: "later", age: 1 } }', branch=branch)
        graph.mutate('query q() { delete Person where name = "p3" }', branch=branch)
        return graph.query(_QUERY, branch=branch).rows()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), lambda path, order: responses(path))
