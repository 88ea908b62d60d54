"""Restore and clone: a graph made from the files of a point, or of another graph, somewhere else.

On local disk the new graph grows beside its place and is moved there in one step when it is
complete and was looked at. On S3 it grows in its place, under a mark, and the newest version of
its manifest, which makes it a graph, is the last but for older ones. What is interrupted is gone
on with by the same call.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

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
from omnigraph.maintain.backup.create import CopyProgress, Told, refuse_overlap, steadily
from omnigraph.maintain.backup.index import BackupPoint, has_name_for_ever
from omnigraph.maintain.backup.point import Files, Moment, files_of, fix, refuse_changed
from omnigraph.maintain.report import Report
from omnigraph.storage.checksums import FOLDER, TABLES, FileSum, read_records
from omnigraph.storage.durable import Durability, sync_directory
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.lance_format.addresses import GraphAddresses
from omnigraph.storage.lance_format.manifests import replace_addresses
from omnigraph.storage.leases.local import LEASE_FOLDER
from omnigraph.storage.objects.copying import (
    FileDigest,
    copy_file,
    digest,
    digest_of,
    sync_directories,
    write_file,
)
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.roots import Root, refuse_a_file
from omnigraph.storage.objects.store import ObjectStore

_MARK = f"{LEASE_FOLDER}/copy.unfinished"
_BESIDE = ".incomplete"
_LAST = f"{MANIFEST}/_versions/"


@dataclass(frozen=True, slots=True)
class CopyReport(Report):
    """A graph that was restored or cloned."""

    uri: str
    point: str | None
    """The point of the backup; None for a clone."""
    taken_at: datetime
    branches: Mapping[str, int]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """A file that the new graph is to have, and where it comes from."""

    path: str
    stored: str
    size: int
    sha256: str | None = None
    data: bytes | None = None
    """What it holds, where that was read already."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a new graph is to be."""

    root: Root
    durability: Durability
    many: int
    tell: Told


def restore_point(backup: ObjectStore, point: BackupPoint, target: Target) -> CopyReport:
    """Make the graph of a point."""
    _refuse_incomplete(backup, point)
    pieces = [_Piece(f.path, f.stored, f.size, f.sha256) for f in point.files]
    _Filling(backup, pieces, point.branches, target, f"point {point.point}").run()
    return CopyReport(
        target.root.uri, point.point, point.taken_at, point.branches, len(pieces), point.bytes
    )


def clone_graph(store: GraphStore, target: Target) -> CopyReport:
    """Make another graph of a graph as it is now."""
    refuse_overlap(store.root, target.root)
    return steadily(lambda: _clone(store, target))


def _clone(store: GraphStore, target: Target) -> CopyReport:
    with ExitStack() as markers:
        moment = fix(store, markers)
        files = files_of(store, moment)
        return _filled(store, moment, files, target)


def _filled(store: GraphStore, moment: Moment, files: Files, target: Target) -> CopyReport:
    pieces = [_Piece(path, path, size) for path, size in files.sizes.items()]
    texts = {path: text.encode() for path, text in files.texts.items()}
    pieces += [_Piece(path, path, len(data), data=data) for path, data in texts.items()]
    origin = f"clone of {store.root.uri}"
    filling = _Filling(store.objects, pieces, moment.branches, target, origin)
    filling.run(partial(refuse_changed, store, files), read_records(store.objects).sums)
    taken = datetime.fromtimestamp(moment.taken_at / 1_000_000, UTC)
    size = sum(piece.size for piece in pieces)
    return CopyReport(target.root.uri, None, taken, moment.branches, len(pieces), size)


def _refuse_incomplete(backup: ObjectStore, point: BackupPoint) -> None:
    there = backup.sizes_below()
    for file in point.files:
        size = there.get(file.stored)
        if size is None:
            raise StorageMissing(
                f"'{file.stored}' of the backup is missing",
                hint="restore an earlier point, or take another backup",
                details={"path": file.stored},
            )
        if size != file.size:
            raise _damaged(file.stored)


class _Filling:
    """One new graph that comes to be."""

    def __init__(
        self,
        source: ObjectStore,
        pieces: Sequence[_Piece],
        branches: Mapping[str, int],
        target: Target,
        origin: str,
    ) -> None:
        self._source = source
        self._pieces = pieces
        self._branches = branches
        self._target = target
        self._origin = origin
        self._home = GraphAddresses(target.root)
        self._done = self._bytes = 0
        self._check_source: Callable[[], None] | None = None
        self._sums: Mapping[str, tuple[FileSum, ...]] = {}

    def run(
        self,
        check: Callable[[], None] | None = None,
        sums: Mapping[str, tuple[FileSum, ...]] | None = None,
    ) -> None:
        """Make it. ``check`` may refuse a source that changed; ``sums`` are what it should be."""
        self._check_source, self._sums = check, sums or {}
        root = self._target.root
        refuse_a_file(root)
        if not root.is_local:
            self._fill(root)
            return
        beside = Root(root.uri + _BESIDE)
        for each in (root, beside):
            _refuse_a_link(each)
        _refuse_what_is_there(root)
        self._fill(beside, lambda: _move(beside, root, self._target.durability))

    def _fill(self, root: Root, finish: Callable[[], None] | None = None) -> None:
        store = GraphStore(root, self._target.durability, create=True)
        try:
            with store.leases.acquire([INIT_LEASE], store.timeouts.lease):
                # Somebody else may have been faster while this process waited.
                _refuse_what_is_there(self._target.root)
                there = self._begin(store)
                self._copy_all(store, there)
                self._look(store)
                if finish is None:
                    store.objects.delete(_MARK)
        finally:
            store.objects.remove_if_empty(LEASE_FOLDER)
            store.objects.remove_if_empty("")
        if finish is not None:
            finish()

    def _begin(self, store: GraphStore) -> dict[str, int]:
        """Mark the place, or go on with what is marked; gives the files that can stay."""
        there = {
            path: size
            for path, size in store.objects.sizes_below().items()
            if not path.startswith(f"{LEASE_FOLDER}/")
        }
        if store.objects.head(_MARK) is None:
            if there:
                raise _taken(store.root, there)
            store.objects.write(_MARK, json.dumps({"origin": self._origin}))
        wanted = {piece.path for piece in self._pieces}
        others = {path for path in there if path not in wanted and not path.startswith(FOLDER)}
        if others and not store.root.is_local and any(path.startswith(_LAST) for path in there):
            # It was complete enough to be opened, and somebody may have written to it.
            raise _taken(store.root, there)
        for path in others:
            # Of an attempt to copy another moment.
            store.objects.delete(path)
        return there

    def _copy_all(self, store: GraphStore, there: Mapping[str, int]) -> None:
        first = [piece for piece in self._pieces if not piece.path.startswith(_LAST)]
        # The newest has the first name. Older ones cannot harm who opens the graph meanwhile.
        last = sorted(
            (piece for piece in self._pieces if piece.path.startswith(_LAST)), key=lambda p: p.path
        )
        self._copy(store, there, first, self._target.many)
        if self._check_source is not None:
            # From the first of the last on there is a graph, so they are read before that.
            last = [replace(p, data=self._source.read_bytes(p.stored)) for p in last]
            self._check_source()
        self._copy(store, there, last, 1)
        sync_directories(store.objects, (piece.path for piece in self._pieces))
        store.datasets.checksums.record()

    def _copy(
        self, store: GraphStore, there: Mapping[str, int], pieces: Sequence[_Piece], many: int
    ) -> None:
        total = sum(each.size for each in self._pieces)
        with closing(
            ThreadExecutor(many).stream(partial(self._copied, store, there), pieces)
        ) as results:
            for piece, found in results:
                _note(store, piece.path, found)
                self._done += 1
                self._bytes += piece.size
                self._target.tell(CopyProgress(self._done, len(self._pieces), self._bytes, total))

    def _copied(
        self, store: GraphStore, there: Mapping[str, int], piece: _Piece
    ) -> tuple[_Piece, FileDigest]:
        """Bring one file to its place; gives what is there then."""
        if has_name_for_ever(piece.path):
            if there.get(piece.path) == piece.size:
                found = digest_of(store.objects, piece.path)
                if piece.sha256 in (None, found.sha256):
                    return piece, found
            found = copy_file(self._source, piece.stored, store.objects, piece.path)
            self._check(piece, found)
            return piece, found
        data = piece.data if piece.data is not None else self._source.read_bytes(piece.stored)
        self._check(piece, digest(data))
        data = self._at_home(piece.path, data)
        write_file(store.objects, piece.path, data)
        return piece, digest(data)

    def _check(self, piece: _Piece, found: FileDigest) -> None:
        recorded = self._sums.get(piece.path, ()) if has_name_for_ever(piece.path) else ()
        right = piece.sha256 in (None, found.sha256) and not found.contradicts(recorded)
        if found.size != piece.size or not right:
            raise _damaged(piece.stored)

    def _at_home(self, path: str, data: bytes) -> bytes:
        """A version file of a branch names its place: the one where the graph will be."""
        folder, middle, _ = path.rpartition("/_versions/")
        if not middle:
            return data
        location = folder.partition("/tree/")[0]
        return replace_addresses(data, path, partial(self._home.localize, location=location))

    def _look(self, store: GraphStore) -> None:
        """Open what every branch shows, before anybody else does."""
        found = {
            name: store.manifest(normal_branch(name)).current() for name in Branches(store).list()
        }
        for name, snapshot in found.items():
            if snapshot.manifest_version != self._branches.get(name):
                raise _unlike(f"branch '{name}'")
            for pin in snapshot.pins.values():
                if store.table(pin).count() != pin.row_count:
                    raise _unlike(f"'{pin.table_key}' on branch '{branch_label(pin.branch)}'")
        store.manifests.forget()
        store.datasets.start_over()


def _note(store: GraphStore, path: str, found: FileDigest) -> None:
    """Checksums are those of the files as they are here."""
    if path.split("/")[0] in TABLES:
        folder, name = posixpath.split(path)
        store.datasets.checksums.note(folder, [name], {name: found.as_sum()})


def _refuse_a_link(root: Root) -> None:
    """The new graph is moved to its place: where a link is, it would take the place of the link."""
    if os.path.islink(root.uri):
        raise InputError(
            f"'{root.uri}' is a symbolic link",
            hint="choose the place that it leads to, or remove it",
        )


def _refuse_what_is_there(root: Root) -> None:
    """On S3 the mark tells what is there, see ``_begin``."""
    if root.is_local and not root.is_missing():
        found = ObjectStore(root).sizes_below()
        if found:
            raise _taken(root, found)


def _taken(root: Root, there: Mapping[str, int]) -> AlreadyInitialized | InputError:
    if any(path.startswith((_LAST, "_schema")) for path in there):
        return AlreadyInitialized(
            f"there is a graph at '{root.uri}'", hint="choose another place, or remove that graph"
        )
    return InputError(f"'{root.uri}' is not empty", hint="choose another place")


def _move(beside: Root, root: Root, durability: Durability) -> None:
    """Give the new graph its place; an empty directory there is replaced.

    Its mark goes afterwards: without it, what is beside could not be gone on with.
    """
    with storage_call("move a graph to", root.uri):
        os.rename(beside.uri, root.uri)
    if durability is Durability.DISK:
        _sync_place(root)
    objects = ObjectStore(root, durability)
    with suppress(OmniGraphError):
        objects.delete(_MARK)
        objects.remove_if_empty(LEASE_FOLDER)


def _sync_place(root: Root) -> None:
    """Put on the disk that there is a graph, which everybody sees already."""
    folder = Path(root.uri).parent
    try:
        with suppress(OSError):
            sync_directory(folder)
            return
        sync_directory(folder)
    except OSError as error:
        raise StorageUnknown(
            f"the graph at '{root.uri}' is complete, but may not be on the disk",
            hint="check the disk, then look whether it is still there",
        ) from error


def _damaged(path: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"'{path}' is damaged: it is not what was written",
        hint="restore an earlier point, or run verify on the graph",
        details={"path": path},
    )


def _unlike(what: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"{what} of the new graph is not what it was in the original",
        hint="the source may be damaged: run verify on it",
    )
