"""Converts a result to pandas, polars and networkx; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from omnigraph.errors import InputError, PackageMissing
from omnigraph.lang.query.typed import EntityKind
from omnigraph.lang.values.arrow import to_timestamp
from omnigraph.result.columns import Link, ResultColumn

# The plain integers and booleans of pandas have no null: a column with one would become floats,
# which round beyond 2^53, or objects.
_NULLABLE = {
    pa.int32(): "Int32Dtype",
    pa.int64(): "Int64Dtype",
    pa.uint32(): "UInt32Dtype",
    pa.uint64(): "UInt64Dtype",
    pa.bool_(): "BooleanDtype",
}


def to_pandas(columns: Sequence[ResultColumn], table: pa.Table) -> Any:
    """A pandas frame; column names may repeat."""
    pandas = _package("pandas")

    def nullable(type_: pa.DataType) -> Any:
        name = _NULLABLE.get(type_)
        return None if name is None else getattr(pandas, name)()

    data = {
        position: shown.to_pandas(types_mapper=nullable if column.type.nullable else None)
        for position, (column, shown) in enumerate(
            zip(columns, _shown(columns, table).columns, strict=True)
        )
    }
    frame = pandas.DataFrame(data)
    frame.columns = pandas.Index([column.name for column in columns], dtype=object)
    return frame


def to_polars(columns: Sequence[ResultColumn], table: pa.Table) -> Any:
    """A polars frame; raises if column names repeat."""
    return _package("polars").from_arrow(_shown(columns, table))


def to_networkx(
    columns: Sequence[ResultColumn], links: Sequence[Link], rows: Iterable[tuple[Any, ...]]
) -> Any:
    """A multigraph of the nodes and edges of the rows; an edge in two rows is added once."""
    networkx = _package("networkx")
    nodes = node_columns(columns)
    if not nodes:
        raise InputError(
            "this result has no nodes", hint="return the variables themselves: return { $a, $b }"
        )
    properties = {
        position: _properties(columns, position)
        for position, column in enumerate(columns)
        if column.entity is not None
    }
    graph = networkx.MultiDiGraph()
    for row in rows:
        for position, type_name in nodes.items():
            node = type_name, row[position]
            graph.add_node(node)
            graph.nodes[node].update(_attributes(row, type_name, position, properties))
        for link in links:
            ends = (nodes[link.src], row[link.src]), (nodes[link.dst], row[link.dst])
            key = link.edge_type if link.edge is None else (link.edge_type, row[link.edge])
            graph.add_edge(*ends, key=key)
            attributes = _attributes(row, link.edge_type, link.edge, properties)
            graph.edges[(*ends, key)].update(attributes)
    return graph


def node_columns(columns: Sequence[ResultColumn]) -> dict[int, str]:
    """The type of each column of nodes, by position."""
    return {
        position: column.entity.type_name
        for position, column in enumerate(columns)
        if column.entity is not None and column.entity.kind is EntityKind.NODE
    }


def _properties(columns: Sequence[ResultColumn], position: int) -> list[tuple[str, int]]:
    """The columns ``p.name`` for the column of a variable ``p``, as property name and position."""
    entity = columns[position].entity
    assert entity is not None
    start = f"{entity.variable}."
    return [
        (column.name.removeprefix(start), at)
        for at, column in enumerate(columns)
        if column.name.startswith(start)
    ]


def _attributes(
    row: tuple[Any, ...],
    type_name: str,
    position: int | None,
    properties: dict[int, list[tuple[str, int]]],
) -> dict[str, Any]:
    """The attributes of a node or edge. Its properties take precedence over ``type`` and ``id``."""
    if position is None:
        return {"type": type_name}
    own = {name: row[at] for name, at in properties[position]}
    return {"type": type_name, "id": row[position], **own}


def _shown(columns: Sequence[ResultColumn], table: pa.Table) -> pa.Table:
    """The table with date-times as timestamps: frames treat a ``date64`` as a day."""
    shown = [to_timestamp(data) for data in table.columns]
    return pa.Table.from_arrays(shown, names=[column.name for column in columns])


def _package(name: str) -> Any:
    """Import an optional package; the extra that installs it has the same name."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise PackageMissing(
            f"the package {name} is not installed",
            hint=f"pip install 'omnigraph[{name}]'",
            details={"package": name, "extra": name},
        ) from None
