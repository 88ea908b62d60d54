"""A keyed table that is written by compare-and-set: the graph's manifest.

Lance writes and commits a change in one call, so a change can be checked only once it is visible.
The writer holds the lease, reads the change back, and withdraws it if it is incomplete: see
``read_back`` and ``withdraw``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation, Transaction
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import Conflict, OmniGraphError
from omnigraph.storage.durable import exists
from omnigraph.storage.lance_format.files import Damaged, NewFile
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.read_back import check_added_files, check_staged_files, check_version
from omnigraph.storage.tables.built_writes import create_built, note_written, rows_in_memory
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.deletion_files import Put, mark_deleted
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.ledger_reader import LedgerReader, RowAddress
from omnigraph.storage.tables.made_versions import check_added, note_made, withdraw
from omnigraph.storage.tables.next_version import LocalCopy, NextVersions, overwrite
from omnigraph.storage.tables.types import (
    AUTO_CLEANUP,
    ROW_ADDRESS,
    ROWS_PER_FRAGMENT,
    TableRef,
    is_blob_folder,
    new_files,
)

_CONTENT = "metadata"
"""The column with the content of a row; the other columns identify it."""


class Ledger(LedgerReader):
    """A handle that writes the table. It moves with every write, so it is never shared."""

    def __init__(self, datasets: Datasets, ref: TableRef, dataset: LanceDataset) -> None:
        super().__init__(datasets, ref, dataset)
        self._synced, self._last_fragment = self._synced_up_to() if datasets.synced else (0, -1)
        self._written: list[int] = []
        self._version_files: dict[int, list[str]] = {}
        self._staged: set[str] = set()
        """New files that were checked and synced before their version was committed."""

    @classmethod
    def create(cls, datasets: Datasets, location: str, rows: pa.Table) -> Ledger:
        """Create the table with its first rows in one version.

        Inline for the same reason as ``InlineTables.create``. A graph becomes visible by this
        table, so exactly one of several creators succeeds.
        """
        ref = TableRef(location)
        with datasets.definite_outcome(ref, 1), lance_call("create", location, writes=True):
            created = lance.write_dataset(
                rows,
                datasets.root.path(location),
                mode="create",
                enable_stable_row_ids=True,
                max_rows_per_file=ROWS_PER_FRAGMENT,
                storage_options=datasets.options,
            )
        try:
            check_added(datasets, ref, created)
        except Damaged as damaged:
            datasets.objects.delete_prefix(location)
            raise damaged.error() from None
        datasets.sync_table(ref)
        datasets.note_new(ref)
        return cls(datasets, ref, created)

    def find_row(self, key: str, value: str) -> RowAddress | None:
        rows = rows_in_memory(self._datasets, self.ref, self._facts, lambda: self._dataset, [key])
        if rows is None:
            return super().find_row(key, value)
        number = pc.index(rows[key], value).as_py()
        return None if number < 0 else RowAddress.of(rows[ROW_ADDRESS][number].as_py())

    # -- writing -------------------------------------------------------------------------

    def upsert(
        self, rows: pa.Table, key: str, replaced: RowAddress | None = None
    ) -> RowAddress | None:
        """Insert or replace rows by key in one version, unless one of them changed concurrently.

        Executed directly, because a staged upsert does not detect another writer inserting the same
        new key; and without an index, because an index on the key would hide it again. Raises
        ``Conflict`` if another writer was faster. The rows are visible on return; they are checked
        by ``read_back`` and durable after ``sync``.
        """
        if replaced is not None:
            first = self._append_replacing(rows, key, replaced)
            if first is not None:
                return first
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
        return None

    def _append_replacing(
        self, rows: pa.Table, key: str, replaced: RowAddress
    ) -> RowAddress | None:
        """Append rows, one of which replaces the row at an address, in one version.

        Returns the address of the first, or ``None`` and writes nothing if the fragment of the
        replaced row has deleted rows. No row is read; new files are checked and synced before they
        are visible. As strict as an upsert: Lance refuses the commit if another one changed the
        replaced row or rewrote its fragment, because both delete rows of one fragment.
        """
        with lance_call("read", self.ref.path):
            fragment = self._facts.get_fragment(replaced.fragment)
        if fragment is None or fragment.metadata.deletion_file is not None:
            return None
        versions = self._datasets.next_versions
        if versions is not None:
            with versions.copy(self.ref, self.version, self._e_tag) as copy:
                if copy is not None:
                    first = self._build_replacing(versions, copy, rows, fragment.metadata, replaced)
                    if first is not None:
                        return first
        with lance_call("write", self.ref.path):
            (added,) = write_fragments(
                rows,
                self._dataset,
                mode="append",
                max_rows_per_file=max(ROWS_PER_FRAGMENT, rows.num_rows),
                storage_options=self._datasets.options,
            )
        put = self._datasets.objects.write_bytes
        transaction = self._replacement(put, fragment.metadata, replaced, added)
        files = [file for file in new_files(transaction.operation) if not is_blob_folder(file)]
        try:
            check_staged_files(self._datasets, self.ref, files, {})
            self._check_rows_in([files[0]], rows, key)
        except Damaged as damaged:
            self._discard(files)
            raise damaged.error() from None
        except OmniGraphError:
            self._discard(files)
            raise
        try:
            with lance_call("write", self.ref.path, writes=True):
                self._dataset = LanceDataset.commit(
                    self._dataset,
                    transaction,
                    max_retries=0,
                    storage_options=self._datasets.options,
                )
        except Conflict:
            self._discard(files)
            raise
        if self._datasets.root.is_local:
            self._written.append(self.version)
        else:
            self._datasets.note_version(self.ref, self.version, transaction)
        self._staged.update(file.name for file in files)
        return self._first_row_of(added)

    def _build_replacing(
        self,
        versions: NextVersions,
        copy: LocalCopy,
        rows: pa.Table,
        fragment: FragmentMetadata,
        replaced: RowAddress,
    ) -> RowAddress | None:
        """The same on S3, where the version is built locally; see ``next_version``."""
        with lance_call("write", self.ref.path):
            (added,) = copy.write(rows, max(ROWS_PER_FRAGMENT, rows.num_rows))
        transaction = self._replacement(copy.put, fragment, replaced, added)
        if not self._create(versions, copy, transaction, rows):
            return None
        return self._first_row_of(added)

    def _create(
        self, versions: NextVersions, copy: LocalCopy, transaction: Transaction, rows: pa.Table
    ) -> bool:
        created = create_built(self._datasets, versions, copy, transaction)
        if created is not None:
            self._facts, self._e_tag = created[0].dataset, created[1]
            note_written(self._datasets, self._facts, rows)
        return created is not None

    def _replacement(
        self, put: Put, fragment: FragmentMetadata, replaced: RowAddress, added: FragmentMetadata
    ) -> Transaction:
        marked = mark_deleted(put, self.ref, self.version, fragment, [replaced.offset])
        operation = LanceOperation.Update(
            removed_fragment_ids=[],
            updated_fragments=[marked],
            new_fragments=[added],
            fields_modified=[],
        )
        return Transaction(self.version, operation)

    def _first_row_of(self, added: FragmentMetadata) -> RowAddress:
        name = added.files[0].path
        with lance_call("read", self.ref.path):
            return next(
                RowAddress(fragment.fragment_id, 0)
                for fragment in reversed(self._facts.get_fragments())
                if fragment.metadata.files[0].path == name
            )

    def _discard(self, files: Iterable[NewFile]) -> None:
        """Remove files that no version references; what cannot be removed is left to cleanup."""
        with suppress(OmniGraphError):
            for file in files:
                self._datasets.objects.delete(f"{self.ref.path}/{file.name}", synced=False)

    def rewrite(self) -> int:
        """Put all rows into as few fragments as possible, in one version with the same content.

        One strict overwrite: unlike Lance's own compaction, it loses to every other writer and
        never rebases.
        """
        versions = self._datasets.next_versions
        if versions is not None:
            with versions.copy(self.ref, self.version, self._e_tag) as copy:
                if copy is not None and self._rewrite_built(versions, copy):
                    return self.version
        with lance_call("compact", self.ref.path, writes=True):
            transaction = overwrite(
                self._dataset.to_table(), self._dataset, storage_options=self._datasets.options
            )
        check_staged_files(self._datasets, self.ref, new_files(transaction.operation), {})
        with lance_call("compact", self.ref.path, writes=True):
            self._dataset = LanceDataset.commit(
                self._dataset,
                transaction,
                max_retries=0,
                storage_options=self._datasets.options,
            )
        self._written.append(self.version)
        return self.version

    def _rewrite_built(self, versions: NextVersions, copy: LocalCopy) -> bool:
        """The same on S3; the rows are those in memory where this process wrote them."""
        rows = rows_in_memory(self._datasets, self.ref, self._facts, lambda: self._dataset)
        with lance_call("compact", self.ref.path):
            schema = self._facts.schema
            if rows is None:
                rows = self._dataset.to_table()
            rows = rows.select(schema.names).cast(schema)
            transaction = copy.overwrite(rows)
        return self._create(versions, copy, transaction, rows)

    @property
    def stored_cleanup(self) -> tuple[str, ...]:
        """Settings that make Lance remove versions on its own."""
        with lance_call("read", self.ref.path):
            return tuple(sorted(k for k in self._dataset.config() if k.startswith(AUTO_CLEANUP)))

    def forget_cleanup(self) -> int:
        """Remove these settings, in one version. Inline because no data is written."""
        gone = LanceOperation.UpdateMap(dict.fromkeys(self.stored_cleanup))
        with lance_call("write", self.ref.path, writes=True):
            self._dataset = LanceDataset.commit(
                self._dataset,
                LanceOperation.UpdateConfig(config_updates=gone),
                read_version=self.version,
                max_retries=0,
                storage_options=self._datasets.options,
            )
        self._written.append(self.version)
        return self.version

    # -- checking ------------------------------------------------------------------------

    def read_back(
        self, rows: pa.Table | None = None, key: str = "", existing: frozenset[int] = frozenset()
    ) -> None:
        """Check the version that this handle wrote and note its sums.

        Raises ``Damaged`` if it is incomplete. It is opened as another process would open it, with
        a fresh session. ``rows`` must be present, in fragments other than those ``existing`` before
        the write; rows of other programs may have been added in between.
        """
        datasets, version = self._datasets, self.version
        if not datasets.root.is_local:
            return
        content = check_version(datasets, self.ref, version, sync=False)
        if rows is not None:
            self._read_back_rows(rows, key, existing)
        self._written = [number for number in self._written if number != version]
        self._version_files[version] = content.files

    def _read_back_rows(self, rows: pa.Table, key: str, existing: frozenset[int]) -> None:
        fresh = self._datasets.open_anew(self.ref, self.version)
        with lance_call("read", self.ref.path):
            fragments = fresh.get_fragments()
        data = [
            NewFile(f"data/{file.path}", file.file_size_bytes)
            for fragment in fragments
            if fragment.fragment_id not in existing
            for file in fragment.metadata.files
            if file.base_id is None
        ]
        # The new deletion files of this version.
        marks = [
            NewFile(mark.path(fragment.fragment_id), deleted=mark.num_deleted_rows)
            for fragment in fragments
            if (mark := fragment.metadata.deletion_file) is not None
            and mark.base_id is None
            and mark.read_version >= self.version - 1
        ]
        check_added_files(self._datasets, self.ref, [*data, *marks])
        self._check_rows_in(data, rows, key)

    def _check_rows_in(self, files: Iterable[NewFile], rows: pa.Table, key: str) -> None:
        """Check that some data files have these rows; on local disk only."""
        if not self._datasets.root.is_local:
            return
        top, columns = self._datasets.root.path(self.ref.path), [key, _CONTENT]
        stored: set[tuple[str, str | None]] = set()
        with lance_call("read", self.ref.path):
            for file in files:
                reader = LanceFileReader(f"{top}/{file.name}", columns=columns)
                stored |= _pairs(reader.read_all().to_table(), key)
        if not _pairs(rows, key) <= stored:
            raise Damaged(top, "rows are missing")

    def contains(self, rows: pa.Table, key: str) -> bool:
        """Whether exactly these rows are present; for a writer that got no answer."""
        return _pairs(rows, key) <= _pairs(self.read([key, _CONTENT]), key)

    def withdraw(self, damage: Damaged) -> bool:
        """Withdraw the version that this handle wrote; returns whether others may have seen it.

        An unreadable version is set aside, and its number is free again. Any other is
        followed by a version with the content of the one before.
        """
        version = self.version
        seen = withdraw(self._datasets, self.ref, self._dataset, damage)
        self._dataset = self._datasets.open(self.ref, version + 1 if seen else version - 1)
        self._written.clear()
        return seen

    def note(self) -> None:
        """Note the sums of the files that the versions of this handle added. Never fails."""
        written, self._written = self._written, []
        with suppress(OmniGraphError):
            for version in written:
                note_made(self._datasets, self.ref, self._dataset, version)

    # -- durability ----------------------------------------------------------------------

    def _synced_up_to(self) -> tuple[int, int]:
        """The version and the fragment up to which everything is on disk.

        The writer of the newest version may have died before syncing it, so a version of another
        process counts as unsynced; its writer has synced the one before.
        """
        newest = max(self.fragments, default=-1)
        version, fragment = self._datasets.on_disk.get(self.ref.path, (0, newest))
        if version == self.version:
            return version, fragment
        return max(self.version - 1, 0), min(fragment, newest - 1)

    def sync(self) -> None:
        """Sync every version since the last sync, and their files that are still in use.

        The files have random names and are written inside the call, so new ones are found through
        the fragments. Files that a branch inherits from its parent are skipped. A file whose sync
        fails is rewritten: the version is visible already.
        """
        if not self._datasets.synced:
            return
        with lance_call("read", self.ref.path):
            fragments = [fragment.metadata for fragment in self._dataset.get_fragments()]
        names: list[str] = []
        for fragment in fragments:
            if fragment.id > self._last_fragment:
                names.extend(f"data/{data.path}" for data in fragment.files)
            if (
                fragment.deletion_file is not None
                and fragment.deletion_file.read_version >= self._synced
            ):
                names.append(fragment.deletion_file.path(fragment.id))
        top = self._datasets.root.path(self.ref.path)
        with storage_call("read", self.ref.path):
            names = [n for n in names if n not in self._staged and exists(f"{top}/{n}")]
        self._staged.clear()
        for version in range(self._synced + 1, self.version + 1):
            names += self._version_files.pop(version, []) or self._datasets.version_files(
                self.ref, self._dataset, version
            )
        self._datasets.sync_files(self.ref, names, visible=True)
        self._synced = self.version
        self._last_fragment = max((fragment.id for fragment in fragments), default=-1)
        self._datasets.on_disk[self.ref.path] = self._synced, self._last_fragment


def _pairs(rows: pa.Table, key: str) -> set[tuple[str, str | None]]:
    return set(zip(rows[key].to_pylist(), rows[_CONTENT].to_pylist(), strict=True))
