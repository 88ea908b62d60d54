"""How schema types look in Arrow.

Import this module only where Arrow is needed: it loads pyarrow, which a command that prints a
version does not want to wait for. Blobs are plain ``large_binary`` here; the storage room turns
them into Lance's own blob type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.lang.types import PropType, Scalar

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Property

_SCALARS: dict[Scalar, Callable[[], pa.DataType]] = {
    Scalar.STRING: pa.utf8,
    Scalar.BOOL: pa.bool_,
    Scalar.I32: pa.int32,
    Scalar.I64: pa.int64,
    Scalar.U32: pa.uint32,
    Scalar.U64: pa.uint64,
    Scalar.F32: pa.float32,
    Scalar.F64: pa.float64,
    Scalar.DATE: pa.date32,
    Scalar.DATETIME: pa.date64,
    Scalar.BLOB: pa.large_binary,
}


def arrow_type(prop_type: PropType) -> pa.DataType:
    """The column type of a property type; nullability belongs to the field.

    >>> str(arrow_type(PropType(Scalar.VECTOR, dimension=3)))
    'fixed_size_list<item: float>[3]'
    """
    if prop_type.scalar is Scalar.VECTOR:
        assert prop_type.dimension is not None
        return pa.list_(pa.field("item", pa.float32(), nullable=True), prop_type.dimension)
    scalar = _SCALARS[prop_type.scalar]()
    if prop_type.is_list:
        return pa.list_(pa.field("item", scalar, nullable=True))
    return scalar


def arrow_field(name: str, prop_type: PropType) -> pa.Field:
    """The column of a property; required properties are not nullable."""
    return pa.field(name, arrow_type(prop_type), nullable=prop_type.nullable)


def node_schema(properties: Iterable[Property]) -> pa.Schema:
    """The table of a node type: ``id``, then the properties in alphabetical order."""
    return _schema(("id",), properties)


def edge_schema(properties: Iterable[Property]) -> pa.Schema:
    """The table of an edge type: ``id``, ``src``, ``dst``, then the properties."""
    return _schema(("id", "src", "dst"), properties)


def _schema(hidden: tuple[str, ...], properties: Iterable[Property]) -> pa.Schema:
    fields = [pa.field(name, pa.utf8(), nullable=False) for name in hidden]
    ordered = sorted(properties, key=lambda p: p.name)
    return pa.schema([*fields, *(arrow_field(p.name, p.type) for p in ordered)])
