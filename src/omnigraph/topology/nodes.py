"""The nodes of one version of a table: their numbers and the positions of their rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.topology.cache import Codes, RowIds, TableCache
from omnigraph.topology.ids import Ids, Numbers

_ID = "id"
# Neither the code of a value nor that of null.
_ABSENT = -2


class NodeIndex:
    """Numbers to positions and back, for one version of a node table."""

    def __init__(self, cache: TableCache, ids: Ids) -> None:
        self.cache = cache
        self.ids = ids
        self.numbers = cache.numbers(_ID, ids)
        """The number of the node at each position."""
        self._positions = self._invert()
        self._coded: dict[str, Numbers] = {}

    def _invert(self) -> Numbers:
        positions = np.full(len(self.ids), -1, np.int32)
        positions[self.numbers] = np.arange(len(self.numbers), dtype=np.int32)
        return positions

    @property
    def nbytes(self) -> int:
        coded = sum(codes.nbytes for codes in list(self._coded.values()))
        return self.cache.nbytes() + self._positions.nbytes + coded

    def positions(self, numbers: npt.NDArray[np.integer]) -> Numbers:
        """The position of each number, -1 for nodes that this version does not have."""
        if len(self._positions) < len(self.ids):
            # Ids added since, by other versions.
            more = np.full(len(self.ids) - len(self._positions), -1, np.int32)
            self._positions = np.concatenate([self._positions, more])
        positions: Numbers = self._positions[numbers]
        return positions

    def codes(self, name: str, numbers: npt.NDArray[np.integer]) -> Codes | None:
        """Codes of a column for some numbers; none when a node is missing."""
        column = self.cache.codes(name)
        by_number = self._coded.get(name)
        if by_number is None or len(by_number) < len(self.ids):
            positions = self.positions(np.arange(len(self.ids)))
            by_number = np.full(len(positions), _ABSENT, np.int32)
            by_number[positions >= 0] = column.codes[positions[positions >= 0]]
            self._coded[name] = by_number
        codes: Numbers = by_number[numbers]
        if len(codes) and codes.min() == _ABSENT:
            return None
        return Codes(codes, column.size, column.null)

    def row_ids(self, numbers: npt.NDArray[np.integer]) -> RowIds:
        """The row id of each number; all nodes must exist."""
        return self.cache.row_ids()[self.positions(numbers)]

    def numbers_of_rows(self, row_ids: npt.NDArray[np.integer]) -> Numbers:
        """The numbers of rows; all rows must exist."""
        return self.numbers[self.cache.positions(row_ids)]

    def values(self, name: str, numbers: npt.NDArray[np.integer]) -> pa.Array:
        """A column for some numbers; null where the node is missing."""
        column = self.cache.column(name)
        if numbers is self.numbers:
            return column
        positions = self.positions(numbers)
        missing = positions < 0
        if missing.any():
            return column.take(pa.array(positions, mask=missing))
        return column.take(pa.array(positions))
