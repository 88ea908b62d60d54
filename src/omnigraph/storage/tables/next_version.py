"""Builds the next version of a table on S3 locally, by Lance itself, without a request.

Lance commits to S3 by three requests in sequence: it lists the versions, writes the transaction and
creates the version file. For a change of a few rows all of these bytes are known before: given the
version file of version N in an otherwise empty local table, Lance writes the data files, the
transaction and the file of version N + 1 there. They are then uploaded: data, deletions and
transaction at the same time, and last the version file, which is created only if it does not exist.
That is Lance's own commit point, so exactly one of several writers, of any program, gets the
version.

Nothing is rebased: a version that another writer was first to create is a lost race.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import lance
import pyarrow as pa
from lance import LanceDataset, Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import OmniGraphError, StorageCorrupt, StorageMissing, StorageUnknown
from omnigraph.records import dataclass
from omnigraph.storage.lance_format.addresses import GraphAddresses
from omnigraph.storage.lance_format.manifests import base_addresses, parse_version
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.local import ObjectInfo
from omnigraph.storage.objects.paths import version_file
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import ROWS_PER_FRAGMENT, TableRef

_CACHE = 1 << 20
_MOST_BYTES = 4 << 20
"""A larger version file is left to Lance: writing and reading it here would cost more."""
_KEPT, _KEPT_BYTES = 64, 32 << 20
"""The most versions that are remembered, and the size of their files."""

Key = tuple[str, int, str]
"""The path of a table, a version, and the tag of its file."""


class _Remembered(NamedTuple):
    """What is remembered of a version: its file, and more if this process wrote it."""

    raw: bytes
    facts: LanceDataset | None = None
    base: Key | None = None


@dataclass(frozen=True, slots=True)
class NextVersion:
    """A version that was built locally; nothing of it is visible before its file is created."""

    ref: TableRef
    version: int
    transaction_id: str
    raw: bytes
    """The content of the version file."""
    dataset: LanceDataset
    """For facts only, such as its fragments: its files are not where it looks for them."""
    base_tag: str | None = None
    """The tag of the file of the version before, if known."""

    @property
    def path(self) -> str:
        return self.ref.version_path(self.version)


class LocalCopy:
    """A local table of one version without its files, on which Lance builds the next version."""

    def __init__(
        self,
        folder: str,
        ref: TableRef,
        version: int,
        raw: bytes,
        session: Any = None,
        e_tag: str | None = None,
    ) -> None:
        self.ref = ref
        self.version = version
        self._e_tag = e_tag
        self._top = f"{folder}/{ref.path}"
        os.makedirs(f"{self._top}/_versions")
        with open(f"{self._top}/{version_file(version)}", "wb") as file:
            file.write(raw)
        self._files: dict[str, bytes] = {}
        with lance_call("open", ref.path):
            self._dataset = lance.dataset(self._top, version=version, session=session)

    def put(self, path: str, data: bytes) -> None:
        """Add a new file, by its path relative to the root of the graph."""
        self._files[path] = data

    def write(self, data: Any, rows_per_file: int) -> list[FragmentMetadata]:
        fragments: list[FragmentMetadata] = write_fragments(
            data, self._dataset, mode="append", max_rows_per_file=rows_per_file
        )
        return fragments

    def overwrite(self, rows: pa.Table) -> Transaction:
        """Write rows that replace all others."""
        return overwrite(rows, self._dataset)

    def commit(self, transaction: Transaction) -> NextVersion:
        with lance_call("commit to", self.ref.path):
            built = LanceDataset.commit(self._dataset, transaction, max_retries=0)
        number = int(built.version)
        raw = _read(f"{self._top}/{version_file(number)}")
        return NextVersion(self.ref, number, str(transaction.uuid), raw, built, self._e_tag)

    def new_files(self) -> dict[str, bytes]:
        """All files that were added, by path relative to the root, except for version files."""
        for folder, _, names in os.walk(self._top):
            inside = os.path.relpath(folder, self._top)
            for name in names if inside != "_versions" else ():
                self._files[f"{self.ref.path}/{inside}/{name}"] = _read(f"{folder}/{name}")
        return self._files


class NextVersions:
    """The versions of one graph on S3 that this process wrote last. Thread-safe."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._addresses = GraphAddresses(objects.root)
        self._lock = threading.Lock()
        self._remembered: OrderedDict[Key, _Remembered] = OrderedDict()
        self._nbytes = 0
        self._session: Any = None

    @contextmanager
    def copy(self, ref: TableRef, version: int, e_tag: str | None) -> Iterator[LocalCopy | None]:
        """A local copy of a version; ``None`` where Lance has to write to the store itself."""
        raw = self._version_bytes(ref, version, e_tag)
        if raw is None:
            yield None
            return
        with ExitStack() as stack:
            copy: LocalCopy | None = None
            # Without room for it, Lance writes to the store itself.
            with suppress(OSError, OmniGraphError):
                folder = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="omnigraph-", ignore_cleanup_errors=True)
                )
                copy = LocalCopy(folder, ref, version, raw, self._local_session(), e_tag)
            yield copy

    def _local_session(self) -> Any:
        if self._session is None:
            self._session = lance.Session(  # type: ignore[attr-defined]
                index_cache_size_bytes=_CACHE, metadata_cache_size_bytes=_CACHE
            )
        return self._session

    def _version_bytes(self, ref: TableRef, version: int, e_tag: str | None) -> bytes | None:
        key = (ref.path, version, e_tag or "")
        with self._lock:
            remembered = self._remembered.get(key)
        raw = None if remembered is None else remembered.raw
        if raw is None:
            path = ref.version_path(version)
            raw = self._objects.read_bytes(path)
            if parse_version(raw, path).version != version:
                raise StorageCorrupt(f"'{path}' has the content of another version")
            if e_tag is not None:
                self._remember(key, _Remembered(raw))
        if len(raw) > _MOST_BYTES or not self._names_this_root(ref, raw):
            return None
        return raw

    def _names_this_root(self, ref: TableRef, raw: bytes) -> bool:
        """Whether a version refers to files under this root, not under a former one."""
        named = base_addresses(raw, ref.path) if ref.branch is not None else ()
        return all(self._addresses.localize(address, ref.location) == address for address in named)

    def _remember(self, key: Key, version: _Remembered) -> None:
        with self._lock:
            before = self._remembered.pop(key, None)
            self._nbytes += len(version.raw) - (0 if before is None else len(before.raw))
            self._remembered[key] = version
            while len(self._remembered) > _KEPT or self._nbytes > _KEPT_BYTES:
                self._nbytes -= len(self._remembered.popitem(last=False)[1].raw)

    def find(self, ref: TableRef, version: int, e_tag: str | None) -> LanceDataset | None:
        """The facts of a version that this process wrote, while it is remembered."""
        with self._lock:
            remembered = self._remembered.get((ref.path, version, e_tag or ""))
        return None if remembered is None else remembered.facts

    def earlier(self, ref: TableRef, version: int, e_tag: str | None) -> Iterator[Key]:
        """The versions on which this process built a version, the newest first."""
        key: Key | None = (ref.path, version, e_tag or "")
        while key is not None:
            with self._lock:
                remembered = self._remembered.get(key)
            key = None if remembered is None else remembered.base
            if key is not None:
                yield key

    def create(self, built: NextVersion) -> ObjectInfo | None:
        """Make a version visible; ``None`` if another writer was first.

        Raises ``StorageUnknown`` if the store did not answer and the version does not show it.
        """
        info: ObjectInfo | None = None
        lost: StorageUnknown | None = None
        try:
            info = self._objects.create_bytes(built.path, built.raw)
        except StorageUnknown as error:
            lost = error
        if info is None and self._is_created(built):
            # An earlier attempt of this request arrived, or its answer was lost.
            info = self._objects.head(built.path)
        if info is None and lost is not None:
            raise lost
        if info is not None:
            path, tag = built.ref.path, built.base_tag
            base = None if tag is None else (path, built.version - 1, tag)
            key = (path, built.version, info.e_tag)
            self._remember(key, _Remembered(built.raw, built.dataset, base))
        return info

    def _is_created(self, built: NextVersion) -> bool:
        """Whether the version in the store is the built one: no other has its transaction.

        Raises ``StorageUnknown`` if it cannot be read: a repeated request meets its own file.
        """
        try:
            return self._objects.read_bytes(built.path) == built.raw
        except StorageMissing:
            return False
        except OmniGraphError as error:
            raise StorageUnknown(f"'{built.path}' may have been created") from error

    def forget(self) -> None:
        with self._lock:
            self._remembered.clear()
            self._nbytes = 0


def _read(path: str) -> bytes:
    with storage_call("read", path), open(path, "rb") as file:
        return file.read()


def overwrite(
    rows: pa.Table, dataset: LanceDataset, storage_options: dict[str, str] | None = None
) -> Transaction:
    """Write rows in as few fragments as possible, to replace all rows of a table."""
    transaction: Transaction = write_fragments(
        rows,
        dataset,
        mode="overwrite",
        return_transaction=True,
        max_rows_per_file=ROWS_PER_FRAGMENT,
        storage_options=storage_options,
        enable_stable_row_ids=True,
    )
    return transaction
