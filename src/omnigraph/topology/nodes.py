"""Numbers the ids of a node type, and maps numbers to positions in a version of its table.

An id is assigned the next number when it is first seen and keeps it, even after its node is
deleted, so everything computed from numbers stays valid for every version and branch. Edges refer
to ids, not to rows of a table, so an adjacency does not depend on the layout of its nodes on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.topology.cache import Codes, RowIds, TableCache

Numbers = npt.NDArray[np.int32]

# Up to this many ids are looked up one by one.
_FEW = 256
# The first lookups scan all ids; building the hash index costs as much as about fifty scans.
_SCANS = 8
# A search for this many times fewer ids than there are scans all of them.
_MUCH_LESS = 16
# The maximum number of ids added since the hash index was built; beyond, it is rebuilt.
_MOST_RECENT = 65_536
# Neither the code of a value nor that of null.
_ABSENT = -2


class _Hashes(NamedTuple):
    """Sorted hashes of ids, and the number of each id."""

    hashes: npt.NDArray[np.int64]
    numbers: Numbers


class Ids:
    """The numbering of the ids of one node type. Safe to share between threads."""

    def __init__(self, ids: pa.Array | None = None) -> None:
        self._lock = threading.RLock()
        self._ids = pa.array([], pa.string()) if ids is None else ids
        self._late: list[pa.Array] = []
        self._count = len(self._ids)
        self._hashes: _Hashes | None = None
        self._recent: dict[str, int] = {}
        self._scans = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_hashed(self) -> bool:
        """Whether ``number`` builds and scans nothing."""
        return self._hashes is not None

    def number(self, value: str) -> int | None:
        """The number of one id, if it has one."""
        recent = self._recent.get(value)
        if recent is not None:
            return recent
        if self._hashes is None and self._scans < _SCANS:
            self._scans += 1
            position = pc.index(self.array(), pa.scalar(value, pa.string())).as_py()
            return None if position < 0 else int(position)
        hashed = self._hashes or self._build_hashes()
        wanted = hash(value)
        start = int(hashed.hashes.searchsorted(wanted))
        ids = self._ids
        while start < len(hashed.hashes) and hashed.hashes[start] == wanted:
            number = int(hashed.numbers[start])
            if ids[number].as_py() == value:
                return number
            start += 1
        # Another thread may have rebuilt the hashes in between.
        return self._recent.get(value)

    def numbers_of(self, values: Sequence[str]) -> Numbers:
        """The numbers of the ids that have one, in the order of the ids."""
        if len(values) <= _FEW:
            one_by_one = map(self.number, values)
            return np.array([n for n in one_by_one if n is not None], np.int32)
        indices = pc.index_in(pa.array(values, pa.string()), value_set=self.array())
        numbers: Numbers = numpy_view(indices.drop_null())
        return numbers

    def numbers(self, ids: pa.Array | pa.ChunkedArray) -> Numbers:
        """The numbers of ids; ids not seen before are assigned new ones."""
        if isinstance(ids, pa.ChunkedArray):
            ids = ids.combine_chunks()
        if not len(ids):
            return np.empty(0, np.int32)
        with self._lock:
            numbers = self._look_up(ids)
            missing = numbers < 0
            if missing.any():
                self._add(pc.unique(ids.filter(arrow_view(missing))))
                numbers = self._look_up(ids)
        return numbers

    def _look_up(self, ids: pa.Array) -> Numbers:
        if self._hashes is not None and len(ids) <= _FEW:
            one_by_one = (self.number(value) for value in ids.to_pylist())
            return np.fromiter((-1 if n is None else n for n in one_by_one), np.int32, len(ids))
        if len(ids) <= self._count // _MUCH_LESS:
            return self._scan_for(ids)
        indices = pc.index_in(ids, value_set=self.array())
        numbers: Numbers = numpy_view(pc.fill_null(indices, -1))
        return numbers

    def _scan_for(self, ids: pa.Array) -> Numbers:
        """The numbers of ids by a scan of all ids: cheaper than a hash table of all ids."""
        wanted = pc.dictionary_encode(ids)
        hits = numpy_view(pc.index_in(self.array(), value_set=wanted.dictionary).fill_null(-1))
        matches = np.flatnonzero(hits >= 0)
        numbers = np.full(len(wanted.dictionary), -1, np.int32)
        numbers[hits[matches]] = matches
        by_row: Numbers = numbers[numpy_view(wanted.indices)]
        return by_row

    def _add(self, new: pa.Array) -> None:
        if self._hashes is not None:
            self._recent.update(zip(new.to_pylist(), range(self._count, 2**31), strict=False))
        self._late.append(new)
        self._count += len(new)
        if len(self._recent) > _MOST_RECENT:
            self._hashes, self._recent = None, {}

    def _build_hashes(self) -> _Hashes:
        with self._lock:
            values = self.array().to_pylist()
            hashes = np.fromiter(map(hash, values), np.int64, len(values))
            order = np.argsort(hashes, kind="stable")
            self._hashes = _Hashes(hashes[order], order.astype(np.int32))
            self._recent = {}
            return self._hashes

    def array(self) -> pa.Array:
        """All ids in the order of their numbers."""
        if self._late:
            with self._lock:
                if self._late:
                    self._ids = pa.concat_arrays([self._ids, *self._late])
                    self._late = []
        return self._ids

    def texts(self, numbers: npt.NDArray[np.integer]) -> pa.Array:
        """The ids of numbers."""
        return self.array().take(arrow_view(numbers))


class NodeIndex:
    """Maps numbers to positions and back, for one version of a node table."""

    def __init__(self, cache: TableCache, ids: Ids) -> None:
        self.cache = cache
        self.ids = ids
        self.numbers = cache.numbers("id", ids)
        """The number of the node at each position."""
        self._positions = np.full(len(ids), -1, np.int32)
        self._positions[self.numbers] = np.arange(len(self.numbers), dtype=np.int32)
        self._coded: dict[str, Numbers] = {}

    @property
    def nbytes(self) -> int:
        coded = sum(codes.nbytes for codes in list(self._coded.values()))
        return self.cache.nbytes() + self._positions.nbytes + coded

    def positions(self, numbers: npt.NDArray[np.integer]) -> Numbers:
        """The position of each number, -1 for nodes that this version does not have."""
        if len(self._positions) < len(self.ids):
            # Ids that other versions have added since.
            more = np.full(len(self.ids) - len(self._positions), -1, np.int32)
            self._positions = np.concatenate([self._positions, more])
        positions: Numbers = self._positions[numbers]
        return positions

    def numbers_of(self, values: Sequence[str]) -> Numbers:
        """The numbers of the ids that are nodes of this version, in the order of the ids."""
        if len(values) == 1:
            number = self.ids.number(values[0])
            if number is None:
                return np.empty(0, np.int32)
            if number < len(self._positions):
                exists = self._positions[number] >= 0
                return np.array([number] if exists else [], np.int32)
        numbers = self.ids.numbers_of(values)
        return numbers[self.positions(numbers) >= 0]

    def position(self, value: str) -> int | None:
        """The position of one id; ``None`` if it is not a node of this version."""
        number = self.ids.number(value)
        if number is None or number >= len(self._positions):
            return None
        position = int(self._positions[number])
        return position if position >= 0 else None

    def codes(self, name: str, numbers: npt.NDArray[np.integer]) -> Codes | None:
        """Codes of a column for some numbers; ``None`` if a node is missing."""
        column = self.cache.codes(name)
        if numbers is self.numbers:
            return column
        by_number = self._coded.get(name)
        if by_number is None or len(by_number) < len(self.ids):
            positions = self.positions(np.arange(len(self.ids)))
            by_number = np.full(len(positions), _ABSENT, np.int32)
            by_number[positions >= 0] = column.codes[positions[positions >= 0]]
            self._coded[name] = by_number
        codes: Numbers = by_number[numbers]
        if len(codes) and codes.min() == _ABSENT:
            return None
        return column._replace(codes=codes)

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
        if len(positions) == 1 and positions[0] >= 0:
            # A copy of one row, in a fifth of the time of Arrow's gather.
            return pa.concat_arrays([column.slice(int(positions[0]), 1)])
        missing = positions < 0
        if missing.any():
            return column.take(arrow_view(positions, missing))
        return column.take(arrow_view(positions))
