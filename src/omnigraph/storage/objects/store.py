"""Small text objects under a graph's root: schema files, sidecars, leases.

One contract for local disk and S3. A write is seen whole or not at all; ``create`` has exactly
one winner; ``replace`` only succeeds when the object was not replaced since it was read. On local
disk that last promise holds between processes too: a lock file is held from the comparison to the
replacement. No path leads out of the root, and symbolic links below it are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from omnigraph.errors import StorageCorrupt, StorageMissing, StorageUnavailable
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.local import LocalObjects, ObjectInfo, is_internal
from omnigraph.storage.objects.paths import OnLink, Root, refuse_link, refuse_links, walk
from omnigraph.storage.objects.s3 import S3Objects

_CREATE_ATTEMPTS = 5


class Versioned(NamedTuple):
    """A text, the identity of this state of it, and when the store received it by its own clock."""

    text: str
    version: str
    modified: datetime


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

    backend: LocalObjects | S3Objects

    def __init__(self, root: Root, durability: Durability = Durability.DISK) -> None:
        self.root = root
        self.traffic = Traffic()
        if root.is_local:
            self.backend = LocalObjects(root, synced=durability is Durability.DISK)
        else:
            self.backend = S3Objects(root)

    def address(self, path: str, *, written: bool = False) -> str:
        """The address of an object, unless a link leads there.

        What is ``written`` replaces or removes a link, so only those on the way to it count.
        """
        address = self.root.path(path)
        if self.root.is_local:
            refuse_links(self.root.uri, path.rpartition("/")[0] if written else path)
        return address

    # -- reading -------------------------------------------------------------------------

    def read(self, path: str) -> str:
        """The text of an object; ``StorageMissing`` when there is none."""
        return self.read_versioned(path).text

    def read_versioned(self, path: str) -> Versioned:
        """The text of an object, its version for a later ``replace``, and its time."""
        self.traffic.reads += 1
        with storage_call("read", self.address(path)):
            stored = self.backend.get(path)
        try:
            return Versioned(stored.data.decode("utf-8"), stored.version, stored.modified)
        except UnicodeDecodeError:
            raise StorageCorrupt(f"'{self.root.path(path)}' is not UTF-8 text") from None

    def read_bytes(self, path: str) -> bytes:
        self.traffic.reads += 1
        with storage_call("read", self.address(path)):
            return self.backend.get_bytes(path)

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        self.traffic.reads += 1
        with storage_call("read", self.address(path)):
            yield from self.backend.stream(path, size)

    def head(self, path: str) -> ObjectInfo | None:
        """Size, tag and time of an object, or ``None`` when it is missing; one stat or request.

        On local disk the tag is the one that Lance gives to files: it changes with the content.
        """
        self.traffic.reads += 1
        return self.backend.head(path)

    def identity(self, path: str) -> str | None:
        """What identifies the present state of an object, ``None`` when it is missing."""
        info = self.head(path)
        return None if info is None else info.e_tag

    def signatures(self, paths: Iterable[str]) -> tuple[str | None, ...]:
        """What identifies the present state of several objects, ``None`` for a missing one.

        One stat each on local disk; on S3 one request for all that lie in one directory. Only
        comparable with what this method gave before.
        """
        wanted = tuple(paths)
        if isinstance(self.backend, LocalObjects):
            self.traffic.reads += len(wanted)
            return self.backend.signatures(wanted)
        folders: dict[str, list[str]] = {}
        for path in wanted:
            folders.setdefault(path.rpartition("/")[0], []).append(path)
        tags: dict[str, str | None] = {}
        for folder, inside in folders.items():
            if len(inside) == 1:
                tags[inside[0]] = self.identity(inside[0])
                continue
            self.traffic.reads += 1
            with storage_call("list", self.root.path(folder)):
                tags |= self.backend.tags(folder)
        return tuple(tags.get(path) for path in wanted)

    # -- listings ------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Whether there is an object of this path, or some below it."""
        return self.head(path) is not None or any(True for _ in self._walk(path))

    def folders(self, path: str) -> list[str]:
        """The names of the directories directly in one, sorted; none when it is missing."""
        self.traffic.lists += 1
        with storage_call("list", self.root.path(path)):
            return sorted(self.backend.folders(path))

    def list(self, path: str) -> list[str]:
        """The names of the objects directly in a directory, sorted; none when it is missing."""
        self.traffic.lists += 1
        with storage_call("list", self.root.path(path)):
            names = self.backend.names(path)
        return sorted(name for name in names if not is_internal(name))

    def files_below(
        self, path: str, on_link: OnLink = refuse_link
    ) -> Iterator[tuple[str, ObjectInfo]]:
        """Every object at any depth below a path, with its info; ``on_link`` gets links."""
        self.traffic.lists += 1
        with storage_call("list", self.root.path(path)):
            yield from self.backend.files(path, on_link)

    def sizes_below(self, path: str = "") -> dict[str, int]:
        """Every file below a path with its size, unfinished ones too; sorted."""
        self.traffic.lists += 1
        with storage_call("list", self.root.path(path)):
            sizes = sorted(self.backend.sizes(path))
        return {name: size for name, size in sizes if not is_internal(name.rpartition("/")[2])}

    def _walk(self, path: str) -> Iterator[str]:
        self.traffic.lists += 1
        with storage_call("list", self.root.path(path)):
            yield from self.backend.walk(path)

    def refuse_links(self, path: str) -> None:
        """Refuse links on the way to a path and anywhere below it."""
        if self.root.is_local:
            for _ in walk(self.root.uri, path):
                pass

    # -- writing -------------------------------------------------------------------------

    def write(self, path: str, text: str) -> None:
        """Create or replace an object; readers see the old text or the new one."""
        self.traffic.writes += 1
        with storage_call("write", self.address(path, written=True), writes=True):
            self.backend.put(path, text.encode("utf-8"))

    def write_bytes(self, path: str, data: bytes) -> None:
        """Create or replace a binary object that may be lost in a power failure."""
        self.traffic.writes += 1
        with storage_call("write", self.address(path, written=True), writes=True):
            self.backend.put_unsynced(path, data)

    def create(self, path: str, text: str) -> bool:
        """Create an object unless it exists; of several that try, exactly one gets ``True``.

        ``StorageUnknown`` when the answer was lost: a caller with a unique text reads it back.
        """
        for _ in range(_CREATE_ATTEMPTS):
            self.traffic.writes += 1
            with storage_call("create", self.address(path, written=True), writes=True):
                if self.backend.create(path, text.encode("utf-8")):
                    return True
            # S3 also refuses when two creations collide, and then possibly both of them.
            if self.root.is_local or self.head(path) is not None:
                return False
        raise StorageUnavailable(
            f"cannot create '{self.root.path(path)}': other writers keep creating and deleting it",
            hint="repeat later",
        )

    def replace(self, path: str, text: str, expected: str) -> bool:
        """Replace an object only if it still is what ``read_versioned`` returned."""
        if isinstance(self.backend, S3Objects):
            self.traffic.writes += 1
            with storage_call("replace", self.root.path(path), writes=True):
                return self.backend.replace(path, text.encode("utf-8"), expected)
        self.address(path, written=True)
        with self.backend.locked(path):
            try:
                if self.read_versioned(path).version != expected:
                    return False
            except StorageMissing:
                return False
            self.write(path, text)
            return True

    def rename(self, source: str, target: str) -> None:
        """Move an object over another: at once locally, by copy and delete on S3."""
        self.traffic.writes += 1
        self.address(target, written=True)
        with storage_call("rename", self.address(source), writes=True):
            self.backend.rename(source, target)

    # -- deleting ------------------------------------------------------------------------

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is fine."""
        self.traffic.deletes += 1
        address = self.address(path, written=True)
        with suppress(StorageMissing), storage_call("delete", address, writes=True):
            self.backend.delete(path)

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove many objects, with one sync for each directory; missing ones are fine.

        The removal is durable when it returns: what is removed next cannot disappear before.
        """
        names = list(paths)
        if not names:
            return
        self.traffic.deletes += len(names)
        # All of them before the first is removed.
        addresses = [self.address(name, written=True) for name in names]
        with storage_call("delete", addresses[0], writes=True):
            self.backend.delete_all(names)

    def delete_prefix(self, path: str) -> int:
        """Remove everything below a path; gives how many objects that were."""
        self.traffic.deletes += 1
        names = list(self._walk(path))
        with storage_call("delete", self.address(path), writes=True):
            self.backend.delete_below(path, names)
        return len(names)

    def remove_if_empty(self, path: str) -> None:
        """Remove a local directory unless there is something in it."""
        if isinstance(self.backend, LocalObjects):
            self.backend.remove_if_empty(path)
