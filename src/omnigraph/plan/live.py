"""Liveness: which variables are needed after each step of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Intersect,
    PlanStep,
    ReadPlan,
    Total,
    Weigh,
)

SET_FUNCTIONS = frozenset({typed.AggregateFunction.MIN, typed.AggregateFunction.MAX})


def is_aggregate(plan: ReadPlan) -> bool:
    """Whether the rows of a plan are groups."""
    return any(isinstance(column.expr, typed.Aggregate) for column in plan.columns)


def needs_counts(plan: ReadPlan) -> bool:
    """Whether the result depends on the number of equal rows."""
    if plan.distinct:
        return False
    aggregates = [c.expr for c in plan.columns if isinstance(c.expr, typed.Aggregate)]
    if not aggregates:
        return True
    return not all(a.distinct or a.function in SET_FUNCTIONS for a in aggregates)


def final_variables(plan: ReadPlan) -> frozenset[str]:
    """The variables that are needed after the last step."""
    # `count($v)` needs only the number of rows.
    exprs = [expr for expr in plan.output_exprs() if not is_row_count(expr)]
    names = {name for expr in exprs for name in typed.variables(expr)}
    if plan.order and not is_aggregate(plan) and not plan.distinct:
        # Ties are broken by the ids of all named variables.
        names |= set(named_variables(plan))
    return frozenset(names)


def named_variables(plan: ReadPlan) -> list[str]:
    """The variables that the query names, sorted."""
    return sorted({name for name in bound(plan.pipeline) if not typed.is_hidden(name)})


def is_row_count(expr: typed.TypedExpr) -> bool:
    """Whether an expression is ``count($v)``, which counts rows."""
    return (
        isinstance(expr, typed.Aggregate)
        and expr.function is typed.AggregateFunction.COUNT
        and isinstance(expr.arg, typed.Entity)
        and not expr.distinct
    )


def bound(steps: Sequence[PlanStep]) -> Iterator[str]:
    """Every variable that a pipeline binds."""
    for step in steps:
        yield from step.introduced()


def used(step: PlanStep) -> frozenset[str]:
    """The variables that a step needs."""
    if isinstance(step, AntiJoin):
        inside = {name for inner in step.inner for name in used(inner)}
        return frozenset(inside | set(step.outer)) - set(bound(step.inner))
    if isinstance(step, Weigh):
        return frozenset({step.variable})
    if isinstance(step, Total):
        return frozenset()
    names = {name for expr in step.exprs() for name in typed.variables(expr)}
    match step:
        case Expand():
            names.add(step.src)
        case Connect():
            names |= {step.src, step.dst}
        case Intersect():
            names |= {leg.src for leg in step.legs}
    return frozenset(names - set(step.introduced()))


def live_after(steps: Sequence[PlanStep], final: frozenset[str]) -> list[frozenset[str]]:
    """For each step, the variables that later steps need."""
    result: list[frozenset[str]] = []
    live = final
    for step in reversed(steps):
        result.append(live)
        live = live | used(step)
    return result[::-1]
