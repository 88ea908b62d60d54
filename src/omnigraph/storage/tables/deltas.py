"""The rows of a table that changed since an earlier version of the same history.

Lance stores with every row the versions that created and last updated it. Deleted rows are found
through deletion files. Unchanged fragments are not read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.records import dataclass
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.fragments import Deletions, delete_in_fragment
from omnigraph.storage.tables.table import ROW_ADDRESS, ROW_ID, Table, fragments_of
from omnigraph.storage.tables.wide_columns import batch_rows, is_blob, null_column

_MOST_IDS = 20_000


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows by their row ids, which are stable along a history."""

    rows: pa.Table
    """The current content of the new and changed rows, and ``_rowid``."""
    created: np.ndarray
    """The row ids of the new rows."""


def changed_since(
    table: Table, version: int, schema: pa.Schema, names: Mapping[str, str]
) -> ChangedRows:
    """The rows of a table that were created or updated after a version.

    ``names`` maps the columns of the schema to those of the table; missing ones are left out.
    """
    dataset = table.dataset
    with lance_call("compare versions of", table.ref.path):
        delta = dataset.delta(compared_against=version)
        new = delta.get_inserted_rows().read_all()
        changed = delta.get_updated_rows().read_all()
    rows = pa.concat_tables([new, changed])
    row_ids = numpy_view(rows[ROW_ID]).astype(np.int64)
    created = numpy_view(new[ROW_ID]).astype(np.int64)
    return ChangedRows(_whole(table, rows, row_ids, schema, names), created)


def deleted_since(table: Table, version: int) -> np.ndarray:
    """The row ids that an earlier version has and this one does not."""
    with lance_call("compare versions of", table.ref.path):
        delta = table.dataset.delta(compared_against=version)
        batches = [numpy_view(batch.column(0)) for batch in delta.get_deleted_row_ids()]
    return np.concatenate([np.empty(0, np.int64), *batches]).astype(np.int64)


def rows_of(
    table: Table,
    row_ids: np.ndarray,
    schema: pa.Schema,
    later: Table | None,
    names: Mapping[str, str],
) -> pa.Table:
    """Columns of some rows, and ``_rowid``; columns missing in the table are null.

    If ``later`` has updated or deleted all of them, only fragments that differ from it are read.
    """
    columns = _plain(schema, names)
    if not len(row_ids):
        return _whole(table, table.read(columns, limit=0), row_ids, schema, names)
    numbers = None
    if later is not None:
        same = {fragment.signature for fragment in later.fragments()}
        numbers = [
            fragment.number for fragment in table.fragments() if fragment.signature not in same
        ]
    rows = find_rows(table, row_ids, columns, numbers)
    if rows.num_rows != len(row_ids):
        raise InternalError(f"changed rows of '{table.ref.path}' are missing")
    return _whole(table, rows, numpy_view(rows[ROW_ID]).astype(np.int64), schema, names)


def find_rows(
    table: Table, row_ids: np.ndarray, columns: list[str], fragments: list[int] | None = None
) -> pa.Table:
    """Columns of the rows that exist among ``row_ids``, with ``_rowid`` and ``_rowaddr``.

    Uses a filter, which Lance evaluates on the metadata of each fragment: a take by row id would
    first enumerate every row of the table.
    """
    dataset = table.dataset
    with lance_call("read", table.ref.path):
        # The ids come from Lance, so they are safe in SQL. For many ids a full scan is faster.
        few = len(row_ids) <= _MOST_IDS
        rows = dataset.scanner(
            columns=columns,
            filter=f"{ROW_ID} IN ({', '.join(map(str, row_ids.tolist()))})" if few else None,
            fragments=None if fragments is None else fragments_of(dataset, fragments),
            with_row_id=True,
            with_row_address=True,
            batch_size=batch_rows(dataset.schema, columns),
        ).to_table()
    return rows if few else rows.filter(pc.is_in(rows[ROW_ID], pa.array(row_ids, pa.uint64())))


def delete_rows(table: Table, row_ids: np.ndarray) -> Deletions | None:
    """Write deletion files for rows, uncommitted; ``None`` if one of the rows does not exist."""
    rows = find_rows(table, row_ids, [])
    if rows.num_rows != len(row_ids):
        return None
    addresses = np.sort(numpy_view(rows[ROW_ADDRESS]))
    homes, starts = np.unique(addresses >> np.uint64(32), return_index=True)
    with lance_call("stage a delete from", table.ref.path):
        fragments = {fragment.fragment_id: fragment for fragment in table.dataset.get_fragments()}
        return Deletions.of(
            delete_in_fragment(fragments[int(home)], some)
            for home, some in zip(homes, np.split(addresses, starts[1:]), strict=True)
        )


def all_rows(table: Table, schema: pa.Schema, names: Mapping[str, str]) -> pa.Table:
    """All rows with all columns, and ``_rowid``."""
    rows = table.read(_plain(schema, names), row_ids=True)
    return _whole(table, rows, numpy_view(rows[ROW_ID]).astype(np.int64), schema, names)


def rows_where(table: Table, condition: pc.Expression | None) -> np.ndarray:
    """The row ids of the rows that match a condition."""
    row_ids: np.ndarray = numpy_view(table.read([], condition, row_ids=True)[ROW_ID])
    return row_ids.astype(np.int64)


def column_names(table: Table, schema: pa.Schema, like: Table | None = None) -> dict[str, str]:
    """The names of the columns of a schema in a table; missing columns are left out.

    ``like`` is a version of the table in which the columns have the names of the schema.
    """
    there = dict(table.layout)
    names = {number: name for name, number in table.layout}
    numbers = dict((table if like is None else like).layout)
    taken = set(numbers.values())
    columns = {}
    for name in schema.names:
        if numbers.get(name) in names:
            columns[name] = names[numbers[name]]
        elif name in there and there[name] not in taken:
            # A column of another type is a new one with the old name.
            columns[name] = name
    return columns


def _plain(schema: pa.Schema, names: Mapping[str, str]) -> list[str]:
    return [names[field.name] for field in schema if field.name in names and not is_blob(field)]


def _whole(
    table: Table, rows: pa.Table, row_ids: np.ndarray, schema: pa.Schema, names: Mapping[str, str]
) -> pa.Table:
    """Rows under a schema: blobs as bytes, nulls for missing columns."""
    columns = []
    for field in schema:
        name = names.get(field.name)
        if name is None:
            columns.append(null_column(len(row_ids), field.type))
        elif is_blob(field):
            columns.append(pa.chunked_array([table.read_blobs(name, row_ids.tolist())]))
        else:
            columns.append(rows[name].cast(field.type))
    loose = [field.with_nullable(True) for field in schema]
    fields = [*loose, pa.field(ROW_ID, pa.int64())]
    return pa.Table.from_arrays([*columns, pa.array(row_ids)], schema=pa.schema(fields))
