"""Backup: a graph with its history and branches, at one moment, copied to another place.

Nobody is kept out of the graph while it runs, but for the moment that is fixed at its beginning.
One process at a time changes a backup. Only what it does not have yet is copied, and nothing there
is changed. The point that names the files is written last: a backup that is interrupted is none,
and the next one goes on where it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias, TypeVar

from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import (
    BranchNotFound,
    HistoryGone,
    InputError,
    OmniGraphError,
    StorageCorrupt,
    StorageMissing,
)
from omnigraph.maintain.backup.index import (
    BackupPoint,
    StoredFile,
    claim,
    has_name_for_ever,
    points,
    read_point,
    stored_files,
    stored_path,
    write_point,
)
from omnigraph.maintain.backup.point import Files, Moment, files_of, fix, refuse_changed
from omnigraph.maintain.backup.prune import alone, finish_prune
from omnigraph.maintain.report import Report
from omnigraph.storage.checksums import read_records
from omnigraph.storage.durable import Durability
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.leases.local import LeaseGuard
from omnigraph.storage.objects.copying import (
    FileDigest,
    copy_file,
    digest,
    digest_of,
    sync_directories,
    write_file,
)
from omnigraph.storage.objects.roots import Root, refuse_a_file
from omnigraph.storage.objects.store import ObjectStore

T = TypeVar("T")
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a backup, a restore or a clone is."""

    files: int
    total_files: int
    bytes: int
    total_bytes: int


Told: TypeAlias = Callable[[CopyProgress], None]


@dataclass(frozen=True, slots=True)
class BackupReport(Report):
    """A point that was made, and what it took."""

    uri: str
    point: str
    taken_at: datetime
    branches: Mapping[str, int]
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int


def quiet(_: CopyProgress) -> None:
    """Tells nobody."""


def backup(store: GraphStore, place: Root, many: int, tell: Told) -> BackupReport:
    """Add a point to the backup at a place."""
    refuse_overlap(store.root, place)
    refuse_a_file(place)
    durability = Durability.DISK if store.datasets.synced else Durability.OS
    target = ObjectStore(place, durability if store.root.is_local else Durability.DISK)
    with alone(target, store.timeouts) as held:
        finish_prune(target, held)
        return steadily(lambda: _point(store, target, many, tell, held))


def steadily(copy: Callable[[], T]) -> T:
    """Do a copy again when a branch or old versions went meanwhile: a later moment has neither."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(StorageMissing, HistoryGone, BranchNotFound):
            return copy()
    return copy()


def refuse_overlap(source: Root, target: Root) -> None:
    """A copy of a graph inside of itself, or around itself, would be part of the next one."""
    if source.is_local != target.is_local:
        return
    # The same place may have several names.
    a, b = (f"{os.path.realpath(r.uri) if r.is_local else r.uri}/" for r in (source, target))
    if a.startswith(b) or b.startswith(a):
        raise InputError(
            f"'{target.uri}' and the graph at '{source.uri}' lie in each other",
            hint="choose a place beside the graph",
        )


def _point(
    store: GraphStore, target: ObjectStore, many: int, tell: Told, held: LeaseGuard
) -> BackupReport:
    with ExitStack() as markers:
        moment = fix(store, markers)
        claim(target, moment.graph)
        files = files_of(store, moment)
        stored, copied = _Copying(store, target, many, tell).run(files)
        refuse_changed(store, files)
    held.check()
    _refuse_lost(target, stored)
    point = _as_point(moment, stored)
    write_point(target, point)
    return BackupReport(
        target.root.uri,
        point.point,
        point.taken_at,
        point.branches,
        len(stored),
        point.bytes,
        len(copied),
        sum(copied),
    )


def _refuse_lost(target: ObjectStore, stored: list[StoredFile]) -> None:
    """Nobody removes files while the lease of the backup is held; that is made sure of."""
    there = stored_files(target)
    for file in stored:
        if there.get(file.stored) != file.size:
            raise StorageMissing(
                f"'{file.stored}' of the backup was removed while the point was made",
                hint="repeat the backup",
                details={"path": file.stored},
            )


def _as_point(moment: Moment, stored: list[StoredFile]) -> BackupPoint:
    taken = datetime.fromtimestamp(moment.taken_at / 1_000_000, UTC)
    return BackupPoint(new_ulid(), taken, moment.graph, moment.branches, tuple(stored))


class _Copying:
    """The files of one point on their way."""

    def __init__(self, store: GraphStore, target: ObjectStore, many: int, tell: Told) -> None:
        self._source = store.objects
        self._target = target
        self._many = many
        self._tell = tell
        self._there = stored_files(target)
        self._known = {file.path: file for file in _newest_files(target)}
        self._sums = read_records(store.objects).sums

    def run(self, files: Files) -> tuple[list[StoredFile], list[int]]:
        """Bring all files there; gives them, and the sizes of those that were copied."""
        total = len(files.sizes) + len(files.texts)
        size = sum(files.sizes.values()) + sum(len(t.encode()) for t in files.texts.values())
        work: list[tuple[str, int, str | None]] = [
            (path, length, None) for path, length in files.sizes.items()
        ]
        work += [(path, 0, text) for path, text in files.texts.items()]
        stored: list[StoredFile] = []
        copied: list[int] = []
        done = 0
        # Closed at once when whoever is told has enough: then nothing more is copied.
        with closing(ThreadExecutor(self._many).stream(self._store, work)) as results:
            for file, is_new in results:
                stored.append(file)
                done += file.size
                if is_new:
                    copied.append(file.size)
                self._tell(CopyProgress(len(stored), total, done, size))
        sync_directories(self._target, (file.stored for file in stored))
        return sorted(stored, key=lambda file: file.path), copied

    def _store(self, item: tuple[str, int, str | None]) -> tuple[StoredFile, bool]:
        path, size, text = item
        if text is not None:
            return self._store_by_content(path, text.encode())
        if not has_name_for_ever(path):
            return self._store_by_content(path, self._source.read_bytes(path))
        stored = stored_path(path, "")
        if self._there.get(stored) == size:
            known = self._known.get(path)
            if known is not None and known.size == size:
                return known, False
            # Left by a backup that was interrupted: what it should hold is told by the graph.
            found = digest_of(self._source, path)
            self._check(path, size, found)
            return StoredFile(path, stored, size, found.sha256), False
        found = copy_file(self._source, path, self._target, stored)
        self._check(path, size, found)
        return StoredFile(path, stored, size, found.sha256), True

    def _store_by_content(self, path: str, data: bytes) -> tuple[StoredFile, bool]:
        found = digest(data)
        stored = stored_path(path, found.sha256)
        file = StoredFile(path, stored, found.size, found.sha256)
        if self._there.get(file.stored) == file.size:
            return file, False
        write_file(self._target, file.stored, data)
        self._there[file.stored] = file.size
        return file, True

    def _check(self, path: str, size: int, found: FileDigest) -> None:
        """A file that is not what its writer recorded is not worth keeping."""
        if found.size != size or found.contradicts(self._sums.get(path, ())):
            raise StorageCorrupt(
                f"'{path}' of the graph is damaged: it is not what was written",
                hint="run verify to see what else is",
                details={"path": path},
            )


def _newest_files(target: ObjectStore) -> tuple[StoredFile, ...]:
    """What the newest point knows; one that is damaged only costs the digests."""
    try:
        known = points(target)
        return read_point(target, known[-1]).files if known else ()
    except OmniGraphError:
        return ()
