"""Values of a column as Python has them, and as JSON has them.

Nothing is rounded: integers are Python integers, dates and moments keep their day and their
millisecond. Moments are in UTC and carry no zone, as the parameters of queries take them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Literal

import pyarrow as pa

from omnigraph.errors import ValueConversionError
from omnigraph.lang.query.params import SAFE_INTEGER
from omnigraph.lang.types import PropType, Scalar
from omnigraph.result.columns import ResultColumn
from omnigraph.write.moments import to_timestamp

JsonForm = Literal["native", "sdk"]
Change = Callable[[Any], Any]


def moments_shown(array: pa.Array, type_: PropType) -> pa.Array:
    """A column as other libraries should see it: moments with their time of day."""
    return to_timestamp(array) if type_.scalar is Scalar.DATETIME else array


def python_values(array: pa.Array, column: ResultColumn) -> list[Any]:
    """The values of a column as Python objects."""
    try:
        values: list[Any] = moments_shown(array, column.type).to_pylist()
    except (ValueError, OverflowError):
        raise ValueConversionError(
            f"column `{column.name}` holds a {column.type.scalar} beyond the years 1 to 9999",
            hint="read it as Arrow, with to_arrow()",
            details={"column": column.name},
        ) from None
    return values


def json_values(array: pa.Array, column: ResultColumn, form: JsonForm) -> list[Any]:
    """The values of a column as what JSON can spell.

    The SDK form writes 64-bit integers that a JavaScript number cannot hold as strings.
    """
    values = python_values(array, column)
    change = _changes(form).get(column.type.scalar)
    if change is None:
        return values
    if column.type.is_list or column.type.is_vector:
        return [None if items is None else _each(items, change) for items in values]
    return _each(values, change)


def _each(values: list[Any], change: Change) -> list[Any]:
    return [None if value is None else change(value) for value in values]


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _safe(value: int) -> int | str:
    return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(value)


def _moment(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds") + "Z"


_NATIVE: dict[Scalar, Change] = {
    Scalar.F32: _number,
    Scalar.F64: _number,
    Scalar.VECTOR: _number,
    Scalar.DATE: date.isoformat,
    Scalar.DATETIME: _moment,
}
_SDK: dict[Scalar, Change] = {**_NATIVE, Scalar.I64: _safe, Scalar.U64: _safe}


def _changes(form: JsonForm) -> dict[Scalar, Change]:
    return _SDK if form == "sdk" else _NATIVE
