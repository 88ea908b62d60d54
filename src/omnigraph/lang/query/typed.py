"""Checked expressions: every name resolved, every node typed.

The checker creates them, the plan contains them, and each engine translates them by one
``Visitor``. Comparisons follow three-valued logic: a null operand makes the result null, and a
filter keeps a row only if its condition is true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from omnigraph.lang.types import PropType, Scalar
from omnigraph.records import dataclass

# The reserved name that the reference gives to `now()`; a caller may pass a value under it.
NOW_PARAMETER = "__nanograph_now"
ID_COLUMN = "id"

Atom = None | bool | int | float | str | date | datetime
Value = Atom | tuple[Atom, ...]


def hidden_name(base: str, number: int) -> str:
    """A name for a generated variable; no query text can contain it."""
    return f"{base}~{number}"


def is_hidden(name: str) -> bool:
    """Whether a variable is generated: anonymous or temporary."""
    return "~" in name


class EntityKind(StrEnum):
    NODE = "node"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class TypedExpr:
    """Anything with a value and a type."""

    if TYPE_CHECKING:
        # Leaves store their type, other nodes derive it; an attribute here would become the
        # default of the leaves' field.
        @property
        def type(self) -> PropType: ...


STRING = PropType(Scalar.STRING)
BOOL = PropType(Scalar.BOOL)
INT = PropType(Scalar.I64)
FLOAT = PropType(Scalar.F64)
DATETIME = PropType(Scalar.DATETIME)
NULL = PropType(Scalar.STRING, nullable=True)


# -- leaves -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant(TypedExpr):
    """A literal or a bound parameter. Lists are tuples."""

    value: Value
    type: PropType


@dataclass(frozen=True, slots=True)
class Parameter(TypedExpr):
    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class Column(TypedExpr):
    """A property of a bound variable, or its hidden ``id``."""

    variable: str
    name: str
    type: PropType


@dataclass(frozen=True, slots=True)
class Entity(TypedExpr):
    """A bound variable itself; its value is its id."""

    variable: str
    kind: EntityKind
    type_name: str

    @property
    def type(self) -> PropType:
        return STRING


@dataclass(frozen=True, slots=True)
class Output(TypedExpr):
    """A column of the result, by its position; names may repeat."""

    name: str
    position: int
    type: PropType


@dataclass(frozen=True, slots=True)
class ListOf(TypedExpr):
    """A list that has parameters among its items."""

    items: tuple[TypedExpr, ...]
    type: PropType


# -- conditions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Condition(TypedExpr):
    """A truth value: true, false or null."""

    @property
    def type(self) -> PropType:
        return BOOL.as_nullable(any(child.type.nullable for child in children(self)))


@dataclass(frozen=True, slots=True)
class Visible(Condition):
    """Whether the actor sees a row of a table: a node, or an edge with both of its ends.

    What decides is the view of the query, which is not part of the plan.
    """

    table_key: str


class Relation(StrEnum):
    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


@dataclass(frozen=True, slots=True)
class Compare(Condition):
    op: Relation
    left: TypedExpr
    right: TypedExpr


@dataclass(frozen=True, slots=True)
class Membership(Condition):
    """``item in options`` and ``options contains item``."""

    item: TypedExpr
    options: TypedExpr

    @property
    def type(self) -> PropType:
        """Nullable if the options may contain null, which makes a miss unknown."""
        is_exact = isinstance(self.options, Constant) and not self.options.type.nullable
        return BOOL.as_nullable(self.item.type.nullable or not is_exact)


@dataclass(frozen=True, slots=True)
class Substring(Condition):
    text: TypedExpr
    part: TypedExpr


@dataclass(frozen=True, slots=True)
class StartsWith(Condition):
    text: TypedExpr
    prefix: TypedExpr


@dataclass(frozen=True, slots=True)
class IsNull(Condition):
    operand: TypedExpr
    negated: bool

    @property
    def type(self) -> PropType:
        return BOOL


@dataclass(frozen=True, slots=True)
class Not(Condition):
    operand: TypedExpr


@dataclass(frozen=True, slots=True)
class And(Condition):
    operands: tuple[TypedExpr, ...]


@dataclass(frozen=True, slots=True)
class Or(Condition):
    operands: tuple[TypedExpr, ...]


# -- search -----------------------------------------------------------------------------------


class TextFunction(StrEnum):
    SEARCH = "search"
    MATCH_TEXT = "match_text"
    FUZZY = "fuzzy"


@dataclass(frozen=True, slots=True)
class TextMatch(Condition):
    """Whether a text property matches a text query; ``max_edits`` only for ``fuzzy``."""

    function: TextFunction
    field: Column
    query: TypedExpr
    max_edits: TypedExpr | None = None


@dataclass(frozen=True, slots=True)
class Score(TypedExpr):
    """The score that a search gives to a row; null if the search does not match the row."""

    @property
    def type(self) -> PropType:
        return FLOAT.as_nullable()


@dataclass(frozen=True, slots=True)
class Nearest(Score):
    """The distance of a vector property to a vector, or to a text embedded at run time."""

    field: Column
    query: TypedExpr


@dataclass(frozen=True, slots=True)
class Bm25(Score):
    """``among`` are the texts that count: those of visible rows, or all if it is ``None``."""

    field: Column
    query: TypedExpr
    among: Visible | None = None


@dataclass(frozen=True, slots=True)
class Rrf(Score):
    """Two rankings fused by reciprocal rank."""

    primary: Nearest | Bm25
    secondary: Nearest | Bm25
    k: TypedExpr | None = None


# -- aggregates -------------------------------------------------------------------------------


class AggregateFunction(StrEnum):
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Aggregate(TypedExpr):
    function: AggregateFunction
    arg: TypedExpr
    distinct: bool = False

    @property
    def type(self) -> PropType:
        if self.function is AggregateFunction.COUNT:
            return INT
        if self.function in (AggregateFunction.SUM, AggregateFunction.AVG):
            return FLOAT.as_nullable()
        return self.arg.type.as_nullable()


# -- walking ----------------------------------------------------------------------------------


def children(expr: TypedExpr) -> Iterator[TypedExpr]:
    """The direct operands of an expression, in order.

    Operands are fields with an expression or a flat tuple of expressions; a deeper nesting would
    be missed by every rule, so it is refused.
    """
    for slot in _operand_fields(type(expr)):
        value = getattr(expr, slot)
        if isinstance(value, TypedExpr):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, TypedExpr):
                    yield item
                elif isinstance(item, tuple):
                    raise TypeError(f"{type(expr).__name__}.{slot} hides operands in a tuple")


_OPERANDS: dict[type, tuple[str, ...]] = {}
"""The fields that may hold operands, by class of expression."""


def _operand_fields(cls: type[TypedExpr]) -> tuple[str, ...]:
    if cls not in _OPERANDS:
        plain = ("str", "int", "bool", "PropType", "Relation", "TextFunction", "AggregateFunction")
        _OPERANDS[cls] = tuple(field.name for field in fields(cls) if field.type not in plain)
    return _OPERANDS[cls]


def walk(expr: TypedExpr) -> Iterator[TypedExpr]:
    """An expression and everything below it, parents first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def variables(expr: TypedExpr) -> frozenset[str]:
    """The bound variables that an expression uses."""
    return frozenset(node.variable for node in walk(expr) if isinstance(node, Column | Entity))


R = TypeVar("R")


class Visitor(Generic[R]):
    """Translates expressions, with one method per kind of node.

    A subclass defines ``visit_<ClassName>``; an unknown node raises an error that names the
    node, never a silent default.
    """

    unsupported: ClassVar[str] = "cannot be turned into this form"

    def visit(self, expr: TypedExpr) -> R:
        method = getattr(self, f"visit_{type(expr).__name__}", None)
        if method is None:
            raise self.refuse(expr)
        return cast(R, method(expr))

    def refuse(self, expr: TypedExpr) -> Exception:
        return TypeError(f"{type(expr).__name__} {self.unsupported}")


def rebuild(expr: TypedExpr, change: Any) -> TypedExpr:
    """The same node with ``change`` applied to each operand; itself if nothing changed."""
    updates: dict[str, Any] = {}
    for slot in _operand_fields(type(expr)):
        value = getattr(expr, slot)
        if isinstance(value, TypedExpr):
            new: Any = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], TypedExpr):
            new = tuple(change(item) for item in value)
            if all(a is b for a, b in zip(new, value, strict=True)):
                new = value
        else:
            continue
        if new is not value:
            updates[slot] = new
    return replace(expr, **updates) if updates else expr
