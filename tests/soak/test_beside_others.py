"""What the soak has found, each as small as it gets."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.commit import manifest
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.errors import BranchNotFound, HistoryGone, StorageMissing
from omnigraph.maintain.cleanup.retention import cleanup_policy
from omnigraph.maintain.cleanup.run import clean_up
from omnigraph.maintain.running_writes import recover_writes
from omnigraph.storage.tables import branch_list
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.ledger_reader import LedgerReader
from omnigraph.topology.cache import TableCache

SCHEMA = """
node Person { name: String @key }
node City { name: String @key }
edge Knows: Person -> Person
"""
FRIENDS = "query q() { match { $a: Person  $a knows $b } return { $a.name, $b.name } }"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.append(person("Ada"))
        yield graph


def person(name):
    return {"Person": pa.table({"name": [name]})}


@contextmanager
def writer_kept_at(graph, point, *, until):
    """A writer that has come so far and goes on when somebody else reaches another point."""
    there, on = threading.Event(), threading.Event()

    def hook(reached):
        if reached is point and threading.current_thread() is writer:
            there.set()
            on.wait()
        if reached is until:
            on.set()

    writer = threading.Thread(target=lambda: graph.append(person("Grace")))
    with hooked(hook):
        writer.start()
        there.wait()
        try:
            yield
        finally:
            on.set()
            writer.join()


def test_repair_waits_for_a_writer_that_lives(graph):
    kept = writer_kept_at(
        graph, Failpoint.WRITE_AFTER_TABLES, until=Failpoint.RECOVERY_AFTER_LEASES
    )
    with kept:
        report = graph.maintenance.repair()
    assert {table.classification.value for table in report.tables} == {"no_drift"}
    assert graph.snapshot().count("Person") == 2


class Died(BaseException):
    pass


def test_maintenance_waits_for_no_writer_that_came_later(graph):
    def die(reached):
        if reached is Failpoint.WRITE_AFTER_TABLES:
            raise Died

    with hooked(die), pytest.raises(Died):
        graph.append(person("Grace"))
    there, on = threading.Event(), threading.Event()
    writer = threading.Thread(target=lambda: graph.append({"City": pa.table({"name": ["Bern"]})}))

    def hook(reached):
        is_writer = threading.current_thread() is writer
        if reached is Failpoint.RECOVERY_AFTER_LEASES and not is_writer:
            writer.start()
            there.wait()
        if reached is Failpoint.WRITE_AFTER_TABLES and is_writer:
            there.set()
            on.wait()

    with hooked(hook):
        recover_writes(graph._handle.store)
        assert graph.snapshot().count("Person") == 2
        assert len(graph._handle.store.sidecars.list()) == 1
        on.set()
        writer.join()
    assert graph.snapshot().count("City") == 1


def test_a_query_on_a_branch_that_is_gone_says_so(graph):
    graph.branches.create("b")
    graph.append(person("Grace"), branch="b")
    graph.load([{"edge": "Knows", "from": "Ada", "to": "Grace"}], branch="b")
    snapshot = graph.snapshot("b")
    with Graph.open(graph.uri, durability="os") as other:
        other.branches.delete("b")
    with pytest.raises(HistoryGone, match="branch 'b' was deleted"):
        graph.query(FRIENDS, snapshot=snapshot)


def test_a_branch_that_goes_while_cleanup_looks_is_no_failure(graph):
    for name in ("b", "c"):
        graph.branches.create(name)
        graph.append(person("Grace"), branch=name)

    class DeletingExecutor:
        def run(self, function, tasks, label=""):
            results = [function(task) for task in tasks]
            if "b" in graph.branches.list():
                graph.branches.delete("b")
            return results

    report = clean_up(graph._handle.store, cleanup_policy(1, None, 0, None), DeletingExecutor())
    assert (report.skipped, {table.error for table in report.tables}) == ((), {None})
    assert graph.snapshot("c").count("Person") == 2
    assert graph.maintenance.verify().problems == ()


def test_a_column_that_comes_while_memory_is_counted_is_no_failure(graph):
    kept = TableCache(
        graph._handle.store.table(graph._handle.store.manifest(None).current().pins["node:Person"])
    )

    class Counted:
        """A column during the count of which another query reads one."""

        @property
        def nbytes(self):
            return kept.column("name").nbytes

    kept._columns["id"] = Counted()
    assert kept.nbytes() > 0
    assert kept.has("name")


def test_a_branch_that_goes_while_it_is_opened_is_not_found(graph, monkeypatch):
    graph.branches.create("b")
    graph.append(person("Grace"), branch="b")

    def opened(datasets, ref, version=None):
        ledger = LedgerReader.open(datasets, ref, version)
        if ref.branch == "b" and "b" in graph.branches.list():
            graph.branches.delete("b")
        return ledger

    with Graph.open(graph.uri, "r") as reader:
        monkeypatch.setattr(manifest, "LedgerReader", SimpleNamespace(open=opened))
        with pytest.raises(BranchNotFound, match="branch 'b' not found"):
            reader.snapshot("b")


def test_a_branch_that_goes_while_branches_are_listed_is_no_failure(graph, monkeypatch):
    graph.branches.create("b")
    failures = [StorageMissing("cannot list the branches of '__manifest': it does not exist")]

    @contextmanager
    def called(*given, **options):
        with lance_call(*given, **options):
            yield
        if failures:
            raise failures.pop()

    monkeypatch.setattr(branch_list, "lance_call", called)
    assert graph.branches.list() == ["main", "b"]
    assert failures == []
