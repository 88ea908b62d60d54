"""Copying the files of a graph: several at a time, verified, and resumable.

Backup, restore and clone share this. A file with a random name from Lance never changes, so an
existing copy of it is kept; any other file is read at once and rewritten.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from typing import TypeVar

from omnigraph.errors import BranchNotFound, HistoryGone, InputError, StorageCorrupt, StorageMissing
from omnigraph.maintain.backup.capture import SourceFile
from omnigraph.maintain.backup.index import is_immutable_file
from omnigraph.maintain.report import Report
from omnigraph.progress import OnProgress, Progress
from omnigraph.records import dataclass
from omnigraph.storage.checksums import FileSum, sha256_sum, sum_of
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.objects.copying import copy_file, sum_of_file, write_file
from omnigraph.storage.objects.paths import Root
from omnigraph.storage.objects.store import ObjectStore

T = TypeVar("T")
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class CopyReport(Report):
    """A restored or cloned graph."""

    uri: str
    point: str | None
    """The point of the backup; None for a clone."""
    taken_at: datetime
    branches: Mapping[str, int]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file at the target, and whether this copy wrote it."""

    path: str
    stored: str
    size: int
    digest: FileSum
    is_new: bool


class Copier:
    """Copies files from one store to another, and reports its progress."""

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        files: Sequence[SourceFile],
        on_progress: OnProgress | None,
        *,
        existing: Mapping[str, int],
        checksums: Mapping[str, tuple[FileSum, ...]],
        stored_path: Callable[[str, str], str] = lambda path, _: path,
        rewrite: Callable[[str, bytes], bytes] = lambda _, data: data,
        trust_existing: bool = False,
    ) -> None:
        """``existing`` are the files at the target; ``checksums`` those recorded for the graph.

        ``stored_path`` names the target of a path and a digest. ``rewrite`` changes the content of
        a file that is not immutable. ``trust_existing`` takes an existing file of the right size
        as complete without reading it.
        """
        self._source = source
        self._target = target
        self._on_progress = on_progress
        self._existing = dict(existing)
        self._checksums = checksums
        self._stored_path = stored_path
        self._rewrite = rewrite
        self._trust_existing = trust_existing
        self._total_files = len(files)
        self._total_bytes = sum(file.size for file in files)
        self._done_files = self._done_bytes = 0

    def copy(self, files: Sequence[SourceFile], concurrency: int) -> Iterator[CopiedFile]:
        """Copy files; yields them in their order."""
        # Closed if the caller stops early: then nothing more is copied.
        with closing(ThreadExecutor(concurrency).stream(self._copy_one, files)) as results:
            for file in results:
                self._done_files += 1
                self._done_bytes += file.size
                yield file
                if self._on_progress is not None:
                    done, total = self._done_files, self._total_files
                    counts = {"bytes": self._done_bytes, "total_bytes": self._total_bytes}
                    self._on_progress(Progress("copying", done, total, "files", counts))

    def _copy_one(self, file: SourceFile) -> CopiedFile:
        if not is_immutable_file(file.path):
            return self._write(file)
        stored = self._stored_path(file.path, "")
        result = self._reuse(file, stored)
        is_new = result is None
        if result is None:
            result = copy_file(self._source, file.stored, self._target, stored)
            self._check(file, result)
        return CopiedFile(file.path, stored, file.size, result, is_new)

    def _reuse(self, file: SourceFile, stored: str) -> FileSum | None:
        """The sum of a file that an earlier, maybe interrupted, copy left at the target."""
        if self._existing.get(stored) != file.size:
            return None
        if not self._trust_existing:
            result = sum_of_file(self._target, stored)
            return result if file.sha256 in (None, result.sha256) else None
        if file.sha256 is not None:
            return sha256_sum(file.size, file.sha256)
        # The source defines the expected content.
        result = sum_of_file(self._source, file.stored)
        self._check(file, result)
        return result

    def _write(self, file: SourceFile) -> CopiedFile:
        data = self._source.read_bytes(file.stored) if file.data is None else file.data
        if not self._trust_existing:
            # A backup takes such a file as it is: its point records the digest.
            self._check(file, sum_of(data))
        data = self._rewrite(file.path, data)
        result = sum_of(data)
        stored = self._stored_path(file.path, result.sha256)
        is_new = not self._trust_existing or self._existing.get(stored) != result.size
        if is_new:
            write_file(self._target, stored, data)
            self._existing[stored] = result.size
        return CopiedFile(file.path, stored, file.size, result, is_new)

    def _check(self, file: SourceFile, result: FileSum) -> None:
        recorded = self._checksums.get(file.path, ()) if is_immutable_file(file.path) else ()
        is_right = file.sha256 in (None, result.sha256) and not result.contradicts(recorded)
        if result.size != file.size or not is_right:
            raise damaged_file(file.stored)


def damaged_file(path: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"'{path}' is damaged: it is not what was written",
        hint="run verify on the graph, or restore an earlier point",
        details={"path": path},
    )


def retry_copy(copy: Callable[[], T]) -> T:
    """Repeat a copy if a branch or old versions were removed during it."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(StorageMissing, HistoryGone, BranchNotFound):
            return copy()
    return copy()


def refuse_overlap(source: Root, target: Root) -> None:
    """Refuse a target inside the graph or around it: it would be part of the next copy."""
    if source.is_local != target.is_local:
        return
    # One directory may have several paths.
    a, b = (f"{os.path.realpath(r.uri) if r.is_local else r.uri}/" for r in (source, target))
    if a.startswith(b) or b.startswith(a):
        raise InputError(
            f"'{target.uri}' and the graph at '{source.uri}' contain each other",
            hint="choose a location outside the graph",
        )
