"""Objects as files of a local directory, and the result types of every store.

A write goes to a temporary neighbour that is renamed or linked to its final name. Links below the
root are refused by ``address``. Errors of the operating system are translated by the caller.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from omnigraph.records import dataclass
from omnigraph.storage.durable import sync_directory, sync_file
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import (
    OnLink,
    Root,
    refuse_link,
    refuse_links,
    refuse_unsafe,
    walk,
)

PIECE = 8 << 20
"""Bytes of a file in memory at once: on S3 a piece has to arrive before its request times out."""
TEMPORARY = ".tmp~"
LOCK = ".lock~"
# The names of local files while the library writes them, and Lance a branch reference.
_UNFINISHED = r"#\d+\Z|\.json\.tmp\.[0-9a-f]+\Z"
_EPOCH = datetime.fromtimestamp(0, UTC)


class StoredBytes(NamedTuple):
    """The content of an object, its version, and when the store received it."""

    data: bytes
    version: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The metadata of an object."""

    size: int
    e_tag: str
    modified: datetime


def is_internal(name: str) -> bool:
    """Whether a file is a temporary or a lock of the object store."""
    return TEMPORARY in name or name.endswith(LOCK) or re.search(_UNFINISHED, name) is not None


class LocalObjects:
    """The files of one root; with ``synced`` a write is on disk when it returns."""

    def __init__(self, root: Root, *, synced: bool) -> None:
        self.root = root
        self.synced = synced
        # Directories whose entry in their parent is on disk.
        self._synced_folders: set[Path] = set()
        with storage_call("open", root.uri):
            if root.is_missing():
                os.makedirs(root.uri, exist_ok=True)

    # -- reading -------------------------------------------------------------------------

    def get(self, path: str) -> StoredBytes:
        with self._open(path) as file:
            data, modified = file.read(), _info(os.fstat(file.fileno())).modified
        return StoredBytes(data, hashlib.sha256(data).hexdigest(), modified)

    def get_bytes(self, path: str) -> bytes:
        with self._open(path) as file:
            return file.read()

    def stream(self, path: str, size: int) -> Iterator[bytes]:
        with self._open(path) as file:
            while piece := file.read(size):
                yield piece

    def _open(self, path: str) -> io.FileIO:
        refuse_unsafe(path)
        try:
            return io.FileIO(f"{self.root.uri}/{path}")
        except IsADirectoryError as error:
            # As in an object store, where a directory is not an object.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error

    def read_pieces(self, path: str) -> Iterator[bytes]:
        """The bytes of a file piece by piece; errors are translated here."""
        address = self.root.path(path)
        with storage_call("read", address):
            file = self._path(path).open("rb")
        with file:
            while True:
                with storage_call("read", address):
                    piece = file.read(PIECE)
                if not piece:
                    return
                yield piece

    def head(self, path: str) -> ObjectInfo | None:
        stats = self._stat(path)
        return None if stats is None else _info(stats)

    def signatures(self, paths: Sequence[str]) -> tuple[str | None, ...]:
        return tuple(
            None if stats is None else f"{stats.st_ino:x}-{stats.st_mtime_ns:x}-{stats.st_size:x}"
            for stats in map(self._stat, paths)
        )

    def _stat(self, path: str) -> os.stat_result | None:
        refuse_unsafe(path)
        try:
            stats = os.stat(f"{self.root.uri}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            with storage_call("look at", self.root.path(path)):
                raise
        return stats if stat.S_ISREG(stats.st_mode) else None

    # -- listings ------------------------------------------------------------------------

    def names(self, folder: str) -> list[str]:
        return [e.name for e in self._entries(folder) if e.is_file(follow_symlinks=False)]

    def folders(self, folder: str) -> list[str]:
        return [entry.name for entry in self._entries(folder) if entry.is_dir()]

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        """The entries of a directory; links are refused."""
        try:
            refuse_links(self.root.uri, folder)
            with os.scandir(f"{self.root.uri}/{folder}") as scanned:
                entries = list(scanned)
        except (FileNotFoundError, NotADirectoryError):
            return []
        for entry in entries:
            if entry.is_symlink():
                refuse_link(f"{folder}/{entry.name}" if folder else entry.name)
        return entries

    def files(self, path: str, on_link: OnLink = refuse_link) -> Iterator[tuple[str, ObjectInfo]]:
        for name, entry in walk(self.root.uri, path, on_link):
            if is_internal(entry.name):
                continue
            with suppress(FileNotFoundError):
                yield name, _info(entry.stat(follow_symlinks=False))

    def sizes(self, path: str) -> Iterator[tuple[str, int]]:
        for name, entry in walk(self.root.uri, path):
            with suppress(FileNotFoundError):
                yield name, entry.stat(follow_symlinks=False).st_size

    def walk(self, path: str) -> Iterator[str]:
        return (name for name, _ in walk(self.root.uri, path) if not re.search(_UNFINISHED, name))

    # -- writing -------------------------------------------------------------------------

    def put(self, path: str, data: bytes, *, private: bool = False) -> None:
        with self._prepared(path, data, private=private) as temporary:
            os.replace(temporary, self._path(path))
            self._sync_entry(path)

    def put_unsynced(self, path: str, data: bytes) -> None:
        """Write an object that may be lost in a power failure."""
        with self._temporary(path) as temporary:
            _write_new(temporary, data)
            os.replace(temporary, self._path(path))

    def create(self, path: str, data: bytes, *, private: bool = False) -> bool:
        try:
            with self._prepared(path, data, private=private) as temporary:
                # Unlike a rename, a link fails when the name is taken.
                os.link(temporary, self._path(path))
                temporary.unlink()
                self._sync_entry(path)
        except FileExistsError:
            return False
        return True

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Hold the lock of an object against every thread and process."""
        lock = self._path(path + LOCK)
        with storage_call("lock", self.root.path(path)):
            lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            with storage_call("lock", self.root.path(path)):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            # The lock is gone even then, and what was written under it is written.
            with suppress(OSError):
                os.close(descriptor)

    def write_pieces(self, path: str, pieces: Iterable[bytes]) -> None:
        """Write a file as its bytes arrive; its directories are synced by ``sync_folders``.

        Errors of ``pieces`` are those of the source and pass unchanged.
        """
        target = self._path(path)
        with storage_call("write", self.root.path(path)):
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._temporary(path) as temporary:
                with temporary.open("xb") as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    if self.synced:
                        os.fsync(file.fileno())
                os.replace(temporary, target)

    def sync_folders(self, paths: Iterable[str]) -> None:
        """Sync the directories of files, and their parents."""
        if self.synced:
            top = Path(self.root.uri)
            folders = {folder for path in paths for folder in Path(path).parents} | {Path()}
            for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
                sync_directory(top / folder)
            sync_directory(top.parent)

    def rename(self, source: str, target: str) -> None:
        self._path(target).parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._path(source), self._path(target))
        self._sync_entry(target)
        if self.synced:
            sync_directory(self._path(source).parent)

    # -- deleting ------------------------------------------------------------------------

    def delete(self, path: str, *, synced: bool = True) -> None:
        self._path(path).unlink()
        if self.synced and synced:
            sync_directory(self._path(path).parent)

    def delete_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._path(path).unlink(missing_ok=True)
        if self.synced:
            for folder in sorted({self._path(path).parent for path in paths}):
                if folder.is_dir():
                    sync_directory(folder)

    def delete_below(self, path: str, names: Iterable[str]) -> None:
        for name in names:
            Path(f"{self.root.uri}/{name}").unlink(missing_ok=True)
        # Directories that became empty, deepest first.
        for folder, _, _ in os.walk(self._path(path), topdown=False):
            if not os.listdir(folder):
                os.rmdir(folder)
        self._synced_folders.clear()

    def remove_if_empty(self, path: str) -> None:
        with suppress(OSError):
            os.rmdir(self._path(path))

    # -- files ---------------------------------------------------------------------------

    @contextmanager
    def _prepared(self, path: str, data: bytes, *, private: bool = False) -> Iterator[Path]:
        """A temporary file beside an object, with its bytes on disk already.

        If it were synced only after the rename, a power failure could replace a durable object by
        an empty one.
        """
        with self._temporary(path) as temporary:
            _write_new(temporary, data, private=private)
            if self.synced:
                sync_file(temporary)
            yield temporary

    def _sync_entry(self, path: str) -> None:
        """Sync the directory of an object, and once its parents, which a write may create."""
        if not self.synced:
            return
        folder = self._path(path).parent
        sync_directory(folder)
        above = Path(self.root.uri).parent
        while folder != above and folder not in self._synced_folders:
            sync_directory(folder.parent)
            self._synced_folders.add(folder)
            folder = folder.parent

    @contextmanager
    def _temporary(self, path: str) -> Iterator[Path]:
        """A temporary file beside an object to be written; it is removed on failure."""
        temporary = self._path(f"{path}{TEMPORARY}{uuid.uuid4().hex}")
        try:
            yield temporary
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def _path(self, path: str) -> Path:
        refuse_unsafe(path)
        return Path(self.root.uri, path)


def _write_new(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a new file; its directory is created if missing.

    Nobody else can open a ``private`` one, from the moment on in which it exists.
    """
    try:
        descriptor = _create(path, private)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _create(path, private)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _create(path: Path, private: bool) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)


def _info(stats: os.stat_result) -> ObjectInfo:
    micros = stats.st_mtime_ns // 1000
    tag = f"{stats.st_ino:x}-{micros:x}-{stats.st_size:x}"
    return ObjectInfo(stats.st_size, tag, _EPOCH + timedelta(microseconds=micros))
