"""Schema types and constants in Arrow.

Import this module only where Arrow is needed: it loads pyarrow, which would slow down commands
that do not need it. Blobs are plain ``large_binary`` here; ``storage`` converts them to Lance's own
blob type.

DateTime columns are ``date64``: milliseconds since 1970. Arrow's own casts into and out of it
truncate to the day, so the numbers are reinterpreted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa

from omnigraph.lang.types import PropType, Scalar

Atom = None | bool | int | float | str | date | datetime

_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)
_MILLIS = pa.timestamp("ms")
_SCALARS = {
    Scalar.STRING: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.date64(),
    Scalar.BLOB: pa.large_binary(),
}


# -- types --------------------------------------------------------------------------------------


def arrow_type(prop_type: PropType) -> pa.DataType:
    """The column type of a property type; nullability belongs to the field.

    >>> str(arrow_type(PropType(Scalar.VECTOR, dimension=3)))
    'fixed_size_list<item: float>[3]'
    """
    if prop_type.scalar is Scalar.VECTOR:
        assert prop_type.dimension is not None
        return pa.list_(pa.field("item", pa.float32(), nullable=True), prop_type.dimension)
    scalar = _SCALARS[prop_type.scalar]
    if prop_type.is_list:
        return pa.list_(pa.field("item", scalar, nullable=True))
    return scalar


def arrow_field(name: str, prop_type: PropType) -> pa.Field:
    """The column of a property; required properties are not nullable."""
    return pa.field(name, arrow_type(prop_type), nullable=prop_type.nullable)


def table_schema(hidden: Iterable[str], properties: Mapping[str, PropType]) -> pa.Schema:
    """The columns of a table: hidden texts, then the properties in the order given."""
    columns = [pa.field(name, pa.utf8(), nullable=False) for name in hidden]
    return pa.schema([*columns, *(arrow_field(*entry) for entry in properties.items())])


def item_type(given: pa.DataType) -> pa.DataType:
    """The type of the items of a list type; any other type itself."""
    return given.value_type if pa.types.is_list(given) else given


def date_width(given: pa.DataType) -> pa.DataType:
    """The integer type of the numbers that a date type stores."""
    return pa.int64() if pa.types.is_date64(given) else pa.int32()


_NAMES = {arrow: str(scalar) for scalar, arrow in _SCALARS.items() if scalar is not Scalar.BLOB} | {
    pa.int8(): "I8",
    pa.int16(): "I16",
    pa.uint8(): "U8",
    pa.uint16(): "U16",
    pa.float16(): "F16",
    pa.large_string(): "String",
    pa.string_view(): "String",
    pa.null(): "null",
}
_FAMILIES = (
    (pa.types.is_timestamp, "DateTime"),
    (pa.types.is_time, "times of day"),
    (pa.types.is_duration, "durations"),
    (pa.types.is_decimal, "decimals"),
    (pa.types.is_struct, "structs"),
    (pa.types.is_map, "maps"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_binary_view, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
)


def type_name(given: pa.DataType) -> str:
    """The name of an Arrow type in messages: as in a schema, if there is such a type.

    >>> type_name(pa.large_list(pa.int64())), type_name(pa.timestamp("us"))
    ('[I64]', 'DateTime')
    """
    if pa.types.is_dictionary(given):
        return type_name(given.value_type)
    if pa.types.is_fixed_size_list(given):
        return f"Vector({given.list_size})"
    if pa.types.is_list(given) or pa.types.is_large_list(given):
        return f"[{type_name(given.value_type)}]"
    if given in _NAMES:
        return _NAMES[given]
    return next((name for is_member, name in _FAMILIES if is_member(given)), "another type")


# -- constants ----------------------------------------------------------------------------------


def arrow_scalar(value: Atom | tuple[Atom, ...], type_: PropType) -> pa.Scalar:
    """A constant as an Arrow scalar of exactly its type."""
    if isinstance(value, tuple) and type_.scalar is Scalar.VECTOR:
        return pa.array([list(value)], arrow_type(type_))[0]
    if isinstance(value, tuple):
        items = arrow_array(value, type_.element)
        return pa.ListArray.from_arrays([0, len(items)], items, type=arrow_type(type_))[0]
    if value is None:
        return pa.scalar(None, arrow_type(type_))
    return arrow_array((value,), type_)[0]


def arrow_array(values: tuple[Atom, ...], type_: PropType) -> pa.Array:
    """Values as an Arrow array of exactly their type."""
    target = arrow_type(type_)
    if type_.scalar.is_float:
        # An integer among floats is rounded; Arrow alone would refuse it beyond 2^53.
        values = tuple(float(v) if isinstance(v, int) else v for v in values)
    if type_.scalar is not Scalar.DATETIME:
        return pa.array(values, target)
    moments = [millis(value) if isinstance(value, datetime) else None for value in values]
    return pa.array(moments, pa.int64()).view(target)


# -- date-times ---------------------------------------------------------------------------------


def millis(moment: datetime) -> int:
    """Milliseconds since 1970 of a datetime in UTC without a zone."""
    return (moment - _EPOCH) // _MILLISECOND


def from_millis(column: pa.Array) -> pa.Array:
    """Milliseconds, or lists of them, as a DateTime column."""
    if pa.types.is_list(column.type):
        return _map_items(column, from_millis)
    return column.view(pa.date64())


def to_timestamp(column: Any) -> Any:
    """DateTimes, or lists of them, as timestamps without a zone; other columns unchanged.

    Other libraries, including Python, treat a ``date64`` as a day without a time.

    >>> stored = from_millis(pa.array([1_714_557_600_123], pa.int64()))
    >>> str(to_timestamp(stored)[0])
    '2024-05-01 10:00:00.123000'
    """
    if not pa.types.is_date64(item_type(column.type)):
        return column
    if isinstance(column, pa.ChunkedArray):
        empty = to_timestamp(pa.array([], column.type))
        return pa.chunked_array([to_timestamp(chunk) for chunk in column.chunks], empty.type)
    if pa.types.is_list(column.type):
        return _map_items(column, to_timestamp)
    return column.view(pa.int64()).view(_MILLIS)


def _map_items(column: pa.ListArray, change: Callable[[pa.Array], pa.Array]) -> pa.ListArray:
    """The same lists with changed items; supports slices, which ``from_arrays`` refuses."""
    items = change(column.values)
    return pa.ListArray.from_buffers(
        pa.list_(column.type.value_field.with_type(items.type)),
        len(column),
        column.buffers()[:2],
        column.null_count,
        column.offset,
        [items],
    )
