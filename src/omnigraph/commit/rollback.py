"""Undoes the table commits of a write that was never published.

A table is restored by adding a version with the content of its pin, never by removing one. The
restored heads are published, so that pin and head agree again and the next writer can write: in a
commit of ``omnigraph:recovery`` if the writer died, without a commit if a live writer gave up, so
that the head of the branch does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omnigraph.commit.audit import TableOutcome
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.publisher import CommitIntent, Publication, Published
from omnigraph.commit.rows import ROLLED_BACK, CommitRow, VersionRow, WriterKind
from omnigraph.commit.schema.staging import SchemaStaging
from omnigraph.commit.sidecar import Sidecar, SidecarPin
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import OmniGraphError, OutcomePending, StorageUnavailable, StorageUnknown
from omnigraph.logs import logger
from omnigraph.records import dataclass
from omnigraph.storage.leases.local import LeaseGuard
from omnigraph.storage.read_back import set_aside_unreadable
from omnigraph.storage.tables.types import CommittedTable, TableRef
from omnigraph.storage.tables.versions import restored_version, version_of_same_rows

RECOVERY_ACTOR = "omnigraph:recovery"


def find_ending(store: GraphStore, sidecar: Sidecar) -> CommitRow | None:
    """The commit of a sidecar, or of its recovery, if one is published."""
    manifest = store.manifest(sidecar.branch)
    ending = manifest.with_state(lambda state, _: state.endings.get(sidecar.operation_id))
    return ending or manifest.commit(sidecar.operation_id)


def landing_branch(pin: SidecarPin) -> str | None:
    """The branch on which a sidecar's commits land; ``main`` may be spelled out."""
    return None if pin.table_branch == "main" else pin.table_branch


def landing_ref(pin: SidecarPin, snapshot_pin: Pin) -> TableRef:
    """The copy of the table that a sidecar's commits land on."""
    return TableRef(snapshot_pin.location, landing_branch(pin))


def landing_head(store: GraphStore, pin: SidecarPin, snapshot_pin: Pin) -> int:
    """The newest version of that copy; the pin itself when the branch has no copy.

    0 if the pinned version was removed. An unreadable version above the pin was truncated when it
    was written, and is set aside; the caller holds the lease.
    """
    ref = landing_ref(pin, snapshot_pin)
    if store.datasets.info(ref, snapshot_pin.version) is None:
        return 0 if snapshot_pin.branch == ref.branch else snapshot_pin.version
    head = store.tables.head(ref, snapshot_pin.version)
    return set_aside_unreadable(store.datasets, ref, head, snapshot_pin.version)


@dataclass(frozen=True, slots=True)
class Restored:
    """A table that was restored to its pin, and the head it had before."""

    table_key: str
    head: int
    pinned: int
    table: CommittedTable

    @property
    def outcome(self) -> TableOutcome:
        return TableOutcome(self.table_key, self.head, self.pinned)


def restore_tables(
    store: GraphStore,
    sidecar: Sidecar,
    snapshot: Snapshot,
    *,
    unmoved_too: bool,
    before_restore: Callable[[], None],
) -> list[Restored]:
    """Restore the tables of a sidecar to the content of their pins.

    A table whose pin is not the one that the writer expected was published by another writer: it is
    left alone, unless Lance rebased a late commit of this writer onto it. ``unmoved_too`` also adds
    a version to tables that did not move, so that a late commit fails.
    """
    restored: list[Restored] = []
    for entry in sidecar.tables:
        pin = snapshot.pin(entry.table_key)
        if pin is None:
            continue
        head = landing_head(store, entry, pin)
        ref = landing_ref(entry, pin)
        moved = head > pin.version
        if moved and pin.version != entry.expected_version:
            moved = any(
                store.tables.transaction_id(ref, version) in entry.transactions
                for version in range(pin.version + 1, head + 1)
            )
        if not (moved or unmoved_too) or store.datasets.info(ref, pin.version) is None:
            continue
        before_restore()
        table = store.inline.restore(ref, head, pin.version)
        restored.append(Restored(entry.table_key, head, pin.version, table))
    return restored


def was_undone(store: GraphStore, sidecar: Sidecar, snapshot: Snapshot) -> bool:
    """Whether the writer of a sidecar restored all of its tables itself, and published that.

    It leaves no commit, but each table then has a version after the writer's own that restores the
    expected one, at or below the pin.
    """
    entries = [(entry, snapshot.pin(entry.table_key)) for entry in sidecar.tables]
    return bool(entries) and all(
        pin is not None and _is_restored(store, entry, pin) for entry, pin in entries
    )


def _is_restored(store: GraphStore, entry: SidecarPin, pin: Pin) -> bool:
    ref = landing_ref(entry, pin)
    if pin.branch != ref.branch:
        return False
    first = entry.expected_version + 1
    last = min(pin.version, first + len(entry.transactions))
    return any(
        restored_version(store.datasets, ref, version) == entry.expected_version
        for version in range(first, last + 1)
    )


def is_same_content(store: GraphStore, before: Pin | None, after: Pin | None) -> bool:
    """Whether a table moved from one pin to another only by undone writes and compactions."""
    if before is None or after is None or before.ref != after.ref:
        return False
    version: int | None = after.version
    while version is not None and version > before.version:
        version = version_of_same_rows(store.datasets, after.ref, version)
    return version == before.version


def are_pinned(sidecar: Sidecar, snapshot: Snapshot) -> bool:
    """Whether the versions of a write without a commit are published, or later ones are.

    All versions of one copy of a table follow each other, so a later one contains the write.
    """
    is_pins_only = sidecar.pins_only and not sidecar.undoing
    return is_pins_only and all(
        (pin := snapshot.pin(entry.table_key)) is not None
        and pin.branch == landing_branch(entry)
        and pin.version >= entry.expected_version + len(entry.transactions)
        for entry in sidecar.tables
    )


def pin_restored(
    store: GraphStore,
    branch: str | None,
    restored: Sequence[Restored],
    guard: LeaseGuard | None = None,
) -> None:
    """Pin the restored heads without a commit; ``guard`` may hold the lease of the publish."""
    publish_pins(store, branch, *_rows(restored), guard)


def publish_pins(
    store: GraphStore,
    branch: str | None,
    expected: Mapping[str, int],
    rows: Sequence[VersionRow],
    guard: LeaseGuard | None = None,
) -> None:
    """Publish versions of tables without a commit."""
    try:
        store.publisher.publish(store.manifest(branch), Publication(expected, rows), guard)
    except StorageUnknown as error:
        # The caller could not look it up: the sidecar is left to the next recovery.
        raise _no_answer() from error


def publish_restored(
    store: GraphStore, sidecar: Sidecar, restored: Sequence[Restored]
) -> Published:
    """Pin the restored heads in a commit that names the undone write."""
    extra = {ROLLED_BACK: sidecar.operation_id}
    return publish_recovery(store, sidecar.branch, *_rows(restored), extra)


def _rows(restored: Sequence[Restored]) -> tuple[dict[str, int], list[VersionRow]]:
    """The expected versions of restored tables, and their new pins."""
    expected = {table.table_key: table.pinned for table in restored}
    return expected, [VersionRow.of(entry.table_key, entry.table) for entry in restored]


def publish_recovery(
    store: GraphStore,
    branch: str | None,
    expected: Mapping[str, int],
    versions: Sequence[VersionRow],
    extra: Mapping[str, Any],
    **more: Any,
) -> Published:
    """Publish as the recovery actor.

    The caller, another write, could not look up an unknown outcome: the sidecar is left to the next
    recovery.
    """
    merged_parent = more.pop("merged_parent", None)
    # The newest commit of a version is the one with the latest time.
    now = max([now_micros(), *(one.created_at + 1 for one in more.get("earlier", ()))])
    intent = CommitIntent(new_ulid(), branch, now, RECOVERY_ACTOR, merged_parent, extra)
    publication = Publication(expected, versions, commit=intent, **more)
    try:
        return store.publisher.publish(store.manifest(branch), publication)
    except OutcomePending as error:
        raise _no_answer() from error


def _no_answer() -> StorageUnavailable:
    return StorageUnavailable(
        "the store does not answer while an interrupted write is recovered", hint="retry later"
    )


_LOG = logger(__name__)


def undo_write(
    store: GraphStore, sidecar: Sidecar, cause: OmniGraphError, guard: LeaseGuard
) -> bool:
    """Undo a write in its own live writer; returns whether that succeeded. Never raises.

    The writer still holds its leases, so no other write is based on it. If this fails or the
    process dies, the sidecar remains and recovery finishes the undo, also without a commit.
    """
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
        store, sidecar, snapshot, unmoved_too=True, before_restore=before_restore
    )
    reached(Failpoint.UNDO_AFTER_RESTORE)
    pin_restored(store, sidecar.branch, restored, guard)
    reached(Failpoint.UNDO_AFTER_PUBLISH)
