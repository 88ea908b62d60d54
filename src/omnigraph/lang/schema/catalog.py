"""The resolved types of a schema.

A catalog is always built from the canonical form, whether that comes from a text or from a
stored file, so both give the same catalog. It is immutable; its mappings are read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from omnigraph.errors import InputError
from omnigraph.lang.schema.ast import (
    Annotation,
    Cardinality,
    CheckConstraint,
    Constraint,
    IndexConstraint,
    KeyConstraint,
    RangeConstraint,
    TypeKind,
    UniqueConstraint,
)
from omnigraph.lang.schema.ir import EdgeIR, NodeIR, PropertyIR, SchemaIR
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass
from omnigraph.representation import brief

if TYPE_CHECKING:
    from pyarrow import Schema as ArrowSchema
else:
    # A catalog is built without loading Arrow; annotations still resolve.
    ArrowSchema = Any


@dataclass(frozen=True, slots=True)
class Property:
    """A declared property of a node, an edge or an interface."""

    name: str
    type: PropType
    annotations: tuple[Annotation, ...] = ()
    prop_id: int = 0

    def annotation(self, name: str) -> Annotation | None:
        """The first annotation of that name."""
        return next((a for a in self.annotations if a.name == name), None)


@dataclass(frozen=True, slots=True)
class Embed:
    """The source property of an embedded vector, and its model."""

    source: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class TableType:
    """A type with a table; ``properties`` are in alphabetical order, like the columns."""

    kind: ClassVar[TypeKind]
    hidden: ClassVar[tuple[str, ...]]
    name: str
    properties: Mapping[str, Property]
    unique: tuple[tuple[str, ...], ...] = field(default=(), kw_only=True)
    indexes: tuple[tuple[str, ...], ...] = field(default=(), kw_only=True)
    annotations: tuple[Annotation, ...] = field(default=(), kw_only=True)
    type_id: int = field(default=0, kw_only=True)
    _arrow: list[ArrowSchema] = field(default_factory=list, repr=False, compare=False, init=False)

    @property
    def table_key(self) -> str:
        """``node:Name`` or ``edge:Name``."""
        # Formatting an enum takes ten times as long.
        return self.kind + ":" + self.name

    def arrow_schema(self) -> ArrowSchema:
        """The columns of the table: ``id``, for edges ``src`` and ``dst``, then the properties."""
        if not self._arrow:
            from omnigraph.lang.values.arrow import table_schema

            columns = {name: self.properties[name].type for name in sorted(self.properties)}
            self._arrow.append(table_schema(self.hidden, columns))
        return self._arrow[0]


@dataclass(frozen=True, slots=True)
class NodeType(TableType):
    """A node type; ``properties`` are in alphabetical order, like the columns."""

    kind: ClassVar[TypeKind] = TypeKind.NODE
    hidden: ClassVar[tuple[str, ...]] = ("id",)
    key: tuple[str, ...] = ()
    ranges: tuple[RangeConstraint, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    embeds: Mapping[str, Embed] = field(default_factory=dict)
    implements: tuple[str, ...] = ()

    @property
    def key_property(self) -> str | None:
        """The first key column; ``None`` if the type has no key."""
        return self.key[0] if self.key else None


@dataclass(frozen=True, slots=True)
class EdgeType(TableType):
    """An edge type; in ``unique`` and ``indexes`` the ends are called ``src`` and ``dst``."""

    kind: ClassVar[TypeKind] = TypeKind.EDGE
    hidden: ClassVar[tuple[str, ...]] = ("id", "src", "dst")
    from_type: str
    to_type: str
    cardinality: Cardinality


EntityType: TypeAlias = NodeType | EdgeType


@dataclass(frozen=True, slots=True)
class Interface:
    """A set of properties that nodes share; it has no table."""

    name: str
    properties: Mapping[str, Property]
    type_id: int = 0


@dataclass(frozen=True, slots=True)
class Catalog:
    """All types of a schema, each mapping in alphabetical order.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> catalog = compile_schema("node A { name: String @key } edge Knows: A -> A")
    >>> catalog.edge("knows").name, catalog.node("A").key, catalog.node("B")
    ('Knows', ('name',), None)
    """

    __repr__ = brief

    node_types: Mapping[str, NodeType]
    edge_types: Mapping[str, EdgeType]
    interfaces: Mapping[str, Interface]
    ir: SchemaIR
    schema_hash: str
    _folded: Mapping[str, EdgeType] = field(default_factory=dict, repr=False, compare=False)

    def node(self, name: str) -> NodeType | None:
        """A node type by its exact name."""
        try:
            return self.node_types.get(name)
        except TypeError:
            raise _not_text("name", name) from None

    def edge(self, word: str) -> EdgeType | None:
        """An edge type by its exact name, else by its name ignoring case."""
        try:
            return self.edge_types.get(word) or self._folded.get(word.lower())
        except (TypeError, AttributeError):
            raise _not_text("word", word) from None


def _not_text(name: str, value: object) -> InputError:
    # The compiler looks up every name of a query: checking the type of each would cost more.
    return InputError(f"{name} must be text, not {type(value).__name__}")


def entity_types(catalog: Catalog) -> list[EntityType]:
    """Every type with a table: nodes before edges, each in the order of names."""
    return [*catalog.node_types.values(), *catalog.edge_types.values()]


def catalog_from_ir(ir: SchemaIR) -> Catalog:
    """The catalog of a valid canonical schema.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> catalog = compile_schema("node A { name: String @key }")
    >>> catalog_from_ir(catalog.ir) == catalog
    True
    """
    nodes = {node.name: _node(node) for node in ir.nodes}
    edges = {edge.name: _edge(edge) for edge in ir.edges}
    interfaces = {i.name: Interface(i.name, _props(i.properties), i.type_id) for i in ir.interfaces}
    return Catalog(
        MappingProxyType(nodes),
        MappingProxyType(edges),
        MappingProxyType(interfaces),
        ir,
        ir.hash(),
        MappingProxyType({name.lower(): edge for name, edge in edges.items()}),
    )


def text_of(catalog: Catalog) -> str:
    """A catalog as text, to be sent to another process."""
    return catalog.ir.compact()


def catalog_of(text: str) -> Catalog:
    """The inverse of ``text_of``.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> catalog = compile_schema("node A { name: String @key }")
    >>> catalog_of(text_of(catalog)) == catalog
    True
    """
    return catalog_from_ir(SchemaIR.parse(text))


def _node(node: NodeIR) -> NodeType:
    key = next((c.columns for c in node.constraints if isinstance(c, KeyConstraint)), ())
    indexes = ((key,) if key else ()) + _groups(node.constraints, IndexConstraint)
    embeds = {
        prop.name: Embed(annotation.value, dict(annotation.kwargs).get("model"))
        for prop in node.properties
        for annotation in prop.annotations
        if annotation.name == "embed" and annotation.value is not None
    }
    return NodeType(
        node.name,
        _props(node.properties),
        key,
        tuple(dict.fromkeys(c for c in node.constraints if isinstance(c, RangeConstraint))),
        tuple(dict.fromkeys(c for c in node.constraints if isinstance(c, CheckConstraint))),
        MappingProxyType(embeds),
        node.implements,
        unique=_groups(node.constraints, UniqueConstraint),
        indexes=tuple(dict.fromkeys(indexes)),
        annotations=node.annotations,
        type_id=node.type_id,
    )


def _edge(edge: EdgeIR) -> EdgeType:
    return EdgeType(
        edge.name,
        _props(edge.properties),
        edge.from_type,
        edge.to_type,
        edge.cardinality,
        unique=_groups(edge.constraints, UniqueConstraint),
        indexes=_groups(edge.constraints, IndexConstraint),
        annotations=edge.annotations,
        type_id=edge.type_id,
    )


def _groups(
    constraints: Iterable[Constraint], kind: type[UniqueConstraint] | type[IndexConstraint]
) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(c.columns for c in constraints if isinstance(c, kind)))


def _props(properties: Iterable[PropertyIR]) -> Mapping[str, Property]:
    by_name = {p.name: Property(p.name, p.type, p.annotations, p.prop_id) for p in properties}
    return MappingProxyType(by_name)
