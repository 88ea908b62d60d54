"""Compaction of small fragments: fewer of them, and nothing else that anybody could notice."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.commit.branches import Branches
from omnigraph.commit.classify import RecoveryDecision, classify, decide, mode_of
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.commit.rows import WriterKind
from omnigraph.errors import SchemaChanging, StorageUnavailable, StorageUnknown, VersionMismatch
from omnigraph.maintain import small_fragments
from omnigraph.maintain.small_fragments import (
    MAX_BYTES,
    TIER,
    TIER_ROWS,
    compact_tail,
    fragments_to_merge,
)
from omnigraph.storage.tables.segments import segments_of
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
from omnigraph.storage.tables.table import FragmentInfo
from tests.commit.deaths import Died, audited, head, left, pinned
from tests.commit.world import SCHEMA, at, listing, names, people, raising

pytestmark = pytest.mark.rotates(2)

PERSON = "node:Person"
FEW = 4
SMALL, LARGE = TIER_ROWS
STAMPS = ["_row_created_at_version", "_row_last_updated_at_version"]
OLDER = 'query q() { update Person set { age: 99 } where name = "p1" }'
LEAVE = 'query q() { delete Person where name = "p1" }'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "g.omni"


@pytest.fixture
def graph(path, monkeypatch):
    """People, each in a fragment of its own: as many as are merged."""
    monkeypatch.setattr(small_fragments, "TIER", FEW)
    with Graph.init(path, SCHEMA, durability="os") as graph:
        for number in range(FEW):
            graph.append(people(**{f"p{number}": number}))
        yield graph


@pytest.fixture
def other(graph, path):
    with Graph.open(path, durability="os") as other:
        yield other


def table_of(graph, branch=None):
    store = graph._handle.store
    return store.table(store.manifest(branch).current().pins[PERSON])


def sizes(graph, branch=None):
    """The rows of each fragment."""
    return [fragment.rows for fragment in table_of(graph, branch).fragments()]


def run(graph, branch=None):
    """Compact; gives how many fragments were merged."""
    return compact_tail(graph._handle.store, branch, PERSON).merged


def stored(graph):
    """The rows with their ids and the versions that wrote them."""
    table = table_of(graph)
    rows = table.read(["id", "age", *STAMPS], row_ids=True).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


# -- which fragments ------------------------------------------------------------------------------


def fragments(*rows, size=0):
    return [FragmentInfo(number, str(number), many, 0, size) for number, many in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "merged"),
    [
        ([1] * (TIER - 1), 0),
        ([1] * TIER, TIER),
        ([1] * (TIER - 1) + [SMALL - 1], TIER),
        ([1] * (TIER - 1) + [SMALL], 0),
        ([1] * TIER + [SMALL] * (TIER - 2), TIER),
        ([1] * TIER + [SMALL] * (TIER - 1), 2 * TIER - 1),
        ([SMALL] * TIER + [1] * 3, TIER),
        ([LARGE] * 100, 0),
        ([0] * TIER, 0),
        ([LARGE - 1] * TIER, ROWS_PER_FRAGMENT // (LARGE - 1)),
    ],
)
def test_a_tier_is_merged_when_it_is_full(rows, merged):
    assert len(fragments_to_merge(fragments(*rows))) == merged


def test_fragments_with_many_bytes_are_left():
    assert fragments_to_merge(fragments(*[1] * TIER, size=MAX_BYTES // TIER + 1)) == ()
    assert len(fragments_to_merge(fragments(*[1] * TIER, size=MAX_BYTES // TIER))) == TIER


@given(st.lists(st.integers(1, 40), max_size=600))
def test_few_fragments_are_left_and_no_row_is_rewritten_often(commits):
    table: list[FragmentInfo] = []
    rewritten: Counter[str] = Counter()
    for number, rows in enumerate(commits):
        table.append(FragmentInfo(number, str(number), rows))
        group = fragments_to_merge(table)
        if group:
            total = sum(fragment.rows for fragment in group)
            assert total <= ROWS_PER_FRAGMENT
            sources = [name for f in group for name in f.signature.split("+")]
            rewritten.update(sources)
            table = [fragment for fragment in table if fragment not in group]
            table.append(FragmentInfo(number, "+".join(sources), total))
    assert sum(fragment.rows < LARGE for fragment in table) < 2 * TIER
    assert max(rewritten.values(), default=0) <= 20
    assert sum(fragment.rows for fragment in table) == sum(commits)


# -- what stays as it was -------------------------------------------------------------------------


def test_it_makes_one_fragment_of_many(graph):
    assert run(graph) == FEW
    assert sizes(graph) == [FEW]
    assert run(graph) == 0


def test_rows_keep_their_ids_and_the_versions_that_wrote_them(graph):
    before = stored(graph)
    run(graph)
    assert stored(graph) == before


def test_there_is_no_commit_and_the_head_stays(graph, other):
    commits, version = graph.commits(), graph.snapshot().version
    run(graph)
    assert graph.commits() == other.commits() == commits
    assert graph.snapshot().version == other.snapshot().version == version + 1
    assert graph.snapshot().commit_id == commits[0].commit_id
    other.mutate(OLDER, if_commit=commits[0].commit_id)


def test_feed_diff_and_blame_do_not_see_it(graph):
    start = graph.changes.poll(start="now")
    before = graph.changes.poll()
    first = graph.commits()[0].commit_id
    run(graph)
    assert graph.changes.poll(cursor=start.cursor).changes == ()
    last = graph.append(people(Bob=1)).commit_id
    changed = [("insert", "Bob")]
    for page in (graph.changes.poll(cursor=start.cursor), graph.changes.of_commit(last)):
        assert [(change.op.value, change.id) for change in page.changes] == changed
    diff = graph.snapshot(at=first).diff(graph.snapshot(at=last))
    assert [(change.op.value, change.id) for change in diff.changes] == changed
    assert graph.changes.poll().changes[:-1] == before.changes
    assert graph.changes.blame("Person", "p0").commit.commit_id == graph.commits()[-2].commit_id


def test_every_earlier_state_can_be_read(graph):
    states = [commit.commit_id for commit in graph.commits()]
    counts = [graph.snapshot(commit=commit).count("Person") for commit in states]
    graph.tags.create("before")
    run(graph)
    assert [graph.snapshot(commit=commit).count("Person") for commit in states] == counts
    assert len(names(graph, tag="before")) == FEW
    assert graph.maintenance.verify().problems == ()
    graph.maintenance.cleanup(1, min_age=0)
    assert len(names(graph)) == FEW
    assert graph.maintenance.verify().problems == ()


def test_rows_that_are_gone_are_not_written_again(graph):
    graph.append(people(**{f"q{n}": n for n in range(3)}))
    graph.mutate('query q() { delete Person where name = "q1" }')
    assert run(graph) == FEW + 1
    assert [(f.rows, f.deleted) for f in table_of(graph).fragments()] == [(FEW + 2, 0)]


def test_fragments_that_an_index_covers_are_left(graph):
    graph.indexes.ensure()
    segments = segments_of(table_of(graph))
    assert run(graph) == 0
    for number in range(FEW):
        graph.append(people(**{f"n{number}": number}))
    assert run(graph) == FEW
    assert sizes(graph) == [*[1] * FEW, FEW]
    assert segments_of(table_of(graph)) == segments
    assert graph.maintenance.optimize().table(PERSON).fragments_removed == FEW + 1


TEXTS = "node Note { name: String @key  text: String @index }"
FIND = 'query q() { match { $n: Note  search($n.text, "fox") } return { $n.name } }'


def test_search_finds_the_same_rows(tmp_path, monkeypatch):
    """A changed row is in the index by its former words, and in the tail by its new ones."""
    monkeypatch.setattr(small_fragments, "TIER", FEW)
    with Graph.init(tmp_path / "notes.omni", TEXTS, durability="os") as graph:
        graph.append({"Note": pa.table({"name": ["a", "b"], "text": ["a fox", "a dog"]})})
        graph.indexes.ensure()
        for name, text in (("a", "a cat"), ("b", "a fox"), ("c", "fox"), ("d", "cow")):
            graph.load([{"type": "Note", "data": {"name": name, "text": text}}])
        actual = graph.query(FIND).rows()
        done = compact_tail(graph._handle.store, None, "node:Note")
        assert done.merged == FEW
        assert sorted(row["n.name"] for row in graph.query(FIND).rows()) == ["b", "c"]
        assert sorted(map(str, graph.query(FIND).rows())) == sorted(map(str, actual))


def test_tables_with_blobs_are_left(tmp_path, monkeypatch):
    monkeypatch.setattr(small_fragments, "TIER", FEW)
    schema = "node File { name: String @key  body: Blob? }"
    with Graph.init(tmp_path / "files.omni", schema, durability="os") as graph:
        for number in range(FEW):
            graph.append({"File": pa.table({"name": [f"f{number}"], "body": [b"x"]})})
        assert compact_tail(graph._handle.store, None, "node:File").merged == 0


def test_a_branch_compacts_its_own_copy(graph):
    graph.branches.create("feat")
    assert run(graph, "feat") == 0
    for number in range(FEW):
        graph.append(people(**{f"f{number}": number}), branch="feat")
    assert run(graph, "feat") == 2 * FEW
    assert sizes(graph) == [1] * FEW
    run(graph)
    report = graph.merge("feat")
    assert report.tables[PERSON].inserted == FEW
    assert len(names(graph)) == 2 * FEW


# -- beside writers -------------------------------------------------------------------------------


@contextmanager
def between_staging_and_leases(graph, action):
    """Run something after a handle has staged a write and before it has its leases."""
    leases = graph._handle.store.leases
    acquire = leases.acquire

    def act_first(wanted, timeout):
        leases.acquire = acquire
        action()
        return acquire(wanted, timeout)

    leases.acquire = act_first
    yield


@pytest.mark.parametrize("text", [OLDER, LEAVE], ids=["update", "delete"])
@pytest.mark.parametrize("physical", [run, lambda g: g.maintenance.optimize()], ids=["tail", "all"])
def test_a_strict_write_that_meets_only_a_compaction_is_staged_again(graph, other, text, physical):
    with between_staging_and_leases(other, lambda: physical(graph)):
        receipt = other.mutate(text)
    assert receipt.affected_nodes == 1
    assert ("p1" in names(graph)) == (text == OLDER)
    assert graph.maintenance.verify().problems == ()


def test_a_write_on_condition_of_the_head_does_not_see_it(graph, other):
    newest = graph.commits()[0].commit_id
    with between_staging_and_leases(other, lambda: run(graph)):
        receipt = other.mutate(OLDER, if_commit=newest)
    assert other.commit(receipt.commit_id).parent == newest


def test_a_strict_write_is_refused_when_rows_changed_too(graph, other):
    def compact_and_write():
        run(graph)
        graph.append(people(Bob=1))
        run(graph)

    with between_staging_and_leases(other, compact_and_write), pytest.raises(VersionMismatch):
        other.mutate(OLDER)


def test_an_insert_that_relies_on_a_compacted_table_happens(graph, other):
    """The edge was validated on a version of its nodes that is not the newest any more."""
    edge = {"Knows": pa.table({"src": ["p0"], "dst": ["p1"]})}
    with at(Failpoint.WRITE_AFTER_TABLES, lambda: run(graph)):
        other.append(edge)
    assert sizes(graph) == [FEW]
    assert graph.snapshot().count("Knows") == 1


def test_fragments_that_were_added_meanwhile_do_not_matter(graph, other):
    with at(Failpoint.OPTIMIZE_AFTER_COMPACTION, lambda: other.append(people(Bob=1))):
        assert run(graph) == FEW
    assert sorted(sizes(graph)) == [1, FEW]
    assert len(names(graph)) == FEW + 1


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.mutate(LEAVE),
        lambda graph: graph.mutate(OLDER),
        lambda graph: graph.indexes.ensure(),
        lambda graph: graph.maintenance.optimize(),
        run,
    ],
    ids=["delete", "update", "index", "optimize", "compaction"],
)
def test_it_gives_up_when_a_fragment_is_not_what_it_was(graph, other, path, change):
    with at(Failpoint.OPTIMIZE_AFTER_COMPACTION, lambda: change(other)):
        version = None if run(graph) else graph.snapshot().version
    assert version == other.snapshot().version
    assert left(path) == []
    report = graph.maintenance.verify()
    assert (report.problems, report.unnamed) == ((), 0)


def test_it_gives_up_when_the_schema_changes(graph, other):
    taller = SCHEMA.replace("age: I32?", "age: I32?  height: F64?")
    with (
        at(Failpoint.OPTIMIZE_AFTER_COMPACTION, lambda: other.schema.apply(taller)),
        pytest.raises(SchemaChanging),
    ):
        run(graph)
    assert graph.maintenance.verify().problems == ()


# -- deaths and failures --------------------------------------------------------------------------

STEPS = (
    Failpoint.OPTIMIZE_BEFORE_COMPACTION,
    Failpoint.OPTIMIZE_AFTER_COMPACTION,
    Failpoint.WRITE_AFTER_LEASES,
    Failpoint.WRITE_AFTER_SIDECAR,
    Failpoint.WRITE_AFTER_TABLES,
    Failpoint.PUBLISH_BEFORE,
    Failpoint.PUBLISH_AFTER,
    Failpoint.WRITE_AFTER_PUBLISH,
    Failpoint.WRITE_AFTER_SIDECAR_DELETE,
)
LANDED = STEPS[4:]


def die_at(graph, point, branch=None):
    with at(point, raising(Died())), pytest.raises(Died):
        run(graph, branch)


@pytest.mark.parametrize(
    ("point", "branch"),
    [*((point, None) for point in STEPS), (Failpoint.WRITE_AFTER_TABLES, "feat")],
    ids=str,
)
def test_whoever_recovers_a_compaction_makes_no_commit_of_it(graph, path, point, branch):
    label = branch or "main"
    if branch is not None:
        graph.branches.create(branch)
        graph.append(people(Bob=1), branch=branch)
    commits, rows = graph.commits(label), names(graph, label)
    die_at(graph, point, branch)
    with Graph.open(path) as opened:
        assert opened.commits(label) == commits
        assert names(opened, label) == rows
        assert left(path) == []
        assert head(path, PERSON, branch) == pinned(opened, PERSON, label)
        expected = len(opened.recovered)
        assert expected == (point in STEPS[3:8]) == len(audited(opened))
        assert (len(sizes(opened, branch)) == 1) == (point in LANDED)
        assert opened.maintenance.verify().problems == ()
        opened.mutate(OLDER, branch=label, if_commit=commits[0].commit_id)


def test_a_compaction_that_died_published_is_not_undone_by_a_later_recovery(graph, path):
    die_at(graph, Failpoint.WRITE_AFTER_PUBLISH)
    (sidecar,) = graph._handle.store.sidecars.load_all()
    assert (sidecar.writer_kind, sidecar.pins_only) == (WriterKind.OPTIMIZE, True)
    graph.append(people(Bob=1))
    assert sorted(sizes(graph)) == [1, FEW]
    assert left(path) == []
    assert head(path, PERSON) == pinned(graph, PERSON)


def test_the_branch_of_a_dead_compaction_may_go(graph, path):
    graph.branches.create("feat")
    graph.append(people(Bob=1), branch="feat")
    die_at(graph, Failpoint.WRITE_AFTER_TABLES, "feat")
    Branches(graph._handle.store).delete("feat")
    commits = graph.commits()
    graph.refresh()
    assert graph.commits() == commits
    assert left(path) == []


def test_another_program_publishes_what_landed(graph):
    """It ignores the mark, and takes the compaction for an optimize."""
    die_at(graph, Failpoint.WRITE_AFTER_TABLES)
    (sidecar,) = graph._handle.store.sidecars.load_all()
    (entry,) = sidecar.tables
    landed = classify(entry.post_commit_pin, entry.expected_version, entry, mode_of(sidecar))
    pins = [(entry.expected_version, entry.expected_version)]
    assert decide([landed], pins) is RecoveryDecision.ROLL_FORWARD


def test_a_publish_without_an_answer_that_landed_is_not_undone(graph, path):
    commits = graph.commits()
    with at(Failpoint.PUBLISH_AFTER, raising(StorageUnknown("no answer"))):
        assert run(graph) == FEW
    assert sizes(graph) == [FEW]
    assert graph.commits() == commits
    assert left(path) == []
    assert head(path, PERSON) == pinned(graph, PERSON)


def test_a_publish_that_fails_is_undone_without_a_commit(graph, path):
    commits, version = graph.commits(), graph.snapshot().version

    def fail(point):
        # The undo publishes, too.
        if point is Failpoint.UNDO_AFTER_MARK:
            failing.clear()
        if point is Failpoint.PUBLISH_BEFORE and failing:
            raise StorageUnavailable("the disk is away")

    failing = [True]
    with hooked(fail), pytest.raises(StorageUnavailable):
        run(graph)
    assert graph.commits() == commits
    assert graph.snapshot().version == version + 1
    assert sizes(graph) == [1] * FEW
    assert head(path, PERSON) == pinned(graph, PERSON)
    assert left(path) == []
    assert run(graph) == FEW


def test_it_leaves_nothing_behind_when_it_has_nothing_to_do(graph, path):
    run(graph)
    before = listing(path)
    assert run(graph) == 0
    assert listing(path) == before


def test_many_rounds_keep_the_rows(graph):
    """Inserts, updates and deletes, with a run after each."""
    choose = random.Random(7)
    rows = {f"p{number}": number for number in range(FEW)}
    for number in range(24):
        name = choose.choice([*rows, f"n{number}", f"n{number}"])
        if name not in rows:
            graph.append(people(**{name: number}))
            rows[name] = number
        elif choose.random() < 0.5:
            graph.mutate(
                f'query q() {{ update Person set {{ age: {number} }} where name = "{name}" }}'
            )
            rows[name] = number
        else:
            graph.mutate(f'query q() {{ delete Person where name = "{name}" }}')
            del rows[name]
        run(graph)
    table = graph.snapshot().read("Person", ["name", "age"])
    assert dict(zip(table["name"].to_pylist(), table["age"].to_pylist(), strict=True)) == rows
    assert graph.maintenance.verify().problems == ()
