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
from omnigraph.storage.objects.failures import translate
from omnigraph.storage.tables.store import Data
from omnigraph.write.delta import Kind

PLACE = "place~"
_IN_MEMORY = 64 << 20


def spooled_schema(kind: Kind) -> pa.Schema:
    """The columns of a type, and behind them where each row came from."""
    return pa.schema([*kind.arrow_schema(), pa.field(PLACE, pa.int64())])


class Budget:
    """How much the spools of one load may hold in memory together."""

    def __init__(self, limit: int | None = None) -> None:
        self._left = _IN_MEMORY if limit is None else limit

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
        self.schema = spooled_schema(kind)
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._counts: list[int] = []
        self._sink: pa.OSFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._total = 0
        self._left: np.ndarray | None = None

    # -- filling -------------------------------------------------------------------------

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in; the last column says file and line."""
        self._total += batch.num_rows
        self._counts.append(batch.num_rows)
        if self._writer is not None:
            with temporary_files():
                self._writer.write_batch(batch)
            return
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if not self._budget.take(batch.nbytes):
            self._spill()

    def _spill(self) -> None:
        with temporary_files():
            self._sink = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_file(self._sink, self.schema)
            for waiting in self._batches:
                self._writer.write_batch(waiting)
        self._batches.clear()
        self._budget.give_back(self._bytes)

    def close(self) -> None:
        """No more rows come."""
        if self._writer is not None and self._sink is not None:
            with temporary_files():
                self._writer.close()
                self._sink.close()
            self._sink = None

    @property
    def is_large(self) -> bool:
        return self._writer is not None

    @property
    def is_judged(self) -> bool:
        return True

    def drop(self, rows: Sequence[int]) -> None:
        """Forget rows by their present positions; the others move up."""
        self._left = np.delete(self._positions(), np.asarray(rows, dtype=np.int64))

    def _positions(self) -> np.ndarray:
        if self._left is None:
            return np.arange(self._total, dtype=np.int64)
        return self._left

    # -- reading -------------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        return self._total if self._left is None else len(self._left)

    @property
    def names(self) -> Sequence[str]:
        return list(self._rows.names)

    def select(self, columns: Sequence[str]) -> pa.Table:
        names = list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.Table.from_batches(self._kept(names), schema)

    def data(self) -> Data:
        names = self._rows.names
        if not self.is_large:
            return self.select(names)
        return self.rows_at(np.arange(self.num_rows))

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        wanted = self._positions()[positions]
        return pa.RecordBatchReader.from_batches(self._rows, self._streamed(wanted))

    def places(self, rows: Sequence[int]) -> list[int]:
        """Where rows came from."""
        wanted = self._positions()[np.asarray(rows, dtype=np.int64)]
        found = np.zeros(len(wanted), dtype=np.int64)
        start = 0
        for batch in self._columns([PLACE]):
            here = (wanted >= start) & (wanted < start + batch.num_rows)
            found[here] = batch[PLACE].to_numpy()[wanted[here] - start]
            start += batch.num_rows
        return [int(number) for number in found]

    def _kept(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Some columns without the rows that were dropped."""
        start = 0
        for batch in self._columns(names):
            if self._left is None:
                yield batch
                continue
            end = start + batch.num_rows
            low, high = np.searchsorted(self._left, [start, end])
            if high > low:
                yield batch.take(pa.array(self._left[low:high] - start))
            start = end

    def _streamed(self, wanted: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Rows by where they stand in the file; batches that have none are passed over."""
        # Read, not mapped: pages of a mapped file would count as memory of this process.
        with temporary_files(), pa.OSFile(str(self._path)) as source:
            reader = pa.ipc.open_file(source)
            start = 0
            for number, rows in enumerate(self._counts):
                low, high = np.searchsorted(wanted, [start, start + rows])
                if high > low:
                    batch = reader.get_batch(number).select(self._rows.names)
                    some = pa.array(wanted[low:high] - start)
                    yield batch if high - low == rows else batch.take(some)
                start += rows

    def _columns(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all batches, without a look at the others."""
        if not self.is_large:
            for batch in self._batches:
                yield batch.select(names)
            return
        with temporary_files(), pa.memory_map(str(self._path)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number).select(names)
                copied = [pa.concat_arrays([column]) for column in batch.columns]
                yield pa.RecordBatch.from_arrays(copied, schema=batch.schema)


class Spools:
    """One spool for each type of a load."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._budget = Budget()
        self._open: dict[str, Spool] = {}

    def open(self, kind: Kind) -> Spool:
        """The spool of a type that appears."""
        return self._open.setdefault(kind.table_key, Spool(kind, self._folder, self._budget))

    def close(self) -> dict[str, Spool]:
        """All of them by the keys of their tables, when no more rows come."""
        for spool in self._open.values():
            spool.close()
        return {key: self._open[key] for key in sorted(self._open)}


@contextmanager
def temporary_files() -> Iterator[None]:
    """Turn failures of the temporary directory into our errors."""
    try:
        yield
    except OSError as error:
        failure = translate(error, "use", "the temporary directory")
        if isinstance(failure, StorageFull):
            failure = StorageFull(
                "the temporary directory has no room for the rows of the load",
                hint="make room there, or set TMPDIR to another place",
            )
        raise failure from error
