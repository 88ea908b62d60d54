"""Replaces an expansion to a temporary and a comparison of ids by a membership test.

Lowering closes a cycle by such a pair. Executed as is, it multiplies rows and drops most of them
again; a test whether the edge exists does not.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import (
    Connect,
    Expand,
    Plan,
    PlanStep,
    ReadPlan,
    RowFilter,
)


def close_cycles(plan: Plan) -> Plan:
    """Replace every closing pair of a read by a ``Connect``."""
    if not isinstance(plan, ReadPlan):
        return plan
    return replace(plan, pipeline=_close(plan.pipeline))


def _close(steps: tuple[PlanStep, ...]) -> tuple[PlanStep, ...]:
    result: list[PlanStep] = []
    for step in steps:
        last = result[-1] if result else None
        if isinstance(step, RowFilter) and isinstance(last, Expand):
            target = _closed_by(last, step)
            if target is not None:
                result[-1] = Connect(
                    last.src,
                    target,
                    last.edge_type,
                    last.direction,
                    last.min_hops,
                    last.max_hops,
                    last.edge_variable,
                    last.edge_filters,
                    last.through,
                )
                continue
        result.append(step.map_inner(_close))
    return tuple(result)


def _closed_by(step: Expand, following: RowFilter) -> str | None:
    """The variable that a filter equates with the temporary of an expansion."""
    if step.dst_filters or not typed.is_hidden(step.dst):
        return None
    match following.condition:
        case typed.Compare(
            op=typed.Relation.EQ,
            left=typed.Column(variable=left, name=typed.ID_COLUMN),
            right=typed.Column(variable=right, name=typed.ID_COLUMN),
        ) if left == step.dst:
            return right
        case _:
            return None
