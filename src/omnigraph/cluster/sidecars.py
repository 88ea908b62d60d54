"""Recovery sidecars: what a command is about to do to a graph, written before it is done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.ledger import (
    SIDECAR_VERSION,
    ClusterSidecar,
    LedgerProblem,
    read_cluster_sidecar,
)
from omnigraph.cluster.lock import LockGuard
from omnigraph.cluster.resources import is_name
from omnigraph.cluster.state_file import json_text
from omnigraph.cluster.storage import RECOVERIES, ClusterStorage, timestamp
from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import StorageError

SidecarKind = Literal["graph_create", "schema_apply", "graph_delete"]


def new_sidecar(
    storage: ClusterStorage,
    kind: SidecarKind,
    graph: str,
    *,
    desired: str,
    actor: str | None,
    cas: str | None,
    manifest_version: int | None = None,
    approval: str | None = None,
) -> ClusterSidecar:
    """The sidecar of an operation that begins now."""
    return ClusterSidecar(
        schema_version=SIDECAR_VERSION,
        operation_id=new_ulid(),
        started_at=timestamp(),
        actor=actor,
        kind=kind,
        graph_id=graph,
        graph_uri=storage.graph_uri(graph),
        observed_manifest_version=manifest_version,
        desired_schema_digest=desired,
        state_cas_base=cas,
        approval_id=approval,
    )


def sidecar_path(sidecar: ClusterSidecar) -> str:
    return f"{RECOVERIES}/{sidecar.operation_id}.json"


def write_sidecar(storage: ClusterStorage, guard: LockGuard, sidecar: ClusterSidecar) -> None:
    """Write a sidecar, or write it again with the outcome."""
    guard.check()
    document = {
        "schema_version": sidecar.schema_version,
        "operation_id": sidecar.operation_id,
        "started_at": sidecar.started_at,
        "actor": sidecar.actor,
        "kind": sidecar.kind,
        "graph_id": sidecar.graph_id,
        "graph_uri": sidecar.graph_uri,
        "observed_manifest_version": sidecar.observed_manifest_version,
        "expected_manifest_version": sidecar.expected_manifest_version,
        "desired_schema_digest": sidecar.desired_schema_digest,
        "state_cas_base": sidecar.state_cas_base,
        "approval_id": sidecar.approval_id,
    }
    storage.objects.write(sidecar_path(sidecar), json_text(document))


def with_outcome(sidecar: ClusterSidecar, manifest_version: int) -> ClusterSidecar:
    return msgspec.structs.replace(sidecar, expected_manifest_version=manifest_version)


def remove_sidecars(
    storage: ClusterStorage,
    guard: LockGuard,
    sidecars: Iterable[ClusterSidecar],
    log: DiagnosticLog,
) -> None:
    """Remove sidecars whose outcome the ledger records; the next run removes what stays."""
    for sidecar in sidecars:
        path = sidecar_path(sidecar)
        guard.check()
        try:
            storage.objects.delete(path)
        except StorageError as error:
            log.warning("recovery_sidecar_cleanup_failed", path, error.message)


def read_sidecars(storage: ClusterStorage, log: DiagnosticLog) -> list[ClusterSidecar]:
    """All sidecars in the order of their ids; one that cannot be read is reported and stays.

    Raises ``StorageError`` if they cannot be listed: then nothing is certain about any graph.
    """
    if storage.is_missing:
        return []
    sidecars = []
    for name in storage.objects.list(RECOVERIES):
        if not name.endswith(".json"):
            continue
        path = f"{RECOVERIES}/{name}"
        try:
            sidecar = read_cluster_sidecar(storage.objects.read(path), path)
            # Both become parts of paths.
            if sidecar_path(sidecar) != path or not is_name(sidecar.graph_id):
                message = "the sidecar does not name itself, or no graph"
                raise LedgerProblem("invalid_recovery_sidecar", path, message)
            sidecars.append(sidecar)
        except LedgerProblem as problem:
            finding = problem.diagnostic
            log.warning(finding.code, path, finding.message)
        except StorageError as error:
            log.warning("recovery_sidecar_read_error", path, error.message)
    return sidecars
