"""Backup, restore, clone and repair in the enumeration of failing calls, and what witnesses see.

The root of a copy holds the graph, its backup and what is made of them, side by side. A backup
adds a point or does not, and every point can be restored; a new graph is complete, or it is absent
and the same call goes on with it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from omnigraph import Graph, backup_points, clone, restore
from omnigraph.errors import AlreadyInitialized, OutcomePending
from tests.crash import operations, test_crash_repair
from tests.crash.harness import Harness, Operation
from tests.crash.operations import BRANCH, rows
from tests.crash.scenarios import BOTH, Scenario, forked
from tests.crash.survival import State
from tests.faults.aftermath import NEXT, without_next
from tests.faults.victims import (
    GRAPH,
    Looks,
    Testimony,
    Touched,
    read_graph,
    unsound,
    untidy,
    use_graph,
)

SMALL = "node Person { name: String @key  age: I32? }\n"
SOURCE, BACKUP, COPY, UNFINISHED = "graph.omni", "backup", "copy.omni", "copy.omni.incomplete"


@dataclass(frozen=True, slots=True)
class Copying(Scenario):
    """A scenario whose graph is not its root, or has to be looked at in its own way."""

    looks: Looks = GRAPH


# -- graphs to start from -------------------------------------------------------------------------


def without_backup(root: Path, crash: Harness) -> None:
    """A small graph, with a branch that has its own copy of the table."""
    root.mkdir()
    with Graph.init(root / SOURCE, SMALL, durability="os") as graph:
        graph.append(rows("Person", "Ada", "Bob"))
        graph.branches.create(BRANCH)
        graph.append(rows("Person", "Carl"), branch=BRANCH)


def backed_up(root: Path, crash: Harness) -> None:
    """The same with a backup that lacks what was written since."""
    without_backup(root, crash)
    with Graph.open(root / SOURCE, durability="os") as graph:
        graph.maintenance.backup(root / BACKUP)
        graph.append(rows("Person", "Eve"))


def drifted(root: Path, crash: Harness) -> None:
    """Two tables that somebody wrote to past the graph."""
    test_crash_repair.drifted(root)


def moved(root: Path, crash: Harness) -> None:
    """A graph whose branches name the directory that it was made in."""
    made = root.with_name("made-here")
    forked(made, crash)
    made.rename(root)


# -- operations -----------------------------------------------------------------------------------


def back_up(root: Path) -> Iterator[None]:
    graph = Graph.open(root / SOURCE)
    yield
    graph.maintenance.backup(root / BACKUP)


def restore_newest(root: Path) -> Iterator[None]:
    yield
    _unless_complete(root, lambda: restore(root / BACKUP, root / COPY))


def clone_source(root: Path) -> Iterator[None]:
    yield
    _unless_complete(root, lambda: clone(root / SOURCE, root / COPY))


def _unless_complete(root: Path, copy: Callable[[], object]) -> None:
    """Who repeats a copy that is complete is told that there is a graph."""
    try:
        copy()
    except AlreadyInitialized:
        Graph.open(root / COPY, "r").close()


# -- what witnesses see ---------------------------------------------------------------------------


def read_backup(root: Path) -> Testimony:
    """The graph, and what each point of its backup restores to, in the place of its tags."""
    actual = read_graph(root / SOURCE)
    assert actual.state is not None
    return replace(actual, state=_with_points(actual.state, root))


def use_backup(root: Path, touched: Touched, pending: OutcomePending | None) -> Testimony:
    """Take a backup: all points that there were are still there, and the new one is right."""
    problems: list[str] = []
    with Graph.open(root / SOURCE) as graph:
        state = _with_points(without_next(State.of(graph)), root)
        problems += unsound(graph)
        problems += untidy(graph, root / SOURCE)
        graph.append(rows("Person", NEXT))
        graph.maintenance.backup(root / BACKUP)
        now = State.of(graph)
        problems += untidy(graph, root / SOURCE)
    restored = _restored(root)
    if restored[:-1] != list(state.tags):
        problems.append("an earlier point is not what it was")
    if restored[-1] != str(now):
        problems.append("the point that was taken now restores to something else")
    return Testimony(state, None, tuple(problems))


def _with_points(state: State, root: Path) -> State:
    assert state.tags == []
    return replace(state, tags=_restored(root))


def _restored(root: Path) -> list[str]:
    if not (root / BACKUP / "omnigraph-backup.json").exists():
        return []
    matches = []
    for point in backup_points(root / BACKUP):
        folder = Path(tempfile.mkdtemp(dir=root.parent))
        try:
            restore(root / BACKUP, folder / "graph.omni", point=point.point, durability="os")
            with Graph.open(folder / "graph.omni", "r") as graph:
                matches.append(str(State.of(graph)))
        finally:
            shutil.rmtree(folder)
    return matches


def read_copy(root: Path) -> Testimony:
    """The new graph, if there is one."""
    return read_graph(root / COPY)


def use_copy(
    operation: Operation, root: Path, touched: Touched, pending: OutcomePending | None
) -> Testimony:
    """Go on with the copy if it is not complete, then use it; its source is what it was."""
    for _ in operation(root):
        pass
    problems = [f"{UNFINISHED} is left"] if (root / UNFINISHED).exists() else []
    if (root / SOURCE).exists():
        with Graph.open(root / SOURCE) as graph:
            problems += unsound(graph)
            problems += untidy(graph, root / SOURCE)
    actual = use_graph(root / COPY, touched, pending)
    return replace(actual, problems=(*problems, *actual.problems))


def use_repaired(root: Path, touched: Touched, pending: OutcomePending | None) -> Testimony:
    """Repair what is not repaired, then use the graph."""
    with Graph.open(root) as graph:
        state = without_next(State.of(graph))
        graph.maintenance.repair(confirm=True, force=True)
    actual = use_graph(root, touched, pending)
    return replace(actual, state=state)


_PEOPLE = ("Person",)
_REPAIR = Looks(read_graph, use_repaired)
_BACKUP = Looks(read_backup, use_backup)

COPIES = (
    Copying("first backup", back_up, without_backup, _PEOPLE, looks=_BACKUP),
    Copying("second backup", back_up, backed_up, _PEOPLE, looks=_BACKUP),
    Copying(
        "restore",
        restore_newest,
        backed_up,
        _PEOPLE,
        looks=Looks(read_copy, partial(use_copy, restore_newest)),
    ),
    Copying(
        "clone",
        clone_source,
        without_backup,
        _PEOPLE,
        looks=Looks(read_copy, partial(use_copy, clone_source)),
    ),
    Copying("repair", operations.repair, drifted, BOTH, looks=_REPAIR),
    Scenario("open a moved graph", operations.reopen, moved, BOTH),
)
