"""Where the files of a staged write are written: to the store, or locally and then uploaded.

On S3 a change of a few rows is staged locally, together with the version that it becomes; see
``next_version``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
from lance import Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import OmniGraphError
from omnigraph.storage.objects.uploads import Upload
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.next_version import LocalCopy, NextVersion
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import (
    ROWS_PER_FRAGMENT,
    RowCounts,
    StagedTable,
    TableChange,
    staged_table,
)
from omnigraph.storage.tables.warm_rows import WarmRows
from omnigraph.storage.tables.wide_columns import is_stored_blob, stored_data

_MOST_BYTES = 1 << 20
"""More bytes than this are written by Lance, in pieces."""


class Stage(Protocol):
    """Writes the files of one staged write."""

    def put(self, path: str, data: bytes) -> None:
        """Write a new file, by its path relative to the root."""

    def write(self, data: Any) -> list[FragmentMetadata]:
        """Write rows to new data files."""

    def staged(
        self, change: TableChange, transaction: Transaction, counts: RowCounts
    ) -> StagedTable:
        """The staged write."""


class StoreStage:
    """Lance writes to the store."""

    def __init__(self, datasets: Datasets, table: Table) -> None:
        self._datasets = datasets
        self._table = table

    def put(self, path: str, data: bytes) -> None:
        self._datasets.objects.write_bytes(path, data)

    def write(self, data: Any) -> list[FragmentMetadata]:
        written: list[FragmentMetadata] = write_fragments(
            stored_data(data),
            self._table.dataset,
            mode="append",
            max_rows_per_file=ROWS_PER_FRAGMENT,
            storage_options=self._datasets.options,
        )
        return written

    def staged(
        self, change: TableChange, transaction: Transaction, counts: RowCounts
    ) -> StagedTable:
        return staged_table(self._table, change, transaction, **counts)


class LocalStage:
    """Lance writes to a local copy, and the files are uploaded at the same time."""

    def __init__(self, datasets: Datasets, table: Table, copy: LocalCopy, warm: WarmRows) -> None:
        self._datasets = datasets
        self._table = table
        self._copy = copy
        self._warm = warm

    def put(self, path: str, data: bytes) -> None:
        self._copy.put(path, data)

    def write(self, data: Any) -> list[FragmentMetadata]:
        stored = stored_data(data)
        fragments = self._copy.write(stored, ROWS_PER_FRAGMENT)
        if len(fragments) == 1 and isinstance(stored, pa.Table):
            table = self._table
            self._warm.note_rows(fragments[0], dict(table.layout), table.schema, stored)
        return fragments

    def staged(
        self, change: TableChange, transaction: Transaction, counts: RowCounts
    ) -> StagedTable:
        built: NextVersion | None = None
        try:
            built = self._copy.commit(transaction)
        except OmniGraphError:
            # Lance needs more than the version file: it commits in the store.
            built = None
        files = self._copy.new_files()
        self._warm.note_deletion_files(files)
        return replace(
            staged_table(self._table, change, transaction, **counts),
            upload=Upload(self._datasets.objects, files),
            built=built,
        )


@contextmanager
def open_stage(datasets: Datasets, table: Table, *data: Any) -> Iterator[Stage]:
    """A stage for a change of a table; ``data`` are the rows that it writes."""
    versions, warm = datasets.next_versions, datasets.warm_rows
    if versions is None or warm is None or not _is_small(table, data):
        yield StoreStage(datasets, table)
        return
    with versions.copy(table.ref, table.version, table.e_tag) as copy:
        if copy is None:
            yield StoreStage(datasets, table)
        else:
            yield LocalStage(datasets, table, copy, warm)


def _is_small(table: Table, data: Sequence[Any]) -> bool:
    return not any(map(is_stored_blob, table.schema)) and all(
        isinstance(rows, pa.Table) and rows.nbytes <= _MOST_BYTES for rows in data
    )
