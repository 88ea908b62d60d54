"""Small text objects under a graph's root: schema files, sidecars, leases.

One contract for local disk and S3. A write is seen whole or not at all; ``create`` has exactly
one winner; ``replace`` only succeeds when nobody replaced the object since it was read. On local
disk that last promise holds between processes too: a lock file is held from the comparison to the
replacement. No path leads out of the root, and symbolic links below it are refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import re
import stat
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

from obstore import exceptions as store_errors
from obstore.store import LocalStore, S3Store

from omnigraph.errors import StorageCorrupt, StorageMissing, StorageUnavailable
from omnigraph.storage.durable import Durability, sync_directory, sync_file
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.graph_paths import refuse_unsafe
from omnigraph.storage.objects.links import OnLink, names_in, refuse_link, refuse_links, walk
from omnigraph.storage.objects.roots import Root

_TEMPORARY = ".tmp~"
_LOCK = ".lock~"
# How the library calls a local file while it writes it.
_UNFINISHED = re.compile(r"#\d+\Z")

# A dead S3 endpoint is an error after about ten seconds, whichever way it is dead: it refuses,
# it does not let us connect, or it takes a request and never answers.
_CONNECT_TIMEOUT = timedelta(seconds=3)
_REQUEST_TIMEOUT = timedelta(seconds=6)
_RETRY_TIMEOUT = timedelta(seconds=4)
_RETRIES = 6
_FIRST_BACKOFF = timedelta(milliseconds=50)
_LONGEST_BACKOFF = timedelta(seconds=1)
_CREATE_ATTEMPTS = 5
_IDLE_TIMEOUT = timedelta(seconds=4)
_EPOCH = datetime.fromtimestamp(0, UTC)

# How S3 says that an object is not what it was: changed, gone, or being changed right now.
_LOST = (
    store_errors.PreconditionError,
    store_errors.AlreadyExistsError,
    store_errors.NotFoundError,
    FileNotFoundError,
    FileExistsError,
)


class Versioned(NamedTuple):
    """A text with what identifies this state of it."""

    text: str
    version: str


class Stamped(NamedTuple):
    """A text with its version and when the store, by its own clock, received it."""

    text: str
    version: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of an object without its content."""

    size: int
    e_tag: str
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

    def __init__(self, root: Root, durability: Durability = Durability.DISK) -> None:
        self.root = root
        self.traffic = Traffic()
        self._synced = root.is_local and durability is Durability.DISK
        # Directories whose entry in the one above is on the disk.
        self._led_to: set[Path] = set()
        self._store = _open(root)
        # A condition that failed at the second try may have been met by the first one, so the
        # library must not repeat conditional writes on its own.
        self._unrepeated = self._store if root.is_local else _open_s3(root, retries=0)

    # -- reading -------------------------------------------------------------------------

    def read(self, path: str) -> str:
        """The text of an object; ``StorageMissing`` when there is none."""
        return self.read_versioned(path).text

    def read_versioned(self, path: str) -> Versioned:
        """The text of an object and its version, for a later ``replace``."""
        found = self.read_stamped(path)
        return Versioned(found.text, found.version)

    def read_stamped(self, path: str) -> Stamped:
        """The text of an object, its version and its time, all of the same moment."""
        self.traffic.reads += 1
        with storage_call("read", self.address(path)):
            found = self._store.get(path)
            data = bytes(found.bytes())
            meta = found.meta
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise StorageCorrupt(f"'{self.root.path(path)}' is not UTF-8 text") from None
        version = _digest(data) if self.root.is_local else (meta["e_tag"] or "")
        return Stamped(text, version, meta["last_modified"])

    def read_bytes(self, path: str) -> bytes:
        """The bytes of an object that is no text."""
        self.traffic.reads += 1
        with storage_call("read", self.address(path)):
            return bytes(self._store.get(path).bytes())

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """The bytes of an object, a piece at a time."""
        self.traffic.reads += 1
        with storage_call("read", self.address(path)):
            for piece in self._store.get(path).stream(min_chunk_size=size):
                yield bytes(piece)

    def files_below(
        self, path: str, on_link: OnLink = refuse_link
    ) -> Iterator[tuple[str, ObjectInfo]]:
        """Every object at any depth below a path, with what the store knows of it.

        ``on_link`` is told of symbolic links, and raises unless it is given.
        """
        self.traffic.lists += 1
        with storage_call("list", self.root.path(path)), _refusals():
            if self.root.is_local:
                yield from self._local_files(path, on_link)
                return
            for batch in self._store.list(f"{path}/"):
                for each in batch:
                    if each["path"] != path and not _is_internal(each["path"]):
                        info = ObjectInfo(each["size"], each["e_tag"] or "", each["last_modified"])
                        yield str(each["path"]), info

    def head(self, path: str) -> ObjectInfo | None:
        """What is known of an object, or ``None`` when there is none; one stat or request.

        On local disk the tag is the one that Lance gives to files: it changes with the content.
        """
        self.traffic.reads += 1
        if self.root.is_local:
            found = self._stat(path)
            return None if found is None else _info(found)
        try:
            with storage_call("look at", self.root.path(path)):
                meta = self._store.head(path)
        except StorageMissing:
            return None
        return ObjectInfo(meta["size"], meta["e_tag"] or "", meta["last_modified"])

    def identity(self, path: str) -> str | None:
        """What identifies the present state of an object, ``None`` when it is missing."""
        found = self.head(path)
        return None if found is None else found.e_tag

    def signatures(self, paths: Iterable[str]) -> tuple[str | None, ...]:
        """What identifies the present state of several objects, ``None`` for a missing one.

        One stat each on local disk; on S3 one request for all that lie in one directory. Only
        comparable with what this method gave before.
        """
        wanted = tuple(paths)
        if self.root.is_local:
            self.traffic.reads += len(wanted)
            return tuple(_signature(self._stat(path)) for path in wanted)
        folders: dict[str, list[str]] = {}
        for path in wanted:
            folders.setdefault(path.rpartition("/")[0], []).append(path)
        found: dict[str, str | None] = {}
        for folder, inside in folders.items():
            if len(inside) == 1:
                found[inside[0]] = self.identity(inside[0])
                continue
            self.traffic.reads += 1
            for entry in self._entries(folder):
                found[str(entry["path"])] = entry["e_tag"]
        return tuple(found.get(path) for path in wanted)

    def exists(self, path: str) -> bool:
        """Whether there is an object, or anything below it; loud when that cannot be seen."""
        self.traffic.reads += 1
        try:
            with storage_call("look at", self.root.path(path)):
                self._store.head(path)
            return True
        except StorageMissing:
            return any(True for _ in self._walk(path))

    def list(self, path: str) -> list[str]:
        """The names of the objects directly in a directory, sorted; none when it is missing."""
        self.traffic.lists += 1
        names: Sequence[str]
        if self.root.is_local:
            names = self._local_names(path)
        else:
            names = [str(entry["path"]).rsplit("/", 1)[-1] for entry in self._entries(path)]
        return sorted(name for name in names if not _is_internal(name))

    # -- writing -------------------------------------------------------------------------

    def write(self, path: str, text: str) -> None:
        """Create or replace an object; readers see the old text or the new one."""
        self.traffic.writes += 1
        with storage_call("write", self.address(path, written=True), writes=True):
            if not self.root.is_local:
                self._store.put(path, text.encode("utf-8"))
                return
            with self._prepared(path, text) as temporary:
                os.replace(temporary, self._local(path))
                self._sync_entry(path)

    def write_bytes(self, path: str, data: bytes) -> None:
        """Create or replace an object that is no text and that nobody would miss."""
        self.traffic.writes += 1
        with storage_call("write", self.address(path, written=True), writes=True):
            if not self.root.is_local:
                self._store.put(path, data)
                return
            temporary = self._local(f"{path}{_TEMPORARY}{uuid.uuid4().hex}")
            try:
                _write_new(temporary, data)
                os.replace(temporary, self._local(path))
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise

    def create(self, path: str, text: str) -> bool:
        """Create an object unless it exists; of several that try, exactly one gets ``True``.

        ``StorageUnknown`` when the answer was lost: who can tell its own text reads it back.
        """
        for _ in range(_CREATE_ATTEMPTS):
            if self._create(path, text):
                return True
            # S3 also refuses when two creations collide, and then possibly both of them.
            if self.root.is_local or self.head(path) is not None:
                return False
        raise StorageUnavailable(
            f"cannot create '{self.root.path(path)}': others keep creating and deleting it",
            hint="repeat later",
        )

    def _create(self, path: str, text: str) -> bool:
        self.traffic.writes += 1
        with storage_call("create", self.address(path, written=True), writes=True):
            try:
                if not self.root.is_local:
                    self._put_if(path, text, "create")
                    return True
                with self._prepared(path, text) as temporary:
                    # Unlike a rename, a link fails when the name is taken.
                    os.link(temporary, self._local(path))
                    temporary.unlink()
                    self._sync_entry(path)
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
        with storage_call("replace", self.root.path(path), writes=True):
            try:
                self._put_if(path, text, {"e_tag": expected})
            except _LOST:
                return False
        return True

    def _put_if(self, path: str, text: str, mode: Any) -> None:
        """Write on a condition; again only when the store says that it is too busy to look."""
        deadline = time.monotonic() + _RETRY_TIMEOUT.total_seconds()
        pause = _FIRST_BACKOFF.total_seconds()
        while True:
            try:
                self._unrepeated.put(path, text.encode("utf-8"), mode=mode)
                return
            except store_errors.GenericError as error:
                if "503 Service Unavailable" not in str(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_BACKOFF.total_seconds())

    def rename(self, source: str, target: str) -> None:
        """Move an object over another: at once locally, by copy and delete on S3."""
        self.traffic.writes += 1
        self.address(target, written=True)
        with storage_call("rename", self.address(source), writes=True):
            self._store.rename(source, target)
            self._sync_entry(target)
            if self._synced:
                sync_directory(self._local(source).parent)

    def delete(self, path: str) -> None:
        """Remove an object; one that is not there is fine."""
        self.traffic.deletes += 1
        try:
            with storage_call("delete", self.address(path, written=True), writes=True):
                if not self.root.is_local:
                    self._store.delete(path)
                    return
                self._local(path).unlink()
                if self._synced:
                    sync_directory(self._local(path).parent)
        except StorageMissing:
            return

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove many objects, with one sync for each directory; missing ones are fine.

        When it returns they are gone for good: what is removed next cannot go before them.
        """
        names = list(paths)
        if not names:
            return
        self.traffic.deletes += len(names)
        # All of them before the first goes.
        addresses = [self.address(name, written=True) for name in names]
        with storage_call("delete", addresses[0], writes=True):
            if not self.root.is_local:
                self._store.delete(names)
                return
            for name in names:
                self._local(name).unlink(missing_ok=True)
            if self._synced:
                for folder in sorted({self._local(name).parent for name in names}):
                    if folder.is_dir():
                        sync_directory(folder)

    def delete_prefix(self, path: str) -> int:
        """Remove everything below a path; gives how many objects that were."""
        self.traffic.deletes += 1
        gone = list(self._walk(path))
        with storage_call("delete", self.address(path), writes=True):
            for name in gone:
                if self.root.is_local:
                    Path(f"{self.root.uri}/{name}").unlink(missing_ok=True)
                else:
                    self._store.delete(name)
            if self.root.is_local:
                _remove_empty(self._local(path))
                self._led_to.clear()
        return len(gone)

    def refuse_links(self, path: str) -> None:
        """Refuse links on the way to a path and anywhere below it."""
        if self.root.is_local:
            for _ in walk(self.root.uri, path):
                pass

    def remove_if_empty(self, path: str) -> None:
        """Remove a local directory unless there is something in it."""
        if self.root.is_local:
            with suppress(OSError):
                os.rmdir(self._local(path))

    # -- local disk ----------------------------------------------------------------------

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Hold the lock of a local object against every thread and process."""
        lock = self._local(path + _LOCK)
        with storage_call("lock", self.address(path, written=True)):
            lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _prepared(self, path: str, text: str) -> Iterator[Path]:
        """A temporary neighbour of an object whose bytes are on the disk already.

        Synced after a rename, an object could be seen empty after a power failure although its
        earlier text had been safe.
        """
        temporary = self._local(f"{path}{_TEMPORARY}{uuid.uuid4().hex}")
        try:
            _write_new(temporary, text.encode("utf-8"))
            if self._synced:
                sync_file(temporary)
            yield temporary
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _sync_entry(self, path: str) -> None:
        """Sync the directory of an object, and once those above it, which a write may make."""
        if not self._synced:
            return
        folder = self._local(path).parent
        sync_directory(folder)
        above = Path(self.root.uri).parent
        while folder != above and folder not in self._led_to:
            sync_directory(folder.parent)
            self._led_to.add(folder)
            folder = folder.parent

    def _local_names(self, path: str) -> Sequence[str]:
        with storage_call("list", self.root.path(path)):
            try:
                return names_in(self.root.uri, path)
            except (FileNotFoundError, NotADirectoryError):
                return []

    def address(self, path: str, *, written: bool = False) -> str:
        """The address of an object, unless a link leads there.

        What is ``written`` replaces or removes a link, so only those on the way to it count.
        """
        address = self.root.path(path)
        if self.root.is_local:
            refuse_links(self.root.uri, path.rpartition("/")[0] if written else path)
        return address

    def _local_files(self, path: str, on_link: OnLink) -> Iterator[tuple[str, ObjectInfo]]:
        for name, entry in walk(self.root.uri, path, on_link):
            if _UNFINISHED.search(entry.name) or _is_internal(entry.name):
                continue
            with suppress(FileNotFoundError):
                yield name, _info(entry.stat(follow_symlinks=False))

    def _local(self, path: str) -> Path:
        refuse_unsafe(path)
        return Path(self.root.uri, path)

    def _stat(self, path: str) -> os.stat_result | None:
        refuse_unsafe(path)
        try:
            found = os.stat(f"{self.root.uri}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            with storage_call("look at", self.root.path(path)):
                raise
        return found if stat.S_ISREG(found.st_mode) else None

    # -- listings ------------------------------------------------------------------------

    def _entries(self, folder: str) -> Sequence[Any]:
        """The objects directly in a directory, as the store describes them."""
        with storage_call("list", self.root.path(folder)), _refusals():
            found = self._store.list_with_delimiter(f"{folder}/" if folder else None)
            return [entry for entry in found["objects"] if entry["path"] != folder]

    def _walk(self, path: str) -> Iterator[str]:
        self.traffic.lists += 1
        with storage_call("list", self.root.path(path)), _refusals():
            if self.root.is_local:
                found = walk(self.root.uri, path)
                yield from (name for name, _ in found if not _UNFINISHED.search(name))
                return
            for batch in self._store.list(f"{path}/" if path else None):
                for entry in batch:
                    # Some servers show an empty directory as an object of the same name.
                    if entry["path"] != path:
                        yield str(entry["path"])


def _open(root: Root) -> LocalStore | S3Store:
    if not root.is_local:
        return _open_s3(root, _RETRIES)
    with storage_call("open", root.uri):
        return LocalStore(root.uri, mkdir=True)


def _open_s3(root: Root, retries: int) -> S3Store:
    options = dict(root.options)
    client = {
        "allow_http": options.pop("allow_http", "false"),
        "connect_timeout": _CONNECT_TIMEOUT,
        "timeout": _REQUEST_TIMEOUT,
        # A server may end an idle connection just when it is used again.
        "pool_idle_timeout": _IDLE_TIMEOUT,
    }
    with storage_call("open", root.uri):
        return S3Store(
            root.bucket,
            prefix=root.prefix or None,
            config=cast(Any, options),
            client_options=cast(Any, client),
            retry_config={
                "max_retries": retries,
                "retry_timeout": _RETRY_TIMEOUT,
                "backoff": {"init_backoff": _FIRST_BACKOFF, "max_backoff": _LONGEST_BACKOFF},
            },
        )


@contextmanager
def _refusals() -> Iterator[None]:
    """Tell why S3 refused a listing: the library only says so in the text of its error."""
    try:
        yield
    except store_errors.GenericError as error:
        text = str(error)
        if "401 Unauthorized" in text or "403 Forbidden" in text:
            raise PermissionError from error
        if "404 Not Found" in text:
            raise FileNotFoundError from error
        raise


def _write_new(path: Path, data: bytes) -> None:
    """Write a new file, in a directory that is made when it is missing."""
    try:
        file = path.open("xb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("xb")
    with file:
        file.write(data)


def _info(found: os.stat_result) -> ObjectInfo:
    micros = found.st_mtime_ns // 1000
    tag = f"{found.st_ino:x}-{micros:x}-{found.st_size:x}"
    return ObjectInfo(found.st_size, tag, _EPOCH + timedelta(microseconds=micros))


def _signature(found: os.stat_result | None) -> str | None:
    if found is None:
        return None
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"


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
