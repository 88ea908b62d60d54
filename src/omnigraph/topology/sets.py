"""Sets of numbers as sorted arrays. Sorting is faster than the hashing of NumPy's own functions."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer]
Mask = npt.NDArray[np.bool_]
_Integer = TypeVar("_Integer", bound=np.integer[Any])


def distinct(values: Integers) -> Ints:
    """The distinct values in order.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    return without_repeats(np.sort(values))


def without_repeats(ordered: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """A sorted array without repeated values."""
    if len(ordered) < 2:
        return ordered
    kept = np.empty(len(ordered), bool)
    kept[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=kept[1:])
    return ordered if kept.all() else ordered[kept]


def among(values: Integers, ordered: Integers) -> Mask:
    """A mask of the values that are in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    indices = np.searchsorted(ordered, values)
    indices[indices == len(ordered)] = 0
    present: Mask = ordered[indices] == values
    return present
