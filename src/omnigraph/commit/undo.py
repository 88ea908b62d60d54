"""Undo of a write by its own living writer, when it could not publish.

The writer still holds its leases, so nothing was seen or built upon: the restored versions are
published without a commit. Before that, the sidecar records that the writer gave up; when the undo
fails or the process dies, the sidecar stays and recovery finishes the undo, also without a commit.
"""

from __future__ import annotations

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.rollback import landing_head, publish_pins, restore_tables
from omnigraph.commit.schema.staging import SchemaStaging
from omnigraph.commit.sidecar import Sidecar, WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import OmniGraphError, StorageUnknown
from omnigraph.logs import logger
from omnigraph.storage.leases.local import LeaseGuard

_LOG = logger(__name__)


def undo_write(
    store: GraphStore, sidecar: Sidecar, cause: OmniGraphError, guard: LeaseGuard
) -> bool:
    """Restore the tables to before the write; says whether that worked. Never raises."""
    _mark_undoing(store, sidecar)
    try:
        snapshot = store.manifest(sidecar.branch).current()
        if isinstance(cause, StorageUnknown) or _has_moved(store, sidecar, snapshot):
            _restore(store, sidecar, snapshot, guard)
        if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
            # Before the sidecar is deleted: alone they would not show how the apply ended.
            SchemaStaging(store.objects).discard()
    except OmniGraphError as error:
        _LOG.warning(
            "commit %s could not be undone, its sidecar stays: %s", sidecar.operation_id, error
        )
        return False
    try:
        store.sidecars.delete(sidecar.operation_id)
    except OmniGraphError as error:
        _LOG.warning("the sidecar of commit %s stays: %s", sidecar.operation_id, error)
    return True


def _mark_undoing(store: GraphStore, sidecar: Sidecar) -> None:
    """Record that the writer gave up. Without the mark a recovery may publish a commit."""
    try:
        # A write that moves no table has no sidecar.
        if store.sidecars.exists(sidecar.operation_id):
            store.sidecars.write(sidecar.as_undoing())
    except OmniGraphError as error:
        _LOG.warning("the undo of commit %s is not recorded: %s", sidecar.operation_id, error)
    reached(Failpoint.UNDO_AFTER_MARK)


def _has_moved(store: GraphStore, sidecar: Sidecar, snapshot: Snapshot) -> bool:
    return any(
        landing_head(store, entry, pin) > pin.version
        for entry in sidecar.tables
        if (pin := snapshot.pin(entry.table_key)) is not None
    )


def _restore(store: GraphStore, sidecar: Sidecar, snapshot: Snapshot, guard: LeaseGuard) -> None:
    def before_restore() -> None:
        reached(Failpoint.UNDO_BEFORE_RESTORE)
        # Lance lets a late restore win, so it must not be late.
        guard.check()

    restored = restore_tables(
        store,
        sidecar,
        snapshot,
        unmoved_too=True,
        before_restore=before_restore,
    )
    reached(Failpoint.UNDO_AFTER_RESTORE)
    publish_pins(store, sidecar.branch, restored)
    reached(Failpoint.UNDO_AFTER_PUBLISH)
