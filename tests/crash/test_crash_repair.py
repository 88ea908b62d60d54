"""A repair that dies somewhere: the graph shows what it showed, or all that was taken over."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from omnigraph import Graph
from tests.crash import operations
from tests.crash.harness import Harness, Prepared
from tests.crash.operations import rows
from tests.crash.survival import State, check_tidy, files_of

pytestmark = pytest.mark.rotates(3)

STRIDE = 7


def drifted(root: Path) -> None:
    """Two tables that somebody wrote to past the graph."""
    with Graph.init(root, operations.SCHEMA, durability="os") as graph:
        graph.append(rows("Person", "Ada", "Bob") | rows("Company", "Acme"))
        graph.append(rows("Knows", "k1", "k3"))
        pins = graph._handle.store.manifest(None).current().pins
    lance.dataset(str(root / pins["node:Person"].location)).delete("id = 'Bob'")
    lance.dataset(str(root / pins["edge:Knows"].location)).optimize.compact_files()
    lance.dataset(str(root / pins["edge:Knows"].location)).delete("id = 'k3'")


def state(root: Path) -> State:
    with Graph.open(root, "r") as graph:
        return State.of(graph)


@pytest.fixture
def target(crash: Harness, arena: Path, request: pytest.FixtureRequest):
    """The graph, and what it shows before and after."""
    root = arena / request.node.name / "graph"
    root.parent.mkdir()
    drifted(root)
    prepared = Prepared.of(root, root.with_name("as-it-was"))
    before = state(root)
    crash.crossings(operations.repair, root)
    return prepared, before, state(root)


def check(root: Path, before: State, after: State) -> bool:
    """What a crash left is one or the other; it is opened, repaired and written to."""
    actual = files_of(root)
    left = state(root)
    assert files_of(root) == actual
    assert left in (before, after)
    with Graph.open(root, durability="os") as graph:
        assert State.of(graph) == left
        report = graph.maintenance.repair(confirm=True, force=True)
        assert (report.commit_id is None) is (left == after)
        assert State.of(graph) == after
        check_tidy(graph, root)
        assert graph.maintenance.repair(confirm=True, force=True).commit_id is None
        graph.append(rows("Person", "Carl") | rows("Knows", "k9"))
        check_tidy(graph, root)
    return left == after


def test_a_repair_that_dies_at_a_boundary_took_over_all_or_nothing(crash: Harness, target):
    prepared, before, after = target
    assert before != after
    done = [
        check(prepared.root, before, after)
        for _ in crash.walk_failpoints(operations.repair, prepared)
    ]
    assert done == sorted(done)
    assert len(done) >= 2


@pytest.mark.parametrize("stride", [STRIDE, pytest.param(1, marks=pytest.mark.slow)])
def test_a_repair_that_dies_at_a_step_took_over_all_or_nothing(crash: Harness, target, stride):
    prepared, before, after = target
    done = [
        check(prepared.root, before, after)
        for _ in crash.walk_steps(operations.repair, prepared, stride=stride)
    ]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (False, True)
