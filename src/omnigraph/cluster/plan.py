"""``cluster plan`` and ``cluster approve``: what an apply would do, and consent to a part of it.

A plan takes no lock: it shows what was observed, and another command may change it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omnigraph.cluster.approvals import (
    new_approval,
    read_approvals,
    usable_approvals,
    write_approval,
)
from omnigraph.cluster.bundle import ConfigBundle
from omnigraph.cluster.classify import classify
from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.diff import ResourceChange, blast_radius, diff_states, gated_changes
from omnigraph.cluster.location import LEDGER
from omnigraph.cluster.policy_changes import policy_changes
from omnigraph.cluster.preview import broken_queries, preview_migration
from omnigraph.cluster.reports import (
    ApprovalGate,
    ApproveReport,
    PlanReport,
    StateObservations,
)
from omnigraph.cluster.resources import kind_of
from omnigraph.cluster.session import ClusterSession, open_session
from omnigraph.cluster.state_commands import (
    foreign_lock,
    locked,
    no_state,
    note_sidecars,
    state_missing,
)
from omnigraph.cluster.state_file import LedgerRead, read_ledger
from omnigraph.settings import Settings


def plan_cluster(
    bundle: ConfigBundle, settings: Settings, root: str | None = None
) -> tuple[PlanReport, str]:
    """What an apply would do now, and the storage that it would change."""
    session, log = open_session(bundle, settings, root)
    if session is None:
        return PlanReport(bundle.name, None, {}, (), no_state(), diagnostics=log.entries), ""
    desired = session.desired
    assert desired is not None
    ledger, foreign = LedgerRead(), None
    report = PlanReport(
        bundle.name, desired.config_digest, desired.digests, desired.dependencies, no_state()
    )
    try:
        foreign = foreign_lock(session.storage, log)
        note_sidecars(session.storage, log)
        ledger = read_ledger(session.storage)
        report = _planned(session, ledger, report)
    except ClusterStop as stop:
        log.add([stop.diagnostic])
    state = StateObservations.of(session.storage, ledger, foreign)
    report = replace(report, state=state, diagnostics=log.entries)
    return report, session.storage.location.uri


def _planned(session: ClusterSession, ledger: LedgerRead, report: PlanReport) -> PlanReport:
    desired, storage, log = session.desired, session.storage, session.log
    assert desired is not None
    changes = diff_states(desired, ledger.state)
    gated = list(gated_changes(changes))
    approvals = {}
    if gated:
        approvals = usable_approvals(
            (change for change, _ in gated),
            read_approvals(storage, log),
            desired.config_digest,
            ledger.state,
            log,
        )
    changes = classify(changes, desired, ledger.state, pending=(), approved=approvals.keys())
    return replace(
        report,
        changes=tuple(_with_migrations(session, changes)),
        blast=tuple(blast_radius(changes, desired.dependencies, ledger.state)),
        gates=tuple(
            ApprovalGate(change.resource, reason, change.resource in approvals)
            for change, reason in gated
        ),
        policy_changes=tuple(policy_changes(storage, desired, ledger.state, changes, log)),
        broken_queries=tuple(broken_queries(storage, desired, ledger.state, changes)),
    )


def _with_migrations(
    session: ClusterSession, changes: list[ResourceChange]
) -> Iterator[ResourceChange]:
    """The changes, those of schemas with what they do to the graph."""
    assert session.desired is not None
    for change in changes:
        if kind_of(change.resource) == "schema" and change.operation == "update":
            migration = preview_migration(session.storage, session.desired, change, session.log)
            yield replace(change, migration=migration)
        else:
            yield change


# -- approving -----------------------------------------------------------------------------------


def approve_change(
    bundle: ConfigBundle,
    settings: Settings,
    resource: str,
    approved_by: str,
    root: str | None = None,
) -> ApproveReport:
    """Approve one destructive change of the current plan; nothing is executed."""
    session, log = open_session(bundle, settings, root)
    report = ApproveReport(bundle.name)
    if session is None:
        return replace(report, diagnostics=log.entries)
    desired = session.desired
    assert desired is not None
    assert desired.config_digest is not None
    try:
        with locked(session, "approve") as guard:
            ledger = read_ledger(session.storage)
            if not ledger.exists or ledger.is_fence:
                raise state_missing(session.storage.path(LEDGER))
            gated = {
                change.resource: (change, reason)
                for change, reason in gated_changes(diff_states(desired, ledger.state))
            }
            if resource not in gated:
                raise ClusterStop(
                    "approval_not_required",
                    resource,
                    "no change of this resource waits for an approval",
                )
            change, reason = gated[resource]
            approval = new_approval(change, reason, desired.config_digest, approved_by)
            write_approval(session.storage, guard, approval)
            report = ApproveReport(
                bundle.name, approval.approval_id, resource, change.operation, approved_by
            )
    except ClusterStop as stop:
        log.add([stop.diagnostic])
    return replace(report, diagnostics=log.entries)
