"""Objects under a prefix of an S3 bucket.

A dead endpoint is reported after about ten seconds. The library never retries conditional writes: a
condition that failed at the second attempt may have been met by the first. Errors of the library
are translated by the caller.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import Any, cast

from obstore import exceptions as store_errors
from obstore import open_writer
from obstore.store import S3Store

from omnigraph.errors import StorageCorrupt, StorageMissing
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.local import PIECE, ObjectInfo, StoredBytes, is_internal
from omnigraph.storage.objects.paths import OnLink, Root, refuse_link

# Covers every kind of dead endpoint: it refuses the connection, the connection times out, or it
# accepts a request and never answers.
_CONNECT_TIMEOUT = timedelta(seconds=3)
_REQUEST_TIMEOUT = timedelta(seconds=6)
_RETRY_TIMEOUT = timedelta(seconds=4)
_RETRIES = 6
_FIRST_BACKOFF = timedelta(milliseconds=50)
_LONGEST_BACKOFF = timedelta(seconds=1)
_IDLE_TIMEOUT = timedelta(seconds=4)
_PARTS_AT_ONCE = 2
_LARGE = 4 << 20
_LEAST_RATE = 1 << 20
"""Bytes in a second; an object that is larger than ``_LARGE`` gets as much time as it needs."""

# Answers of S3 for a failed condition: the object was changed, deleted, or is being changed.
_LOST = (
    store_errors.PreconditionError,
    store_errors.AlreadyExistsError,
    store_errors.NotFoundError,
    FileNotFoundError,
    FileExistsError,
)


class S3Objects:
    """The objects of one root."""

    synced = False

    def __init__(self, root: Root) -> None:
        self.root = root
        self._store = _open(root, _RETRIES)
        self._unrepeated = _open(root, retries=0)

    # -- reading -------------------------------------------------------------------------

    def get(self, path: str) -> StoredBytes:
        result = self._get(path)
        data = bytes(result.bytes())
        return StoredBytes(data, result.meta["e_tag"] or "", result.meta["last_modified"])

    def get_bytes(self, path: str) -> bytes:
        return bytes(self._get(path).bytes())

    def _get(self, path: str) -> Any:
        """An object whose bytes have not been read; a large one is asked for with more patience."""
        result = self._store.get(path)
        size = int(result.meta["size"])
        return result if size <= _LARGE else _open(self.root, _RETRIES, size).get(path)

    def stream(self, path: str, size: int) -> Iterator[bytes]:
        yield from map(bytes, self._store.get(path).stream(min_chunk_size=size))

    def read_pieces(self, path: str) -> Iterator[bytes]:
        """The bytes of an object piece by piece; errors are translated here."""
        address = self.root.path(path)
        info = self.head(path)
        if info is None:
            raise StorageMissing(f"cannot read '{address}': it does not exist")
        for start in range(0, info.size, PIECE):
            length = min(PIECE, info.size - start)
            with storage_call("read", address):
                piece = bytes(self._store.get_range(path, start=start, length=length))
            if len(piece) != length:
                raise StorageCorrupt(f"'{address}' changed while it was read")
            yield piece

    def head(self, path: str) -> ObjectInfo | None:
        try:
            with storage_call("look at", self.root.path(path)):
                return _info(self._store.head(path))
        except StorageMissing:
            return None

    def tags(self, folder: str) -> dict[str, str | None]:
        """The tags of the objects directly in a directory, by one request."""
        return {str(entry["path"]): entry["e_tag"] for entry in self._entries(folder)}

    # -- listings ------------------------------------------------------------------------

    def names(self, folder: str) -> list[str]:
        return [str(entry["path"]).rsplit("/", 1)[-1] for entry in self._entries(folder)]

    def folders(self, folder: str) -> list[str]:
        with _explained():
            inside = self._store.list_with_delimiter(f"{folder}/")["common_prefixes"]
        return [str(prefix).rpartition("/")[2] for prefix in inside]

    def files(self, path: str, on_link: OnLink = refuse_link) -> Iterator[tuple[str, ObjectInfo]]:
        for entry in self._below(path):
            if not is_internal(entry["path"]):
                yield str(entry["path"]), _info(entry)

    def sizes(self, path: str) -> Iterator[tuple[str, int]]:
        return ((str(e["path"]), int(e["size"])) for e in self._below(path) if e["path"])

    def walk(self, path: str) -> Iterator[str]:
        return (str(entry["path"]) for entry in self._below(path))

    def _below(self, path: str) -> Iterator[Any]:
        with _explained():
            for batch in self._store.list(f"{path}/" if path else None):
                # Some servers list an empty directory as an object of the same name.
                yield from (entry for entry in batch if entry["path"] != path)

    def _entries(self, folder: str) -> Sequence[Any]:
        """The objects directly in a directory, as the store describes them."""
        with _explained():
            listing = self._store.list_with_delimiter(f"{folder}/" if folder else None)
        return [entry for entry in listing["objects"] if entry["path"] != folder]

    # -- writing -------------------------------------------------------------------------

    def put(self, path: str, data: bytes, *, private: bool = False) -> None:
        self._store.put(path, data)

    put_unsynced = put

    def put_tagged(self, path: str, data: bytes) -> str:
        """Write an object; returns its tag."""
        return self._store.put(path, data)["e_tag"] or ""

    def create(self, path: str, data: bytes, *, private: bool = False) -> bool:
        return self.create_tagged(path, data) is not None

    def create_tagged(self, path: str, data: bytes) -> str | None:
        """Create an object and return its tag; ``None`` if it exists."""
        try:
            return self._put_if(path, data, "create")
        except (FileExistsError, store_errors.AlreadyExistsError):
            return None

    def replace(self, path: str, data: bytes, expected: str) -> bool:
        try:
            self._put_if(path, data, {"e_tag": expected})
        except _LOST:
            return False
        return True

    def _put_if(self, path: str, data: bytes, mode: Any) -> str:
        """Conditional write; returns the tag.

        Retried only when the store is too busy to evaluate the condition.
        """
        size = len(data)
        store = self._unrepeated if size <= _LARGE else _open(self.root, 0, size)
        deadline = time.monotonic() + _RETRY_TIMEOUT.total_seconds()
        pause = _FIRST_BACKOFF.total_seconds()
        while True:
            try:
                return store.put(path, data, mode=mode)["e_tag"] or ""
            except store_errors.GenericError as error:
                if "503 Service Unavailable" not in str(error) or time.monotonic() >= deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_BACKOFF.total_seconds())

    def write_pieces(self, path: str, pieces: Iterable[bytes]) -> None:
        """Write an object as its bytes arrive; it becomes visible after the last piece."""
        remaining = iter(pieces)
        first = next(remaining, b"")
        second = next(remaining, None)
        address = self.root.path(path)
        with storage_call("write", address, writes=True):
            if second is None:
                self._store.put(path, first)
                return
            # Never closed after a failure: the object would appear.
            writer = open_writer(
                self._store, path, buffer_size=PIECE, max_concurrency=_PARTS_AT_ONCE
            )
        # Read here, because the library cannot read from a store while it writes to one.
        for piece in chain((first, second), remaining):
            with storage_call("write", address, writes=True):
                writer.write(piece)
        with storage_call("write", address, writes=True):
            writer.close()

    def rename(self, source: str, target: str) -> None:
        self._store.rename(source, target)

    # -- deleting ------------------------------------------------------------------------

    def delete(self, path: str, *, synced: bool = True) -> None:
        self._store.delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        self._store.delete(list(paths))

    def delete_below(self, path: str, names: Iterable[str]) -> None:
        for name in names:
            self._store.delete(name)


def _info(entry: Any) -> ObjectInfo:
    return ObjectInfo(int(entry["size"]), entry["e_tag"] or "", entry["last_modified"])


def _open(root: Root, retries: int, size: int = 0) -> S3Store:
    """A client; ``size`` is that of an object that it transfers in one request."""
    options = dict(root.options)
    client = {
        "allow_http": options.pop("allow_http", "false"),
        "connect_timeout": _CONNECT_TIMEOUT,
        "timeout": _REQUEST_TIMEOUT + timedelta(seconds=size / _LEAST_RATE),
        # A server may close an idle connection just when it is reused.
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
def _explained() -> Iterator[None]:
    """Raise a typed error when S3 refuses a listing: the library reports it only as text."""
    try:
        yield
    except store_errors.GenericError as error:
        text = str(error)
        if "401 Unauthorized" in text or "403 Forbidden" in text:
            raise PermissionError from error
        if "404 Not Found" in text:
            raise FileNotFoundError from error
        raise
