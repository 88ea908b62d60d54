"""Rows as people and programs are shown them: plain values that JSON can say."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from omnigraph.write.moments import to_timestamp


def images(rows: pa.Table, schema: pa.Schema) -> list[dict[str, Any]]:
    """Every row as a dict of the columns of a schema.

    A value of a wider type than the schema has, which it cannot hold, is shown as it is.
    """
    columns = [_narrowed(rows[field.name].combine_chunks(), field.type) for field in schema]
    return [dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _narrowed(column: pa.Array, wanted: pa.DataType) -> list[Any]:
    values = _values(column)
    if column.type == wanted:
        return values
    narrow = column.cast(wanted, safe=False)
    pairs = zip(_values(narrow), values, strict=True)
    return [small if small == value else value for small, value in pairs]


def image(columns: Mapping[str, pa.Array], row: int) -> dict[str, Any]:
    """One row of some columns."""
    return {name: _values(column.slice(row, 1))[0] for name, column in columns.items()}


def _values(column: pa.Array) -> list[Any]:
    inner = column.type.value_type if pa.types.is_list(column.type) else column.type
    if pa.types.is_date64(inner):
        column = to_timestamp(column)
    try:
        return [_plain(value) for value in column.to_pylist()]
    except (ValueError, OverflowError):
        # A day that Python's calendar does not have.
        return [str(column[row]) for row in range(len(column))]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return "base64:" + base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return value.isoformat() if isinstance(value, date) else value
