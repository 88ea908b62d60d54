"""A result as an Arrow IPC stream with everything that its rows do not say, and back.

The metadata of the stream has the name of the query, the state that was read, the types of the
columns and the edges between them. A stream without it is still valid Arrow.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.argument_checks import reads_json
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.query.typed import EntityKind
from omnigraph.lang.types import PropType
from omnigraph.lang.values.columns import JsonForm, json_values
from omnigraph.result.columns import EntityRef, Link, ResultColumn
from omnigraph.result.result import Result

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_KEY = b"omnigraph"
_ERROR = b"omnigraph.error"
_ROWS = 4_096
"""Rows as Python values at once."""
_BYTES = 1 << 20
"""About the bytes of rows at once: a transport copies them, and Python values take several times
as many."""
Look: TypeAlias = Callable[[int], None]


def _nothing(count: int) -> None:
    """Looks at the number of rows, and lets them pass."""


class ArrowPieces:
    """The bytes of a result as an Arrow stream, in batches of about a mebibyte.

    ``look`` gets the number of rows so far before each batch, and may raise.
    """

    def __init__(self, result: Result, look: Look = _nothing) -> None:
        description = {
            "query_name": result.query_name,
            "target": result.target,
            "columns": [_column_json(column) for column in result._columns],
            "links": [[link.src, link.dst, link.edge_type, link.edge] for link in result._links],
        }
        metadata = {_KEY: json.dumps(description).encode("utf-8")}
        self._result = result
        self._look = look
        self._schema = result.schema.with_metadata(metadata)
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, self._schema)

    def __iter__(self) -> Iterator[bytes]:
        yield _taken(self._sink)
        count = 0
        # Rows that were sent are forgotten, however many there are.
        for batch in self._result._stream.take():
            count += batch.num_rows
            self._look(count)
            whole = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
            for part in _parts(whole, batch.num_rows):
                self._writer.write_batch(part)
                yield _taken(self._sink)
        self._writer.close()
        yield _taken(self._sink)

    def failure(self, error: bytes) -> bytes:
        """The last piece of a stream that fails: no rows, and the error as metadata."""
        empty = pa.RecordBatch.from_arrays(
            [pa.nulls(0, field.type) for field in self._schema], schema=self._schema
        )
        self._writer.write_batch(empty, custom_metadata={_ERROR: error})
        return _taken(self._sink)


def json_pieces(
    result: Result, form: JsonForm, look: Look = _nothing
) -> Iterator[list[dict[str, Any]]]:
    """The rows of a result as JSON values, some at a time; those before are forgotten."""
    names = result._keys()
    count = 0
    for batch in result._stream.take():
        count += batch.num_rows
        look(count)
        for part in _parts(batch, _ROWS):
            columns = (
                json_values(array, column.type, column.name, form)
                for array, column in zip(part.columns, result._columns, strict=True)
            )
            yield [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _parts(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, at most so many at a time, fewer if they are wide."""
    rows = max(1, min(most, batch.num_rows * _BYTES // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _taken(sink: io.BytesIO) -> bytes:
    """The bytes written so far, which are then forgotten."""
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


def _column_json(column: ResultColumn) -> dict[str, Any]:
    entity = column.entity
    return {
        "name": column.name,
        "type": column.type.to_json(),
        "entity": None
        if entity is None
        else {
            "kind": str(entity.kind),
            "type_name": entity.type_name,
            "variable": entity.variable,
        },
    }


def result_from(
    source: Any,
    *,
    close: Callable[[], None],
    limit: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    failed: Callable[[bytes], OmniGraphError],
    target: Mapping[str, str] | None = None,
) -> Result:
    """The result in a stream; ``source`` has a ``read`` method. Rows are read on demand.

    ``limit`` passes the batches on, and ends them early or raises. ``failed`` is the error with
    which a stream has ended. ``target`` replaces the state that the stream names.
    """
    try:
        reader = pa.ipc.open_stream(source)
        description = json.loads((reader.schema.metadata or {})[_KEY])
    except (pa.ArrowException, KeyError, ValueError):
        raise InputError("the stream has no result") from None
    columns, links, name, read = _decoded(description)
    schema = reader.schema.remove_metadata()
    return Result(
        columns,
        limit(_batches(reader, schema, failed)),
        query_name=name,
        target=read if target is None else target,
        links=links,
        close=close,
        schema=schema,
    )


def _batches(
    reader: Any, schema: pa.Schema, failed: Callable[[bytes], OmniGraphError]
) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        if metadata is not None and _ERROR in metadata:
            raise failed(bytes(metadata[_ERROR]))
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


@reads_json("result")
def _decoded(
    value: Mapping[str, Any],
) -> tuple[list[ResultColumn], list[Link], str, dict[str, str]]:
    columns = [
        ResultColumn(
            str(column["name"]), PropType.from_json(column["type"]), _entity(column["entity"])
        )
        for column in value["columns"]
    ]
    links = [Link(src, dst, edge_type, edge) for src, dst, edge_type, edge in value["links"]]
    target = {str(key): str(name) for key, name in value["target"].items() if name is not None}
    return columns, links, str(value["query_name"]), target


def _entity(value: Mapping[str, Any] | None) -> EntityRef | None:
    if value is None:
        return None
    return EntityRef(EntityKind(value["kind"]), value["type_name"], value["variable"])
