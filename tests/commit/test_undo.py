"""A writer that lives and cannot publish takes its own work back before it says so."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from omnigraph import Graph
from omnigraph.commit.branches import Branches
from omnigraph.commit.classify import RecoveryDecision, classify, decide, mode_of
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.recovery import Recovery
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.sidecar import SidecarStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest
from omnigraph.errors import (
    Conflict,
    OutcomePending,
    PreconditionFailed,
    StorageUnavailable,
    StorageUnknown,
    VersionMismatch,
)
from omnigraph.storage.leases.local import _LocalLeaseGuard
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.inline import InlineTables
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.types import TableRef
from tests.commit.deaths import LOCATIONS, Died, audited, head, left, move, pinned, table_of
from tests.commit.world import at, companies, knows, manifest_rows, names, people, raising

PERSON, COMPANY = "node:Person", "node:Company"
TOUCHED = frozenset({PERSON, COMPANY})


@pytest.fixture
def graph(graph):
    """Ada, and a company."""
    graph.append(people(Ada=36) | companies("Acme"))
    return graph


def append_both(view, consulted=None):
    """A person and a company, on the condition that some table has some version."""
    staged = {}
    for key in sorted(TOUCHED):
        table = view.table(key)
        row = table.schema.empty_table().from_pylist(
            [{"id": "Grace", "name": "Grace"}], schema=table.schema
        )
        staged[key] = (view.stage.stage_append(table, row),)
    return PreparedWrite(staged, consulted or {})


def relying_on_what_is_not_so(view):
    return append_both(view, {"edge:Knows": 99})


LOSING = WriteRequest(WriterKind.MUTATION, None, TOUCHED, relying_on_what_is_not_so)


def lose(graph, branch=None):
    """A write whose publish fails because an expectation does not hold; gives the conflict."""
    request = WriteRequest(
        WriterKind.MUTATION, branch, TOUCHED, relying_on_what_is_not_so, actor="ana"
    )
    with pytest.raises(VersionMismatch) as lost:
        commit_write(graph._handle.store, request)
    return lost.value


OLDER = 'query q() { update Person set { age: 37 } where name = "Ada" }'


@contextmanager
def at_the_first_read(graph, action):
    """Run something after a handle has staged a write and before it has its leases."""
    leases = graph._handle.store.leases
    acquire = leases.acquire

    def act_first(wanted, timeout):
        leases.acquire = acquire
        action()
        return acquire(wanted, timeout)

    leases.acquire = act_first
    yield


def test_the_conflict_says_which_table_was_not_as_expected(graph):
    assert lose(graph).details == {"table_key": "edge:Knows", "expected": 99, "actual": 1}


def test_its_tables_show_what_they_showed_before(graph, path):
    before = {key: pinned(graph, key) for key in TOUCHED}
    lose(graph)
    assert names(graph) == ["Ada"]
    assert graph.snapshot().count("Company") == 1
    for key, version in before.items():
        # One version for the write and one that takes it back.
        assert pinned(graph, key) == head(path, key) == version + 2
    assert left(path) == []
    assert audited(graph) == []


def test_it_leaves_no_commit_and_the_head_where_it_was(graph, other, path):
    """Nobody died: only the versions of the tables are others."""
    commits, version = graph.commits(), graph.snapshot().version
    lose(graph)
    assert graph.commits() == other.commits() == commits
    assert graph.snapshot().version == other.snapshot().version == version + 1
    assert manifest_rows(path)["graph_head:main"]["metadata"].count(commits[0].commit_id) == 1


def test_a_write_on_condition_of_the_head_happens_after_others_lost(graph, other):
    head_id = graph.commits()[0].commit_id
    lose(graph)
    receipt = other.mutate(OLDER, if_commit=head_id)
    assert other.commit(receipt.commit_id).parent == head_id


def test_a_strict_write_that_others_lost_before_is_staged_again(graph, other):
    """What it read is what is there, however often somebody took a write back meanwhile."""
    head_id = graph.commits()[0].commit_id

    def lose_twice():
        lose(graph)
        lose(graph)

    with at_the_first_read(other, lose_twice):
        receipt = other.mutate(OLDER, if_commit=head_id)
    assert receipt.affected_nodes == 1
    assert other.snapshot().read("Person", ["age"])["age"].to_pylist() == [37]


def test_a_strict_write_is_refused_when_one_of_them_did_not_lose(graph, other):
    def lose_and_write():
        lose(graph)
        graph.append(people(Bob=1))

    with at_the_first_read(other, lose_and_write), pytest.raises(VersionMismatch):
        other.mutate(OLDER)


def test_a_condition_that_does_not_hold_any_more_is_seen_before_a_table_moves(graph, other, path):
    head_id = graph.commits()[0].commit_id
    versions = {key: head(path, key) for key in TOUCHED}
    with (
        at_the_first_read(other, lambda: graph.append(knows(("Ada", "Ada")))),
        pytest.raises(PreconditionFailed),
    ):
        other.mutate(OLDER, if_commit=head_id)
    assert versions == {key: head(path, key) for key in TOUCHED}


def test_history_is_read_across_a_write_that_was_taken_back(graph, path):
    """Time travel by version and by commit, the difference of two commits, verify and cleanup."""
    first = graph.commits()[0].commit_id
    lose(graph)
    taken_back = graph.snapshot().version
    second = graph.append(people(Bob=1)).commit_id
    assert names(graph, version=taken_back) == names(graph, commit=first) == ["Ada"]
    assert names(graph, commit=second) == ["Ada", "Bob"]
    assert [c.parent for c in graph.commits()[:1]] == [first]
    changed = graph.snapshot(at=first).diff(graph.snapshot(at=second))
    assert [(change.op, change.id) for change in changed.changes] == [("insert", "Bob")]
    assert graph.maintenance.verify().problems == ()
    graph.maintenance.cleanup(1, timedelta(0), min_age=timedelta(0))
    assert names(graph) == ["Ada", "Bob"]
    assert graph.maintenance.verify().problems == ()


def test_the_next_write_finds_everything_in_order(graph, other):
    lose(graph)
    graph.append(people(Grace=1) | companies("Grace"))
    assert names(other) == ["Ada", "Grace"]
    assert other.refresh() == ()


def test_a_reader_never_sees_the_write(graph, other):
    seen = {}
    with hooked(lambda point: seen.update({point: names(other)})):
        lose(graph)
    assert {Failpoint.WRITE_AFTER_TABLES, Failpoint.UNDO_AFTER_PUBLISH} <= set(seen)
    assert all(actual == ["Ada"] for actual in (*seen.values(), names(other)))


def test_the_first_write_on_a_branch_is_taken_back_there(graph, path):
    graph.branches.create("feat")
    main = graph.snapshot().version
    lose(graph, "feat")
    assert names(graph, "feat") == ["Ada"]
    assert graph.snapshot().version == main
    assert graph.commits("feat") == graph.commits()
    graph.append(people(Grace=1), branch="feat")
    assert names(graph, "feat") == ["Ada", "Grace"]
    assert head(path, PERSON, "feat") == pinned(graph, PERSON, "feat")


def test_a_table_that_somebody_moved_under_the_writer_is_put_back_as_well(graph, path):
    request = WriteRequest(WriterKind.MUTATION, None, TOUCHED, append_both)
    with (
        at(Failpoint.WRITE_BETWEEN_TABLES, lambda: move(path, PERSON, "Intruder")),
        pytest.raises(VersionMismatch) as lost,
    ):
        commit_write(graph._handle.store, request)
    assert lost.value.details["table_key"] == PERSON
    assert names(graph) == ["Ada"]
    assert graph.snapshot().count("Company") == 1
    for key in TOUCHED:
        assert head(path, key) == pinned(graph, key)
    assert left(path) == []
    graph.append(people(Grace=1))
    assert names(graph) == ["Ada", "Grace"]


def test_a_commit_that_comes_late_does_not_get_past_the_restored_version(graph, path):
    """A paused writer may wake up after somebody took its work back."""
    store = graph._handle.store
    pin = store.manifest(None).current().pins[PERSON]
    table = store.table(pin)
    late = store.tables.stage_append(table, table.read().slice(0, 1))
    store.inline.restore(pin.ref, pin.version, pin.version)
    with pytest.raises(Conflict):
        store.tables.commit_staged(late)
    assert table_of(path, PERSON).count_rows() == 1


def test_restoring_appends_one_version_with_the_old_content_every_time(graph, path):
    pin = graph._handle.store.manifest(None).current().pins[PERSON]
    move(path, PERSON, "Grace")
    for times in range(1, 4):
        restored = graph._handle.store.inline.restore(
            TableRef(LOCATIONS[PERSON]), pin.version + times, pin.version
        )
        assert (restored.version, restored.row_count) == (pin.version + times + 1, 1)
        assert table_of(path, PERSON).to_table()["id"].to_pylist() == ["Ada"]
        assert head(path, PERSON) == restored.version


# -- when even that fails ---------------------------------------------------------------------


def unavailable(*args, **kwargs):
    raise StorageUnavailable("the disk is away")


@pytest.fixture
def pending(graph, path, monkeypatch, caplog):
    """A write that could neither be published nor taken back; gives its commit id."""
    with monkeypatch.context() as broken:
        broken.setattr(InlineTables, "restore", unavailable)
        with pytest.raises(OutcomePending) as raised:
            commit_write(graph._handle.store, LOSING)
    commit_id = raised.value.details["commit_id"]
    assert left(path) == [commit_id]
    assert commit_id in caplog.text
    return commit_id


@pytest.mark.parametrize("where", ["a write", "refresh", "open"])
def test_the_next_one_takes_it_back_instead(graph, path, pending, where):
    assert names(graph) == ["Ada"]
    match where:
        case "a write":
            graph.append(people(Bob=1))
        case "refresh":
            graph.refresh()
        case "open":
            Graph.open(path).close()
    assert names(graph) == (["Ada", "Bob"] if where == "a write" else ["Ada"])
    assert [(kind, operation) for kind, operation, _ in audited(graph)] == [("RolledBack", pending)]
    assert left(path) == []
    assert head(path, PERSON) == pinned(graph, PERSON)


@pytest.mark.parametrize("where", ["a write", "refresh", "open"])
def test_whoever_finishes_an_undo_makes_no_commit_of_it(graph, other, path, pending, where):
    """The writer lived: nobody saw its work, and nobody's condition on the head breaks."""
    commits, version = graph.commits(), graph.snapshot().version
    match where:
        case "a write":
            graph.mutate(OLDER, if_commit=commits[0].commit_id)
        case "refresh":
            graph.refresh()
        case "open":
            Graph.open(path).close()
    written = graph.commits()[: 1 if where == "a write" else 0]
    assert graph.commits() == [*written, *commits]
    assert all(commit.parent == commits[0].commit_id for commit in written)
    assert graph.snapshot().version == version + 1 + len(written)
    other.mutate(OLDER, if_commit=graph.commits()[0].commit_id)
    assert graph.maintenance.verify().problems == ()


def test_a_write_of_which_all_landed_is_taken_back_when_its_writer_gave_up(graph, path, pending):
    """Without the mark it would look completed."""
    (sidecar,) = graph._handle.store.sidecars.load_all()
    assert sidecar.undoing
    for entry in sidecar.tables:
        assert head(path, entry.table_key) == entry.expected_version + len(entry.transactions)
    graph.refresh()
    assert names(graph) == ["Ada"]


def test_another_program_takes_back_what_was_given_up(graph, pending):
    """It ignores the mark, and finds another version than the planned one."""
    (sidecar,) = graph._handle.store.sidecars.load_all()
    heads = {entry.table_key: entry.expected_version + 1 for entry in sidecar.tables}
    classes = [
        classify(heads[entry.table_key], entry.expected_version, entry, mode_of(sidecar))
        for entry in sidecar.tables
    ]
    pins = [(entry.expected_version, entry.expected_version) for entry in sidecar.tables]
    assert decide(classes, pins) is RecoveryDecision.ROLL_BACK


def test_an_undo_that_cannot_be_recorded_is_done_all_the_same(graph, path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(SidecarStore, "exists", unavailable)
        commits = graph.commits()
        lose(graph)
    assert graph.commits() == commits
    assert left(path) == []


def test_an_undo_on_a_branch_that_went_away_is_settled_without_a_commit(graph, path, monkeypatch):
    graph.branches.create("feat")
    graph.append(people(Bob=1) | companies("Bob"), branch="feat")
    with monkeypatch.context() as broken:
        broken.setattr(InlineTables, "restore", unavailable)
        with pytest.raises(OutcomePending):
            commit_write(graph._handle.store, replace(LOSING, branch="feat"))
    commits = graph.commits()
    Branches(graph._handle.store).delete("feat")
    graph.refresh()
    assert graph.commits() == commits
    assert [kind for kind, _, _ in audited(graph)] == ["OrphanedBranchDiscarded"]
    assert left(path) == []


def test_a_sidecar_that_cannot_be_deleted_afterwards_is_settled_by_the_next(
    graph, path, monkeypatch
):
    with monkeypatch.context() as broken:
        broken.setattr(ObjectStore, "delete", unavailable)
        lose(graph)
    (operation,) = left(path)
    commits = graph.commits()
    graph.refresh()
    assert graph.commits() == commits
    assert audited(graph) == [("RolledBack", operation, [])]
    assert left(path) == []


def test_a_sidecar_that_stays_is_settled_without_a_commit_also_after_others_wrote(
    graph, path, monkeypatch
):
    with monkeypatch.context() as broken:
        broken.setattr(ObjectStore, "delete", unavailable)
        lose(graph)
    (operation,) = left(path)
    with monkeypatch.context() as late:
        late.setattr(Recovery, "heal", lambda self, **_: [])
        graph.append(people(Bob=1) | companies("Bob"))
    commits = graph.commits()
    graph.refresh()
    assert graph.commits() == commits
    assert audited(graph) == [("RolledBack", operation, [])]
    assert names(graph) == ["Ada", "Bob"]


def test_a_writer_that_dies_after_it_took_its_write_back_leaves_no_commit(graph, path):
    commits = graph.commits()
    with at(Failpoint.UNDO_AFTER_PUBLISH, raising(Died())), pytest.raises(Died):
        commit_write(graph._handle.store, LOSING)
    assert len(left(path)) == 1
    with Graph.open(path) as again:
        assert again.commits() == commits
        assert [kind for kind, _, _ in audited(again)] == ["RolledBack"]
    assert left(path) == []


@pytest.mark.parametrize(
    "point",
    [Failpoint.UNDO_AFTER_MARK, Failpoint.UNDO_BEFORE_RESTORE, Failpoint.UNDO_AFTER_RESTORE],
)
def test_a_writer_that_dies_before_that_leaves_no_commit_either(graph, path, point):
    commits = graph.commits()
    with at(point, raising(Died())), pytest.raises(Died):
        commit_write(graph._handle.store, LOSING)
    (operation,) = left(path)
    with Graph.open(path) as again:
        assert again.commits() == commits
        assert [(kind, actual) for kind, actual, _ in audited(again)] == [("RolledBack", operation)]
        assert names(again) == ["Ada"]
        again.mutate(OLDER, if_commit=commits[0].commit_id)
        assert again.maintenance.verify().problems == ()
    assert left(path) == []


@pytest.mark.parametrize("arrives", [True, False])
def test_an_answer_that_is_lost_while_it_is_taken_back_is_looked_up(
    graph, path, monkeypatch, arrives
):
    """The pins say whether the store took them, since there is no commit to look for."""
    commits, upsert = graph.commits(), Ledger.upsert

    def cut_off(self, rows, key, replaced=None):
        if arrives:
            upsert(self, rows, key, replaced)
        raise StorageUnknown("no answer")

    with (
        monkeypatch.context() as broken,
        at(Failpoint.UNDO_AFTER_RESTORE, lambda: broken.setattr(Ledger, "upsert", cut_off)),
        pytest.raises(VersionMismatch if arrives else OutcomePending),
    ):
        commit_write(graph._handle.store, LOSING)
    assert len(left(path)) == (0 if arrives else 1)
    graph.refresh()
    assert names(graph) == ["Ada"]
    assert graph.commits() == commits
    for key in TOUCHED:
        assert head(path, key) == pinned(graph, key)


def test_a_writer_without_its_leases_restores_nothing(graph, path):
    """Lance lets a late restore win over whatever the new owner of the table wrote."""
    before = {}

    def lose_the_lease(self):
        before.update({key: head(path, key) for key in TOUCHED})
        raise Conflict("the lease went to somebody else")

    with (
        pytest.MonkeyPatch.context() as patch,
        at(
            Failpoint.UNDO_BEFORE_RESTORE,
            lambda: patch.setattr(_LocalLeaseGuard, "check", lose_the_lease),
        ),
        pytest.raises(OutcomePending),
    ):
        commit_write(graph._handle.store, LOSING)
    assert before == {key: head(path, key) for key in TOUCHED}
    assert len(left(path)) == 1
    graph.refresh()
    assert names(graph) == ["Ada"]
    assert left(path) == []
