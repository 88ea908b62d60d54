"""Every pair of changes to edges that have ids of their own, as the truth table has for nodes."""

from __future__ import annotations

from itertools import product

import pytest

from omnigraph import Graph
from omnigraph.errors import MergeConflicts
from omnigraph.merge.run import Outcome

SCHEMA = "node P { name: String @key }\nedge K: P -> P { w: I32? }"


def edge(row_id: str, source: str, target: str, w: int) -> dict:
    return {"edge": "K", "from": source, "to": target, "data": {"id": row_id, "w": w}}


def noop(graph, branch, side):
    pass


def add(graph, branch, side):
    graph.load([edge("new", "a", "b", side)], branch=branch)


def remove(graph, branch, side):
    graph.mutate("query q() { delete K where w = 0 }", branch=branch)


def change(graph, branch, side):
    graph.load([edge("old", "a", "b", side)], branch=branch)


def move(graph, branch, side):
    graph.load([edge("old", "a", "c" if side == 1 else "a", 0)], branch=branch)


OPERATIONS = (noop, add, remove, change, move)
CONFLICTS = {
    (add, add): ("divergent_insert", "new"),
    (remove, change): ("delete_vs_update", "old"),
    (remove, move): ("delete_vs_update", "old"),
    (change, remove): ("delete_vs_update", "old"),
    (move, remove): ("delete_vs_update", "old"),
    (change, change): ("divergent_update", "old"),
    (move, move): ("divergent_update", "old"),
}


def expected(source, target):
    """Edges by id, as (end, w), after a clean merge."""
    done = {source: 1, target: 2} if source is not target else {source: 1}
    actual = {"old": ("b", 0)}
    if change in done:
        actual["old"] = (actual["old"][0], done[change])
    if move in done:
        actual["old"] = ("c" if done[move] == 1 else "a", actual["old"][1])
    if remove in done:
        del actual["old"]
    if add in done:
        actual["new"] = ("b", done[add])
    return actual


def state(graph):
    rows = graph.snapshot().read("K", ["id", "dst", "w"]).to_pylist()
    return {row["id"]: (row["dst"], row["w"]) for row in rows}


@pytest.mark.parametrize(
    ("source", "target"), [*product(OPERATIONS, OPERATIONS)], ids=lambda one: one.__name__
)
def test_every_pair_of_changes_to_edges(source, target, tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        people = [{"type": "P", "data": {"name": name}} for name in "abc"]
        graph.load([*people, edge("old", "a", "b", 0)])
        graph.branches.create("work")
        source(graph, "work", 1)
        target(graph, "main", 2)
        before = state(graph)
        conflict = CONFLICTS.get((source, target))
        if conflict is not None:
            with pytest.raises(MergeConflicts) as caught:
                graph.merge("work")
            (actual,) = caught.value.details["conflicts"]
            assert (actual["kind"], actual["row_id"]) == conflict
            assert state(graph) == before
            return
        report = graph.merge("work")
        assert state(graph) == expected(source, target)
        assert (report.outcome is Outcome.UP_TO_DATE) == (source is noop)
