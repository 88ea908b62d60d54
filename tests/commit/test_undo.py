"""A writer that lives and cannot publish takes its own work back before it says so."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.history import History
from omnigraph.commit.protocol import Prepared, WriteRequest, commit_write
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import Conflict, OutcomePending, StorageUnavailable, VersionMismatch
from omnigraph.storage.inline import InlineTables
from omnigraph.storage.leases import _LocalHeld
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.table_types import TableRef
from tests.commit.deaths import LOCATIONS, audited, head, left, move, pinned, table_of
from tests.commit.world import at, companies, names, people

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
    return Prepared(staged, consulted or {})


def relying_on_what_is_not_so(view):
    return append_both(view, {"edge:Knows": 99})


def lose(graph, branch=None):
    """A write whose publish fails because an expectation does not hold; gives the conflict."""
    request = WriteRequest(
        WriterKind.MUTATION, branch, TOUCHED, relying_on_what_is_not_so, actor="ana"
    )
    with pytest.raises(VersionMismatch) as lost:
        commit_write(graph._store, request)
    return lost.value


def recovery_of(graph, branch="main"):
    """The newest commit and what it says that it took back."""
    newest = graph.commits(branch)[0]
    row = History(graph._store)._find(newest.commit_id)[1]
    return newest.actor, row.extra


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


def test_the_commit_that_takes_it_back_names_it(graph, path):
    seen = []
    with at(Failpoint.WRITE_AFTER_TABLES, lambda: seen.extend(left(path))):
        lose(graph)
    assert recovery_of(graph) == ("omnigraph:recovery", {"rolled_back": seen[0]})


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
    assert all(found == ["Ada"] for found in (*seen.values(), names(other)))


def test_the_first_write_on_a_branch_is_taken_back_there(graph, path):
    graph.branches.create("feat")
    main = graph.snapshot().version
    lose(graph, "feat")
    assert names(graph, "feat") == ["Ada"]
    assert graph.snapshot().version == main
    assert recovery_of(graph, "feat")[0] == "omnigraph:recovery"
    graph.append(people(Grace=1), branch="feat")
    assert names(graph, "feat") == ["Ada", "Grace"]
    assert head(path, PERSON, "feat") == pinned(graph, PERSON, "feat")


def test_a_table_that_somebody_moved_under_the_writer_is_put_back_as_well(graph, path):
    request = WriteRequest(WriterKind.MUTATION, None, TOUCHED, append_both)
    with (
        at(Failpoint.WRITE_BETWEEN_TABLES, lambda: move(path, PERSON, "Intruder")),
        pytest.raises(VersionMismatch) as lost,
    ):
        commit_write(graph._store, request)
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
    store = graph._store
    pin = store.manifest(None).current().pins[PERSON]
    table = store.table(pin)
    late = store.tables.stage_append(table, table.read().slice(0, 1))
    store.inline.restore(pin.ref, pin.version, pin.version)
    with pytest.raises(Conflict):
        store.tables.commit_staged(late)
    assert table_of(path, PERSON).count_rows() == 1


def test_restoring_appends_one_version_with_the_old_content_every_time(graph, path):
    pin = graph._store.manifest(None).current().pins[PERSON]
    move(path, PERSON, "Grace")
    for times in range(1, 4):
        restored = graph._store.inline.restore(
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
        request = WriteRequest(WriterKind.MUTATION, None, TOUCHED, relying_on_what_is_not_so)
        with pytest.raises(OutcomePending) as raised:
            commit_write(graph._store, request)
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


def test_a_writer_without_its_leases_restores_nothing(graph, path):
    """Lance lets a late restore win over whatever the new owner of the table wrote."""
    request = WriteRequest(WriterKind.MUTATION, None, TOUCHED, relying_on_what_is_not_so)
    before = {}

    def lose_the_lease(self):
        before.update({key: head(path, key) for key in TOUCHED})
        raise Conflict("the lease went to somebody else")

    with (
        pytest.MonkeyPatch.context() as patch,
        at(
            Failpoint.UNDO_BEFORE_RESTORE,
            lambda: patch.setattr(_LocalHeld, "check", lose_the_lease),
        ),
        pytest.raises(OutcomePending),
    ):
        commit_write(graph._store, request)
    assert before == {key: head(path, key) for key in TOUCHED}
    assert len(left(path)) == 1
    graph.refresh()
    assert names(graph) == ["Ada"]
    assert left(path) == []
