"""The edges of one node, and the nodes at their other ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import EntityNotFound, InputError
from omnigraph.lang.query.typed import STRING
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType, NodeType
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.columns import python_values
from omnigraph.records import dataclass
from omnigraph.write.conform import find_type

if TYPE_CHECKING:
    from omnigraph.api.snapshot_rows import SnapshotRows

_ID = "id"
Direction: TypeAlias = Literal["out", "in", "both"]
Values: TypeAlias = Callable[[pa.Array, PropType, str], list[Any]]
"""The values of a column of a type; the name is for errors."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An edge of a node, and the node at its other end, with all their columns."""

    edge_type: str
    direction: str
    """``out`` if the edge starts at the node, ``in`` if it ends there."""
    edge: Mapping[str, Any]
    node_type: str
    node: Mapping[str, Any]


def find_neighbours(
    snapshot: SnapshotRows,
    catalog: Catalog,
    type_name: str,
    entity_id: str,
    edge: str | None,
    direction: Direction,
    limit: int,
    values: Values = python_values,
    offset: int = 0,
) -> list[Neighbour]:
    """At most ``limit`` edges of a node after the first ``offset``.

    They are in order: by edge type, out of the node before into it, by the other node, by edge.
    """
    node_type = find_node_type(catalog, type_name)
    if direction not in ("out", "in", "both"):
        raise InputError(f"invalid direction '{direction}'; expected out, in or both")
    if snapshot.entity(node_type.table_key, entity_id) is None:
        raise missing_entity(type_name, entity_id)
    edges_of_node: list[Neighbour] = []
    for edge_type in _edge_types(catalog, edge):
        for way, near, far, near_type, far_type in (
            ("out", "src", "dst", edge_type.from_type, edge_type.to_type),
            ("in", "dst", "src", edge_type.to_type, edge_type.from_type),
        ):
            left = limit - len(edges_of_node)
            if direction in (way, "both") and near_type == node_type.name and left > 0:
                condition = pc.field(near) == entity_id
                edges, count = _some(snapshot, edge_type, condition, far, values, offset, left)
                offset = max(0, offset - count)
                edges_of_node += _joined(
                    snapshot, catalog, edge_type, way, edges, far, far_type, values
                )
    return edges_of_node


def find_node_type(catalog: Catalog, name: str) -> NodeType:
    node_type = find_type(catalog, name)
    if not isinstance(node_type, NodeType):
        raise InputError(f"'{name}' is not a node type", details={"type": name})
    return node_type


def find_entity(
    snapshot: SnapshotRows, catalog: Catalog, type_name: str, entity_id: str, values: Values
) -> tuple[EntityType, dict[str, Any]]:
    """One node or edge with all its columns, and its type. Blobs are null."""
    entity_type = find_type(catalog, type_name)
    rows = _rows(snapshot, entity_type, pc.field("id") == entity_id, values, 1)
    if not rows:
        raise missing_entity(type_name, entity_id)
    return entity_type, rows[0]


def missing_entity(type_name: str, entity_id: str) -> EntityNotFound:
    return EntityNotFound(
        f"there is no {type_name} '{entity_id}'", details={"type": type_name, "id": entity_id}
    )


def _edge_types(catalog: Catalog, name: str | None) -> list[EdgeType]:
    if name is None:
        return [catalog.edge_types[key] for key in sorted(catalog.edge_types)]
    edge_type = find_type(catalog, name)
    if not isinstance(edge_type, EdgeType):
        raise InputError(f"'{name}' is not an edge type", details={"type": name})
    return [edge_type]


def _some(
    snapshot: SnapshotRows,
    edge_type: EdgeType,
    condition: pc.Expression,
    far: str,
    values: Values,
    offset: int,
    limit: int,
) -> tuple[list[dict[str, Any]], int]:
    """The edges after the first ``offset``, by their other ends, and how many there are in all.

    Only the ends of many edges are read, and whole rows of those that are returned.
    """
    edges = _rows(snapshot, edge_type, condition, values, offset + limit + 1)
    count = len(edges)
    if count > offset + limit:
        keys = snapshot.read(edge_type.table_key, [far, _ID], condition)
        keys = keys.sort_by([(far, "ascending"), (_ID, "ascending")])
        count = keys.num_rows
        ids = keys[_ID].slice(offset, limit).combine_chunks()
        edges, offset = _rows(snapshot, edge_type, pc.field(_ID).isin(ids), values), 0
    edges.sort(key=lambda row: (row[far], row[_ID]))
    return edges[offset : offset + limit], count


def _rows(
    snapshot: SnapshotRows,
    entity_type: EntityType,
    condition: pc.Expression,
    values: Values,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Rows of a type; Blobs are not read, and null."""
    types = {name: prop.type for name, prop in entity_type.properties.items()}
    names: Sequence[str] = entity_type.arrow_schema().names
    blobs = {name for name in names if name in types and types[name].scalar is Scalar.BLOB}
    plain = [name for name in names if name not in blobs]
    rows: list[dict[str, Any]] = []
    for batch in snapshot.scan(entity_type.table_key, plain, condition):
        wanted = batch if limit is None else batch.slice(0, limit - len(rows))
        columns = {
            name: values(wanted[name], types.get(name, STRING), name)
            if name in plain
            else [None] * wanted.num_rows
            for name in names
        }
        rows += (dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True))
        if limit is not None and len(rows) >= limit:
            break
    return rows


def _joined(
    snapshot: SnapshotRows,
    catalog: Catalog,
    edge_type: EdgeType,
    way: str,
    edges: list[dict[str, Any]],
    far: str,
    far_type: str,
    values: Values,
) -> Iterator[Neighbour]:
    """Edges with the nodes at their other ends."""
    if not edges:
        return
    wanted = pc.field("id").isin(pa.array(sorted({edge[far] for edge in edges}), pa.string()))
    nodes = {
        row["id"]: row for row in _rows(snapshot, catalog.node_types[far_type], wanted, values)
    }
    for edge in edges:
        yield Neighbour(edge_type.name, way, edge, far_type, nodes[edge[far]])
