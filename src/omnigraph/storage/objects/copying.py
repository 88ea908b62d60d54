"""Whole files between places: from disk or S3 to disk or S3, in pieces, with a checksum.

A file appears at its target whole or not at all. On local disk its bytes are synced before it gets
its name; the directories are synced by ``sync_directories`` once all files are there.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

from obstore import open_writer

from omnigraph.errors import StorageCorrupt, StorageMissing
from omnigraph.storage.checksums import _SHA256, FileSum
from omnigraph.storage.durable import sync_directory
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.links import refuse_link, refuse_links, walk
from omnigraph.storage.objects.store import _TEMPORARY, ObjectStore, _is_internal, _refusals

T = TypeVar("T")
R = TypeVar("R")

PIECE = 8 << 20
"""How much of a file is in memory at once: on S3 a piece has to arrive before a request ends."""
_PARTS_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class FileDigest:
    """How long a file is, and what it holds."""

    size: int
    sha256: str

    def as_sum(self) -> FileSum:
        """The same as checksums are recorded."""
        return FileSum(self.size, _SHA256 + self.sha256)

    def contradicts(self, recorded: Iterable[FileSum]) -> bool:
        """Whether digests of a file are known and this is none of them."""
        known = [each for each in recorded if each.digest.startswith(_SHA256)]
        return bool(known) and self.as_sum() not in known


def digest(data: bytes) -> FileDigest:
    return FileDigest(len(data), hashlib.sha256(data).hexdigest())


def files_below(objects: ObjectStore, path: str = "") -> dict[str, int]:
    """Every file below a path with its size, by paths relative to the root; sorted."""
    objects.traffic.lists += 1
    found = _local_files(objects, path) if objects.root.is_local else _remote_files(objects, path)
    return {name: size for name, size in sorted(found) if not _is_internal(name.rpartition("/")[2])}


def _local_files(objects: ObjectStore, path: str) -> Iterator[tuple[str, int]]:
    with storage_call("list", objects.root.path(path)):
        for name, entry in walk(objects.root.uri, path):
            with suppress(FileNotFoundError):
                yield name, entry.stat(follow_symlinks=False).st_size


def _remote_files(objects: ObjectStore, path: str) -> Iterator[tuple[str, int]]:
    with storage_call("list", objects.root.path(path)), _refusals():
        for batch in objects._store.list(f"{path}/" if path else None):
            for entry in batch:
                # Some servers show an empty directory as an object of the same name.
                if entry["path"] not in ("", path):
                    yield str(entry["path"]), int(entry["size"])


def digest_of(objects: ObjectStore, path: str) -> FileDigest:
    """What a file holds; read piece by piece."""
    sums = _Sums(_pieces(objects, path))
    for _ in sums:
        pass
    return sums.digest()


def copy_file(source: ObjectStore, path: str, target: ObjectStore, to: str) -> FileDigest:
    """Copy one file; gives what was read and written."""
    sums = _Sums(_pieces(source, path))
    target.traffic.writes += 1
    if target.root.is_local:
        _write_local(target, to, sums)
    else:
        _write_remote(target, to, sums)
    return sums.digest()


def write_file(objects: ObjectStore, path: str, data: bytes) -> None:
    """Create or replace a file; readers see the old bytes or the new ones."""
    objects.traffic.writes += 1
    if objects.root.is_local:
        _write_local(objects, path, [data])
        return
    with storage_call("write", objects.root.path(path), writes=True):
        objects._store.put(path, data)


def sync_directories(objects: ObjectStore, paths: Iterable[str]) -> None:
    """Put on the disk that these files are there: their directories, and those above them."""
    if not objects._synced:
        return
    top = Path(objects.root.uri)
    folders: set[Path] = {top}
    for path in paths:
        for folder in Path(top, path).parents:
            if folder in folders:
                break
            folders.add(folder)
    with storage_call("sync", objects.root.uri):
        for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
            sync_directory(folder)
        sync_directory(top.parent)


class _Sums:
    """Pieces that are counted and summed on their way."""

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


def _pieces(objects: ObjectStore, path: str) -> Iterator[bytes]:
    address = objects.address(path)
    objects.traffic.reads += 1
    if objects.root.is_local:
        with ExitStack() as stack:
            with storage_call("read", address):
                file = stack.enter_context(Path(objects.root.uri, path).open("rb"))
            while True:
                with storage_call("read", address):
                    piece = file.read(PIECE)
                if not piece:
                    return
                yield piece
    found = objects.head(path)
    if found is None:
        raise StorageMissing(f"cannot read '{address}': it does not exist")
    for start in range(0, found.size, PIECE):
        length = min(PIECE, found.size - start)
        with storage_call("read", address):
            piece = bytes(objects._store.get_range(path, start=start, length=length))
        if len(piece) != length:
            raise StorageCorrupt(f"'{address}' changed while it was read")
        yield piece


def _write_local(objects: ObjectStore, path: str, pieces: Iterable[bytes]) -> None:
    objects.address(path, written=True)
    target = Path(objects.root.uri, path)
    temporary = target.with_name(f"{target.name}{_TEMPORARY}{uuid.uuid4().hex}")
    # Errors of reading are those of the source and keep their own names.
    with storage_call("write", objects.root.path(path)):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                if objects._synced:
                    os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def _write_remote(objects: ObjectStore, path: str, sums: _Sums) -> None:
    pieces = iter(sums)
    first = next(pieces, b"")
    second = next(pieces, None)
    address = objects.root.path(path)
    if second is None:
        with storage_call("write", address, writes=True):
            objects._store.put(path, first)
        return
    with storage_call("write", address, writes=True):
        # Never closed after a failure: the object appears when its last piece is sent.
        writer = open_writer(
            objects._store, path, buffer_size=PIECE, max_concurrency=_PARTS_AT_ONCE
        )
    # Read here and not by the library: it cannot read from a store while it writes to one.
    for piece in chain((first, second), pieces):
        with storage_call("write", address, writes=True):
            writer.write(piece)
    with storage_call("write", address, writes=True):
        writer.close()


def folders_in(objects: ObjectStore, path: str) -> list[str]:
    """The names of the directories directly in one, sorted; none when it is missing."""
    objects.traffic.lists += 1
    with storage_call("list", objects.root.path(path)), _refusals():
        if not objects.root.is_local:
            inside = objects._store.list_with_delimiter(f"{path}/")["common_prefixes"]
            return sorted(str(each).rpartition("/")[2] for each in inside)
        try:
            refuse_links(objects.root.uri, path)
            with os.scandir(f"{objects.root.uri}/{path}") as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return []
    for entry in found:
        if entry.is_symlink():
            refuse_link(f"{path}/{entry.name}")
    return sorted(entry.name for entry in found if entry.is_dir())


def at_once(work: Callable[[T], R], items: Iterable[T], many: int) -> Generator[R, None, None]:
    """Do something for every item, several at a time, in their order; the first failure ends it."""
    with ThreadPoolExecutor(many) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
