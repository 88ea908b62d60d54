"""Rows as people and programs are shown them: plain values that JSON can say."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from omnigraph.write.moments import to_timestamp


def images(rows: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    """Every row as a dict."""
    columns = [_values(rows[name].combine_chunks()) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


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
