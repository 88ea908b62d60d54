"""Index building that dies somewhere: indexes know the new rows, all of them, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import Graph
from tests.crash import operations
from tests.crash.harness import Harness
from tests.crash.scenarios import SCENARIOS, Ready, Scenario

Get = Callable[[Scenario], Ready]
WORKS = (
    operations.rebuild_indexes,
    pytest.param(operations.ensure_indexes, marks=pytest.mark.slow),
    pytest.param(operations.optimize_if_needed, marks=pytest.mark.slow),
)


def existing(root: Path) -> list[tuple[str, str, int, int]]:
    """What every index knows, and what it does not."""
    with Graph.open(root, "r") as graph:
        actual = graph.indexes.status().indexes
    return [(s.table_key, f"{s.column} {s.kind}", s.rows, s.rows_outside) for s in actual]


@pytest.mark.parametrize("work", WORKS)
def test_indexes_know_all_of_the_new_rows_or_none(crash: Harness, ready: Get, work):
    actual = ready(next(item for item in SCENARIOS if item.operation is work))
    root = actual.prepared.put_back()
    before = existing(root)
    crash.crossings(work, root)
    after = existing(root)
    assert after != before
    kills = 0
    for _ in crash.walk_failpoints(work, actual.prepared):
        assert existing(root) in (before, after)
        with Graph.open(root) as graph:
            # Whoever comes next settles it, and doing it again ends where it would have ended.
            assert existing(root) in (before, after)
            assert not graph._handle.store.sidecars.list()
        crash.crossings(work, root)
        assert existing(root) == after
        kills += 1
    assert kills == len(actual.reached)
