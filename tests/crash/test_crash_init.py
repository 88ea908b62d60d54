"""A graph that is being created when its creator dies: it is there, or it can be created again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import AlreadyInitialized, GraphNotFound
from tests.crash import operations
from tests.crash.harness import Harness, Operation, Prepared
from tests.crash.operations import rows
from tests.crash.survival import State, check_tidy, files_of

pytestmark = pytest.mark.rotates(3)

INITS = (operations.init, operations.init_by_force)
STRIDE = 17


@pytest.fixture
def begun(crash: Harness, arena: Path, request: pytest.FixtureRequest):
    """A place for the operation: an empty one, or for ``force`` what a dead init left."""

    def get(operation: Operation) -> Prepared:
        root = arena / request.node.name / "graph"
        root.mkdir(parents=True)
        if operation is operations.init_by_force:
            died = crash.kill_at_failpoint(operations.init, root, Failpoint.INIT_AFTER_TABLES)
            assert died.killed
        return Prepared.of(root, root.with_name("as-it-was"))

    return get


def check(root: Path) -> bool:
    """Look at what is left, and make a graph of it if it is none; gives whether it was one."""
    actual = files_of(root)
    try:
        with Graph.open(root, "r") as graph:
            assert State.of(graph).rows["main"]["Person"] == []
        created = True
    except GraphNotFound:
        created = False
        with pytest.raises(GraphNotFound):
            Graph.open(root)
    assert files_of(root) == actual, "opening changed something"
    if not created:
        _create(root)
    with pytest.raises(AlreadyInitialized):
        Graph.init(root, operations.SCHEMA)
    with pytest.raises(AlreadyInitialized):
        Graph.init(root, operations.SCHEMA, force=True)
    with Graph.open(root) as graph:
        assert len(graph.commits()) == 1
        graph.append(
            rows("Person", "Ada")
            | rows("Company", "Acme")
            | rows("Knows", "k1")
            | rows("WorksAt", "w1")
        )
        check_tidy(graph, root)
        assert all(len(actual) == 1 for actual in State.of(graph).rows["main"].values())
    return created


def _create(root: Path) -> None:
    try:
        Graph.init(root, operations.SCHEMA).close()
    except AlreadyInitialized:
        Graph.init(root, operations.SCHEMA, force=True).close()


every_init = pytest.mark.parametrize("operation", INITS)
Begin = Callable[[Operation], Prepared]


@every_init
def test_whoever_dies_at_a_boundary_of_init_leaves_a_graph_or_a_place_for_one(
    crash: Harness, begun: Begin, operation: Operation
):
    prepared = begun(operation)
    created = [check(prepared.root) for _ in crash.walk_failpoints(operation, prepared)]
    assert created == [False, False, False, True]


@every_init
def test_whoever_dies_at_some_step_of_init_leaves_a_graph_or_a_place_for_one(
    crash: Harness, begun: Begin, operation: Operation
):
    prepared = begun(operation)
    walk = crash.walk_steps(operation, prepared, start=3, stride=STRIDE)
    created = [check(prepared.root) for _ in walk]
    assert created == sorted(created)
    assert created[-1]


@pytest.mark.slow
@every_init
def test_whoever_dies_at_any_step_of_init_leaves_a_graph_or_a_place_for_one(
    crash: Harness, begun: Begin, operation: Operation
):
    prepared = begun(operation)
    created = [check(prepared.root) for _ in crash.walk_steps(operation, prepared)]
    assert created == sorted(created)
    assert created[-1]
    print(f"{operation.__name__}: {len(created) - 1} steps")
