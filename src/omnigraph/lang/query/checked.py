"""Checked queries: every part resolved and typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from omnigraph.lang.diagnostics import Span
from omnigraph.lang.query.typed import EntityKind, TypedExpr
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass


class Direction(StrEnum):
    """The direction of an edge, seen from the left variable of a traversal."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


_REVERSED = {Direction.OUT: Direction.IN, Direction.IN: Direction.OUT}


@dataclass(frozen=True, slots=True)
class BoundNode:
    """A variable bound to a node type, with the conditions written in its braces."""

    variable: str
    type_name: str
    filters: tuple[TypedExpr, ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """A traversal with its direction. An anonymous end has a name that no query can contain."""

    src: str
    dst: str
    src_type: str
    dst_type: str
    edge_type: str
    direction: Direction
    min_hops: int
    max_hops: int
    edge_variable: str | None
    span: Span

    def reversed(self) -> Hop:
        """The same traversal from its other end."""
        return replace(
            self,
            src=self.dst,
            dst=self.src,
            src_type=self.dst_type,
            dst_type=self.src_type,
            direction=_REVERSED.get(self.direction, self.direction),
        )


@dataclass(frozen=True, slots=True)
class Pattern:
    """The clauses of one block, grouped by kind, each kind in source order."""

    nodes: tuple[BoundNode, ...]
    hops: tuple[Hop, ...]
    conditions: tuple[TypedExpr, ...]
    absent: tuple[Absent, ...]


@dataclass(frozen=True, slots=True)
class Absent:
    """A negated pattern; ``outer`` are the variables it shares with the enclosing block."""

    pattern: Pattern
    outer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    name: str
    expr: TypedExpr


@dataclass(frozen=True, slots=True)
class SortKey:
    expr: TypedExpr
    descending: bool


@dataclass(frozen=True, slots=True)
class CheckedRead:
    name: str
    params: Mapping[str, PropType]
    pattern: Pattern
    columns: tuple[OutputColumn, ...]
    distinct: bool
    order: tuple[SortKey, ...]
    limit: int | None
    offset: int | None


class StatementKind(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class CheckedStatement:
    """One statement. In ``where``, the row is the variable ``ROW``."""

    kind: StatementKind
    entity: EntityKind
    type_name: str
    assignments: tuple[tuple[str, TypedExpr], ...]
    where: TypedExpr | None
    span: Span


ROW = "row~"
VIEW_VARIABLE = "row~view"
"""The row in the condition of a view; no query text can contain it."""


@dataclass(frozen=True, slots=True)
class CheckedMutation:
    name: str
    params: Mapping[str, PropType]
    statements: tuple[CheckedStatement, ...]


CheckedQuery = CheckedRead | CheckedMutation
