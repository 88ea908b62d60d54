"""Small text objects under a graph's root: schema files, sidecars, leases.

One contract for local disk and S3. A write is seen whole or not at all; ``create`` has exactly
one winner; ``replace`` only succeeds when nobody replaced the object since it was read. On local
disk that last promise holds between processes too: a lock file is held from the comparison to the
replacement.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from obstore import exceptions as store_errors
from obstore.store import LocalStore, S3Store

from omnigraph.errors import StorageCorrupt, StorageMissing
from omnigraph.storage.durable import Durability, sync_directory, sync_file
from omnigraph.storage.failures import translated
from omnigraph.storage.roots import Root

_TEMPORARY = ".tmp~"
_LOCK = ".lock~"


class Versioned(NamedTuple):
    """A text with what identifies this state of it."""

    text: str
    version: str


@dataclass(slots=True)
class Traffic:
    """How many calls of each kind a store made."""

    reads: int = 0
    writes: int = 0
    lists: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        return self.reads + self.writes + self.lists + self.deletes


class ObjectStore:
    """Text objects by their path relative to the root, such as ``__recovery/01H….json``."""

    def __init__(self, root: Root, durability: Durability = Durability.DISK) -> None:
        self.root = root
        self.traffic = Traffic()
        self._synced = root.is_local and durability is Durability.DISK
        self._store = _open(root)

    # -- reading -------------------------------------------------------------------------

    def read(self, path: str) -> str:
        """The text of an object; ``StorageMissing`` when there is none."""
        return self.read_versioned(path).text

    def read_versioned(self, path: str) -> Versioned:
        """The text of an object and its version, for a later ``replace``."""
        self.traffic.reads += 1
        with translated("read", self.root.path(path)):
            found = self._store.get(path)
            data = bytes(found.bytes())
            tag = found.meta["e_tag"]
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise StorageCorrupt(f"'{self.root.path(path)}' is not UTF-8 text") from None
        version = _digest(data) if self.root.is_local else (tag or "")
        return Versioned(text, version)

    def exists(self, path: str) -> bool:
        """Whether there is an object, or anything below it; loud when that cannot be seen."""
        self.traffic.reads += 1
        try:
            with translated("look at", self.root.path(path)):
                self._store.head(path)
            return True
        except StorageMissing:
            return any(True for _ in self._walk(path))

    def list(self, path: str) -> list[str]:
        """The names of the objects directly in a directory, sorted; none when it is missing."""
        self.traffic.lists += 1
        with translated("list", self.root.path(path)):
            if self.root.is_local and not self._local(path).is_dir():
                return []
            found = self._store.list_with_delimiter(f"{path}/" if path else None)
            names = [str(entry["path"]).rsplit("/", 1)[-1] for entry in found["objects"]]
        return sorted(name for name in names if not _is_internal(name))

    # -- writing -------------------------------------------------------------------------

    def write(self, path: str, text: str) -> None:
        """Create or replace an object; readers see the old text or the new one."""
        self.traffic.writes += 1
        with translated("write", self.root.path(path), writes=True):
            if self._synced:
                with self._prepared(path, text) as temporary:
                    self._store.rename(temporary, path)
                    self._sync_entry(path)
            else:
                self._store.put(path, text.encode("utf-8"))

    def create(self, path: str, text: str) -> bool:
        """Create an object unless it exists; of several that try, exactly one gets ``True``."""
        self.traffic.writes += 1
        with translated("create", self.root.path(path), writes=True):
            try:
                if self._synced:
                    with self._prepared(path, text) as temporary:
                        self._store.rename(temporary, path, overwrite=False)
                        self._sync_entry(path)
                else:
                    self._store.put(path, text.encode("utf-8"), mode="create")
            except (FileExistsError, store_errors.AlreadyExistsError):
                return False
        return True

    def replace(self, path: str, text: str, expected: str) -> bool:
        """Replace an object only if it still is what ``read_versioned`` returned."""
        if self.root.is_local:
            with self.locked(path):
                try:
                    if self.read_versioned(path).version != expected:
                        return False
                except StorageMissing:
                    return False
                self.write(path, text)
                return True
        self.traffic.writes += 1
        with translated("replace", self.root.path(path), writes=True):
            try:
                self._store.put(path, text.encode("utf-8"), mode={"e_tag": expected})
            except (store_errors.PreconditionError, FileNotFoundError, store_errors.NotFoundError):
                return False
        return True

    def rename(self, source: str, target: str) -> None:
        """Move an object over another: at once locally, by copy and delete on S3."""
        self.traffic.writes += 1
        with translated("rename", self.root.path(source), writes=True):
            self._store.rename(source, target)
            if self._synced:
                self._sync_entry(target)
                sync_directory(self._local(source).parent)

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is fine."""
        self.traffic.deletes += 1
        try:
            with translated("delete", self.root.path(path), writes=True):
                self._store.delete(path)
                if self._synced:
                    sync_directory(self._local(path).parent)
        except StorageMissing:
            return

    def delete_prefix(self, path: str) -> int:
        """Remove everything below a path; gives how many objects that were."""
        self.traffic.deletes += 1
        gone = list(self._walk(path))
        with translated("delete", self.root.path(path), writes=True):
            for name in gone:
                self._store.delete(name)
            if self.root.is_local:
                _remove_empty(self._local(path))
        return len(gone)

    # -- local disk ----------------------------------------------------------------------

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Hold the lock of a local object against every thread and process."""
        lock = self._local(path + _LOCK)
        with translated("lock", self.root.path(path)):
            lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _prepared(self, path: str, text: str) -> Iterator[str]:
        """A temporary neighbour of an object whose bytes are on the disk already.

        Synced after a rename, an object could be seen empty after a power failure although its
        earlier text had been safe.
        """
        temporary = f"{path}{_TEMPORARY}{uuid.uuid4().hex}"
        self._store.put(temporary, text.encode("utf-8"))
        try:
            sync_file(self._local(temporary))
            yield temporary
        finally:
            self._local(temporary).unlink(missing_ok=True)

    def _sync_entry(self, path: str) -> None:
        """Sync the directories from an object up to the root, since a write may make them."""
        top = Path(self.root.uri)
        for parent in self._local(path).parents:
            sync_directory(parent)
            if parent == top:
                sync_directory(top.parent)
                break

    def _local(self, path: str) -> Path:
        return Path(self.root.uri, path)

    def _walk(self, path: str) -> Iterator[str]:
        self.traffic.lists += 1
        with translated("list", self.root.path(path)):
            if self.root.is_local and not self._local(path).is_dir():
                return
            for batch in self._store.list(f"{path}/" if path else None):
                for entry in batch:
                    yield str(entry["path"])


def _open(root: Root) -> LocalStore | S3Store:
    if root.is_local:
        with translated("open", root.uri):
            return LocalStore(root.uri, mkdir=True)
    with translated("open", root.uri):
        config = cast(Any, dict(root.options))
        return S3Store(root.bucket, prefix=root.prefix or None, config=config)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_internal(name: str) -> bool:
    return _TEMPORARY in name or name.endswith(_LOCK)


def _remove_empty(top: Path) -> None:
    """Remove the directories that a deleted prefix leaves behind, deepest first."""
    if not top.is_dir():
        return
    for folder, _, _ in os.walk(top, topdown=False):
        if not os.listdir(folder):
            os.rmdir(folder)
