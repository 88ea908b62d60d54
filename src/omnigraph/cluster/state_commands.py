"""``validate``, ``status``, ``refresh``, ``import`` and ``force-unlock``."""

from __future__ import annotations

from contextlib import AbstractContextManager

from omnigraph.cluster.approvals import consume_approval, read_approvals
from omnigraph.cluster.bundle import ConfigBundle
from omnigraph.cluster.desired import read_desired
from omnigraph.cluster.diagnostics import ClusterStop, DiagnosticLog
from omnigraph.cluster.draft import LedgerDraft
from omnigraph.cluster.ledger import LedgerState
from omnigraph.cluster.location import LEDGER
from omnigraph.cluster.lock import LockGuard, LockRead, hold_lock, read_lock
from omnigraph.cluster.observe import observe_graphs
from omnigraph.cluster.payloads import drop_damaged, report_payloads
from omnigraph.cluster.reports import (
    StateObservations,
    StateReport,
    UnlockReport,
    ValidateReport,
)
from omnigraph.cluster.session import ClusterSession, config_file, open_session
from omnigraph.cluster.sidecars import read_sidecars, remove_sidecars
from omnigraph.cluster.state_file import (
    LedgerRead,
    next_revision,
    observations_json,
    read_ledger,
    statuses_json,
    write_ledger,
)
from omnigraph.cluster.storage import LOCK, RECOVERIES, ClusterStorage
from omnigraph.cluster.sweep import SweepResult, sweep
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.errors import StorageError
from omnigraph.settings import Settings


def validate_cluster(bundle: ConfigBundle) -> ValidateReport:
    """Check a configuration and the files that it names; no storage is read."""
    log = DiagnosticLog()
    desired = read_desired(bundle, log)
    return ValidateReport(
        bundle.name,
        config_file(bundle),
        {} if desired is None else desired.resources,
        () if desired is None else desired.dependencies,
        log.entries,
    )


def cluster_status(
    bundle: ConfigBundle, settings: Settings, root: str | None = None
) -> StateReport:
    """The ledger, the lock and the payloads as they are; nothing is written, no graph opened."""
    session, log = open_session(bundle, settings, root, header=True)
    if session is None:
        return StateReport("status", bundle.name, no_state(), diagnostics=log.entries)
    storage = session.storage
    ledger = LedgerRead()
    foreign = None
    try:
        foreign = foreign_lock(storage, log)
        note_sidecars(storage, log)
        ledger = read_ledger(storage)
        if not ledger.exists:
            message = "there is no ledger; run `omnigraph cluster import`"
            log.warning("state_missing", storage.path(LEDGER), message)
        report_payloads(storage, ledger.state, log)
    except ClusterStop as stop:
        log.add([stop.diagnostic])
    state = StateObservations.of(storage, ledger, foreign)
    return state_report("status", session, state, ledger.state)


def refresh_cluster(
    bundle: ConfigBundle, settings: Settings, root: str | None = None
) -> StateReport:
    """Record what the graphs and payloads of an existing ledger are like now."""
    return _observe("refresh", bundle, settings, root)


def import_cluster(
    bundle: ConfigBundle, settings: Settings, root: str | None = None
) -> StateReport:
    """Write the first ledger, with the graphs that exist already."""
    return _observe("import", bundle, settings, root)


def _observe(
    operation: str, bundle: ConfigBundle, settings: Settings, root: str | None
) -> StateReport:
    session, log = open_session(bundle, settings, root)
    if session is None:
        return StateReport(operation, bundle.name, no_state(), diagnostics=log.entries)
    ledger = LedgerRead()
    acquired: str | None = None
    try:
        with locked(session, operation) as guard:
            acquired = guard.lock_id
            ledger = read_ledger(session.storage)
            _require(operation, session.storage, ledger)
            ledger = _observe_locked(operation, session, guard, ledger)
    except ClusterStop as stop:
        log.add([stop.diagnostic])
    state = StateObservations.of(session.storage, ledger, None, acquired)
    return state_report(operation, session, state, ledger.state)


def _require(operation: str, storage: ClusterStorage, ledger: LedgerRead) -> None:
    path = storage.path(LEDGER)
    if operation == "import" and ledger.exists and not ledger.is_fence:
        message = "there is a ledger already; run `omnigraph cluster refresh` to update it"
        raise ClusterStop("state_already_exists", path, message)
    if operation == "refresh" and not ledger.exists:
        raise state_missing(path)


def _observe_locked(
    operation: str, session: ClusterSession, guard: LockGuard, ledger: LedgerRead
) -> LedgerRead:
    storage, log = session.storage, session.log
    assert session.desired is not None
    draft = LedgerDraft(ledger.state)
    if operation == "import":
        draft.config_digest = session.desired.config_digest
    swept = sweep(storage, draft, log)
    drop_damaged(draft, report_payloads(storage, draft.state(), log))
    observe_graphs(storage, session.desired, draft, log)
    if operation == "import" and not log.ok:
        return ledger
    revision = next_revision(ledger.state, storage.path(LEDGER))
    guard.check()
    reached(Failpoint.CLUSTER_BEFORE_LEDGER)
    written = write_ledger(storage, ledger, draft.state(revision))
    try:
        acknowledge_sweep(storage, guard, swept, log)
    except ClusterStop as stop:
        # The ledger is written: what is left is completed by the next command.
        log.warning(stop.diagnostic.code, stop.diagnostic.path, stop.diagnostic.message)
    return written


def acknowledge_sweep(
    storage: ClusterStorage, guard: LockGuard, swept: SweepResult, log: DiagnosticLog
) -> None:
    """After the ledger: mark approvals as used, then remove the sidecars."""
    for approval in read_approvals(storage, log) if swept.consumed else ():
        if approval.approval_id in swept.consumed and approval.consumed_at is None:
            consume_approval(storage, guard, approval, swept.consumed[approval.approval_id])
    remove_sidecars(storage, guard, swept.retired, log)


def force_unlock(bundle: ConfigBundle, settings: Settings, lock_id: str) -> UnlockReport:
    """Remove the lock of a process that does not exist any more, by its id."""
    session, log = open_session(bundle, settings, header=True)
    if session is None:
        return UnlockReport(bundle.name, no_state(), diagnostics=log.entries)
    storage = session.storage
    seen: LockRead | None = None
    is_removed = False
    try:
        seen = read_lock(storage)
        if seen is None:
            raise ClusterStop("state_lock_missing", storage.path(LOCK), "there is no lock")
        if seen.record.lock_id != lock_id:
            raise ClusterStop(
                "state_lock_id_mismatch",
                storage.path(LOCK),
                f"the lock has the id {seen.record.lock_id}, not '{lock_id}'",
            )
        is_removed = _remove_lock(storage, seen)
    except ClusterStop as stop:
        log.add([stop.diagnostic])
    state = StateObservations.of(storage, LedgerRead(), seen)
    return UnlockReport(session.name, state, is_removed, log.entries)


def _remove_lock(storage: ClusterStorage, seen: LockRead) -> bool:
    """Remove a lock that may be renewed meanwhile, as long as it has the same id."""
    current: LockRead | None = seen
    try:
        while current is not None and current.record.lock_id == seen.record.lock_id:
            if storage.objects.delete_if(LOCK, current.version):
                return True
            current = read_lock(storage)
    except StorageError as error:
        raise ClusterStop("state_lock_error", storage.path(LOCK), error.message) from error
    raise ClusterStop("state_lock_missing", storage.path(LOCK), "the lock was released meanwhile")


# -- shared parts --------------------------------------------------------------------------------


def no_state() -> StateObservations:
    """In place of a ledger whose location is not known."""
    return StateObservations(LEDGER, LOCK)


def state_missing(path: str) -> ClusterStop:
    return ClusterStop(
        "state_missing", path, "there is no ledger; run `omnigraph cluster import` first"
    )


def locked(session: ClusterSession, operation: str) -> AbstractContextManager[LockGuard]:
    """The lock of the cluster for a block, unless the configuration disables it."""
    if not session.config.lock:
        session.log.warning(
            "state_lock_disabled", "state.lock", "no lock is taken: other commands are not excluded"
        )
    return hold_lock(session.storage, operation, enabled=session.config.lock)


def foreign_lock(storage: ClusterStorage, log: DiagnosticLog) -> LockRead | None:
    """The lock that somebody holds; a lock that cannot be read is only reported."""
    try:
        return read_lock(storage)
    except ClusterStop as stop:
        finding = stop.diagnostic
        log.warning(finding.code, finding.path, finding.message)
        return None


def note_sidecars(storage: ClusterStorage, log: DiagnosticLog) -> None:
    """Report interrupted operations without handling them."""
    try:
        for sidecar in read_sidecars(storage, log):
            log.warning(
                "cluster_recovery_pending",
                f"graph.{sidecar.graph_id}",
                f"{sidecar.kind} {sidecar.operation_id} was interrupted; run cluster apply",
            )
    except StorageError as error:
        log.warning("recovery_sidecar_read_error", RECOVERIES, error.message)


def state_report(
    operation: str, session: ClusterSession, state: StateObservations, ledger: LedgerState
) -> StateReport:
    return StateReport(
        operation,
        session.name,
        state,
        {address: resource.digest for address, resource in sorted(ledger.resources.items())},
        statuses_json(ledger.resource_statuses),
        observations_json(ledger),
        session.log.entries,
    )
