"""Queries at earlier moments, however they are named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from omnigraph import Graph
from omnigraph.errors import CommitNotFound, HistoryGone, InputError, NotFound
from tests.read.conftest import column

NAMES = "match { $p: Person } return { $p.name }"
FRIENDS = 'match { $p: Person { name: "Alice" } $p knows $f } return { $f.name }'
BEFORE = ["Alice", "Bob", "Charlie", "Diana"]


@pytest.fixture
def moved(people):
    """Eve came, whom Alice knows; Diana went. Gives the commit and version before that."""
    head = people.commits()[0]
    people.tags.create("before")
    people.mutate(
        'query q() { insert Person { name: "Eve" } insert Knows { from: "Alice", to: "Eve" } }'
    )
    people.mutate('query q() { delete Person where name = "Diana" }')
    return head


def test_the_newest_state_is_the_default(people, moved):
    assert column(people, NAMES) == ["Alice", "Bob", "Charlie", "Eve"]
    assert column(people, FRIENDS) == ["Bob", "Charlie", "Eve"]


@pytest.mark.parametrize("how", ["commit", "version", "tag", "at"])
def test_an_earlier_state(people, moved, how):
    moment = datetime.fromtimestamp(moved.created_at / 1e6, UTC)
    choices = {
        "commit": {"commit": moved.commit_id},
        "version": {"version": moved.version},
        "tag": {"tag": "before"},
        "at": {"at": moment},
    }
    for graph in (people, Graph.open(people.uri, "r")):
        snapshot = graph.snapshot(**choices[how])
        assert column(graph, NAMES, snapshot=snapshot) == BEFORE
        assert column(graph, FRIENDS, snapshot=snapshot) == ["Bob", "Charlie"]


@pytest.mark.parametrize("how", ["commit", "tag", "time"])
def test_an_earlier_state_in_short(people, moved, how):
    moment = datetime.fromtimestamp(moved.created_at / 1e6, UTC)
    at = {"commit": moved.commit_id, "tag": "before", "time": moment}[how]
    for graph in (people, Graph.open(people.uri, "r")):
        assert column(graph, NAMES, at=at) == BEFORE
        assert column(graph, FRIENDS, at=at) == ["Bob", "Charlie"]


def test_a_branch_and_its_parent(people):
    people.branches.create("b")
    people.mutate('query q() { insert Person { name: "Zoe" } }', branch="b")
    people.mutate('query q() { insert Knows { from: "Alice", to: "Zoe" } }', branch="b")
    assert column(people, FRIENDS, branch="b") == ["Bob", "Charlie", "Zoe"]
    assert column(people, FRIENDS) == ["Bob", "Charlie"]
    assert "Zoe" not in column(people, NAMES)


def test_a_moment_before_the_first_commit(people):
    early = datetime.fromtimestamp(people.commits()[-1].created_at / 1e6, UTC) - timedelta(days=1)
    with pytest.raises(HistoryGone, match="no commit from that time"):
        column(people, NAMES, at=early)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"commit": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, CommitNotFound),
        ({"version": 99}, InputError),
        ({"tag": "nowhere"}, NotFound),
        ({"at": datetime(2024, 5, 1)}, InputError),
        ({"at": "yesterday"}, NotFound),
        ({"tag": "a", "version": 1}, InputError),
    ],
)
def test_states_that_there_are_none_of(people, how, error):
    with pytest.raises(error):
        people.snapshot(**how)


def test_one_entity_as_it_was(people, moved):
    actual = people.snapshot(version=moved.version).entity("Person", "Diana")
    assert actual == {"id": "Diana", "age": None, "city": None, "name": "Diana"}
    assert people.snapshot().entity("Person", "Diana") is None
    edge = people.snapshot().read("Knows", ["id"])["id"][0].as_py()
    actual = people.snapshot().entity("Knows", edge)
    assert (actual["src"], actual["since"]) == ("Alice", 2010)
    with pytest.raises(InputError):
        people.snapshot().entity("Nobody", "x")


def test_the_result_says_what_was_read(people, moved):
    text = f"query q() {{ {NAMES} }}"
    assert people.query(text).target == {"branch": "main"}
    assert people.query(text, at="before").target == {"snapshot": "before"}
