"""Checks files against their checksums before Lance reads them for the first time.

Lance checks little of what it reads. A damaged version or deletion file yields wrong rows, a
damaged index wrong rows or an error, and some damage kills the process. So on local disk each
handle checks the files that a table version references once: the version file when the version is
opened, a deletion file before rows are read, an index before a filter or a search uses its column.
A file with a recorded checksum is compared with it; any other must be well formed. For an index
file above ``LARGEST`` only size and format are checked. Files of this process were read back when
they were written. On an object store nothing is checked: it keeps checksums of its own.

A damaged version or deletion file raises ``StorageCorrupt``. An index is derived data: a column
with a damaged index is read without it, and the next optimize rebuilds it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from omnigraph.errors import StorageCorrupt, StorageMissing
from omnigraph.storage.checksums import Checksums, FileSum, is_same, read_records, sum_and_tail
from omnigraph.storage.lance_format.files import (
    Damaged,
    NewFile,
    check_column_tail,
    check_new_file,
    check_version_file,
)
from omnigraph.storage.lance_format.manifests import IndexEntry, base_paths, index_entries
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import is_file_in_copy, version_file
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.recorded_sums import RecordedSums
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import TableRef

if TYPE_CHECKING:
    from lance import LanceDataset

LARGEST = 32 << 20
"""Index files up to this size in bytes are compared in full."""

_MAX_CHECKED = 200_000
_GOOD: dict[str, tuple[int, int, int]] = {}
"""Size, mtime and inode of the files that a handle of this process found intact."""

Indexes = Mapping[str, tuple[IndexEntry, ...]]
"""Indexes by column."""


class FileInTable(NamedTuple):
    """A file that a version references: the copy of the table that holds it, and its size."""

    folder: str
    file: NewFile

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.file.name}"


class FirstReads:
    """Which files one handle of a graph has checked. Thread-safe."""

    def __init__(self, objects: ObjectStore, checksums: Checksums) -> None:
        self.objects = objects
        self.is_local = objects.root.is_local
        self._checksums = checksums
        self._records = RecordedSums(objects)
        self._lock = threading.Lock()
        self._good: set[str] = set()
        self._damaged: set[str] = set()
        self._guards: weakref.WeakKeyDictionary[LanceDataset, VersionGuard] = (
            weakref.WeakKeyDictionary()
        )
        self._newest: dict[str, VersionGuard] = {}

    def forget(self) -> None:
        """Drop all verdicts, because files were replaced."""
        with self._lock:
            self._good.clear()
            self._damaged.clear()
            self._guards.clear()
            self._newest.clear()

    def guard(self, ref: TableRef, dataset: LanceDataset) -> VersionGuard:
        """The guard of the version that a dataset shows."""
        with self._lock:
            guard = self._guards.get(dataset)
            if guard is None:
                guard = VersionGuard(self, ref, int(dataset.version))
                self._guards[dataset] = self._newest[ref.path] = guard
            return guard

    def follow(self, ref: TableRef, dataset: LanceDataset) -> None:
        """Carry the verdicts over to a version that this process wrote and read back."""
        with self._lock:
            earlier = self._newest.get(ref.path)
            if earlier is not None and earlier.version < int(dataset.version):
                guard = VersionGuard(self, ref, int(dataset.version), earlier)
                self._guards[dataset] = self._newest[ref.path] = guard

    def check_version_file(self, ref: TableRef, version: int) -> None:
        """Check the file of a version; ``StorageCorrupt`` if it is damaged."""
        if self.is_local:
            self.refuse_damaged([FileInTable(ref.path, NewFile(version_file(version)))])

    def check_version_form(self, version_path: str) -> None:
        """Check the format of a new version, and the version number in it.

        Its checksum may not be recorded yet, and looking for it costs more as records grow.
        """
        if not self.is_local or self._checksums.is_own(version_path):
            return
        path = self.objects.root.path(version_path)
        try:
            with storage_call("read", version_path):
                check_version_file(path)
        except Damaged:
            # The reader reports a missing file.
            if os.path.exists(path):
                raise damaged_file(version_path) from None

    def is_damaged_version(self, path: str) -> bool:
        """Whether a version file is damaged; always false on S3."""
        folder, _, name = path.rpartition("/_versions/")
        file = FileInTable(folder, NewFile(f"_versions/{name}"))
        return self.is_local and bool(self.damaged([file]))

    def refuse_damaged(self, files: Iterable[FileInTable]) -> None:
        """Raise ``StorageCorrupt`` for the first of some files that is damaged."""
        for path in sorted(self.damaged(files)):
            raise damaged_file(path)

    def damaged(self, files: Iterable[FileInTable]) -> list[str]:
        """The paths of damaged files; missing files are left out.

        Each file is read once and its verdict is kept, unless a version file is damaged.
        """
        paths, unknown = [], []
        for named in files:
            path = named.path
            if path in self._damaged:
                paths.append(path)
            elif path not in self._good and not self._checksums.is_own(path):
                unknown.append(named)
        if unknown:
            paths += self._compare(unknown)
        return paths

    def _compare(self, files: Sequence[FileInTable]) -> list[str]:
        stats: dict[str, os.stat_result] = {}
        for named in files:
            # The reader reports a missing file.
            with suppress(OSError):
                stats[named.path] = os.stat(self.objects.root.path(named.path))
        new = {
            path: stat.st_mtime
            for path, stat in stats.items()
            if _GOOD.get(self.objects.root.path(path)) != _identity(stat)
        }
        recorded = self._records.find(new) if new else {}
        damaged = []
        for named in files:
            path = named.path
            if path not in stats:
                continue
            if path in new and not self._is_good(named, stats[path].st_size, recorded.get(path)):
                # A version that its writer withdraws is replaced by another of the same name.
                if not named.file.name.startswith("_versions/"):
                    self._damaged.add(path)
                damaged.append(path)
                continue
            self._good.add(path)
            if len(_GOOD) < _MAX_CHECKED:
                _GOOD[self.objects.root.path(path)] = _identity(stats[path])
        return damaged

    def _is_good(self, named: FileInTable, size: int, recorded: FileSum | None) -> bool:
        file, path = named.file, self.objects.root.path(named.path)
        if file.size is not None and size != file.size:
            return False
        if recorded is not None and size != recorded.size:
            return self._is_recorded(named.path)
        try:
            with storage_call("read", named.path):
                if size > LARGEST and file.name.startswith("_indices/"):
                    check_column_tail(path)
                elif recorded is not None:
                    return sum_and_tail(path)[0] == recorded or self._is_recorded(named.path)
                elif file.name.startswith("_versions/"):
                    check_version_file(path)
                else:
                    check_new_file(self.objects.root.path(named.folder), file)
        except Damaged:
            return False
        except StorageMissing:
            # The reader reports a missing file.
            return True
        return True

    def _is_recorded(self, path: str) -> bool:
        """Whether a file is intact after all, by records whose own checksums match.

        The path may have been reused with different bytes, or the record may be damaged.
        """
        sums = read_records(self.objects).sums.get(path)
        info = self.objects.head(path)
        return not sums or info is None or is_same(self.objects, path, info, sums)


def damaged_file(path: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"'{path}' is damaged: it is not what was written",
        hint="verify_graph() names all such files; restore them from a backup",
        details={"path": path},
    )


def _identity(stats: os.stat_result) -> tuple[int, int, int]:
    return stats.st_size, stats.st_mtime_ns, stats.st_ino


class VersionGuard:
    """The checked files and the damaged indexes of one table version.

    ``earlier`` is the version that this process built it on: files found intact there are intact
    here, and files not checked there still have to be checked.
    """

    def __init__(
        self, reads: FirstReads, ref: TableRef, version: int, earlier: VersionGuard | None = None
    ) -> None:
        self._reads = reads
        self._ref = ref
        self.version = version
        self._version_path = ref.version_path(version)
        self._lock = threading.RLock()
        self._rows_checked = not reads.is_local
        self._unchecked: Indexes | None = None if reads.is_local else {}
        self._is_inherited = False
        self._damaged: Mapping[str, frozenset[str]] = {}
        if earlier is not None and reads.is_local:
            self._rows_checked = earlier._rows_checked
            if not earlier._damaged:
                self._unchecked, self._is_inherited = earlier._unchecked, True

    def check_rows(self, dataset: LanceDataset) -> None:
        """Check the deletion files; ``StorageCorrupt`` if one is damaged."""
        if self._rows_checked:
            return
        with self._lock:
            self._reads.refuse_damaged(self._deletion_files(dataset))
            self._rows_checked = True

    def avoids_index(self, dataset: LanceDataset, condition: object) -> bool:
        """Whether the columns of a condition have to be read without their indexes.

        Column names are searched in its text: a false match checks one index more than needed.
        """
        unchecked = self._unchecked
        if unchecked == {} and not self._damaged:
            return False
        text = str(condition)
        if unchecked is None or any(column in text for column in unchecked):
            with self._lock:
                self._check([c for c in self._to_check(dataset) if c in text], dataset)
        return any(column in text for column in self._damaged)

    def damaged_indexes(self, dataset: LanceDataset) -> frozenset[str]:
        """The names of the damaged indexes; checks all indexes."""
        if self._unchecked != {}:
            with self._lock:
                self._check(list(self._to_check(dataset)), dataset)
        return frozenset[str]().union(*self._damaged.values())

    def _check(self, columns: Sequence[str], dataset: LanceDataset) -> None:
        for column in columns:
            entries = self._to_check(dataset).get(column, ())
            names = frozenset(entry.name for entry in entries if self._is_damaged(entry))
            if names and self._is_inherited:
                # The index may have been rebuilt since.
                self._unchecked, self._is_inherited = None, False
                self._check([c for c in self._to_check(dataset) if c in columns], dataset)
                return
            if names:
                self._damaged = {**self._damaged, column: names}
            self._unchecked = {c: e for c, e in self._to_check(dataset).items() if c != column}

    def _to_check(self, dataset: LanceDataset) -> Indexes:
        """The indexes not checked yet."""
        if self._unchecked is None:
            names = {field.id(): field.name() for field in dataset.lance_schema.fields()}
            columns: dict[str, tuple[IndexEntry, ...]] = {}
            for entry in index_entries(self._raw(), self._version_path):
                for column in {names[number] for number in entry.fields if number in names}:
                    columns[column] = (*columns.get(column, ()), entry)
            self._unchecked = columns
        return self._unchecked

    # -- the files that a version names ---------------------------------------------------

    def _deletion_files(self, dataset: LanceDataset) -> list[FileInTable]:
        with lance_call("read", self._ref.path):
            if not dataset.stats.dataset_stats()["num_deleted_rows"]:
                return []
            fragments = [fragment.metadata for fragment in dataset.get_fragments()]
        marks = [
            (fragment.deletion_file, fragment.id)
            for fragment in fragments
            if fragment.deletion_file
        ]
        is_elsewhere = any(mark.base_id is not None for mark, _ in marks)
        bases = self._base_paths() if is_elsewhere else {}
        return [
            FileInTable(
                self._ref.path if mark.base_id is None else bases.get(mark.base_id, self._ref.path),
                NewFile(mark.path(number), deleted=mark.num_deleted_rows),
            )
            for mark, number in marks
        ]

    def _is_damaged(self, entry: IndexEntry) -> bool:
        copy = self._ref.path if entry.base is None else self._base_paths().get(entry.base)
        if copy is None:
            return False
        folder = f"_indices/{entry.uuid}"
        if not all(is_file_in_copy(f"{folder}/{name}") for name, _ in entry.files):
            return True
        files = [FileInTable(copy, NewFile(f"{folder}/{name}", size)) for name, size in entry.files]
        root = self._reads.objects.root
        if any(not os.path.exists(root.path(file.path)) for file in files):
            return True
        return bool(self._reads.damaged(files))

    def _base_paths(self) -> dict[int, str]:
        """The copies of the table whose files a version references, by base id."""
        return base_paths(self._raw(), self._version_path, self._ref.location)

    def _raw(self) -> bytes:
        try:
            return self._reads.objects.read_bytes(self._version_path)
        except StorageMissing:
            return b""
