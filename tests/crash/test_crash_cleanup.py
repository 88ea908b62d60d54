"""A cleanup that dies somewhere: the graph reads the same, and the next cleanup ends its work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import Graph, verify_graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import HistoryGone
from omnigraph.maintain.verify import ProblemCode
from tests.crash import operations
from tests.crash.harness import Harness
from tests.crash.scenarios import SCENARIOS, Ready, Scenario
from tests.crash.survival import State
from tests.rotation import sample

pytestmark = pytest.mark.rotates(6)

Get = Callable[[Scenario], Ready]
CLEANUP = next(scenario for scenario in SCENARIOS if scenario.operation is operations.clean_up)
HARD_DROP = next(s for s in SCENARIOS if s.operation is operations.apply_drop)
STRIDE = 97
PARTS = 4
"""A long walk is divided, so that several processes share it."""
FOLDERS = ("_versions", "data", "_deletions", "_indices", "_refs")


def kept(root: Path) -> list[str]:
    """What there is of tables and of the manifest, but for names that are chosen at random."""
    matches = []
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and any(part in FOLDERS for part in parts[:-1]):
            is_random = parts[-2] in ("data", "_deletions")
            matches.append("/".join((*parts[:-1], "*") if is_random else parts))
    return matches


def history(graph: Graph) -> dict[str, object]:
    """The rows of every commit that can be read, on whatever branch."""
    actual: dict[str, object] = {}
    for branch in graph.branches.list():
        for commit in graph.commits(branch):
            try:
                snapshot = graph.snapshot(commit=commit.commit_id)
            except HistoryGone:
                continue
            actual[commit.commit_id] = {
                key.partition(":")[2]: table["rows"] for key, table in snapshot.tables.items()
            }
            for key in snapshot.tables:
                name = key.partition(":")[2]
                if name != "WorksAt":
                    assert snapshot.read(name).num_rows == snapshot.count(name)
    return actual


def completed(root: Path) -> list[str]:
    with Graph.open(root, durability="os") as graph:
        graph.maintenance.cleanup(1, min_age=0)
        assert graph.maintenance.cleanup(1, min_age=0).bytes_removed == 0
    return kept(root)


@pytest.fixture
def target(ready: Get) -> tuple[Ready, list[str], dict[str, object]]:
    """The scenario, what a cleanup leaves of the files, and the commits that it keeps."""
    actual = ready(CLEANUP)
    root = actual.prepared.put_back()
    files = completed(root)
    with Graph.open(root, "r") as graph:
        return actual, files, history(graph)


def unfinished(root: Path) -> bool:
    """Whether something is left of a removal; nothing may be wrong, whatever is."""
    report = verify_graph(root)
    assert report.is_sound, report.problems
    return any(problem.code is ProblemCode.CLEANUP_UNFINISHED for problem in report.problems)


def must_converge(ready: Ready, files: list[str], commits: dict[str, object]) -> None:
    root = ready.prepared.root
    unfinished(root)
    with Graph.open(root, "r") as graph:
        assert State.of(graph) == ready.survival.before
        # Whatever can be opened can be read, and what is to stay is there.
        assert history(graph).items() >= commits.items()
    assert completed(root) == files
    with Graph.open(root, "r") as graph:
        assert State.of(graph) == ready.survival.before
        assert history(graph) == commits
    assert not unfinished(root)


def test_a_cleanup_that_dies_at_a_boundary_is_completed_by_the_next(crash: Harness, target):
    """At the first crossing of some; every crossing is among the steps below."""
    ready, files, commits = target
    points = dict.fromkeys(ready.reached)
    assert Failpoint.REMOVAL_AFTER_VERSIONS in points
    for point in sample(list(points), 3, "cleanup boundaries"):
        root = ready.prepared.put_back()
        assert crash.kill_at_failpoint(CLEANUP.operation, root, point).killed
        must_converge(ready, files, commits)


def test_whoever_opens_the_graph_finishes_a_removal(crash: Harness, target):
    """The files of versions that are gone do not stay, also without another cleanup."""
    ready, _, commits = target
    root = ready.prepared.put_back()
    point = Failpoint.REMOVAL_AFTER_VERSIONS
    assert crash.kill_at_failpoint(CLEANUP.operation, root, point).killed
    assert unfinished(root)
    unnamed = verify_graph(root).unnamed
    with Graph.open(root) as graph:
        assert history(graph).items() >= commits.items()
    assert not unfinished(root)
    assert verify_graph(root).unnamed < unnamed
    assert list((root / "__recovery").glob("*.cleanup")) == []


def test_a_repair_finishes_a_removal(crash: Harness, target):
    ready, _, _ = target
    root = ready.prepared.put_back()
    with Graph.open(root) as graph:
        point = Failpoint.REMOVAL_AFTER_VERSIONS
        assert crash.kill_at_failpoint(CLEANUP.operation, root, point).killed
        assert unfinished(root)
        graph.maintenance.repair()
    assert not unfinished(root)


def test_a_cleanup_that_dies_at_some_steps_is_completed_by_the_next(crash: Harness, target):
    ready, files, commits = target
    for _ in crash.walk_steps(CLEANUP.operation, ready.prepared, start=40, stride=STRIDE):
        must_converge(ready, files, commits)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_cleanup_that_dies_at_any_step_is_completed_by_the_next(
    crash: Harness, target, part: int
):
    ready, files, commits = target
    for _ in crash.walk_steps(CLEANUP.operation, ready.prepared, start=1 + part, stride=PARTS):
        must_converge(ready, files, commits)


# -- hard drops -----------------------------------------------------------------------------------


def must_be_dropped(ready: Ready) -> None:
    """Nothing is wrong; whoever opens the graph ends the drop, if it came to its removal."""
    root = ready.prepared.root
    begun = unfinished(root)
    with Graph.open(root) as graph:
        assert State.of(graph) in (ready.survival.before, ready.survival.after)
        location = graph._handle.store.manifest(None).current().pins["node:Person"].location
        versions = list((root / location / "_versions").glob("*.manifest"))
    assert not begun or len(versions) == 1
    assert not unfinished(root)


def test_a_hard_drop_that_dies_in_its_removal_is_finished_by_the_next_open(
    crash: Harness, ready: Get
):
    actual = ready(HARD_DROP)
    for point in (Failpoint.REMOVAL_AFTER_INTENT, Failpoint.REMOVAL_AFTER_VERSIONS):
        root = actual.prepared.put_back()
        assert crash.kill_at_failpoint(HARD_DROP.operation, root, point).killed
        assert unfinished(root)
        must_be_dropped(actual)


@pytest.mark.slow
def test_a_hard_drop_that_dies_at_any_step_leaves_a_sound_graph(crash: Harness, ready: Get):
    actual = ready(HARD_DROP)
    for _ in crash.walk_steps(HARD_DROP.operation, actual.prepared):
        must_be_dropped(actual)
