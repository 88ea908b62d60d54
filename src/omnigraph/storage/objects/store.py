"""Small text objects under a graph's root: schema files, sidecars, leases.

One contract for local disk and S3. A write is atomic; ``create`` has exactly one winner;
``replace`` succeeds only if the object was not replaced since it was read. On local disk this also
holds between processes: a lock file is held from the comparison to the replacement. No path leaves
the root, and symbolic links below it are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from omnigraph.errors import OmniGraphError, StorageCorrupt, StorageMissing, StorageUnavailable
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.ahead import RequestsAhead
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.local import LocalObjects, ObjectInfo, is_internal
from omnigraph.storage.objects.paths import OnLink, Root, refuse_link, refuse_links, walk
from omnigraph.storage.objects.traffic import StoreTraffic

if TYPE_CHECKING:
    from omnigraph.storage.objects.s3 import S3Objects

_CREATE_ATTEMPTS = 5
UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)
"""In place of the time of an object that was just written: the store does not return it."""


class Versioned(NamedTuple):
    """A text, its version tag, and the time of its write by the store's clock."""

    text: str
    version: str
    modified: datetime


class ObjectStore:
    """Text objects by path relative to the root, such as ``__recovery/01H….json``."""

    backend: LocalObjects | S3Objects

    def __init__(self, root: Root, durability: Durability = Durability.DISK) -> None:
        self.root = root
        self.traffic = StoreTraffic()
        self._ahead = RequestsAhead()
        if root.is_local:
            self.backend = LocalObjects(root, synced=durability is Durability.DISK)
        else:
            from omnigraph.storage.objects.s3 import S3Objects

            self.backend = S3Objects(root)

    def address(self, path: str, *, written: bool = False) -> str:
        """The address of an object; links on the way are refused.

        A write replaces or removes a link, so with ``written`` only its parents are checked.
        """
        address = self.root.path(path)
        if self.root.is_local:
            refuse_links(self.root.uri, path.rpartition("/")[0] if written else path)
        return address

    # -- reading -------------------------------------------------------------------------

    def read(self, path: str) -> str:
        """The text of an object; ``StorageMissing`` if it does not exist."""
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
        """Size, tag and time of an object, ``None`` if it does not exist; one stat or request.

        On local disk the tag is the one that Lance computes for files: it changes with the content.
        """
        self.traffic.reads += 1
        ahead = None if self.root.is_local else self._ahead.take("head", path)
        return self.backend.head(path) if ahead is None else ahead.result()

    def identity(self, path: str) -> str | None:
        """The version tag of an object, ``None`` if it does not exist."""
        info = self.head(path)
        return None if info is None else info.e_tag

    def signatures(self, paths: Iterable[str]) -> tuple[str | None, ...]:
        """The version tags of several objects, ``None`` for a missing one.

        One stat each on local disk; on S3 one request per directory. Comparable only with earlier
        results of this method.
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

    def look_ahead(self, heads: Iterable[str] = (), listings: Iterable[str] = ()) -> None:
        """Start requests whose answers this thread is about to ask for, all at the same time.

        The next ``head`` or ``list`` of each path takes the answer, once and within a second. Does
        nothing on local disk.
        """
        if not self.root.is_local:
            self._ahead.start(
                {("head", path): self.backend.head for path in heads}
                | {("list", path): self.backend.names for path in listings}
            )

    def exists_ahead(self, path: str) -> bool:
        """Whether a request that this thread started has found an object."""
        answer = self._ahead.peek("head", path)
        return answer is not None and answer.result() is not None

    # -- listings ------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Whether there is an object at this path or below it."""
        return self.head(path) is not None or any(True for _ in self._walk(path))

    def folders(self, path: str) -> list[str]:
        """The names of the subdirectories of a directory, sorted; empty if it does not exist."""
        self.traffic.lists += 1
        with storage_call("list", self.root.path(path)):
            return sorted(self.backend.folders(path))

    def list(self, path: str) -> list[str]:
        """The names of the objects directly in a directory, sorted; empty if it does not exist."""
        self.traffic.lists += 1
        ahead = None if self.root.is_local else self._ahead.take("list", path)
        with storage_call("list", self.root.path(path)):
            names = self.backend.names(path) if ahead is None else ahead.result()
        return sorted(name for name in names if not is_internal(name))

    def files_below(
        self, path: str, on_link: OnLink = refuse_link
    ) -> Iterator[tuple[str, ObjectInfo]]:
        """Every object at any depth below a path, with its info; ``on_link`` gets links."""
        self.traffic.lists += 1
        with storage_call("list", self.root.path(path)):
            yield from self.backend.files(path, on_link)

    def sizes_below(self, path: str = "") -> dict[str, int]:
        """The sizes of all files below a path, temporary ones included, sorted by path."""
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

    def write(self, path: str, text: str, *, private: bool = False) -> None:
        """Create or replace an object; readers see the old text or the new one.

        Only the owner of a ``private`` file can read it; in S3 the rules of the bucket decide.
        """
        self.traffic.writes += 1
        with storage_call("write", self.address(path, written=True), writes=True):
            self.backend.put(path, text.encode("utf-8"), private=private)

    def write_bytes(self, path: str, data: bytes) -> None:
        """Create or replace a binary object that may be lost in a power failure."""
        self.traffic.writes += 1
        with storage_call("write", self.address(path, written=True), writes=True):
            self.backend.put_unsynced(path, data)

    def put_new(self, path: str, data: bytes) -> ObjectInfo:
        """Write an object of a new name to S3; returns its size and tag, without its time."""
        assert not isinstance(self.backend, LocalObjects)
        self.traffic.writes += 1
        return ObjectInfo(len(data), self.backend.put_tagged(path, data), UNKNOWN_TIME)

    def create_bytes(self, path: str, data: bytes) -> ObjectInfo | None:
        """As ``create`` on S3; returns the size and tag of the new object, without its time."""
        created: list[str] = []

        def create(path: str, data: bytes) -> bool:
            assert not isinstance(self.backend, LocalObjects)
            tag = self.backend.create_tagged(path, data)
            created.extend([] if tag is None else [tag])
            return tag is not None

        if not self._create(path, data, create):
            return None
        return ObjectInfo(len(data), created[0], UNKNOWN_TIME)

    def create(self, path: str, text: str, *, private: bool = False) -> bool:
        """Create an object unless it exists; of several callers exactly one gets ``True``.

        Raises ``StorageUnknown`` if the answer was lost: a caller with a unique text can read it
        back. For ``private`` see ``write``.
        """
        create = partial(self.backend.create, private=private)
        return self._create(path, text.encode("utf-8"), create)

    def _create(self, path: str, data: bytes, create: Callable[[str, bytes], bool]) -> bool:
        for _ in range(_CREATE_ATTEMPTS):
            self.traffic.writes += 1
            with storage_call("create", self.address(path, written=True), writes=True):
                if create(path, data):
                    return True
            # S3 may refuse both of two colliding creations.
            if self.root.is_local or self.head(path) is not None:
                return False
        raise StorageUnavailable(
            f"cannot create '{self.root.path(path)}': other writers keep creating and deleting it",
            hint="repeat later",
        )

    def replace(self, path: str, text: str, expected: str, *, private: bool = False) -> bool:
        """Replace an object only if it is unchanged since ``read_versioned``.

        For ``private`` see ``write``.
        """
        if not isinstance(self.backend, LocalObjects):
            self.traffic.writes += 1
            with storage_call("replace", self.root.path(path), writes=True):
                return self.backend.replace(path, text.encode("utf-8"), expected)
        with self._locked(path):
            try:
                if self.read_versioned(path).version != expected:
                    return False
            except StorageMissing:
                return False
            self.write(path, text, private=private)
            return True

    def rename(self, source: str, target: str) -> None:
        """Move an object over another: atomically on local disk, by copy and delete on S3."""
        self.traffic.writes += 1
        self.address(target, written=True)
        with storage_call("rename", self.address(source), writes=True):
            self.backend.rename(source, target)

    # -- deleting ------------------------------------------------------------------------

    def delete(self, path: str, *, synced: bool = True) -> None:
        """Remove an object if it exists.

        Without ``synced`` it may be there again after a power failure.
        """
        self.traffic.deletes += 1
        address = self.address(path, written=True)
        with suppress(StorageMissing), storage_call("delete", address, writes=True):
            self.backend.delete(path, synced=synced)

    def delete_if(self, path: str, expected: str) -> bool:
        """Remove an object only if it is unchanged since ``read_versioned``.

        S3 has no conditional delete: there, a writer between the comparison and the removal loses
        its write.
        """
        with self._locked(path):
            try:
                if self.read_versioned(path).version != expected:
                    return False
            except StorageMissing:
                return False
            self.delete(path)
            return True

    def _locked(self, path: str) -> AbstractContextManager[None]:
        """Keep other conditional writes of a local object out."""
        if not isinstance(self.backend, LocalObjects):
            return nullcontext()
        self.address(path, written=True)
        return self.backend.locked(path)

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove many objects, with one sync per directory; missing ones are skipped.

        The removal is durable on return, so later removals cannot overtake it.
        """
        names = list(paths)
        if not names:
            return
        self.traffic.deletes += len(names)
        # All of them are checked before the first is removed.
        addresses = [self.address(name, written=True) for name in names]
        with storage_call("delete", addresses[0], writes=True):
            self.backend.delete_all(names)

    def delete_quietly(self, paths: Iterable[str]) -> None:
        """Remove unreferenced objects; those that cannot be removed are left to cleanup."""
        with suppress(OmniGraphError):
            self.delete_all(paths)

    def delete_prefix(self, path: str) -> int:
        """Remove everything below a path; returns the number of removed objects."""
        self.traffic.deletes += 1
        names = list(self._walk(path))
        with storage_call("delete", self.address(path), writes=True):
            self.backend.delete_below(path, names)
        return len(names)

    def remove_empty_folders(self, path: str) -> None:
        """Remove the empty local directories at a path and below it; files stay."""
        if isinstance(self.backend, LocalObjects):
            with storage_call("delete", self.address(path), writes=True):
                self.backend.delete_below(path, ())

    def remove_if_empty(self, path: str) -> None:
        """Remove a local directory if it is empty."""
        if isinstance(self.backend, LocalObjects):
            self.backend.remove_if_empty(path)
