"""Holds decoded rows of one type until they are validated and staged.

Few rows stay in memory. Many are written as fragments of their table by another thread, or to a
temporary file where that cannot be, so a load of any size keeps only the columns that a rule needs
in memory. Each row has its source line.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import StorageFull
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.storage.objects.failures import translate
from omnigraph.storage.tables.store import Data
from omnigraph.write.fragments import FragmentRows
from omnigraph.write.load.direct import DirectWrites, FragmentWriter

SOURCE_LINE = "source_line~"
_IN_MEMORY = 64 << 20
# Above it, rows are written to their table while more are read.
_DIRECT = 8 << 20
_DESCRIPTORS = Path("/proc/self/fd")
"""Opens files that have no name any more, where the system has it."""


def spooled_schema(entity_type: EntityType) -> pa.Schema:
    """The columns of a type, and the source line of each row."""
    return pa.schema([*entity_type.arrow_schema(), pa.field(SOURCE_LINE, pa.int64())])


class Budget:
    """The memory limit of all spools of one load."""

    def __init__(self, limit: int | None = None) -> None:
        self._left = _IN_MEMORY if limit is None else limit

    def take(self, size: int) -> bool:
        """Reserve ``size`` bytes; returns whether they fit."""
        self._left -= size
        return self._left >= 0

    def give_back(self, size: int) -> None:
        self._left += size


class Spool:
    """The rows of one type, in the order of the input. Readable many times once closed."""

    is_judged = True

    def __init__(
        self,
        entity_type: EntityType,
        folder: Path,
        budget: Budget,
        direct: DirectWrites | None = None,
    ) -> None:
        """With ``direct``, many rows are written to their table instead of a temporary file."""
        self.entity_type = entity_type
        self._direct = direct
        self._fragments: FragmentWriter | None = None
        self._path = folder / f"{entity_type.table_key.replace(':', '-')}.arrow"
        self._budget = budget
        self._rows = entity_type.arrow_schema()
        self.schema = spooled_schema(entity_type)
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._counts: list[int] = []
        self._sink: pa.OSFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._total = 0
        self._left: np.ndarray | None = None

    # -- filling -------------------------------------------------------------------------

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; the last column is their source line."""
        if self._fragments is not None:
            self._fragments.add(batch)
            return
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
        elif self._direct is not None and self._bytes > _DIRECT:
            self._write_directly(self._direct)

    def _write_directly(self, direct: DirectWrites) -> None:
        """Write all rows as fragments from now on, if the type allows it."""
        self._direct = None
        if not FragmentWriter.fits(self._total, self._bytes) or not direct.takes(self.entity_type):
            return
        self._fragments = direct.open(self.entity_type)
        for batch in self._batches:
            self._fragments.add(batch)
        self._batches.clear()
        self._budget.give_back(self._bytes)

    def _spill(self) -> None:
        with temporary_files():
            self._sink = pa.OSFile(str(self._path), "wb")
            self._forget_name()
            self._writer = pa.ipc.new_file(self._sink, self.schema)
            for batch in self._batches:
                self._writer.write_batch(batch)
        self._batches.clear()
        self._budget.give_back(self._bytes)

    def _forget_name(self) -> None:
        """Remove the name of the file, so that it goes with this process however that ends."""
        if not _DESCRIPTORS.is_dir():
            return
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, descriptor)
        self._path.unlink()
        self._path = _DESCRIPTORS / str(descriptor)

    def close(self) -> None:
        """End the input."""
        if self._writer is not None and self._sink is not None:
            with temporary_files():
                self._writer.close()
                self._sink.close()
            self._sink = None

    def rows(self) -> Spool | FragmentRows:
        """The rows after the end of the input, wherever they are."""
        return self if self._fragments is None else self._fragments.close()

    @property
    def is_large(self) -> bool:
        return self._writer is not None

    def drop(self, rows: Sequence[int]) -> None:
        """Drop rows by their present positions; the others move up."""
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

    def distinct(self, column: str) -> pa.Array:
        return pc.unique(self.select([column])[column])

    def data(self) -> Data:
        names = self._rows.names
        if not self.is_large:
            return self.select(names)
        return self.rows_at(np.arange(self.num_rows))

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        wanted = self._positions()[positions]
        return pa.RecordBatchReader.from_batches(self._rows, self._streamed(wanted))

    def source_lines(self, rows: Sequence[int]) -> list[int]:
        """The source lines of rows."""
        wanted = self._positions()[np.asarray(rows, dtype=np.int64)]
        lines = np.zeros(len(wanted), dtype=np.int64)
        start = 0
        for batch in self._columns([SOURCE_LINE]):
            here = (wanted >= start) & (wanted < start + batch.num_rows)
            lines[here] = numpy_view(batch[SOURCE_LINE])[wanted[here] - start]
            start += batch.num_rows
        return [int(number) for number in lines]

    def _kept(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Some columns without the dropped rows."""
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
        """Rows by their numbers in the file; batches without any are not read."""
        # Not mapped: pages of a mapped file would count as memory of this process.
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
        """Some columns of all batches, without reading the others."""
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

    def __init__(self, folder: Path, direct: DirectWrites | None = None) -> None:
        self._folder = folder
        self._direct = direct
        self._budget = Budget()
        self._open: dict[str, Spool] = {}

    def open(self, entity_type: EntityType) -> Spool:
        """The spool of a type."""
        return self._open.setdefault(
            entity_type.table_key, Spool(entity_type, self._folder, self._budget, self._direct)
        )

    def close(self) -> dict[str, Spool | FragmentRows]:
        """End the input; returns the rows of all types by table key."""
        for spool in self._open.values():
            spool.close()
        return {key: self._open[key].rows() for key in sorted(self._open)}


@contextmanager
def temporary_files() -> Iterator[None]:
    """Translate failures of the temporary directory."""
    try:
        yield
    except OSError as error:
        failure = translate(error, "use", "the temporary directory")
        if isinstance(failure, StorageFull):
            failure = StorageFull(
                "the temporary directory has no room for the rows of the load",
                hint="free some space, or set TMPDIR to another directory",
            )
        raise failure from error
