"""Decoded rows of one type, waiting to be judged and staged.

They stay in memory while they are few and go to a temporary file when they are many, so a load
of any size holds only the columns that a rule needs. Beside each row stands where it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from omnigraph.errors import StorageFull
from omnigraph.storage.tables import Data
from omnigraph.write.delta import Kind

PLACE = "place~"
_IN_MEMORY = 64 << 20


class Budget:
    """How much the spools of one load may hold in memory together."""

    def __init__(self, limit: int = _IN_MEMORY) -> None:
        self._left = limit

    def take(self, size: int) -> bool:
        """Whether so much more may be held."""
        self._left -= size
        return self._left >= 0

    def give_back(self, size: int) -> None:
        self._left += size


class Spool:
    """The rows of one type, in the order they came. Readable again and again once closed."""

    def __init__(self, kind: Kind, folder: Path, budget: Budget) -> None:
        self.kind = kind
        self._path = folder / f"{kind.table_key.replace(':', '-')}.arrow"
        self._budget = budget
        self._rows = kind.arrow_schema()
        self.schema = pa.schema([*self._rows, pa.field(PLACE, pa.int64())])
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._sink: pa.OSFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._total = 0
        self._kept: np.ndarray | None = None

    # -- filling -------------------------------------------------------------------------

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in; the last column says file and line."""
        self._total += batch.num_rows
        if self._writer is not None:
            with _room():
                self._writer.write_batch(batch)
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if not self._budget.take(batch.nbytes):
            self._spill()

    def _spill(self) -> None:
        with _room():
            self._sink = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_file(self._sink, self.schema)
            for waiting in self._batches:
                self._writer.write_batch(waiting)
        self._batches.clear()
        self._budget.give_back(self._bytes)

    def close(self) -> None:
        """No more rows come."""
        if self._writer is not None and self._sink is not None:
            with _room():
                self._writer.close()
                self._sink.close()
            self._sink = None

    @property
    def is_on_disk(self) -> bool:
        return self._writer is not None

    def drop(self, rows: Sequence[int]) -> None:
        """Forget rows by their present positions; the others move up."""
        self._kept = np.delete(self._positions(), np.asarray(rows, dtype=np.int64))

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
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.Table.from_batches(self._all(names), schema)

    def data(self) -> Data:
        names = self._rows.names
        if not self.is_on_disk:
            return self.select(names)
        return pa.RecordBatchReader.from_batches(self._rows, self._all(names))

    def places(self, rows: Sequence[int]) -> list[int]:
        """Where rows came from."""
        wanted = self._positions()[np.asarray(rows, dtype=np.int64)]
        found = np.zeros(len(wanted), dtype=np.int64)
        start = 0
        for batch in self._stored([PLACE]):
            here = (wanted >= start) & (wanted < start + batch.num_rows)
            found[here] = batch[PLACE].to_numpy()[wanted[here] - start]
            start += batch.num_rows
        return [int(number) for number in found]

    def _all(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Columns of the batches without the rows that were dropped."""
        if self._kept is None:
            yield from self._stored(names)
            return
        start = 0
        for batch in self._stored(names):
            end = start + batch.num_rows
            low, high = np.searchsorted(self._kept, [start, end])
            if high > low:
                yield batch.take(pa.array(self._kept[low:high] - start))
            start = end

    def _stored(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        if not self.is_on_disk:
            for batch in self._batches:
                yield batch.select(names)
            return
        # Read, not mapped: pages of a mapped file would count as memory of this process.
        wanted = sorted(self.schema.get_field_index(name) for name in names)
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        with pa.OSFile(str(self._path)) as source:
            reader = pa.ipc.open_file(source, options=options)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).select(names)


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFull(
            "the temporary directory has no room for the rows of the load",
            hint="make room there, or set TMPDIR to another place",
        ) from error
