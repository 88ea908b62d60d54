"""``cluster apply``: makes the applied state what the configuration declares.

It is a function of a bundle of files, a storage root and an actor, so that a server can run it too.
Every step that is not recorded yet has a sidecar, and a second run completes what the first one
left. The lock is checked before every durable step.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.cluster.approvals import consume_approval, read_approvals, usable_approvals
from omnigraph.cluster.bundle import ConfigBundle
from omnigraph.cluster.classify import APPROVAL_REQUIRED, RECOVERY_PENDING, classify, demote
from omnigraph.cluster.desired import DesiredState
from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.diff import ResourceChange, diff_states, gated_changes
from omnigraph.cluster.draft import APPLIED, LedgerDraft
from omnigraph.cluster.graph_work import FinishedWork, GraphWork
from omnigraph.cluster.ledger import ApprovalArtifact, ResourceStatus
from omnigraph.cluster.location import LEDGER
from omnigraph.cluster.lock import LockGuard
from omnigraph.cluster.payloads import PAYLOAD_KINDS, publish_payload
from omnigraph.cluster.plan_file import ReviewedPlan
from omnigraph.cluster.reports import ApplyReport, StateObservations
from omnigraph.cluster.resources import address_parts, kind_of, owner_of
from omnigraph.cluster.session import ClusterSession, open_session
from omnigraph.cluster.sidecars import remove_sidecars
from omnigraph.cluster.state_commands import acknowledge_sweep, locked, no_state, state_missing
from omnigraph.cluster.state_file import (
    LedgerRead,
    next_revision,
    read_ledger,
    statuses_json,
    write_ledger,
)
from omnigraph.cluster.sweep import SweepResult, sweep
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.errors import StorageError
from omnigraph.settings import Settings

BLOCKED_MESSAGE = "waiting on an unapplied or missing dependency"


def apply_cluster(
    bundle: ConfigBundle,
    settings: Settings,
    *,
    root: str | None = None,
    actor: str | None = None,
    reviewed: ReviewedPlan | None = None,
) -> ApplyReport:
    """Apply a configuration; with ``reviewed``, exactly what that plan shows, or nothing.

    ``root`` replaces the storage that the configuration names.
    """
    session, log = open_session(bundle, settings, root)
    if session is None:
        return ApplyReport(bundle.name, actor, None, no_state(), diagnostics=log.entries)
    return _ApplyRun(session, actor, reviewed).run()


class _ApplyRun:
    """One apply, from the lock to its report."""

    def __init__(
        self, session: ClusterSession, actor: str | None, reviewed: ReviewedPlan | None
    ) -> None:
        assert session.desired is not None
        self._session = session
        self._storage = session.storage
        self._log = session.log
        self._desired: DesiredState = session.desired
        self._actor = actor
        self._reviewed = reviewed
        self._ledger = LedgerRead()
        self._changes: list[ResourceChange] = []
        self._approvals: dict[str, ApprovalArtifact] = {}
        self._acquired: str | None = None
        self._is_converged = False
        self._is_written = False

    def run(self) -> ApplyReport:
        try:
            with locked(self._session, "apply") as guard:
                self._acquired = guard.lock_id
                self._apply(guard)
        except ClusterStop as stop:
            self._log.add([stop.diagnostic])
        except StorageError as error:
            self._log.error("state_write_error", self._storage.location.uri, error.message)
        state = StateObservations.of(self._storage, self._ledger, None, self._acquired)
        return ApplyReport(
            self._session.name,
            self._actor,
            self._desired.config_digest,
            state,
            tuple(self._changes),
            self._is_converged,
            self._is_written,
            statuses_json(self._ledger.state.resource_statuses),
            self._log.entries,
        )

    def _apply(self, guard: LockGuard) -> None:
        self._ledger = read_ledger(self._storage)
        if not self._ledger.exists or self._ledger.is_fence:
            raise state_missing(self._storage.path(LEDGER))
        if self._reviewed is not None:
            self._reviewed.check_state(self._storage, self._ledger)
        draft = LedgerDraft(self._ledger.state)
        swept = sweep(self._storage, draft, self._log)
        self._classify(draft, swept)
        if self._reviewed is not None:
            self._reviewed.check_changes(self._desired.config_digest, self._changes)
        work = GraphWork(
            self._storage, guard, self._desired, self._log, self._actor, self._ledger.cas
        )
        self._move_graphs(work, swept)
        self._note_waiting()
        self._publish(guard)
        self._delete_graphs(work)
        self._record(draft, work.finished)
        self._write(guard, draft)
        try:
            self._acknowledge(guard, swept, work.finished)
        except ClusterStop as stop:
            # The ledger is written: what is left is completed by the next command.
            finding = stop.diagnostic
            self._log.warning(finding.code, finding.path, finding.message)

    # -- deciding ----------------------------------------------------------------------------

    def _classify(self, draft: LedgerDraft, swept: SweepResult) -> None:
        state = draft.state()
        changes = diff_states(self._desired, state)
        gated = [change for change, _ in gated_changes(changes)]
        if gated:
            stored = read_approvals(self._storage, self._log)
            digest = self._desired.config_digest
            self._approvals = usable_approvals(gated, stored, digest, state, self._log)
        self._changes = classify(
            changes,
            self._desired,
            state,
            pending=swept.pending,
            approved=self._approvals.keys(),
        )
        decided = {change.resource: change for change in self._changes} if gated else {}
        for gate in gated:
            change = decided[gate.resource]
            if change.disposition == "applied" and gate.resource not in self._approvals:
                raise ClusterStop(
                    "apply_approval_invariant_violation",
                    gate.resource,
                    "a change that needs an approval was about to be applied without one",
                )

    def _applied(self, kind: str, *operations: str) -> Iterator[ResourceChange]:
        for change in self._changes:
            if change.disposition != "applied" or kind_of(change.resource) != kind:
                continue
            if change.operation in operations:
                yield change

    # -- doing -------------------------------------------------------------------------------

    def _move_graphs(self, work: GraphWork, swept: SweepResult) -> None:
        for change in list(self._applied("graph", "create")):
            graph = owner_of(change.resource)
            assert graph is not None
            work.create(graph, restarts=graph in swept.restarts)
        for change in list(self._applied("schema", "update")):
            graph = owner_of(change.resource)
            assert graph is not None
            work.migrate(graph)
        self._changes = demote(self._changes, work.failed, self._desired, self._ledger.state)

    def _note_waiting(self) -> None:
        for change in self._changes:
            if change.disposition == "deferred":
                message = f"{change.operation} is not supported: {change.reason}"
                self._log.warning("apply_unsupported_change", change.resource, message)
            elif change.disposition == "blocked":
                message = f"{change.operation} waits: {change.reason}"
                self._log.warning("apply_dependency_blocked", change.resource, message)

    def _publish(self, guard: LockGuard) -> None:
        for kind in PAYLOAD_KINDS:
            for change in self._applied(kind, "create", "update"):
                resource = self._desired.resources[change.resource]
                publish_payload(self._storage, guard, resource)
        reached(Failpoint.CLUSTER_AFTER_PAYLOADS)

    def _delete_graphs(self, work: GraphWork) -> None:
        for change in list(self._applied("graph", "delete")):
            graph = owner_of(change.resource)
            assert graph is not None
            work.delete(graph, self._approvals[change.resource])
        self._changes = demote(self._changes, work.failed, self._desired, self._ledger.state)

    # -- recording ---------------------------------------------------------------------------

    def _record(self, draft: LedgerDraft, finished: FinishedWork) -> None:
        for change in self._changes:
            match change.disposition:
                case "applied":
                    self._record_applied(draft, change, finished)
                case "derived":
                    resource = self._desired.resources[change.resource]
                    draft.set_provider(address_parts(change.resource)[1][0], resource.provider)
                    draft.statuses[change.resource] = APPLIED
                case "blocked" if change.reason != RECOVERY_PENDING:
                    draft.statuses[change.resource] = ResourceStatus(
                        "blocked", (change.reason or APPROVAL_REQUIRED,), BLOCKED_MESSAGE
                    )
        for graph in self._desired.config.graphs:
            draft.recompute(graph)
        self._is_converged = not diff_states(self._desired, draft.state())
        if self._is_converged:
            draft.config_digest = self._desired.config_digest

    def _record_applied(
        self, draft: LedgerDraft, change: ResourceChange, finished: FinishedWork
    ) -> None:
        address = change.resource
        if change.operation != "delete":
            draft.record(self._desired.resources[address])
            return
        draft.forget(address)
        graph = address.removeprefix("graph.")
        if address.startswith("graph.") and graph in finished.deleted:
            approval = finished.deleted[graph]
            draft.tombstone(graph, approval.approval_id, self._actor)
            draft.consume(approval.approval_id, finished.operations[graph])

    def _write(self, guard: LockGuard, draft: LedgerDraft) -> None:
        if not draft.is_changed:
            return
        revision = next_revision(self._ledger.state, self._storage.path(LEDGER))
        guard.check()
        reached(Failpoint.CLUSTER_BEFORE_LEDGER)
        self._ledger = write_ledger(self._storage, self._ledger, draft.state(revision))
        self._is_written = True

    def _acknowledge(self, guard: LockGuard, swept: SweepResult, finished: FinishedWork) -> None:
        """After the ledger: mark approvals as used, then remove the sidecars."""
        for graph, approval in finished.deleted.items():
            consume_approval(self._storage, guard, approval, finished.operations[graph])
        acknowledge_sweep(self._storage, guard, swept, self._log)
        remove_sidecars(self._storage, guard, finished.sidecars, self._log)
