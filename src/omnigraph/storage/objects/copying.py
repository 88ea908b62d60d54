"""Copies whole files between local disk and S3, in pieces, with a checksum.

A copy is atomic. On local disk the bytes are synced before the file gets its name; the directories
are synced by ``sync_directories`` after all files are copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from omnigraph.storage.checksums import FileSum, sha256_sum
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.local import LocalObjects
from omnigraph.storage.objects.store import ObjectStore


def sum_of_file(objects: ObjectStore, path: str) -> FileSum:
    """The sum of a file, read piece by piece."""
    pieces = _SummedPieces(_read_pieces(objects, path))
    for _ in pieces:
        pass
    return pieces.sum()


def copy_file(source: ObjectStore, path: str, target: ObjectStore, to: str) -> FileSum:
    """Copy one file; returns the sum of the copied bytes."""
    pieces = _SummedPieces(_read_pieces(source, path))
    target.traffic.writes += 1
    target.address(to, written=True)
    target.backend.write_pieces(to, pieces)
    return pieces.sum()


def write_file(objects: ObjectStore, path: str, data: bytes) -> None:
    """Create or replace a file; readers see the old bytes or the new ones."""
    objects.traffic.writes += 1
    objects.address(path, written=True)
    objects.backend.write_pieces(path, [data])


def sync_directories(objects: ObjectStore, paths: Iterable[str]) -> None:
    """Sync the directories of copied files, and their parents."""
    if isinstance(objects.backend, LocalObjects):
        with storage_call("sync", objects.root.uri):
            objects.backend.sync_folders(paths)


def _read_pieces(objects: ObjectStore, path: str) -> Iterator[bytes]:
    objects.address(path)
    objects.traffic.reads += 1
    yield from objects.backend.read_pieces(path)


class _SummedPieces:
    """Pieces of a file, counted and hashed as they pass through."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._hash = hashlib.sha256()
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._hash.update(piece)
            self._size += len(piece)
            yield piece

    def sum(self) -> FileSum:
        return sha256_sum(self._size, self._hash.hexdigest())
