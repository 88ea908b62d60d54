"""An apply touches only what changed, however large the cluster is."""

from __future__ import annotations

import pytest

from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.plan import plan_cluster
from omnigraph.settings import Settings
from omnigraph.storage.objects.traffic import Traffic, thread_traffic
from tests.cluster.lab import DUE, dispositions
from tests.cluster.many import many_graphs, record_as_applied

CHANGED = Traffic(reads=7, writes=3, lists=1, deletes=1)
"""The lock is created, checked twice, read, compared and deleted; the ledger is read, compared and
written; the sidecars are listed; the text is read and written."""
UNCHANGED = Traffic(reads=3, writes=1, lists=1, deletes=1)
PLANNED = Traffic(reads=2, writes=0, lists=1, deletes=0)


@pytest.mark.parametrize("count", [2, 200])
def test_an_apply_of_one_changed_query_does_not_depend_on_the_number_of_graphs(tmp_path, count):
    root = str(tmp_path / "many")
    record_as_applied(many_graphs(count), root, Settings())
    before = thread_traffic()
    unchanged = apply_cluster(many_graphs(count), Settings(), root=root)
    cost = thread_traffic().since(before)
    assert (unchanged.ok, unchanged.is_written) == (True, False), unchanged.diagnostics
    assert cost == UNCHANGED
    bundle = many_graphs(count, DUE + "\n")
    before = thread_traffic()
    plan, _ = plan_cluster(bundle, Settings(), root)
    assert (len(plan.changes), thread_traffic().since(before)) == (2, PLANNED)
    before = thread_traffic()
    report = apply_cluster(bundle, Settings(), root=root)
    cost = thread_traffic().since(before)
    assert dispositions(report) == {"graph.g0": "derived", "query.g0.due": "applied"}
    assert report.is_converged
    assert cost == CHANGED
