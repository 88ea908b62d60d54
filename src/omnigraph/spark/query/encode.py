"""Values as columns of Spark: equal, and in the same order, where they are for the engine.

Spark gets whole numbers, floats and texts only. Null stays null; a NaN is one value and greater
than all others, zero has one sign. Lists have no order, so their text is enough to tell them apart.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.values.arrow import date_width

LONG, DOUBLE, TEXT = "bigint", "double", "string"
ARROW = {LONG: pa.int64(), DOUBLE: pa.float64(), TEXT: pa.string()}
_SIGN = np.uint64(1 << 63)


def spark_type(type_: pa.DataType) -> str:
    """The type that values of a kind get in Spark."""
    if pa.types.is_floating(type_):
        return DOUBLE
    if pa.types.is_string(type_) or pa.types.is_nested(type_):
        return TEXT
    return LONG


def encoded(values: pa.Array) -> pa.Array:
    """A column for Spark.

    >>> encoded(pa.array([0, None, 2**64 - 1], pa.uint64())).to_pylist()
    [-9223372036854775808, None, 9223372036854775807]
    """
    type_ = values.type
    if pa.types.is_string(type_):
        return values
    if pa.types.is_nested(type_):
        plain = _with_numbers(values).to_pylist()
        return pa.array([None if v is None else json.dumps(v) for v in plain], pa.string())
    if pa.types.is_floating(type_):
        # The two zeros are equal.
        return pc.add(values.cast(pa.float64()), pa.scalar(0.0))
    if pa.types.is_uint64(type_):
        missing = values.is_null().to_numpy(zero_copy_only=False)
        numbers = values.fill_null(0).to_numpy() ^ _SIGN
        return pa.array(numbers.view(np.int64), mask=missing)
    if pa.types.is_date(type_):
        return values.view(date_width(type_)).cast(pa.int64())
    return values.cast(pa.int64())


def decoded(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """What ``encoded`` made, as it was."""
    if pa.types.is_string(type_):
        return values
    if pa.types.is_nested(type_):
        return _lists(values, type_)
    if pa.types.is_floating(type_):
        return values.cast(type_, safe=False)
    if pa.types.is_uint64(type_):
        missing = values.is_null().to_numpy(zero_copy_only=False)
        numbers = values.fill_null(0).to_numpy().view(np.uint64) ^ _SIGN
        return pa.array(numbers, mask=missing)
    if pa.types.is_date(type_):
        return values.cast(date_width(type_)).view(type_)
    return values.cast(type_)


def as_double(values: pa.Array) -> pa.Array:
    """Numbers as sums take them."""
    return values.cast(pa.float64(), safe=False)


def _with_numbers(values: pa.Array) -> pa.Array:
    """Lists of dates as lists of their numbers: Python would cut the time of day off."""
    item = values.type.value_type
    return values.cast(pa.list_(date_width(item))) if pa.types.is_date(item) else values


def _lists(values: pa.Array, type_: pa.DataType) -> pa.Array:
    plain = [None if text is None else json.loads(text) for text in values.to_pylist()]
    item = type_.value_type
    if not pa.types.is_date(item):
        return pa.array(plain, type_)
    offsets = np.cumsum([0, *(len(items or ()) for items in plain)])
    flat = pa.array([item for items in plain for item in items or ()], date_width(item)).view(item)
    missing = pa.array([items is None for items in plain])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=type_, mask=missing)
