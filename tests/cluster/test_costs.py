"""An apply touches only what changed, however large the cluster is."""

from __future__ import annotations

import pytest

from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.plan import plan_cluster
from omnigraph.cluster.state_commands import cluster_status
from omnigraph.server.access import Access, RunState
from omnigraph.server.boot import plan_from_cluster, source_signature
from omnigraph.settings import Settings
from omnigraph.storage.objects.traffic import Traffic, thread_traffic
from tests.cluster.lab import DUE, dispositions
from tests.cluster.many import many_graphs, record_as_applied

CHANGED = Traffic(reads=7, writes=3, lists=1, deletes=1)
"""The lock is created, checked twice, read, compared and deleted; the ledger is read, compared and
written; the sidecars are listed; the text is read and written."""
UNCHANGED = Traffic(reads=3, writes=1, lists=1, deletes=1)
PLANNED = Traffic(reads=2, writes=0, lists=1, deletes=0)
BOOTED = Traffic(reads=3, writes=0, lists=1, deletes=0)
"""The sidecars are listed; the ledger, the query and the policy that all graphs have are read."""
RELOADED = Traffic(reads=2, writes=0, lists=1, deletes=0)
"""The ledger and the changed text."""


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


@pytest.mark.parametrize("count", [2, 200])
def test_a_server_reads_each_text_once_and_after_a_change_only_the_changed_one(tmp_path, count):
    root = str(tmp_path / "many")
    record_as_applied(many_graphs(count), root, Settings())
    before = thread_traffic()
    plan = plan_from_cluster(root, Settings())
    assert thread_traffic().since(before) == BOOTED
    assert len(plan.graphs) == count
    signature = source_signature(root, True, Settings())
    assert apply_cluster(many_graphs(count, DUE + "\n"), Settings(), root=root).is_converged
    before = thread_traffic()
    assert source_signature(root, True, Settings()) != signature
    assert thread_traffic().since(before).total == 1
    before = thread_traffic()
    newer = plan_from_cluster(root, Settings(), plan)
    assert thread_traffic().since(before) == RELOADED
    texts = {graph.graph_id: graph.queries[0].text for graph in newer.graphs}
    assert {name for name, text in texts.items() if text != DUE} == {"g0"}


def test_policies_that_stay_are_not_parsed_again(tmp_path):
    root = str(tmp_path / "many")
    record_as_applied(many_graphs(3), root, Settings())
    plan = plan_from_cluster(root, Settings())
    access = Access.from_plan(plan, RunState.POLICY)
    newer = Access.from_plan(plan, RunState.POLICY, previous=access)
    policies = {newer.policy_of(f"g{number}") for number in range(3)}
    assert policies == {access.policy_of("g0")}


def test_a_shared_text_is_verified_and_a_damaged_copy_of_it_is_reported(tmp_path):
    """A server has the right text from another copy; a check looks at every one."""
    root = tmp_path / "many"
    bundle = many_graphs(3)
    record_as_applied(bundle, str(root), Settings())
    (copy,) = (root / "__cluster/resources/query/g1/due").iterdir()
    copy.write_text("query due() { }")
    plan = plan_from_cluster(str(root), Settings())
    assert {query.text for graph in plan.graphs for query in graph.queries} == {DUE}
    report = cluster_status(bundle, Settings(), str(root))
    assert [(entry.code, entry.path) for entry in report.diagnostics] == [
        ("catalog_payload_mismatch", "query.g1.due")
    ]
