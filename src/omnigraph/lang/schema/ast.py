"""Syntax trees of schemas, exactly as written.

Nothing is desugared here and no interface is expanded, so that the formatter can print a file
back; the text of an annotation or constraint is its ``str``. Equality ignores spans: two texts that
differ in layout only have equal trees. The annotation and constraint classes are also used by the
canonical form and the catalog, where spans and ``kinds`` are empty.
"""

from __future__ import annotations

import builtins
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from omnigraph.lang.diagnostics import NOWHERE, Span, SyntaxNode
from omnigraph.lang.lexer import quote_string
from omnigraph.lang.schema.ir_json import plain_float
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass


class ArgKind(StrEnum):
    """The notation of an annotation argument."""

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
class Ref(SyntaxNode):
    """A reference to another declaration."""

    name: str


@dataclass(frozen=True, slots=True)
class Annotation(SyntaxNode):
    """``@name``, ``@name(value)`` or ``@name(value, key="…")``; values are kept as text.

    ``kinds`` has the notation of the value and then of each keyword value, so that
    ``@embed(bio)`` and ``@embed("bio")`` print back as they were. The canonical form leaves it
    empty, because both mean the same; then every value is quoted.

    >>> str(Annotation("embed", "bio", (("model", "m1"),)))
    '@embed("bio", model="m1")'
    """

    name: str
    value: str | None = None
    kwargs: tuple[tuple[str, str], ...] = ()
    kinds: tuple[ArgKind, ...] = ()

    def __str__(self) -> str:
        if self.value is None:
            return f"@{self.name}"
        values = (self.value, *(value for _, value in self.kwargs))
        kinds = self.kinds or (ArgKind.STRING,) * len(values)
        first, *others = (
            quote_string(value) if kind is ArgKind.STRING else value
            for value, kind in zip(values, kinds, strict=True)
        )
        keywords = [f"{key}={text}" for (key, _), text in zip(self.kwargs, others, strict=True)]
        return f"@{self.name}({', '.join([first, *keywords])})"


@dataclass(frozen=True, slots=True)
class Constraint(SyntaxNode):
    """A constraint on properties, in the body of a declaration."""

    word: ClassVar[str]
    column_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False, kw_only=True)

    if TYPE_CHECKING:
        # Some store their columns, others derive them; an attribute here would become the
        # default of the field.
        @property
        def columns(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class ColumnConstraint(Constraint):
    """A constraint on a tuple of properties."""

    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"@{self.word}({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class KeyConstraint(ColumnConstraint):
    """``@key(a, b)``"""

    word: ClassVar[str] = "key"


@dataclass(frozen=True, slots=True)
class UniqueConstraint(ColumnConstraint):
    """``@unique(a, b)``: the tuple of values is unique."""

    word: ClassVar[str] = "unique"


@dataclass(frozen=True, slots=True)
class IndexConstraint(ColumnConstraint):
    """``@index(a, b)``"""

    word: ClassVar[str] = "index"


@dataclass(frozen=True, slots=True)
class PropertyConstraint(Constraint):
    """A constraint on the values of one property."""

    property: str

    @builtins.property
    def columns(self) -> tuple[str, ...]:
        return (self.property,)


@dataclass(frozen=True, slots=True)
class RangeConstraint(PropertyConstraint):
    """``@range(property, min..max)``: inclusive bounds, either may be missing.

    >>> str(RangeConstraint("age", 0, None))
    '@range(age, 0..)'
    """

    word: ClassVar[str] = "range"
    min: int | float | None
    max: int | float | None

    def __str__(self) -> str:
        low, high = (
            "" if bound is None else plain_float(bound) if isinstance(bound, float) else str(bound)
            for bound in (self.min, self.max)
        )
        return f"@range({self.property}, {low}..{high})"


@dataclass(frozen=True, slots=True)
class CheckConstraint(PropertyConstraint):
    """``@check(property, "pattern")``: an unanchored search must match."""

    word: ClassVar[str] = "check"
    pattern: str

    def __str__(self) -> str:
        return f"@check({self.property}, {quote_string(self.pattern)})"


COLUMN_CONSTRAINTS: dict[str, type[ColumnConstraint]] = {
    kind.word: kind for kind in (KeyConstraint, UniqueConstraint, IndexConstraint)
}


@dataclass(frozen=True, slots=True)
class Cardinality(SyntaxNode):
    """The allowed number of edges of a type per source node."""

    min: int = 0
    max: int | None = None

    def __str__(self) -> str:
        return f"{self.min}..{'' if self.max is None else self.max}"


@dataclass(frozen=True, slots=True)
class EnumValues:
    """The spans of the parentheses of an enum and of its values."""

    span: Span
    values: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class PropertyDecl(SyntaxNode):
    """``name: Type @annotation``; enum values are in the order written."""

    name: str
    type: PropType
    annotations: tuple[Annotation, ...] = ()
    name_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    type_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    enum_values: EnumValues | None = field(default=None, compare=False, repr=False, kw_only=True)


Member = PropertyDecl | Constraint


@dataclass(frozen=True, slots=True)
class Declaration(SyntaxNode):
    """A type; ``complete`` is false if some part of it did not parse."""

    kind: ClassVar[TypeKind]
    name: str
    members: tuple[Member, ...] | None = field(default=(), kw_only=True)
    annotations: tuple[Annotation, ...] = field(default=(), kw_only=True)
    name_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    body: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    complete: bool = field(default=True, compare=False, repr=False, kw_only=True)

    @property
    def properties(self) -> tuple[PropertyDecl, ...]:
        return tuple(m for m in self.members or () if isinstance(m, PropertyDecl))

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        return tuple(m for m in self.members or () if isinstance(m, Constraint))


@dataclass(frozen=True, slots=True)
class InterfaceDecl(Declaration):
    """``interface Name { … }``, with properties only."""

    kind: ClassVar[TypeKind] = TypeKind.INTERFACE


@dataclass(frozen=True, slots=True)
class NodeDecl(Declaration):
    """``node Name @annotation implements A, B { … }``, members in source order."""

    kind: ClassVar[TypeKind] = TypeKind.NODE
    implements: tuple[Ref, ...] = ()


@dataclass(frozen=True, slots=True)
class EdgeDecl(Declaration):
    """``edge Name: From -> To @card(0..1) @annotation { … }``; no body is ``members=None``."""

    kind: ClassVar[TypeKind] = TypeKind.EDGE
    from_type: Ref
    to_type: Ref
    cardinality: Cardinality | None = None


@dataclass(frozen=True, slots=True)
class SchemaFile(SyntaxNode):
    """A whole schema text; ``complete`` is false if a node or interface may be missing."""

    declarations: tuple[Declaration, ...] = ()
    complete: bool = field(default=True, compare=False, repr=False, kw_only=True)

    @property
    def interfaces(self) -> tuple[InterfaceDecl, ...]:
        return tuple(d for d in self.declarations if isinstance(d, InterfaceDecl))

    @property
    def nodes(self) -> tuple[NodeDecl, ...]:
        return tuple(d for d in self.declarations if isinstance(d, NodeDecl))

    @property
    def edges(self) -> tuple[EdgeDecl, ...]:
        return tuple(d for d in self.declarations if isinstance(d, EdgeDecl))
