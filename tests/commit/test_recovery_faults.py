"""Recoveries whose storage fails, that race with each other, or that die themselves."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from omnigraph.commit.audit import AuditLog
from omnigraph.commit.branches import Branches
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import StorageMissing, StorageUnavailable
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.store import TableStore
from tests.commit.deaths import (
    Died,
    audited,
    die,
    head,
    leave_sidecar,
    left,
    move,
    moved_once,
    pin,
    pinned,
    reopen,
)
from tests.commit.world import at, companies, foreign_upsert, listing, names, people, raising
from tests.fork_server import fork_context

PERSON, COMPANY = "node:Person", "node:Company"
RECOVERY = "omnigraph:recovery"


@pytest.fixture
def graph(graph):
    """Ada, and a company."""
    graph.append(people(Ada=36) | companies("Acme"))
    return graph


@pytest.fixture
def lost(graph, path):
    """A write died on a branch, and then the branch was deleted; gives its operation id."""
    graph.branches.create("feat")
    die(graph, Failpoint.WRITE_AFTER_TABLES, people(Grace=1), branch="feat", actor="ana")
    (operation,) = left(path)
    Branches(graph._handle.store).delete("feat")
    return operation


# -- storage that fails -----------------------------------------------------------------------


def failing(monkeypatch, owner, method, *, when=lambda *args: True, error=None):
    """Let a method raise; gives a function that mends it."""
    real = getattr(owner, method)
    fault = error or StorageUnavailable("the disk is away")

    def faulty(self, *args, **kwargs):
        if when(*args):
            raise fault
        return real(self, *args, **kwargs)

    monkeypatch.setattr(owner, method, faulty)
    return lambda: monkeypatch.setattr(owner, method, real)


def is_sidecar(path, *rest):
    return path.startswith("__recovery/") and path.endswith(".json")


def is_sidecar_folder(path, *rest):
    return path == "__recovery"


DEATHS = {
    "forward": (Failpoint.WRITE_AFTER_TABLES, "RolledForward", ["Ada", "Grace"]),
    "back": (Failpoint.WRITE_BETWEEN_TABLES, "RolledBack", ["Ada"]),
    "done": (Failpoint.WRITE_AFTER_PUBLISH, "RolledForward", ["Ada", "Grace"]),
}


@pytest.mark.parametrize("case", DEATHS)
def test_an_audit_that_fails_keeps_the_sidecar_and_is_made_up_for_once(
    graph, path, case, monkeypatch
):
    point, kind, expected = DEATHS[case]
    die(graph, point, people(Grace=1) | companies("Brim"))
    (operation,) = left(path)
    mend = failing(monkeypatch, AuditLog, "record_once")
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            reopen(path)
        with pytest.raises(StorageUnavailable):
            graph.append(companies("Carls"))
        assert left(path) == [operation]
    commits = graph.commits()
    mend()
    reopen(path)
    assert [(actual, of) for actual, of, _ in audited(graph)] == [(kind, operation)]
    assert graph.commits() == commits
    assert names(graph) == expected
    assert left(path) == []


def test_a_version_that_is_missing_for_a_moment_does_not_undo_what_landed(graph, path, monkeypatch):
    die(graph, Failpoint.WRITE_AFTER_TABLES, people(Grace=1) | companies("Brim"))
    calls = []
    fault = StorageMissing("no such file, says the disk")
    when = lambda *args: calls.append(args) or len(calls) == 1  # noqa: E731
    failing(monkeypatch, TableStore, "transaction_id", when=when, error=fault)
    (recovered,) = reopen(path)
    assert (str(recovered.kind), len(calls) > 2) == ("RolledForward", True)
    assert names(graph) == ["Ada", "Grace"]


def test_the_audit_of_a_deleted_branch_is_made_up_for_once(graph, path, lost, monkeypatch):
    mend = failing(monkeypatch, AuditLog, "record_once")
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            graph.refresh()
    commits = graph.commits()
    mend()
    graph.refresh()
    assert audited(graph) == [("OrphanedBranchDiscarded", lost, [])]
    assert graph.commits() == commits


def test_without_a_sidecar_no_table_moves(graph, path, monkeypatch):
    before = listing(path)
    mend = failing(monkeypatch, ObjectStore, "write", when=is_sidecar)
    with pytest.raises(StorageUnavailable):
        graph.append(people(Grace=1))
    new = set(listing(path)) - set(before)
    assert not [name for name in new if "_versions" in name]
    assert head(path, PERSON) == pinned(graph, PERSON)
    mend()
    graph.append(people(Grace=1))
    assert names(graph) == ["Ada", "Grace"]


def test_a_sidecar_that_cannot_be_deleted_does_not_fail_the_write(graph, path, monkeypatch, caplog):
    mend = failing(monkeypatch, ObjectStore, "delete", when=is_sidecar)
    receipt = graph.append(people(Grace=1))
    assert left(path) == [receipt.commit_id]
    assert receipt.commit_id in caplog.text
    mend()
    graph.append(companies("Brim"))
    assert left(path) == []
    assert audited(graph) == [("RolledForward", receipt.commit_id, [])]


@pytest.mark.parametrize("method", ["list", "read"])
def test_sidecars_that_cannot_be_seen_stop_opens_and_writes_until_they_can(
    graph, path, method, monkeypatch
):
    die(graph, Failpoint.WRITE_AFTER_TABLES, people(Grace=1))
    when = is_sidecar_folder if method == "list" else is_sidecar
    mend = failing(monkeypatch, ObjectStore, method, when=when)
    for attempt in (
        lambda: reopen(path),
        lambda: graph.append(companies("Brim")),
        lambda: graph.refresh(),
    ):
        with pytest.raises(StorageUnavailable):
            attempt()
    mend()
    graph.append(companies("Brim"))
    assert names(graph) == ["Ada", "Grace"]


def test_a_recovery_that_cannot_delete_the_sidecar_is_not_repeated(graph, path, monkeypatch):
    die(graph, Failpoint.WRITE_AFTER_TABLES, people(Grace=1))
    mend = failing(monkeypatch, ObjectStore, "delete", when=is_sidecar)
    with pytest.raises(StorageUnavailable):
        reopen(path)
    commits = graph.commits()
    mend()
    reopen(path)
    assert graph.commits() == commits
    assert len(audited(graph)) == 1
    assert left(path) == []


# -- races ------------------------------------------------------------------------------------


def test_a_recovery_that_comes_second_records_what_the_first_published(graph, path):
    before = pinned(graph, PERSON)
    operation = moved_once(path, graph, "Grace")

    def somebody_else():
        foreign_upsert(
            path,
            {
                "object_id": f"{PERSON}${before + 1:020d}",
                "object_type": "table_version",
                "table_key": PERSON,
                "table_version": before + 1,
                "row_count": 2,
                "metadata": "{}",
            },
        )

    with at(Failpoint.RECOVERY_BEFORE_PUBLISH, somebody_else):
        reopen(path)
    assert names(graph) == ["Ada", "Grace"]
    assert audited(graph) == [("RolledForward", operation, [])]
    assert left(path) == []


def test_a_recovery_that_loses_to_something_else_leaves_it_for_the_next(graph, path):
    person, company = pinned(graph, PERSON), pinned(graph, COMPANY)
    move(path, PERSON, "Grace")
    move(path, COMPANY, "Brim")
    operation = leave_sidecar(path, pin(path, PERSON, person), pin(path, COMPANY, company))

    def somebody_else():
        foreign_upsert(
            path,
            {
                "object_id": f"{COMPANY}${company + 1:020d}",
                "object_type": "table_version",
                "table_key": COMPANY,
                "table_version": company + 1,
                "row_count": 2,
                "metadata": "{}",
            },
        )

    with at(Failpoint.RECOVERY_BEFORE_PUBLISH, somebody_else):
        assert reopen(path) == ()
    assert left(path) == [operation]
    reopen(path)
    assert left(path) == []
    assert names(graph) == ["Ada"]
    assert [kind for kind, _, _ in audited(graph)] == ["RolledBack"]


@pytest.mark.parametrize("point", [Failpoint.WRITE_AFTER_TABLES, Failpoint.WRITE_BETWEEN_TABLES])
def test_several_threads_that_heal_at_once_do_it_once(graph, path, point):
    die(graph, point, people(Grace=1) | companies("Brim"))
    with ThreadPoolExecutor(4) as pool:
        handles = [pool.submit(reopen, path) for _ in range(3)]
        handles += [pool.submit(graph.refresh) for _ in range(3)]
        actual = [recovered for handle in handles for recovered in handle.result()]
    assert len(actual) <= 1
    graph.append(people(Carl=1) | companies("Carls"))
    assert len(audited(graph)) == 1
    assert [commit.actor for commit in graph.commits()].count(RECOVERY) == 1


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.WRITE_AFTER_TABLES,
        pytest.param(Failpoint.WRITE_BETWEEN_TABLES, marks=pytest.mark.slow),
    ],
)
def test_several_processes_that_open_at_once_heal_once(graph, path, point):
    die(graph, point, people(Grace=1) | companies("Brim"))
    context = fork_context()
    with ProcessPoolExecutor(3, mp_context=context) as pool:
        handles = [pool.submit(reopen, path) for _ in range(6)]
        actual = [recovered for handle in handles for recovered in handle.result()]
    assert len(actual) == 1
    assert len(audited(graph)) == 1
    assert [commit.actor for commit in graph.commits()].count(RECOVERY) == 1
    assert left(path) == []


# -- dying again ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "again",
    [
        Failpoint.RECOVERY_AFTER_LEASES,
        Failpoint.RECOVERY_BEFORE_PUBLISH,
        Failpoint.RECOVERY_AFTER_PUBLISH,
        Failpoint.RECOVERY_AFTER_AUDIT,
        Failpoint.RECOVERY_AFTER_DELETE,
    ],
)
def test_a_recovery_that_dies_is_taken_up_by_the_next(graph, path, again):
    die(graph, Failpoint.WRITE_AFTER_TABLES, people(Grace=1))
    with at(again, raising(Died())), pytest.raises(Died):
        reopen(path)
    graph.append(companies("Brim"))
    assert names(graph) == ["Ada", "Grace"]
    assert len(audited(graph)) == 1
    assert [commit.actor for commit in graph.commits()].count(RECOVERY) == 1
