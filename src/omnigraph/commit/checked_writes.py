"""Changes of the manifest that are read back before they are acknowledged.

Lance's local writer may lose a disk error, and the manifest is written and made visible in one
call. So after each change, under the publish lease, the new version is opened as another process
would open it, its files are checked and its rows compared. Damage is taken back before the write is
acknowledged: a version that cannot be opened is set aside; any other is followed by a version with
the previous content, and recorded as void.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.commit.manifest import KEY, Manifest
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
from omnigraph.storage.lance_format.files import Damaged
from omnigraph.storage.read_back import set_aside_unreadable
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.ledger import Ledger

_LOG = logger(__name__)


class NotTakenBack(StorageUnknown):
    """A damaged version is still the newest one; caught by the protocol, never shown."""


class BuiltUpon(StorageCorrupt):
    """A damaged version with later versions on top: it cannot be taken back."""


def upsert_checked(
    datasets: Datasets, manifest: Manifest, writer: Ledger, rows: Sequence[Row]
) -> int:
    """Upsert rows and read them back; returns the version that has them.

    On local disk the outcome is always known. ``StorageUnknown`` is left for object stores, and for
    damage that could not be undone.
    """
    table, base, fragments = to_arrow(rows), writer.version, writer.fragments
    try:
        writer.upsert(table, KEY)
    except StorageError as error:
        if not datasets.root.is_local:
            raise
        _adopt_landed(datasets, manifest, writer, base, error)
        if not writer.contains(table, KEY):
            raise _definite(error) from error
    _check(datasets, manifest, writer, lambda: writer.read_back(table, KEY, fragments))
    return writer.version


def write_checked(
    datasets: Datasets, manifest: Manifest, writer: Ledger, work: Callable[[Ledger], int]
) -> None:
    """Run a change that keeps all rows, and read its version back."""
    work(writer)
    _check(datasets, manifest, writer, writer.read_back)


def _adopt_landed(
    datasets: Datasets, manifest: Manifest, writer: Ledger, base: int, error: StorageError
) -> None:
    """Adopt the version that a failed write made nevertheless; raises when it made none."""
    newest = datasets.newest(manifest.ref, base)
    newest = set_aside_unreadable(datasets, manifest.ref, newest, base)
    if newest == base:
        raise _definite(error) from error
    writer.advance(newest)


def _definite(error: StorageError) -> StorageError:
    """The error of a local write that did not happen."""
    if not isinstance(error, StorageUnknown):
        return error
    return StorageUnavailable(
        "the disk failed while the graph's manifest was written; nothing was changed",
        hint="check the disk, then repeat",
    )


def _check(
    datasets: Datasets,
    manifest: Manifest,
    writer: Ledger,
    read_back: Callable[[], None],
) -> None:
    try:
        read_back()
    except (Damaged, StorageError) as error:
        damage = _damage_of(datasets, manifest, error)
        withdraw_version(datasets, manifest, writer, damage)
        raise damage.error() from error


def _damage_of(datasets: Datasets, manifest: Manifest, error: Damaged | StorageError) -> Damaged:
    if isinstance(error, Damaged):
        return error
    return Damaged(datasets.root.path(manifest.ref.path), "it cannot be read")


def withdraw_version(
    datasets: Datasets, manifest: Manifest, writer: Ledger, damage: Damaged
) -> None:
    """Take a damaged version back, under the publish lease; raises when that cannot be done."""
    version = writer.version
    if datasets.newest(manifest.ref, version) != version:
        raise BuiltUpon(
            f"version {version} of '{manifest.ref.path}' is damaged and has later versions",
            hint="verify_graph() names the files; restore them from a backup",
            details={"version": version, "path": damage.path},
        )
    try:
        if writer.withdraw(damage):
            mark_void(datasets, manifest, writer, version, damage)
    except OmniGraphError as error:
        _LOG.warning("the damaged version %s could not be taken back: %s", version, error)
        raise NotTakenBack(
            f"version {version} of '{manifest.ref.path}' is damaged and could not be taken back"
        ) from error


def mark_void(
    datasets: Datasets, manifest: Manifest, writer: Ledger, version: int, damage: Damaged
) -> None:
    """Record that a version was never acknowledged."""
    row = VoidRow(manifest.branch, version, now_micros(), damage.reason)
    table, fragments = to_arrow([row]), writer.fragments
    writer.upsert(table, KEY)
    writer.read_back(table, KEY, fragments)
    writer.sync()
    writer.note()
