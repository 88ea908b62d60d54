"""A plan whose rows are in the same order whenever and wherever it runs on one state.

The rows of a query without ``order`` come in the order in which they are found, which depends on
what a process has measured and cached. A plan that is read page by page must not depend on that, so
it gets an order: rows by the ids of the variables that they are computed from, groups by all of
their columns. Rows that are equal in those are equal in every column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import SortKey
from omnigraph.plan.live import is_aggregate
from omnigraph.plan.nodes import ReadPlan


def in_total_order(plan: ReadPlan) -> ReadPlan:
    """The same plan with an order that decides about all rows, and a window to be moved.

    The order of the query itself stays in front; rows that are equal in it are ordered by the ids
    of all named variables already.
    """
    if ranks(plan):
        return plan
    order = plan.order
    if is_aggregate(plan) or plan.distinct:
        order = (*order, *_by_columns(plan))
    elif not order:
        order = tuple(_by_ids(plan))
    # With a limit, only what the rows are sorted by is read for all of them.
    return replace(plan, order=order, limit=1 if plan.limit is None else plan.limit)


def ranks(plan: ReadPlan) -> bool:
    """Whether a plan has a ranking, whose limit decides how many rows are searched for."""
    first = plan.meaning(plan.order[0].expr) if plan.order else None
    return isinstance(first, typed.Score) or any(
        isinstance(part, typed.Rrf) for column in plan.columns for part in typed.walk(column.expr)
    )


def _by_columns(plan: ReadPlan) -> Iterator[SortKey]:
    for position, column in enumerate(plan.columns):
        yield SortKey(typed.Output(column.name, position, column.expr.type), descending=False)


def _by_ids(plan: ReadPlan) -> Iterator[SortKey]:
    names = {name for column in plan.columns for name in typed.variables(column.expr)}
    for name in sorted(names):
        yield SortKey(typed.Column(name, typed.ID_COLUMN, typed.STRING), descending=False)


def window(plan: ReadPlan, own: ReadPlan, start: int, count: int) -> ReadPlan:
    """A plan that returns ``count`` rows from ``start`` on of those that the query ``own`` does."""
    if own.limit is not None:
        count = min(count, max(own.limit - start, 0))
    return replace(plan, offset=(own.offset or 0) + start, limit=count)
