"""A table that is ahead of the graph: nobody writes on top of it, and everybody learns why."""

from __future__ import annotations

import threading

import pytest

from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.names import table_lease
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.store import Timeouts
from omnigraph.commit.write_request import PreparedWrite, WriteRequest
from omnigraph.errors import Conflict, RecoveryRequired, StorageError, StorageUnavailable
from omnigraph.storage.objects.store import ObjectStore
from tests.commit.deaths import die, head, leave_sidecar, left, move, pin, pinned
from tests.commit.world import at, companies, listing, names, people, store_at

PERSON, COMPANY = "node:Person", "node:Company"


@pytest.fixture
def graph(graph):
    """Ada, and a company."""
    graph.append(people(Ada=36) | companies("Acme"))
    return graph


@pytest.fixture
def drifted(graph, path):
    """Somebody wrote two people without telling the graph; gives the version it shows."""
    move(path, PERSON, "Grace", "Bob")
    return pinned(graph, PERSON)


def refused(graph, branch="main"):
    with pytest.raises(Conflict) as raised:
        graph.append(people(Carl=1), branch=branch)
    return raised.value


def test_a_drift_that_nothing_explains_is_for_repair(graph, drifted):
    error = refused(graph)
    assert not isinstance(error, RecoveryRequired)
    assert "repair" in error.hint
    assert "reopen" not in error.hint
    assert error.details == {"table_key": PERSON, "expected": drifted, "actual": drifted + 2}


def test_a_refused_write_leaves_everything_as_it_is(graph, path, drifted):
    before = {name for name in listing(path) if "_versions" in name or "__recovery" in name}
    refused(graph)
    after = {name for name in listing(path) if "_versions" in name or "__recovery" in name}
    assert after == before
    assert names(graph) == ["Ada"]


def test_an_interrupted_write_on_the_same_table_and_branch_explains_it(graph, path, drifted):
    operation = leave_sidecar(path, pin(path, PERSON, drifted))
    error = refused(graph)
    assert isinstance(error, RecoveryRequired)
    assert "reopen" in error.hint
    assert left(path) == [operation]


def test_an_interrupted_write_on_another_branch_does_not(graph, path, drifted):
    graph.branches.create("feat")
    leave_sidecar(path, pin(path, PERSON, 99, branch="feat"), branch="feat")
    assert "repair" in refused(graph).hint


def test_an_interrupted_write_on_another_table_does_not(graph, path, drifted):
    move(path, COMPANY, "Brim", "Carls")
    leave_sidecar(path, pin(path, COMPANY, pinned(graph, COMPANY)))
    assert "repair" in refused(graph).hint


def test_both_ways_out_are_named_when_nobody_can_look(graph, drifted, monkeypatch):
    def go_blind():
        def unavailable(self, path):
            raise StorageUnavailable("the disk is away")

        monkeypatch.setattr(ObjectStore, "list", unavailable)

    with at(Failpoint.WRITE_AFTER_LEASES, go_blind):
        error = refused(graph)
    assert "reopen" in error.hint
    assert "repair" in error.hint


def test_other_tables_can_be_written(graph, drifted):
    graph.append(companies("Brim"))
    assert graph.snapshot().count("Company") == 2
    assert names(graph) == ["Ada"]


def test_a_branch_that_forks_from_the_shown_version_is_not_concerned(graph, drifted):
    graph.branches.create("feat")
    graph.append(people(Carl=1), branch="feat")
    assert names(graph, "feat") == ["Ada", "Carl"]
    assert names(graph) == ["Ada"]


def test_a_drift_on_a_branch_does_not_concern_main(graph, path):
    graph.branches.create("feat")
    graph.append(people(Bob=1), branch="feat")
    move(path, PERSON, "Grace", branch="feat")
    assert "repair" in refused(graph, "feat").hint
    graph.append(people(Carl=1))
    assert names(graph) == ["Ada", "Carl"]
    assert names(graph, "feat") == ["Ada", "Bob"]


def test_a_writer_that_dies_while_another_waits_is_repaired_by_the_one_that_waited(graph, other):
    """Its sidecar was not there yet when the other looked for sidecars."""
    with at(
        Failpoint.WRITE_AFTER_LEASES,
        lambda: die(other, Failpoint.WRITE_AFTER_TABLES, companies("Brim")),
    ):
        graph.append(people(Grace=1))
    graph.append(companies("Carls"))
    assert graph.snapshot().count("Company") == 3


def test_a_version_that_is_gone_is_an_error_of_the_storage(graph, path):
    graph.append(people(Grace=1))
    (path / "nodes/40d76f1f51639ec0/_versions").joinpath(
        f"{2**64 - 1 - head(path, PERSON):020d}.manifest"
    ).unlink()
    graph.refresh()
    with pytest.raises(StorageError):
        graph.append(people(Bob=1))
    graph.append(companies("Brim"))


# -- a dead writer's table in a living writer's hands --------------------------------------------


@pytest.fixture
def half_kept(graph):
    """A writer died over both tables, and one that lives holds one of them; gives its lease."""
    die(graph, Failpoint.WRITE_AFTER_TABLES, people(Bob=1) | companies("Brim"))
    with graph._handle.store.leases.acquire([table_lease(COMPANY, None)], 0.0):
        yield


def test_who_needs_the_other_table_waits_for_the_living_writer(graph, other, path):
    die(graph, Failpoint.WRITE_AFTER_TABLES, people(Bob=1) | companies("Brim"))
    rounds = threading.Semaphore(0)
    reported = []

    def write():
        reported.append(other.append(people(Carl=1)))

    def count(point):
        if point is Failpoint.WRITE_AFTER_LEASES:
            rounds.release()

    with hooked(count):
        with graph._handle.store.leases.acquire([table_lease(COMPANY, None)], 0.0):
            writer = threading.Thread(target=write)
            writer.start()
            assert all(rounds.acquire(timeout=60) for _ in range(5))
            assert reported == []
        writer.join(60)
    assert [receipt.tables["node:Person"].inserted for receipt in reported] == [1]
    assert names(graph) == ["Ada", "Bob", "Carl"]
    assert left(path) == []


def test_who_waited_long_enough_is_told_to_come_back(half_kept, graph, path):
    impatient = store_at(path, Timeouts(lease=0.2))

    def prepare(view):
        table = view.table(PERSON)
        return PreparedWrite({PERSON: (view.stage.stage_append(table, table.read()),)})

    request = WriteRequest(WriterKind.MUTATION, None, frozenset({PERSON}), prepare)
    with pytest.raises(Conflict, match="a running writer prevents its recovery") as reported:
        commit_write(impatient, request)
    assert reported.value.retryable
    assert reported.value.details["table_key"] == PERSON
    assert len(left(path)) == 1
