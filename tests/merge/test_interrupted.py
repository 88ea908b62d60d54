"""A merge that is interrupted is finished when its tables had moved, and otherwise taken back."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.merge.run import Outcome
from tests.commit.deaths import Died
from tests.commit.world import at, hooked, raising

pytestmark = pytest.mark.rotates(3)

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""
TABLES = ("Person", "Company", "Knows", "WorksAt")
INTO = ("main", "team")


def person(name, age):
    return {"type": "Person", "data": {"name": name, "age": age}}


def edge(kind, source, target, name):
    return {"edge": kind, "from": source, "to": target, "data": {"id": name}}


@pytest.fixture(params=INTO)
def into(request):
    return request.param


@pytest.fixture
def path(tmp_path, into):
    """A graph where merging ``work`` inserts, changes and deletes."""
    path = tmp_path / "g.omni"
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.load(
            [
                person("Ada", 1),
                person("Bob", 2),
                {"type": "Company", "data": {"name": "Acme"}},
                edge("Knows", "Ada", "Bob", "k1"),
            ]
        )
        graph.branches.create("work")
        graph.branches.create("team")
        graph.load(
            [
                person("Ada", 9),
                person("Carl", 3),
                {"type": "Company", "data": {"name": "Beta"}},
                edge("WorksAt", "Carl", "Beta", "w1"),
            ],
            branch="work",
        )
        graph.mutate('query q() { delete Person where name = "Bob" }', branch="work")
        graph.load([person("Dora", 4)], branch=into)
    return path


def state(graph, branch):
    snapshot = graph.snapshot(branch)
    return {name: sorted(map(str, snapshot.read(name).to_pylist())) for name in TABLES}


def interrupted(path, into, point, occurrence):
    """Die at a boundary when it was passed so often; gives the source's newest commit."""
    passed = []

    def count(here):
        passed.append(here)
        if passed.count(point) == occurrence:
            raise Died

    with Graph.open(path, durability="os") as graph:
        with hooked(count), pytest.raises(Died):
            graph.merge("work", into)
        return graph.snapshot("work").commit_id


def test_after_all_tables_it_is_finished_with_both_parents(path, into):
    source = interrupted(path, into, Failpoint.WRITE_AFTER_TABLES, 1)
    with Graph.open(path) as graph:
        newest = graph.commits(into)[0]
        assert newest.merged_parent == source
        assert newest.completes
        people = graph.snapshot(into).read("Person", ["name", "age"]).to_pylist()
        assert {row["name"]: row["age"] for row in people} == {"Ada": 9, "Carl": 3, "Dora": 4}
        assert graph.snapshot(into).count("Knows") == 0
        assert graph.merge("work", into).outcome is Outcome.UP_TO_DATE
        assert graph.merge(into, "work").outcome is Outcome.FAST_FORWARD


@pytest.mark.parametrize("occurrence", [1, 2, 3])
def test_between_tables_it_is_taken_back_and_can_be_repeated(path, into, occurrence):
    with Graph.open(path, "r") as graph:
        before = state(graph, into)
    interrupted(path, into, Failpoint.WRITE_BETWEEN_TABLES, occurrence)
    with Graph.open(path) as graph:
        assert state(graph, into) == before
        assert graph.commits(into)[0].merged_parent is None
        assert graph.merge("work", into).outcome is Outcome.MERGED
        assert graph.snapshot(into).count("Company") == 2


def test_before_any_table_it_leaves_nothing(path, into):
    with Graph.open(path, "r") as graph:
        before = state(graph, into)
    interrupted(path, into, Failpoint.WRITE_AFTER_SIDECAR, 1)
    with Graph.open(path) as graph:
        assert state(graph, into) == before
        assert graph.merge("work", into).outcome is Outcome.MERGED


def test_what_it_leaves_names_the_branch_that_it_merges_into(path, into):
    source = interrupted(path, into, Failpoint.WRITE_AFTER_TABLES, 1)
    (file,) = (path / "__recovery").glob("*.json")
    reported = json.loads(file.read_text())
    assert reported["writer_kind"] == "BranchMerge"
    assert reported["merge_source_commit_id"] == source
    assert reported.get("branch") == (None if into == "main" else into)
    assert {pin.get("table_branch") for pin in reported["tables"]} == {reported.get("branch")}


def test_a_merge_that_changes_nothing_leaves_nothing_to_finish(tmp_path):
    path = tmp_path / "g.omni"
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.branches.create("work")
        for branch in ("main", "work"):
            graph.load([person("Ada", 1)], branch=branch)
        before = graph.snapshot().commit_id
        point = Failpoint.WRITE_AFTER_SIDECAR
        with at(point, raising(Died())), pytest.raises(Died):
            graph.merge("work")
        assert list((path / "__recovery").glob("*.json")) == []
        assert graph.snapshot().commit_id == before
        assert graph.merge("work").outcome is Outcome.MERGED
