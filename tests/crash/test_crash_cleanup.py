"""A cleanup that dies somewhere: the graph reads the same, and the next cleanup ends its work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import HistoryGone
from tests.crash import operations
from tests.crash.harness import Harness
from tests.crash.scenarios import SCENARIOS, Ready, Scenario
from tests.crash.survival import State

Get = Callable[[Scenario], Ready]
CLEANUP = next(scenario for scenario in SCENARIOS if scenario.operation is operations.clean_up)
FOLDERS = ("_versions", "data", "_deletions", "_indices", "_refs")


def kept(root: Path) -> list[str]:
    """What there is of tables and of the manifest, but for names that are chosen at random."""
    found = []
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and any(part in FOLDERS for part in parts[:-1]):
            is_random = parts[-2] in ("data", "_deletions")
            found.append("/".join((*parts[:-1], "*") if is_random else parts))
    return found


def history(graph: Graph) -> dict[str, object]:
    """The rows of every commit that can be read, on whatever branch."""
    found: dict[str, object] = {}
    for branch in graph.branches.list():
        for commit in graph.commits(branch):
            try:
                snapshot = graph.snapshot(commit=commit.commit_id)
            except HistoryGone:
                continue
            found[commit.commit_id] = {
                key.partition(":")[2]: table["rows"] for key, table in snapshot.tables.items()
            }
            for key in snapshot.tables:
                name = key.partition(":")[2]
                if name != "WorksAt":
                    assert snapshot.read(name).num_rows == snapshot.count(name)
    return found


def completed(root: Path) -> list[str]:
    with Graph.open(root, durability="os") as graph:
        graph.maintenance.cleanup(1, min_age=0)
        assert graph.maintenance.cleanup(1, min_age=0).bytes_removed == 0
    return kept(root)


@pytest.fixture
def goal(ready: Get) -> tuple[Ready, list[str], dict[str, object]]:
    """The scenario, what a cleanup leaves of the files, and the commits that it keeps."""
    found = ready(CLEANUP)
    root = found.prepared.put_back()
    files = completed(root)
    with Graph.open(root, "r") as graph:
        return found, files, history(graph)


def must_converge(ready: Ready, files: list[str], commits: dict[str, object]) -> None:
    root = ready.prepared.root
    with Graph.open(root, "r") as graph:
        assert State.of(graph) == ready.survival.before
        # Whatever can be opened can be read, and what is to stay is there.
        assert history(graph).items() >= commits.items()
    assert completed(root) == files
    with Graph.open(root, "r") as graph:
        assert State.of(graph) == ready.survival.before
        assert history(graph) == commits


def test_a_cleanup_that_dies_at_a_boundary_is_completed_by_the_next(crash: Harness, goal):
    ready, files, commits = goal
    kills = 0
    for _ in crash.walk_failpoints(CLEANUP.operation, ready.prepared):
        must_converge(ready, files, commits)
        kills += 1
    assert kills == len(ready.crossed)


@pytest.mark.slow
def test_a_cleanup_that_dies_at_any_step_is_completed_by_the_next(crash: Harness, goal):
    ready, files, commits = goal
    for _ in crash.walk_steps(CLEANUP.operation, ready.prepared):
        must_converge(ready, files, commits)
