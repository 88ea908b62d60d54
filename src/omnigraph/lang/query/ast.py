"""Syntax trees of queries, before any check of their meaning.

Nodes compare by meaning: their ``span`` is left out, so two texts that differ only in layout have
equal trees. Everything that has a value is an ``Expr``, conditions included; a new kind of
expression, clause or statement is a new class here and one new entry in the tables of the
parser, the checker and the formatter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from enum import StrEnum

from omnigraph.lang.diagnostics import NOWHERE, Span, SyntaxNode
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass

ANONYMOUS = "_"


# -- expressions ------------------------------------------------------------------------------


class LiteralKind(StrEnum):
    NULL = "null"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    DATE = "date"
    DATETIME = "datetime"


@dataclass(frozen=True, slots=True)
class Expr(SyntaxNode):
    """Anything that has a value."""


@dataclass(frozen=True, slots=True)
class LiteralExpr(Expr):
    """A constant. A date is stored as text, which the checker parses."""

    kind: LiteralKind
    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class ListExpr(Expr):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class VariableExpr(Expr):
    """``$name``: a bound variable or a parameter."""

    name: str


@dataclass(frozen=True, slots=True)
class PropertyExpr(Expr):
    """``$name.property``."""

    variable: str
    name: str


@dataclass(frozen=True, slots=True)
class NameExpr(Expr):
    """A bare word: an alias in a read query, a property in a mutation predicate."""

    name: str


@dataclass(frozen=True, slots=True)
class CallExpr(Expr):
    """``function(arguments)``; the parser checks the name, the checker the arguments."""

    function: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class AggregateExpr(Expr):
    function: str
    arg: Expr
    distinct: bool = False


class CompareOp(StrEnum):
    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"


@dataclass(frozen=True, slots=True)
class CompareExpr(Expr):
    op: CompareOp
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class InExpr(Expr):
    """``item in [ … ]`` or ``item in $list``."""

    item: Expr
    options: Expr


@dataclass(frozen=True, slots=True)
class IsNullExpr(Expr):
    operand: Expr
    negated: bool


@dataclass(frozen=True, slots=True)
class NotExpr(Expr):
    operand: Expr


@dataclass(frozen=True, slots=True)
class AndExpr(Expr):
    """At least two operands; a chain is one node, so that long filters stay flat."""

    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class OrExpr(Expr):
    operands: tuple[Expr, ...]


def walk(node: Expr) -> Iterator[Expr]:
    """An expression and everything below it, parents first."""
    yield node
    for slot in fields(node):
        value = getattr(node, slot.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Expr):
                yield from walk(part)


# -- clauses of a match -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clause(SyntaxNode):
    """One condition of a ``match`` block."""


@dataclass(frozen=True, slots=True)
class PropertyMatch(SyntaxNode):
    """``name: value`` inside a binding."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class BindingClause(Clause):
    """``$variable: Type { property: value, … }``."""

    variable: str
    type_name: str
    matches: tuple[PropertyMatch, ...] = ()
    type_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Hops:
    """``{min, max}``; a missing maximum is refused by the checker."""

    min: int
    max: int | None


ONE_HOP = Hops(1, 1)


@dataclass(frozen=True, slots=True)
class TraversalClause(Clause):
    """``$src edge $dst``, ``$src <edge> $dst`` or ``$src $edge_variable:edge $dst``."""

    src: str
    edge: str
    dst: str
    hops: Hops = ONE_HOP
    undirected: bool = False
    edge_variable: str | None = None
    edge_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class FilterClause(Clause):
    condition: Expr


@dataclass(frozen=True, slots=True)
class NegationClause(Clause):
    """``not { … }``."""

    clauses: tuple[Clause, ...]


# -- read queries -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Projection(SyntaxNode):
    expr: Expr
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Ordering(SyntaxNode):
    expr: Expr
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a query: a read or a list of statements."""


@dataclass(frozen=True, slots=True)
class ReadBody(Body):
    clauses: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    distinct: bool = False
    order: tuple[Ordering, ...] = ()
    limit: int | None = None
    offset: int | None = None
    limit_span: Span = field(default=NOWHERE, compare=False, repr=False)


# -- mutations --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment(SyntaxNode):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Statement(SyntaxNode):
    """One step of a mutation."""

    type_name: str
    type_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class InsertStatement(Statement):
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class UpdateStatement(Statement):
    assignments: tuple[Assignment, ...]
    where: Expr


@dataclass(frozen=True, slots=True)
class DeleteStatement(Statement):
    where: Expr


@dataclass(frozen=True, slots=True)
class MutationBody(Body):
    statements: tuple[Statement, ...]


# -- queries and files ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Param(SyntaxNode):
    """A declared parameter; its type is already resolved, since it names no schema type."""

    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class Query(SyntaxNode):
    name: str
    params: tuple[Param, ...]
    body: Body
    description: str | None = None
    instruction: str | None = None
    deprecated: str | None = None
    """Why a stored query should not be used any more, and what to use instead."""
    name_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)

    @property
    def is_mutation(self) -> bool:
        return isinstance(self.body, MutationBody)


@dataclass(frozen=True, slots=True)
class QueryFile:
    queries: tuple[Query, ...]
