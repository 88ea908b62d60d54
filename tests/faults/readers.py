"""Readers of which one call fails that only looks at a file, and what they answer.

An operation prepares what it works with and gives a function to call; that function is called
twice by the same process: once while a call fails, and once more.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph import Graph, verify_graph
from omnigraph.errors import InternalError, OmniGraphError
from omnigraph.maintain.verify import ProblemCode
from tests.crash.harness import Harness
from tests.crash.operations import rows
from tests.faults import seccomp
from tests.faults.children import report
from tests.faults.writers import indexed

Prepare = Callable[[Path], Callable[[], Any]]

_QUERIES = (
    'query q() { match { $n: Note { name: "b1" } } return { $n.rank, $n.text } }',
    "query q() { match { $n: Note  $n.rank = 2 } return { $n.name } order { $n.name } }",
    'query q() { match { $n: Note  search($n.text, "fox") } return { $n.name } order { $n.name } }',
    "query q() { match { $n: Note } return { $n.name } "
    "order { nearest($n.v, [0.0, 1.0]) } limit 3 }",
    "query q() { match { $p: Person  $p knows $f } return { $p.name, $f.name } order { $f.name } }",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call gave, or the error of ours that it raised."""

    value: Any = None
    error: OmniGraphError | None = None


def build(root: Path, crash: Harness) -> None:
    """Every kind of index, rows that came later, deleted rows, edges, and a branch."""
    indexed(root, crash)
    with Graph.open(root, durability="os") as graph:
        graph.append(rows("Knows", "k1", "k3"))
        graph.branches.create("work")
        graph.append(rows("Person", "Carl"), branch="work")


# -- operations -----------------------------------------------------------------------------------


def open_to_read(root: Path) -> Callable[[], Any]:
    def run() -> Any:
        with Graph.open(root, "r") as graph:
            return [graph.branches.list(), len(graph.commits()), graph.query(_QUERIES[0]).rows()]

    return run


def open_to_write(root: Path) -> Callable[[], Any]:
    def run() -> Any:
        with Graph.open(root) as graph:
            return [graph.branches.list(), len(graph.commits())]

    return run


def query(root: Path) -> Callable[[], Any]:
    graph = Graph.open(root, "r")
    return lambda: [graph.query(text).rows() for text in _QUERIES]


def query_a_branch(root: Path) -> Callable[[], Any]:
    graph = Graph.open(root, "r")
    return lambda: [graph.query(text, branch="work").rows() for text in _QUERIES]


def export(root: Path) -> Callable[[], Any]:
    graph = Graph.open(root, "r")
    return lambda: list(graph.snapshot().export())


def verify(root: Path) -> Callable[[], Any]:
    """Sound, with all that was looked at; or what is wrong, which is no error of ours."""

    def run() -> Any:
        actual = verify_graph(root)
        broken = [p for p in actual.problems if p.code is ProblemCode.CHECK_FAILED]
        if any("broke off" in problem.message for problem in broken):
            raise InternalError(str(broken))
        return "sound" if not actual.problems else "problems"

    return run


READERS: dict[str, Prepare] = {
    "open to read": open_to_read,
    "open to write": open_to_write,
    "query": query,
    "query a branch": query_a_branch,
    "export": export,
    "verify": verify,
}


# -- in a process of its own ----------------------------------------------------------------------


def reader(name: str, root: Path) -> Iterator[None]:
    """Stops when its calls are caught, and after the first answer."""
    yield
    run = READERS[name](root)
    seccomp.install(reading=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    report(_answer(run))
    os.kill(os.getpid(), signal.SIGSTOP)
    report(_answer(run))


def _answer(run: Callable[[], Any]) -> Answer:
    try:
        return Answer(run())
    except OmniGraphError as error:
        traceback.print_exc()
        error.__cause__ = error.__context__ = None
        return Answer(error=error)
    except BaseException as error:
        traceback.print_exc()
        return Answer(error=InternalError(f"{type(error).__name__} went through: {error}"))
