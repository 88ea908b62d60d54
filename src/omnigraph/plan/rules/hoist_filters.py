"""Evaluates a condition over several variables as soon as the last of them is bound.

Lowering puts conditions at the end of their block. Evaluated earlier, they drop rows before the
steps in between run on them.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import Plan, PlanStep, ReadPlan, RowFilter


def hoist_filters(plan: Plan) -> Plan:
    """Move the conditions of every block of a read to the front."""
    if not isinstance(plan, ReadPlan):
        return plan
    return replace(plan, pipeline=_hoist(plan.pipeline))


def _hoist(steps: tuple[PlanStep, ...]) -> tuple[PlanStep, ...]:
    others = [step.map_inner(_hoist) for step in steps if not isinstance(step, RowFilter)]
    filters = [step for step in steps if isinstance(step, RowFilter)]
    homes = {name: index for index, step in enumerate(others) for name in step.introduced()}
    # Variables of the outer block are bound before the first step.
    waiting: dict[int, list[PlanStep]] = {}
    for step in filters:
        names = typed.variables(step.condition)
        index = max((homes.get(name, -1) for name in names), default=-1)
        waiting.setdefault(index, []).append(step)
    result = waiting.get(-1, [])
    for index, other in enumerate(others):
        result = [*result, other, *waiting.get(index, [])]
    return tuple(result)
