"""The only interface to Lance tables: reads at a pinned version, and staged writes.

A staged write puts its files on storage without moving the table; ``commit_staged`` makes it the
next version, or fails. Lance would silently rebase a late commit onto concurrent commits, so a
commit that did not become exactly ``base + 1`` is reported as lost. Operations that Lance cannot
stage are in ``storage.tables.inline``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.dataset import Index
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import InternalError, StorageError, StorageUnknown, VersionMismatch
from omnigraph.storage.checksums import FileSum
from omnigraph.storage.lance_format.files import Damaged
from omnigraph.storage.read_back import check_blobs, check_staged_files, check_version
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import UnfitValues, index_build, lance_call
from omnigraph.storage.tables.indexes import build_index, index_segments
from omnigraph.storage.tables.next_version import NextVersion
from omnigraph.storage.tables.stages import Stage, StoreStage, open_stage
from omnigraph.storage.tables.table import Table, open_table
from omnigraph.storage.tables.transactions import delete_keys, mark_rows, replace_rows
from omnigraph.storage.tables.types import KEY as KEY
from omnigraph.storage.tables.types import ROWS_PER_FRAGMENT as ROWS_PER_FRAGMENT
from omnigraph.storage.tables.types import (
    CommittedTable,
    IndexSpec,
    StagedTable,
    TableChange,
    TableRef,
    VersionInfo,
    is_blob_folder,
    staged_table,
)
from omnigraph.storage.tables.upserts import NEW, Replacement, keep_row_ids
from omnigraph.storage.tables.wide_columns import is_stored_blob, stored_data

if TYPE_CHECKING:
    import numpy as np

    from omnigraph.storage.tables.fragments import Deletions, StagedFragment

# Up to so many rows are changed one by one, see ``point_writes``.
FEW = 1_000

Data: TypeAlias = pa.Table | pa.RecordBatchReader


class TableStore:
    """Opens tables and stages writes. One per graph, shared by its threads."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self.storage_options = datasets.options

    # -- reading -------------------------------------------------------------------------

    def open(
        self,
        ref: TableRef,
        version: int,
        e_tag: str | None = None,
        check: Callable[[], None] | None = None,
    ) -> Table:
        """A table at a known version; handles are cached and shared, see ``Datasets.shared``."""
        return open_table(self._datasets, ref, version, e_tag, check)

    def head(self, ref: TableRef, after: int | None = None) -> int:
        """The newest version of a table on its branch; cheap if an older one is known."""
        if after is not None:
            return self._datasets.newest(ref, after)
        with lance_call("open", ref.path):
            return int(self._datasets.open(ref).version)

    def transaction_id(self, ref: TableRef, version: int) -> str | None:
        """The id of the transaction that created a version; ``None`` if it is not recorded."""
        dataset = self._datasets.shared(ref, version)
        with lance_call("read", ref.path):
            transaction = dataset.read_transaction(version)
        return None if transaction is None else str(transaction.uuid)

    # -- staging -------------------------------------------------------------------------

    def stage_append(self, table: Table, data: Data) -> StagedTable:
        """Add rows without checking keys."""
        with (
            lance_call("stage an append to", table.ref.path),
            open_stage(self._datasets, table, data) as stage,
        ):
            operation = LanceOperation.Append(stage.write(data))
            transaction = Transaction(table.version, operation)
            return stage.staged(
                TableChange.APPEND, transaction, {"inserted": _added_rows(operation)}
            )

    def stage_upsert(self, table: Table, data: Data) -> StagedTable:
        """Insert rows by key, replacing those that exist; keys in ``data`` must be distinct."""
        if isinstance(data, pa.Table) and data.num_rows <= FEW:
            return self._stage_few(table, TableChange.UPSERT, data)
        with lance_call("stage an upsert into", table.ref.path):
            transaction, stats = (
                table.dataset_for(KEY)
                .merge_insert(KEY)
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute_uncommitted(stored_data(data))
            )
        return staged_table(
            table,
            TableChange.UPSERT,
            transaction,
            inserted=stats["num_inserted_rows"],
            updated=stats["num_updated_rows"],
        )

    def stage_update(self, table: Table, data: Data) -> StagedTable:
        """Replace some columns of existing rows by key; the other columns stay unchanged."""
        is_whole = set(table.schema.names) <= set(data.schema.names)
        if is_whole and isinstance(data, pa.Table) and data.num_rows <= FEW:
            return self._stage_few(table, TableChange.UPDATE, data)
        with lance_call("stage an update of", table.ref.path):
            transaction, stats = (
                table.dataset_for(KEY)
                .merge_insert(KEY)
                .when_matched_update_all()
                .execute_uncommitted(stored_data(data))
            )
        updated = int(stats["num_updated_rows"])
        return staged_table(table, TableChange.UPDATE, transaction, updated=updated)

    def _stage_few(self, table: Table, change: TableChange, rows: pa.Table) -> StagedTable:
        """A few whole rows, which replace those that exist; an update adds none."""
        from omnigraph.storage.tables import point_writes

        keys = rows[KEY].combine_chunks()
        located = point_writes.locate_rows(table, KEY, keys)
        row_ids = point_writes.row_ids_in_order(located, KEY, keys, NEW)
        there = row_ids != NEW
        new = rows.filter(pa.array(~there))
        if change is TableChange.UPDATE:
            new = new.slice(0, 0)
        replaced = rows.filter(pa.array(there))
        with open_stage(self._datasets, table, replaced, new) as stage:
            deletions = point_writes.delete_located(stage.put, table, located)
            return self._stage_changes(
                stage, change, table, deletions, replaced, row_ids[there], new
            )

    def stage_overwrite(self, table: Table, data: Data) -> StagedTable:
        """Replace all rows, possibly by none; the schema becomes that of ``data``."""
        before = table.count()
        with lance_call("stage an overwrite of", table.ref.path):
            transaction = self._write(
                table, data, "overwrite", return_transaction=True, enable_stable_row_ids=True
            )
        rows = _added_rows(transaction.operation)
        return staged_table(
            table, TableChange.OVERWRITE, transaction, inserted=rows, deleted=before
        )

    def stage_delete_keys(self, table: Table, keys: pa.Array) -> StagedTable | None:
        """Delete rows by key; stages nothing if no row has one of the keys."""
        if not len(keys):
            return None
        if len(keys) <= FEW:
            from omnigraph.storage.tables import point_writes

            rows = point_writes.locate_rows(table, KEY, keys.cast(pa.string()))
            if not rows.num_rows:
                return None
            with open_stage(self._datasets, table) as stage:
                deletions = point_writes.delete_located(stage.put, table, rows)
                transaction = mark_rows(table, deletions)
                return stage.staged(TableChange.DELETE, transaction, {"deleted": rows.num_rows})
        with lance_call("stage a delete from", table.ref.path):
            transaction, deleted = delete_keys(table, keys.cast(pa.string()))
        if not deleted:
            return None
        return staged_table(table, TableChange.DELETE, transaction, deleted=deleted)

    def stage_upsert_streams(
        self, table: Table, replacement: Replacement, new: Data | None
    ) -> StagedTable:
        """A streaming upsert of many rows, divided into existing and new ones."""
        with lance_call("stage an upsert into", table.ref.path):
            transaction, deleted = delete_keys(table, replacement.keys)
            replaced = self._write(table, replacement.rows)
            keep_row_ids(replaced, replacement.row_ids)
            added = [] if new is None else self._write(table, new)
        return self._stage_replacement(table, transaction, replaced, added, deleted)

    def stage_changes(
        self,
        table: Table,
        deletions: Deletions,
        rows: pa.Table,
        row_ids: np.ndarray,
        new: pa.Table,
    ) -> StagedTable:
        """Stage replacements of rows already marked as deleted, and new rows; no key lookup."""
        stage = StoreStage(self._datasets, table)
        return self._stage_changes(stage, TableChange.UPSERT, table, deletions, rows, row_ids, new)

    def _stage_changes(
        self,
        stage: Stage,
        change: TableChange,
        table: Table,
        deletions: Deletions,
        rows: pa.Table,
        row_ids: np.ndarray,
        new: pa.Table,
    ) -> StagedTable:
        with lance_call("stage an upsert into", table.ref.path):
            replaced = stage.write(rows) if rows.num_rows else []
            keep_row_ids(replaced, row_ids)
            added = stage.write(new) if new.num_rows else []
        transaction = mark_rows(table, deletions)
        counts = replace_rows(table, transaction, replaced, added, deletions.rows)
        return stage.staged(change, transaction, counts)

    def stage_indexes(
        self, table: Table, specs: Sequence[IndexSpec]
    ) -> tuple[StagedTable | None, tuple[IndexSpec, ...]]:
        """Build indexes over all rows of a version, replacing those of the same names.

        All of them become one commit. Also returns those that Lance cannot build from the values.
        """
        # A build needs a private handle; readers share that of the table.
        dataset = self._datasets.open(table.ref, table.version)
        built: list[Index] = []
        replaced: list[Index] = []
        failed: list[IndexSpec] = []
        for spec in specs:
            try:
                with index_build(spec.name, table.ref.path):
                    built.append(build_index(dataset, spec))
            except UnfitValues:
                failed.append(spec)
                continue
            with lance_call("read", table.ref.path):
                replaced.extend(index_segments(dataset, spec.name))
        if not built:
            return None, tuple(failed)
        transaction = Transaction(table.version, LanceOperation.CreateIndex(built, replaced))
        return staged_table(table, TableChange.INDEX, transaction), tuple(failed)

    # -- fragments that other processes wrote, see ``storage.tables.fragments`` ----------

    def stage_fragments(
        self, table: Table, staged: Sequence[StagedFragment], *, replaces: bool
    ) -> StagedTable:
        """Stage written fragments, as an append or as a replacement of all rows."""
        fragments = [fragment.metadata() for fragment in staged]
        before = table.count() if replaces else 0
        operation: Any
        if replaces:
            operation = LanceOperation.Overwrite(table.dataset.lance_schema, fragments)
        else:
            operation = LanceOperation.Append(fragments)
        return staged_table(
            table,
            TableChange.OVERWRITE if replaces else TableChange.APPEND,
            Transaction(table.version, operation),
            inserted=_added_rows(operation),
            deleted=before,
            sums=_sums_of(staged),
        )

    def stage_upsert_fragments(
        self,
        table: Table,
        deletions: Deletions,
        replaced: Sequence[tuple[StagedFragment, np.ndarray]],
        added: Sequence[StagedFragment],
    ) -> StagedTable:
        """Stage fragments of new rows, and of replacements for rows marked as deleted."""
        kept = [fragment.metadata() for fragment, _ in replaced]
        for metadata, (_, row_ids) in zip(kept, replaced, strict=True):
            keep_row_ids([metadata], row_ids)
        new = [fragment.metadata() for fragment in added]
        staged = self._stage_replacement(
            table, mark_rows(table, deletions), kept, new, deletions.rows
        )
        return replace(staged, sums=_sums_of([*(fragment for fragment, _ in replaced), *added]))

    def _stage_replacement(
        self,
        table: Table,
        transaction: Transaction,
        replaced: Sequence[FragmentMetadata],
        added: Sequence[FragmentMetadata],
        deleted: int,
    ) -> StagedTable:
        """Stage replacements of rows deleted in the same transaction, and new rows."""
        counts = replace_rows(table, transaction, replaced, added, deleted)
        return staged_table(table, TableChange.UPSERT, transaction, **counts)

    def _write(self, table: Table, data: Data, mode: str = "append", **options: Any) -> Any:
        """Write uncommitted rows; returns fragments, or a transaction if requested."""
        return write_fragments(
            stored_data(data),
            table.dataset,
            mode=mode,
            max_rows_per_file=ROWS_PER_FRAGMENT,
            storage_options=self.storage_options,
            **options,
        )

    # -- committing ----------------------------------------------------------------------

    def check_staged(self, steps: Sequence[StagedTable]) -> None:
        """Make sure that the files of all steps of a write to one table are complete and synced.

        Called before the sidecar is written: a lost file then fails the write before any table has
        moved. On S3 only the sums are noted.
        """
        for step in steps:
            if step.upload is not None:
                self._datasets.checksums.note_tags(step.upload.finish())
                continue
            files = step.files
            if not self._datasets.root.is_local:
                schema = self._base(steps[0]).schema
                if not any(map(is_stored_blob, schema)):
                    files = tuple(file for file in files if not is_blob_folder(file))
            check_staged_files(self._datasets, step.ref, files, step.sums)

    def commit_staged(
        self, staged: StagedTable, after: int | None = None, rows_before: int | None = None
    ) -> CommittedTable:
        """Make a staged write the next version of its table.

        ``after`` is the version that it must follow: the one it was staged on, unless earlier steps
        of the same write come in between. ``rows_before`` is the row count of that version, if
        known, because counting takes longer the more fragments there are.

        Raises ``VersionMismatch`` if the table moved concurrently; then the caller must undo what
        Lance may have rebased, and nothing of the write is published.
        """
        if not isinstance(staged.transaction, Transaction):
            raise InternalError("cannot commit a write that another process staged")
        ref = staged.ref
        before = staged.base if after is None else after
        if staged.built is not None and staged.built.version == before + 1:
            return self._commit_built(staged, staged.built, rows_before)
        try:
            with lance_call("commit to", ref.path, writes=True):
                committed = LanceDataset.commit(
                    self._base(staged),
                    staged.transaction,
                    max_retries=0,
                    storage_options=self.storage_options,
                )
        except StorageUnknown:
            # It may have arrived nevertheless: the version it would have created tells.
            if not self.landed(staged, before + 1):
                raise
            committed = self._datasets.shared(ref, before + 1)
        version = int(committed.version)
        made_by = self._read_back(staged, committed)
        if rows_before is None:
            with lance_call("read", ref.path):
                rows = int(committed.count_rows())
        else:
            rows = rows_before + staged.inserted - staged.deleted
        info = self._datasets.info(ref, version)
        if version != before + 1 or made_by != staged.transaction_id or info is None:
            raise _lost_race(ref, before, version)
        self._datasets.keep(ref, info, committed)
        return CommittedTable(ref, version, rows, info)

    def _commit_built(
        self, staged: StagedTable, built: NextVersion, rows_before: int | None
    ) -> CommittedTable:
        """Create the file of a version that was built locally, after all of its other files."""
        versions = self._datasets.next_versions
        assert versions is not None
        assert staged.upload is not None
        staged.upload.finish()
        created = versions.create(built)
        if created is None:
            raise _lost_race(built.ref, built.version - 1, built.version)
        self._datasets.checksums.note_tags({built.path: created})
        if rows_before is None:
            rows = sum(f.metadata.num_rows for f in built.dataset.get_fragments())
        else:
            rows = rows_before + staged.inserted - staged.deleted
        path = self._datasets.root.object_path(built.path)
        info = VersionInfo(built.version, path, created.size, created.e_tag)
        return CommittedTable(built.ref, built.version, rows, info)

    def _base(self, staged: StagedTable) -> LanceDataset:
        """The handle of the version that a write was staged on."""
        if isinstance(staged.dataset, LanceDataset):
            return staged.dataset
        return self._datasets.shared(staged.ref, staged.base)

    def _read_back(self, staged: StagedTable, committed: LanceDataset) -> str | None:
        """Check what a commit wrote; returns the id of the transaction that created the version."""
        ref, version = staged.ref, int(committed.version)
        if not self._datasets.root.is_local:
            # On S3 a commit that was answered is whole.
            assert isinstance(staged.transaction, Transaction)
            self._datasets.note_version(ref, version, staged.transaction)
            return staged.transaction_id
        try:
            content = check_version(self._datasets, ref, version)
            names = [file.name for file in staged.files]
            check_blobs(committed, self._datasets.root.path(ref.path), names)
        except Damaged as damaged:
            raise damaged.error() from None
        return content.transaction_id

    def check_landed(self, ref: TableRef, version: int) -> None:
        """Check the version that a dead writer left; the writer had checked the data files."""
        if self._datasets.root.is_local:
            try:
                check_version(self._datasets, ref, version)
            except Damaged as damaged:
                raise damaged.error() from None

    def landed(self, staged: StagedTable, version: int) -> bool:
        """Whether a version was created by this staged write."""
        try:
            return self.transaction_id(staged.ref, version) == staged.transaction_id
        except StorageError:
            # Missing or unreadable: nothing can build on it.
            return False


def _lost_race(ref: TableRef, expected: int, version: int) -> VersionMismatch:
    return VersionMismatch(
        f"stale view of '{ref.path}': expected to write version {expected + 1}, "
        f"but the table is at {version}",
        hint="refresh and retry",
        details={"expected": expected, "actual": version - 1},
    )


def _sums_of(fragments: Iterable[StagedFragment]) -> dict[str, FileSum]:
    return {name: file_sum for fragment in fragments for name, file_sum in fragment.sums}


def _added_rows(operation: Any) -> int:
    return sum(fragment.physical_rows for fragment in operation.fragments)
