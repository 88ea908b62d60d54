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


def known(root: Path) -> list[tuple[str, str, int, int]]:
    """What every index knows, and what it does not."""
    with Graph.open(root, "r") as graph:
        found = graph.indexes.status().indexes
    return [(s.table_key, f"{s.column} {s.kind}", s.rows, s.rows_outside) for s in found]


@pytest.mark.parametrize("work", WORKS)
def test_indexes_know_all_of_the_new_rows_or_none(crash: Harness, ready: Get, work):
    found = ready(next(each for each in SCENARIOS if each.operation is work))
    root = found.prepared.put_back()
    before = known(root)
    crash.crossings(work, root)
    after = known(root)
    assert after != before
    kills = 0
    for _ in crash.walk_failpoints(work, found.prepared):
        assert known(root) in (before, after)
        with Graph.open(root) as graph:
            # Whoever comes next settles it, and doing it again ends where it would have ended.
            assert known(root) in (before, after)
            assert not graph._handle.store.sidecars.list()
        crash.crossings(work, root)
        assert known(root) == after
        kills += 1
    assert kills == len(found.crossed)
