"""Changes of a few rows: they are found by the index of their key, and changed where they are.

Lance's own upsert joins the given rows with the whole table. For a few rows it is cheaper to ask
the index where they are, to write the deletion files of their fragments, and to write the new rows
beside them. The transaction is the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import DeletionFile, FragmentMetadata

from omnigraph.errors import StorageCorrupt
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.failures import is_unsupported_filter, lance_call
from omnigraph.storage.tables.fragments import Deletions, delete_in_fragment
from omnigraph.storage.tables.table import ROW_ADDRESS, ROW_ID, Table
from omnigraph.storage.tables.types import TableRef

_ARRAY: Literal["array"] = "array"
# Lance writes a bitmap where many rows of a fragment are deleted.
_MOST_IN_ARRAY = 4_096
_ID_BITS = 63
_DELETED = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


def locate_rows(table: Table, key: str, values: pa.Array) -> pa.Table:
    """The rows that have one of the values: the value, ``_rowid`` and ``_rowaddr``."""
    condition = pc.field(key).isin(values)
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


def delete_located(objects: ObjectStore, table: Table, rows: pa.Table) -> Deletions:
    """Write the deletion files that mark located rows as deleted."""
    if not rows.num_rows:
        return Deletions()
    addresses = np.sort(numpy_view(rows[ROW_ADDRESS]))
    homes, starts = np.unique(addresses >> np.uint64(32), return_index=True)
    done = []
    with lance_call("stage a delete from", table.ref.path):
        for home, some in zip(homes.tolist(), np.split(addresses, starts[1:]), strict=True):
            fragment = table.dataset.get_fragment(int(home))
            offsets = (some & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            changed = _with_deletions(objects, table, fragment, offsets)
            if changed is None:
                done.append(delete_in_fragment(fragment, some))
            else:
                done.append(Deletions(len(some), (json.dumps(changed.to_json()),)))
    return Deletions.of(done)


def _with_deletions(
    objects: ObjectStore, table: Table, fragment: Any, offsets: np.ndarray
) -> FragmentMetadata | None:
    """The fragment with more deleted rows, or ``None`` where Lance has to write the file."""
    metadata: FragmentMetadata = fragment.metadata
    before = metadata.deletion_file
    if before is not None:
        if before.base_id is not None or before.file_type != _ARRAY:
            return None
        path = f"{table.ref.path}/{before.path(metadata.id)}"
        offsets = np.union1d(read_deletions(objects.read_bytes(path), path), offsets)
    if len(offsets) > _MOST_IN_ARRAY or len(offsets) >= metadata.physical_rows:
        return None
    return mark_deleted(objects, table.ref, table.version, metadata, offsets)


def mark_deleted(
    objects: ObjectStore,
    ref: TableRef,
    version: int,
    fragment: FragmentMetadata,
    offsets: Iterable[int],
) -> FragmentMetadata:
    """Write the deletion file of a fragment, in the form that Lance gives it; it is not synced."""
    rows = pa.array(offsets, pa.uint32())
    mark = DeletionFile(version, random.getrandbits(_ID_BITS), _ARRAY, len(rows), base_id=None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _DELETED) as file:
        file.write(pa.record_batch([rows], schema=_DELETED))
    path = f"{ref.path}/{mark.path(fragment.id)}"
    objects.write_bytes(path, sink.getvalue().to_pybytes())
    return replace(fragment, deletion_file=mark)


def read_deletions(raw: bytes, path: str) -> np.ndarray:
    """The offsets that a deletion file of Arrow lists."""
    try:
        with pa.ipc.open_file(pa.BufferReader(raw)) as reader:
            offsets: np.ndarray = numpy_view(reader.read_all().column(0))
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        raise StorageCorrupt(f"'{path}' is damaged", hint="restore it from a backup") from error
    return offsets


def row_ids_in_order(rows: pa.Table, key: str, values: pa.Array, missing: int) -> np.ndarray:
    """For each value the row id of its located row, or ``missing``."""
    numbers = pc.index_in(values, value_set=rows[key].combine_chunks())
    row_ids = rows[ROW_ID].cast(pa.int64()).combine_chunks().take(numbers)
    return numpy_view(row_ids.fill_null(pa.scalar(missing, pa.int64())))
