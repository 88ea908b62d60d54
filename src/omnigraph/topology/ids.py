"""Numbers for the ids of one node type.

An id gets the next number when it is first seen and keeps it, whatever becomes of its node, so
everything that was computed with the numbers stays right on every version and branch. Edges hold
ids, not places in a table: that is what makes an adjacency independent of how its nodes lie on
disk.
"""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int32]

# Up to so many ids a dict is held for single lookups: it takes about 120 bytes for each.
_MOST_IN_DICT = 1_000_000
_FEW = 256


class Ids:
    """The ids of one node type, each with its number. Safe to share between threads."""

    def __init__(self, ids: pa.Array | None = None) -> None:
        self._lock = threading.RLock()
        self._ids = pa.array([], pa.string()) if ids is None else ids
        self._late: list[pa.Array] = []
        self._count = len(self._ids)
        self._numbers: dict[str, int] | None = None

    def __len__(self) -> int:
        return self._count

    def number(self, value: str) -> int | None:
        """The number of one id, if it has one."""
        if self._count > _MOST_IN_DICT:
            found = pc.index(self.array(), value).as_py()
            return None if found < 0 else int(found)
        return self._known().get(value)

    def numbers(self, ids: pa.Array | pa.ChunkedArray) -> Numbers:
        """The numbers of ids; new ones for those that were not seen yet."""
        if isinstance(ids, pa.ChunkedArray):
            ids = ids.combine_chunks()
        if not len(ids):
            return np.empty(0, np.int32)
        with self._lock:
            found = self._look_up(ids)
            missing = found < 0
            if missing.any():
                self._add(pc.unique(ids.filter(pa.array(missing))))
                found = self._look_up(ids)
        return found

    def _look_up(self, ids: pa.Array) -> Numbers:
        known = self._numbers
        if known is not None and len(ids) <= _FEW:
            return np.fromiter((known.get(v, -1) for v in ids.to_pylist()), np.int32, len(ids))
        found = pc.index_in(ids, value_set=self.array())
        numbers: Numbers = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
        return numbers

    def _add(self, new: pa.Array) -> None:
        if self._numbers is not None:
            self._numbers.update(zip(new.to_pylist(), range(self._count, 2**31), strict=False))
        self._late.append(new)
        self._count += len(new)

    def _known(self) -> dict[str, int]:
        with self._lock:
            if self._numbers is None:
                values = self.array().to_pylist()
                self._numbers = dict(zip(values, range(len(values)), strict=True))
            return self._numbers

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
        return self.array().take(pa.array(numbers))
