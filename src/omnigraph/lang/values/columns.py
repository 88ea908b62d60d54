"""Converts columns of untyped values to exact Arrow columns, and back.

A column is converted in one step when every value has an expected Python type; only a column with
a problem is converted value by value, to report it. The way back is exact too: integers are Python
integers, dates and date-times are exact to the day and the millisecond. Date-times are in UTC and
have no time zone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from itertools import chain
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ValueConversionError
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import arrow_type, date_width, from_millis, to_timestamp
from omnigraph.lang.values.codecs import CODECS
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.lang.values.spelling import blob_text, datetime_text, python_value, show

JsonForm = Literal["native", "sdk"]
_NONE = type(None)
_DAY_ZERO = date(1970, 1, 1)
_FIRST_DAY = (date.min - _DAY_ZERO).days
_LAST_DAY = (date.max - _DAY_ZERO).days
_UNITS_PER_DAY = {Scalar.DATE: 1, Scalar.DATETIME: 86_400_000}


class ValueProblem(NamedTuple):
    """A value that does not fit its column: the row, and the reason."""

    row: int
    field: str
    value: str
    message: str
    hint: str | None = None


# -- into Arrow ---------------------------------------------------------------------------------


def convert_column(
    name: str,
    type_: PropType,
    values: Sequence[Any],
    *,
    is_typed: bool = False,
    read_blob: Callable[[Any], Any] | None = None,
) -> tuple[pa.Array, list[ValueProblem]]:
    """A column of exactly its type, with null where a value does not fit.

    ``is_typed`` is whether the values come from a strict decoder, so that their Python types need
    no check. ``read_blob`` replaces the conversion of Blobs, if local files may be read.

    >>> convert_column("age", PropType(Scalar.I32), [1, None, 2.5])[1][0].message
    '2.5 is not an I32'
    """
    target = arrow_type(type_)
    column = _convert_at_once(type_, values, target, is_typed)
    if column is not None:
        return column, []
    convert = _value_converter(type_, read_blob)
    problems: list[ValueProblem] = []
    converted: list[Any] = []
    for row, value in enumerate(values):
        try:
            plain = python_value(value)
            converted.append(None if plain is None else convert(plain))
        except (ValueError, ValueConversionError) as error:
            converted.append(None)
            reason, hint = str(error), None
            if isinstance(error, ValueConversionError):
                reason, hint = error.message, error.hint
            problems.append(ValueProblem(row, name, show(value), reason, hint))
    if type_.scalar is not Scalar.DATETIME:
        return pa.array(converted, target), problems
    numbers = pa.list_(pa.int64()) if type_.is_list else pa.int64()
    return from_millis(pa.array(converted, numbers)).cast(target), problems


def _convert_at_once(
    type_: PropType, values: Sequence[Any], target: pa.DataType, is_typed: bool
) -> pa.Array | None:
    """The column in one step, or ``None`` if some value must be checked."""
    codec = CODECS[type_.scalar]
    try:
        if codec.parse_column is not None:
            column = None if type_.is_list else codec.parse_column(values)
        elif is_typed or _has_types(type_, values, {*codec.json_types, _NONE}):
            column = pa.array(values, target)
        else:
            return None
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None
    return column if column is not None and flaw(type_, column) is None else None


def _has_types(type_: PropType, values: Sequence[Any], expected: set[type]) -> bool:
    """Whether all values, or all items of lists, have Python types that Arrow converts exactly."""
    if type_.is_list or type_.is_vector:
        if not set(map(type, values)) <= {list, _NONE}:
            return False
        values = list(chain.from_iterable(value for value in values if value is not None))
        expected = expected - {_NONE}
    return set(map(type, values)) <= expected


def _value_converter(
    type_: PropType, read_blob: Callable[[Any], Any] | None
) -> Callable[[Any], Any]:
    parse = CODECS[type_.scalar].parse
    if type_.is_blob:
        return read_blob or parse
    if type_.is_vector:
        return lambda value: _parse_vector(type_, parse, value)
    return (lambda value: _parse_list(parse, value)) if type_.is_list else parse


def _parse_list(parse: Callable[[Any], Any], value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{show(value)} is not a list")
    items = []
    for position, item in enumerate(map(python_value, value)):
        if item is None:
            raise ValueError(f"item {position} is null")
        items.append(_parse_item(parse, position, item))
    return items


def _parse_vector(type_: PropType, parse: Callable[[Any], Any], value: Any) -> list[float]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{show(value)} is not a vector")
    if len(value) != type_.dimension:
        raise ValueError(f"{len(value)} numbers instead of {type_.dimension}")
    items = [_parse_item(parse, *pair) for pair in enumerate(map(python_value, value))]
    if not any(items):
        raise ValueError("a vector of zeros has no direction")
    return items


def _parse_item(parse: Callable[[Any], Any], position: int, item: Any) -> Any:
    try:
        return parse(item)
    except ValueError as error:
        raise ValueError(f"item {position}: {error}") from None


def flaw(type_: PropType, column: pa.Array) -> str | None:
    """The reason why a column that Arrow can hold is invalid; ``None`` if it is valid.

    >>> flaw(PropType(Scalar.F64), pa.array([1.5, float("inf")]))
    'holds a number that is not finite'
    """
    flat = column
    if type_.is_list or type_.is_vector:
        flat = column.flatten()
        if flat.null_count:
            return "holds a list with a null in it"
    if type_.scalar in _UNITS_PER_DAY:
        if _is_in_calendar(type_.scalar, flat):
            return None
        return f"holds a value outside the range of {type_.scalar}"
    if not type_.scalar.is_float and not type_.is_vector:
        return None
    if not _is_finite(flat):
        return "holds a number that is not finite"
    if not type_.is_vector or not len(flat):
        return None
    zero = numpy_view(flat).reshape(-1, type_.dimension or 1) == 0
    return "holds a vector of zeros" if zero.all(axis=1).any() else None


def _is_finite(column: pa.Array) -> bool:
    return pc.all(pc.is_finite(column)).as_py() is not False


def _is_in_calendar(scalar: Scalar, column: pa.Array) -> bool:
    """Whether all days are in the years 1 to 9999."""
    per_day = _UNITS_PER_DAY[scalar]
    ends = pc.min_max(column.view(date_width(column.type)))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    first, last = _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day - 1
    return low is None or (first <= low and high <= last)


# -- into Python and JSON -----------------------------------------------------------------------


def python_values(array: pa.Array, type_: PropType, name: str) -> list[Any]:
    """The values of a column as Python objects; ``name`` is for the error."""
    try:
        values: list[Any] = to_timestamp(array).to_pylist()
    except (ValueError, OverflowError):
        raise ValueConversionError(
            f"column `{name}` holds a {type_.scalar} beyond the years 1 to 9999",
            hint="read it as Arrow, with to_arrow()",
            details={"column": name},
        ) from None
    return values


def json_values(array: pa.Array, type_: PropType, name: str, form: JsonForm) -> list[Any]:
    """The values of a column as JSON.

    The SDK form writes 64-bit integers that a JavaScript number cannot hold as strings.
    """
    values = python_values(array, type_, name)
    codec = CODECS[type_.scalar]
    change = codec.native if form == "native" else codec.sdk or codec.native
    return _map_values(values, type_, change)


def exported_values(column: pa.Array, type_: PropType) -> list[Any]:
    """The values of a column in exported records; raises ``ValueError`` if JSON cannot hold one."""
    if type_.scalar is Scalar.DATE:
        # Days since 1970, which have no limit of the year.
        column = column.cast(pa.list_(pa.int32()) if type_.is_list else pa.int32())
    elif type_.scalar.is_float or type_.is_vector:
        flat = column.flatten() if type_.is_list or type_.is_vector else column
        if not _is_finite(flat):
            raise ValueError("a number")
    try:
        values = to_timestamp(column).to_pylist()
    except (ValueError, OverflowError):
        raise ValueError("a moment") from None
    return _map_values(values, type_, CODECS[type_.scalar].exported)


def _map_values(
    values: list[Any], type_: PropType, change: Callable[[Any], Any] | None
) -> list[Any]:
    if change is None:
        return values
    if not type_.is_list and not type_.is_vector:
        return [None if value is None else change(value) for value in values]
    return [
        None if items is None else [None if item is None else change(item) for item in items]
        for items in values
    ]


def json_rows(rows: pa.Table, schema: pa.Schema) -> list[dict[str, Any]]:
    """Rows as dicts of JSON values, by the columns of a schema.

    A value of a wider type that the column of the schema cannot hold is returned unchanged.
    """
    columns = [_narrowed(rows[field.name].combine_chunks(), field.type) for field in schema]
    return [dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_row(columns: Mapping[str, pa.Array], row: int) -> dict[str, Any]:
    """One row of some columns as a dict of JSON values."""
    return {name: _plain_values(column.slice(row, 1))[0] for name, column in columns.items()}


def _narrowed(column: pa.Array, wanted: pa.DataType) -> list[Any]:
    values = _plain_values(column)
    if column.type == wanted:
        return values
    narrow = column.cast(wanted, safe=False)
    pairs = zip(_plain_values(narrow), values, strict=True)
    return [small if small == value else value for small, value in pairs]


def _plain_values(column: pa.Array) -> list[Any]:
    column = to_timestamp(column)
    try:
        return [_plain(value) for value in column.to_pylist()]
    except (ValueError, OverflowError):
        # A day outside the range of Python's dates.
        return [str(column[row]) for row in range(len(column))]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return blob_text(value)
    if isinstance(value, datetime):
        return datetime_text(value)
    return value.isoformat() if isinstance(value, date) else value
