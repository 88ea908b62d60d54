"""A member of a group is read by its own rows: feed, diff, blame, revert, cherry-pick, tags."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from omnigraph import Graph
from omnigraph.commit.ancestry import CommitGraph
from omnigraph.commit.group_members import group_of
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.schema.history import identified_at
from omnigraph.errors import MergeConflicts
from omnigraph.maintain.cleanup.retention import CleanupPolicy, GraphState, feed_commits
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.merge.feed import Feed
from tests.commit.together import SCHEMA, rows_of, together
from tests.commit.world import names

KNOW = "query know($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
_OLD = timedelta(0)


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.load([person("Ada", 1), person("Bob", 2)], actor="first")
        yield graph


def person(name, age):
    return {"type": "Person", "data": {"name": name, "age": age}}


def load_call(graph, *records, **how):
    return lambda: graph.load(list(records), **how)


def one_group(graph, branch="main"):
    """Ada is changed by ana, Cy and an edge to him are added by bea and cem."""
    ids = [
        receipt.commit_id
        for receipt in together(
            graph,
            load_call(graph, person("Ada", 10), actor="ana", branch=branch),
            load_call(graph, person("Cy", 30), person("Bob", 20), actor="bea", branch=branch),
            lambda: graph.mutate(KNOW, params={"a": "Ada", "b": "Cy"}, actor="cem", branch=branch),
            branch=None if branch == "main" else branch,
        )
    ]
    rows = rows_of(graph, None if branch == "main" else branch)[-3:]
    assert [(row.commit_id, group_of(row).id) for row in rows] == [(own, ids[-1]) for own in ids]
    return ids


def changes(page):
    return [(c.type_name, c.op.value, None if c.type_name == "Knows" else c.id) for c in page]


OWN = [
    [("Person", "update", "Ada")],
    [("Person", "update", "Bob"), ("Person", "insert", "Cy")],
    [("Knows", "insert", None)],
]


def test_the_feed_has_a_block_for_each_member(graph):
    cursor = graph.changes.poll(start="now").cursor
    ids = one_group(graph)
    page = graph.changes.poll(cursor=cursor)
    assert [block.commit.commit_id for block in page.blocks] == ids
    assert [block.commit.actor for block in page.blocks] == ["ana", "bea", "cem"]
    assert [changes(block.changes) for block in page.blocks] == OWN
    (ada,) = page.blocks[0].changes
    assert (ada.before["age"], ada.after["age"]) == (1, 10)


def test_a_page_may_end_between_members_and_inside_one(graph):
    cursor = graph.changes.poll(start="now").cursor
    one_group(graph)
    seen = []
    for _ in range(4):
        page = graph.changes.poll(cursor=cursor, limit=1)
        seen += changes(page.changes)
        cursor = page.cursor
    assert seen == [change for own in OWN for change in own]
    assert not graph.changes.poll(cursor=cursor).changes


def test_the_commits_of_a_stream_are_the_members(graph):
    contract = graph._handle.check()
    store = graph._handle.store
    feed = Feed(store, lambda state: identified_at(store, contract, state), None, ChangeFilter())
    start = feed.start("now")
    ids = one_group(graph)
    ends = feed.after(start)
    assert [end.commit for end in ends] == ids
    slices = [list(feed.slices(end, 1)[1]) for end in ends]
    assert [[changes(part)[0] for _, _, part in own] for own in slices] == OWN


def test_the_changes_of_a_commit_are_those_of_the_member(graph):
    ids = one_group(graph)
    assert [changes(graph.changes.of_commit(commit).changes) for commit in ids] == OWN


def test_blame_names_the_member_that_wrote_the_row(graph):
    ids = one_group(graph)
    for name, commit, actor in (
        ("Ada", ids[0], "ana"),
        ("Bob", ids[1], "bea"),
        ("Cy", ids[1], "bea"),
    ):
        actual = graph.changes.blame("Person", name)
        assert (actual.commit.commit_id, actual.commit.actor, actual.op) == (commit, actor, "write")
    (edge,) = graph.snapshot().read("Knows")["id"].to_pylist()
    assert graph.changes.blame("Knows", edge).commit.actor == "cem"
    graph.load([person("Ada", 11)], actor="dan")
    assert graph.changes.blame("Person", "Ada").commit.actor == "dan"


def test_blame_finds_the_member_under_an_earlier_name_of_the_type(graph):
    ids = one_group(graph)
    renamed = SCHEMA.replace("Person", "Human").replace(
        "node Human", 'node Human @rename_from("Person")'
    )
    graph.schema.apply(renamed)
    assert graph.changes.blame("Human", "Cy").commit.commit_id == ids[1]


def test_blame_of_a_merged_row_names_the_member_on_the_branch(graph):
    graph.branches.create("b")
    graph.load([person("Zoe", 1), {"edge": "Knows", "from": "Ada", "to": "Zoe"}], branch="b")
    ids = one_group(graph, "b")
    graph.load([person("Max", 1)])
    graph.merge("b")
    assert graph.changes.blame("Person", "Cy").origin.commit_id == ids[1]


def test_reverting_a_member_takes_back_its_rows_only(graph):
    ids = one_group(graph)
    graph.revert(ids[0])
    assert ages(graph) == {"Ada": 1, "Bob": 20, "Cy": 30}
    graph.revert(ids[2])
    assert graph.snapshot().count("Knows") == 0
    graph.revert(ids[1])
    assert ages(graph) == {"Ada": 1, "Bob": 2}


def test_reverting_what_a_later_member_relies_on_is_refused(graph):
    ids = one_group(graph)
    with pytest.raises(MergeConflicts):
        graph.revert(ids[1])
    graph.load([person("Ada", 99)])
    with pytest.raises(MergeConflicts):
        graph.revert(ids[0])


def test_a_cherry_pick_brings_the_rows_of_the_member(graph):
    graph.branches.create("b")
    ids = one_group(graph)
    graph.cherry_pick(ids[1], "b")
    assert ages(graph, "b") == {"Ada": 1, "Bob": 20, "Cy": 30}
    graph.cherry_pick(ids[2], "b")
    assert graph.snapshot("b").count("Knows") == 1
    graph.cherry_pick(ids[0], "b")
    assert ages(graph, "b") == ages(graph)


def ages(graph, branch="main"):
    rows = graph.snapshot(branch).read("Person", ["name", "age"]).to_pylist()
    return {row["name"]: row["age"] for row in rows}


# -- one state ------------------------------------------------------------------------------------


def test_time_travel_to_a_member_shows_the_group_and_says_so(graph):
    ids = one_group(graph)
    for index, commit in enumerate(ids):
        snapshot = graph.snapshot(commit=commit)
        assert snapshot.commit_id == ids[-1]
        assert snapshot.count("Knows") == 1
        text = "query q() { match { $p: Person } return { count($p) as n } }"
        target = graph.query(text, at=commit).target
        if index == 2:
            assert snapshot.group is None
            assert target == {"snapshot": commit}
        else:
            assert (snapshot.group.id, snapshot.group.index, snapshot.group.size) == (
                ids[-1],
                index,
                3,
            )
            assert target == {"snapshot": commit, "shows": ids[-1]}
    assert [graph.commit(commit).group.index for commit in ids] == [0, 1, 2]
    moment = datetime.fromtimestamp(graph.commit(ids[0]).created_at / 1e6, UTC)
    assert graph.snapshot(at=moment).count("Knows") == 1


def test_a_tag_of_a_member_says_which_state_it_shows(graph):
    ids = one_group(graph)
    made = [graph.tags.create(f"t{n}", commit) for n, commit in enumerate(ids)]
    assert [tag.commit_id for tag in made] == ids
    assert [tag.shows for tag in made] == [ids[-1], ids[-1], None]
    assert graph.tags.list() == made
    assert names(graph, tag="t0") == ["Ada", "Bob", "Cy"]


def test_cleanup_keeps_the_state_of_a_tagged_member_and_what_the_feed_needs(graph):
    cursor = graph.changes.poll(start="now").cursor
    ids = one_group(graph)
    graph.tags.create("kept", ids[0])
    for age in range(5):
        graph.load([person("Bob", age)])
    graph.maintenance.cleanup(
        keep_versions=1,
        min_age=_OLD,
        feed_retention=timedelta(days=1),
    )
    assert names(graph, tag="kept") == ["Ada", "Bob", "Cy"]
    page = graph.changes.poll(cursor=cursor)
    assert [changes(block.changes) for block in page.blocks[:3]] == OWN
    graph.maintenance.cleanup(keep_versions=1, min_age=_OLD)
    assert names(graph, tag="kept") == ["Ada", "Bob", "Cy"]


def test_the_feed_needs_the_state_before_a_group():
    now = datetime.now(UTC)
    day = timedelta(days=1)
    policy = CleanupPolicy(now, 1, None, _OLD, _OLD, feed=day)
    times = {"before": now - 3 * day, "last": now}
    states = [
        GraphState(
            None,
            number,
            now,
            CommitRow(commit, number, None, int(time.timestamp() * 1e6), f"parent of {commit}"),
            frozenset(),
        )
        for number, (commit, time) in enumerate(times.items(), start=1)
    ]
    assert feed_commits(policy, states) == {"last", "parent of last", "before"}


def test_a_branch_has_a_group_as_a_whole_and_merges_part_at_its_end(graph):
    ids = one_group(graph)
    graph.branches.create("b")
    graph.load([person("Eve", 1)], branch="b")
    graph.load([person("Max", 1)])
    every = {row.commit_id: row for row in [*rows_of(graph), *rows_of(graph, "b")]}
    heads = [graph.snapshot(name).commit_id for name in ("main", "b")]
    assert CommitGraph(every.values()).merge_bases(heads) == {ids[-1]}
    assert graph.merge("b").base == ids[-1]
    assert names(graph) == ["Ada", "Bob", "Cy", "Eve", "Max"]


def test_the_history_of_groups_is_valid(graph):
    one_group(graph)
    one_group(graph)
    report = graph.maintenance.verify()
    assert not report.problems
