"""Approvals of destructive changes, bound to the configuration and to what is changed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from omnigraph.cluster.diagnostics import ClusterStop, DiagnosticLog
from omnigraph.cluster.diff import ResourceChange
from omnigraph.cluster.ledger import (
    APPROVAL_VERSION,
    ApprovalArtifact,
    LedgerProblem,
    LedgerState,
    read_approval,
)
from omnigraph.cluster.lock import LockGuard
from omnigraph.cluster.state_file import json_text
from omnigraph.cluster.storage import APPROVALS, ClusterStorage, timestamp
from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import StorageError

VALID_DAYS: Final = 7
"""An approval is for a change that follows it, not for one that somebody makes much later."""


def new_approval(
    change: ResourceChange, reason: str, config_digest: str, approved_by: str
) -> ApprovalArtifact:
    return ApprovalArtifact(
        schema_version=APPROVAL_VERSION,
        approval_id=new_ulid(),
        resource=change.resource,
        operation=change.operation,
        reason=reason,
        bound_config_digest=config_digest,
        bound_before_digest=change.before,
        bound_after_digest=change.after,
        approved_by=approved_by,
        created_at=timestamp(),
    )


def write_approval(storage: ClusterStorage, guard: LockGuard, approval: ApprovalArtifact) -> None:
    """Write an approval; raises ``ClusterStop``."""
    guard.check()
    path = f"{APPROVALS}/{approval.approval_id}.json"
    document = {
        "schema_version": approval.schema_version,
        "approval_id": approval.approval_id,
        "resource": approval.resource,
        "operation": approval.operation,
        "reason": approval.reason,
        "bound_config_digest": approval.bound_config_digest,
        "bound_before_digest": approval.bound_before_digest,
        "bound_after_digest": approval.bound_after_digest,
        "approved_by": approval.approved_by,
        "created_at": approval.created_at,
        "consumed_at": approval.consumed_at,
        "consumed_by_operation": approval.consumed_by_operation,
    }
    try:
        storage.objects.write(path, json_text(document))
    except StorageError as error:
        raise ClusterStop("approval_write_error", path, error.message) from error


def consume_approval(
    storage: ClusterStorage, guard: LockGuard, approval: ApprovalArtifact, operation: str
) -> None:
    """Mark an approval as used, after the ledger has recorded it."""
    consumed = msgspec.structs.replace(
        approval, consumed_at=timestamp(), consumed_by_operation=operation
    )
    write_approval(storage, guard, consumed)


def read_approvals(storage: ClusterStorage, log: DiagnosticLog) -> list[ApprovalArtifact]:
    """All approvals in the order of their ids; one that cannot be read is reported."""
    if storage.is_missing:
        return []
    try:
        names = [name for name in storage.objects.list(APPROVALS) if name.endswith(".json")]
    except StorageError as error:
        log.warning("approval_read_error", APPROVALS, error.message)
        return []
    approvals = []
    for name in names:
        path = f"{APPROVALS}/{name}"
        try:
            approval = read_approval(storage.objects.read(path), path)
            # The id becomes part of a path.
            if f"{approval.approval_id}.json" != name:
                message = "the approval has another id than its file"
                raise LedgerProblem("invalid_approval_artifact", path, message)
            approvals.append(approval)
        except LedgerProblem as problem:
            log.warning(problem.diagnostic.code, path, problem.diagnostic.message)
        except StorageError as error:
            log.warning("approval_read_error", path, error.message)
    return approvals


def usable_approvals(
    changes: Iterable[ResourceChange],
    approvals: Iterable[ApprovalArtifact],
    config_digest: str | None,
    state: LedgerState,
    log: DiagnosticLog,
) -> dict[str, ApprovalArtifact]:
    """The approval of each gated change; one for other digests, or an old one, is reported.

    An approval that the ledger records as used stays used, even if its file does not say so yet.
    """
    usable: dict[str, ApprovalArtifact] = {}
    gated = {change.resource: change for change in changes}
    for approval in approvals:
        if approval.consumed_at is not None or approval.approval_id in state.approval_records:
            continue
        change = gated.get(approval.resource)
        if change is None or change.operation != approval.operation:
            continue
        bound = (
            approval.bound_config_digest,
            approval.bound_before_digest,
            approval.bound_after_digest,
        )
        given = f"approval {approval.approval_id} by {approval.approved_by} was given"
        if bound != (config_digest, change.before, change.after):
            problem = f"{given} for another configuration or state; approve again"
            log.warning("approval_stale", approval.resource, problem)
        elif _is_expired(approval):
            problem = f"{given} more than {VALID_DAYS} days ago; approve again"
            log.warning("approval_expired", approval.resource, problem)
        else:
            usable.setdefault(approval.resource, approval)
    return usable


def _is_expired(approval: ApprovalArtifact) -> bool:
    """Whether an approval is too old; one whose time cannot be read is."""
    try:
        created = datetime.fromisoformat(approval.created_at)
    except ValueError:
        return True
    if created.tzinfo is None:
        created = created.replace(tzinfo=UTC)
    return datetime.now(UTC) - created > timedelta(days=VALID_DAYS)
