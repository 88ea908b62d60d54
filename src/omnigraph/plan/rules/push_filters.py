"""Moves each condition on a single variable to the step that binds it.

There it becomes part of a scan, so that it is applied before rows are multiplied and before any
text or vector search. A condition over several variables is not moved.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import (
    Connect,
    Expand,
    NodeScan,
    Plan,
    PlanStep,
    ReadPlan,
    RowFilter,
)


def push_filters(plan: Plan) -> Plan:
    """Push the conditions of every block of a read."""
    if not isinstance(plan, ReadPlan):
        return plan
    return replace(plan, pipeline=_push(plan.pipeline))


def _push(steps: tuple[PlanStep, ...]) -> tuple[PlanStep, ...]:
    result: list[PlanStep] = []
    homes: dict[str, int] = {}
    pushed: dict[str, list[typed.TypedExpr]] = {}
    for step in steps:
        if isinstance(step, RowFilter):
            for condition in conjuncts(step.condition):
                names = typed.variables(condition)
                if len(names) == 1 and names <= homes.keys():
                    (name,) = names
                    pushed.setdefault(name, []).append(condition)
                else:
                    result.append(RowFilter(condition))
        else:
            homes.update(dict.fromkeys(step.introduced(), len(result)))
            result.append(step.map_inner(_push))
    for variable, conditions in pushed.items():
        index = homes[variable]
        result[index] = _filtered(result[index], variable, conditions)
    return tuple(result)


def conjuncts(condition: typed.TypedExpr) -> tuple[typed.TypedExpr, ...]:
    """The conditions that must all hold for this one to hold."""
    return condition.operands if isinstance(condition, typed.And) else (condition,)


def _filtered(step: PlanStep, variable: str, conditions: list[typed.TypedExpr]) -> PlanStep:
    """A step with more conditions on a variable that it binds."""
    match step:
        case NodeScan():
            return replace(step, filters=(*step.filters, *conditions))
        case Expand() if step.dst == variable:
            return replace(step, dst_filters=(*step.dst_filters, *conditions))
        case Expand() | Connect():
            return replace(step, edge_filters=(*step.edge_filters, *conditions))
        case _:
            raise TypeError(f"{type(step).__name__} binds no variable")
