"""Merges, reverts, picked commits and tags under an idempotency key: done once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph, MergeReport
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import BranchNotFound, IdempotencyKeyReused, MergeConflicts
from tests.commit.deaths import Died
from tests.commit.world import at, raising

SCHEMA = "node Person { name: String @key  age: I32? }"
ADD = "query q($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
SET = "query q($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
Call = Callable[[Graph], MergeReport]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        add(graph, "Ada", "main")
        graph.branches.create("side")
        add(graph, "Bea", "side")
        yield graph


def add(graph: Graph, name: str, branch: str) -> str:
    receipt = graph.mutate(ADD, params={"name": name, "age": 1}, branch=branch)
    assert receipt.commit_id is not None
    return receipt.commit_id


def names(graph: Graph, branch: str = "main") -> list[str]:
    text = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"
    return [row["p.name"] for row in graph.query(text, branch=branch).rows()]


def calls(graph: Graph) -> dict[str, Call]:
    """Each kind of call under the key ``k``."""
    on_side, on_main = graph.commits("side")[0].commit_id, graph.commits()[0].commit_id
    return {
        "merge": lambda g: g.merge("side", idempotency_key="k"),
        "three-way merge": lambda g: g.merge("side", resolve="ours", idempotency_key="k"),
        "revert": lambda g: g.revert(on_main, idempotency_key="k"),
        "cherry-pick": lambda g: g.cherry_pick(on_side, idempotency_key="k"),
    }


KINDS = ("merge", "three-way merge", "revert", "cherry-pick")


@pytest.fixture(params=KINDS)
def call(request: pytest.FixtureRequest, graph: Graph) -> Call:
    if request.param == "three-way merge":
        for branch, age in (("main", 2), ("side", 3)):
            graph.mutate(SET, params={"name": "Ada", "age": age}, branch=branch)
    return calls(graph)[request.param]


def test_a_repeated_call_returns_the_first_report(graph: Graph, call: Call) -> None:
    first = call(graph)
    assert first.commit_id is not None
    add(graph, "later", "main")
    add(graph, "later", "side")
    count = len(graph.commits())
    assert call(graph) == first
    with Graph.open(graph.uri) as other:
        assert call(other) == first
    assert len(graph.commits()) == count


def test_the_key_of_another_call_is_refused(graph: Graph, call: Call) -> None:
    call(graph)
    count = len(graph.commits())
    for other in (
        lambda: graph.merge("side", resolve="theirs", idempotency_key="k"),
        lambda: graph.revert(graph.commits()[0].commit_id, idempotency_key="k"),
        lambda: graph.mutate(ADD, params={"name": "x"}, idempotency_key="k"),
    ):
        with pytest.raises(IdempotencyKeyReused):
            other()
    assert len(graph.commits()) == count


def test_a_key_is_one_of_its_branch(graph: Graph) -> None:
    graph.branches.create("copy")
    assert graph.merge("side", idempotency_key="k").commit_id is not None
    assert graph.merge("side", "copy", idempotency_key="k").target == "copy"
    assert names(graph, "copy") == names(graph) == ["Ada", "Bea"]


def test_calls_at_the_same_time_make_one_commit(graph: Graph, call: Call) -> None:
    count = len(graph.commits())
    with Graph.open(graph.uri) as other, ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(call, (graph, other, graph, other)))
    assert reports == [reports[0]] * 4
    assert len(graph.commits()) == count + 1


@pytest.mark.parametrize(
    "point", [Failpoint.WRITE_AFTER_TABLES, Failpoint.WRITE_AFTER_PUBLISH], ids=str
)
def test_a_call_that_died_is_found_under_its_key(
    graph: Graph, call: Call, point: Failpoint
) -> None:
    count = len(graph.commits())
    with at(point, raising(Died())), pytest.raises(Died):
        call(graph)
    with Graph.open(graph.uri) as other:
        again = call(other)
        assert again.commit_id is not None
        assert call(other) == again
        assert len(other.commits()) == count + 1


def test_a_branch_that_was_deleted_with_its_merge_is_not_missed(graph: Graph) -> None:
    def merge() -> MergeReport:
        return graph.merge("side", delete_branch=True, idempotency_key="k")

    first = merge()
    assert (first.branch_deleted, merge()) == (True, first)
    # Made again, it is another branch, with work that nobody has merged.
    graph.branches.create("side")
    add(graph, "Cy", "side")
    again = merge()
    assert (again.commit_id, again.branch_deleted) == (first.commit_id, False)
    assert "Cy" in names(graph, "side")
    with pytest.raises(BranchNotFound):
        graph.merge("nowhere", idempotency_key="other")


def test_a_merge_that_made_no_commit_leaves_no_key(graph: Graph) -> None:
    graph.mutate(SET, params={"name": "Ada", "age": 2})
    graph.mutate(SET, params={"name": "Ada", "age": 3}, branch="side")
    with pytest.raises(MergeConflicts):
        graph.merge("side", idempotency_key="k")
    assert graph.merge("side", dry_run=True, idempotency_key="k").commit_id is None
    resolved = graph.merge("side", resolve="ours", idempotency_key="k")
    assert resolved.resolved
    assert graph.merge("side", resolve="ours", idempotency_key="k") == resolved
    assert graph.merge("side", idempotency_key="l").commit_id is None


def test_a_tag_is_made_once(graph: Graph) -> None:
    def tag(name: str = "v1", **options: Any) -> Any:
        return graph.tags.create(name, idempotency_key="k", **options)

    first = tag()
    add(graph, "later", "main")
    assert tag() == first
    assert first.commit_id != graph.commits()[0].commit_id
    for name, options in (("v2", {}), ("v1", {"move": True}), ("v1", {"branch": "side"})):
        with pytest.raises(IdempotencyKeyReused):
            tag(name, **options)
    assert [tag.name for tag in graph.tags.list()] == ["v1"]
    with Graph.open(graph.uri) as other:
        assert other.tags.create("v1", idempotency_key="k") == first
    # Somebody moves it: the key is that of a tag that is no more.
    graph.tags.create("v1", move=True)
    assert graph.maintenance.verify().is_sound
