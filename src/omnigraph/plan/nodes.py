"""The plan: what to do to answer a query, as data.

A read is a pipeline of operations over a growing table of variables, then columns, order and
limit. Operations hold typed expressions and names, never text that would have to be parsed again.
A new operation is a new class here, with its case in lowering, explain and each engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from omnigraph.lang.query.checked import (
    CheckedStatement,
    Direction,
    OutputColumn,
    SortKey,
    StatementKind,
)
from omnigraph.lang.query.typed import Output, TypedExpr
from omnigraph.lang.types import PropType

Rewrite = Callable[[TypedExpr], TypedExpr]
Pipeline: TypeAlias = "tuple[PlanStep, ...]"


def _mapped(exprs: tuple[TypedExpr, ...], change: Rewrite) -> tuple[TypedExpr, ...]:
    """The expressions rewritten; the same tuple when nothing changed, which is the usual case."""
    result = tuple(map(change, exprs))
    return exprs if all(a is b for a, b in zip(result, exprs, strict=True)) else result


@dataclass(frozen=True, slots=True)
class PlanStep(ABC):
    """One step of a pipeline."""

    @abstractmethod
    def exprs(self) -> Iterator[TypedExpr]:
        """Every expression of the step, those of an inner pipeline included."""

    @abstractmethod
    def map_exprs(self, change: Rewrite) -> PlanStep:
        """The same step with its expressions rewritten."""

    @abstractmethod
    def introduced(self) -> tuple[str, ...]:
        """The variables that the step binds."""

    def map_inner(self, change: Callable[[Pipeline], Pipeline]) -> PlanStep:
        """The same step with its inner pipeline rewritten, if it has one."""
        return self


@dataclass(frozen=True, slots=True)
class NodeScan(PlanStep):
    """Rows of a node table as a new variable; beside existing rows it makes the product."""

    variable: str
    type_name: str
    filters: tuple[TypedExpr, ...] = ()

    def map_exprs(self, change: Rewrite) -> PlanStep:
        filters = _mapped(self.filters, change)
        return self if filters is self.filters else replace(self, filters=filters)

    def exprs(self) -> Iterator[TypedExpr]:
        yield from self.filters

    def introduced(self) -> tuple[str, ...]:
        return (self.variable,)


@dataclass(frozen=True, slots=True)
class Expand(PlanStep):
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

    def map_exprs(self, change: Rewrite) -> PlanStep:
        dst, edge = _mapped(self.dst_filters, change), _mapped(self.edge_filters, change)
        if dst is self.dst_filters and edge is self.edge_filters:
            return self
        return replace(self, dst_filters=dst, edge_filters=edge)

    def exprs(self) -> Iterator[TypedExpr]:
        yield from self.dst_filters
        yield from self.edge_filters

    def introduced(self) -> tuple[str, ...]:
        return (self.dst,) if self.edge_variable is None else (self.dst, self.edge_variable)


@dataclass(frozen=True, slots=True)
class Connect(PlanStep):
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

    def map_exprs(self, change: Rewrite) -> PlanStep:
        edge = _mapped(self.edge_filters, change)
        return self if edge is self.edge_filters else replace(self, edge_filters=edge)

    def exprs(self) -> Iterator[TypedExpr]:
        yield from self.edge_filters

    def introduced(self) -> tuple[str, ...]:
        return () if self.edge_variable is None else (self.edge_variable,)


@dataclass(frozen=True, slots=True)
class RowFilter(PlanStep):
    """Keep the rows for which the condition is true; null and false drop a row alike."""

    condition: TypedExpr

    def map_exprs(self, change: Rewrite) -> PlanStep:
        condition = change(self.condition)
        return self if condition is self.condition else RowFilter(condition)

    def exprs(self) -> Iterator[TypedExpr]:
        yield self.condition

    def introduced(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class AntiJoin(PlanStep):
    """Keep the rows for which the inner pipeline, started from them, yields nothing."""

    outer: tuple[str, ...]
    inner: tuple[PlanStep, ...]

    def map_exprs(self, change: Rewrite) -> PlanStep:
        return self.map_inner(lambda inner: tuple(step.map_exprs(change) for step in inner))

    def map_inner(self, change: Callable[[Pipeline], Pipeline]) -> PlanStep:
        inner = change(self.inner)
        is_same = all(a is b for a, b in zip(inner, self.inner, strict=False))
        return self if is_same and len(inner) == len(self.inner) else replace(self, inner=inner)

    def exprs(self) -> Iterator[TypedExpr]:
        for step in self.inner:
            yield from step.exprs()

    def introduced(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class ReadPlan:
    name: str
    params: Mapping[str, PropType]
    pipeline: tuple[PlanStep, ...]
    columns: tuple[OutputColumn, ...]
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int | None = None

    def meaning(self, expr: TypedExpr) -> TypedExpr:
        """What a sort key means: a result column means its expression."""
        return self.columns[expr.position].expr if isinstance(expr, Output) else expr

    def output_order(self) -> list[tuple[int, bool]]:
        """The order of groups: positions of result columns, and whether each is descending."""
        keys = []
        for key in self.order:
            assert isinstance(key.expr, Output), "groups are ordered by what is returned"
            keys.append((key.expr.position, key.descending))
        return keys

    def map_exprs(self, change: Rewrite) -> ReadPlan:
        return ReadPlan(
            self.name,
            self.params,
            tuple([step.map_exprs(change) for step in self.pipeline]),
            tuple([_changed_column(c, change) for c in self.columns]),
            self.distinct,
            tuple([_changed_key(k, change) for k in self.order]),
            self.limit,
            self.offset,
        )


def _changed_column(column: OutputColumn, change: Rewrite) -> OutputColumn:
    expr = change(column.expr)
    return column if expr is column.expr else OutputColumn(column.name, expr)


def _changed_key(key: SortKey, change: Rewrite) -> SortKey:
    expr = change(key.expr)
    return key if expr is key.expr else SortKey(expr, key.descending)


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
