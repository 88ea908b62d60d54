"""A small disk that a neighbour fills and frees: what was acknowledged is there, and no more."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import (
    AlreadyInitialized,
    CommitNotFound,
    OmniGraphError,
    OutcomePending,
    StorageFull,
    StorageUnavailable,
)
from tests.crash.operations import SCHEMA, rows
from tests.faults import filler
from tests.faults.children import Child, Children, report
from tests.faults.disks import PAGE, SmallDisk, small_disk
from tests.faults.victims import unsound
from tests.rotation import rotation

pytestmark = pytest.mark.rotates(3)

PAGES = 1536
ATTEMPTS = 12


@dataclass
class Acknowledged:
    """What a writer was told: the people that are there, and those that may be, by commit."""

    is_created: bool = False
    people: list[str] = field(default_factory=list)
    pending: dict[str, list[str]] = field(default_factory=dict)
    refusals: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Seen:
    """What is there: people, the commits of those that were pending, and what is broken."""

    people: list[str]
    resolved: list[str]
    broken: list[str]


# -- in processes of their own --------------------------------------------------------------------


def write_people(root: Path) -> Iterator[None]:
    """Create a graph and write people to it, whatever the disk does meanwhile."""
    yield
    reported = Acknowledged()
    for attempt in range(ATTEMPTS):
        graph = created(root, reported, force=attempt > 0)
        if graph is not None:
            reported.is_created = True
            write_all(graph, reported)
            break
    report(reported)


def created(root: Path, acknowledged: Acknowledged, *, force: bool) -> Graph | None:
    graphs: list[Graph] = []
    if noted(acknowledged, lambda: graphs.append(Graph.init(root, SCHEMA, force=force)), []):
        return graphs[0]
    return None


def write_all(graph: Graph, acknowledged: Acknowledged) -> None:
    for number in range(ATTEMPTS):
        names = [f"p{number}-{index}" for index in range(1 + 40 * (number % 3))]
        records = [{"type": "Person", "data": {"name": name}} for name in names]
        ways: tuple[Callable[[], object], ...] = (
            functools.partial(graph.append, rows("Person", *names)),
            functools.partial(graph.load, records, "merge"),
            functools.partial(graph.load, records, "append"),
        )
        noted(acknowledged, ways[number % 3], names)


def noted(acknowledged: Acknowledged, act: Callable[[], object], names: list[str]) -> bool:
    """Act and note the answer; whether it was a good one."""
    try:
        act()
    except (StorageFull, StorageUnavailable):
        acknowledged.refusals += 1
        return False
    except OutcomePending as error:
        acknowledged.pending[error.details["commit_id"]] = names
        return False
    except AlreadyInitialized:
        return False
    except OmniGraphError as error:
        acknowledged.wrong.append(repr(error))
        return False
    acknowledged.people += names
    return True


def look(pending: tuple[str, ...], root: Path) -> Iterator[None]:
    """Read all that is there, through a new handle that may write."""
    yield
    try:
        with Graph.open(root) as graph:
            people = graph.snapshot().read("Person")["name"].to_pylist()
            resolved = [commit for commit in pending if is_existing(graph, commit)]
            report(Seen(sorted(people), resolved, unsound(graph)))
    except OmniGraphError as error:
        report(Seen([], [], [repr(error)]))


def is_existing(graph: Graph, commit: str) -> bool:
    try:
        graph.commit(commit)
    except CommitNotFound:
        return False
    return True


# -- the tests ------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    top = tmp_path / "disk"
    top.mkdir()
    with small_disk(top) as actual:
        yield actual


@contextmanager
def neighbour(file: Path, seed: int) -> Iterator[None]:
    """Fills and frees the disk of a file as long as the block runs."""
    program = [sys.executable, "-S", filler.__file__, str(file), str(PAGES * PAGE), str(seed)]
    with subprocess.Popen(program, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            yield
        finally:
            process.stdin.close()
            assert process.wait() == 0
            file.unlink()


def last_word(family: Children, child: Child, root: Path) -> object:
    """What a child reports that runs to its end, or how it died."""
    code = family.proceed(family.at_gate(child, root))
    return f"it died: {code} {family.output[-300:]}" if code else family.reported()


def check_graph(disk: SmallDisk, family: Children, number: int) -> str | None:
    """Write one graph beside the neighbour; gives what is wrong with it then."""
    root = disk.top / f"g{number}.omni"
    with disk.only(pages=PAGES), neighbour(disk.top / "ballast", rotation() * 1_000 + number):
        reported = last_word(family, write_people, root)
    if not isinstance(reported, Acknowledged):
        return str(reported)
    if reported.wrong or not reported.is_created:
        return "; ".join(reported.wrong) or None
    seen = last_word(family, functools.partial(look, tuple(reported.pending)), root)
    shutil.rmtree(root)
    if not isinstance(seen, Seen):
        return str(seen)
    expected = [
        *reported.people,
        *(name for item in seen.resolved for name in reported.pending[item]),
    ]
    if sorted(expected) != seen.people:
        lost, extra = set(expected) - set(seen.people), set(seen.people) - set(expected)
        seen.broken.append(f"{len(lost)} people are lost, {len(extra)} were not acknowledged")
    return "; ".join(seen.broken) or None


def check_graphs(disk: SmallDisk, family: Children, count: int) -> None:
    actual = {number: check_graph(disk, family, number) for number in range(count)}
    wrong = [f"graph {number}: {text}" for number, text in actual.items() if text is not None]
    assert not wrong, "\n".join([f"{len(wrong)} of {count} graphs", *wrong])


def test_what_was_acknowledged_on_a_disk_that_fills_up_is_there(disk: SmallDisk, family: Children):
    check_graphs(disk, family, 6)


@pytest.mark.slow
def test_what_was_acknowledged_is_there_on_many_graphs(disk: SmallDisk, family: Children):
    check_graphs(disk, family, 40)
