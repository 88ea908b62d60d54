"""Staged writes: what a transaction of Lance adds to a table, as a ``StagedTable``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lance import Transaction
from lance.dataset import Index

from omnigraph.storage.checksums import Sums
from omnigraph.storage.lance_format.files import NewFile
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import StagedTable, TableChange


def staged_table(
    table: Table,
    change: TableChange,
    transaction: Transaction,
    *,
    base: int | None = None,
    inserted: int = 0,
    updated: int = 0,
    deleted: int = 0,
    sums: Sums | None = None,
) -> StagedTable:
    """A staged write to a table, with the files that its transaction names as new.

    ``base`` is the version that it has to follow, if not that of the table.
    """
    return StagedTable(
        table.ref,
        change,
        table.version if base is None else base,
        str(transaction.uuid),
        inserted,
        updated,
        deleted,
        tuple(new_files(transaction.operation)),
        sums or {},
        transaction,
    )


def is_blob_folder(file: NewFile) -> bool:
    """Whether a pattern matches the blobs beside a data file."""
    return file.name.startswith("data/") and file.name.endswith("/*")


def new_files(operation: Any) -> Iterator[NewFile]:
    """The files that a write added to its own copy of a table."""
    for group in (operation, *(getattr(operation, "groups", None) or ())):
        for name in ("fragments", "new_fragments"):
            for fragment in getattr(group, name, None) or ():
                for data in fragment.files:
                    if data.base_id is None:
                        yield NewFile(f"data/{data.path}", data.file_size_bytes)
                        # Large blobs lie in a directory of their own beside the data file.
                        yield NewFile(f"data/{data.path.removesuffix('.lance')}/*")
    rewritten = set(getattr(operation, "fields_modified", None) or ())
    for fragment in getattr(operation, "updated_fragments", None) or ():
        marks = fragment.deletion_file
        if marks is not None and marks.base_id is None:
            yield NewFile(marks.path(fragment.id), deleted=marks.num_deleted_rows)
        # Columns that were replaced lie in files of their own.
        for data in fragment.files:
            if data.base_id is None and rewritten.intersection(data.fields):
                yield NewFile(f"data/{data.path}", data.file_size_bytes)
    for index in getattr(operation, "new_indices", None) or ():
        yield from _index_files(index)


def _index_files(index: Index) -> Iterator[NewFile]:
    folder = f"_indices/{index.uuid}"
    if index.files:
        yield from (NewFile(f"{folder}/{file.path}", file.size_bytes) for file in index.files)
    else:
        yield NewFile(f"{folder}/*")
