"""Cleanup: old versions go, and everything that somebody can still ask for stays as it was."""

from __future__ import annotations

import gc
import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.manifest import LISTS_AFTER
from omnigraph.commit.names import table_lease
from omnigraph.commit.staging import staging_marker
from omnigraph.commit.store import Timeouts
from omnigraph.errors import (
    BranchNotFound,
    HistoryGone,
    InputError,
    ReadOnly,
    RecoveryRequired,
    StorageCorrupt,
)
from omnigraph.maintain.cleanup.retention import cleanup_policy
from omnigraph.storage.tables.files import orphaned_files
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.versions import versions_of
from tests.commit.deaths import leave_sidecar

pytestmark = pytest.mark.rotates(3)

SCHEMA = """
node Person { name: String @key  age: I32? @index  photo: Blob? }
node Company { name: String @key }
edge Knows: Person -> Person
"""
PERSON, COMPANY, KNOWS = "node:Person", "node:Company", "edge:Knows"
PHOTO = "base64:" + "aGVs" * 50_000


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        yield graph


def person(name, **data):
    return {"type": "Person", "data": {"name": name, **data}}


def write(graph, *names, branch="main"):
    return [graph.load([person(name)], branch=branch).commit_id for name in names]


def pin(graph, key=PERSON, branch=None):
    return graph._handle.store.manifest(branch).current().pins[key]


def versions(graph, key=PERSON, branch=None):
    """The versions of the copy of a table that a branch shows."""
    ref = pin(graph, key, branch).ref
    return [stamp.version for stamp in versions_of(graph._handle.store.datasets, ref)]


def manifest_versions(graph, branch=None):
    ref = TableRef("__manifest", branch)
    return [stamp.version for stamp in versions_of(graph._handle.store.datasets, ref)]


def names(source):
    actual = source if not isinstance(source, Graph) else source.snapshot()
    return sorted(actual.read("Person", ["name"])["name"].to_pylist())


def size_of(graph):
    files = [path for path in Path(graph.uri).rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files if path.parent.name != "__history")


def clean(graph, keep=1, **options):
    return graph.maintenance.cleanup(keep, **{"min_age": 0, **options})


# -- what was asked for ---------------------------------------------------------------------------


def test_without_a_limit_nothing_is_done(graph):
    with pytest.raises(InputError) as raised:
        graph.maintenance.cleanup()
    assert raised.value.message == "cleanup requires at least one of keep_versions or older_than"


@pytest.mark.parametrize(
    "options",
    [
        {"keep_versions": -1},
        {"keep_versions": "3"},
        {"keep_versions": True},
        {"older_than": -1},
        {"older_than": "1d"},
        {"older_than": float("nan")},
        {"keep_versions": 1, "min_age": timedelta(days=-1)},
        {"keep_versions": 1, "feed_retention": "long"},
    ],
)
def test_what_cannot_be_meant_is_refused(options, graph):
    with pytest.raises(InputError):
        graph.maintenance.cleanup(**options)


def test_a_small_age_is_raised_to_what_readers_elsewhere_need():
    assert cleanup_policy(1, None, 0, None).min_age == timedelta(0)
    assert cleanup_policy(1, None, 1, None).min_age == timedelta(seconds=2 * LISTS_AFTER)
    assert cleanup_policy(1, None, timedelta(days=2), None).file_age == timedelta(days=2)
    assert cleanup_policy(1, None, None, None).min_age == timedelta(hours=1)


def test_a_graph_that_is_open_for_reading_is_not_cleaned(graph):
    with Graph.open(graph.uri, "r") as reader, pytest.raises(ReadOnly):
        reader.maintenance.cleanup(1)


# -- how many versions stay -----------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "left"), [(0, 1), (1, 1), (3, 3), (6, 6), (7, 7), (50, 7)])
def test_the_newest_versions_stay_and_no_others(keep, left, graph):
    write(graph, *"abcdef")
    before = versions(graph)
    assert len(before) == 7
    report = clean(graph, keep)
    assert versions(graph) == before[-left:]
    assert report.table(PERSON).old_versions_removed == 7 - left
    assert report.table(COMPANY).old_versions_removed == 0
    assert [table.error for table in report.tables] == [None, None, None]
    assert names(graph) == list("abcdef")
    write(graph, "g")
    assert names(graph) == list("abcdefg")


def test_versions_are_counted_that_are_there_not_numbers(graph):
    write(graph, *"abcd")
    clean(graph, 2)
    write(graph, *"ef")
    there = versions(graph)
    assert len(there) == 4
    clean(graph, 3)
    assert versions(graph) == there[-3:]


def test_a_version_goes_only_behind_both_limits(graph):
    write(graph, *"abcd")
    assert clean(graph, 1, older_than=3600).table(PERSON).old_versions_removed == 0
    assert clean(graph, 50, older_than=0).table(PERSON).old_versions_removed == 0
    assert clean(graph, None, older_than=3600).table(PERSON).old_versions_removed == 0
    assert clean(graph, 3, older_than=timedelta(0)).table(PERSON).old_versions_removed == 2
    assert clean(graph, None, older_than=0).table(PERSON).old_versions_removed == 2


def test_nothing_young_goes_unless_it_is_asked_for(graph):
    commits = write(graph, *"abc")
    report = graph.maintenance.cleanup(1)
    assert report.bytes_removed == 0
    assert len(versions(graph)) == 4
    assert names(graph.snapshot(commit=commits[0])) == ["a"]


def test_a_version_that_was_shown_until_lately_is_young_however_old_it_is(graph, monkeypatch):
    """A reader elsewhere may have it, even if it was made a year ago."""
    commits = write(graph, *"ab")
    year = timedelta(days=365)
    ref = pin(graph).ref
    stamps = versions_of(graph._handle.store.datasets, ref)
    monkeypatch.setattr(
        "omnigraph.maintain.cleanup.plan.versions_of",
        lambda datasets, ref: [
            type(s)(s.version, s.made - year) for s in versions_of(datasets, ref)
        ],
    )
    report = graph.maintenance.cleanup(1, min_age=timedelta(hours=1))
    assert report.table(PERSON).old_versions_removed == 0
    assert len(versions(graph)) == len(stamps)
    assert names(graph.snapshot(commit=commits[0])) == ["a"]


def test_bytes_are_those_of_the_disk(graph):
    graph.load([person("a", photo=PHOTO)])
    graph.load([person("a", photo=None)])
    write(graph, *"bcd")
    graph.maintenance.optimize()
    before = size_of(graph)
    report = clean(graph)
    assert report.bytes_removed == before - size_of(graph)
    assert report.table(PERSON).bytes_removed > 100_000
    assert orphaned_files(graph._handle.store.datasets, pin(graph).location) == []
    assert names(graph) == list("abcd")


def test_a_second_run_finds_nothing(graph):
    write(graph, *"abc")
    graph.branches.create("feat")
    write(graph, "x", "y", branch="feat")
    clean(graph)
    clean(graph)
    again = clean(graph)
    assert again.bytes_removed == 0
    assert again.manifest.old_versions_removed == 0


def test_queries_indexes_and_optimize_go_on(graph):
    write(graph, *"abc")
    graph.load([{"edge": "Knows", "from": "a", "to": "b"}])
    graph.indexes.ensure()
    clean(graph)
    rows = graph.query(
        "query q() { match { $p: Person $p knows $q } return { $p.name, $q.name } }"
    ).rows()
    assert rows == [{"p.name": "a", "q.name": "b"}]
    graph.maintenance.optimize()
    clean(graph)
    graph.mutate('query q() { delete Person where name = "a" }')
    assert names(graph) == ["b", "c"]
    with Graph.open(graph.uri) as other:
        assert names(other) == ["b", "c"]


# -- what somebody needs --------------------------------------------------------------------------


def test_a_branch_keeps_what_it_shows_and_all_after_it(graph):
    write(graph, *"ab")
    graph.branches.create("feat")
    shown = pin(graph).version
    write(graph, *"cdef")
    clean(graph)
    assert versions(graph) == list(range(shown, shown + 5))
    assert names(graph.snapshot("feat")) == ["a", "b"]
    write(graph, "x", branch="feat")
    assert names(graph.snapshot("feat")) == ["a", "b", "x"]


def test_the_copies_of_a_branch_are_cleaned_too(graph):
    write(graph, "a")
    graph.branches.create("feat")
    commits = write(graph, *"wxyz", branch="feat")
    before = versions(graph, branch="feat")
    report = clean(graph, 2)
    there = versions(graph, branch="feat")
    # The one that it began with is needed to find what it changed.
    assert there[1:] == [before[-2], before[-1]]
    assert there[0] == before[0]
    assert report.table(PERSON).old_versions_removed == len(before) - 3
    assert names(graph.snapshot(commit=commits[-2])) == list("awxy")
    with pytest.raises(HistoryGone):
        graph.snapshot(commit=commits[0])
    assert names(graph.snapshot("feat")) == list("awxyz")
    assert names(graph) == ["a"]


def test_branches_of_branches_keep_what_they_came_from(graph):
    write(graph, "a")
    graph.branches.create("one")
    write(graph, *"bc", branch="one")
    graph.branches.create("two", from_branch="one")
    write(graph, *"de", branch="one")
    write(graph, "x", branch="two")
    write(graph, *"fg")
    for _ in range(2):
        clean(graph)
        assert names(graph.snapshot("one")) == list("abcde")
        assert names(graph.snapshot("two")) == list("abcx")
        assert names(graph) == list("afg")
    write(graph, "y", branch="two")
    graph.merge("two", into="one")
    graph.merge("one", into="main")
    assert names(graph) == list("abcdefgxy")


def test_two_branches_can_be_merged_afterwards(graph):
    """What they came from stays, although neither shows it."""
    graph.load([person("a", age=1), person("b", age=1)])
    graph.branches.create("feat")
    graph.load([person("a", age=2)], branch="feat")
    write(graph, *"xyz", branch="feat")
    graph.load([person("b", age=3)])
    write(graph, *"uvw")
    clean(graph)
    graph.merge("feat", into="main")
    actual = graph.snapshot().read("Person", ["name", "age"]).to_pylist()
    assert {row["name"]: row["age"] for row in actual if row["age"]} == {"a": 2, "b": 3}


def test_crossed_merges_can_go_on_afterwards(graph):
    graph.load([person("a", age=1)])
    graph.branches.create("one")
    graph.branches.create("two")
    write(graph, "b", branch="one")
    write(graph, "c", branch="two")
    graph.branches.create("three", from_branch="one")
    graph.merge("two", into="one")
    graph.merge("three", into="two")
    write(graph, "d", branch="one")
    write(graph, "e", branch="two")
    graph.load([person("a", age=5)], branch="two")
    clean(graph)
    clean(graph)
    graph.merge("two", into="one")
    assert names(graph.snapshot("one")) == list("abcde")


def test_branches_that_merged_a_deleted_branch_can_be_merged_afterwards(graph):
    """The states that merged it tell which rows it may have changed."""
    graph.load([person("a", age=1), person("b", age=1)])
    for branch in ("one", "two", "third"):
        graph.branches.create(branch)
    write(graph, "x", branch="third")
    for branch in ("one", "two"):
        write(graph, f"of {branch}", branch=branch)
        graph.merge("third", into=branch)
    graph.branches.delete("third")
    graph.load([person("a", age=2)], branch="one")
    graph.load([person("b", age=3)], branch="two")
    clean(graph)
    assert not graph.merge("two", into="one").conflicts
    actual = graph.snapshot("one").read("Person", ["name", "age"]).to_pylist()
    assert {row["name"]: row["age"] for row in actual if row["age"]} == {"a": 2, "b": 3}


def test_what_a_tag_names_stays(graph):
    commits = write(graph, *"abcdef")
    graph.tags.create("second", commit=commits[1])
    report = clean(graph, 2)
    assert names(graph.snapshot(tag="second")) == ["a", "b"]
    assert names(graph.snapshot(commit=commits[4])) == list("abcde")
    for commit in (commits[0], *commits[2:4]):
        with pytest.raises(HistoryGone) as raised:
            graph.snapshot(commit=commit)
        assert raised.value.hint
    assert len(versions(graph)) == 3
    assert report.manifest.old_versions_removed > 0
    graph.tags.delete("second")
    clean(graph, 2)
    with pytest.raises(HistoryGone):
        graph.snapshot(commit=commits[1])


def test_a_snapshot_that_is_held_stays_readable(graph):
    write(graph, *"ab")
    pinned = graph.snapshot()
    with Graph.open(graph.uri) as other:
        write(other, *"cd")
        clean(other)
        clean(other)
    assert names(pinned) == ["a", "b"]
    assert [
        row["p.name"]
        for row in graph.query(
            "query q() { match { $p: Person } return { $p.name } order { $p.name } }",
            snapshot=pinned,
        ).rows()
    ] == ["a", "b"]
    del pinned
    gc.collect()
    clean(graph)
    assert len(versions(graph)) == 1


def test_a_result_that_is_being_read_keeps_its_rows(graph):
    graph.append({"Person": pa.table({"name": [f"p{n:06}" for n in range(30_000)]})})
    result = graph.query("query q() { match { $p: Person } return { $p.name } }")
    next(result.batches())
    graph.mutate('query q() { delete Person where name = "p000001" }')
    graph.maintenance.optimize()
    clean(graph)
    assert result.row_count == 30_000


def test_the_change_feed_keeps_what_it_was_promised(graph):
    start = graph.changes.poll(start="now").cursor
    write(graph, *"abc")
    clean(graph, feed_retention=timedelta(hours=1))
    page = graph.changes.poll(cursor=start)
    assert [change.id for change in page.changes] == ["a", "b", "c"]
    clean(graph)
    with pytest.raises(HistoryGone) as raised:
        graph.changes.poll(cursor=start)
    assert raised.value.details["oldest_cursor"]
    write(graph, "d")
    page = graph.changes.poll(cursor=raised.value.details["oldest_cursor"])
    assert [change.id for change in page.changes] == ["d"]


def test_a_write_that_stages_keeps_what_it_started_from(graph):
    write(graph, *"ab")
    store = graph._handle.store
    base = store.manifest(None).current()
    with staging_marker(store, None, base):
        write(graph, *"cd")
        clean(graph)
        assert pin(graph).version - 2 in versions(graph)
    clean(graph)
    assert versions(graph) == [pin(graph).version]


def test_a_write_of_this_process_keeps_what_it_started_from(graph):
    write(graph, "a")
    done = []

    def overtake(point):
        if point is Failpoint.WRITE_AFTER_LEASES and not done:
            done.append(point)
            with Graph.open(graph.uri) as other:
                other.load([{"type": "Company", "data": {"name": "c"}}])
                other.load([{"type": "Company", "data": {"name": "d"}}])
                clean(other)

    with hooked(overtake):
        graph.load([{"edge": "Knows", "from": "a", "to": "a"}])
    assert graph.snapshot().read("Knows").num_rows == 1
    assert graph.snapshot().count("Company") == 2


# -- commits and the manifest ---------------------------------------------------------------------


def test_every_commit_whose_tables_are_there_can_be_read(graph):
    commits = write(graph, *"abcdefgh")
    for number, commit in enumerate(commits):
        graph.load([{"type": "Company", "data": {"name": f"c{number}"}}])
        assert commit
    everything = [c.commit_id for c in graph.commits()]
    before = {c: names(graph.snapshot(commit=c)) for c in everything}
    report = clean(graph, 5)
    kept = {}
    for commit in everything:
        try:
            kept[commit] = names(graph.snapshot(commit=commit))
        except HistoryGone:
            continue
    assert kept == {commit: before[commit] for commit in kept}
    # All tables keep five versions: only what the last four writes to Company left is whole.
    assert set(kept) == set(everything[:5])
    assert report.manifest.floor == min(manifest_versions(graph))
    assert [c.commit_id for c in graph.commits()] == everything


def test_what_is_gone_is_said_to_be_gone_by_all_who_look_back(graph):
    first, *_, last = write(graph, *"abcd")
    version = graph.snapshot(commit=first).version
    clean(graph)
    for ask in (
        lambda: graph.snapshot(commit=first),
        lambda: graph.snapshot(version=version),
        lambda: graph.snapshot(at=first).diff(graph.snapshot(at=last)),
        lambda: graph.query("query q() { match { $p: Person } return { $p.name } }", at=first),
        lambda: graph.changes.poll(start=f"after:{first}"),
    ):
        with pytest.raises(HistoryGone) as raised:
            ask()
        assert raised.value.hint


def test_commits_are_found_on_both_sides_of_a_compaction_of_the_manifest(graph):
    for n in range(40):
        write(graph, f"p{n}")
    commits = [c.commit_id for c in graph.commits()]
    clean(graph, 10)
    for commit in commits[:10]:
        assert graph.snapshot(commit=commit).commit_id == commit
    for commit in commits[10:]:
        with pytest.raises(HistoryGone):
            graph.snapshot(commit=commit)


def test_a_handle_that_slept_sees_what_is_newest(graph):
    """The version after the one that it has is gone by the time it looks again."""
    write(graph, "a")
    graph.tags.create("here", commit=graph.commits()[0].commit_id)
    with Graph.open(graph.uri) as other:
        assert names(other) == ["a"]
        write(graph, *"bcd")
        clean(graph)
        assert names(other) == list("abcd")
        write(other, "e")
    assert names(graph) == list("abcde")


def test_a_handle_of_another_process_lists_after_a_while(graph, monkeypatch):
    write(graph, "a")
    with Graph.open(graph.uri) as other:
        assert names(other) == ["a"]
        monkeypatch.setattr(
            "omnigraph.maintain.cleanup.run.versions_were_removed", lambda uri: None
        )
        graph.tags.create("here", commit=graph.commits()[0].commit_id)
        assert names(other) == ["a"]
        write(graph, *"bcd")
        clean(graph)
        other._handle.store.manifest(None)._looked -= 2 * LISTS_AFTER
        assert names(other) == list("abcd")


# -- a dry run ------------------------------------------------------------------------------------


def test_a_dry_run_tells_what_the_next_run_removes(graph):
    graph.load([person("a", photo=PHOTO)])
    graph.load([person("a", photo=None)])
    graph.branches.create("feat")
    write(graph, *"xy", branch="feat")
    write(graph, *"bcd")
    graph.branches.create("gone")
    write(graph, "z", branch="gone")
    ref = pin(graph, branch="gone").ref
    kept = Path(graph.uri) / "kept"
    shutil.copytree(Path(graph.uri) / ref.path, kept)
    graph.branches.delete("gone")
    shutil.move(kept, Path(graph.uri) / ref.path)
    graph.maintenance.optimize()
    old(leave_file(graph), days=9)
    before = size_of(graph)
    reported = clean(graph, dry_run=True)
    assert size_of(graph) == before
    assert reported.dry_run
    report = clean(graph)
    assert {**reported.to_json(), "dry_run": False} == report.to_json()
    assert before - size_of(graph) == report.bytes_removed
    assert report.forks.count == 1
    assert report.files.count == 1
    assert report.table(PERSON).bytes_removed > 0


# -- what dead writers left -----------------------------------------------------------------------


def leave_file(graph, branch=None, key=PERSON):
    """A file of rows beside a table that nobody ever committed."""
    path = (
        Path(graph.uri) / pin(graph, key, branch).ref.path / "data" / f"{os.urandom(8).hex()}.lance"
    )
    path.write_bytes(b"x" * 1000)
    return path


def old(path, days=3):
    moment = time.time() - days * 86_400
    os.utime(path, (moment, moment))
    return path


def test_files_that_no_version_names_go_when_they_are_old(graph):
    write(graph, *"ab")
    young, aged, ancient = leave_file(graph), old(leave_file(graph)), old(leave_file(graph), 9)
    report = graph.maintenance.cleanup(1)
    assert (report.files.count, report.files.bytes) == (2, 2000)
    assert [path.exists() for path in (young, aged, ancient)] == [True, False, False]
    assert clean(graph).files.count == 1
    assert not young.exists()
    assert names(graph) == ["a", "b"]


def test_files_of_a_write_that_runs_stay(graph):
    write(graph, *"ab")
    store = graph._handle.store
    with staging_marker(store, None, store.manifest(None).current()):
        path = leave_file(graph)
        assert clean(graph).files.count == 0
        assert path.exists()
    assert clean(graph).files.count == 1


def test_markers_of_dead_writers_go_after_a_week(graph):
    write(graph, "a")
    store = graph._handle.store
    with staging_marker(store, None, store.manifest(None).current()) as operation:
        path = Path(graph.uri) / "__recovery" / f"{operation}.staging"
        assert clean(graph).markers.count == 0
        old(path, 8)
        rows = old(leave_file(graph), 8)
        report = clean(graph)
        assert report.markers.count == 1
        assert not path.exists()
        assert not rows.exists()


def test_a_damaged_marker_is_not_passed_over_until_it_is_old(graph):
    path = Path(graph.uri) / "__recovery" / "01H.staging"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    with pytest.raises(StorageCorrupt):
        clean(graph)
    old(path, 8)
    assert clean(graph).markers.count == 1


def orphan_fork(graph, branch="gone"):
    """A fork of which the branch is gone."""
    graph.branches.create(branch)
    write(graph, "z", branch=branch)
    store = graph._handle.store
    fork = pin(graph, branch=branch).ref
    store.inline.delete_branch("__manifest", branch)
    store.manifests.forget(branch)
    return fork


def test_forks_of_branches_that_are_gone_are_removed(graph):
    write(graph, "a")
    graph.branches.create("feat")
    write(graph, "x", branch="feat")
    fork = orphan_fork(graph)
    report = clean(graph)
    assert report.forks.count == 1
    assert report.forks.bytes > 0
    assert set(graph._handle.store.inline.branches(fork.location)) == {"feat"}
    assert not (Path(graph.uri) / fork.path).exists()
    assert names(graph.snapshot("feat")) == ["a", "x"]
    assert clean(graph).forks.count == 0


def test_a_fork_that_its_branch_does_not_show_is_removed(graph):
    write(graph, "a")
    graph.branches.create("feat")
    write(graph, "x", branch="feat")
    store = graph._handle.store
    company = pin(graph, COMPANY)
    store.inline.create_branch(company.ref, company.version, "feat")
    assert clean(graph).forks.count == 1
    assert store.inline.branches(company.location) == {}
    assert names(graph.snapshot("feat")) == ["a", "x"]


def test_files_of_a_fork_without_a_reference_are_removed(graph):
    write(graph, "a")
    graph.branches.create("review/x")
    write(graph, "x", branch="review/x")
    top = Path(graph.uri) / pin(graph).location / "tree"
    shutil.copytree(top / "review" / "x", top / "review" / "y")
    shutil.copytree(
        Path(graph.uri) / "__manifest" / "tree" / "review" / "x",
        Path(graph.uri) / "__manifest" / "tree" / "review" / "z",
    )
    report = clean(graph)
    assert report.forks.count == 2
    assert [path.name for path in (top / "review").iterdir()] == ["x"]
    assert names(graph.snapshot("review/x")) == ["a", "x"]


@pytest.mark.parametrize("dry_run", [True, False])
def test_rows_of_a_running_load_stay_although_their_fork_is_not_made_yet(graph, dry_run):
    """A load on Spark writes rows below a branch before it forks the table."""
    write(graph, "a")
    graph.branches.create("feat")
    store = graph._handle.store
    base = store.manifest("feat").current()
    rows = Path(graph.uri) / base.pin(PERSON).location / "tree" / "feat" / "data" / "rows.lance"
    with staging_marker(store, "feat", base):
        rows.parent.mkdir(parents=True)
        rows.write_bytes(b"rows")
        assert clean(graph, dry_run=dry_run).forks.count == 0
        assert rows.exists()
    assert clean(graph).forks.count == 1
    assert not rows.exists()


def test_a_fork_that_is_being_made_is_left_to_its_maker(graph, tmp_path):
    write(graph, "a")
    fork = orphan_fork(graph)
    with Graph.open(graph.uri, durability="os") as other:
        other._handle.store.timeouts = Timeouts(lease=0.05)
        with graph._handle.store.leases.acquire([table_lease(PERSON, "gone")], 1):
            report = clean(other)
            assert report.forks.count == 0
            assert "gone" in report.skipped[0].what
        assert (Path(graph.uri) / fork.path).exists()
        assert clean(other).forks.count == 1


def test_persisted_topologies_of_what_is_gone_are_removed(graph, monkeypatch):
    monkeypatch.setattr("omnigraph.topology.persisted._WORTH_IT", 1)
    write(graph, *"ab")
    graph.load([{"edge": "Knows", "from": "a", "to": "b"}])
    graph.branches.create("feat")
    graph.load([{"edge": "Knows", "from": "b", "to": "a"}], branch="feat")
    walk = "query q() { match { $p: Person $p knows{1,3} $q } return { $q.name } }"
    for branch in ("main", "feat"):
        graph.query(walk, branch=branch).rows()
    folder = Path(graph.uri) / "__topology"
    before = set(folder.iterdir())
    assert clean(graph).topologies.count == 0
    assert set(folder.iterdir()) == before
    graph.branches.delete("feat")
    report = clean(graph)
    gone = before - set(folder.iterdir())
    assert report.topologies.count == len(gone) > 0
    assert len(graph.query(walk).rows()) == 1


# -- dropped tables -------------------------------------------------------------------------------


def test_a_table_that_was_dropped_loses_its_rows_when_no_state_shows_it(graph):
    write(graph, *"ab")
    for n in range(3):
        graph.load([{"type": "Company", "data": {"name": f"c{n}"}}])
    location = pin(graph, COMPANY).location
    last = graph.commits()[0].commit_id
    graph.schema.apply(SCHEMA.replace("node Company { name: String @key }\n", ""))
    graph.tags.create("before", commit=last)
    assert clean(graph).dropped.count == 0
    assert graph.snapshot(tag="before").count("Company") == 3
    graph.tags.delete("before")
    write(graph, *"cd")
    reported = clean(graph, dry_run=True)
    before = size_of(graph)
    report = clean(graph)
    assert report.dropped == reported.dropped
    assert report.dropped.count == 1
    assert size_of(graph) < before
    with pytest.raises(HistoryGone):
        graph.snapshot(commit=last)
    assert clean(graph).dropped.count == 0
    graph.schema.apply(SCHEMA)
    graph.load([{"type": "Company", "data": {"name": "new"}}])
    assert graph.snapshot().count("Company") == 1
    assert pin(graph, COMPANY).location == location


def test_a_type_that_gets_its_name_back_meanwhile_keeps_its_rows(graph):
    graph.load([{"type": "Company", "data": {"name": "old"}}])
    graph.schema.apply(SCHEMA.replace("node Company { name: String @key }\n", ""))
    write(graph, *"ab")

    def again(point):
        if point is Failpoint.CLEANUP_BEFORE_FILES:
            with Graph.open(graph.uri, durability="os") as other:
                other.schema.apply(SCHEMA)
                other.load([{"type": "Company", "data": {"name": "new"}}])

    with hooked(again):
        report = clean(graph)
    assert report.dropped.count == 0
    assert graph.snapshot().count("Company") == 1
    graph.load([{"type": "Company", "data": {"name": "newer"}}])
    assert graph.snapshot().count("Company") == 2
    assert graph.maintenance.verify().problems == ()


def test_a_span_longer_than_all_time_keeps_everything(graph):
    write(graph, *"abc")
    ever = timedelta(days=900_000)
    for options in ({"min_age": ever}, {"feed_retention": ever}, {"older_than": ever}):
        report = clean(graph, **options)
        assert report.manifest.old_versions_removed == 0


# -- when something fails -------------------------------------------------------------------------


def test_one_table_that_fails_keeps_none_of_the_others_from_it(graph, monkeypatch):
    write(graph, *"abc")
    for n in range(3):
        graph.load([{"type": "Company", "data": {"name": f"c{n}"}}])
    store = graph._handle.store
    with store.leases.acquire([table_lease(PERSON, None)], 1), Graph.open(graph.uri) as other:
        other._handle.store.timeouts = Timeouts(lease=0.05)
        report = clean(other)
    assert "locked by another writer" in report.table(PERSON).error
    assert report.table(PERSON).old_versions_removed == 0
    assert report.table(COMPANY).old_versions_removed == 3
    assert report.table(COMPANY).error is None
    assert names(graph) == list("abc")
    again = clean(graph)
    assert again.table(PERSON).error is None
    assert len(versions(graph)) == 1


def test_a_branch_that_cannot_be_read_keeps_everything(graph):
    write(graph, *"abc")
    graph.branches.create("bad")
    write(graph, *"xy", branch="bad")
    fork = orphan_fork(graph)
    folder = Path(graph.uri) / "__manifest" / "tree" / "bad" / "_versions"
    newest = min(folder.glob("*.manifest"))
    text = newest.read_bytes()
    newest.write_bytes(b"no manifest at all, but long enough to be one")
    with Graph.open(graph.uri) as other:
        report = clean(other)
        assert [item.what for item in report.skipped] == [
            "files of '__manifest'",
            "branch 'bad'",
        ]
        assert "'bad'" in report.table(PERSON).error
        assert report.forks.count == 1
        assert not (Path(graph.uri) / fork.path).exists()
        assert len(versions(other)) == 4
    newest.write_bytes(text)
    with Graph.open(graph.uri) as other:
        assert clean(other).table(PERSON).error is None
        assert names(other.snapshot("bad")) == list("abcxy")


def test_an_interrupted_write_is_settled_first(graph):
    write(graph, *"ab")
    leave_sidecar(graph.uri)
    assert clean(graph).table(PERSON).old_versions_removed > 0
    assert list((Path(graph.uri) / "__recovery").glob("*.json")) == []


def test_a_write_that_cannot_be_settled_stops_it(graph):
    write(graph, *"ab")
    actual = pin(graph)
    entry = {
        "table_key": PERSON,
        "table_path": f"{graph.uri}/{actual.location}",
        "expected_version": actual.version + 5,
        "post_commit_pin": actual.version + 6,
    }
    leave_sidecar(graph.uri, entry)
    before = size_of(graph)
    with pytest.raises(RecoveryRequired):
        clean(graph)
    assert size_of(graph) == before


def test_a_branch_that_is_made_while_it_looks_is_looked_at_too(graph):
    commits = write(graph, *"abc")
    done = []

    def tag(point):
        if point is Failpoint.CLEANUP_BEFORE_FILES and not done:
            done.append(point)
            graph.tags.create("late", commit=commits[0])
            graph.branches.create("late")

    with hooked(tag):
        clean(graph)
    write(graph, "d")
    clean(graph)
    assert names(graph.snapshot(tag="late")) == ["a"]
    assert names(graph.snapshot("late")) == list("abc")


def test_a_copy_that_is_made_anew_meanwhile_is_left_alone(graph, monkeypatch):
    # One after the other: the copy of main comes first.
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "1")
    graph = Graph.open(graph.uri, durability="os")
    write(graph, "a")
    graph.branches.create("feat")
    write(graph, *"xyz", branch="feat")
    done = []

    def again(point):
        if point is Failpoint.CLEANUP_BEFORE_TABLE and not done:
            done.append(point)
            with Graph.open(graph.uri) as other:
                other.branches.delete("feat")
                other.branches.create("feat")
                write(other, *"uvw", branch="feat")

    write(graph, *"bc")
    write(graph, *"de")
    with hooked(again):
        report = clean(graph)
    assert "was replaced meanwhile" in report.table(PERSON).error
    assert names(graph.snapshot("feat")) == list("abcdeuvw")
    graph.merge("feat")
    assert names(graph) == list("abcdeuvw")


def test_a_branch_that_is_deleted_meanwhile_is_no_error(graph, monkeypatch):
    write(graph, "a")
    graph.branches.create("feat")
    from omnigraph.maintain.cleanup import plan as cleanup_plan

    states_of = cleanup_plan.read_states

    def read(store, branch):
        if branch == "feat":
            raise BranchNotFound("branch 'feat' not found")
        return states_of(store, branch)

    monkeypatch.setattr(cleanup_plan, "read_states", read)
    assert clean(graph).skipped == ()


def test_progress_is_told(graph):
    write(graph, *"ab")
    reported = []
    clean(graph, on_progress=reported.append)
    assert {at.phase for at in reported} == {"looking", "removing"}
