"""Writes results batch by batch: the rows that are written are forgotten."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from omnigraph.result.result import Result

Write: TypeAlias = Callable[[bytes], Any]
_GROUP_ROWS = 65_536
_GROUP_BYTES = 16 << 20


def write_arrow(result: Result, write: Write) -> int:
    """Write all rows as an Arrow IPC stream; returns their number."""
    count = 0
    with pa.ipc.new_stream(FunctionSink(write), result.schema) as writer:
        for batch in result._stream.take():
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def write_parquet(result: Result, write: Write) -> int:
    """Write all rows as a Parquet file; returns their number."""
    import pyarrow.parquet as pq

    count = 0
    with pq.ParquetWriter(pa.PythonFile(FunctionSink(write), "w"), result.schema) as writer:
        for group in _row_groups(result._stream.take(), result.schema):
            writer.write_table(group, row_group_size=_GROUP_ROWS)
            count += group.num_rows
    return count


def _row_groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The batches, combined to groups that are worth their overhead."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(group, schema)
            group, rows, size = [], 0, 0
    if group:
        yield pa.Table.from_batches(group, schema)


class FunctionSink(io.RawIOBase):
    """Adapts a write function to the file interface that Arrow requires."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        self._write(bytes(data))
        self._size += len(data)
        return len(data)
