"""Upserts of more rows than fit into memory.

Lance holds the rows of an upsert in memory while it writes them. Here they are streamed instead,
and the rows they replace are deleted in the same transaction. The result is that of Lance's own
upsert: a replaced row keeps its row id, and with it its created-at version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.errors import InternalError
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.records import dataclass
from omnigraph.storage.tables.table import Table

NEW = -1
_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class Replacement:
    """Replacement rows: their values, their keys, and the ids of the rows they replace."""

    rows: pa.RecordBatchReader
    keys: pa.Array
    row_ids: np.ndarray


def row_ids_of(table: Table, key: str, values: pa.Array) -> np.ndarray:
    """For each value the id of the row that has it, ``NEW`` if there is none."""
    row_ids = np.full(len(values), NEW, dtype=np.int64)
    for rows in coalesce_batches(table.scan([key], row_ids=True), len(values)):
        positions = pc.index_in(rows[key], value_set=values)
        hits = rows["_rowid"].filter(positions.is_valid())
        row_ids[numpy_view(positions.drop_null())] = numpy_view(hits)
    return row_ids


def coalesce_batches(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Batches merged into tables of about ``rows`` rows, because every lookup has a fixed cost."""
    pending: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        pending.append(batch)
        count += batch.num_rows
        if count >= max(rows, _AT_ONCE):
            yield pa.Table.from_batches(pending)
            pending, count = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def keep_row_ids(fragments: Sequence[FragmentMetadata], row_ids: np.ndarray) -> None:
    """Give the rows of new fragments the row ids of the rows they replace, in written order."""
    if sum(fragment.physical_rows for fragment in fragments) != len(row_ids):
        raise InternalError("the number of written rows differs from the number of rows to replace")
    start = 0
    for fragment in fragments:
        end = start + fragment.physical_rows
        fragment.row_id_meta = RowIdSequence(row_ids[start:end].tolist()).to_inline_metadata()
        start = end
