"""The tables of a snapshot as a Spark worker reads them: by version, some columns of some rows.

Nodes and edges are named by the row ids of their tables: 64-bit numbers that exist already, and
that searches return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.sources import take_rows
from omnigraph.spark.session.failures import carrying
from omnigraph.storage.tables.fragments import TableLocator, open_version
from omnigraph.storage.tables.table import Table
from omnigraph.topology.cache import TableCache

Ints = npt.NDArray[np.int64]
Splits = tuple[tuple[int, ...] | None, ...]
"""The fragments that each task of a scan reads; none for the whole table."""
BatchWork = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ID, ROW_ID = "id", "_rowid"
LABEL = "query"
# Caching a column of so small a table costs less than reading twice from it.
_SMALL = 20_000
# A column of a larger table is cached once more than one in so many of its rows was read, unless
# it is wider than this.
_FRACTION = 8
_WIDEST = 64 << 20
_SAMPLE = 64


class WorkerTable:
    """One table in one worker, during one query."""

    def __init__(self, locator: TableLocator) -> None:
        self._locator = locator
        self._requested: dict[str, int] = {}

    @cached_property
    def table(self) -> Table:
        return open_version(self._locator)

    @cached_property
    def cache(self) -> TableCache:
        return TableCache(self.table)

    def values(self, names: Sequence[str], row_ids: Ints) -> dict[str, pa.Array]:
        """Columns of some rows."""
        cached = [name for name in names if self._is_worth_caching(name, len(row_ids))]
        columns: dict[str, pa.Array] = {}
        if cached:
            positions = pa.array(self.cache.positions(row_ids))
            columns = {name: self.cache.column(name).take(positions) for name in cached}
        rest = [name for name in names if name not in columns]
        return columns | take_rows(self.table, row_ids, rest) if rest else columns

    def scan_splits(
        self,
        batches: Iterable[pa.RecordBatch],
        splits: Splits,
        columns: Sequence[str],
        condition: Any = None,
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """For each split whose number is in the input: its rows, with their row ids."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self.table.scan(columns, condition, row_ids=True, fragments=splits[number])

    def _is_worth_caching(self, name: str, count: int) -> bool:
        rows = self._locator.rows
        if rows <= _SMALL or self.cache.has(name):
            return True
        requested = self._requested[name] = self._requested.get(name, 0) + count
        return requested * _FRACTION > rows and self._width(name) * rows <= _WIDEST

    def _width(self, name: str) -> int:
        sample = self.table.read([name], limit=_SAMPLE)
        return int(sample.nbytes // max(sample.num_rows, 1)) + 1


_last: tuple[str, dict[tuple[str, int], WorkerTable]] = ("", {})
"""The tables that this worker opened for its last query."""


def worker_table(query: str, locator: TableLocator) -> WorkerTable:
    """A table, opened once in a query.

    Nothing is kept for the next query: a recreated branch may have other rows under the same
    version.
    """
    global _last
    if _last[0] != query:
        _last = (query, {})
    tables = _last[1]
    key = (locator.uri, locator.version)
    if key not in tables:
        tables[key] = WorkerTable(locator)
    return tables[key]


def row_ids_of(batch: pa.RecordBatch | pa.Table) -> Ints:
    """The row ids of scanned rows."""
    row_ids: Ints = batch[ROW_ID].to_numpy().astype(np.int64)
    return row_ids


def task_function(run: BatchWork) -> BatchWork:
    """A function for ``mapInArrow`` whose typed errors reach the driver."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(batches)

    return carrying(work, LABEL)
