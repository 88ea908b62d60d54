"""Restore and clone: a new graph from the files of a backup point, or of another graph.

On local disk the new graph is built beside its location and renamed in one step when it is complete
and was checked. On S3 it is built in place, under a mark, and the newest version of its manifest,
which makes it a graph, is copied last but for older ones. Repeating the call resumes an interrupted
copy.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from omnigraph.commit.branches import Branches
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import INIT_LEASE, branch_label, normal_branch
from omnigraph.commit.store import GraphStore
from omnigraph.errors import (
    AlreadyInitialized,
    InputError,
    OmniGraphError,
    StorageCorrupt,
    StorageMissing,
    StorageUnknown,
)
from omnigraph.maintain.backup.capture import (
    SourceFile,
    capture_graph,
    captured_files,
    refuse_changed,
)
from omnigraph.maintain.backup.copy import (
    Copier,
    CopyReport,
    damaged_file,
    refuse_overlap,
    retry_copy,
)
from omnigraph.maintain.backup.index import BackupPoint
from omnigraph.progress import OnProgress
from omnigraph.records import dataclass
from omnigraph.storage.checksums import FOLDER, TABLES, FileSum, read_records
from omnigraph.storage.durable import Durability, sync_directory
from omnigraph.storage.lance_format.addresses import GraphAddresses
from omnigraph.storage.lance_format.manifests import replace_addresses
from omnigraph.storage.leases.local import LEASE_FOLDER
from omnigraph.storage.objects.copying import sync_directories
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import Root, refuse_a_file
from omnigraph.storage.objects.store import ObjectStore

_MARK = f"{LEASE_FOLDER}/copy.unfinished"
_BESIDE = ".incomplete"
_LAST = f"{MANIFEST}/_versions/"


@dataclass(frozen=True, slots=True)
class CopyDestination:
    """Where to create the new graph, and how."""

    root: Root
    durability: Durability
    concurrency: int
    on_progress: OnProgress | None


def restore_point(backup: ObjectStore, point: BackupPoint, dest: CopyDestination) -> CopyReport:
    """Create a graph from a point."""
    _refuse_incomplete(backup, point)
    files = [SourceFile(f.path, f.stored, f.size, f.sha256) for f in point.files]
    _GraphBuilder(backup, files, point.branches, dest, f"point {point.point}").build()
    return CopyReport(
        dest.root.uri, point.point, point.taken_at, point.branches, len(files), point.bytes
    )


def clone_graph(store: GraphStore, dest: CopyDestination) -> CopyReport:
    """Create an independent copy of a graph as it is now."""
    refuse_overlap(store.root, dest.root)
    return retry_copy(lambda: _clone(store, dest))


def _clone(store: GraphStore, dest: CopyDestination) -> CopyReport:
    with ExitStack() as markers:
        capture = capture_graph(store, markers)
        files = captured_files(store, capture)
        origin, check = f"clone of {store.root.uri}", partial(refuse_changed, store, files)
        sums = read_records(store.objects).sums
        _GraphBuilder(store.objects, files, capture.branches, dest, origin, check, sums).build()
    size = sum(file.size for file in files)
    return CopyReport(dest.root.uri, None, capture.taken_at, capture.branches, len(files), size)


def _refuse_incomplete(backup: ObjectStore, point: BackupPoint) -> None:
    existing = backup.sizes_below()
    for file in point.files:
        size = existing.get(file.stored)
        if size is None:
            raise StorageMissing(
                f"'{file.stored}' is missing from the backup",
                hint="restore an earlier point, or take another backup",
                details={"path": file.stored},
            )
        if size != file.size:
            raise damaged_file(file.stored)


class _GraphBuilder:
    """Builds a new graph from the files of another."""

    def __init__(
        self,
        source: ObjectStore,
        files: Sequence[SourceFile],
        branches: Mapping[str, int],
        dest: CopyDestination,
        origin: str,
        check_source: Callable[[], None] | None = None,
        checksums: Mapping[str, tuple[FileSum, ...]] = MappingProxyType({}),
    ) -> None:
        """``check_source`` may refuse a source that changed meanwhile."""
        self._source = source
        self._files = files
        self._branches = branches
        self._dest = dest
        self._origin = origin
        self._addresses = GraphAddresses(dest.root)
        self._check_source = check_source
        self._checksums = checksums

    def build(self) -> None:
        root = self._dest.root
        refuse_a_file(root)
        if not root.is_local:
            self._build_at(root)
            return
        beside = Root(root.uri + _BESIDE)
        _refuse_link(root)
        _refuse_link(beside)
        _refuse_existing(root)
        self._build_at(beside, lambda: _move(beside, root, self._dest.durability))

    def _build_at(self, root: Root, finish: Callable[[], None] | None = None) -> None:
        store = GraphStore(root, self._dest.durability, create=True)
        try:
            with store.leases.acquire([INIT_LEASE], store.timeouts.lease):
                # Another process may have finished while this one waited.
                _refuse_existing(self._dest.root)
                existing = self._begin(store)
                self._copy(store, existing)
                self._check_branches(store)
                if finish is None:
                    store.objects.delete(_MARK)
        finally:
            store.objects.remove_if_empty(LEASE_FOLDER)
            store.objects.remove_if_empty("")
        if finish is not None:
            finish()

    def _begin(self, store: GraphStore) -> dict[str, int]:
        """Mark the location, or resume under the mark; returns the existing files."""
        existing = {
            path: size
            for path, size in store.objects.sizes_below().items()
            if not path.startswith(f"{LEASE_FOLDER}/")
        }
        if store.objects.head(_MARK) is None:
            if existing:
                raise _occupied(store.root, existing)
            store.objects.write(_MARK, json.dumps({"origin": self._origin}))
        wanted = {file.path for file in self._files}
        others = {path for path in existing if path not in wanted and not path.startswith(FOLDER)}
        if others and not store.root.is_local and any(path.startswith(_LAST) for path in existing):
            # It could be opened already, so another process may have written to it.
            raise _occupied(store.root, existing)
        for path in others:
            # Left by an attempt to copy another capture.
            store.objects.delete(path)
        return existing

    def _copy(self, store: GraphStore, existing: Mapping[str, int]) -> None:
        copier = Copier(
            self._source,
            store.objects,
            self._files,
            self._dest.on_progress,
            existing=existing,
            checksums=self._checksums,
            rewrite=self._rewrite,
        )
        first = [file for file in self._files if not file.path.startswith(_LAST)]
        # The newest version is listed first. Missing older ones do not affect a reader.
        last = sorted(
            (file for file in self._files if file.path.startswith(_LAST)), key=lambda f: f.path
        )
        for file in copier.copy(first, self._dest.concurrency):
            _record_checksum(store, file.path, file.digest)
        if self._check_source is not None:
            # The first of them makes it a graph, so all are read before that.
            last = [replace(f, data=self._source.read_bytes(f.stored)) for f in last]
            self._check_source()
        for file in copier.copy(last, 1):
            _record_checksum(store, file.path, file.digest)
        sync_directories(store.objects, (file.path for file in self._files))
        store.datasets.checksums.record()

    def _rewrite(self, path: str, data: bytes) -> bytes:
        """A version file of a branch contains addresses: those of the new graph."""
        folder, middle, _ = path.rpartition("/_versions/")
        if not middle:
            return data
        location = folder.partition("/tree/")[0]
        localize = partial(self._addresses.localize, location=location)
        return replace_addresses(data, path, localize)

    def _check_branches(self, store: GraphStore) -> None:
        """Read the newest state of every branch, before the graph becomes visible."""
        snapshots = {
            name: store.manifest(normal_branch(name)).current() for name in Branches(store).list()
        }
        for name, snapshot in snapshots.items():
            if snapshot.manifest_version != self._branches.get(name):
                raise _differs(f"branch '{name}'")
            for pin in snapshot.pins.values():
                if store.table(pin).count() != pin.row_count:
                    raise _differs(f"'{pin.table_key}' on branch '{branch_label(pin.branch)}'")
        store.manifests.forget()
        store.datasets.start_over()


def _record_checksum(store: GraphStore, path: str, digest: FileSum) -> None:
    """Record the checksum of a file as it is in the new graph."""
    if path.split("/")[0] in TABLES:
        folder, name = posixpath.split(path)
        store.datasets.checksums.note(folder, [name], {name: digest})


def _refuse_link(root: Root) -> None:
    """Refuse a link at the location: the rename would replace it."""
    if os.path.islink(root.uri):
        raise InputError(
            f"'{root.uri}' is a symbolic link",
            hint="choose the directory that it points to, or remove it",
        )


def _refuse_existing(root: Root) -> None:
    """Refuse an existing local graph; on S3 the mark decides, see ``_begin``."""
    if root.is_local and not root.is_missing():
        existing = ObjectStore(root).sizes_below()
        if existing:
            raise _occupied(root, existing)


def _occupied(root: Root, existing: Mapping[str, int]) -> AlreadyInitialized | InputError:
    if any(path.startswith((_LAST, "_schema")) for path in existing):
        return AlreadyInitialized(
            f"there is a graph at '{root.uri}'",
            hint="choose another location, or remove that graph",
        )
    return InputError(f"'{root.uri}' is not empty", hint="choose another location")


def _move(beside: Root, root: Root, durability: Durability) -> None:
    """Rename the new graph to its location; an empty directory there is replaced.

    Its mark is removed afterwards: without it, the copy could not be resumed.
    """
    with storage_call("move a graph to", root.uri):
        os.rename(beside.uri, root.uri)
    if durability is Durability.DISK:
        _sync_rename(root)
    objects = ObjectStore(root, durability)
    with suppress(OmniGraphError):
        objects.delete(_MARK)
        objects.remove_if_empty(LEASE_FOLDER)


def _sync_rename(root: Root) -> None:
    """Make the rename durable; the graph is visible already."""
    folder = Path(root.uri).parent
    try:
        with suppress(OSError):
            sync_directory(folder)
            return
        sync_directory(folder)
    except OSError as error:
        raise StorageUnknown(
            f"the graph at '{root.uri}' is complete, but may not be on the disk",
            hint="check the disk, then check that the graph still exists",
        ) from error


def _differs(what: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"{what} of the new graph differs from the original",
        hint="the source may be damaged: run verify on it",
    )
