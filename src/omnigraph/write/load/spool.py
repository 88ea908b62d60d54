"""Decoded rows of one type, waiting to be judged and staged.

They stay in memory while they are few and go to a temporary file when they are many, so a load
of any size holds only the columns that a rule needs. Beside each row stands where it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from omnigraph.storage.tables import Data
from omnigraph.write.delta import Kind

FILE = "file~"
LINE = "line~"
_IN_MEMORY = 48 << 20


class Spool:
    """The rows of one type, in the order they came. Readable again and again once closed."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self._path = folder / f"{kind.table_key.replace(':', '-')}.arrow"
        self._rows = kind.arrow_schema()
        self._schema = pa.schema(
            [*self._rows, pa.field(FILE, pa.int32()), pa.field(LINE, pa.int64())]
        )
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._sink: pa.OSFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._total = 0
        self._kept: np.ndarray | None = None

    # -- filling -------------------------------------------------------------------------

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in; the last two columns say file and line."""
        self._total += batch.num_rows
        if self._writer is not None:
            self._writer.write_batch(batch)
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > _IN_MEMORY:
            self._sink = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_file(self._sink, self._schema)
            for waiting in self._batches:
                self._writer.write_batch(waiting)
            self._batches.clear()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def close(self) -> None:
        """No more rows come."""
        if self._writer is not None and self._sink is not None:
            self._writer.close()
            self._sink.close()
            self._sink = None

    def drop(self, rows: Sequence[int]) -> None:
        """Forget rows by their present positions; the others move up."""
        positions = self._positions()
        self._kept = np.delete(positions, np.asarray(rows, dtype=np.int64))

    def _positions(self) -> np.ndarray:
        if self._kept is None:
            return np.arange(self._total, dtype=np.int64)
        return self._kept

    # -- reading -------------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        return self._total if self._kept is None else len(self._kept)

    @property
    def names(self) -> Sequence[str]:
        return list(self._rows.names)

    def select(self, columns: Sequence[str]) -> pa.Table:
        names = list(columns)
        batches = [batch.select(names) for batch in self._all()]
        schema = pa.schema([self._schema.field(name) for name in names])
        return pa.Table.from_batches(batches, schema)

    def data(self) -> Data:
        names = self._rows.names
        if self._writer is None:
            return self.select(names)
        stream = (batch.select(names) for batch in self._all())
        return pa.RecordBatchReader.from_batches(self._rows, stream)

    def place(self, row: int) -> tuple[int, int]:
        """Which file and line a row came from."""
        position = int(self._positions()[row])
        for batch in self._stored():
            if position < batch.num_rows:
                return batch[FILE][position].as_py(), batch[LINE][position].as_py()
            position -= batch.num_rows
        raise IndexError(row)

    def _all(self) -> Iterator[pa.RecordBatch]:
        """The batches without the rows that were dropped."""
        if self._kept is None:
            yield from self._stored()
            return
        start = 0
        for batch in self._stored():
            end = start + batch.num_rows
            low, high = np.searchsorted(self._kept, [start, end])
            if high > low:
                yield batch.take(pa.array(self._kept[low:high] - start))
            start = end

    def _stored(self) -> Iterator[pa.RecordBatch]:
        if self._writer is None:
            yield from self._batches
            return
        with pa.memory_map(str(self._path)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
