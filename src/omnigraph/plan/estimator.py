"""How many rows a step is expected to produce, from the statistics of the tables.

The order of steps is chosen by these numbers, and ``explain`` shows them. Traversals are taken to
be independent of each other, except for edges of one type at one node: a node with many edges is
reached more often, so the next hop is larger than the mean (``EdgeStatistics.skew``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Direction
from omnigraph.plan.live import final_variables, live_after, used
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Intersect,
    NodeScan,
    Pipeline,
    PlanStep,
    ReadPlan,
    RowFilter,
    Total,
    Weigh,
    variable_types,
)
from omnigraph.plan.statistics import ColumnFacts, TableStatistics
from omnigraph.records import dataclass

# The assumed share of rows that pass a condition, and that have one value of a property.
_SELECTIVITY, _EQUAL_SELECTIVITY = 0.3, 0.1
# The assumed length of a list that is given as a parameter.
_LISTED = 8
# The hops after which a traversal is assumed to reach everything.
_MOST_HOPS = 8

End = tuple[str, Direction]
"""An edge at a node: its type, and its direction from there."""

_OPPOSITE = {
    Direction.OUT: Direction.IN,
    Direction.IN: Direction.OUT,
    Direction.BOTH: Direction.BOTH,
}


def opposite(direction: Direction) -> Direction:
    return _OPPOSITE[direction]


class Estimator:
    """Expected numbers of rows; ``types`` are the types of all variables of the query."""

    def __init__(self, statistics: TableStatistics, types: Mapping[str, str]) -> None:
        self.statistics = statistics
        self._types = types
        self._fans: dict[tuple[End, int, float], float] = {}
        self._skews: dict[tuple[End, End], float] = {}

    # -- conditions ----------------------------------------------------------------------

    def nodes(self, type_name: str, filters: Sequence[typed.TypedExpr]) -> float:
        """How many nodes of a type pass conditions."""
        rows = self.statistics.nodes(type_name)
        named = self.named(type_name, filters)
        return min(rows, named) if named is not None else rows * self.selectivity(filters)

    def named(self, type_name: str, filters: Iterable[typed.TypedExpr]) -> float | None:
        """How many nodes conditions name by their ids or keys; ``None`` if they do not."""
        for condition in filters:
            column = _named_column(condition)
            if isinstance(column, typed.Column) and self.statistics.is_identity(
                type_name, column.name
            ):
                return _listed(condition)
        return None

    def selectivity(self, conditions: Iterable[typed.TypedExpr]) -> float:
        """The expected share of rows that pass all conditions."""
        return math.prod(map(self._passing, conditions))

    def _passing(self, condition: typed.TypedExpr) -> float:
        match condition:
            case typed.Compare(op=typed.Relation.EQ, left=left, right=right):
                return self._equal(left, right)
            case typed.Compare(op=typed.Relation.NE, left=left, right=right):
                present = self._present(left) * self._present(right)
                return max(present - self._equal(left, right), 0.0)
            case typed.Compare(left=left, right=right):
                return _SELECTIVITY * self._present(left) * self._present(right)
            case typed.IsNull(operand=operand, negated=negated):
                return self._null(operand, negated=negated)
            case typed.Membership(item=item):
                return min(_listed(condition) * self._equal(item, item), 1.0)
            case typed.And(operands=operands):
                return self.selectivity(operands)
            case typed.Or(operands=operands):
                return 1.0 - math.prod(1.0 - self._passing(operand) for operand in operands)
            case typed.Not(operand=operand):
                return 1.0 - self._passing(operand)
            case _:
                return _SELECTIVITY

    def _equal(self, left: typed.TypedExpr, right: typed.TypedExpr) -> float:
        measured = [facts for facts in map(self._facts, (left, right)) if facts is not None]
        if not measured:
            return _EQUAL_SELECTIVITY
        values = max(facts.distinct for facts in measured)
        return self._present(left) * self._present(right) / max(values, 1.0)

    def _null(self, operand: typed.TypedExpr, *, negated: bool) -> float:
        facts = self._facts(operand)
        nulls = _EQUAL_SELECTIVITY if facts is None else facts.nulls
        return 1.0 - nulls if negated else nulls

    def _present(self, expr: typed.TypedExpr) -> float:
        """The share of rows for which an expression is not null."""
        facts = self._facts(expr)
        return 1.0 if facts is None else 1.0 - facts.nulls

    def _facts(self, expr: typed.TypedExpr) -> ColumnFacts | None:
        if not isinstance(expr, typed.Column):
            return None
        type_name = self._types.get(expr.variable, "")
        if self.statistics.is_identity(type_name, expr.name):
            return ColumnFacts(self.statistics.nodes(type_name), 0.0)
        return self.statistics.column(type_name, expr.name)

    # -- traversals ----------------------------------------------------------------------

    def fan(self, end: End, hops: int = 1, bound: Iterable[End] = ()) -> float:
        """How many nodes a traversal reaches from a node that was bound by ``bound`` edges."""
        return self._fan(end, hops, self.skew(end, bound))

    def _fan(self, end: End, hops: int, skew: float) -> float:
        fan = self._fans.get((end, hops, skew))
        if fan is None:
            fan = self._fans[end, hops, skew] = self._derive_fan(end, hops, skew)
        return fan

    def _derive_fan(self, end: End, hops: int, skew: float) -> float:
        edge_type, direction = end
        table = self.statistics.edges(edge_type)
        first = min(table.mean(direction) * skew, table.most(direction))
        if hops == 1:
            return first
        again = table.mean(direction) * table.skew(opposite(direction), direction)
        reached = first * math.pow(max(again, 1.0), min(hops, _MOST_HOPS) - 1)
        return min(reached, table.targets if direction is Direction.OUT else table.sources)

    def skew(self, end: End, bound: Iterable[End]) -> float:
        """How many more edges a node has than the mean, if it was bound by ``bound`` edges."""
        most = 1.0
        is_measured = False
        for other in bound:
            if other[0] == end[0]:
                skew = self._skews.get((other, end))
                if skew is None:
                    table = self.statistics.edges(end[0])
                    skew = self._skews[other, end] = table.skew(other[1], end[1])
                most = max(most, skew) if is_measured else skew
                is_measured = True
        return most

    def joined(self, end: End, hops: int = 1) -> float:
        """The share of pairs of nodes that a traversal joins."""
        edge_type, direction = end
        table = self.statistics.edges(edge_type)
        targets = table.sources if direction is Direction.IN else table.targets
        return min(self.fan(end, hops) / max(targets, 1.0), 1.0)


def _listed(condition: typed.TypedExpr) -> float:
    """How many values a condition compares with."""
    match condition:
        case typed.Membership(options=typed.ListOf(items=items)):
            return float(len(items))
        case typed.Membership(options=typed.Constant(value=tuple() as values)):
            return float(len(values))
        case typed.Membership():
            return float(_LISTED)
        case _:
            return 1.0


def _named_column(condition: typed.TypedExpr) -> typed.TypedExpr | None:
    """The expression that a condition compares with given values."""
    match condition:
        case typed.Compare(op=typed.Relation.EQ, left=left, right=right):
            return right if isinstance(left, typed.Constant | typed.Parameter) else left
        case typed.Membership(item=item):
            return item
        case _:
            return None


# -- plans ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """The expected rows after a step, and those of the steps inside it (``inner_steps``)."""

    rows: float
    inner: tuple[StepEstimate, ...] = ()


def estimate_plan(plan: ReadPlan, statistics: TableStatistics) -> tuple[StepEstimate, ...]:
    """The expected rows of each step of a plan."""
    types, edge_types = variable_types(plan.pipeline)
    walk = _Walk(Estimator(statistics, {**types, **edge_types}), types)
    return tuple(walk.steps(plan.pipeline, final_variables(plan), 1.0))


class _Walk:
    """Follows the steps of a pipeline, with the edges by which each variable was bound."""

    def __init__(self, estimator: Estimator, types: Mapping[str, str]) -> None:
        self._estimator = estimator
        self._types = types
        self._ends: dict[str, list[End]] = {}

    def steps(self, steps: Pipeline, final: frozenset[str], rows: float) -> Iterator[StepEstimate]:
        for step, live in zip(steps, live_after(steps, final), strict=True):
            after, inner = self._step(step, live, rows)
            rows = min(after, self._distinct(live))
            yield StepEstimate(rows, inner)

    def _distinct(self, live: frozenset[str]) -> float:
        """How many rows can be different in the live variables, if equal ones are merged."""
        if not live:
            return 1.0
        names = sorted(live)
        if len(names) > 1 or names[0] not in self._types:
            return math.inf
        return max(self._estimator.statistics.nodes(self._types[names[0]]), 1.0)

    def _step(
        self, step: PlanStep, live: frozenset[str], rows: float
    ) -> tuple[float, tuple[StepEstimate, ...]]:
        match step:
            case NodeScan():
                return rows * self._estimator.nodes(step.type_name, step.filters), ()
            case Expand():
                return self._expanded(step, live, rows), ()
            case Connect():
                return self._connected(step, rows), ()
            case Intersect():
                return self._intersected(step, live, rows), ()
            case RowFilter():
                return rows * self._estimator.selectivity((step.condition,)), ()
            case AntiJoin():
                return self._without(step, rows)
            case Weigh():
                return self._weighed(step, rows)
            case Total():
                terms = [self._inner(term.inner, frozenset(), 1.0) for term in step.terms]
                return 1.0, tuple(StepEstimate(1.0, inner) for inner in terms)
            case _:
                return rows, ()

    def _inner(
        self, steps: Pipeline, kept: frozenset[str], rows: float
    ) -> tuple[StepEstimate, ...]:
        """The estimates of an inner pipeline; what it binds is not bound afterwards."""
        ends = {name: list(edges) for name, edges in self._ends.items()}
        estimates = tuple(self.steps(steps, kept, rows))
        self._ends = ends
        return estimates

    def _bind(self, src: str, dst: str, end: End) -> None:
        self._ends.setdefault(src, []).append(end)
        self._ends.setdefault(dst, []).append((end[0], opposite(end[1])))

    def _expanded(self, step: Expand, live: frozenset[str], rows: float) -> float:
        end = (step.edge_type, step.direction)
        fan = self._estimator.fan(end, step.max_hops, self._ends.get(step.src, ()))
        fan *= self._passing(step.dst, step.dst_type, step.dst_filters)
        fan *= self._estimator.selectivity(step.edge_filters)
        self._bind(step.src, step.dst, end)
        if step.dst in live or step.edge_variable is not None:
            return rows * fan
        # Neighbours are only counted: a row stays one row.
        fraction = self._estimator.statistics.edges(step.edge_type).fraction(step.direction)
        return rows * min(fan, 1.0 if self._ends[step.src][1:] else fraction)

    def _passing(self, variable: str, type_name: str, filters: Sequence[typed.TypedExpr]) -> float:
        """The share of the nodes of a type that pass conditions."""
        every = self._estimator.statistics.nodes(type_name)
        return self._estimator.nodes(type_name, filters) / every if every else 1.0

    def _connected(self, step: Connect, rows: float) -> float:
        end = (step.edge_type, step.direction)
        fraction = self._estimator.joined(end, step.max_hops)
        fraction *= self._estimator.skew(end, self._ends.get(step.src, ()))
        far = (step.edge_type, opposite(step.direction))
        fraction *= self._estimator.skew(far, self._ends.get(step.dst, ()))
        self._bind(step.src, step.dst, end)
        return rows * min(fraction, 1.0) * self._estimator.selectivity(step.edge_filters)

    def _intersected(self, step: Intersect, live: frozenset[str], rows: float) -> float:
        estimator = self._estimator
        matches = estimator.nodes(step.dst_type, step.dst_filters)
        most = math.inf
        for leg in step.legs:
            end, near = (leg.edge_type, leg.direction), self._ends.get(leg.src, ())
            matches *= estimator.joined(end) * estimator.skew(end, near)
            far = (leg.edge_type, opposite(leg.direction))
            matches *= estimator.skew(far, self._ends.get(step.dst, ()))
            most = min(most, estimator.fan(end, 1, near))
            self._bind(leg.src, step.dst, end)
        matches = min(matches, most)
        return rows * (matches if step.dst in live else min(matches, 1.0))

    def _without(self, step: AntiJoin, rows: float) -> tuple[float, tuple[StepEstimate, ...]]:
        outer = used(step)
        starts = min(rows, self._distinct(outer))
        inner = self._inner(step.inner, outer, starts)
        matches = inner[-1].rows / starts if inner and starts else 0.0
        return rows * math.exp(-matches), inner

    def _weighed(self, step: Weigh, rows: float) -> tuple[float, tuple[StepEstimate, ...]]:
        outer = frozenset({step.variable})
        starts = min(rows, self._distinct(outer))
        inner = self._inner(step.inner, outer, starts)
        matches = inner[-1].rows / starts if inner and starts else 0.0
        return rows * min(matches, 1.0), inner
