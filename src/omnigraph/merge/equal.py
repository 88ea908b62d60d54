"""Exact equality of the values of two columns: null equals null, and NaN equals NaN."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.values.numpy_view import numpy_view

Mask = npt.NDArray[np.bool_]


def same_values(one: pa.Array, other: pa.Array) -> Mask:
    """For each position, whether the two columns have the same value.

    >>> same_values(pa.array([1, None, 3]), pa.array([1, 2, None])).tolist()
    [True, False, False]
    >>> same_values(pa.array([[1.0], [], None]), pa.array([[1.0], None, None])).tolist()
    [True, False, True]
    """
    valid, also = _valid(one), _valid(other)
    same: Mask = valid == also
    both = np.flatnonzero(valid & also)
    if len(both):
        inner = _same(one.take(pa.array(both)), other.take(pa.array(both)))
        same[both] = inner
    return same


def _valid(column: pa.Array) -> Mask:
    return np.asarray(numpy_view(column.is_valid()), dtype=np.bool_)


def _same(one: pa.Array, other: pa.Array) -> Mask:
    """``same_values`` for columns without nulls."""
    kind = one.type
    if pa.types.is_fixed_size_list(kind):
        # A list of size 0 has no element that differs.
        elements = same_values(one.flatten(), other.flatten())
        return np.asarray(elements.reshape(len(one), kind.list_size).all(axis=1))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _same_lists(one, other)
    if pa.types.is_floating(kind):
        # Compare bits: zero differs from minus zero, and NaN equals itself.
        width = {16: np.uint16, 32: np.uint32, 64: np.uint64}[kind.bit_width]
        mine, theirs = _numbers(one).view(width), _numbers(other).view(width)
        return np.asarray(mine == theirs)
    return np.asarray(numpy_view(pc.equal(one, other)), dtype=np.bool_)


def _numbers(column: pa.Array) -> npt.NDArray[np.floating]:
    return np.ascontiguousarray(numpy_view(column))


def _same_lists(one: pa.Array, other: pa.Array) -> Mask:
    lengths = numpy_view(pc.list_value_length(one))
    same: Mask = lengths == numpy_view(pc.list_value_length(other))
    rows = np.flatnonzero(same & (lengths > 0))
    if len(rows):
        mine = one.take(pa.array(rows)).flatten()
        theirs = other.take(pa.array(rows)).flatten()
        starts = np.concatenate([[0], np.cumsum(lengths[rows])[:-1]]).astype(np.int64)
        same[rows] = np.logical_and.reduceat(same_values(mine, theirs), starts)
    return same
