"""The tables of a snapshot as a worker reads them: by version, some columns of some rows.

A node or an edge is named by the row id that its table has for it. That is a number that is there
already, and the one that searches answer with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.storage.tables.fragments import TableLocator, open_version
from omnigraph.storage.tables.table import Table
from omnigraph.topology.cache import one_array

Ints = npt.NDArray[np.int64]

ID, ROW_ID = "id", "_rowid"
# Holding all of a column of so small a table costs less than asking twice.
_SMALL = 20_000
# A larger one is held once this share of its rows was asked for, if it is not wider than this.
_SHARE = 8
_WIDEST = 64 << 20
_SAMPLE = 64


class Reader:
    """One table in one worker, while it works for one query."""

    def __init__(self, at: TableLocator) -> None:
        self._at = at
        self._row_ids: Ints | None = None
        self._held: dict[str, pa.Array] = {}
        self._asked: dict[str, int] = {}

    @cached_property
    def table(self) -> Table:
        return open_version(self._at)

    def values(self, names: Sequence[str], row_ids: Ints) -> dict[str, pa.Array]:
        """Columns of some rows."""
        held = [name for name in names if self._is_worth_holding(name, len(row_ids))]
        found: dict[str, pa.Array] = {}
        for name in held:
            column = self._column(name)
            assert self._row_ids is not None
            found[name] = column.take(pa.array(np.searchsorted(self._row_ids, row_ids)))
        rest = [name for name in names if name not in found]
        if rest:
            unique, inverse = np.unique(row_ids, return_inverse=True)
            rows = self.table.take(unique.tolist(), rest)
            places = pa.array(inverse)
            found |= {name: one_array(rows[name]).take(places) for name in rest}
        return found

    def numbered(self) -> tuple[pa.Array, Ints]:
        """All ids, and the rows that have them."""
        column = self._column(ID)
        assert self._row_ids is not None
        return column, self._row_ids

    def scan(
        self,
        columns: Sequence[str],
        condition: object | None,
        fragments: Sequence[int] | None,
    ) -> Iterator[pa.RecordBatch]:
        """Columns of the rows that a condition keeps, with their ids; of some parts or of all."""
        return self.table.scan(columns, condition, row_ids=True, fragments=fragments)

    def _is_worth_holding(self, name: str, count: int) -> bool:
        if name in self._held or self._at.rows <= _SMALL:
            return True
        asked = self._asked[name] = self._asked.get(name, 0) + count
        return asked * _SHARE > self._at.rows and self._width(name) * self._at.rows <= _WIDEST

    def _width(self, name: str) -> int:
        some = self.table.read([name], limit=_SAMPLE)
        return int(some.nbytes // max(some.num_rows, 1)) + 1

    def _column(self, name: str) -> pa.Array:
        found = self._held.get(name)
        if found is None:
            rows = self.table.read([name], row_ids=True)
            numbers = rows[ROW_ID].to_numpy().astype(np.int64)
            order = np.argsort(numbers, kind="stable")
            self._row_ids = numbers[order]
            found = self._held[name] = one_array(rows[name]).take(pa.array(order))
        return found


_last: tuple[str, dict[tuple[str, int], Reader]] = ("", {})
"""What this worker has open, for the query that it worked for last."""


def reader_of(query: str, at: TableLocator) -> Reader:
    """The reader of a table; nothing is kept from one query to the next.

    A branch that was made again may have other rows under the same version.
    """
    global _last
    if _last[0] != query:
        _last = (query, {})
    readers = _last[1]
    key = (at.uri, at.version)
    if key not in readers:
        readers[key] = Reader(at)
    return readers[key]
