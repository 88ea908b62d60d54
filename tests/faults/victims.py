"""What child processes do in the enumeration of failing calls; see ``enumeration``.

A *victim* runs one operation, of which a system call fails, and then uses its handle further. A
*witness* is a process that was not there when it happened: it sees what is on the disk.
"""

from __future__ import annotations

import importlib
import os
import pickle
import pkgutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.acero  # noqa: F401

import omnigraph
from omnigraph import Graph
from omnigraph.errors import (
    GraphNotFound,
    InternalError,
    OmniGraphError,
    OutcomePending,
)
from omnigraph.maintain.verify import Weight
from tests.crash.harness import Operation
from tests.crash.survival import State, check_tidy
from tests.faults import seccomp
from tests.faults.aftermath import NEXT, Ending, go_on, resolves, without_next
from tests.faults.children import report, report_ending
from tests.faults.writers import init

Touched = tuple[str, ...]

# Whatever a child would import is imported before it is born.
for _module in pkgutil.walk_packages(omnigraph.__path__, "omnigraph."):
    if _module.name.split(".")[1] not in ("cli", "client", "embed", "server", "spark"):
        importlib.import_module(_module.name)


# -- the victim -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Suffering:
    """What a victim is told to do."""

    operation: Operation
    touched: Touched
    retries: bool


def victim(orders: Path, reading: bool, root: Path) -> Iterator[None]:
    """Operations that may fail, one after the other, each with a handle of its own."""
    yield
    seccomp.install(reading=reading)
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)
        with remembered_handles() as handles:
            _suffer(pickle.loads(orders.read_bytes()), root, handles)


def _suffer(order: Suffering, root: Path, handles: list[Graph]) -> None:
    """An operation that may fail; after a stop, the same handle repeats it or goes on writing.

    It stops first when everything is prepared, and last before its handles are closed.
    """
    work = order.operation(root)
    next(work)
    report(None)
    os.kill(os.getpid(), signal.SIGSTOP)
    ending = ending_of_rest(work)
    report_ending(ending)
    os.kill(os.getpid(), signal.SIGSTOP)
    if order.retries and not ending.may_be_applied:
        again = order.operation(root)
        next(again)
        report_ending(ending_of_rest(again))
    elif handles:
        report_ending(ending_of_rest(_goes_on(handles[0], order.touched)))
    else:
        report_ending(Ending())
    os.kill(os.getpid(), signal.SIGSTOP)


def _goes_on(graph: Graph, touched: Touched) -> Iterator[None]:
    go_on(graph, present(graph, touched), f"{NEXT} by a veteran")
    yield from ()


@contextmanager
def remembered_handles() -> Iterator[list[Graph]]:
    """Here an open gives the first handle again: who repeats an operation has it still."""
    handles: list[Graph] = []
    open_graph, init_graph = Graph.open, Graph.init

    def open_once(*args: Any, **options: Any) -> Graph:
        if not handles:
            handles.append(open_graph(*args, **options))
        return handles[0]

    def init(*args: Any, **options: Any) -> Graph:
        handles.append(init_graph(*args, **options))
        return handles[0]

    with mock.patch.object(Graph, "open", open_once), mock.patch.object(Graph, "init", init):
        yield handles
    for graph in handles:
        graph.close()


def ending_of_rest(work: Iterator[None]) -> Ending:
    """Run what is left of an operation. What is no error of ours counts as a bug of ours."""
    try:
        for _ in work:
            raise RuntimeError("an operation yields once, where its preparation ends")
    except OmniGraphError as error:
        traceback.print_exc()
        return Ending(error)
    except BaseException as error:
        traceback.print_exc()
        return Ending(InternalError(f"{type(error).__name__} went through: {error}"))
    return Ending()


def present(graph: Graph, touched: Touched) -> Touched:
    """The types that the graph has at this moment."""
    return tuple(
        name
        for name in touched
        if name in graph.catalog.node_types or name in graph.catalog.edge_types
    )


# -- witnesses ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Testimony:
    """What a witness saw: the state, or why it could not; and what was wrong besides."""

    state: State | None = None
    error: str | None = None
    problems: tuple[str, ...] = ()
    resolved: bool | None = None
    """Whether the commit of a pending outcome is known, where there is one."""


@dataclass(frozen=True, slots=True)
class Looks:
    """How witnesses look at what a scenario works on."""

    read: Callable[[Path], Testimony]
    use: Callable[[Path, Touched, OutcomePending | None], Testimony]
    write: Callable[[Path, Touched], Testimony] | None = None
    """Opens and writes as ``use`` does, without a look at anything."""


def reader(looks: Looks, root: Path) -> Iterator[None]:
    """Opens only to read, and reads everything."""
    yield
    report(_testimony(lambda: looks.read(root)))


def newcomer(
    looks: Looks, touched: Touched, pending: OutcomePending | None, root: Path
) -> Iterator[None]:
    """Opens to write, which recovers what there is to recover; looks at everything; writes."""
    yield
    report(_testimony(lambda: looks.use(root, touched, pending)))


def writer(orders: Path, root: Path) -> Iterator[None]:
    """Opens to write and writes, whenever it is told how and where."""
    yield
    while True:
        write = pickle.loads(orders.read_bytes())
        report(_testimony(write))
        os.kill(os.getpid(), signal.SIGSTOP)


def _testimony(look: Callable[[], Testimony]) -> Testimony:
    try:
        return look()
    except BaseException as error:
        traceback.print_exc()
        return Testimony(error=f"{type(error).__name__}: {error}"[:300])


def read_graph(root: Path) -> Testimony:
    """A graph through a handle that only reads."""
    try:
        graph = Graph.open(root, "r")
    except GraphNotFound:
        return Testimony()
    with graph:
        state = State.of(graph)
        find_all(graph)
        return Testimony(without_next(state))


def use_graph(root: Path, touched: Touched, pending: OutcomePending | None) -> Testimony:
    """A graph through a handle that recovers and writes."""
    problems: list[str] = []
    with _opened(root) as graph:
        state = without_next(State.of(graph))
        resolved = None if pending is None else resolves(graph, pending)
        problems += unsound(graph)
        problems += untidy(graph, root)
        go_on(graph, present(graph, touched), NEXT)
        if without_next(State.of(graph)) != state:
            problems.append("writing changed what was there")
        problems += untidy(graph, root)
    return Testimony(state, None, tuple(problems), resolved)


def write_graph(root: Path, touched: Touched) -> Testimony:
    """A graph through a handle that recovers, writes, and looks at nothing."""
    with _opened(root) as graph:
        go_on(graph, present(graph, touched), NEXT)
    return Testimony()


GRAPH = Looks(read_graph, use_graph, write_graph)


def _opened(root: Path) -> Graph:
    """The graph, or a new one where the victim was to create it and has not."""
    try:
        return Graph.open(root)
    except GraphNotFound:
        for _ in init(root):
            pass
        return Graph.open(root)


def find_all(graph: Graph) -> None:
    """Queries that use indexes, where there are any, find what a scan of the table does."""
    for branch in graph.branches.list():
        snapshot = graph.snapshot(branch)
        for name in graph.catalog.node_types:
            table = snapshot.read(name)
            for key in table["name"].to_pylist():
                actual = _names(graph, branch, name, f'$n.name = "{key}"')
                assert actual == [key], f"{name} {key} on {branch}"
            if name == "Note":
                _search(graph, branch, table.to_pylist())


def _search(graph: Graph, branch: str, notes: list[dict[str, Any]]) -> None:
    for word in ("fox", "dog"):
        there = sorted(note["name"] for note in notes if word in (note["text"] or ""))
        assert _names(graph, branch, "Note", f'search($n.text, "{word}")') == there, word
    for rank in {note["rank"] for note in notes}:
        there = sorted(note["name"] for note in notes if note["rank"] == rank)
        assert _names(graph, branch, "Note", f"$n.rank = {rank}") == there, rank
    near = "match { $n: Note } return { $n.name } order { nearest($n.v, [0.0, 1.0]) } limit 99"
    having = sorted(note["name"] for note in notes if note["v"] is not None)
    actual = graph.query(f"query near() {{ {near} }}", branch=branch).rows()
    assert sorted(row["n.name"] for row in actual) == having


def _names(graph: Graph, branch: str, type_name: str, condition: str) -> list[str]:
    text = f"query some() {{ match {{ $n: {type_name}  {condition} }} return {{ $n.name }} }}"
    return sorted(row["n.name"] for row in graph.query(text, branch=branch).rows())


def unsound(graph: Graph) -> list[str]:
    """The errors that verify finds: files, tables, indexes and history."""
    actual = graph.maintenance.verify().problems
    return [
        f"verify: {problem.code} {problem.message}"
        for problem in actual
        if problem.weight is Weight.ERROR
    ]


def untidy(graph: Graph, root: Path) -> list[str]:
    """What is left in anybody's way."""
    try:
        check_tidy(graph, root)
    except BaseException as error:
        traceback.print_exc()
        return [f"untidy: {type(error).__name__} {error}"[:300]]
    return []
