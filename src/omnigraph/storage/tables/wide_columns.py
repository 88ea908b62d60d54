"""Columns of large values: blobs and vectors.

Blobs are plain bytes in the rest of the program and Lance's blob type on storage. Only Blob
properties are ``large_binary`` in the schema of a type, so the type identifies them.

A vector takes the memory of all its elements, even if it is null. Rows with wide vectors are
therefore read and written in batches that are limited by bytes, not by rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import lance
import pyarrow as pa

from omnigraph.errors import LimitExceeded


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a table as stored."""
    fields = [
        lance.blob_field(field.name, nullable=field.nullable) if is_blob(field) else field
        for field in schema
    ]
    return pa.schema(fields, metadata=schema.metadata)


def stored_data(data: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """Rows as passed to Lance; unchanged if there is no blob."""
    if not any(is_blob(field) for field in data.schema):
        return data
    schema = stored_schema(data.schema)
    if isinstance(data, pa.Table):
        return pa.Table.from_batches(
            [_stored_batch(batch, schema) for batch in data.to_batches()], schema
        )
    return pa.RecordBatchReader.from_batches(
        schema, (_stored_batch(batch, schema) for batch in data)
    )


def _stored_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        lance.blob_array(column.to_pylist()) if is_blob(field) else column
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def is_blob(field: pa.Field) -> bool:
    """Whether a column of a type is a Blob."""
    return bool(pa.types.is_large_binary(field.type))


def is_stored_blob(field: pa.Field) -> bool:
    """Whether a column of a stored table is Lance's blob type."""
    return getattr(field.type, "extension_name", "") == "lance.blob.v2"


BATCH_BYTES = 32 << 20
"""Bytes that the vectors of one batch may take."""
WIDEST_ROW = 64 << 20
"""Bytes that the vectors of one row may take; wider rows cannot be read."""
_USUAL_ROWS = 8_192
_SHARED_BYTES = 1 << 20


def vector_bytes(fields: Iterable[pa.Field]) -> int:
    """The size of the vectors of a row in bytes.

    >>> vector_bytes([pa.field("v", pa.list_(pa.float32(), 8)), pa.field("x", pa.int64())])
    32
    """
    return sum(_width(field.type) for field in fields)


def _width(type_: pa.DataType) -> int:
    if not pa.types.is_fixed_size_list(type_):
        return 0
    return int(type_.list_size * type_.value_type.bit_width // 8)


def batch_rows(schema: pa.Schema, names: Iterable[str] | None = None) -> int | None:
    """The number of rows for a batch of some columns; ``None`` for the default.

    Raises for rows that would not fit into memory.
    """
    wanted = set(schema.names if names is None else names)
    vectors = [field for field in schema if field.name in wanted and _width(field.type)]
    if not vectors:
        return None
    width = vector_bytes(vectors)
    if width > WIDEST_ROW:
        columns = [field.name for field in vectors]
        raise LimitExceeded(
            f"a row takes {width} bytes with the vectors of '{', '.join(columns)}', "
            f"and at most {WIDEST_ROW} can be read",
            hint="read other properties only",
            details={"columns": columns, "bytes": width},
        )
    return max(1, BATCH_BYTES // width) if is_wide(vectors) else None


def is_wide(fields: Iterable[pa.Field]) -> bool:
    """Whether the vectors of as many rows as usual take more than a batch may."""
    return vector_bytes(fields) * _USUAL_ROWS > BATCH_BYTES


def null_column(rows: int, type_: pa.DataType) -> pa.ChunkedArray:
    """A column of ``rows`` nulls that share the memory of a few.

    >>> null_column(3, pa.string()).to_pylist()
    [None, None, None]
    """
    most = max(1, _SHARED_BYTES // max(_width(type_), 1))
    if rows <= most:
        return pa.chunked_array([pa.nulls(rows, type_)])
    shared = pa.nulls(most, type_)
    return pa.chunked_array([*[shared] * (rows // most), shared.slice(0, rows % most)], type_)
