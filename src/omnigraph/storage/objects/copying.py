"""Whole files copied between local disk and S3, in pieces, with a checksum.

A file appears at its target whole or not at all. On local disk its bytes are synced before it gets
its name; the directories are synced by ``sync_directories`` once all files are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from omnigraph.storage.checksums import FileSum, sha256_sum
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.local import LocalObjects
from omnigraph.storage.objects.store import ObjectStore


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The length of a file and the digest of its content."""

    size: int
    sha256: str

    def as_sum(self) -> FileSum:
        """The same as checksums are recorded."""
        return sha256_sum(self.size, self.sha256)

    def contradicts(self, recorded: Iterable[FileSum]) -> bool:
        """Whether digests of a file are recorded and this is none of them."""
        digests = [file_sum for file_sum in recorded if file_sum.is_sha256]
        return bool(digests) and self.as_sum() not in digests


def digest(data: bytes) -> FileDigest:
    return FileDigest(len(data), hashlib.sha256(data).hexdigest())


def digest_of(objects: ObjectStore, path: str) -> FileDigest:
    """The digest of a file; read piece by piece."""
    pieces = _DigestedPieces(_read_pieces(objects, path))
    for _ in pieces:
        pass
    return pieces.digest()


def copy_file(source: ObjectStore, path: str, target: ObjectStore, to: str) -> FileDigest:
    """Copy one file; gives the digest of what was read and written."""
    pieces = _DigestedPieces(_read_pieces(source, path))
    target.traffic.writes += 1
    target.address(to, written=True)
    target.backend.write_pieces(to, pieces)
    return pieces.digest()


def write_file(objects: ObjectStore, path: str, data: bytes) -> None:
    """Create or replace a file; readers see the old bytes or the new ones."""
    objects.traffic.writes += 1
    objects.address(path, written=True)
    objects.backend.write_pieces(path, [data])


def sync_directories(objects: ObjectStore, paths: Iterable[str]) -> None:
    """Sync the directories of files that were copied, and those above them."""
    if isinstance(objects.backend, LocalObjects):
        with storage_call("sync", objects.root.uri):
            objects.backend.sync_folders(paths)


def _read_pieces(objects: ObjectStore, path: str) -> Iterator[bytes]:
    objects.address(path)
    objects.traffic.reads += 1
    yield from objects.backend.read_pieces(path)


class _DigestedPieces:
    """Pieces of a file, counted and hashed on their way."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._hash = hashlib.sha256()
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._hash.update(piece)
            self._size += len(piece)
            yield piece

    def digest(self) -> FileDigest:
        return FileDigest(self._size, self._hash.hexdigest())
