"""Sorting rows: nulls smallest, NaN greatest, ties by the ids of the variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.values.arrow import date_width
from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.read.limits import Check, unlimited

Ints = npt.NDArray[np.int64]


# All rows are sorted if there are fewer than this many times the wanted rows.
_WORTH_IT = 4
# From this many rows on, rows are sorted key by key.
_MANY = 1 << 17


class SortColumn(NamedTuple):
    """The values of a sort key, and its direction."""

    values: pa.Array
    descending: bool = False

    def take(self, indices: Ints) -> SortColumn:
        return SortColumn(self.values.take(arrow_view(indices)), self.descending)


def sort_indices(keys: Sequence[SortColumn], check: Check = unlimited) -> Ints:
    """The row indices sorted by several keys; the sort is stable.

    With many rows, ``check`` runs before each key.
    """
    columns = [SortColumn(c, key.descending) for key in keys for c in _comparable(key.values)]
    if len(columns[0].values) >= _MANY:
        return _sort_by_key(columns, check)
    names = [str(number) for number in range(len(columns))]
    ways = ["descending" if column.descending else "ascending" for column in columns]
    table = pa.Table.from_arrays([column.values for column in columns], names)
    order = pc.sort_indices(table, sort_keys=list(zip(names, ways, strict=True)))
    indices: Ints = numpy_view(order).astype(np.int64)
    return indices


def _sort_by_key(columns: Sequence[SortColumn], check: Check) -> Ints:
    """Sort by the last key first: a stable sort preserves the order of the previous sorts."""
    order: Ints = np.arange(len(columns[0].values), dtype=np.int64)
    for column in reversed(columns):
        check()
        ranks = _ranks(column.values)
        check()
        if column.descending:
            ranks = -ranks if np.issubdtype(ranks.dtype, np.floating) else ~ranks
        order = order[np.argsort(ranks[order], kind="stable")]
    return order


def _ranks(values: pa.Array) -> npt.NDArray[Any]:
    """Numbers with the order of the values; only distinct texts are compared."""
    if _is_plain_number(values.type):
        return _as_numbers(values)
    encoded = values.dictionary_encode()
    order = numpy_view(pc.sort_indices(encoded.dictionary))
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    codes: npt.NDArray[Any] = ranks[numpy_view(encoded.indices)]
    return codes


def _comparable(values: pa.Array) -> list[pa.Array]:
    """Columns that together sort like the values: is valid, is NaN, value."""
    if pa.types.is_null(values.type):
        return [pa.array(np.zeros(len(values), np.uint8))]
    columns = []
    if values.null_count:
        columns.append(values.is_valid().cast(pa.uint8()))
        values = values.fill_null(_any_value(values.type))
    if pa.types.is_floating(values.type):
        nan = pc.is_nan(values)
        if pc.any(nan).as_py():
            columns.append(nan.cast(pa.uint8()))
            values = pc.if_else(nan, pa.scalar(0, values.type), values)
        # The two zeros are equal.
        values = pc.add(values, pa.scalar(0, values.type))
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    return [*columns, values]


def _any_value(type_: pa.DataType) -> pa.Scalar:
    if pa.types.is_string(type_):
        return pa.scalar("", pa.string())
    if pa.types.is_boolean(type_):
        return pa.scalar(False, pa.bool_())
    if pa.types.is_date(type_):
        return pa.array([0], date_width(type_)).view(type_)[0]
    return pa.scalar(0, pa.int64()).cast(type_)


def first_candidates(key: SortColumn, count: int) -> Ints | None:
    """The rows that can be among the first ``count`` by a key, with ties; ``None`` if all can.

    Uses a partition instead of a sort.
    """
    values = key.values
    rows = len(values)
    if not 0 < count < rows // _WORTH_IT or not _is_plain_number(values.type):
        return None
    valid = numpy_view(values.is_valid())
    missing = rows - int(valid.sum())
    if not key.descending and missing >= count:
        return np.flatnonzero(~valid)
    wanted = count if key.descending else count - missing
    numbers = _as_numbers(values)
    there = numbers[valid]
    if np.issubdtype(there.dtype, np.floating) and np.isnan(there).any():
        return None
    if len(there) <= wanted:
        return None
    if key.descending:
        limit = np.partition(there, len(there) - wanted)[len(there) - wanted]
        return np.flatnonzero(valid & (numbers >= limit))
    limit = np.partition(there, wanted - 1)[wanted - 1]
    return np.flatnonzero(~valid | (numbers <= limit))


def _is_plain_number(type_: pa.DataType) -> bool:
    return any(is_(type_) for is_ in (pa.types.is_integer, pa.types.is_floating, pa.types.is_date))


def _as_numbers(values: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_date(values.type):
        values = values.view(date_width(values.type))
    if values.null_count:
        values = values.fill_null(0)
    numbers: npt.NDArray[Any] = numpy_view(values)
    return numbers
