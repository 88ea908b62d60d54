"""Compaction in the background of a handle: writers do not wait for it and never see it fail."""

from __future__ import annotations

import logging
import random
import threading
import time
from contextlib import contextmanager

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.errors import Conflict, StorageUnavailable, VersionMismatch
from omnigraph.maintain import background, small_fragments
from tests.commit.deaths import left
from tests.commit.world import SCHEMA, people

pytestmark = pytest.mark.rotates(3)

PERSON = "node:Person"
FEW = 4
WAIT_SECONDS = 60


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Tests need not make as many fragments as it takes to be worthwhile."""
    monkeypatch.setattr(small_fragments, "TIER", FEW)
    monkeypatch.setattr(background, "TIER", FEW)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "g.omni"


@pytest.fixture
def graph(path):
    with Graph.init(path, SCHEMA, durability="os", auto_compact=True) as graph:
        yield graph


def fragments(graph):
    store = graph._handle.store
    return store.table(store.manifest(None).current().pins[PERSON]).fragments()


def wait_until(holds):
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def compacting():
    return [thread for thread in threading.enumerate() if thread.name == "omnigraph-compaction"]


def add(graph, *numbers):
    for number in numbers:
        graph.append(people(**{f"p{number}": number}))


@contextmanager
def kept_at(point):
    """Stop the compaction at a boundary; gives when it is there, and what lets it go on."""
    there, on = threading.Event(), threading.Event()

    def hook(passed):
        if passed is point and threading.current_thread() in compacting():
            there.set()
            on.wait(WAIT_SECONDS)

    with hooked(hook):
        yield there, on
        on.set()


def test_many_small_commits_leave_few_fragments(graph):
    for number in range(5 * FEW):
        add(graph, number)
        wait_until(lambda: not compacting())
        assert len(fragments(graph)) < 2 * FEW
    assert graph.snapshot().count("Person") == len(graph.commits()) - 1 == 5 * FEW


def test_fragments_of_earlier_processes_are_merged_after_the_first_commit(graph, path, monkeypatch):
    monkeypatch.setattr(small_fragments, "NEWEST", 2 * FEW)
    with Graph.open(path, durability="os") as other:
        add(other, *range(5 * FEW))
        assert len(fragments(other)) == 5 * FEW
    add(graph, 99)
    wait_until(lambda: len(fragments(graph)) < 2 * FEW and not compacting())


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_without_the_option_nothing_happens(path, mode):
    Graph.init(path, SCHEMA, durability="os").close()
    with (
        Graph.open(path, durability="os") as graph,
        Graph.open(path, mode, auto_compact=mode == "r") as other,
    ):
        add(graph if mode == "r" else other, *range(FEW + 1))
        assert compacting() == []
        assert len(fragments(graph)) == FEW + 1


def test_an_idle_handle_has_no_thread(graph):
    add(graph, 1)
    wait_until(lambda: not compacting())


def test_a_write_does_not_wait_for_a_compaction_that_rewrites(graph):
    with kept_at(Failpoint.OPTIMIZE_AFTER_COMPACTION) as (there, _):
        add(graph, *range(FEW))
        assert there.wait(WAIT_SECONDS)
        add(graph, *range(FEW, 3 * FEW))
        assert graph.snapshot().count("Person") == 3 * FEW
        assert len(compacting()) == 1
    wait_until(lambda: not compacting())
    assert len(fragments(graph)) < 2 * FEW


@pytest.mark.parametrize(
    "point", [Failpoint.OPTIMIZE_AFTER_COMPACTION, Failpoint.WRITE_AFTER_TABLES]
)
def test_closing_waits_for_a_compaction_that_runs(graph, path, point):
    with kept_at(point) as (there, on):
        add(graph, *range(FEW))
        assert there.wait(WAIT_SECONDS)
        closing = threading.Thread(target=graph.close)
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
        on.set()
        closing.join(WAIT_SECONDS)
    assert not closing.is_alive()
    assert compacting() == []
    assert left(path) == []
    with Graph.open(path) as opened:
        assert opened.recovered == ()
        assert len(fragments(opened)) == 1


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (StorageUnavailable("the disk is away"), logging.WARNING),
        (ValueError("not expected"), logging.WARNING),
        (Conflict("table node:Person is locked by another writer"), logging.INFO),
    ],
)
def test_a_failure_is_logged_and_changes_no_answer(graph, caplog, error, level):
    def fail(point):
        if point is Failpoint.OPTIMIZE_BEFORE_COMPACTION:
            raise error

    caplog.set_level(logging.INFO, "omnigraph")
    with hooked(fail):
        add(graph, *range(FEW + 1))
        wait_until(lambda: not compacting())
    assert [(record.levelno, str(error) in record.message) for record in caplog.records] == [
        (level, True)
    ]
    add(graph, *range(FEW + 1, 3 * FEW))
    wait_until(lambda: len(fragments(graph)) < 2 * FEW)


def test_a_write_succeeds_when_no_thread_can_be_started(graph, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as broken:
        broken.setattr(threading.Thread, "start", refuse)
        add(graph, *range(FEW))
    add(graph, FEW)
    wait_until(lambda: len(fragments(graph)) == 1)


WRITERS, ROWS, SECONDS, LONGEST_SECONDS = 4, 6, 3.0, 60.0


class _Writer(threading.Thread):
    """Inserts, changes and deletes rows of its own; knows what it was answered."""

    def __init__(self, graph, number, goes_on):
        super().__init__()
        self.graph, self.number, self.goes_on = graph, number, goes_on
        self.rows: dict[str, int] = {}
        self.commits: list[str] = []
        self.failure: BaseException | None = None

    def run(self):
        choose = random.Random(self.number)
        try:
            while self.goes_on():
                self.act(f"w{self.number}-{choose.randrange(ROWS)}", choose.randrange(1_000))
        except BaseException as error:
            self.failure = error

    def act(self, name, age):
        statement = f'insert Person {{ name: "{name}", age: {age} }}'
        if name in self.rows:
            statement = f'delete Person where name = "{name}"'
            if age % 3:
                statement = f'update Person set {{ age: {age} }} where name = "{name}"'
        try:
            receipt = self.graph.mutate(f"query q() {{ {statement} }}")
        except VersionMismatch:
            # Another writer changed rows of the table.
            return
        self.commits.append(receipt.commit_id)
        if statement.startswith("delete"):
            del self.rows[name]
        else:
            self.rows[name] = age


def test_four_writers_and_compaction_for_a_while(graph, path):
    started = time.monotonic()
    published = []

    def goes_on():
        """On a busy machine, until the first compaction."""
        return time.monotonic() - started < (SECONDS if published else LONGEST_SECONDS)

    writers = [_Writer(graph, number, goes_on) for number in range(WRITERS)]

    def count(point):
        if point is Failpoint.WRITE_AFTER_PUBLISH and threading.current_thread() in compacting():
            published.append(point)

    with hooked(count):
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        graph.close()
    assert [writer.failure for writer in writers if writer.failure] == []
    assert published
    with Graph.open(path) as opened:
        assert opened.recovered == ()
        rows = opened.snapshot().read("Person", ["name", "age"])
        expected = {name: age for writer in writers for name, age in writer.rows.items()}
        assert dict(zip(*rows.to_pydict().values(), strict=True)) == expected
        commits = [commit.commit_id for commit in opened.commits()]
        assert sorted(commits[:-1]) == sorted(id for w in writers for id in w.commits)
        assert len(fragments(opened)) < max(4 * FEW, len(commits) / 2)
        replayed: dict[str, int] = {}
        for change in opened.changes.poll(limit=100_000).changes:
            if change.after is None:
                del replayed[change.id]
            else:
                replayed[change.id] = change.after["age"]
        assert replayed == expected
        assert opened.maintenance.verify().problems == ()
