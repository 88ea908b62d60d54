"""Blob columns: plain bytes towards the rest of the program, Lance's blob type on storage.

Only Blob properties are ``large_binary`` in the schema of a type, so the type identifies them.
"""

from __future__ import annotations

from collections.abc import Iterator

import lance
import pyarrow as pa


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a table as it lies on storage."""
    fields = [
        lance.blob_field(field.name, nullable=field.nullable) if is_blob(field) else field
        for field in schema
    ]
    return pa.schema(fields, metadata=schema.metadata)


def stored_data(data: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """Rows as they are handed to Lance; unchanged where there is no blob."""
    if not any(is_blob(field) for field in data.schema):
        return data
    schema = stored_schema(data.schema)
    if isinstance(data, pa.Table):
        return pa.Table.from_batches(
            [_stored_batch(batch, schema) for batch in data.to_batches()], schema
        )
    return pa.RecordBatchReader.from_batches(schema, _stored_batches(data, schema))


def _stored_batches(reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield _stored_batch(batch, schema)


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
