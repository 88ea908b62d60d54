"""Ask a condition over several variables as soon as the last of them is there.

Lowering puts conditions at the end of their block. Asked earlier, they spare the steps between
the rows that they would drop anyway.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import Plan, PlanStep, ReadPlan, RowFilter


def place_filters(plan: Plan) -> Plan:
    """Move the conditions of every block of a read forward."""
    if not isinstance(plan, ReadPlan):
        return plan
    return replace(plan, pipeline=_place(plan.pipeline))


def _place(steps: tuple[PlanStep, ...]) -> tuple[PlanStep, ...]:
    others = [step.map_inner(_place) for step in steps if not isinstance(step, RowFilter)]
    filters = [step for step in steps if isinstance(step, RowFilter)]
    homes = {name: place for place, step in enumerate(others) for name in step.introduced()}
    # What is bound outside of a block is there before its first step.
    waiting: dict[int, list[PlanStep]] = {}
    for step in filters:
        names = typed.variables(step.condition)
        place = max((homes.get(name, -1) for name in names), default=-1)
        waiting.setdefault(place, []).append(step)
    placed = waiting.get(-1, [])
    for place, other in enumerate(others):
        placed = [*placed, other, *waiting.get(place, [])]
    return tuple(placed)
