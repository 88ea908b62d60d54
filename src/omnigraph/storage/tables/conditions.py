"""Conditions on the rows of a table, as Arrow expressions."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.tables.wide_columns import is_stored_blob


def columns_of(condition: pc.Expression, schema: pa.Schema) -> list[str]:
    """The columns that a condition uses: those without which it cannot be evaluated."""
    plain = [field for field in schema if not is_stored_blob(field)]
    empty = pa.schema(plain).empty_table()
    columns = []
    for field in plain:
        try:
            empty.drop_columns([field.name]).filter(condition)
        except pa.ArrowInvalid:
            columns.append(field.name)
    return columns
