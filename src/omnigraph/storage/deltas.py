"""What changed in a table since an earlier version of the same history.

Lance keeps with every row when it was made and last changed, and finds what is gone by the marks
of deletion; parts of a table that did not change are not read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.storage.blobs import is_blob
from omnigraph.storage.lance_failures import lance_call
from omnigraph.storage.table import Table

ROW_ID = "_rowid"
_CREATED = "_row_created_at_version"


@dataclass(frozen=True, slots=True)
class Touched:
    """Rows by their row ids, which stay the same along a history."""

    rows: pa.Table
    """The new and changed rows as they are now, and ``_rowid``."""
    created: np.ndarray
    """The row ids of those that are new."""


def touched_since(table: Table, version: int, schema: pa.Schema) -> Touched:
    """The rows of a table that were made or changed after a version."""
    dataset = table._dataset
    with lance_call("compare versions of", table.ref.path):
        delta = dataset.delta(compared_against=version)
        new = delta.get_inserted_rows().read_all()
        changed = delta.get_updated_rows().read_all()
    rows = pa.concat_tables([new, changed])
    row_ids = rows[ROW_ID].to_numpy().astype(np.int64)
    created = new[ROW_ID].to_numpy().astype(np.int64)
    return Touched(_whole(table, rows, row_ids, schema), created)


def gone_since(table: Table, version: int) -> np.ndarray:
    """The row ids of rows that an earlier version has and this one has not."""
    with lance_call("compare versions of", table.ref.path):
        delta = table._dataset.delta(compared_against=version)
        found = [batch.column(0).to_numpy() for batch in delta.get_deleted_row_ids()]
    return np.concatenate([np.empty(0, np.int64), *found]).astype(np.int64)


def rows_of(table: Table, row_ids: np.ndarray, schema: pa.Schema) -> pa.Table:
    """All columns of some rows, and ``_rowid``; columns that the table has not are null."""
    numbers = row_ids.astype(np.int64)
    known = [name for name in _plain(schema) if name in table.schema.names]
    if not len(numbers):
        return _whole(table, table.read(known, limit=0), numbers, schema)
    return _whole(table, table.take(numbers.tolist(), known), numbers, schema)


def all_rows(table: Table, schema: pa.Schema) -> pa.Table:
    """Every row in all columns, and ``_rowid``."""
    known = [name for name in _plain(schema) if name in table.schema.names]
    rows = table.read(known, row_ids=True)
    return _whole(table, rows, rows[ROW_ID].to_numpy().astype(np.int64), schema)


def _plain(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if not is_blob(field)]


def _whole(table: Table, rows: pa.Table, row_ids: np.ndarray, schema: pa.Schema) -> pa.Table:
    """Rows under a schema, with what it says and they lack: blobs as bytes, nulls for others."""
    columns = []
    there = set(table.schema.names)
    for field in schema:
        if field.name not in there:
            columns.append(pa.chunked_array([pa.nulls(len(row_ids), field.type)]))
        elif is_blob(field):
            columns.append(pa.chunked_array([table._blobs(field.name, row_ids.tolist())]))
        else:
            columns.append(rows[field.name].cast(field.type))
    loose = [field.with_nullable(True) for field in schema]
    fields = [*loose, pa.field(ROW_ID, pa.int64())]
    return pa.Table.from_arrays([*columns, pa.array(row_ids)], schema=pa.schema(fields))
