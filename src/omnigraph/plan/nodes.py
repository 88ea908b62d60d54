"""The plan: what to do to answer a query, as data.

A read is a pipeline of operations over a growing table of variables, then columns, order and
limit. Operations hold typed expressions and names, never text that would have to be parsed again.
A new kind of operation is a new class here, with its entry in lowering, explain and each engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from omnigraph.lang.query.checked import (
    CheckedStatement,
    Direction,
    OutputColumn,
    SortKey,
    StatementKind,
)
from omnigraph.lang.query.typed import TypedExpr
from omnigraph.lang.types import PropType

Rewrite = Callable[[TypedExpr], TypedExpr]


def _mapped(exprs: tuple[TypedExpr, ...], change: Rewrite) -> tuple[TypedExpr, ...]:
    """The expressions rewritten; the same tuple when nothing changed, which is the usual case."""
    result = tuple(map(change, exprs))
    return exprs if all(a is b for a, b in zip(result, exprs, strict=True)) else result


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a pipeline."""

    def map_exprs(self, change: Rewrite) -> Operation:
        """The same step with its expressions rewritten."""
        return self


@dataclass(frozen=True, slots=True)
class NodeScan(Operation):
    """Rows of a node table as a new variable; beside existing rows it makes the product."""

    variable: str
    type_name: str
    filters: tuple[TypedExpr, ...] = ()

    def map_exprs(self, change: Rewrite) -> Operation:
        filters = _mapped(self.filters, change)
        return self if filters is self.filters else replace(self, filters=filters)


@dataclass(frozen=True, slots=True)
class Expand(Operation):
    """From a bound variable along an edge to a new one, hop by hop, each target once a source.

    With an ``edge_variable`` there is one row for each edge instead.
    """

    src: str
    dst: str
    edge_type: str
    direction: Direction
    dst_type: str
    min_hops: int
    max_hops: int
    dst_filters: tuple[TypedExpr, ...] = ()
    edge_variable: str | None = None
    edge_filters: tuple[TypedExpr, ...] = ()

    def map_exprs(self, change: Rewrite) -> Operation:
        dst, edge = _mapped(self.dst_filters, change), _mapped(self.edge_filters, change)
        if dst is self.dst_filters and edge is self.edge_filters:
            return self
        return replace(self, dst_filters=dst, edge_filters=edge)


@dataclass(frozen=True, slots=True)
class Connect(Operation):
    """Keep the rows whose two bound variables are joined by an edge: a membership test.

    With an ``edge_variable`` there is one row for each edge between them.
    """

    src: str
    dst: str
    edge_type: str
    direction: Direction
    min_hops: int
    max_hops: int
    edge_variable: str | None = None
    edge_filters: tuple[TypedExpr, ...] = ()

    def map_exprs(self, change: Rewrite) -> Operation:
        edge = _mapped(self.edge_filters, change)
        return self if edge is self.edge_filters else replace(self, edge_filters=edge)


@dataclass(frozen=True, slots=True)
class Filter(Operation):
    """Keep the rows for which the condition is true; null and false drop a row alike."""

    condition: TypedExpr

    def map_exprs(self, change: Rewrite) -> Operation:
        condition = change(self.condition)
        return self if condition is self.condition else Filter(condition)


@dataclass(frozen=True, slots=True)
class AntiJoin(Operation):
    """Keep the rows for which the inner pipeline, started from them, yields nothing."""

    outer: tuple[str, ...]
    inner: tuple[Operation, ...]

    def map_exprs(self, change: Rewrite) -> Operation:
        return replace(self, inner=tuple(step.map_exprs(change) for step in self.inner))


@dataclass(frozen=True, slots=True)
class ReadPlan:
    name: str
    params: Mapping[str, PropType]
    pipeline: tuple[Operation, ...]
    columns: tuple[OutputColumn, ...]
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int | None = None

    def map_exprs(self, change: Rewrite) -> ReadPlan:
        return replace(
            self,
            pipeline=tuple(step.map_exprs(change) for step in self.pipeline),
            columns=tuple(OutputColumn(c.name, change(c.expr)) for c in self.columns),
            order=tuple(SortKey(change(k.expr), k.descending) for k in self.order),
        )


@dataclass(frozen=True, slots=True)
class MutationPlan:
    """Statements in order; all of them insert and update, or all of them delete."""

    name: str
    params: Mapping[str, PropType]
    statements: tuple[CheckedStatement, ...]

    @property
    def destructive(self) -> bool:
        return all(step.kind is StatementKind.DELETE for step in self.statements)

    def map_exprs(self, change: Rewrite) -> MutationPlan:
        return replace(
            self,
            statements=tuple(
                replace(
                    step,
                    assignments=tuple((name, change(value)) for name, value in step.assignments),
                    where=None if step.where is None else change(step.where),
                )
                for step in self.statements
            ),
        )


Plan = ReadPlan | MutationPlan


def introduced(step: Operation) -> tuple[str, ...]:
    """The variables that a step brings in."""
    match step:
        case NodeScan(variable=variable):
            return (variable,)
        case Expand(dst=dst, edge_variable=edge):
            return (dst,) if edge is None else (dst, edge)
        case Connect(edge_variable=str(edge)):
            return (edge,)
        case _:
            return ()
