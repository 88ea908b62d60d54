"""What Lance cannot stage: calls that write and commit at once. The reason stands at each method.

Nothing here touches a table that holds user data, except ``restore`` and ``create_branch``, and
those two move only tables whose lease the caller holds. A test fails when a module other than
this one calls a function of Lance that commits by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.errors import (
    AlreadyExists,
    InternalError,
    OmniGraphError,
    StorageMissing,
    VersionMismatch,
)
from omnigraph.storage.blobs import is_stored_blob, stored_schema
from omnigraph.storage.datasets import S3_LIMITS, Datasets, branch_file
from omnigraph.storage.lance_failures import lance_call
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.parts import Part, VersionPlace
from omnigraph.storage.roots import parse_root
from omnigraph.storage.table import Table
from omnigraph.storage.table_types import AUTO_CLEANUP, CommittedTable, StagedTable, TableRef
from omnigraph.storage.tables import ROWS_PER_FRAGMENT, new_files

if TYPE_CHECKING:
    import pyarrow.compute as pc

_LISTINGS = 8


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch of one dataset: where it was forked, and when, in seconds."""

    name: str
    parent: str | None
    parent_version: int
    created_at: int


class InlineTables:
    """Creating, restoring and branching whole datasets."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets

    def create(self, location: str, schema: pa.Schema) -> CommittedTable:
        """Create an empty table at version 1.

        Inline because a dataset that does not exist has no HEAD that could be held back; it is
        unreachable until a manifest names it.
        """
        ref = TableRef(location)
        path = self._datasets.root.path(location)
        if self._datasets.info(ref, 1) is not None:
            raise AlreadyExists(f"there is a table at '{location}' already")
        with lance_call("create", location, writes=True):
            created = LanceDataset.commit(
                path,
                LanceOperation.Overwrite(stored_schema(schema), []),
                enable_stable_row_ids=True,
                storage_options=self._datasets.options,
                max_retries=0,
            )
        self._datasets.sync_table(ref)
        self._datasets.note_new(ref)
        info = self._datasets.info(ref, int(created.version))
        if info is None or info.version != 1:
            raise AlreadyExists(f"there is a table at '{location}' already")
        return CommittedTable(ref, info.version, 0, info)

    def restore(self, ref: TableRef, head: int, version: int) -> CommittedTable:
        """Give a table the content of an earlier version again, as the version after ``head``.

        Inline because it writes nothing but the new version. Lance would let a stale restore
        win, so the result has to be exactly the next version.
        """
        dataset = self._datasets.open(ref, head)
        with lance_call("restore", ref.path, writes=True):
            restored = LanceDataset.commit(
                dataset,
                LanceOperation.Restore(version),
                read_version=head,
                max_retries=0,
                storage_options=self._datasets.options,
            )
            rows = int(restored.count_rows())
            made_by = restored.read_transaction(int(restored.version))
        self._datasets.sync_version(ref, restored, int(restored.version))
        self._datasets.note_version(ref, int(restored.version), made_by)
        info = self._datasets.info(ref, int(restored.version))
        if info is None or info.version != head + 1:
            raise VersionMismatch(
                f"'{ref.path}' was written while it was being restored",
                hint="refresh and retry",
                details={"expected": head, "actual": int(restored.version) - 1},
            )
        return CommittedTable(ref, info.version, rows, info)

    def begin_again(
        self, location: str, schema: pa.Schema, above: int, numbering: CommittedTable | None = None
    ) -> CommittedTable:
        """An empty table whose versions count on from those of one that had its name before.

        What is there is the earlier table; where nothing is, the counting is taken over from
        ``numbering``, by a clone that shares its files and is emptied at once. Inline for the
        reason of ``create``: no manifest names these versions.
        """
        ref = TableRef(location)
        if numbering is not None:
            origin = self._datasets.open(numbering.ref, numbering.version)
            with lance_call("create", location, writes=True):
                origin.shallow_clone(
                    self._datasets.root.path(location),
                    numbering.version,
                    storage_options=self._datasets.options,
                )
        dataset = self._datasets.open(ref)
        with lance_call("create", location, writes=True):
            if numbering is not None:
                self._datasets.note_new(ref)
            emptied = False
            while not emptied or int(dataset.version) <= above:
                dataset = LanceDataset.commit(
                    dataset,
                    LanceOperation.Overwrite(stored_schema(schema), []),
                    read_version=int(dataset.version),
                    max_retries=0,
                    storage_options=self._datasets.options,
                )
                emptied = True
                version = int(dataset.version)
                self._datasets.note_version(ref, version, dataset.read_transaction(version))
        self._datasets.sync_table(ref)
        info = self._datasets.info(ref, int(dataset.version))
        if info is None:
            raise StorageMissing(f"the new table at '{location}' is gone")
        return CommittedTable(ref, info.version, 0, info)

    def forget_history(self, ref: TableRef, version: int) -> int:
        """Remove every version before one, with the rows that only they have; gives how many.

        Inline because removing files has no second phase; what a crash leaves is removed next
        time. The caller holds the lease of the table.
        """
        dataset = self._datasets.open(ref, version)
        with lance_call("remove old versions of", ref.path, writes=True):
            gone = dataset.cleanup_old_versions(
                retain_versions=1, older_than=timedelta(0), error_if_tagged_old_versions=False
            )
        self._datasets.forget()
        return int(gone.old_versions)

    def remove_versions(self, ref: TableRef, versions: Sequence[int]) -> tuple[int, int]:
        """Remove these versions with the files that only they have; gives how many, and bytes.

        Inline for the reason of ``forget_history``. Lance keeps the newest version and those that
        branches of the dataset were made from, whatever is asked for.
        """
        if not versions:
            return 0, 0
        dataset = self._datasets.open(ref)
        with lance_call("remove old versions of", ref.path, writes=True):
            gone = dataset.cleanup_old_versions(
                versions=list(versions), error_if_tagged_old_versions=False
            )
        self._datasets.forget()
        return int(gone.old_versions), int(gone.bytes_removed)

    # -- branches of one dataset ---------------------------------------------------------

    def branches(self, location: str, version: int | None = None) -> dict[str, BranchInfo]:
        """The branches of a dataset by name, in alphabetical order."""
        dataset = self._datasets.open(TableRef(location), version)
        found = self._listed(dataset, location)
        return {
            name: BranchInfo(
                name,
                found[name].get("parent_branch"),
                int(found[name].get("parent_version") or 0),
                int(found[name].get("create_at") or 0),
            )
            for name in sorted(found)
        }

    def _listed(self, dataset: LanceDataset, location: str) -> Any:
        """Lance lists references and then reads each: one that goes in between fails it all."""
        for _ in range(_LISTINGS):
            with suppress(StorageMissing), lance_call("list the branches of", location):
                return dataset.branches.list()
        with lance_call("list the branches of", location):
            return dataset.branches.list()

    def create_branch(self, source: TableRef, version: int, name: str) -> TableRef:
        """Fork a dataset at a version.

        Inline because a branch is a reference, not a version: until the graph's manifest places
        a table on it, nobody reads it.
        """
        dataset = self._datasets.open(TableRef(source.location))
        origin = version if source.branch is None else (source.branch, version)
        with lance_call(f"create branch '{name}' of", source.location, writes=True):
            dataset.create_branch(name, origin)
        self._remove_strays(source.location)
        ref = TableRef(source.location, name)
        self._datasets.sync_table(ref)
        self._datasets.note_new(ref)
        return ref

    def _remove_strays(self, location: str) -> None:
        """Lance makes the directory of a reference also under the spelling of an address."""
        root = self._datasets.root
        spelled = root.spelled_as_address(location)
        if root.is_local and spelled != root.path(location):
            with suppress(OSError):
                # Stops at the first that is not empty.
                os.removedirs(f"{spelled}/_refs/branches")

    def delete_branch(self, location: str, name: str) -> None:
        """Remove a branch of a dataset with its files; one that is not there is fine.

        Inline because removing a reference has no second phase. What a crash left of a branch
        (files without a reference) is removed as well, but never a directory in which another
        branch lives.
        """
        dataset = self._datasets.open(TableRef(location))
        with lance_call(f"delete branch '{name}' of", location, writes=True):
            names = list(dataset.branches.list())
            if name in names:
                dataset.branches.delete(name)
                names.remove(name)
                self._datasets.sync_refs(location)
        nested = any(other.startswith(f"{name}/") for other in names)
        if not nested:
            self._datasets.objects.delete_prefix(TableRef(location, name).path)

    # -- tables of rows that are only ever added -----------------------------------------

    def append_log(self, location: str, rows: pa.Table) -> None:
        """Add rows to a table outside the graph's versions, creating it for the first ones.

        Inline because a log has no pins: its newest version is what counts.
        """
        if self._is_written(location):
            self._add(location, rows, "append")
            return
        try:
            self._add(location, rows, "create")
        except AlreadyExists:
            # Somebody else wrote the first rows between our look and our write.
            self._add(location, rows, "append")

    def _is_written(self, location: str) -> bool:
        return bool(self._datasets.objects.list(f"{location}/_versions"))

    def _add(self, location: str, rows: pa.Table, mode: str) -> None:
        ref = TableRef(location)
        with lance_call("write to", location, writes=True):
            written = lance.write_dataset(
                rows,
                self._datasets.root.path(location),
                mode=mode,
                enable_stable_row_ids=True,
                storage_options=self._datasets.options,
            )
        self._datasets.sync_table(ref)
        with suppress(OmniGraphError):
            note_made(self._datasets, ref, written, int(written.version))
        self._datasets.checksums.record()

    def read_log(self, location: str) -> pa.Table | None:
        """All rows of such a table, or ``None`` when it was never written."""
        try:
            dataset = self._datasets.open(TableRef(location))
        except StorageMissing:
            return None
        with lance_call("read", location):
            return dataset.to_table()


class Ledger:
    """A table of rows by key that is written by compare-and-set: the graph's manifest.

    Its handle moves with every write, so it is private to one holder and never shared.
    """

    def __init__(self, datasets: Datasets, ref: TableRef, dataset: LanceDataset) -> None:
        self.ref = ref
        self._datasets = datasets
        self._dataset = dataset
        self._synced, self._last_part = self._known_on_disk() if datasets.synced else (0, -1)
        self._written: list[int] = []

    @classmethod
    def create(cls, datasets: Datasets, location: str, rows: pa.Table) -> Ledger:
        """Create the table with its first rows in one version.

        Inline for the reason of ``InlineTables.create``; that it exists is what makes a graph
        visible, so exactly one of several creators succeeds.
        """
        ref = TableRef(location)
        with lance_call("create", location, writes=True):
            created = lance.write_dataset(
                rows,
                datasets.root.path(location),
                mode="create",
                enable_stable_row_ids=True,
                max_rows_per_file=ROWS_PER_FRAGMENT,
                storage_options=datasets.options,
            )
        datasets.sync_table(ref)
        datasets.note_new(ref)
        return cls(datasets, ref, created)

    @classmethod
    def open(cls, datasets: Datasets, ref: TableRef, version: int | None = None) -> Ledger:
        return cls(datasets, ref, datasets.open(ref, version))

    @property
    def version(self) -> int:
        return int(self._dataset.version)

    @property
    def stamp(self) -> dict[str, str]:
        """The metadata of the table as text."""
        found = self._dataset.schema.metadata or {}
        return {key.decode(): value.decode() for key, value in found.items()}

    @property
    def fragments(self) -> frozenset[int]:
        """The parts that the table consists of; a change adds new ones."""
        return frozenset(fragment.fragment_id for fragment in self._dataset.get_fragments())

    def advance(self, version: int) -> None:
        """Move to another version."""
        if not self._datasets.is_at_home(self.ref, self.version):
            self._dataset = self._datasets.open(self.ref, version)
            return
        with lance_call("open", self.ref.path):
            self._dataset = self._dataset.checkout_version(version)

    def read(
        self,
        columns: Sequence[str] | None = None,
        condition: pc.Expression | None = None,
        fragments: Iterable[int] | None = None,
    ) -> pa.Table:
        """Rows at this version; with ``fragments`` only those in some of its parts."""
        with lance_call("read", self.ref.path):
            parts = None
            if fragments is not None:
                wanted = frozenset(fragments)
                parts = [p for p in self._dataset.get_fragments() if p.fragment_id in wanted]
                if not parts:
                    return self._dataset.schema.empty_table()
            return self._dataset.scanner(
                columns=None if columns is None else list(columns),
                filter=condition,
                fragments=parts,
            ).to_table()

    def upsert(self, rows: pa.Table, key: str) -> int:
        """Insert or replace rows by key in one version, unless one of them changed meanwhile.

        Executed directly, because a staged upsert does not notice that somebody else inserts
        the same new key; and without an index, because one on the key would hide it again.
        Raises ``Conflict`` when somebody was faster. Others see the rows from here on; they are
        on the disk after ``sync``.
        """
        with lance_call("write", self.ref.path, writes=True):
            (
                self._dataset.merge_insert(key)
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .conflict_retries(0)
                .use_index(False)
                .execute(rows)
            )
        self._written.append(self.version)
        return self.version

    def rewrite(self) -> int:
        """Put all rows into as few parts as possible, in one version with the same content.

        One strict overwrite: it loses to every other writer and never rebases, which Lance's own
        compaction does.
        """
        with lance_call("compact", self.ref.path, writes=True):
            transaction = write_fragments(
                self._dataset.to_table(),
                self._dataset,
                mode="overwrite",
                return_transaction=True,
                max_rows_per_file=ROWS_PER_FRAGMENT,
                storage_options=self._datasets.options,
                enable_stable_row_ids=True,
            )
        if self._datasets.synced:
            self._datasets.sync_files(self.ref, new_files(transaction.operation))
        with lance_call("compact", self.ref.path, writes=True):
            self._dataset = LanceDataset.commit(
                self._dataset,
                transaction,
                max_retries=0,
                storage_options=self._datasets.options,
            )
        self._written.append(self.version)
        self.sync()
        return self.version

    @property
    def stored_cleanup(self) -> tuple[str, ...]:
        """Settings by which Lance would remove versions on its own."""
        with lance_call("read", self.ref.path):
            return tuple(sorted(k for k in self._dataset.config() if k.startswith(AUTO_CLEANUP)))

    def forget_cleanup(self) -> None:
        """Take such settings out, in one version. Inline because nothing else is written."""
        found = self.stored_cleanup
        if not found:
            return
        gone = LanceOperation.UpdateMap(dict.fromkeys(found))
        with lance_call("write", self.ref.path, writes=True):
            self._dataset = LanceDataset.commit(
                self._dataset,
                LanceOperation.UpdateConfig(config_updates=gone),
                read_version=self.version,
                max_retries=0,
                storage_options=self._datasets.options,
            )
        self._written.append(self.version)
        self.sync()

    def note(self) -> None:
        """Note what the files are that came with versions of this handle. Never fails."""
        written, self._written = self._written, []
        with suppress(OmniGraphError):
            for version in written:
                note_made(self._datasets, self.ref, self._dataset, version)

    def _known_on_disk(self) -> tuple[int, int]:
        """The version and the part up to which everything is on the disk.

        Who wrote the newest version may have died before it was there, so one that this process
        did not write counts as missing; its writer has seen to the one before.
        """
        newest = max(self.fragments, default=-1)
        version, part = self._datasets.on_disk.get(self.ref.path, (0, newest))
        if version == self.version:
            return version, part
        return max(self.version - 1, 0), min(part, newest - 1)

    def sync(self) -> None:
        """Sync every version since the last sync, and what of their files is still in use.

        The files have random names and are written inside the call, so those that are new are
        found through the fragments. A branch has files of its parent's, which are not meant.
        """
        if not self._datasets.synced:
            return
        with lance_call("read", self.ref.path):
            parts = [part.metadata for part in self._dataset.get_fragments()]
        files: list[str] = []
        for part in parts:
            if part.id > self._last_part:
                files.extend(f"data/{data.path}" for data in part.files)
            if part.deletion_file is not None and part.deletion_file.read_version >= self._synced:
                files.append(part.deletion_file.path(part.id))
        top = Path(self._datasets.root.path(self.ref.path))
        own = [name for name in files if (top / name).exists()]
        for version in range(self._synced + 1, self.version + 1):
            self._datasets.sync_version(self.ref, self._dataset, version, own)
            own = []
        self._synced = self.version
        self._last_part = max((part.id for part in parts), default=-1)
        self._datasets.on_disk[self.ref.path] = self._synced, self._last_part


def note_made(
    datasets: Datasets, ref: TableRef, dataset: LanceDataset, version: int, *, adopted: bool = False
) -> None:
    """Note what all files are that a version brought, by its transaction."""
    with lance_call("read", ref.path):
        made_by = dataset.read_transaction(version)
    files = () if made_by is None else new_files(made_by.operation)
    if not datasets.root.is_local and not any(map(is_stored_blob, dataset.schema)):
        files = (f for f in files if not (f.startswith("data/") and f.endswith("/*")))
    datasets.note_version(ref, version, made_by, files, adopted=adopted)


def adopt_versions(datasets: Datasets, ref: TableRef, first: int, last: int) -> None:
    """Note what a dead writer brought with some versions, if it did not come to that.

    Never fails: what cannot be read is unverified.
    """
    for version in range(first, last + 1):
        with suppress(OmniGraphError):
            if datasets.info(ref, version) is not None:
                note_made(datasets, ref, datasets.open(ref, version), version, adopted=True)
    if ref.branch is not None:
        datasets.checksums.adopt(ref.location, [branch_file(ref.branch)])


def rows_of_part(place: VersionPlace, part: Part, schema: pa.Schema) -> pa.RecordBatch:
    """All columns of rows that belong to no version yet, blobs as bytes; for any process.

    Inline because Lance reads blobs only through a version. The one made here is detached: it is
    in nobody's history, no reader finds it, and it is gone at the end.
    """
    options = None if place.options is None else dict(place.options)
    with lance_call("read rows for", place.path):
        made = LanceDataset.commit(
            place.uri,
            LanceOperation.Append([part.metadata()]),
            read_version=place.version,
            detached=True,
            storage_options=options,
        )
    try:
        return Table(TableRef(place.path), made).last_fragment(schema)
    finally:
        _forget_detached(place, made)


@contextmanager
def as_if_committed(place: VersionPlace, steps: Sequence[StagedTable]) -> Iterator[VersionPlace]:
    """What staged steps would make of a version, for any process to read while the block lasts.

    Inline because an index is built on a version, and the one it is meant for comes only with the
    commit. Those made here are detached, as in ``rows_of_part``; parts have the numbers in them
    that they will get. Made from a handle of the version: from an address Lance would start at
    the newest.
    """
    options = None if place.options is None else dict(place.options)
    with ExitStack() as made:
        with lance_call("open", place.path):
            at = lance.dataset(place.uri, version=place.version, storage_options=options)
        for step in steps:
            if not isinstance(step._transaction, Transaction):
                raise InternalError("a staged write was read that this process did not stage")
            with lance_call("read", place.path):
                at = LanceDataset.commit(
                    at,
                    step._transaction.operation,
                    read_version=at.version,
                    detached=True,
                    storage_options=options,
                )
            made.callback(_forget_detached, place, at)
        yield replace(place, version=int(at.version))


def _forget_detached(place: VersionPlace, made: LanceDataset) -> None:
    # Some options are for Lance alone.
    options = {k: v for k, v in (place.options or {}).items() if k not in S3_LIMITS}
    # Files that nobody refers to: what is left of them takes a little room.
    with suppress(OmniGraphError), lance_call("read", place.path):
        objects = ObjectStore(parse_root(place.uri, options))
        by = made.read_transaction(made.version)
        objects.delete(f"_versions/d{made.version}.manifest")
        if by is not None:
            objects.delete(f"_transactions/{by.read_version}-{by.uuid}.txn")
