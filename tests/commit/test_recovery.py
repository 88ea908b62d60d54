"""What dead writers leave is finished when all of it landed, and taken back otherwise."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from omnigraph import Graph
from omnigraph.commit.branches import Branches
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.write_request import PreparedWrite, WriteRequest
from omnigraph.errors import (
    CommitNotFound,
    FormatRefused,
    RecoveryRequired,
    StorageCorrupt,
)
from omnigraph.write.append import Append
from tests.commit.deaths import (
    HEAL_POINTS,
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
from tests.commit.world import (
    at,
    companies,
    knows,
    listing,
    names,
    people,
    raising,
)

PERSON, COMPANY = "node:Person", "node:Company"
RECOVERY = "omnigraph:recovery"


@pytest.fixture
def graph(graph):
    """Ada, and a company."""
    graph.append(people(Ada=36) | companies("Acme"))
    return graph


# -- nothing to do ----------------------------------------------------------------------------


def test_a_clean_open_writes_nothing(graph, path):
    (path / "__recovery").rmdir()
    before = listing(path)
    assert reopen(path) == ()
    assert listing(path) == before


def test_a_read_only_open_leaves_a_dead_writer_alone(graph, path):
    moved_once(path, graph, "Grace")
    before = listing(path)
    with Graph.open(path, "r") as reader:
        assert names(reader) == ["Ada"]
        assert reader.refresh() == ()
    assert listing(path) == before


# -- forward ----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", HEAL_POINTS)
@pytest.mark.parametrize("actor", ["ana", None])
def test_a_write_whose_tables_all_landed_is_published(graph, path, where, actor):
    graph.branches.create("aside")
    before = pinned(graph, PERSON)
    move(path, PERSON, "Grace")
    operation = leave_sidecar(path, pin(path, PERSON, before), actor=actor)
    HEAL_POINTS[where](graph, path)
    assert names(graph) == ["Ada", "Grace"]
    assert left(path) == []
    assert audited(graph) == [("RolledForward", operation, [(PERSON, before, before + 1)])]
    (row,) = graph._handle.store.audit.rows()
    assert (row.recovery_for_actor, row.sidecar_writer_kind) == (actor, "Mutation")
    commit = graph.commit(row.graph_commit_id)
    assert (commit.actor, commit.completes) == (RECOVERY, (operation,))
    graph.append(people(Bob=1))
    assert head(path, PERSON) == pinned(graph, PERSON)


def test_the_id_of_an_interrupted_commit_leads_to_the_one_that_finished_it(graph, path):
    die(graph, Failpoint.WRITE_AFTER_TABLES, people(Grace=1), actor="ana")
    (operation,) = left(path)
    with pytest.raises(CommitNotFound):
        graph.commit(operation)
    graph.refresh()
    assert graph.commit(operation).completes == (operation,)
    assert names(graph, commit=operation) == ["Ada", "Grace"]


@pytest.mark.parametrize("kind", ["EnsureIndices", "Optimize"])
def test_derived_work_is_published_however_many_versions_it_made(graph, path, kind):
    before = pinned(graph, PERSON)
    move(path, PERSON, "Grace", "Bob", "Carl")
    leave_sidecar(path, pin(path, PERSON, before), kind=kind)
    graph.refresh()
    assert names(graph) == ["Ada", "Bob", "Carl", "Grace"]
    assert pinned(graph, PERSON) == before + 3


def test_a_write_on_a_branch_is_finished_there(graph, path):
    graph.branches.create("feat")
    graph.append(people(Bob=1), branch="feat")
    main = graph.snapshot().version
    before = pinned(graph, PERSON, "feat")
    move(path, PERSON, "Grace", branch="feat")
    leave_sidecar(path, pin(path, PERSON, before, branch="feat"), branch="feat")
    graph.refresh()
    assert names(graph, "feat") == ["Ada", "Bob", "Grace"]
    assert graph.snapshot().version == main
    assert head(path, PERSON, "feat") == pinned(graph, PERSON, "feat")


# -- back -------------------------------------------------------------------------------------


def test_an_open_takes_back_what_does_not_fit_the_plan(graph, path):
    before = pinned(graph, PERSON)
    operation = moved_once(path, graph, "Grace", "Bob")
    reopen(path)
    assert names(graph) == ["Ada"]
    assert left(path) == []
    assert audited(graph) == [("RolledBack", operation, [(PERSON, before + 2, before)])]
    assert pinned(graph, PERSON) == head(path, PERSON) == before + 3
    graph.append(people(Grace=1))
    assert names(graph) == ["Ada", "Grace"]


def test_a_write_of_which_one_table_is_missing_is_taken_back_from_the_others(graph, path):
    die(graph, Failpoint.WRITE_BETWEEN_TABLES, people(Grace=1) | companies("Brim"))
    (operation,) = left(path)
    moved = head(path, COMPANY)
    assert moved == pinned(graph, COMPANY) + 1
    graph.refresh()
    assert audited(graph) == [("RolledBack", operation, [(COMPANY, moved, moved - 1)])]
    assert graph.snapshot().count("Company") == 1
    assert head(path, COMPANY) == pinned(graph, COMPANY)


def test_a_branch_goes_back_and_main_stays(graph, path):
    graph.branches.create("feat")
    graph.append(people(Bob=1), branch="feat")
    main = graph.snapshot().version
    before = pinned(graph, PERSON, "feat")
    move(path, PERSON, "Grace", "Carl", branch="feat")
    leave_sidecar(path, pin(path, PERSON, before, branch="feat"), branch="feat")
    reopen(path)
    assert names(graph, "feat") == ["Ada", "Bob"]
    assert graph.snapshot().version == main


@pytest.mark.parametrize("where", ["refresh", "a write", "a branch delete"])
def test_a_living_process_does_not_take_back_what_the_reference_wrote(graph, path, where):
    graph.branches.create("aside")
    operation = moved_once(path, graph, "Grace", "Bob")
    at_that_time = head(path, PERSON)
    HEAL_POINTS[where](graph, path)
    assert left(path) == [operation]
    assert head(path, PERSON) == at_that_time
    assert audited(graph) == []
    with pytest.raises(RecoveryRequired, match="interrupted") as refused:
        graph.append(people(Carl=1))
    assert "reopen" in refused.value.hint
    graph.append(companies("Carls"))


def test_a_living_process_takes_back_what_a_dead_writer_of_ours_left(graph, path):
    die(graph, Failpoint.WRITE_BETWEEN_TABLES, people(Grace=1) | companies("Brim"))
    graph.append(people(Bob=1))
    assert names(graph) == ["Ada", "Bob"]
    assert left(path) == []


# -- conditions of the writer -----------------------------------------------------------------


@contextmanager
def overlooked(path):
    """Nobody notices the dead writer meanwhile, as if it had died only afterwards."""
    (file,) = (path / "__recovery").glob("*.json")
    kept = file.read_text()
    file.unlink()
    yield
    file.write_text(kept)


def write(graph, rows, **conditions):
    batch = Append(graph._handle.store, graph.catalog, rows)
    request = WriteRequest(WriterKind.LOAD, None, batch.touches, batch.prepare, **conditions)
    return commit_write(graph._handle.store, request)


def remove_everybody(view):
    table = view.table(PERSON)
    return PreparedWrite({PERSON: (view.stage.stage_overwrite(table, table.schema.empty_table()),)})


def test_a_write_is_not_finished_when_what_it_relied_on_has_changed(graph, path):
    die(graph, Failpoint.WRITE_AFTER_TABLES, knows(("Ada", "Ada")))
    with overlooked(path):
        request = WriteRequest(WriterKind.MUTATION, None, frozenset({PERSON}), remove_everybody)
        commit_write(graph._handle.store, request)
    graph.refresh()
    assert graph.snapshot().count("Knows") == 0
    assert [kind for kind, _, _ in audited(graph)] == ["RolledBack"]
    assert head(path, "edge:Knows") == pinned(graph, "edge:Knows")


@pytest.mark.parametrize("moved_on", [True, False])
def test_a_write_on_top_of_one_commit_is_only_finished_there(graph, path, moved_on):
    newest = graph.commits()[0].commit_id
    with at(Failpoint.WRITE_AFTER_TABLES, raising(Died())), pytest.raises(Died):
        write(graph, people(Grace=1), if_commit=newest)
    if moved_on:
        with overlooked(path):
            graph.append(companies("Brim"))
    graph.refresh()
    assert names(graph) == (["Ada"] if moved_on else ["Ada", "Grace"])
    assert head(path, PERSON) == pinned(graph, PERSON)


def test_a_write_that_was_repeated_under_its_key_is_not_finished_too(graph, path):
    with at(Failpoint.WRITE_AFTER_TABLES, raising(Died())), pytest.raises(Died):
        write(graph, people(Grace=1), idempotency_key="k")
    with overlooked(path):
        write(graph, companies("Brim"), idempotency_key="k")
    graph.refresh()
    assert names(graph) == ["Ada"]
    assert graph.snapshot().count("Company") == 2
    assert head(path, PERSON) == pinned(graph, PERSON)


def test_a_write_that_was_finished_for_its_writer_is_found_under_its_key(graph, path):
    with at(Failpoint.WRITE_AFTER_TABLES, raising(Died())), pytest.raises(Died):
        write(graph, people(Grace=1), idempotency_key="k")
    (operation,) = left(path)
    assert write(graph, people(Grace=1), idempotency_key="k").commit_id == operation
    assert names(graph) == ["Ada", "Grace"]


# -- already done -----------------------------------------------------------------------------


def test_a_sidecar_that_outlived_its_publish_is_recorded_and_removed(graph, path):
    before = pinned(graph, PERSON)
    graph.append(people(Grace=1))
    operation = leave_sidecar(path, pin(path, PERSON, before))
    version = graph.snapshot().version
    graph.refresh()
    assert audited(graph) == [("RolledForward", operation, [])]
    assert left(path) == []
    assert graph.snapshot().version == version


def test_a_writer_of_ours_that_died_after_its_publish_is_not_published_again(graph, path):
    die(graph, Failpoint.WRITE_AFTER_PUBLISH, people(Grace=1))
    (operation,) = left(path)
    before = graph.commits()
    graph.refresh()
    assert graph.commits() == before
    (row,) = graph._handle.store.audit.rows()
    assert row.graph_commit_id == operation == before[0].commit_id


def test_tables_older_than_the_graph_says_stop_an_open_and_nothing_is_touched(graph, path):
    graph.append(people(Grace=1))
    operation = leave_sidecar(path, pin(path, PERSON, pinned(graph, PERSON)))
    newest = min((path / "nodes/40d76f1f51639ec0/_versions").glob("*.manifest"))
    newest.unlink()
    with pytest.raises(RecoveryRequired, match=operation):
        reopen(path)
    assert graph.refresh() == ()
    assert left(path) == [operation]


# -- sidecars that cannot be read -------------------------------------------------------------

UNREADABLE = {
    "future": ('{"schema_version": 3}', FormatRefused),
    "no JSON": ('{"schema_version": 2', StorageCorrupt),
    "no sidecar": ('{"schema_version": 2}', StorageCorrupt),
    "empty": ("", StorageCorrupt),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_sidecar_that_cannot_be_read_keeps_writers_out_and_readers_in(graph, path, case):
    text, error = UNREADABLE[case]
    file = path / "__recovery" / "01JZX3V5N8Q2W4E6R8T0Y2C4D6.json"
    file.write_text(text)
    for attempt in (
        lambda: reopen(path),
        lambda: graph.append(companies("Brim")),
        lambda: graph.refresh(),
    ):
        with pytest.raises(error, match=file.name):
            attempt()
    assert file.read_text() == text
    with Graph.open(path, "r") as reader:
        assert names(reader) == ["Ada"]
    file.unlink()
    graph.append(companies("Brim"))


def test_files_that_are_no_sidecars_are_ignored(graph, path):
    (path / "__recovery" / "01JZX3V5N8Q2W4E6R8T0Y2C4D6.staging").write_text("{")
    assert reopen(path) == ()
    graph.append(companies("Brim"))


# -- several sidecars -------------------------------------------------------------------------


def test_sidecars_are_handled_in_the_order_of_their_names(graph, path):
    operations = ["01JZX3V5N8Q2W4E6R8T0Y2C4D6", "01JZX3V5N8Q2W4E6R8T0Y2C4D7"]
    for operation, key in zip(reversed(operations), (PERSON, COMPANY), strict=True):
        move(path, key, "Grace")
        leave_sidecar(path, pin(path, key, pinned(graph, key)), operation_id=operation)
    assert [actual.operation_id for actual in reopen(path)] == operations
    assert [operation for _, operation, _ in audited(graph)] == operations


def test_taking_one_back_does_not_make_another_over_the_same_table_look_done(graph, path):
    person, company = pinned(graph, PERSON), pinned(graph, COMPANY)
    move(path, PERSON, "Grace")
    back = leave_sidecar(
        path,
        pin(path, PERSON, person),
        pin(path, COMPANY, company),
        operation_id="01JZX3V5N8Q2W4E6R8T0Y2C4D6",
    )
    forward = leave_sidecar(
        path, pin(path, PERSON, person), operation_id="01JZX3V5N8Q2W4E6R8T0Y2C4D7"
    )
    reopen(path)
    assert names(graph) == ["Ada", "Grace"]
    assert sorted(audited(graph)) == [
        ("RolledBack", back, []),
        ("RolledForward", forward, [(PERSON, person, person + 1)]),
    ]


def test_two_that_are_taken_back_over_one_table_restore_it_once(graph, path):
    before = pinned(graph, PERSON)
    move(path, PERSON, "Grace", "Bob")
    for _ in range(2):
        leave_sidecar(path, pin(path, PERSON, before))
    reopen(path)
    assert pinned(graph, PERSON) == head(path, PERSON) == before + 3
    assert [kind for kind, _, _ in audited(graph)] == ["RolledBack"] * 2
    assert names(graph) == ["Ada"]


# -- branches that are gone -------------------------------------------------------------------


@pytest.fixture
def lost(graph, path):
    """A write died on a branch, and then the branch was deleted; gives its operation id."""
    graph.branches.create("feat")
    die(graph, Failpoint.WRITE_AFTER_TABLES, people(Grace=1), branch="feat", actor="ana")
    (operation,) = left(path)
    Branches(graph._handle.store).delete("feat")
    return operation


def test_the_sidecar_of_a_deleted_branch_is_dropped_once(graph, path, lost):
    commits = len(graph.commits())
    graph.refresh()
    reopen(path)
    assert audited(graph) == [("OrphanedBranchDiscarded", lost, [])]
    assert [commit.actor for commit in graph.commits()[: len(graph.commits()) - commits]] == [
        RECOVERY
    ]
    assert left(path) == []
    assert names(graph) == ["Ada"]


def test_a_branch_that_was_made_again_does_not_inherit_a_dead_write(graph, path, lost):
    Branches(graph._handle.store).create("feat", None)
    graph.refresh()
    assert left(path) == []
    assert names(graph, "feat") == ["Ada"]
    graph.append(people(Bob=1), branch="feat")
    assert names(graph, "feat") == ["Ada", "Bob"]


# -- merges -----------------------------------------------------------------------------------


@pytest.fixture
def source(graph):
    """A branch to merge from; gives its newest commit."""
    graph.branches.create("source")
    return graph.append(people(Bob=1), branch="source").commit_id


MERGES = {
    "confirmed": ({"confirmed_version": 2}, 2, ["Ada", "Carl", "Grace"]),
    "not confirmed": ({}, 2, ["Ada"]),
    "confirmed otherwise": ({"confirmed_version": 1}, 2, ["Ada"]),
    "old format": ({}, 1, ["Ada", "Carl", "Grace"]),
}


@pytest.mark.parametrize("case", MERGES)
def test_a_merge_is_finished_when_it_confirmed_what_it_reached(graph, path, source, case):
    entry, version, expected = MERGES[case]
    entry = {key: pinned(graph, PERSON) + steps for key, steps in entry.items()}
    before = pinned(graph, PERSON)
    move(path, PERSON, "Grace", "Carl")
    leave_sidecar(
        path,
        pin(path, PERSON, before, **entry),
        kind="BranchMerge",
        schema_version=version,
        merge_source_commit_id=source,
    )
    reopen(path)
    assert names(graph) == expected
    newest = graph.commits()[0]
    finished = len(expected) > 1
    assert newest.merged_parent == (source if finished else None)
    assert [kind for kind, _, _ in audited(graph)] == [
        "RolledForward" if finished else "RolledBack"
    ]


def test_a_merge_into_a_branch_is_finished_there(graph, path, source):
    graph.branches.create("target")
    graph.append(people(Carl=1), branch="target")
    before = pinned(graph, PERSON, "target")
    move(path, PERSON, "Grace", branch="target")
    leave_sidecar(
        path,
        pin(path, PERSON, before, branch="target", confirmed_version=before + 1),
        kind="BranchMerge",
        branch="target",
        merge_source_commit_id=source,
    )
    graph.refresh()
    assert names(graph, "target") == ["Ada", "Carl", "Grace"]
    assert graph.commits("target")[0].merged_parent == source
    assert names(graph) == ["Ada"]
