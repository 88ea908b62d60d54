"""Operations that Lance cannot stage: they write and commit in one call. Each method says why.

Nothing here touches a table that holds user data, except ``restore`` and ``create_branch``, and
those two move only tables whose lease the caller holds. A test fails when a module other than
this one calls a function of Lance that commits by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction

from omnigraph.errors import (
    AlreadyExists,
    InternalError,
    OmniGraphError,
    StorageMissing,
    VersionMismatch,
)
from omnigraph.storage.lance_format.files import Damaged
from omnigraph.storage.objects.paths import (
    branch_file,
    parse_root,
    transaction_file,
)
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.read_back import (
    check_new_fork,
    check_version,
    is_readable_reference,
    set_aside,
)
from omnigraph.storage.tables.branch_list import BranchInfo, read_branches
from omnigraph.storage.tables.datasets import S3_LIMITS, Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.fragments import StagedFragment, TableLocator
from omnigraph.storage.tables.made_versions import check_added, withdraw
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import FILE_FOLDERS, CommittedTable, StagedTable, TableRef
from omnigraph.storage.tables.versions import delete_files, delete_versions, removal_of
from omnigraph.storage.tables.wide_columns import stored_schema

_ROWS = "data"


class InlineTables:
    """Creating, restoring and branching whole datasets."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets

    def create(self, location: str, schema: pa.Schema) -> CommittedTable:
        """Create an empty table at version 1.

        Inline because a dataset that does not exist has no HEAD to hold back; it is
        unreachable until a manifest names it.
        """
        ref = TableRef(location)
        path = self._datasets.root.path(location)
        if self._datasets.info(ref, 1) is not None:
            raise AlreadyExists(f"a table exists at '{location}'")
        with self._datasets.definite_outcome(ref, 1), lance_call("create", location, writes=True):
            created = LanceDataset.commit(
                path,
                LanceOperation.Overwrite(stored_schema(schema), []),
                enable_stable_row_ids=True,
                storage_options=self._datasets.options,
                max_retries=0,
            )
        self._check_made(ref, 1)
        info = self._datasets.info(ref, int(created.version))
        if info is None or info.version != 1:
            raise AlreadyExists(f"a table exists at '{location}'")
        return CommittedTable(ref, info.version, 0, info)

    def restore(self, ref: TableRef, head: int, version: int) -> CommittedTable:
        """Restore the content of an earlier version as the version after ``head``.

        Inline because it writes nothing but the new version. Lance would let a stale restore win,
        so the result is checked to be exactly the next version.
        """
        dataset = self._datasets.open(ref, head)
        outcome = self._datasets.definite_outcome(ref, head + 1)
        with outcome, lance_call("restore", ref.path, writes=True):
            restored = LanceDataset.commit(
                dataset,
                LanceOperation.Restore(version),
                read_version=head,
                max_retries=0,
                storage_options=self._datasets.options,
            )
            rows = int(restored.count_rows())
        self._check_next(ref, restored)
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
        """Create an empty table that continues the version numbers of an earlier table of its name.

        A table that exists at the location is the earlier one. Otherwise the version numbers are
        taken from another table: a clone that shares its files is created, emptied, and its cloned
        versions removed at once, since they reference files of that table. Inline for the same
        reason as ``create``: no manifest references these versions.
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
            self._check_made(ref, numbering.version)
        dataset = self._datasets.open(ref)
        emptied = False
        while not emptied or int(dataset.version) <= above:
            with lance_call("create", location, writes=True):
                dataset = LanceDataset.commit(
                    dataset,
                    LanceOperation.Overwrite(stored_schema(schema), []),
                    read_version=int(dataset.version),
                    max_retries=0,
                    storage_options=self._datasets.options,
                )
            emptied = True
            self._check_next(ref, dataset)
        if numbering is not None:
            cloned = removal_of(self._datasets, ref, [numbering.version])
            delete_versions(self._datasets, ref, cloned.versions)
            delete_files(self._datasets.objects, cloned.files)
        self._datasets.sync_table(ref)
        info = self._datasets.info(ref, int(dataset.version))
        if info is None:
            raise StorageMissing(f"the new table at '{location}' was removed")
        return CommittedTable(ref, info.version, 0, info)

    def _check_made(self, ref: TableRef, version: int) -> None:
        """Check a new table; a damaged one is removed."""
        datasets = self._datasets
        try:
            if datasets.root.is_local:
                check_version(datasets, ref, version, sync=False)
        except Damaged as damaged:
            datasets.objects.delete_prefix(ref.path)
            raise damaged.error() from None
        datasets.sync_table(ref)
        datasets.note_new(ref)

    def _check_next(self, ref: TableRef, dataset: LanceDataset) -> None:
        """Check a version without new data files; an unreadable one is set aside."""
        datasets, version = self._datasets, int(dataset.version)
        if not datasets.root.is_local:
            with lance_call("read", ref.path):
                datasets.note_version(ref, version, dataset.read_transaction(version))
            return
        try:
            check_version(datasets, ref, version)
        except Damaged as damaged:
            if damaged.unreadable_version:
                set_aside(datasets, ref, version)
            raise damaged.error() from None

    # -- branches of one dataset ---------------------------------------------------------

    def branches(self, location: str, version: int | None = None) -> dict[str, BranchInfo]:
        """The branches of a dataset by name, in alphabetical order."""
        return read_branches(self._datasets, location, version)

    def create_branch(
        self,
        source: TableRef,
        version: int,
        name: str,
        check_is_ours: Callable[[], object] | None = None,
    ) -> TableRef:
        """Fork a dataset at a version.

        Inline because a branch is a reference, not a version: it is not read until the graph's
        manifest pins a table on it. If the branch is there after an error, ``check_is_ours`` raises
        unless only the caller can have made it; then only what Lance does afterwards has failed,
        or its answer was lost.
        """
        dataset = self._datasets.open(TableRef(source.location))
        origin = version if source.branch is None else (source.branch, version)
        ref = TableRef(source.location, name)
        try:
            try:
                with lance_call(f"create branch '{name}' of", source.location, writes=True):
                    dataset.create_branch(name, origin)
            except OmniGraphError:
                if check_is_ours is None or not self._is_made(ref, source, version):
                    raise
                check_is_ours()
            check_new_fork(self._datasets, ref, version)
        except Damaged as damaged:
            self._unmake(ref)
            raise damaged.error() from None
        except OmniGraphError:
            # One unreadable reference would hide all branches of the table.
            if not is_readable_reference(self._datasets, ref):
                self._unmake(ref)
            raise
        self._remove_strays(source.location)
        self._datasets.sync_table(ref)
        self._datasets.note_new(ref)
        return ref

    def _is_made(self, ref: TableRef, source: TableRef, version: int) -> bool:
        """Whether a branch is there and was made from a version; not if that cannot be seen."""
        assert ref.branch is not None
        with suppress(OmniGraphError):
            if is_readable_reference(self._datasets, ref):
                info = self.branches(ref.location).get(ref.branch)
                return info is not None and (info.parent, info.parent_version) == (
                    source.branch,
                    version,
                )
        return False

    def unmake_branch(self, location: str, name: str) -> None:
        """Remove what ``create_branch`` makes, also if a crash left only a part of it.

        Rows stay: a load on Spark writes them before the branch. Those of a dead writer become
        orphaned files of the next branch of that name.
        """
        ref = TableRef(location, name)
        self._datasets.objects.refuse_links(ref.path)
        self._unmake(ref)

    def _unmake(self, ref: TableRef) -> None:
        """Remove a branch except its rows, its reference first."""
        assert ref.branch is not None
        objects = self._datasets.objects
        objects.delete(f"{ref.location}/{branch_file(ref.branch)}")
        for folder in sorted(FILE_FOLDERS - {_ROWS}):
            objects.delete_prefix(f"{ref.path}/{folder}")

    def _remove_strays(self, location: str) -> None:
        """Remove directories that Lance creates under the percent-encoded path of a reference."""
        root = self._datasets.root
        spelled = root.spelled_as_address(location)
        if root.is_local and spelled != root.path(location):
            with suppress(OSError):
                # Stops at the first non-empty one.
                os.removedirs(f"{spelled}/_refs/branches")

    def delete_branch(self, location: str, name: str) -> None:
        """Remove a branch of a dataset with its files, if it exists.

        Inline because removing a reference has no second phase. What a crash left of a branch
        (files without a reference) is removed as well, but never a directory in which another
        branch lives.
        """
        dataset = self._datasets.open(TableRef(location))
        self._datasets.objects.refuse_links(TableRef(location, name).path)
        with lance_call(f"delete branch '{name}' of", location, writes=True):
            names = list(dataset.branches.list())
            if name in names:
                dataset.branches.delete(name)
                names.remove(name)
                self._datasets.sync_deleted_branch(location, name)
        nested = any(other.startswith(f"{name}/") for other in names)
        if not nested:
            self._datasets.objects.delete_prefix(TableRef(location, name).path)

    # -- tables of rows that are only ever added -----------------------------------------

    def append_log(self, location: str, rows: pa.Table) -> None:
        """Add rows to a table outside the graph's versions, creating it for the first ones.

        Inline because a log has no pins: its newest version is what counts.
        """
        if self._datasets.objects.list(f"{location}/_versions"):
            self._add(location, rows, "append")
            return
        try:
            self._add(location, rows, "create")
        except AlreadyExists:
            # Another writer created the table between our check and our write.
            self._add(location, rows, "append")

    def _add(self, location: str, rows: pa.Table, mode: str) -> None:
        ref = TableRef(location)
        versions = self._datasets.listed_versions(ref) if self._datasets.root.is_local else []
        outcome = self._datasets.definite_outcome(ref, versions[-1] + 1 if versions else 1)
        with outcome, lance_call("write to", location, writes=True):
            written = lance.write_dataset(
                rows,
                self._datasets.root.path(location),
                mode=mode,
                enable_stable_row_ids=True,
                storage_options=self._datasets.options,
            )
        try:
            check_added(self._datasets, ref, written)
        except Damaged as damaged:
            if written.version == 1:
                self._datasets.objects.delete_prefix(location)
            else:
                withdraw(self._datasets, ref, written, damaged)
            raise damaged.error() from None
        self._datasets.sync_table(ref)
        self._datasets.checksums.record()

    def read_log(self, location: str) -> pa.Table | None:
        """All rows of a log, ``None`` if it was never written."""
        try:
            dataset = self._datasets.open(TableRef(location))
        except StorageMissing:
            return None
        with lance_call("read", location):
            return dataset.to_table()


def read_staged_fragment(
    locator: TableLocator, fragment: StagedFragment, schema: pa.Schema
) -> pa.RecordBatch:
    """All columns of uncommitted rows, blobs as bytes; for any process.

    Inline because Lance reads blobs only through a version. The version created here is detached:
    it is not part of any history, readers do not find it, and it is removed at the end.
    """
    with lance_call("read rows for", locator.path):
        made = LanceDataset.commit(
            locator.uri,
            LanceOperation.Append([fragment.metadata()]),
            read_version=locator.version,
            detached=True,
            storage_options=locator.options,
        )
    try:
        return Table(TableRef(locator.path), made).last_fragment(schema)
    finally:
        _forget_detached(locator, made)


@contextmanager
def as_if_committed(locator: TableLocator, steps: Sequence[StagedTable]) -> Iterator[TableLocator]:
    """The result of staged steps on a version, readable by any process within the block.

    Inline because an index is built on a version, and its target version exists only after the
    commit. The versions created here are detached, as in ``read_staged_fragment``; fragments
    already have their final ids. They are created from a handle of the version: from an address
    Lance would start at the newest.
    """
    with ExitStack() as made:
        with lance_call("open", locator.path):
            at = locator.open()
        for step in steps:
            if not isinstance(step.transaction, Transaction):
                raise InternalError("cannot read a write that another process staged")
            with lance_call("read", locator.path):
                at = LanceDataset.commit(
                    at,
                    step.transaction.operation,
                    read_version=at.version,
                    detached=True,
                    storage_options=locator.options,
                )
            made.callback(_forget_detached, locator, at)
        yield replace(locator, version=int(at.version))


def _forget_detached(locator: TableLocator, made: LanceDataset) -> None:
    # Some options are only for Lance.
    options = {k: v for k, v in (locator.options or {}).items() if k not in S3_LIMITS}
    # Unreferenced files: leftovers only take a little space.
    with suppress(OmniGraphError), lance_call("read", locator.path):
        objects = ObjectStore(parse_root(locator.uri, options))
        by = made.read_transaction(made.version)
        objects.delete(f"_versions/d{made.version}.manifest")
        if by is not None:
            objects.delete(transaction_file(by.read_version, by.uuid))
