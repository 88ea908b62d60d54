"""Syntax trees of schemas, exactly as written.

Nothing is desugared here and no interface is expanded, so that the formatter can print a file
back. Equality ignores spans: two texts that differ in layout only have equal trees. The
annotation and constraint classes are also used by the canonical form and the catalog, where
spans and ``kinds`` are empty.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field
from enum import StrEnum

from omnigraph.lang.diagnostics import NOWHERE, Span
from omnigraph.lang.types import PropType


class ArgKind(StrEnum):
    """How an annotation argument was written."""

    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    IDENT = "identifier"


class TypeKind(StrEnum):
    """The three kinds of declarations."""

    INTERFACE = "interface"
    NODE = "node"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to another declaration."""

    name: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Annotation:
    """``@name``, ``@name(value)`` or ``@name(value, key="…")``; values are kept as text.

    ``kinds`` says how the value and then each keyword value was written, so that
    ``@embed(bio)`` and ``@embed("bio")`` print back as they were. The canonical form leaves it
    empty, because both mean the same.
    """

    name: str
    value: str | None = None
    kwargs: tuple[tuple[str, str], ...] = ()
    kinds: tuple[ArgKind, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    value_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ColumnConstraint:
    """A constraint on a tuple of properties."""

    columns: tuple[str, ...]
    span: Span = field(default=NOWHERE, compare=False)
    column_spans: tuple[Span, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class KeyConstraint(ColumnConstraint):
    """``@key(a, b)``"""


@dataclass(frozen=True, slots=True)
class UniqueConstraint(ColumnConstraint):
    """``@unique(a, b)``: the tuple of values is unique."""


@dataclass(frozen=True, slots=True)
class IndexConstraint(ColumnConstraint):
    """``@index(a, b)``"""


@dataclass(frozen=True, slots=True)
class RangeConstraint:
    """``@range(property, min..max)``: inclusive bounds, either may be missing."""

    property: str
    min: int | float | None
    max: int | float | None
    span: Span = field(default=NOWHERE, compare=False)
    column_spans: tuple[Span, ...] = field(default=(), compare=False)

    @builtins.property
    def columns(self) -> tuple[str, ...]:
        return (self.property,)


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """``@check(property, "pattern")``: an unanchored search must match."""

    property: str
    pattern: str
    span: Span = field(default=NOWHERE, compare=False)
    column_spans: tuple[Span, ...] = field(default=(), compare=False)

    @builtins.property
    def columns(self) -> tuple[str, ...]:
        return (self.property,)


Constraint = KeyConstraint | UniqueConstraint | IndexConstraint | RangeConstraint | CheckConstraint

COLUMN_CONSTRAINTS: dict[str, type[KeyConstraint | UniqueConstraint | IndexConstraint]] = {
    "key": KeyConstraint,
    "unique": UniqueConstraint,
    "index": IndexConstraint,
}

WORDS: dict[type[Constraint], str] = {
    KeyConstraint: "key",
    UniqueConstraint: "unique",
    IndexConstraint: "index",
    RangeConstraint: "range",
    CheckConstraint: "check",
}


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many edges of a type may leave one source node."""

    min: int = 0
    max: int | None = None
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{self.min}..{'' if self.max is None else self.max}"


@dataclass(frozen=True, slots=True)
class EnumValues:
    """The spans of the parentheses of an enum and of its values."""

    span: Span
    values: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class PropertyDecl:
    """``name: Type @annotation``; enum values are in the order written."""

    name: str
    type: PropType
    annotations: tuple[Annotation, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    name_span: Span = field(default=NOWHERE, compare=False)
    type_span: Span = field(default=NOWHERE, compare=False)
    enum_values: EnumValues | None = field(default=None, compare=False)


Member = (
    PropertyDecl
    | KeyConstraint
    | UniqueConstraint
    | IndexConstraint
    | RangeConstraint
    | CheckConstraint
)


@dataclass(frozen=True, slots=True)
class InterfaceDecl:
    """``interface Name { … }``; ``complete`` is false when some part did not parse."""

    name: str
    members: tuple[PropertyDecl, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    name_span: Span = field(default=NOWHERE, compare=False)
    body: Span = field(default=NOWHERE, compare=False)
    complete: bool = field(default=True, compare=False)

    @property
    def properties(self) -> tuple[PropertyDecl, ...]:
        return self.members


@dataclass(frozen=True, slots=True)
class NodeDecl:
    """``node Name @annotation implements A, B { … }``, members in source order."""

    name: str
    members: tuple[Member, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    implements: tuple[Ref, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    name_span: Span = field(default=NOWHERE, compare=False)
    body: Span = field(default=NOWHERE, compare=False)
    complete: bool = field(default=True, compare=False)

    @property
    def properties(self) -> tuple[PropertyDecl, ...]:
        return tuple(m for m in self.members if isinstance(m, PropertyDecl))

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return tuple(m for m in self.members if not isinstance(m, PropertyDecl))


@dataclass(frozen=True, slots=True)
class EdgeDecl:
    """``edge Name: From -> To @card(0..1) @annotation { … }``; no body is ``members=None``."""

    name: str
    from_type: Ref
    to_type: Ref
    cardinality: Cardinality | None = None
    members: tuple[Member, ...] | None = None
    annotations: tuple[Annotation, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    name_span: Span = field(default=NOWHERE, compare=False)
    body: Span = field(default=NOWHERE, compare=False)
    complete: bool = field(default=True, compare=False)

    @property
    def properties(self) -> tuple[PropertyDecl, ...]:
        return tuple(m for m in self.members or () if isinstance(m, PropertyDecl))

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return tuple(m for m in self.members or () if not isinstance(m, PropertyDecl))


Declaration = InterfaceDecl | NodeDecl | EdgeDecl


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A whole schema text; ``complete`` is false when a node or interface may be missing."""

    declarations: tuple[Declaration, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    complete: bool = field(default=True, compare=False)

    @property
    def interfaces(self) -> tuple[InterfaceDecl, ...]:
        return tuple(d for d in self.declarations if isinstance(d, InterfaceDecl))

    @property
    def nodes(self) -> tuple[NodeDecl, ...]:
        return tuple(d for d in self.declarations if isinstance(d, NodeDecl))

    @property
    def edges(self) -> tuple[EdgeDecl, ...]:
        return tuple(d for d in self.declarations if isinstance(d, EdgeDecl))
