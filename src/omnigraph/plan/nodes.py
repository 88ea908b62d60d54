"""The plan of a query, as data.

A read is a pipeline of steps that bind variables and filter rows, followed by columns, order and
limit. Steps hold typed expressions and names, never text that must be parsed again. A new step is
a new class here, with its case in lowering, explain and each engine.
"""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, TypeAlias, TypeVar

from omnigraph.lang.query.checked import (
    CheckedStatement,
    Direction,
    OutputColumn,
    SortKey,
    StatementKind,
)
from omnigraph.lang.query.typed import Output, TypedExpr, Visible
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass

Rewrite = Callable[[TypedExpr], TypedExpr]
Pipeline: TypeAlias = "tuple[PlanStep, ...]"


@dataclass(frozen=True, slots=True)
class PlanStep(ABC):
    """One step of a pipeline."""

    def exprs(self) -> Iterator[TypedExpr]:
        """Every expression of the step, including those of an inner pipeline."""
        for name in _expression_fields(type(self)):
            value = getattr(self, name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, TypedExpr):
                    yield part
                elif isinstance(part, PlanStep):
                    yield from part.exprs()

    def map_exprs(self, change: Rewrite) -> PlanStep:
        """The same step with its expressions rewritten; ``self`` if nothing changed."""
        updates: dict[str, Any] = {}
        for name in _expression_fields(type(self)):
            value = getattr(self, name)
            new = value
            if isinstance(value, TypedExpr):
                new = change(value)
            elif value:
                new = tuple(
                    part.map_exprs(change) if isinstance(part, PlanStep) else change(part)
                    for part in value
                )
                if all(map(operator.is_, new, value)):
                    continue
            if new is not value:
                updates[name] = new
        return replace(self, **updates) if updates else self

    @abstractmethod
    def introduced(self) -> tuple[str, ...]:
        """The variables that the step binds."""

    def inner_pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines inside the step."""
        return ()

    def inner_steps(self) -> Pipeline:
        """The steps inside the step: those of its pipeline, or the terms of a sum."""
        return ()

    def map_inner(self, change: Callable[[Pipeline], Pipeline]) -> PlanStep:
        """The same step with its inner pipelines rewritten, if it has any."""
        return self


def all_steps(steps: Pipeline) -> Iterator[PlanStep]:
    """The steps of a pipeline and of the pipelines inside them."""
    for step in steps:
        yield step
        for inner in step.inner_pipelines():
            yield from all_steps(inner)


def variable_types(steps: Pipeline) -> tuple[dict[str, str], dict[str, str]]:
    """The types of the node variables and of the edge variables of a pipeline."""
    types: dict[str, str] = {}
    edge_types: dict[str, str] = {}
    for step in all_steps(steps):
        match step:
            case NodeScan():
                types[step.variable] = step.type_name
            case Expand() | Intersect():
                types[step.dst] = step.dst_type
        if isinstance(step, Expand | Connect) and step.edge_variable is not None:
            edge_types[step.edge_variable] = step.edge_type
    return types, edge_types


@functools.cache
def _expression_fields(cls: type[PlanStep]) -> tuple[str, ...]:
    """The fields of a step that hold expressions, or steps with expressions."""
    kinds = ("TypedExpr", "PlanStep", "Term")
    return tuple(f.name for f in fields(cls) if any(kind in f.type for kind in kinds))


@dataclass(frozen=True, slots=True)
class NodeScan(PlanStep):
    """Bind a new variable to the rows of a node table, as a product with the existing rows."""

    variable: str
    type_name: str
    filters: tuple[TypedExpr, ...] = ()
    visible: Visible | None = None

    def introduced(self) -> tuple[str, ...]:
        return (self.variable,)


@dataclass(frozen=True, slots=True)
class Expand(PlanStep):
    """Bind a new variable to the nodes reached from a bound one; each target once per source.

    With an ``edge_variable`` there is one row for each edge instead. With ``through`` all edges and
    nodes on the way, and those bound, are visible; ``dst_visible`` is for a scan in its stead.
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
    dst_visible: Visible | None = None
    through: Visible | None = None

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
    through: Visible | None = None

    def introduced(self) -> tuple[str, ...]:
        return () if self.edge_variable is None else (self.edge_variable,)


@dataclass(frozen=True, slots=True)
class RowFilter(PlanStep):
    """Keep the rows for which the condition is true; both null and false drop a row."""

    condition: TypedExpr

    def introduced(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class NestedStep(PlanStep):
    """A step with one inner pipeline, which binds nothing outside of itself."""

    inner: tuple[PlanStep, ...]

    def inner_pipelines(self) -> tuple[Pipeline, ...]:
        return (self.inner,)

    def inner_steps(self) -> Pipeline:
        return self.inner

    def map_inner(self, change: Callable[[Pipeline], Pipeline]) -> PlanStep:
        return replace(self, inner=change(self.inner))

    def introduced(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class AntiJoin(NestedStep):
    """Keep the rows for which the inner pipeline, started from them, yields nothing."""

    outer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leg:
    """One of the edges by which an ``Intersect`` reaches its new variable."""

    src: str
    edge_type: str
    direction: Direction
    through: Visible | None = None


@dataclass(frozen=True, slots=True)
class Intersect(PlanStep):
    """Bind a new variable to the nodes that are neighbours of all of several bound ones."""

    legs: tuple[Leg, ...]
    dst: str
    dst_type: str
    dst_filters: tuple[TypedExpr, ...] = ()
    dst_visible: Visible | None = None

    def introduced(self) -> tuple[str, ...]:
        return (self.dst,)

    def as_joins(self) -> tuple[Expand, tuple[Connect, ...]]:
        """The same as a traversal along the first leg, and a membership test for each other."""
        first, *others = self.legs
        return (
            Expand(
                first.src,
                self.dst,
                first.edge_type,
                first.direction,
                self.dst_type,
                1,
                1,
                self.dst_filters,
                dst_visible=self.dst_visible,
                through=first.through,
            ),
            tuple(
                Connect(leg.src, self.dst, leg.edge_type, leg.direction, 1, 1, through=leg.through)
                for leg in others
            ),
        )


@dataclass(frozen=True, slots=True)
class Weigh(NestedStep):
    """Multiply each row by the number of rows that the inner pipeline yields for a variable.

    The inner pipeline starts from that variable alone and binds nothing that is needed outside, so
    it runs once for each distinct node. Rows for which it yields nothing are dropped.
    """

    variable: str


@dataclass(frozen=True, slots=True)
class Term(NestedStep):
    """One summand of a ``Total``."""

    sign: int


@dataclass(frozen=True, slots=True)
class Total(PlanStep):
    """One row, weighted by the sum of the signed numbers of rows of several pipelines.

    ``direct`` is a pipeline with as many rows.
    """

    terms: tuple[Term, ...]
    direct: tuple[PlanStep, ...]

    def inner_pipelines(self) -> tuple[Pipeline, ...]:
        return tuple(term.inner for term in self.terms)

    def inner_steps(self) -> Pipeline:
        return self.terms

    def map_inner(self, change: Callable[[Pipeline], Pipeline]) -> PlanStep:
        terms = tuple(replace(term, inner=change(term.inner)) for term in self.terms)
        return replace(self, terms=terms, direct=change(self.direct))

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
        """The expression of a sort key; that of the result column if it refers to one."""
        return self.columns[expr.position].expr if isinstance(expr, Output) else expr

    def output_order(self) -> list[tuple[int, bool]]:
        """The order of groups: positions of result columns, and whether each is descending."""
        keys = []
        for key in self.order:
            assert isinstance(key.expr, Output), "groups are ordered by what is returned"
            keys.append((key.expr.position, key.descending))
        return keys

    def exprs(self) -> Iterator[TypedExpr]:
        """Every expression of the plan."""
        for step in self.pipeline:
            yield from step.exprs()
        yield from self.output_exprs()

    def output_exprs(self) -> list[TypedExpr]:
        """The expressions of the columns, then those of the order."""
        return [*(column.expr for column in self.columns), *(key.expr for key in self.order)]

    def map_exprs(self, change: Rewrite) -> ReadPlan:
        """The same plan with its expressions rewritten."""
        return replace(
            self,
            pipeline=tuple(step.map_exprs(change) for step in self.pipeline),
            columns=tuple(_rewrite(column, change) for column in self.columns),
            order=tuple(_rewrite(key, change) for key in self.order),
        )


Part = TypeVar("Part", OutputColumn, SortKey)


def _rewrite(part: Part, change: Rewrite) -> Part:
    """A part with its expression rewritten; the part itself if nothing changed."""
    expr = change(part.expr)
    return part if expr is part.expr else replace(part, expr=expr)


@dataclass(frozen=True, slots=True)
class MutationPlan:
    """Statements in order: either inserts and updates, or deletes."""

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
