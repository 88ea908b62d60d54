"""The sweep over interrupted operations: what they achieved is recorded, nothing is undone.

It runs at the start of ``apply``, ``refresh`` and ``import``. Sidecars are removed only after the
ledger that records their outcome was written.
"""

from __future__ import annotations

from dataclasses import field

from omnigraph.cluster.diagnostics import ClusterStop, DiagnosticLog
from omnigraph.cluster.draft import APPLIED, LedgerDraft
from omnigraph.cluster.ledger import ClusterSidecar, ResourceStatus
from omnigraph.cluster.observe import LiveGraph, look_at_graph
from omnigraph.cluster.sidecars import read_sidecars
from omnigraph.cluster.storage import RECOVERIES, ClusterStorage
from omnigraph.errors import StorageError
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep leaves to the command."""

    pending: set[str] = field(default_factory=set)
    """Graphs whose operation is neither done nor undone."""
    retired: list[ClusterSidecar] = field(default_factory=list)
    """Sidecars to remove after the ledger is written."""
    restarts: set[str] = field(default_factory=set)
    """Graphs whose creation was interrupted before there was any data: it starts over."""
    consumed: dict[str, str] = field(default_factory=dict)
    """Approvals that an interrupted deletion used, with its operation; to be marked as used."""


def sweep(storage: ClusterStorage, draft: LedgerDraft, log: DiagnosticLog) -> SweepResult:
    """Settle every sidecar by looking at its graph; raises ``ClusterStop`` if it cannot look."""
    try:
        sidecars = read_sidecars(storage, log)
    except StorageError as error:
        raise ClusterStop("recovery_sidecar_read_error", RECOVERIES, error.message) from error
    result = SweepResult()
    for sidecar in sidecars:
        live = look_at_graph(storage, sidecar.graph_id)
        if sidecar.kind == "graph_delete":
            if not live.exists:
                storage.remove_empty_root(sidecar.graph_id)
            _after_delete(sidecar, live, draft, log, result)
        elif sidecar.kind == "graph_create":
            _after_create(sidecar, live, draft, log, result)
        else:
            _after_apply(sidecar, live, draft, log, result)
    return result


def _after_create(
    sidecar: ClusterSidecar,
    live: LiveGraph,
    draft: LedgerDraft,
    log: DiagnosticLog,
    result: SweepResult,
) -> None:
    if not live.exists:
        result.retired.append(sidecar)
    elif live.is_interrupted:
        result.retired.append(sidecar)
        result.restarts.add(sidecar.graph_id)
    elif not live.opens:
        message = (
            f"the graph that was being created does not open: {live.error}; remove "
            f"{sidecar.graph_uri} if it has no data that you need, and run cluster apply again"
        )
        status = ResourceStatus("error", ("graph_create_incomplete",), live.error)
        draft.set_status(_both(sidecar), status)
        log.error("graph_create_incomplete", f"graph.{sidecar.graph_id}", message)
        result.pending.add(sidecar.graph_id)
    else:
        _after_apply(sidecar, live, draft, log, result)


def _after_apply(
    sidecar: ClusterSidecar,
    live: LiveGraph,
    draft: LedgerDraft,
    log: DiagnosticLog,
    result: SweepResult,
) -> None:
    graph = sidecar.graph_id
    recorded = draft.resources.get(f"schema.{graph}")
    if live.opens and recorded is not None and live.digest == recorded.digest:
        result.retired.append(sidecar)
    elif live.opens and live.digest == sidecar.desired_schema_digest:
        assert live.digest is not None
        draft.record_schema(graph, live.digest)
        draft.set_status(_both(sidecar), APPLIED)
        _rolled_forward(sidecar, draft, log, result)
    else:
        if live.opens:
            message = "an interrupted operation left another schema than the recorded ones"
            condition = ("actual_applied_state_pending",)
            draft.set_status(_both(sidecar), ResourceStatus("drifted", condition, message))
        log.warning("cluster_recovery_pending", f"graph.{graph}", _pending_text(sidecar, live))
        result.pending.add(graph)


def _after_delete(
    sidecar: ClusterSidecar,
    live: LiveGraph,
    draft: LedgerDraft,
    log: DiagnosticLog,
    result: SweepResult,
) -> None:
    graph = sidecar.graph_id
    if live.exists:
        message = "the deletion was interrupted; it is proposed again under its approval"
        log.warning("graph_delete_incomplete", f"graph.{graph}", message)
        result.retired.append(sidecar)
    elif f"graph.{graph}" not in draft.resources:
        result.retired.append(sidecar)
        if sidecar.approval_id is not None and sidecar.approval_id in draft.approvals:
            result.consumed[sidecar.approval_id] = sidecar.operation_id
    else:
        draft.tombstone(graph, sidecar.approval_id, sidecar.actor)
        if sidecar.approval_id is not None:
            draft.consume(sidecar.approval_id, sidecar.operation_id)
            result.consumed[sidecar.approval_id] = sidecar.operation_id
        _rolled_forward(sidecar, draft, log, result)


def _rolled_forward(
    sidecar: ClusterSidecar, draft: LedgerDraft, log: DiagnosticLog, result: SweepResult
) -> None:
    draft.recovered(sidecar.operation_id, sidecar.kind, sidecar.graph_id, sidecar.actor)
    log.warning(
        "cluster_recovery_rolled_forward",
        f"graph.{sidecar.graph_id}",
        f"{sidecar.kind} was interrupted after it was done; it is recorded now",
    )
    result.retired.append(sidecar)


def _both(sidecar: ClusterSidecar) -> tuple[str, str]:
    return f"graph.{sidecar.graph_id}", f"schema.{sidecar.graph_id}"


def _pending_text(sidecar: ClusterSidecar, live: LiveGraph) -> str:
    what = f"{sidecar.kind} of {sidecar.operation_id} was interrupted"
    if not live.exists:
        return f"{what}, and the graph does not exist any more"
    if not live.opens:
        return f"{what}, and the graph does not open: {live.error}"
    return f"{what}, and the schema of the graph is neither the recorded nor the new one"
