"""A writer that lost its publish and dies while it takes its tables back: nobody sees a commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from tests.crash import operations
from tests.crash.harness import Harness
from tests.crash.scenarios import plain
from tests.crash.survival import check_tidy

OLDER = 'query older() { update Person set { age: 99 } where name = "Ada" }'


@pytest.mark.parametrize(
    ("point", "occurrence"),
    [
        (Failpoint.UNDO_AFTER_MARK, 1),
        (Failpoint.UNDO_BEFORE_RESTORE, 2),
        (Failpoint.UNDO_AFTER_RESTORE, 1),
        (Failpoint.UNDO_AFTER_PUBLISH, 1),
    ],
    ids=str,
)
def test_whoever_finishes_the_undo_makes_no_commit(
    crash: Harness, arena: Path, request: pytest.FixtureRequest, point: Failpoint, occurrence: int
):
    root = arena / request.node.name / "graph"
    root.parent.mkdir()
    plain(root, crash)
    with Graph.open(root, "r") as graph:
        commits = graph.commits()
    killed = crash.kill_at_failpoint(operations.lose_the_publish, root, point, occurrence)
    assert killed.killed
    with Graph.open(root) as graph:
        assert [str(actual.kind) for actual in graph.recovered] == ["RolledBack"]
        assert graph.commits() == commits
        check_tidy(graph, root)
        assert graph.maintenance.verify().problems == ()
        graph.mutate(OLDER, if_commit=commits[0].commit_id)
