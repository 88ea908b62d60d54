"""Publishing: what is refused, what is seen by whom, and how the manifest keeps small."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from lance import LanceDataset

from omnigraph import Graph
from omnigraph.commit import publisher as publishing
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.history import History
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.rows import (
    CommitRow,
    HeadRow,
    TableRow,
    TagRow,
    TombstoneRow,
    VersionRow,
    to_arrow,
)
from omnigraph.commit.store import GraphStore, Timeouts
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import (
    Conflict,
    InternalError,
    PublishContention,
    StorageUnavailable,
    StorageUnknown,
    VersionMismatch,
)
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.tables.ledger import Ledger
from tests.commit.world import (
    STAMP,
    foreign_upsert,
    fresh_state,
    manifest_of,
    manifest_rows,
    state_of,
    store_at,
)

PERSON, COMPANY = "node:Person", "node:Company"


def intent(branch=None, **more):
    return CommitIntent(new_ulid(), branch, now_micros(), **more)


def pin(key, version, branch=None, rows=0):
    return VersionRow(key, version, branch, rows)


@pytest.fixture
def manifest(store):
    return store.manifest(None)


@pytest.fixture
def publish(store, manifest):
    """Publish on main; expectations, version rows, and whatever else."""

    def publish(expected=None, *versions, **more):
        return store.publisher.publish(manifest, Publication(expected or {}, versions, **more))

    return publish


def chain(store):
    """The commits of main from the newest to the first, by their parents."""
    commits = {commit.commit_id: commit for commit in History(store).commits(None)}
    actual, current = [], store.manifest(None).current().head.commit_id
    while current is not None:
        actual.append(current)
        current = commits[current].parent
    assert len(actual) == len(commits)
    return actual


# -- what a publish makes ---------------------------------------------------------------------


def test_a_publish_is_one_version_with_everything_in_it(publish, manifest, path):
    """A new table, a new version, a tombstone and a commit at once."""
    genesis = manifest.current().head.commit_id
    before = manifest.current()
    said = intent(actor="ann", merged_parent=genesis, extra={"key": "k"})
    published = publish(
        {PERSON: 1, COMPANY: 1, "node:Robot": 0},
        pin(PERSON, 2, rows=5),
        pin("node:Robot", 1),
        registrations=[TableRow("node:Robot", "nodes/robot")],
        tombstones=[TombstoneRow(COMPANY, 1)],
        commit=said,
    )
    now = manifest.current()
    assert (published.version, now.manifest_version, manifest_of(path).version) == (2, 2, 2)
    assert list(now.pins) == ["edge:Knows", "edge:WorksAt", PERSON, "node:Robot"]
    assert (now.pins[PERSON].version, now.pins[PERSON].row_count) == (2, 5)
    assert now.pins["node:Robot"].location == "nodes/robot"
    assert now.head == published.commit
    assert (published.commit.parent, published.commit.merged_parent) == (genesis, genesis)
    assert json.loads(manifest_rows(path)[said.commit_id]["metadata"])["key"] == "k"
    assert list(before.pins) == [*sorted(before.pins)]
    assert before.pins[PERSON].version == 1


def test_expectations_alone_make_no_version(publish, path):
    """A publish with nothing to write succeeds, or fails, and leaves no trace."""
    published = publish({PERSON: 1, COMPANY: 1})
    assert (published.version, published.commit) == (1, None)
    with pytest.raises(VersionMismatch):
        publish({PERSON: 2})
    assert manifest_of(path).version == 1


def test_a_commit_without_tables_is_a_commit(publish, store):
    """Such as the one by which a recovery records that there was nothing to do."""
    published = publish(commit=intent(actor="omnigraph:recovery"))
    assert published.version == 2
    assert chain(store)[0] == published.commit.commit_id


def test_rows_without_a_commit_leave_the_chain_alone(publish, manifest, store):
    head = manifest.current().head
    assert publish(others=[TagRow("t", head.commit_id, 1)]).version == 2
    after = publish({PERSON: 1}, pin(PERSON, 2), commit=intent())
    assert (after.commit.parent, after.commit.manifest_version) == (head.commit_id, 3)
    assert len(chain(store)) == 2


def test_an_external_publish_is_seen_and_alters_no_snapshot(publish, path):
    other = store_at(path).manifest(None)
    taken = other.current()
    publish({PERSON: 1}, pin(PERSON, 2, rows=3), commit=intent())
    assert (taken.pins[PERSON].version, taken.manifest_version) == (1, 1)
    assert other.current().pins[PERSON].version == 2


def test_a_branch_publishes_to_itself(store, graph, publish, path):
    """Its rows are in its own manifest, with itself as the owner."""
    graph.branches.create("b")
    branch = store.manifest("b")
    said = Publication({PERSON: 1}, [pin(PERSON, 2, "b", 4)], commit=intent("b"))
    store.publisher.publish(branch, said)
    owned = branch.current().pins[PERSON]
    assert (owned.ref.path, owned.branch) == (f"{owned.location}/tree/b", "b")
    assert branch.current().pins[COMPANY].branch is None
    assert store.manifest(None).current().pins[PERSON].version == 1
    publish({PERSON: 1}, pin(PERSON, 2, rows=9), commit=intent())
    assert branch.current().pins[PERSON].row_count == 4
    assert manifest_rows(path)[f"{PERSON}${2:020d}"]["row_count"] == 9


# -- what is refused --------------------------------------------------------------------------


def mismatch(key, expected, actual):
    return {"table_key": key, "expected": expected, "actual": actual}


EXPECTATIONS = {
    "older than what is there": ({PERSON: 1}, mismatch(PERSON, 1, 3)),
    "newer than what is there": ({PERSON: 4}, mismatch(PERSON, 4, 3)),
    "of a table that is only asserted": ({PERSON: 3, COMPANY: 7}, mismatch(COMPANY, 7, 1)),
    "of a table that is unknown": ({"node:Robot": 2}, mismatch("node:Robot", 2, 0)),
    "that a table does not exist": ({PERSON: 0}, mismatch(PERSON, 0, 3)),
    "of a table that is hidden": ({"edge:Knows": 1}, mismatch("edge:Knows", 1, 5)),
    "several, of which the first counts": ({PERSON: 1, COMPANY: 2}, mismatch(COMPANY, 2, 1)),
}


@pytest.mark.parametrize(("expected", "details"), EXPECTATIONS.values(), ids=list(EXPECTATIONS))
def test_a_wrong_expectation_is_final_and_says_what_is_there(
    publish, manifest, expected, details, path
):
    """The tombstone of a hidden table is its version."""
    publish({PERSON: 1}, pin(PERSON, 3), tombstones=[TombstoneRow("edge:Knows", 5)])
    before = state_of(manifest)
    attempts = []
    with hooked(attempts.append), pytest.raises(VersionMismatch) as caught:
        publish(expected, pin(PERSON, 4), commit=intent())
    error = caught.value
    assert error.details == details
    assert error.message == (
        f"stale view of '{details['table_key']}': expected manifest table version "
        f"{details['expected']} but current is {details['actual']} — refresh and retry"
    )
    assert (error.code, error.retryable) == ("version_mismatch", True)
    assert attempts == [Failpoint.PUBLISH_BEFORE]
    assert state_of(manifest) == before
    assert manifest_of(path).version == 2


@pytest.mark.parametrize("expected", [{PERSON: 3}, {"edge:Knows": 5}, {"node:Robot": 0}, {}])
def test_right_expectations_publish(publish, expected):
    """Also of a hidden table, and of one that does not exist."""
    publish({PERSON: 1}, pin(PERSON, 3), tombstones=[TombstoneRow("edge:Knows", 5)])
    assert publish(expected, pin(COMPANY, 2)).version == 3


REFUSALS = {
    "a version that is published": (
        VersionMismatch,
        {"versions": [pin(PERSON, 2, rows=7)]},
        "version 2 of 'node:Person' is published already",
    ),
    "an older version that is published": (
        VersionMismatch,
        {"versions": [pin(PERSON, 1)]},
        "version 1 of 'node:Person' is published already",
    ),
    "the same owner again": (VersionMismatch, {"versions": [pin(PERSON, 2, rows=3)]}, "already"),
    "another owner with other rows": (
        VersionMismatch,
        {"versions": [pin(PERSON, 2, "b", 4)]},
        "already",
    ),
    "one good and one bad row": (
        VersionMismatch,
        {"versions": [pin(COMPANY, 2), pin(PERSON, 2)]},
        "already",
    ),
    "a version twice": (
        InternalError,
        {"versions": [pin(COMPANY, 2), pin(COMPANY, 2, "b")]},
        "published twice in one request",
    ),
    "an unknown table": (
        InternalError,
        {"versions": [pin("node:Robot", 1)]},
        "'node:Robot' is not registered",
    ),
    "another place for a table": (
        InternalError,
        {"registrations": [TableRow(PERSON, "nodes/elsewhere")]},
        "'node:Person' is registered elsewhere already",
    ),
    "a tombstone of an unknown table": (
        InternalError,
        {"tombstones": [TombstoneRow("node:Robot", 1)]},
        "'node:Robot' is not registered",
    ),
    "a tombstone that is there": (
        InternalError,
        {"tombstones": [TombstoneRow("edge:Knows", 5)]},
        "'edge:Knows' has this tombstone already",
    ),
    "a tombstone twice": (
        InternalError,
        {"tombstones": [TombstoneRow(COMPANY, 1), TombstoneRow(COMPANY, 1)]},
        "published twice in one request",
    ),
    "a table twice": (
        InternalError,
        {"registrations": [TableRow("node:Robot", "a"), TableRow("node:Robot", "b")]},
        "'node:Robot' is published twice in one request",
    ),
}


@pytest.mark.parametrize(("kind", "more", "text"), REFUSALS.values(), ids=list(REFUSALS))
def test_a_bad_request_is_refused_as_a_whole(publish, manifest, path, kind, more, text):
    """Nothing of it is visible, and the next publish works."""
    publish({PERSON: 1}, pin(PERSON, 2, rows=3), tombstones=[TombstoneRow("edge:Knows", 5)])
    before = state_of(manifest)
    versions = more.get("versions", ())
    with pytest.raises(kind, match=text):
        publish(
            None, *versions, commit=intent(), **{k: v for k, v in more.items() if v is not versions}
        )
    assert state_of(manifest) == before
    assert manifest_of(path).version == 2
    assert publish({COMPANY: 1}, pin(COMPANY, 2), commit=intent()).version == 3


def test_the_same_place_may_be_registered_again(publish, manifest):
    """Only another path is refused."""
    path = manifest.current().pins[PERSON].location
    assert publish(registrations=[TableRow(PERSON, path)]).version == 2


def test_a_version_may_be_handed_to_another_owner(publish, manifest, store, path):
    """With equal rows; the row is overwritten and warm state equals a fresh read."""
    publish({PERSON: 1}, pin(PERSON, 2, rows=3))
    rows = len(manifest_rows(path))
    publish({PERSON: 2}, VersionRow(PERSON, 2, "b", 3, {"e_tag": "x"}))
    pinned = manifest.current().pins[PERSON]
    assert (pinned.version, pinned.branch, pinned.e_tag) == (2, "b", "x")
    assert state_of(manifest) == fresh_state(store)
    publish({PERSON: 2}, pin(PERSON, 2, None, 3))
    assert manifest.current().pins[PERSON].branch is None
    assert state_of(manifest) == fresh_state(store)
    assert len(manifest_rows(path)) == rows


# -- others at the same time ------------------------------------------------------------------


def race(path, publications):
    """Publish each from a process of its own, as far as threads can show that."""
    barrier = threading.Barrier(len(publications))

    def run(publication):
        store = store_at(path)
        manifest = store.manifest(None)
        manifest.current()
        barrier.wait()
        try:
            return store.publisher.publish(manifest, publication)
        except Conflict as error:
            return error

    with ThreadPoolExecutor(len(publications)) as pool:
        return list(pool.map(run, publications))


def test_of_two_publishes_of_one_version_exactly_one_wins(store, path):
    results = race(
        path,
        [Publication({PERSON: 1}, [pin(PERSON, 2, rows=n)], commit=intent()) for n in (1, 2)],
    )
    (lost,) = [result for result in results if isinstance(result, Conflict)]
    assert lost.details == mismatch(PERSON, 1, 2)
    assert len(chain(store)) == 2


def test_disjoint_publishes_all_win_and_form_one_chain(store, path):
    results = race(
        path,
        [
            Publication({key: 1}, [pin(key, 2)], commit=intent())
            for key in (PERSON, COMPANY, "edge:Knows", "edge:WorksAt")
        ],
    )
    assert sorted(result.version for result in results) == [2, 3, 4, 5]
    assert len(chain(store)) == 5
    assert {pin.version for pin in store.manifest(None).current().pins.values()} == {2}


class Between:
    """Lets another program work between the look of a publisher and its write."""

    def __init__(self, monkeypatch):
        self.work = []
        self.attempts = 0
        real = Ledger.upsert

        def upsert(ledger, rows, key, replaced=None):
            self.attempts += 1
            if self.work:
                self.work.pop(0)()
            return real(ledger, rows, key, replaced)

        monkeypatch.setattr(Ledger, "upsert", upsert)


@pytest.fixture
def between(monkeypatch):
    return Between(monkeypatch)


def foreign_commit(path, commit_id, version, parent, *more):
    """A commit of main by a program that takes no lease of ours."""
    said = {"parent_commit_id": parent, "created_at": now_micros()}
    head = {"head_commit_id": commit_id, "parent_commit_id": parent}
    foreign_upsert(
        path,
        {
            "object_id": commit_id,
            "object_type": "graph_commit",
            "table_version": version,
            "metadata": json.dumps(said),
        },
        {
            "object_id": "graph_head:main",
            "object_type": "graph_head",
            "metadata": json.dumps(head),
        },
        *more,
    )


def foreign_version(key, version, rows=0):
    return {
        "object_id": f"{key}${version:020d}",
        "object_type": "table_version",
        "table_key": key,
        "table_version": version,
        "row_count": rows,
        "metadata": "{}",
    }


def test_who_loses_to_another_commit_starts_again_on_top_of_it(publish, store, path, between):
    """The parent is resolved for each attempt, so the chain stays linear."""
    genesis = store.manifest(None).current().head.commit_id
    rival = new_ulid()
    between.work.append(
        lambda: foreign_commit(path, rival, 2, genesis, foreign_version(COMPANY, 2))
    )
    published = publish({PERSON: 1}, pin(PERSON, 2), commit=intent())
    assert (between.attempts, published.version) == (2, 3)
    assert (published.commit.parent, published.commit.manifest_version) == (rival, 3)
    assert chain(store) == [published.commit.commit_id, rival, genesis]
    assert state_of(store.manifest(None)) == fresh_state(store)


def test_who_loses_the_same_version_to_another_commit_gets_the_conflict(
    publish, store, path, between
):
    genesis = store.manifest(None).current().head.commit_id
    between.work.append(
        lambda: foreign_commit(path, new_ulid(), 2, genesis, foreign_version(PERSON, 2, 9))
    )
    with pytest.raises(VersionMismatch) as caught:
        publish({PERSON: 1}, pin(PERSON, 2), commit=intent())
    assert caught.value.details == mismatch(PERSON, 1, 2)
    assert store.manifest(None).current().pins[PERSON].row_count == 9


def test_a_foreign_row_in_between_moves_the_commit_one_further(publish, store, path, between):
    """It conflicts with nothing, so Lance lets both in; the commit is found all the same."""
    between.work.append(lambda: foreign_upsert(path, {"object_id": "x:1", "object_type": "x"}))
    published = publish({PERSON: 1}, pin(PERSON, 2, rows=5), commit=intent())
    assert published.version == manifest_of(path).version
    assert store.manifest(None).current().manifest_version == published.version
    assert state_of(store.manifest(None)) == fresh_state(store)
    actual = History(store).snapshot_of(published.commit.commit_id)
    assert actual.pins[PERSON].row_count == 5
    assert actual.head.commit_id == published.commit.commit_id


def test_a_foreign_compaction_in_between_costs_an_attempt(publish, store, path, between):
    """Its parts are not the ones that were read; the second attempt sees them."""
    for version in range(2, 6):
        publish({PERSON: version - 1}, pin(PERSON, version), commit=intent())
    between.attempts = 0
    between.work.append(lambda: manifest_of(path).optimize.compact_files())
    published = publish({PERSON: 5}, pin(PERSON, 6), commit=intent())
    assert between.attempts == 2
    assert store.manifest(None).current().head == published.commit
    assert state_of(store.manifest(None)) == fresh_state(store)
    assert len(chain(store)) == 6


def test_a_passing_fault_is_retried(publish, monkeypatch):
    """Five times, whatever the time that is left."""
    monkeypatch.setattr(publishing, "_pause", lambda attempt: None)
    faults = [StorageUnavailable("busy") for _ in range(5)]

    def hook(point):
        if point is Failpoint.PUBLISH_BEFORE and faults:
            raise faults.pop()

    with hooked(hook):
        assert publish({PERSON: 1}, pin(PERSON, 2), commit=intent()).version == 2


def test_contention_ends_when_retries_and_time_are_used_up(graph, path, monkeypatch):
    monkeypatch.setattr(publishing, "_pause", lambda attempt: None)
    root = parse_root(str(path))
    store = GraphStore(root, Durability.OS, Timeouts(publish=0.0))
    attempts = []

    def hook(point):
        attempts.append(point)
        raise Conflict("another writer was faster")

    with hooked(hook), pytest.raises(PublishContention) as caught:
        store.publisher.publish(store.manifest(None), Publication({}, commit=intent()))
    assert caught.value.message == (
        "manifest publish exhausted 5 retries against concurrent writers"
    )
    assert caught.value.retryable
    assert len(attempts) == 6
    assert store.manifest(None).current().manifest_version == 1


def test_an_answer_that_was_lost_is_looked_up_and_never_written_again(publish, store, monkeypatch):
    """A commit that arrived is a success; on a disk it is known when one did not arrive."""
    monkeypatch.setattr(publishing, "_pause", lambda attempt: None)
    real = Ledger.upsert
    calls = []

    def deaf(ledger, rows, key, replaced=None):
        calls.append(1)
        real(ledger, rows, key, replaced)
        raise StorageUnknown("no answer")

    monkeypatch.setattr(Ledger, "upsert", deaf)
    published = publish({PERSON: 1}, pin(PERSON, 2), commit=intent())
    assert (published.version, len(calls)) == (2, 1)
    assert store.manifest(None).current().pins[PERSON].version == 2

    def silent(ledger, rows, key, replaced=None):
        calls.append(1)
        raise StorageUnknown("no answer")

    monkeypatch.setattr(Ledger, "upsert", silent)
    said = intent()
    with pytest.raises(StorageUnavailable, match="nothing was changed"):
        publish({PERSON: 2}, pin(PERSON, 3), commit=said)
    assert store.manifest(None).commit(said.commit_id) is None


# -- keeping the manifest small ---------------------------------------------------------------


@pytest.mark.parametrize("branch", [None, "b"])
def test_the_manifest_compacts_itself_in_one_version_and_keeps_everything(
    graph, store, path, branch
):
    """Decision 3: same rows, stamp, key and stable row ids; the other branch does not move."""
    graph.branches.create("b")
    manifest = store.manifest(branch)
    compactions = []
    with hooked(compactions.append):
        version = 1
        while Failpoint.PUBLISH_COMPACT not in compactions:
            before = manifest_of(path, branch)
            said = Publication({PERSON: version}, [pin(PERSON, version + 1)], commit=intent(branch))
            published = store.publisher.publish(manifest, said)
            version += 1
    after = manifest_of(path, branch)
    assert (published.version, after.version) == (before.version + 1, before.version + 2)
    assert len(before.get_fragments()) > 10
    assert len(after.get_fragments()) == 1
    assert after.schema == before.schema
    assert after.schema.metadata == {STAMP.encode(): b"4"}
    assert after.schema.field("object_id").metadata == before.schema.field("object_id").metadata
    assert after.has_stable_row_ids
    uncompacted = after.checkout_version(published.version).to_table().to_pylist()
    assert sorted(uncompacted, key=repr) == sorted(after.to_table().to_pylist(), key=repr)
    assert after.count_rows() == len(manifest_rows(path, branch))
    assert manifest.current().manifest_version == after.version
    assert state_of(manifest) == fresh_state(store, branch)
    assert manifest_of(path, None if branch else "b").version == 1
    next_one = Publication({PERSON: version}, [pin(PERSON, version + 1)], commit=intent(branch))
    assert store.publisher.publish(manifest, next_one).version == after.version + 1
    assert state_of(manifest) == fresh_state(store, branch)


def test_commits_before_and_after_compactions_lead_to_their_states(publish, store):
    """Every commit is found where it is, also the one whose publish compacted."""
    commits = {}
    for version in range(2, 42):
        said = publish({PERSON: version - 1}, pin(PERSON, version), commit=intent())
        commits[said.commit.commit_id] = version
    assert len(chain(store)) == 41
    for commit_id, version in commits.items():
        actual = History(store).snapshot_of(commit_id)
        assert (actual.pins[PERSON].version, actual.head.commit_id) == (version, commit_id)


def test_a_compaction_that_fails_fails_nothing(publish, store, monkeypatch):
    """Housekeeping: the publish stands, and a later one tries again."""

    def fail(ledger):
        raise StorageUnavailable("busy")

    monkeypatch.setattr(Ledger, "rewrite", fail)
    for version in range(2, 20):
        publish({PERSON: version - 1}, pin(PERSON, version), commit=intent())
    assert len(store.manifest(None).fragments) == 19
    assert state_of(store.manifest(None)) == fresh_state(store)
    monkeypatch.undo()
    publish({PERSON: 19}, pin(PERSON, 20), commit=intent())
    assert len(store.manifest(None).fragments) == 1
    assert state_of(store.manifest(None)) == fresh_state(store)


def test_a_compaction_loses_to_every_writer(publish, store, path, monkeypatch):
    """Decision 3: a strict overwrite never rebases, so no row of others is lost."""
    real = Ledger.rewrite

    def late(ledger):
        foreign_upsert(path, {"object_id": "x:1", "object_type": "x"})
        return real(ledger)

    monkeypatch.setattr(Ledger, "rewrite", late)
    for version in range(2, 17):
        publish({PERSON: version - 1}, pin(PERSON, version), commit=intent())
    assert "x:1" in manifest_rows(path)
    assert len(manifest_of(path).get_fragments()) > 10
    assert store.manifest(None).current().pins[PERSON].version == 16
    assert state_of(store.manifest(None)) == fresh_state(store)


# -- appending beside the replaced head -------------------------------------------------------


def heads(store):
    """The commits that rows of the manifest name as the head of main."""
    rows = manifest_of(store.root.uri).to_table().to_pylist()
    heads = [row for row in rows if row["object_id"] == "graph_head:main"]
    return [json.loads(row["metadata"])["head_commit_id"] for row in heads]


def test_a_second_publish_reads_no_rows_of_the_manifest(store, manifest, publish, monkeypatch):
    publish(commit=intent())

    def merge_insert(*_):
        raise AssertionError("rows of the manifest are read")

    monkeypatch.setattr(LanceDataset, "merge_insert", merge_insert)
    for number in range(5):
        made = publish(commit=intent())
        assert heads(store) == [made.commit.commit_id], number
    assert len(heads(store)) == 1


def test_pins_without_a_commit_keep_the_head_and_read_no_rows(store, publish, path, monkeypatch):
    """As those of a compaction: it is ordered with other publishes by the head, which stays."""
    made = publish(commit=intent())
    (before,) = [
        row for row in manifest_rows(store.root.uri).items() if row[0].startswith("graph_h")
    ]
    monkeypatch.delattr(LanceDataset, "merge_insert")
    for version in (2, 3):
        assert publish({PERSON: version - 1}, pin(PERSON, version)).commit is None
        assert heads(store) == [made.commit.commit_id]
    (after,) = [
        row for row in manifest_rows(store.root.uri).items() if row[0].startswith("graph_h")
    ]
    assert after == before
    assert store_at(store.root.uri).manifest(None).current().pins[PERSON].version == 3
    assert publish(commit=intent()).commit.parent == made.commit.commit_id


def test_pins_without_a_commit_lose_to_a_publish_that_moved_the_head(store, publish, path):
    publish(commit=intent())
    manifest = store.manifest(None)
    seen, address = manifest.current(), manifest.head_address
    writer = Ledger.open(store.datasets, manifest.ref, seen.manifest_version)
    moved = store_at(path)
    moved.publisher.publish(moved.manifest(None), Publication({}, (), commit=intent()))
    rows = to_arrow([pin(PERSON, 2), HeadRow(None, seen.head.commit_id)])
    with pytest.raises(Conflict):
        writer.upsert(rows, "object_id", address)


@pytest.mark.parametrize("first", [True, False])
def test_of_two_publishes_on_one_version_exactly_one_succeeds(store, publish, first):
    """An append beside the replaced head and an upsert refuse each other, in either order."""
    publish(commit=intent())
    publish(commit=intent())
    manifest = store.manifest(None)
    version = manifest.current().manifest_version
    ours, theirs = (Ledger.open(store.datasets, manifest.ref, version) for _ in range(2))
    rows = [
        to_arrow(
            [CommitRow(new_ulid(), version + 1, None, now_micros()), HeadRow(None, new_ulid())]
        )
        for _ in range(2)
    ]

    def append():
        assert ours.upsert(rows[0], "object_id", manifest.head_address) is not None

    def upsert():
        theirs.upsert(rows[1], "object_id")

    before, after = (append, upsert) if first else (upsert, append)
    before()
    with pytest.raises(Conflict):
        after()
    assert len(heads(store)) == 1


def test_the_head_is_found_again_after_a_rewrite_by_another_handle(store, publish):
    for _ in range(3):
        publish(commit=intent())
    other = store_at(store.root.uri)
    other.publisher.compact(other.manifest(None))
    made = publish(commit=intent())
    assert heads(store) == [made.commit.commit_id]


def test_a_publish_outside_of_a_write_looks_for_newer_versions_on_s3(s3_root):
    """Such as a tag: nobody has looked just before."""
    root = s3_root("g.omni")
    with (
        Graph.init(root.uri, "node P { name: String @key }", storage_options=root.options) as one,
        Graph.open(root.uri, storage_options=root.options) as other,
    ):
        one.snapshot()
        receipt = other.append({"P": pa.table({"name": ["Ada"]})})
        store = one._handle.store
        made = store.publisher.publish(
            store.manifest(None), Publication({"node:P": 2}, commit=intent())
        )
        assert made.commit.parent == receipt.commit_id
