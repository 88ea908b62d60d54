"""Graphs for the read tests: the same rows as plain Python and as a graph on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from omnigraph import Graph, Source
from omnigraph.lang.query.checked import CheckedRead
from omnigraph.lang.query.checker import check_query
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import arrow_array, arrow_type
from tests.read.naive import Answer, Data, Row, answer

NOW = datetime(2024, 5, 1, 12)
_EPOCH = datetime(1970, 1, 1)


def check(catalog: Catalog, text: str, name: str | None = None) -> CheckedRead:
    """A read query, checked; refused texts raise."""
    source = Source("<query>", text)
    actual = check_query(catalog, source, select_query(read_queries(source), name))
    assert isinstance(actual, CheckedRead)
    return actual


def ask(catalog: Catalog, data: Data, text: str, params: Mapping[str, Any] | None = None) -> Answer:
    """What the naive evaluator answers."""
    query = check(catalog, text)
    return answer(query, data, convert_params(query.params, params, now=NOW))


# -- to the disk ----------------------------------------------------------------------------------


def tables(catalog: Catalog, data: Data) -> dict[str, pa.Table]:
    """The rows of every type that has some, in its Arrow columns."""
    given = [(catalog.node_types[name], rows) for name, rows in data.nodes.items()]
    given += [(catalog.edge_types[name], rows) for name, rows in data.edges.items()]
    return {kind.name: _table(kind, rows) for kind, rows in given if rows}


def _table(kind: NodeType | EdgeType, rows: Sequence[Row]) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for field in kind.arrow_schema():
        values = [row[field.name] for row in rows]
        prop = kind.properties.get(field.name)
        columns[field.name] = (
            pa.array(values, pa.utf8()) if prop is None else _array(values, prop.type)
        )
    return pa.table(columns)


def _array(values: list[Any], type_: PropType) -> pa.Array:
    if not type_.is_list:
        return arrow_array(tuple(values), type_)
    offsets, items = [0], []
    for value in values:
        items += value or ()
        offsets.append(len(items))
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        arrow_array(tuple(items), type_.element),
        type=arrow_type(type_),
        mask=pa.array([value is None for value in values]),
    )


# -- and back -------------------------------------------------------------------------------------


def read_back(graph: Graph, branch: str = "main") -> Data:
    """Every row that a branch has now."""
    catalog, snapshot = graph.catalog, graph.snapshot(branch)

    def rows(kind: NodeType | EdgeType) -> list[Row]:
        table = snapshot.read(kind.name).combine_chunks()
        columns = {
            field.name: python_values(table[field.name], kind.properties.get(field.name))
            for field in kind.arrow_schema()
        }
        return [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]

    return Data(
        {name: rows(kind) for name, kind in catalog.node_types.items()},
        {name: rows(kind) for name, kind in catalog.edge_types.items()},
    )


def python_values(column: pa.ChunkedArray, prop: Any) -> list[Any]:
    """A stored column as the naive evaluator has it; a ``date64`` is counted by hand."""
    type_ = None if prop is None else prop.type
    if type_ is None or type_.scalar is not Scalar.DATETIME:
        values = column.to_pylist()
    elif type_.is_list:
        values = column.cast(pa.list_(pa.int64())).to_pylist()
        values = [None if v is None else [_moment(item) for item in v] for v in values]
    else:
        values = [_moment(value) for value in column.cast(pa.int64()).to_pylist()]
    return [tuple(value) if isinstance(value, list) else value for value in values]


def _moment(millis: int | None) -> datetime | None:
    return None if millis is None else _EPOCH + timedelta(milliseconds=millis)
