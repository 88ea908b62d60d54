"""How much memory the rows of a table take that have vectors in them.

A vector takes the memory of all its numbers, also one that is null. Rows with wide ones are
therefore read and made in batches that are bounded by their bytes, not by their number.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from omnigraph.errors import LimitExceeded

BATCH_BYTES = 32 << 20
"""What the vectors of one batch may take."""
WIDEST_ROW = 64 << 20
"""What those of one row may take that is read at all."""
_USUAL_ROWS = 8_192
_SHARED_BYTES = 1 << 20


def vector_bytes(fields: Iterable[pa.Field]) -> int:
    """How many bytes the vectors of a row take.

    >>> vector_bytes([pa.field("v", pa.list_(pa.float32(), 8)), pa.field("x", pa.int64())])
    32
    """
    return sum(_width(field.type) for field in fields)


def _width(type_: pa.DataType) -> int:
    if not pa.types.is_fixed_size_list(type_):
        return 0
    return int(type_.list_size * type_.value_type.bit_width // 8)


def batch_rows(schema: pa.Schema, names: Iterable[str] | None = None) -> int | None:
    """How many rows a batch of some columns should have; none when they may be as many as usual.

    Rows that would not fit into memory are refused.
    """
    wanted = set(schema.names if names is None else names)
    vectors = [field for field in schema if field.name in wanted and _width(field.type)]
    width = vector_bytes(vectors)
    if width > WIDEST_ROW:
        columns = [field.name for field in vectors]
        raise LimitExceeded(
            f"a row takes {width} bytes with the vectors of '{', '.join(columns)}', "
            f"and at most {WIDEST_ROW} can be read",
            hint="read other properties only",
            details={"columns": columns, "bytes": width},
        )
    return max(1, BATCH_BYTES // width) if width * _USUAL_ROWS > BATCH_BYTES else None


def null_column(rows: int, type_: pa.DataType) -> pa.ChunkedArray:
    """So many nulls, which share the memory of a few.

    >>> null_column(3, pa.string()).to_pylist()
    [None, None, None]
    """
    most = max(1, _SHARED_BYTES // max(_width(type_), 1))
    if rows <= most:
        return pa.chunked_array([pa.nulls(rows, type_)])
    shared = pa.nulls(most, type_)
    return pa.chunked_array([*[shared] * (rows // most), shared.slice(0, rows % most)], type_)
