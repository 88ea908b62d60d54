"""Checksums of the files of a graph, recorded at write time to detect later damage.

Lance keeps no checksums: a flipped byte yields wrong rows. The writer of a file notes its size and
digest here, and every publish records the noted sums in one small object. Records are derived data:
without its record a file cannot be verified, nothing more. On local disk the digest is computed
over the bytes; on S3, where new files are not read back, it is the ETag of the object.

A path may be reused with different bytes, for example when a branch is deleted and recreated. A
path may therefore have several sums, and a file is intact if it matches one of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import field
from typing import NamedTuple

from omnigraph.errors import OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.records import dataclass
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.objects.local import ObjectInfo
from omnigraph.storage.objects.paths import escaped, is_table_file, refuse_unsafe
from omnigraph.storage.objects.requests import request_pool
from omnigraph.storage.objects.store import ObjectStore

FOLDER = "__checksums"
TABLES = ("nodes", "edges", "__manifest", "_graph_commit_recoveries.lance")
"""The directories of a graph whose files are written once and never changed."""

_VERSION = 1
_DIGITS = 20
_SHA256, _E_TAG = "sha256:", "etag:"
_PLAIN_MD5 = r"[0-9a-f]{32}"
_AT_ONCE = 16
# From this many files of one directory on, the directory is listed instead of each file queried.
_MANY = 64
# About the number of files of sixteen small writes.
_TOGETHER = 100
_PIECE = 1 << 20
_BUFFER = 256 << 10
TAIL = 64
_FILES_PER_RECORD = 50_000

MOST_RECORDS = 64
"""Optimize folds the records into one when there are more than this."""


class FileSum(NamedTuple):
    """The size of a file in bytes, and its digest with a prefix that names the algorithm."""

    size: int
    digest: str

    @property
    def is_sha256(self) -> bool:
        """Whether the digest is a SHA-256 of the bytes, not the ETag of an object."""
        return self.digest.startswith(_SHA256)

    @property
    def sha256(self) -> str:
        return self.digest.removeprefix(_SHA256)

    def contradicts(self, recorded: Iterable[FileSum]) -> bool:
        """Whether SHA-256 sums are recorded for the file and this sum matches none of them."""
        digests = [file_sum for file_sum in recorded if file_sum.is_sha256]
        return bool(digests) and self not in digests


def sha256_sum(size: int, digest: str) -> FileSum:
    return FileSum(size, _SHA256 + digest)


def sum_of(raw: bytes) -> FileSum:
    """The sum of a file, from its bytes."""
    return sha256_sum(len(raw), hashlib.sha256(raw).hexdigest())


Sums = Mapping[str, FileSum]


def local_pieces(path: str) -> Iterator[bytes]:
    """The bytes of a local file; right after a write they come from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while piece := os.read(descriptor, _PIECE):
            yield piece
    finally:
        os.close(descriptor)


def sum_and_tail(path: str) -> tuple[FileSum, bytes]:
    """The sum of a local file, and its last bytes, at most ``TAIL``."""
    digest, size = hashlib.sha256(), 0
    # One small buffer stays in the processor's cache and needs no new memory.
    buffer = memoryview(bytearray(_BUFFER))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        while count := os.readv(descriptor, [buffer]):
            digest.update(buffer[:count])
            size += count
        tail = os.pread(descriptor, TAIL, max(size - TAIL, 0))
    finally:
        os.close(descriptor)
    return sha256_sum(size, digest.hexdigest()), tail


class Checksums:
    """Sums that this process has noted but not yet recorded. No method ever fails a write."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._noted: dict[str, FileSum | None] = {}
        self._own: set[str] = set()
        self._recording: Future[None] | None = None

    def is_own(self, path: str) -> bool:
        """Whether this handle noted the file."""
        return path in self._own

    def note(self, folder: str, names: Iterable[str], sums_by_name: Sums | None = None) -> None:
        """Note files of a directory that this process wrote, or whose sums their writer returned.

        On S3 ``*`` stands for all files of a directory.
        """
        sums = sums_by_name or {}
        for name in names:
            path = f"{folder}/{name}"
            refuse_unsafe(path)
            file_sum = sums.get(name)
            if file_sum is None and self._objects.root.is_local:
                try:
                    file_sum, _ = sum_and_tail(self._objects.root.path(path))
                except OSError:
                    continue
            with self._lock:
                self._noted[path] = file_sum
                self._own.add(path)

    def note_tags(self, infos: Mapping[str, ObjectInfo]) -> None:
        """Note objects on S3 that this process wrote, with the tags that the store returned."""
        for path, info in infos.items():
            refuse_unsafe(path)
            with self._lock:
                self._noted[path] = tag_sum(info)
                self._own.add(path)

    def adopt(self, folder: str, names: Iterable[str]) -> None:
        """Note files that a dead writer left, unless their sums are recorded already."""
        with suppress(OmniGraphError):
            wanted = list(names)
            recorded = read_records(self._objects).sums
            self.note(folder, (name for name in wanted if f"{folder}/{name}" not in recorded))

    def pending(self) -> dict[str, FileSum]:
        self._finish_record()
        with self._lock:
            noted = dict(self._noted)
        sums = {path: file_sum for path, file_sum in noted.items() if file_sum is not None}
        with suppress(OmniGraphError):
            sums |= _query_store(self._objects, [path for path in noted if path not in sums])
        return sums

    def record(self, *, now: bool = False) -> None:
        """Record the noted sums. Not synced: losing a record in a power failure is harmless.

        On S3, the tags of several publishes are recorded together, in the background, unless
        ``now``.
        """
        if now:
            self._finish_record()
        with self._lock:
            tags = sum(s is None or not s.is_sha256 for s in self._noted.values())
            if not self._noted or (not now and 0 < tags < _TOGETHER):
                return
            if self._recording is not None and not self._recording.done():
                return
            noted, self._noted = self._noted, {}
            if not now and not self._objects.root.is_local:
                self._recording = request_pool().submit(self._write, noted)
                return
        self._write(noted)

    def _write(self, noted: Mapping[str, FileSum | None]) -> None:
        try:
            sums = {path: file_sum for path, file_sum in noted.items() if file_sum is not None}
            if len(sums) < len(noted):
                sums |= _query_store(self._objects, [path for path in noted if path not in sums])
            if sums:
                _write(self._objects, sums)
        except OmniGraphError:
            # The next record takes them along.
            with self._lock:
                self._noted = {**noted, **self._noted}

    def _finish_record(self) -> None:
        with self._lock:
            recording, self._recording = self._recording, None
        if recording is not None:
            recording.result()


def _query_store(objects: ObjectStore, paths: list[str]) -> dict[str, FileSum]:
    """The ETag sums of files; ``*`` stands for a directory, missing files are left out."""
    if not paths:
        return {}
    folders: dict[str, list[str]] = {}
    sums: dict[str, FileSum] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name == "*":
            sums |= {inside: tag_sum(info) for inside, info in objects.files_below(folder)}
        else:
            folders.setdefault(folder, []).append(path)
    single: list[str] = []
    for folder, inside in folders.items():
        if len(inside) < _MANY:
            single += inside
            continue
        wanted = set(inside)
        there = {p: info for p, info in objects.files_below(folder) if p in wanted}
        sums |= {path: tag_sum(info) for path, info in there.items()}
    infos = ThreadExecutor(_AT_ONCE).run(objects.head, single)
    for path, info in zip(single, infos, strict=True):
        if info is not None:
            sums[path] = tag_sum(info)
    return sums


def tag_sum(info: ObjectInfo) -> FileSum:
    """The sum of an object from its ETag, without reading it."""
    return FileSum(info.size, _E_TAG + info.e_tag.strip('"'))


def is_same(objects: ObjectStore, path: str, info: ObjectInfo, sums: Iterable[FileSum]) -> bool:
    """Whether a file matches one of its sums. Reads it only if a sum is a digest of its bytes."""
    candidates = [candidate for candidate in sums if candidate.size == info.size]
    if not candidates:
        return False
    tags = {
        candidate.digest.removeprefix(_E_TAG)
        for candidate in candidates
        if candidate.digest.startswith(_E_TAG)
    }
    if not objects.root.is_local and tags and info.e_tag.strip('"') not in tags:
        return False
    digests = {candidate.digest.removeprefix(_SHA256) for candidate in candidates} - tags
    plain = {tag for tag in tags if re.fullmatch(_PLAIN_MD5, tag)}
    if not digests and not plain:
        return True
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    for piece in objects.pieces(path, _PIECE):
        if digests:
            sha256.update(piece)
        if plain:
            md5.update(piece)
    return sha256.hexdigest() in digests or md5.hexdigest() in plain


# -- records --------------------------------------------------------------------------------------


@dataclass(slots=True)
class ChecksumRecords:
    """All recorded sums, and the names of unreadable records."""

    names: list[str] = field(default_factory=list)
    sums: dict[str, tuple[FileSum, ...]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def add(self, sums: Sums) -> None:
        for path, file_sum in sums.items():
            existing = self.sums.get(path, ())
            if file_sum not in existing:
                self.sums[path] = (*existing, file_sum)


def read_records(objects: ObjectStore) -> ChecksumRecords:
    """All records. A record that disappears during the read was folded into another."""
    records = ChecksumRecords()
    for name in objects.list(FOLDER):
        try:
            records.add(_read(objects.read(f"{FOLDER}/{name}")))
            records.names.append(name)
        except StorageMissing:
            continue
        except (StorageCorrupt, ValueError, KeyError, TypeError, RecursionError):
            records.damaged.append(name)
    return records


def fold_checksums(objects: ObjectStore, least: int = 0) -> int:
    """Merge all records into one, without deleted files; returns the number of removed records.

    Does nothing for up to ``least`` records, unless one is unreadable: that one is removed, and its
    files are unverified from then on. The new record is written before the old ones are removed, so
    a crash loses nothing. Concurrent writers add records of their own.
    """
    if not objects.list(FOLDER):
        return 0
    records = read_records(objects)
    if len(records.names) <= least and not records.damaged:
        return 0
    # Listed after the records are read: a file exists before the record that names it.
    there = {path for top in TABLES for path, _ in objects.files_below(top)}
    kept = {path: sums for path, sums in records.sums.items() if path in there}
    if len(records.names) > 1 or len(kept) < len(records.sums):
        for sums in _layers(kept):
            _write(objects, sums)
    elif not records.damaged:
        return 0
    else:
        records.names.clear()
    for name in (*records.names, *records.damaged):
        objects.delete(f"{FOLDER}/{name}")
    return len(records.names) + len(records.damaged)


def _layers(sums: Mapping[str, tuple[FileSum, ...]]) -> Iterator[dict[str, FileSum]]:
    """Records with one sum per path and a limited number of paths."""
    layer: dict[int, dict[str, FileSum]] = {}
    for path in sorted(sums):
        for number, file_sum in enumerate(sums[path]):
            into = layer.setdefault(number, {})
            into[path] = file_sum
            if len(into) >= _FILES_PER_RECORD:
                yield layer.pop(number)
    yield from layer.values()


def _write(objects: ObjectStore, sums: Sums) -> None:
    files = {path: list(sums[path]) for path in sorted(sums)}
    record = {"version": _VERSION, "sum": digest_of_record(files), "files": files}
    # The name contains the time of the record.
    name = f"{time.time_ns():0{_DIGITS}d}-{uuid.uuid4()}.json"
    objects.write_bytes(f"{FOLDER}/{name}", json.dumps(record).encode())


def recorded_at(name: str) -> float | None:
    """The time of a record, from its name; ``None`` for records of earlier releases.

    >>> recorded_at("01700000000000000000-4af2.json")
    1700000000.0
    """
    text = name.partition("-")[0]
    return int(text) / 1e9 if len(text) == _DIGITS and text.isdecimal() else None


def _read(text: str) -> dict[str, FileSum]:
    record = json.loads(text)
    files = record["files"]
    if record["version"] != _VERSION or record["sum"] != digest_of_record(files):
        raise ValueError("the record is damaged")
    return sums_of_record(files)


def sums_of_record(files: Mapping[str, tuple[int, str]]) -> dict[str, FileSum]:
    """The sums of a record; ``ValueError`` if it names a path that is not a file of a table."""
    if not isinstance(files, dict):
        raise ValueError("the record lists no files")
    sums = {path: FileSum(int(size), str(digest)) for path, (size, digest) in files.items()}
    for path in sums:
        if not is_table_file(path):
            raise ValueError(f"{escaped(path)} is not a file of a table")
    return sums


def digest_of_record(files: object) -> str:
    """The checksum of a record: a damaged record must not be reported as a damaged file."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
