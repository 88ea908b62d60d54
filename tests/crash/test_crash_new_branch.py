"""A load that creates its branch and dies: the branch is there with the load, or not at all.

Whether it is reopened or repeated by a handle that lived on, a branch to which nothing was
committed is removed first, so that the repeat starts from the base as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.receipts import LoadReceipt
from tests.crash import operations
from tests.crash.harness import Harness, Operation, Prepared
from tests.crash.operations import NEW, rows
from tests.crash.scenarios import plain
from tests.crash.survival import check_tidy
from tests.rotation import in_turn, sample

pytestmark = pytest.mark.rotates(6)

Repeat = Callable[[Graph], LoadReceipt]
PARTS = 4
"""A long walk is divided, so that several processes share it."""
LOADS = {
    "local": (operations.load_on_new_branch, operations.new_branch_load),
    "shares": (operations.load_in_splits_on_new_branch, operations.new_branch_load_in_splits),
}
EMPTY = (
    Failpoint.BRANCH_AFTER_CLAIM,
    Failpoint.BRANCH_AFTER_CREATE,
    Failpoint.WRITE_AFTER_LEASES,
    Failpoint.WRITE_AFTER_FORK,
    Failpoint.WRITE_AFTER_SIDECAR,
    Failpoint.WRITE_BETWEEN_TABLES,
)
"""Boundaries at which nothing was published, and of which nothing can be."""

every_load = pytest.mark.parametrize(("operation", "repeat"), LOADS.values(), ids=list(LOADS))


@pytest.fixture
def prepared(crash: Harness, arena: Path, tmp_path: Path) -> Prepared:
    root = arena / tmp_path.name / "graph"
    root.parent.mkdir()
    plain(root, crash)
    return Prepared.of(root, tmp_path / "as-it-was")


def names(graph: Graph, branch: str) -> set[str]:
    return set(graph.snapshot(branch).read("Person", ["name"])["name"].to_pylist())


def is_loaded(graph: Graph) -> bool:
    """Whether the load that was killed is there."""
    return NEW in graph.branches.list() and "Grace" in names(graph, NEW)


def claims(root: Path) -> list[str]:
    return [path.name for path in (root / "__recovery").glob("*.branch")]


def check_repeat(graph: Graph, root: Path, repeat: Repeat) -> None:
    """Repeat the load when its base has moved on."""
    graph.append(rows("Person", "Zoe"))
    was_loaded = is_loaded(graph)
    receipt = repeat(graph)
    assert receipt.branch_created
    assert receipt.commit_id == repeat(graph).commit_id
    added = {"Grace"} if was_loaded else {"Grace", "Zoe"}
    assert names(graph, NEW) == {"Ada", "Bob"} | added
    assert names(graph, "main") == {"Ada", "Bob", "Zoe"}
    assert claims(root) == []
    check_tidy(graph, root)


def check_survival(root: Path, repeat: Repeat) -> None:
    """What a crash left, by an open and by the repeat that follows."""
    with Graph.open(root) as graph:
        assert NEW not in graph.branches.list() or is_loaded(graph)
        assert claims(root) == []
        check_tidy(graph, root)
        check_repeat(graph, root, repeat)


def check_points(
    crash: Harness, prepared: Prepared, load: str, points: Sequence[Failpoint]
) -> None:
    """Die at boundaries; a handle that lived on repeats the load, or one that is opened does."""
    operation, repeat = LOADS[load]
    for point in points:
        with Graph.open(prepared.put_back()) as living:
            assert crash.kill_at_failpoint(operation, prepared.root, point).killed
            check_repeat(living, prepared.root, repeat)
        crash.kill_at_failpoint(operation, prepared.put_back(), point)
        check_survival(prepared.root, repeat)


@pytest.mark.parametrize("load", LOADS)
def test_whoever_dies_at_one_of_some_boundaries_leaves_no_branch_without_its_load(
    crash: Harness, prepared: Prepared, load: str
):
    check_points(crash, prepared, load, sample(EMPTY, 2, f"new branch {load}"))


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_whoever_dies_at_any_boundary_leaves_no_branch_without_its_load(
    crash: Harness, prepared: Prepared, load: str
):
    reached = crash.crossings(LOADS[load][0], prepared.put_back())
    assert set(EMPTY) < set(reached)
    check_points(crash, prepared, load, reached)


@pytest.mark.slow
@every_load
def test_whoever_dies_at_any_step_leaves_no_branch_without_its_load(
    crash: Harness, prepared: Prepared, operation: Operation, repeat: Repeat
):
    for _ in crash.walk_steps(operation, prepared):
        check_survival(prepared.root, repeat)


@pytest.mark.slow
@pytest.mark.parametrize("part", in_turn(range(PARTS), PARTS))
def test_whoever_removes_such_a_branch_may_die_too(
    crash: Harness, prepared: Prepared, tmp_path: Path, part: int
):
    operation, repeat = LOADS["local"]
    for number, _ in enumerate(crash.walk_failpoints(operation, prepared)):
        if number % PARTS != part:
            continue
        crashed = Prepared.of(prepared.root, tmp_path / str(number))
        for _ in crash.walk_steps(operations.reopen, crashed):
            check_survival(crashed.root, repeat)


# -- what is not removed --------------------------------------------------------------------------


def dead(crash: Harness, prepared: Prepared, point: Failpoint) -> Path:
    root = prepared.put_back()
    assert crash.kill_at_failpoint(operations.load_on_new_branch, root, point).killed
    return root


def test_a_branch_that_somebody_committed_to_stays(crash: Harness, prepared: Prepared):
    for point in (Failpoint.BRANCH_AFTER_CREATE, Failpoint.WRITE_BETWEEN_TABLES):
        with Graph.open(prepared.put_back()) as living:
            dead(crash, prepared, point)
            living.append(rows("Person", "Carl"), branch=NEW)
            living.append(rows("Person", "Zoe"))
            receipt = operations.new_branch_load(living)
            assert not receipt.branch_created
            assert names(living, NEW) == {"Ada", "Bob", "Carl", "Grace"}
            assert claims(prepared.root) == []


def test_a_branch_that_another_was_made_from_stays(crash: Harness, prepared: Prepared):
    with Graph.open(prepared.put_back()) as living:
        root = dead(crash, prepared, Failpoint.BRANCH_AFTER_CREATE)
        living.branches.create("child", NEW)
        living.refresh()
        assert list(living.branches.list()) == ["main", "child", NEW]
        assert claims(root) == []


def test_a_branch_that_somebody_else_made_meanwhile_stays(crash: Harness, prepared: Prepared):
    """The load had announced the name and died; then a user, or another program, took it."""
    with Graph.open(prepared.put_back()) as living:
        root = dead(crash, prepared, Failpoint.BRANCH_AFTER_CLAIM)
        assert len(claims(root)) == 1
        living.branches.create(NEW)
        assert claims(root) == []
        living.refresh()
        assert NEW in living.branches.list()


def test_a_branch_of_the_same_name_made_later_stays(crash: Harness, prepared: Prepared):
    """The claim names the reference that was made: one that was made anew is another."""
    with Graph.open(prepared.put_back()) as living:
        root = dead(crash, prepared, Failpoint.WRITE_AFTER_LEASES)
        (claim,) = (root / "__recovery").glob("*.branch")
        said = claim.read_bytes()
        living.refresh()
        living.branches.create(NEW)
        claim.write_bytes(said)
        living.refresh()
        assert NEW in living.branches.list()
        assert claims(root) == []


def test_a_name_of_a_dead_load_can_be_used(crash: Harness, prepared: Prepared):
    for point in EMPTY[1:3]:
        with Graph.open(prepared.put_back()) as living:
            root = dead(crash, prepared, point)
            living.append(rows("Person", "Zoe"))
            living.branches.create(NEW)
            assert names(living, NEW) == {"Ada", "Bob", "Zoe"}
            assert claims(root) == []


def test_a_claim_that_cannot_be_read_is_in_nobodys_way(crash: Harness, prepared: Prepared):
    root = dead(crash, prepared, Failpoint.BRANCH_AFTER_CREATE)
    (claim,) = (root / "__recovery").glob("*.branch")
    for text in ("", "{", "[]", "{}", '{"branch": 7}'):
        claim.write_text(text)
        with Graph.open(root) as graph:
            assert NEW in graph.branches.list()
