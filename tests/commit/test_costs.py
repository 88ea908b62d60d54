"""What an operation costs does not depend on how long the history is."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from tests.commit.file_calls import CallCounter, Cost
from tests.commit.world import COMPANY, SCHEMA, manifest_of

pytestmark = pytest.mark.rotates(6)

SHALLOW, DEEP = 10, 505
"""Commits; after each of them the manifest is as far from its next compaction."""


# -- operations -----------------------------------------------------------------------------------


def write(graph: Graph, kind: str, name: str) -> None:
    """Commit one row."""
    writing(graph, kind, name)()


def writing(graph: Graph, kind: str, name: str) -> Callable[[], object]:
    """A commit of one row that is ready, without a look at other rows."""
    key = f"node:{kind}"
    schema = graph.catalog.node(kind).arrow_schema()
    values = {"id": [name], "name": [name], "age": [36]}
    row = pa.table({column: values[column] for column in schema.names}, schema)

    def prepare(view: WriteView) -> PreparedWrite:
        return PreparedWrite({key: (view.stage.stage_append(view.table(key), row),)})

    request = WriteRequest(WriterKind.LOAD, None, frozenset({key}), prepare)
    return lambda: commit_write(graph._handle.store, request)


def measured(graph: Graph, work: Callable[[], object]) -> Iterator[None]:
    """Do something after the gate, and print what the handle asked of its store for it."""
    before = asdict(graph._handle.store.objects.traffic)
    opened = graph._handle.store.datasets.opened
    yield
    work()
    after = asdict(graph._handle.store.objects.traffic)
    spent = {kind: after[kind] - before[kind] for kind in after}
    print(json.dumps(spent | {"opens": graph._handle.store.datasets.opened - opened}))


def read_warm(root: Path) -> Iterator[None]:
    graph = Graph.open(root)
    graph.snapshot()
    return measured(graph, graph.snapshot)


def open_cold(root: Path, mode: str = "rw") -> Iterator[None]:
    yield
    graph = Graph.open(root, mode)
    spent = asdict(graph._handle.store.objects.traffic)
    print(json.dumps(spent | {"opens": graph._handle.store.datasets.opened}))


def open_cold_to_read(root: Path) -> Iterator[None]:
    return open_cold(root, "r")


def read_after_another(root: Path) -> Iterator[None]:
    graph = Graph.open(root)
    graph.snapshot()
    write(Graph.open(root), "Person", "Ada")
    return measured(graph, graph.snapshot)


def commit_to_a_small_table(root: Path) -> Iterator[None]:
    graph = Graph.open(root)
    write(graph, "Person", "Ada")
    return measured(graph, writing(graph, "Person", "Grace"))


def commit_to_the_long_table(root: Path) -> Iterator[None]:
    graph = Graph.open(root)
    write(graph, "Company", "first")
    return measured(graph, writing(graph, "Company", "second"))


# -- two graphs -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CallCounter]:
    if sys.platform != "linux" or shutil.which("strace") is None:
        pytest.skip("system calls are counted with strace, which is not here")
    counter = CallCounter(tmp_path_factory.mktemp("calls"))
    yield counter
    counter.close()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the graphs lie, built once for all workers of a run."""
    location = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        location = location.parent
    location = location / "costs"
    location.mkdir(exist_ok=True)
    with (location / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (location / "ready").exists():
            for depth in (SHALLOW, DEEP):
                with Graph.init(location / str(depth), SCHEMA, durability="os") as graph:
                    for number in range(depth):
                        write(graph, "Company", f"c{number}")
            (location / "ready").touch()
    return location


@pytest.fixture(scope="module")
def costs(
    counter: CallCounter, built: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Callable[[Path], Iterator[None]]], tuple[Cost, Cost]]:
    """Runs an operation on a copy of the shallow graph and on one of the deep, each once."""

    @functools.cache
    def both(operation: Callable[[Path], Iterator[None]]) -> tuple[Cost, Cost]:
        folder = tmp_path_factory.mktemp(operation.__name__)
        for depth in (SHALLOW, DEEP):
            # No file of a graph is changed in place, so links are as good as copies.
            shutil.copytree(built / str(depth), folder / str(depth), copy_function=os.link)
        shallow, deep = (counter.cost(operation, folder / str(d)) for d in (SHALLOW, DEEP))
        return shallow, deep

    return both


def test_the_graphs_differ_in_their_history_only(built: Path):
    """Else the manifest compacts at another pace, and SHALLOW or DEEP has to change."""
    shallow, deep = (manifest_of(built / str(depth)) for depth in (SHALLOW, DEEP))
    assert len(shallow.get_fragments()) == len(deep.get_fragments())
    assert (shallow.version, deep.version > DEEP) == (SHALLOW + 1, True)


# -- the costs ------------------------------------------------------------------------------------


def traffic(reads: int, writes: int = 0, lists: int = 0, deletes: int = 0, opens: int = 0):
    return {
        "reads": reads,
        "writes": writes,
        "lists": lists,
        "deletes": deletes,
        "opens": opens,
    }


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (read_warm, traffic(4)),
        (read_after_another, traffic(5)),
        (open_cold, traffic(13, lists=3, opens=1)),
        (open_cold_to_read, traffic(6, lists=1, opens=1)),
        (commit_to_a_small_table, traffic(5, writes=3, lists=1, deletes=1)),
    ],
)
def test_an_operation_asks_the_same_of_a_short_and_a_long_history(costs, operation, expected):
    shallow, deep = costs(operation)
    assert json.loads(shallow.output) == json.loads(deep.output) == expected
    # There is a checksum record for each commit until upkeep folds them: one listing is longer.
    calls = [Counter(cost.calls) for cost in (shallow, deep)]
    listed = [call.pop("getdents64 __checksums", 0) for call in calls]
    assert listed[0] <= listed[1] <= listed[0] + 1 <= 3
    assert calls[0] == calls[1]


def test_a_table_that_was_written_500_times_costs_no_further_calls(costs):
    """Lance looks at a small version file more often than at a large one, so not the same."""
    shallow, deep = costs(commit_to_the_long_table)
    assert json.loads(shallow.output) == json.loads(deep.output)
    assert deep.calls - shallow.calls == Counter()
    assert (shallow.calls - deep.calls).total() <= 2


def test_a_repeated_read_looks_once_for_a_newer_version_and_opens_nothing(costs):
    _, deep = costs(read_warm)
    assert deep.calls == {
        "newfstatat _schema.pg": 1,
        "newfstatat _schema.ir.json": 1,
        "newfstatat __schema_state.json": 1,
        "newfstatat __manifest/_versions/*.manifest": 1,
    }


def test_a_newer_version_is_reached_by_reading_only_what_it_added(costs):
    _, deep = costs(read_after_another)
    opened = {kind: times for kind, times in deep.calls.items() if kind.startswith("openat")}
    assert opened == {
        # Once to see whether it is damaged.
        "openat __manifest/_versions/*.manifest": 3,
        "openat __manifest/data/*.lance": 1,
    }


def test_a_warm_commit_lists_no_directory_that_grows(costs):
    _, deep = costs(commit_to_the_long_table)
    listed = {kind for kind in deep.calls if kind.startswith("getdents64")}
    assert listed == {"getdents64 __recovery"}
    assert f"fsync {COMPANY}/_versions/*.manifest" in deep.calls
