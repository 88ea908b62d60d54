"""Bringing Arrow rows into the exact columns of a type, or saying what does not fit."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import InputError, ValueConversionError
from omnigraph.lang.closest import closest
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.schema.keys import key_id
from omnigraph.storage.tables import KEY


def find_type(catalog: Catalog, name: str) -> NodeType | EdgeType:
    """A type by its name or its table key (``node:Person``)."""
    kind, _, bare = name.rpartition(":")
    if kind in ("", "node") and (node := catalog.node_types.get(bare)) is not None:
        return node
    if kind in ("", "edge") and (edge := catalog.edge_types.get(bare)) is not None:
        return edge
    known = [*catalog.node_types, *catalog.edge_types]
    raise InputError(
        f"there is no type '{name}' in the schema",
        hint=_meant(bare, known),
        details={"type": name},
    )


def conform(
    catalog: Catalog, name: str, rows: pa.Table | pa.RecordBatch
) -> tuple[NodeType | EdgeType, pa.Table]:
    """Rows in the columns of their type, with ids where the schema says how to make them."""
    kind = find_type(catalog, name)
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    schema = kind.arrow_schema()
    unknown = [column for column in table.column_names if column not in schema.names]
    if unknown:
        raise InputError(
            f"{kind.table_key} has no property '{unknown[0]}'",
            hint=_meant(unknown[0], schema.names),
            details={"table_key": kind.table_key, "property": unknown[0]},
        )
    columns = [_column(kind, table, field) for field in schema]
    return kind, pa.Table.from_arrays(columns, schema=schema)


def _column(kind: NodeType | EdgeType, table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name == KEY:
        return _ids(kind, table)
    if field.name not in table.column_names:
        if not field.nullable and table.num_rows:
            raise InputError(
                f"{kind.table_key}: the required property '{field.name}' is missing",
                details={"table_key": kind.table_key, "property": field.name},
            )
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = _cast(kind, table[field.name], field)
    if not field.nullable and column.null_count:
        raise ValueConversionError(
            f"{kind.table_key}: the required property '{field.name}' has null values",
            details={"table_key": kind.table_key, "property": field.name},
        )
    return column


def _cast(kind: NodeType | EdgeType, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueConversionError(
            f"{kind.table_key}: values of '{field.name}' ({column.type}) do not fit {field.type}",
            details={"table_key": kind.table_key, "property": field.name},
        ) from None


def _ids(kind: NodeType | EdgeType, table: pa.Table) -> pa.ChunkedArray:
    """The ids of rows: their key where the type has one, else as given, else new ones."""
    given = None
    if KEY in table.column_names:
        given = _cast(kind, table[KEY], pa.field(KEY, pa.string(), nullable=False))
        if given.null_count:
            raise ValueConversionError(f"{kind.table_key}: '{KEY}' has null values")
    if not isinstance(kind, NodeType) or not kind.key:
        if given is not None:
            return given
        return pa.chunked_array([pa.array([new_ulid() for _ in range(table.num_rows)])])
    made = _key_ids(kind, table)
    if given is not None and not given.equals(made):
        raise InputError(
            f"{kind.table_key}: the id of a row is its key {', '.join(kind.key)}; "
            "another id was given",
            hint=f"leave the column '{KEY}' out",
            details={"table_key": kind.table_key},
        )
    return made


def _key_ids(kind: NodeType, table: pa.Table) -> pa.ChunkedArray:
    schema = kind.arrow_schema()
    columns = [_column(kind, table, schema.field(name)) for name in kind.key]
    if len(columns) == 1 and columns[0].type == pa.string():
        return columns[0]
    # A moment in Arrow's ``date64`` comes to Python as a bare day.
    exact = [
        column.cast(pa.timestamp("ms")) if pa.types.is_date64(column.type) else column
        for column in columns
    ]
    values = zip(*(column.to_pylist() for column in exact), strict=True)
    return pa.chunked_array([pa.array([key_id(row) for row in values], pa.string())])


def _meant(name: str, known: list[str]) -> str | None:
    found = closest(name, known)
    return None if found is None else f"did you mean '{found}'?"
