"""Cache of open Lance datasets of one graph, shared by the storage package.

One session with bounded caches serves all tables. A handle is looked up by path, version and the
tag of the version file, so a recreated branch is never served from a handle of its predecessor. The
newest version of a table is found by probing for the next version file, which does not get slower
as history grows; only a cold open lists.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
from lance import LanceDataset, Transaction

from omnigraph.errors import (
    OmniGraphError,
    StorageCorrupt,
    StorageMissing,
    StorageUnavailable,
    StorageUnknown,
)
from omnigraph.storage.checksums import Checksums
from omnigraph.storage.durable import Durability, exists, sync_tree, sync_visible_directory
from omnigraph.storage.first_read import FirstReads, damaged_file
from omnigraph.storage.lance_format.addresses import GraphAddresses
from omnigraph.storage.lance_format.manifests import (
    base_addresses,
    manifest_message,
    replace_addresses,
    without_indexes,
)
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import (
    branch_file,
    is_file_in_copy,
    refuse_link,
    refuse_links,
    refused,
    transaction_file,
    version_file,
    version_number,
)
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import FILE_FOLDERS, TableRef, VersionInfo

if TYPE_CHECKING:
    from omnigraph.storage.tables.next_version import NextVersions
    from omnigraph.storage.tables.warm_rows import WarmRows

_HANDLES = 64
_INDEX_CACHE = 64 << 20
_METADATA_CACHE = 64 << 20
_CHECK_CACHE = 1 << 20
TABLE_FOLDERS = (*sorted(FILE_FOLDERS), "tree")
HINT = "latest_version_hint.json"
"""Lance's mutable hint of the newest version; it may be wrong."""

# Lance waits 30 seconds for an answer and retries for three minutes: a server that accepts requests
# and never answers would block a listing for a quarter of an hour.
S3_LIMITS = {"connect_timeout": "3s", "client_retry_timeout": "10"}


class Datasets:
    """The handles of one graph. Thread-safe."""

    def __init__(self, objects: ObjectStore, durability: Durability = Durability.DISK) -> None:
        self.objects = objects
        self.root = objects.root
        self.options = None if self.root.is_local else {**S3_LIMITS, **self.root.options}
        self.synced = self.root.is_local and durability is Durability.DISK
        self.opened = 0
        self.checksums = Checksums(objects)
        # The version and fragment up to which the ledgers are known to be on disk.
        self.on_disk: dict[str, tuple[int, int]] = {}
        self._synced_folders: set[str] = set()
        self._session = _session()
        self._addresses = GraphAddresses(self.root)
        # The version from which on a branch is known to refer to this root, not to a former one.
        self._localized_from: dict[str, int] = {}
        self._lock = threading.Lock()
        self._handles: OrderedDict[tuple[str, int, str], LanceDataset] = OrderedDict()
        self.first_reads = FirstReads(objects, self.checksums)
        self.next_versions: NextVersions | None = None
        self.warm_rows: WarmRows | None = None
        if not self.root.is_local:
            from omnigraph.storage.tables.next_version import NextVersions
            from omnigraph.storage.tables.warm_rows import WarmRows

            self.next_versions, self.warm_rows = NextVersions(objects), WarmRows(objects)
        # Lance caches the indexes of a version in its session: these handles have their own.
        self._unindexed_session: Any = None
        self._unindexed: weakref.WeakKeyDictionary[LanceDataset, LanceDataset] = (
            weakref.WeakKeyDictionary()
        )

    # -- opening -------------------------------------------------------------------------

    def open(self, ref: TableRef, version: int | None = None) -> LanceDataset:
        """A private handle; without ``version`` of the newest version, found by listing."""
        self.refuse_links(ref)
        self.opened += 1
        if version is not None or not self.root.is_local:
            return self._open_at(ref, version)
        # The newest by file name: the content of a damaged file may have another version.
        try:
            return self._open_at(ref, max(self.listed_versions(ref), default=None))
        except StorageMissing:
            # Its writer has set it aside since the listing.
            return self._open_at(ref, max(self.listed_versions(ref), default=None))

    def _open_at(self, ref: TableRef, version: int | None) -> LanceDataset:
        if version is not None:
            self.first_reads.check_version_file(ref, version)
        try:
            with lance_call("open", ref.path):
                opened = lance.dataset(
                    self.root.path(ref.path),
                    version=version,
                    session=self._session,
                    storage_options=self.options,
                )
                named = [base.path for base in opened.base_paths().values()]
        except StorageCorrupt as error:
            # An open reads nothing else.
            raise damaged_file(ref.version_path(version)) if version else error from error
        number = int(opened.version)
        if version is not None and version != number:
            raise damaged_file(ref.version_path(version))
        if all(self._addresses.localize(address, ref.location) == address for address in named):
            return opened
        # A handle that reads the files under this root, without changing storage.
        message = self._localized_message(ref, number)
        return self._from_message(ref, number, message, self._session)

    def refuse_links(self, ref: TableRef) -> None:
        """Refuse a local table that is or contains a link: Lance would follow it."""
        if self.root.is_local:
            refuse_links(self.root.uri, ref.path)
            top = self.root.path(ref.path)
            for name in TABLE_FOLDERS:
                if os.path.islink(f"{top}/{name}"):
                    refuse_link(f"{ref.path}/{name}")

    def open_anew(self, ref: TableRef, version: int) -> LanceDataset:
        """A handle with a fresh session, without anything this process has cached."""
        with lance_call("open", ref.path):
            return lance.dataset(
                self.root.path(ref.path),
                version=version,
                session=_session(_CHECK_CACHE),
                storage_options=self.options,
            )

    def names_this_root(self, ref: TableRef, version: int) -> bool:
        """Whether Lance reads the files of a version under this root, not under a former one.

        Only branches contain addresses. Checked once per branch: later versions have the same.
        """
        if ref.branch is None or version >= self._localized_from.get(ref.path, version + 1):
            return True
        path = ref.version_path(version)
        try:
            named = base_addresses(self.objects.read_bytes(path), path)
        except StorageMissing:
            return True
        if any(self._addresses.localize(address, ref.location) != address for address in named):
            return False
        self._localized_from[ref.path] = version
        return True

    def _localized_message(self, ref: TableRef, version: int) -> bytes:
        path = ref.version_path(version)
        raw = replace_addresses(
            self.objects.read_bytes(path),
            path,
            lambda address: self._addresses.localize(address, ref.location),
        )
        return manifest_message(raw, path)

    def _from_message(
        self, ref: TableRef, version: int, content: bytes, session: Any
    ) -> LanceDataset:
        with lance_call("open", ref.path):
            return LanceDataset(
                self.root.path(ref.path),
                version=version,
                session=session,
                storage_options=self.options,
                serialized_manifest=content,
            )

    def unindexed(self, ref: TableRef, dataset: LanceDataset) -> LanceDataset:
        """A handle of the same version without indexes; for reading and staging only."""
        with self._lock:
            handle = self._unindexed.get(dataset)
            if handle is None:
                if self._unindexed_session is None:
                    self._unindexed_session = _session()
                version = int(dataset.version)
                whole = self._localized_message(ref, version)
                content = without_indexes(whole, ref.version_path(version))
                handle = self._from_message(ref, version, content, self._unindexed_session)
                self._unindexed[dataset] = handle
            return handle

    def shared(
        self,
        ref: TableRef,
        version: int,
        e_tag: str | None = None,
        check: Callable[[], None] | None = None,
    ) -> LanceDataset:
        """A handle for reading at a known version, cached for the next caller.

        ``check`` runs after a handle is opened, and raises if it is not the expected one.
        """
        if e_tag is None:
            info = self.info(ref, version)
            if info is None:
                raise StorageMissing(
                    f"version {version} of '{ref.path}' does not exist",
                    hint="it may have been removed by cleanup",
                    details={"table": ref.path, "version": version},
                )
            e_tag = info.e_tag or ""
        key = (ref.path, version, e_tag)
        with self._lock:
            handle = self._handles.get(key)
            if handle is not None:
                self._handles.move_to_end(key)
                return handle
        opened = self.open(ref, version)
        if check is not None:
            check()
        self._keep(key, opened)
        return opened

    def earlier(self, ref: TableRef, version: int, e_tag: str | None) -> LanceDataset | None:
        """An open handle of a version on which this process built a version."""
        if self.next_versions is None:
            return None
        for key in self.next_versions.earlier(ref, version, e_tag):
            with self._lock:
                handle = self._handles.get(key)
                if handle is not None:
                    self._handles.move_to_end(key)
                    return handle
        return None

    def keep(self, ref: TableRef, info: VersionInfo, dataset: LanceDataset) -> None:
        """Cache the handle that a commit returned: the next read or write starts from it."""
        self.first_reads.follow(ref, dataset)
        self._keep((ref.path, info.version, info.e_tag or ""), dataset)

    def _keep(self, key: tuple[str, int, str], dataset: LanceDataset) -> None:
        with self._lock:
            self._handles[key] = dataset
            while len(self._handles) > _HANDLES:
                self._handles.popitem(last=False)

    def forget(self) -> None:
        with self._lock:
            self._handles.clear()
        if self.next_versions is not None:
            self.next_versions.forget()

    def start_over(self) -> None:
        """Drop all caches, including Lance's, because version files were replaced."""
        self._session = _session()
        self._localized_from.clear()
        self._unindexed_session = None
        self._unindexed.clear()
        self.first_reads.forget()
        self.forget()

    # -- versions ------------------------------------------------------------------------

    def info(self, ref: TableRef, version: int) -> VersionInfo | None:
        """The file of a version, ``None`` if the version does not exist."""
        path = ref.version_path(version)
        head = self.objects.head(path)
        if head is None:
            return None
        return VersionInfo(version, self.root.object_path(path), head.size, head.e_tag)

    def newest(self, ref: TableRef, version: int) -> int:
        """The newest version, walking up from one that exists."""
        while self.objects.head(ref.version_path(version + 1)) is not None:
            version += 1
        return version

    def listed_versions(self, ref: TableRef) -> list[int]:
        """Every version that has a file, oldest first; unreadable ones are included."""
        names = self.objects.list(f"{ref.path}/_versions")
        return sorted(v for v in map(version_number, names) if v is not None)

    @contextmanager
    def definite_outcome(self, ref: TableRef, version: int) -> Iterator[None]:
        """Wraps a call that creates a version: on local disk a failure is definite."""
        try:
            yield
        except StorageUnknown as error:
            if not self.root.is_local or self.info(ref, version) is not None:
                raise
            raise StorageUnavailable(
                f"cannot write '{ref.path}': the disk failed; nothing was changed",
                hint="check the disk, then repeat",
            ) from error

    # -- durability ----------------------------------------------------------------------

    def note_version(
        self,
        ref: TableRef,
        version: int,
        made_by: Transaction | None,
        files: Iterable[str] = (),
        *,
        adopted: bool = False,
    ) -> None:
        """Note the sums of the version file, the transaction file and the new files of a version.

        With ``adopted``, the writer has died and may not have recorded them.
        """
        names = [version_file(version), *files]
        if made_by is not None:
            names.append(_transaction_name(made_by))
        if adopted:
            self.checksums.adopt(ref.path, names)
        else:
            self.checksums.note(ref.path, names)

    def note_new(self, ref: TableRef) -> None:
        """Note the sums of all files of a table or branch that this process just created."""
        top = f"{ref.path}/"
        with suppress(OmniGraphError):
            names = [path.removeprefix(top) for path, _ in self.objects.files_below(ref.path)]
            own = [n for n in names if not n.startswith("tree/") and not n.endswith(HINT)]
            self.checksums.note(ref.path, own)
        if ref.branch is not None:
            self.checksums.note(ref.location, [branch_file(ref.branch)])

    def version_files(self, ref: TableRef, dataset: LanceDataset, version: int) -> list[str]:
        """The version file and the transaction file of a version, relative to its table.

        File names are derived, not listed: listing gets slower as history grows.
        """
        with lance_call("read", ref.path):
            made_by = dataset.read_transaction(version)
        names = [version_file(version)]
        if made_by is not None:
            transaction = _transaction_name(made_by)
            with storage_call("read", ref.path):
                # The first version of a branch has no transaction.
                if exists(f"{self.root.path(ref.path)}/{transaction}"):
                    names.append(transaction)
        return names

    def sync_files(self, ref: TableRef, names: Iterable[str], *, visible: bool = False) -> None:
        """Put files of a table on the disk, with the directories below it that lead to them.

        The entry of a directory is synced once. Not so on a branch, which may be deleted and made
        again.
        """
        top = self.root.path(ref.path)
        synced = self._synced_folders if ref.branch is None else None
        with storage_call("sync", ref.path):
            sync_tree((f"{top}/{name}" for name in names), top, visible=visible, synced=synced)

    def sync_table(self, ref: TableRef) -> None:
        """Sync all files of a table or branch, and its parent directories.

        For new tables and for those of dead writers, whose files may not be synced.
        """
        if self.synced:
            top = Path(self.root.path(ref.path))
            try:
                # Except files of branches below it, and temporary files.
                files = [
                    path
                    for path in top.rglob("*")
                    if path.is_file()
                    and not path.name.startswith(".tmp")
                    and path.relative_to(top).parts[0] != "tree"
                ]
                if ref.branch is not None:
                    references = Path(self.root.path(ref.location), "_refs")
                    files += [path for path in references.rglob("*") if path.is_file()]
                sync_tree(files, self.root.uri, missing_ok=True, visible=True)
            except OSError as error:
                raise StorageUnknown(
                    f"'{ref.path}' was written, but may not be on the disk",
                    hint="check the disk, then check whether it still exists",
                ) from error

    def sync_deleted_branch(self, location: str, name: str) -> None:
        """Sync the branch references of a dataset, of which one was removed."""
        folder = Path(self.root.path(location), "_refs", "branches")
        if self.synced and folder.is_dir():
            try:
                sync_visible_directory(folder)
            except OSError as error:
                raise StorageUnknown(
                    f"branch '{name}' was deleted, but that may not be on the disk",
                    hint="check the disk, then check whether the branch exists again",
                ) from error


def _session(size: int | None = None) -> Any:
    return lance.Session(  # type: ignore[attr-defined]
        index_cache_size_bytes=size or _INDEX_CACHE,
        metadata_cache_size_bytes=size or _METADATA_CACHE,
    )


def _transaction_name(made_by: Transaction) -> str:
    name = transaction_file(made_by.read_version, made_by.uuid)
    if not is_file_in_copy(name):
        raise refused(name, "a transaction of Lance")
    return name
