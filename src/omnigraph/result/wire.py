"""A result as an Arrow IPC stream with everything that its rows do not say, and back.

The metadata of the stream has the name of the query, the state that was read, the types of the
columns and the edges between them. A stream without it is still valid Arrow.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.argument_checks import reads_json
from omnigraph.errors import InputError
from omnigraph.lang.query.typed import EntityKind
from omnigraph.lang.types import PropType
from omnigraph.result.columns import EntityRef, Link, ResultColumn
from omnigraph.result.result import Result

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_KEY = b"omnigraph"


def stream_of(result: Result) -> Iterator[bytes]:
    """The bytes of a result, one piece for each batch."""
    description = {
        "query_name": result.query_name,
        "target": result.target,
        "columns": [_column_json(column) for column in result._columns],
        "links": [[link.src, link.dst, link.edge_type, link.edge] for link in result._links],
    }
    metadata = {_KEY: json.dumps(description).encode("utf-8")}
    sink = io.BytesIO()
    schema = result.schema.with_metadata(metadata)
    with pa.ipc.new_stream(sink, schema) as writer:
        yield _taken(sink)
        # Rows that were sent are forgotten, however many there are.
        for batch in result._stream.take():
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            yield _taken(sink)
    yield _taken(sink)


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
    target: Mapping[str, str] | None = None,
) -> Result:
    """The result in a stream; ``source`` has a ``read`` method. Rows are read on demand.

    ``limit`` passes the batches on, and ends them early or raises. ``target`` replaces the state
    that the stream names.
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
        limit(_batches(reader, schema)),
        query_name=name,
        target=read if target is None else target,
        links=links,
        close=close,
        schema=schema,
    )


def _batches(reader: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
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
