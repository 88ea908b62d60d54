"""Types read and written, and result columns, for tools that do not run the query."""

from __future__ import annotations

from dataclasses import field

from omnigraph.lang.query.checked import (
    CheckedMutation,
    CheckedQuery,
    CheckedRead,
    CheckedStatement,
    Pattern,
    StatementKind,
)
from omnigraph.lang.query.typed import EntityKind
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import PropType, Scalar
from omnigraph.records import dataclass

_KINDS = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
}


@dataclass(frozen=True, slots=True, order=True)
class TypeUse:
    """A node or edge type that a query reads or writes."""

    kind: EntityKind
    type_name: str


@dataclass(frozen=True, slots=True)
class ResultField:
    """One column of the result, with its actual name."""

    name: str
    kind: str
    item_kind: str | None = field(metadata={"optional": True})
    vector_dim: int | None = field(metadata={"optional": True})
    nullable: bool

    @staticmethod
    def of(name: str, type_: PropType) -> ResultField:
        kind = _KINDS[type_.scalar]
        shape, item = ("list", kind) if type_.is_list else (kind, None)
        return ResultField(name, shape, item, type_.dimension, type_.nullable)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The columns of the result, and the types read and written, each list sorted."""

    result: tuple[ResultField, ...]
    reads: tuple[TypeUse, ...]
    writes: tuple[TypeUse, ...]


def describe(catalog: Catalog, checked: CheckedQuery) -> Descriptor:
    """The operation descriptor of a checked query."""
    if isinstance(checked, CheckedRead):
        return _read(checked)
    return _mutation(catalog, checked)


def _node(name: str) -> TypeUse:
    return TypeUse(EntityKind.NODE, name)


def _edge(name: str) -> TypeUse:
    return TypeUse(EntityKind.EDGE, name)


def _read(checked: CheckedRead) -> Descriptor:
    reads: set[TypeUse] = set()
    _pattern(checked.pattern, reads)
    fields = tuple(ResultField.of(column.name, column.expr.type) for column in checked.columns)
    return Descriptor(fields, tuple(sorted(reads)), ())


def _pattern(pattern: Pattern, reads: set[TypeUse]) -> None:
    reads.update(_node(node.type_name) for node in pattern.nodes)
    for hop in pattern.hops:
        reads.update((_node(hop.src_type), _node(hop.dst_type), _edge(hop.edge_type)))
    for absent in pattern.absent:
        _pattern(absent.pattern, reads)


def _mutation(catalog: Catalog, checked: CheckedMutation) -> Descriptor:
    reads: set[TypeUse] = set()
    writes: set[TypeUse] = set()
    for statement in checked.statements:
        target = TypeUse(statement.entity, statement.type_name)
        reads.add(target)
        writes.add(target)
        reads.update(_endpoints(catalog, statement))
        cascaded = _cascade(catalog, statement)
        reads.update(cascaded)
        writes.update(cascaded)
    return Descriptor((), tuple(sorted(reads)), tuple(sorted(writes)))


def _endpoints(catalog: Catalog, statement: CheckedStatement) -> list[TypeUse]:
    """The node types read by an insert of an edge, which checks its endpoints."""
    if statement.kind is not StatementKind.INSERT or statement.entity is EntityKind.NODE:
        return []
    edge = catalog.edge_types[statement.type_name]
    return [_node(edge.from_type), _node(edge.to_type)]


def _cascade(catalog: Catalog, statement: CheckedStatement) -> list[TypeUse]:
    """The edge types written by a delete of nodes, which deletes their edges."""
    if statement.kind is not StatementKind.DELETE or statement.entity is EntityKind.EDGE:
        return []
    return [
        _edge(edge.name)
        for edge in catalog.edge_types.values()
        if statement.type_name in (edge.from_type, edge.to_type)
    ]
