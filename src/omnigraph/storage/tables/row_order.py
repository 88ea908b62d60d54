"""The order of rows by one column, which is sorted only if it is not in order already."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.tables.types import ROW_ID


def row_ids_by(rows: pa.Table, key: str) -> pa.ChunkedArray:
    """The row ids of a table in the order of a column."""
    if _is_ascending(rows[key]):
        # The usual case for ids that are made in order.
        return rows[ROW_ID]
    # Sorting an array takes half the time of sorting the chunks of a table.
    order = pc.sort_indices(rows[key].combine_chunks())
    return rows[ROW_ID].take(order)


def _is_ascending(column: pa.ChunkedArray) -> bool:
    """Whether no value is less than the one before it; false with nulls."""
    last = None
    for chunk in column.iterchunks():
        if not len(chunk):
            continue
        if chunk.null_count or (last is not None and not pc.less_equal(last, chunk[0]).as_py()):
            return False
        if not pc.all(pc.less_equal(chunk[:-1], chunk[1:]), min_count=0).as_py():
            return False
        last = chunk[-1]
    return True
