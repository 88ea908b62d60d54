"""Move each condition to the step that brings in the one variable it looks at.

There it becomes part of a scan, so that it is applied before rows are multiplied and before any
text or vector search. A condition over several variables stays where it is.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Filter,
    NodeScan,
    Operation,
    Plan,
    ReadPlan,
)


def push_filters(plan: Plan) -> Plan:
    """Push the conditions of every block of a read."""
    if not isinstance(plan, ReadPlan):
        return plan
    return replace(plan, pipeline=_push(plan.pipeline))


def _push(steps: tuple[Operation, ...]) -> tuple[Operation, ...]:
    placed: list[Operation] = []
    for step in steps:
        if isinstance(step, AntiJoin):
            placed.append(replace(step, inner=_push(step.inner)))
        elif isinstance(step, Filter):
            for condition in conjuncts(step.condition):
                if not _place(condition, placed):
                    placed.append(Filter(condition))
        else:
            placed.append(step)
    return tuple(placed)


def conjuncts(condition: typed.TypedExpr) -> tuple[typed.TypedExpr, ...]:
    """The conditions that must all hold for this one to hold."""
    return condition.operands if isinstance(condition, typed.And) else (condition,)


def _place(condition: typed.TypedExpr, steps: list[Operation]) -> bool:
    names = typed.variables(condition)
    if len(names) != 1:
        return False
    (name,) = names
    for position, step in enumerate(steps):
        match step:
            case NodeScan(variable=variable) if variable == name:
                steps[position] = replace(step, filters=(*step.filters, condition))
            case Expand(dst=dst) if dst == name:
                steps[position] = replace(step, dst_filters=(*step.dst_filters, condition))
            case Expand(edge_variable=edge) | Connect(edge_variable=edge) if edge == name:
                steps[position] = replace(step, edge_filters=(*step.edge_filters, condition))
            case _:
                continue
        return True
    return False
