"""Liveness: which variables are needed after each step of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import AntiJoin, Connect, Expand, PlanStep, ReadPlan

SET_FUNCTIONS = frozenset({typed.AggregateFunction.MIN, typed.AggregateFunction.MAX})


def is_aggregate(plan: ReadPlan) -> bool:
    """Whether the rows of a plan are groups."""
    return any(isinstance(column.expr, typed.Aggregate) for column in plan.columns)


def needs_counts(plan: ReadPlan) -> bool:
    """Whether it matters how often a row occurs."""
    if plan.distinct:
        return False
    aggregates = [c.expr for c in plan.columns if isinstance(c.expr, typed.Aggregate)]
    if not aggregates:
        return True
    return not all(a.distinct or a.function in SET_FUNCTIONS for a in aggregates)


def final_variables(plan: ReadPlan) -> frozenset[str]:
    """The variables that are needed after the last step."""
    names = {name for column in plan.columns for name in typed.variables(column.expr)}
    for key in plan.order:
        names |= typed.variables(key.expr)
    if plan.order and not is_aggregate(plan) and not plan.distinct:
        # Ties are broken by the ids of all named variables.
        names |= set(named_variables(plan))
    if not is_aggregate(plan):
        return frozenset(names)
    # `count($v)` needs only the number of rows.
    counted = {
        column.expr.arg.variable
        for column in plan.columns
        if isinstance(column.expr, typed.Aggregate)
        and is_row_count(column.expr)
        and isinstance(column.expr.arg, typed.Entity)
    }
    others = {
        name
        for column in plan.columns
        if not (isinstance(column.expr, typed.Aggregate) and is_row_count(column.expr))
        for name in typed.variables(column.expr)
    }
    return frozenset(names - (counted - others))


def named_variables(plan: ReadPlan) -> list[str]:
    """The variables that the query names, sorted."""
    return sorted({name for name in bound(plan.pipeline) if not typed.is_hidden(name)})


def is_row_count(expr: typed.Aggregate) -> bool:
    """Whether an aggregate is ``count($v)``, which counts rows."""
    return (
        expr.function is typed.AggregateFunction.COUNT
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
    names = {name for expr in step.exprs() for name in typed.variables(expr)}
    match step:
        case Expand():
            names.add(step.src)
        case Connect():
            names |= {step.src, step.dst}
    return frozenset(names - set(step.introduced()))


def live_after(steps: Sequence[PlanStep], final: frozenset[str]) -> list[frozenset[str]]:
    """For each step, the variables that later steps need."""
    result: list[frozenset[str]] = []
    live = final
    for step in reversed(steps):
        result.append(live)
        live = live | used(step)
    return result[::-1]
