"""The canonical form of a schema, which is stored, hashed and compared.

It must be byte for byte identical to the output of the reference program, because both open each
other's graphs: key order, sorting, the text of floats and the ids are part of the format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, ClassVar

from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import NOWHERE
from omnigraph.lang.fnv import fnv1a_32
from omnigraph.lang.schema.ast import (
    Annotation,
    Cardinality,
    CheckConstraint,
    ColumnConstraint,
    Constraint,
    PropertyDecl,
    RangeConstraint,
    SchemaFile,
    TypeKind,
)
from omnigraph.lang.schema.expand import expand_edge, expand_node, interfaces_by_name
from omnigraph.lang.schema.ir_json import compact_json, debug_float, parse_json, pretty_json
from omnigraph.lang.schema.json_form import MALFORMED, from_json, to_json
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass

IR_VERSION = 1


@dataclass(frozen=True, slots=True)
class PropertyIR:
    """A property with its id, enum values and annotations sorted."""

    name: str
    prop_id: int
    type: PropType = field(metadata={"json": "prop_type"})
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class InterfaceIR:
    kind: ClassVar[TypeKind] = TypeKind.INTERFACE
    annotations: ClassVar[tuple[Annotation, ...]] = ()
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    name: str
    type_id: int
    properties: tuple[PropertyIR, ...]


@dataclass(frozen=True, slots=True)
class NodeIR:
    kind: ClassVar[TypeKind] = TypeKind.NODE
    name: str
    type_id: int
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...]
    properties: tuple[PropertyIR, ...]
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class EdgeIR:
    kind: ClassVar[TypeKind] = TypeKind.EDGE
    name: str
    type_id: int
    from_type: str
    to_type: str
    cardinality: Cardinality
    annotations: tuple[Annotation, ...]
    properties: tuple[PropertyIR, ...]
    constraints: tuple[Constraint, ...]


TypeIR = InterfaceIR | NodeIR | EdgeIR


@dataclass(frozen=True, slots=True)
class SchemaIR:
    """A whole schema in canonical form."""

    ir_version: int
    interfaces: tuple[InterfaceIR, ...]
    nodes: tuple[NodeIR, ...]
    edges: tuple[EdgeIR, ...]

    @property
    def types(self) -> tuple[TypeIR, ...]:
        """Interfaces, nodes, edges, each in the order of their names."""
        return (*self.interfaces, *self.nodes, *self.edges)

    def compact(self) -> str:
        """The text that is hashed."""
        return compact_json(to_json(self))

    def pretty(self) -> str:
        """The text of ``_schema.ir.json``."""
        return pretty_json(to_json(self))

    def hash(self) -> str:
        """``sha256:`` and the hex digest of the compact text, as in the graph's state file.

        >>> SchemaIR(IR_VERSION, (), (), ()).hash()[:20]
        'sha256:175cac5f031a9'
        """
        return "sha256:" + hashlib.sha256(self.compact().encode("utf-8")).hexdigest()

    @staticmethod
    def parse(text: str) -> SchemaIR:
        """The inverse of ``compact`` and ``pretty``."""
        return SchemaIR.from_json(parse_json(text))

    @staticmethod
    def from_json(value: Any) -> SchemaIR:
        """The inverse of ``to_json``; raises ``InputError`` if the data is not a schema."""
        try:
            ir: SchemaIR = from_json(SchemaIR, value)
        except MALFORMED as error:
            raise InputError(f"invalid schema IR: {type(error).__name__}: {error}") from None
        if ir.ir_version != IR_VERSION:
            raise InputError(f"schema IR version {ir.ir_version} is not supported")
        return ir


def type_id(kind: str, name: str) -> int:
    """The id of a type in the canonical form; never 0.

    >>> type_id("node", "Person")
    3227219152
    """
    return fnv1a_32(f"{kind}:{name}") or 1


def property_id(kind: str, owner: str, name: str) -> int:
    """The id of a property in the canonical form; never 0."""
    return fnv1a_32(f"{kind}:{owner}:{name}") or 1


# -- building -----------------------------------------------------------------------------------


def build_ir(file: SchemaFile) -> SchemaIR:
    """The canonical form of a checked file: order, comments and layout do not matter."""
    interfaces = interfaces_by_name(file)
    nodes = [expand_node(node, interfaces) for node in file.nodes]
    edges = [expand_edge(edge) for edge in file.edges]
    return SchemaIR(
        IR_VERSION,
        interfaces=tuple(
            InterfaceIR(
                i.name,
                type_id(TypeKind.INTERFACE, i.name),
                _properties(TypeKind.INTERFACE, i.name, i.properties),
            )
            for i in sorted(interfaces.values(), key=lambda i: i.name)
        ),
        nodes=tuple(
            NodeIR(
                n.decl.name,
                type_id(TypeKind.NODE, n.decl.name),
                canonical_annotations(n.decl.annotations),
                tuple(sorted({ref.name for ref in n.decl.implements})),
                _properties(TypeKind.NODE, n.decl.name, n.properties),
                canonical_constraints(n.constraints),
            )
            for n in sorted(nodes, key=lambda n: n.decl.name)
        ),
        edges=tuple(
            EdgeIR(
                e.decl.name,
                type_id(TypeKind.EDGE, e.decl.name),
                e.decl.from_type.name,
                e.decl.to_type.name,
                replace(e.decl.cardinality or Cardinality(), span=NOWHERE),
                canonical_annotations(e.decl.annotations),
                _properties(TypeKind.EDGE, e.decl.name, e.properties),
                canonical_constraints(e.constraints),
            )
            for e in sorted(edges, key=lambda e: e.decl.name)
        ),
    )


def _properties(
    kind: TypeKind, owner: str, properties: Iterable[PropertyDecl]
) -> tuple[PropertyIR, ...]:
    return tuple(
        PropertyIR(
            p.name,
            property_id(kind, owner, p.name),
            canonical_type(p.type),
            canonical_annotations(p.annotations),
        )
        for p in sorted(properties, key=lambda p: p.name)
    )


def canonical_type(prop_type: PropType) -> PropType:
    """The same type with its enum values sorted."""
    if prop_type.enum_values is None:
        return prop_type
    return replace(prop_type, enum_values=tuple(sorted(prop_type.enum_values)))


def canonical_annotations(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    """Annotations sorted by name and value, a missing value first, without their notation."""
    ordered = sorted(annotations, key=lambda a: (a.name, a.value is not None, a.value or ""))
    return tuple(Annotation(a.name, a.value, a.kwargs) for a in ordered)


def canonical_constraints(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Constraints with sorted columns, sorted by their text; duplicates are kept."""
    bare: list[Constraint] = []
    for constraint in constraints:
        if isinstance(constraint, ColumnConstraint):
            constraint = replace(constraint, columns=tuple(sorted(constraint.columns)))
        bare.append(replace(constraint, span=NOWHERE, column_spans=()))
    return tuple(sorted(bare, key=constraint_key))


def constraint_key(constraint: Constraint) -> str:
    """The text by which the canonical form sorts constraints."""
    if isinstance(constraint, RangeConstraint):
        low, high = _debug_bound(constraint.min), _debug_bound(constraint.max)
        return f"range:{constraint.property}:{low}:{high}"
    if isinstance(constraint, CheckConstraint):
        return f"check:{constraint.property}:{constraint.pattern}"
    return f"{constraint.word}:{','.join(constraint.columns)}"


def _debug_bound(bound: int | float | None) -> str:
    if bound is None:
        return "None"
    if isinstance(bound, float):
        return f"Some(Float({debug_float(bound)}))"
    return f"Some(Integer({bound}))"
