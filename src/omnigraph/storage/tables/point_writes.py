"""Changes of a few rows: they are found by the index of their key, and changed where they are.

Lance's own upsert joins the given rows with the whole table. For a few rows it is cheaper to ask
the index where they are, to write the deletion files of their fragments, and to write the new rows
beside them. The transaction is the same.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import FragmentMetadata

from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.storage.tables.deletion_files import Put, mark_deleted
from omnigraph.storage.tables.failures import is_unsupported_filter, lance_call
from omnigraph.storage.tables.fragments import Deletions, delete_in_fragment
from omnigraph.storage.tables.table import ROW_ADDRESS, ROW_ID, Table

# Lance writes a bitmap where many rows of a fragment are deleted.
_MOST_IN_ARRAY = 4_096


def locate_rows(table: Table, key: str, values: pa.Array) -> pa.Table:
    """The rows that have one of the values: the value, ``_rowid`` and ``_rowaddr``."""
    condition = pc.field(key).isin(values)
    warm = None if table.warm is None else table.warm.matching([key], condition, row_ids=True)
    if warm is not None:
        return warm
    with lance_call("read", table.ref.path):
        try:
            return _scan(table.dataset_for(condition), key, condition)
        except (ValueError, pa.ArrowInvalid) as error:
            # Lance takes no condition on a table with columns of some types.
            if not is_unsupported_filter(error):
                raise
        rows = _scan(table.dataset, key, None)
    return rows.filter(pc.is_in(rows[key], value_set=values))


def _scan(dataset: LanceDataset, key: str, condition: pc.Expression | None) -> pa.Table:
    return dataset.scanner(
        columns=[key], filter=condition, with_row_id=True, with_row_address=True
    ).to_table()


def delete_located(put: Put, table: Table, rows: pa.Table) -> Deletions:
    """Write the deletion files that mark located rows as deleted."""
    if not rows.num_rows:
        return Deletions()
    addresses = np.sort(numpy_view(rows[ROW_ADDRESS]))
    homes, starts = np.unique(addresses >> np.uint64(32), return_index=True)
    done = []
    with lance_call("stage a delete from", table.ref.path):
        for home, some in zip(homes.tolist(), np.split(addresses, starts[1:]), strict=True):
            offsets = (some & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            metadata = table.fragment_metadata(int(home))
            if metadata.num_rows == len(some):
                # No row is left: the fragment goes.
                done.append(Deletions(len(some), removed=(metadata.id,)))
                continue
            changed = _with_deletions(put, table, metadata, offsets)
            if changed is None:
                done.append(delete_in_fragment(table.dataset.get_fragment(int(home)), some))
            else:
                done.append(Deletions(len(some), (json.dumps(changed.to_json()),)))
    return Deletions.of(done)


def _with_deletions(
    put: Put, table: Table, metadata: FragmentMetadata, offsets: np.ndarray
) -> FragmentMetadata | None:
    """The fragment with more deleted rows, or ``None`` where Lance has to write the file."""
    if metadata.deletion_file is not None:
        before = table.deleted_rows(metadata)
        if before is None:
            return None
        offsets = np.union1d(before, offsets)
    if len(offsets) > _MOST_IN_ARRAY or len(offsets) >= metadata.physical_rows:
        return None
    return mark_deleted(put, table.ref, table.version, metadata, offsets)


def row_ids_in_order(rows: pa.Table, key: str, values: pa.Array, missing: int) -> np.ndarray:
    """For each value the row id of its located row, or ``missing``."""
    numbers = pc.index_in(values, value_set=rows[key].combine_chunks())
    row_ids = rows[ROW_ID].cast(pa.int64()).combine_chunks().take(numbers)
    return numpy_view(row_ids.fill_null(pa.scalar(missing, pa.int64())))
