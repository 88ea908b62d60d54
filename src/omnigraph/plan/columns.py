"""Which stored columns a plan needs, so that nothing else is read."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import ReadPlan


def plan_exprs(plan: ReadPlan) -> Iterator[typed.TypedExpr]:
    """Every expression of a plan."""
    for step in plan.pipeline:
        yield from step.exprs()
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
