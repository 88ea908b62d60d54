"""Reads back changes of the manifest before they are acknowledged.

Lance's local writer may lose a disk error, and the manifest is written and made visible in one
call. So after each change, under the publish lease, the new version is opened as another process
would open it, its files are checked and its rows compared. A damaged version is withdrawn before
the write is acknowledged: one that cannot be opened is set aside; any other is followed by a
version with the previous content, and recorded as void. If the writer dies before that, the next
writer withdraws it: ``ensure_readable``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from omnigraph.commit.manifest import KEY, Manifest
from omnigraph.commit.names import publish_lease
from omnigraph.commit.rows import Row, VoidRow, to_arrow
from omnigraph.commit.ulid import now_micros
from omnigraph.errors import (
    OmniGraphError,
    StorageCorrupt,
    StorageError,
    StorageUnavailable,
    StorageUnknown,
)
from omnigraph.logs import logger
from omnigraph.storage.checksums import read_records
from omnigraph.storage.lance_format.files import Damaged
from omnigraph.storage.read_back import set_aside_unreadable
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.ledger_reader import RowAddress

if TYPE_CHECKING:
    from omnigraph.commit.store import GraphStore

_LOG = logger(__name__)


class NotTakenBack(StorageUnknown):
    """A damaged version is still the newest one; caught by the protocol, never shown."""


class BuiltUpon(StorageCorrupt):
    """A damaged version with later versions on top: it cannot be withdrawn."""


def upsert_checked(
    manifest: Manifest, writer: Ledger, rows: Sequence[Row], replaced: RowAddress | None = None
) -> tuple[int, RowAddress | None]:
    """Upsert rows and read them back.

    With ``replaced`` all rows are new except the last, which replaces the row at that address.
    Returns the version that has the rows, and the address of the last one where it is known.

    On local disk the outcome is always known. ``StorageUnknown`` is left for object stores, and for
    damage that could not be undone.
    """
    table, base, fragments = to_arrow(rows), writer.version, writer.fragments
    first = None
    try:
        first = writer.upsert(table, KEY, replaced)
    except StorageError as error:
        if not manifest.datasets.root.is_local:
            raise
        # The failed write may have made a version nevertheless.
        newest = manifest.datasets.newest(manifest.ref, base)
        newest = set_aside_unreadable(manifest.datasets, manifest.ref, newest, base)
        if newest == base:
            raise _definite(error) from error
        writer.advance(newest)
        if not writer.contains(table, KEY):
            raise _definite(error) from error
    if first is None:
        _check(manifest, writer, lambda: writer.read_back(table, KEY, fragments))
        return writer.version, None
    # The files of the rows were checked before.
    _check(manifest, writer, writer.read_back)
    return writer.version, RowAddress(first.fragment, len(rows) - 1)


def write_checked(manifest: Manifest, writer: Ledger, work: Callable[[Ledger], int]) -> None:
    """Run a change that keeps all rows, and read its version back."""
    work(writer)
    _check(manifest, writer, writer.read_back)


def _definite(error: StorageError) -> StorageError:
    """The error of a local write that did not happen."""
    if not isinstance(error, StorageUnknown):
        return error
    return StorageUnavailable(
        "the disk failed while the graph's manifest was written; nothing was changed",
        hint="check the disk, then repeat",
    )


def _check(manifest: Manifest, writer: Ledger, read_back: Callable[[], None]) -> None:
    try:
        read_back()
    except (Damaged, StorageError) as error:
        unreadable = _unreadable(manifest, manifest.ref.path)
        damage = error if isinstance(error, Damaged) else unreadable
        _withdraw(manifest, writer, damage)
        raise damage.error() from error


def _withdraw(manifest: Manifest, writer: Ledger, damage: Damaged) -> None:
    """Withdraw a damaged version, under the publish lease; raises if that fails."""
    version = writer.version
    if manifest.datasets.newest(manifest.ref, version) != version:
        raise BuiltUpon(
            f"version {version} of '{manifest.ref.path}' is damaged and has later versions",
            hint="verify_graph() names the files; restore them from a backup",
            details={"version": version, "path": damage.path},
        )
    try:
        if writer.withdraw(damage):
            _mark_void(manifest, writer, version, damage)
    except OmniGraphError as error:
        _LOG.warning("the damaged version %s could not be withdrawn: %s", version, error)
        raise NotTakenBack(
            f"version {version} of '{manifest.ref.path}' is damaged and could not be withdrawn"
        ) from error


def _mark_void(manifest: Manifest, writer: Ledger, version: int, damage: Damaged) -> None:
    """Record that a version was never acknowledged."""
    row = VoidRow(manifest.branch, version, now_micros(), damage.reason)
    table, fragments = to_arrow([row]), writer.fragments
    writer.upsert(table, KEY)
    writer.read_back(table, KEY, fragments)
    writer.sync()
    writer.note()


def ensure_readable(store: GraphStore, branch: str | None) -> bool:
    """Withdraw an unreadable newest version of a branch's manifest; returns whether there was one.

    A writer died, or its disk was full, after a damaged version had become visible. Nothing in it
    was acknowledged unless its checksums were recorded: then it was damaged later, and is kept.
    """
    manifest = store.manifest(branch)
    try:
        manifest.current()
        return False
    except StorageCorrupt:
        with store.leases.acquire([publish_lease(branch)], store.timeouts.publish):
            is_repaired = _take_back_newest(manifest)
        if not is_repaired:
            raise
        _LOG.warning("a damaged version of '%s' was withdrawn", manifest.ref.path)
        manifest.current()
        return True


def _take_back_newest(manifest: Manifest) -> bool:
    """Withdraw the newest version if it is damaged and was never acknowledged."""
    datasets, ref = manifest.datasets, manifest.ref
    versions = datasets.listed_versions(ref)
    if not datasets.root.is_local or len(versions) < 2:
        return False
    base, head = versions[-2:]
    if ref.version_path(head) in read_records(datasets.objects).sums:
        return False
    if set_aside_unreadable(datasets, ref, head, base) < head:
        return True
    if _is_whole(manifest, head):
        # Another process withdrew the damaged one.
        return True
    if not _is_whole(manifest, base):
        return False
    writer = Ledger.open(datasets, ref, head)
    _withdraw(manifest, writer, _unreadable(manifest, ref.version_path(head)))
    return True


def _unreadable(manifest: Manifest, path: str) -> Damaged:
    return Damaged(manifest.datasets.root.path(path), "it cannot be read")


def _is_whole(manifest: Manifest, version: int) -> bool:
    try:
        with lance_call("read", manifest.ref.path):
            manifest.datasets.open_anew(manifest.ref, version).to_table()
    except StorageError:
        return False
    return True
