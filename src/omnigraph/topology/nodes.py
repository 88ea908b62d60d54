"""The nodes of one version of a table: which numbers they have, and where their rows are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.topology.held import Codes, HeldTable, RowIds
from omnigraph.topology.ids import Ids, Numbers

_ID = "id"
# No code of a value, nor of null.
_ABSENT = -2


class NodeIndex:
    """Numbers to positions and back, for one version of a node table."""

    def __init__(self, held: HeldTable, ids: Ids) -> None:
        self.held = held
        self.ids = ids
        self.numbers = held.numbers(_ID, ids)
        """The number of the node at each position."""
        self._positions = self._placed()
        self._coded: dict[str, Numbers] = {}

    def _placed(self) -> Numbers:
        places = np.full(len(self.ids), -1, np.int32)
        places[self.numbers] = np.arange(len(self.numbers), dtype=np.int32)
        return places

    @property
    def nbytes(self) -> int:
        coded = sum(each.nbytes for each in list(self._coded.values()))
        return self.held.nbytes() + self._positions.nbytes + coded

    def positions(self, numbers: npt.NDArray[np.integer]) -> Numbers:
        """The position of each number, -1 for those that this version does not have."""
        if len(self._positions) < len(self.ids):
            # Ids that were first seen later, elsewhere.
            more = np.full(len(self.ids) - len(self._positions), -1, np.int32)
            self._positions = np.concatenate([self._positions, more])
        found: Numbers = self._positions[numbers]
        return found

    def codes(self, name: str, numbers: npt.NDArray[np.integer]) -> Codes | None:
        """Codes of a column for some numbers; none when a node is not there."""
        found = self.held.codes(name)
        by_number = self._coded.get(name)
        if by_number is None or len(by_number) < len(self.ids):
            places = self.positions(np.arange(len(self.ids)))
            by_number = np.full(len(places), _ABSENT, np.int32)
            by_number[places >= 0] = found.codes[places[places >= 0]]
            self._coded[name] = by_number
        codes: Numbers = by_number[numbers]
        if len(codes) and codes.min() == _ABSENT:
            return None
        return Codes(codes, found.size, found.null)

    def row_ids(self, numbers: npt.NDArray[np.integer]) -> RowIds:
        """The row of each number; all of them must be there."""
        return self.held.row_ids()[self.positions(numbers)]

    def numbers_of_rows(self, row_ids: npt.NDArray[np.integer]) -> Numbers:
        """The numbers of rows; all of them must be there."""
        return self.numbers[self.held.positions(row_ids)]

    def values(self, name: str, numbers: npt.NDArray[np.integer]) -> pa.Array:
        """A column for some numbers; null where the node is not there."""
        column = self.held.column(name)
        if numbers is self.numbers:
            return column
        places = self.positions(numbers)
        missing = places < 0
        if missing.any():
            return column.take(pa.array(places, mask=missing))
        return column.take(pa.array(places))
