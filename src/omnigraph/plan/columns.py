"""Which stored columns a plan needs, so that nothing else is read."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Filter,
    NodeScan,
    Operation,
    ReadPlan,
)


def step_exprs(step: Operation) -> Iterator[typed.TypedExpr]:
    """The expressions of one step, those of an inner pipeline included."""
    match step:
        case NodeScan(filters=filters):
            yield from filters
        case Expand(dst_filters=filters, edge_filters=edge_filters):
            yield from filters
            yield from edge_filters
        case Connect(edge_filters=edge_filters):
            yield from edge_filters
        case Filter(condition=condition):
            yield condition
        case AntiJoin(inner=inner):
            for nested in inner:
                yield from step_exprs(nested)


def plan_exprs(plan: ReadPlan) -> Iterator[typed.TypedExpr]:
    """Every expression of a plan."""
    for step in plan.pipeline:
        yield from step_exprs(step)
    for column in plan.columns:
        yield column.expr
    for key in plan.order:
        yield key.expr


def needed_columns(plan: ReadPlan) -> dict[str, tuple[str, ...]]:
    """The properties read of each variable, in alphabetical order, ids left out."""
    needed: dict[str, set[str]] = {}
    for expr in plan_exprs(plan):
        for part in typed.walk(expr):
            if isinstance(part, typed.Column) and part.name != typed.ID_COLUMN:
                needed.setdefault(part.variable, set()).add(part.name)
    return {variable: tuple(sorted(names)) for variable, names in sorted(needed.items())}
