"""Finding rows of a table by the values of one column.

By an index if there are few values, in one scan of the needed columns if there are many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.upserts import coalesce_batches

# Up to _FEW keys an index is as fast as a scan of a small table; up to _MANY only if there are
# many rows for each key.
_FEW, _MANY = 100, 1_000
_ROWS_PER_KEY = 200
_SAMPLE = 16


def any_present(table: Table, ids: pa.Array) -> bool:
    """Whether one of the ids has a row in a table; for many ids a sample is tried first."""
    if len(ids) > _FEW:
        some = np.linspace(0, len(ids) - 1, _SAMPLE).astype(np.int64)
        if any_present(table, ids.take(pa.array(some))):
            return True
    return bool(look_up(table, KEY, ids, [KEY]).num_rows)


def look_up(table: Table, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
    """Some columns of the rows that have one of the values."""
    wanted = pc.unique(values).drop_null()
    names = list(dict.fromkeys((*columns, column)))
    if not len(wanted):
        return table.read(columns, limit=0)
    keys = len(wanted)
    if keys <= _FEW or (keys <= _MANY and table.count() > keys * _ROWS_PER_KEY):
        return table.read(names, pc.field(column).isin(wanted)).select(list(columns))
    matches = [
        rows.filter(pc.is_in(rows[column], value_set=wanted))
        for rows in coalesce_batches(table.scan(names), keys)
    ]
    if not matches:
        return table.read(columns, limit=0)
    return pa.concat_tables(matches).select(list(columns))
