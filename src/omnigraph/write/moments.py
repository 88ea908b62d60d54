"""Moments between Arrow types, exactly.

DateTime columns are ``date64``: milliseconds. Arrow's own casts into it cut the time of day off,
so the numbers are moved instead.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

_MILLIS = pa.timestamp("ms")


def to_timestamp(column: pa.Array) -> pa.Array:
    """Stored moments, or lists of them, as timestamps without zone.

    >>> stored = from_millis(pa.array([1_714_557_600_123], pa.int64()))
    >>> str(to_timestamp(stored)[0])
    '2024-05-01 10:00:00.123000'
    """
    if pa.types.is_list(column.type):
        return _in_list(column, to_timestamp)
    return column.view(pa.int64()).view(_MILLIS)


def from_millis(column: pa.Array) -> pa.Array:
    """Milliseconds, or lists of them, as stored."""
    if pa.types.is_list(column.type):
        return _in_list(column, from_millis)
    return column.view(pa.date64())


def _in_list(column: pa.ListArray, change: Callable[[pa.Array], pa.Array]) -> pa.ListArray:
    """The same lists with other items; a slice keeps its place, which ``from_arrays`` refuses."""
    items = change(column.values)
    return pa.ListArray.from_buffers(
        pa.list_(column.type.value_field.with_type(items.type)),
        len(column),
        column.buffers()[:2],
        column.null_count,
        column.offset,
        [items],
    )
