"""Which versions and states go: the rules alone, without a graph."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from omnigraph.commit.ancestry import CommitGraph
from omnigraph.commit.rows import CommitRow
from omnigraph.maintain.cleanup.retention import (
    CleanupPolicy,
    GraphState,
    Needs,
    expired_versions,
    feed_commits,
    kept_states,
    recent_states,
)
from omnigraph.storage.tables.types import TableRef, TableVersion
from omnigraph.storage.tables.versions import VersionStamp

NOW = datetime(2026, 1, 10, tzinfo=UTC)
MAIN, FEAT = TableRef("nodes/p"), TableRef("nodes/p", "feat")


def hours(count):
    return timedelta(hours=count)


def policy(keep=None, older_than=None, min_age=0.0, feed=None):
    older = None if older_than is None else hours(older_than)
    return CleanupPolicy(NOW, keep, older, hours(min_age), hours(min_age), feed and hours(feed))


# Version 1 is ten hours old, version 10 one hour; 4 and 5 went earlier.
STAMPS = [VersionStamp(n, NOW - hours(11 - n)) for n in (1, 2, 3, 6, 7, 8, 9, 10)]


@pytest.mark.parametrize(
    ("limits", "going"),
    [
        (policy(keep=3), [1, 2, 3, 6, 7]),
        (policy(keep=0), [1, 2, 3, 6, 7, 8, 9]),
        (policy(keep=8), []),
        (policy(keep=80), []),
        (policy(older_than=0), [1, 2, 3, 6, 7, 8, 9]),
        (policy(older_than=5), [1, 2, 3, 6]),
        (policy(older_than=100), []),
        (policy(keep=6, older_than=5), [1, 2]),
        (policy(keep=1, older_than=9), [1, 2]),
        (policy(keep=1, min_age=8.5), [1, 2]),
    ],
)
def test_a_version_goes_that_is_behind_every_limit(limits, going):
    assert expired_versions(limits, MAIN, STAMPS, Needs()) == going


def test_a_version_that_is_needed_stays_on_its_copy_alone():
    needs = Needs({TableVersion("nodes/p", "feat", 2), TableVersion("nodes/q", None, 3)})
    needs.add_head([TableVersion("nodes/p", "feat", 9), TableVersion("nodes/p", "feat", 7)])
    assert expired_versions(policy(keep=1), FEAT, STAMPS, needs) == [1, 3, 6]
    assert expired_versions(policy(keep=1), MAIN, STAMPS, needs) == [1, 2, 3, 6, 7, 8, 9]


def commit(name, version, branch=None, parent=None, merged=None, age=0.0):
    made = int((NOW - hours(age)).timestamp() * 1_000_000)
    return CommitRow(name, version, branch, made, parent, merged)


def state(version, row=None, locations=(), age=0.0):
    shown = frozenset(TableVersion("nodes/p", None, location) for location in locations)
    return GraphState(None, version, NOW - hours(age), row, shown)


def test_a_state_stays_when_all_that_it_shows_does():
    kept = {TableVersion("nodes/p", None, n): n in (1, 3) for n in (1, 2, 3)}
    states = [state(n, commit(f"c{n}", n), [n]) for n in (1, 2, 3)]
    both = state(4, commit("c4", 4), [1, 2])
    assert kept_states([*states, both, state(5, None, [3])], kept, ()) == {1, 3, 5}
    assert kept_states([*states, both], kept, {2}) == {1, 2, 3, 4}


def test_a_commit_stays_that_became_a_later_version_than_it_was_meant_to():
    """It is looked for from the version on that it names, so those stay until it is met."""
    kept = {TableVersion("nodes/p", None, n): n == 2 for n in (1, 2, 3)}
    states = [
        state(4, commit("a", 4), [1]),
        state(5, commit("a", 4), [1]),
        state(6, commit("a", 4), [1]),
        state(7, commit("b", 5), [2]),
        state(8, commit("c", 8), [3]),
    ]
    assert kept_states(states, kept, ()) == {5, 6, 7, 8}


def test_what_was_shown_within_some_time_is_young():
    states = [state(n, age=age) for n, age in ((1, 9.0), (2, 6.0), (3, 4.0), (4, 1.0))]
    actual = [s.version for s in recent_states(policy(), states, hours(5))]
    assert actual == [2, 3, 4]
    assert [s.version for s in recent_states(policy(), states, hours(0))] == [4]
    assert len(recent_states(policy(), states, hours(50))) == 4


def test_a_feed_needs_its_commits_and_what_they_came_after():
    rows = [commit(f"c{n}", n, parent=f"c{n - 1}", age=10.0 - n) for n in range(1, 10)]
    states = [state(row.manifest_version, row) for row in rows]
    assert feed_commits(policy(feed=2.5), states) == {"c7", "c8", "c9"}
    assert feed_commits(policy(), states) == set()


def lineage(*rows, gone=()):
    commits = {name: commit(name, 0, parent=p, merged=m) for name, p, m in rows}
    return CommitGraph(commits.values(), lambda name: name not in gone)


FORKED = (("r", None, None), ("s", "r", None), ("a", "s", None), ("b", "s", None), ("c", "r", None))
REACHED = (
    ("r", None, None),
    ("a", "r", None),
    ("b", "r", None),
    ("ab", "a", "b"),
    ("ba", "b", "a"),
)


def test_what_two_branches_came_from_is_needed():
    assert lineage(*FORKED).merge_bases(["a", "b"]) == {"s"}
    assert lineage(*FORKED).merge_bases(["a", "b", "c"]) == {"s", "r"}
    assert lineage(*FORKED).merge_bases(["s", "b"]) == {"s"}
    assert lineage(*FORKED).merge_bases(["a", "a"]) == set()


def test_crossed_merges_need_all_bases_and_what_those_came_from():
    assert lineage(*REACHED).merge_bases(["ab", "ba"]) == {"a", "b", "r"}


def test_a_base_that_is_gone_is_replaced_by_what_came_before_it():
    assert lineage(*FORKED, gone=["s"]).merge_bases(["a", "b"]) == {"r"}
    assert lineage(*FORKED, gone=["s", "r"]).merge_bases(["a", "b"]) == set()
