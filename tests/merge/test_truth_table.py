"""Every pair of changes on two sides: what comes out of merging them."""

from __future__ import annotations

import functools
import os
import shutil
from itertools import product

import pytest

from omnigraph import Graph
from omnigraph.errors import MergeConflicts
from omnigraph.merge.run import Outcome
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(3)

SCHEMAS = {
    "keyed": "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person",
    "unkeyed": "node Person { name: String?  age: I32? }\nedge Knows: Person -> Person",
}
AGES = {"Alice": 30, "Bob": 25, "Carol": 40, "Dan": 50}
UTD, FF, M = Outcome.UP_TO_DATE, Outcome.FAST_FORWARD, Outcome.MERGED


def person(name: str, age: int) -> dict:
    return {"type": "Person", "data": {"id": name, "name": name, "age": age}}


def knows(source: str, target: str, edge: str | None = None) -> dict:
    data = {} if edge is None else {"id": edge}
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def add_node(graph, branch, is_source):
    graph.load([person("Eve", 22 if is_source else 23)], branch=branch)


def remove_node(graph, branch, is_source):
    graph.mutate('query q() { delete Person where name = "Alice" }', branch=branch)


def add_edge(graph, branch, is_source):
    graph.load([knows("Alice", "Carol")], branch=branch)


def remove_edge(graph, branch, is_source):
    graph.mutate('query q() { delete Knows where from = "Bob" }', branch=branch)


def set_property(graph, branch, is_source):
    age = 31 if is_source else 32
    text = f'query q() {{ update Person set {{ age: {age} }} where name = "Alice" }}'
    graph.mutate(text, branch=branch)


def noop(graph, branch, is_source):
    pass


OPERATIONS = (noop, add_node, remove_node, add_edge, remove_edge, set_property)
CONFLICTS = {
    (add_node, add_node): ("divergent_insert", "node:Person", "Eve"),
    (remove_node, add_edge): ("orphan_edge", "edge:Knows", None),
    (remove_node, set_property): ("delete_vs_update", "node:Person", "Alice"),
    (add_edge, remove_node): ("orphan_edge", "edge:Knows", None),
    (set_property, remove_node): ("delete_vs_update", "node:Person", "Alice"),
    (set_property, set_property): ("divergent_update", "node:Person", "Alice"),
}


def expected(source, target):
    """Ages by name, and how many edges there are, after a clean merge."""
    done = {source, target}
    ages = dict(AGES)
    if add_node in done:
        ages["Eve"] = 22 if source is add_node else 23
    if set_property in done:
        ages["Alice"] = 31 if source is set_property else 32
    if remove_node in done:
        ages.pop("Alice")
    edges = 1 + (source is add_edge) + (target is add_edge) - (remove_edge in done)
    return ages, edges


def state(graph, branch):
    people = graph.snapshot(branch).read("Person", ["name", "age"]).to_pylist()
    edges = graph.snapshot(branch).read("Knows", ["id"])
    return {row["name"]: row["age"] for row in people}, edges.num_rows


def branches(shape, graph):
    """Where the source and the target of a merge are."""
    if shape == "flat":
        graph.branches.create("work")
        return "work", "main"
    graph.branches.create("team")
    graph.load([person("Zed", 1)], branch="team")
    graph.mutate('query q() { delete Person where name = "Zed" }', branch="team")
    graph.branches.create("work", "team")
    return "work", "team"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Gives a copy of the graph that all begins with; it is built once for each schema."""

    @functools.cache
    def built(schema):
        path = tmp_path_factory.mktemp("base") / "g.omni"
        with Graph.init(path, SCHEMAS[schema], durability="os") as graph:
            graph.load([person(name, age) for name, age in AGES.items()] + [knows("Bob", "Carol")])
        return path

    def get(schema, path):
        # No file of a graph is changed in place, so links are as good as copies.
        shutil.copytree(built(schema), path, copy_function=os.link)
        return Graph.open(path, durability="os")

    return get


@pytest.mark.parametrize(
    ("shape", "schema"), rotating([*product(["flat", "nested"], SCHEMAS)], 1, "truth table")
)
@pytest.mark.parametrize(
    ("source", "target"), [*product(OPERATIONS, OPERATIONS)], ids=lambda one: one.__name__
)
def test_every_pair_of_changes(source, target, shape, schema, copy, tmp_path):
    with copy(schema, tmp_path / "g.omni") as graph:
        work, into = branches(shape, graph)
        source(graph, work, True)
        target(graph, into, False)
        before, commits = state(graph, into), graph.commits(into)
        conflict = CONFLICTS.get((source, target))
        if conflict is not None:
            with pytest.raises(MergeConflicts) as caught:
                graph.merge(work, into)
            (actual,) = caught.value.details["conflicts"]
            row_id = actual["row_id"] if conflict[2] is not None else None
            assert (actual["kind"], actual["table_key"], row_id) == conflict
            assert state(graph, into) == before
            assert graph.commits(into) == commits
            return
        report = graph.merge(work, into)
        assert report.outcome is (UTD if source is noop else FF if target is noop else M)
        assert state(graph, into) == expected(source, target)
        assert (report.commit_id is None) == (source is noop)
        assert graph.merge(work, into).outcome is UTD
        # And back: the other side has nothing of its own any more.
        back = graph.merge(into, work)
        assert back.outcome in (UTD, FF)
        assert state(graph, work) == state(graph, into)
