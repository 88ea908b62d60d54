"""Backup: a graph with its history and branches, as of one time, copied to another location.

Readers and writers are not blocked, except for a moment at the beginning. One process at a time
changes a backup. Only files missing from it are copied, and no file there is changed. The point
that lists the files is written last: an interrupted backup adds none, and the next one resumes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime

from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import OmniGraphError, StorageMissing
from omnigraph.maintain.backup.capture import (
    SourceFile,
    capture_graph,
    captured_files,
    refuse_changed,
)
from omnigraph.maintain.backup.copy import CopiedFile, Copier, refuse_overlap, retry_copy
from omnigraph.maintain.backup.index import (
    BackupPoint,
    StoredFile,
    claim_backup,
    list_points,
    read_point,
    stored_files,
    stored_path,
    write_point,
)
from omnigraph.maintain.backup.prune import finish_prune, lock_backup
from omnigraph.maintain.report import Report
from omnigraph.progress import OnProgress
from omnigraph.records import dataclass
from omnigraph.storage.checksums import read_records
from omnigraph.storage.durable import Durability
from omnigraph.storage.leases.local import LeaseGuard
from omnigraph.storage.objects.copying import sync_directories
from omnigraph.storage.objects.paths import Root, refuse_a_file
from omnigraph.storage.objects.store import ObjectStore


@dataclass(frozen=True, slots=True)
class BackupReport(Report):
    """A new point, and what was copied for it."""

    uri: str
    point: str
    taken_at: datetime
    branches: Mapping[str, int]
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int


def create_backup(
    store: GraphStore, root: Root, concurrency: int, on_progress: OnProgress | None
) -> BackupReport:
    """Add a point to the backup at ``root``."""
    refuse_overlap(store.root, root)
    refuse_a_file(root)
    durability = Durability.DISK if store.datasets.synced else Durability.OS
    target = ObjectStore(root, durability if store.root.is_local else Durability.DISK)
    with lock_backup(target, store.timeouts) as guard:
        finish_prune(target, guard)
        return retry_copy(lambda: _add_point(store, target, concurrency, on_progress, guard))


def _add_point(
    store: GraphStore,
    target: ObjectStore,
    concurrency: int,
    on_progress: OnProgress | None,
    guard: LeaseGuard,
) -> BackupReport:
    with ExitStack() as markers:
        capture = capture_graph(store, markers)
        claim_backup(target, capture.graph)
        files = captured_files(store, capture)
        copied = _copy(store, target, files, concurrency, on_progress)
        refuse_changed(store, files)
    guard.check()
    stored = [StoredFile(f.path, f.stored, f.digest.size, f.digest.sha256) for f in copied]
    stored.sort(key=lambda file: file.path)
    _refuse_lost(target, stored)
    point = BackupPoint(
        new_ulid(), capture.taken_at, capture.graph, capture.branches, tuple(stored)
    )
    write_point(target, point)
    new = [file.digest.size for file in copied if file.is_new]
    return BackupReport(
        target.root.uri,
        point.point,
        point.taken_at,
        point.branches,
        len(stored),
        point.bytes,
        len(new),
        sum(new),
    )


def _copy(
    store: GraphStore,
    target: ObjectStore,
    files: Sequence[SourceFile],
    concurrency: int,
    on_progress: OnProgress | None,
) -> list[CopiedFile]:
    existing = stored_files(target)
    recorded: dict[str, StoredFile] = {}
    # A damaged point only costs the digests.
    with suppress(OmniGraphError):
        for point in list_points(target)[-1:]:
            recorded = {file.path: file for file in read_point(target, point).files}
    files = [_with_digest(file, recorded.get(file.path), existing) for file in files]
    copier = Copier(
        store.objects,
        target,
        files,
        on_progress,
        existing=existing,
        checksums=read_records(store.objects).sums,
        stored_path=stored_path,
        trust_existing=True,
    )
    copied = list(copier.copy(files, concurrency))
    sync_directories(target, (file.stored for file in copied))
    return copied


def _with_digest(
    file: SourceFile, recorded: StoredFile | None, existing: Mapping[str, int]
) -> SourceFile:
    """Add the digest of a file that the backup has already, from the newest point."""
    if recorded is None or file.data is not None or recorded.size != file.size:
        return file
    is_stored = recorded.stored == stored_path(file.path, "")
    if not is_stored or existing.get(recorded.stored) != file.size:
        return file
    return replace(file, sha256=recorded.sha256)


def _refuse_lost(target: ObjectStore, stored: Sequence[StoredFile]) -> None:
    """Make sure that no file was removed although the backup is locked."""
    existing = stored_files(target)
    for file in stored:
        if existing.get(file.stored) != file.size:
            raise StorageMissing(
                f"'{file.stored}' was removed from the backup while the point was made",
                hint="repeat the backup",
                details={"path": file.stored},
            )
