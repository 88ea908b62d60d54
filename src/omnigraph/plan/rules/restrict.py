"""Marks the steps that read restricted tables: they see only what the view of the actor shows.

It runs first, before any rule that may drop, reorder or shortcut a step. A mark says that a table
is restricted, not how: the plan is the same for all actors whose views restrict the same tables,
and the engine asks the view of the query. A visible edge has visible ends, so a mark on a traversal
holds for the node that it binds and, for several hops, for everything that it passes through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omnigraph.errors import InternalError
from omnigraph.lang.query import typed
from omnigraph.plan.nodes import (
    Connect,
    Expand,
    Intersect,
    NodeScan,
    Pipeline,
    Plan,
    PlanStep,
    ReadPlan,
    all_steps,
    variable_types,
)


def restrict(plan: Plan, restricted: frozenset[str]) -> Plan:
    """The plan with a mark wherever it reads one of the restricted tables, by table key."""
    return _restricted(plan, restricted) if restricted and isinstance(plan, ReadPlan) else plan


def _restricted(plan: ReadPlan, restricted: frozenset[str]) -> ReadPlan:
    types, edge_types = variable_types(plan.pipeline)
    keys = {name: f"node:{type_name}" for name, type_name in types.items()}
    keys |= {name: f"edge:{type_name}" for name, type_name in edge_types.items()}

    def among(expr: typed.TypedExpr) -> typed.TypedExpr:
        if isinstance(expr, typed.Bm25):
            # Its statistics are those of the visible texts.
            return replace(expr, among=_mark(keys[expr.field.variable], restricted))
        return typed.rebuild(expr, among)

    marked = replace(plan, pipeline=_marked(plan.pipeline, restricted))
    return marked.map_exprs(among)


def _mark(table_key: str, restricted: frozenset[str]) -> typed.Visible | None:
    return typed.Visible(table_key) if table_key in restricted else None


def _marked(steps: Pipeline, restricted: frozenset[str]) -> Pipeline:
    return tuple(_marked_step(step, restricted) for step in steps)


def _marked_step(step: PlanStep, restricted: frozenset[str]) -> PlanStep:
    match step:
        case NodeScan():
            return replace(step, visible=_mark(f"node:{step.type_name}", restricted))
        case Expand():
            return replace(
                step,
                dst_visible=_mark(f"node:{step.dst_type}", restricted),
                through=_mark(f"edge:{step.edge_type}", restricted),
            )
        case Connect():
            return replace(step, through=_mark(f"edge:{step.edge_type}", restricted))
        case Intersect():
            return replace(
                step,
                legs=tuple(
                    replace(leg, through=_mark(f"edge:{leg.edge_type}", restricted))
                    for leg in step.legs
                ),
                dst_visible=_mark(f"node:{step.dst_type}", restricted),
            )
        case _:
            return step.map_inner(lambda inner: _marked(inner, restricted))


def check_marks(plan: ReadPlan, restricted: frozenset[str]) -> None:
    """Raise unless a plan has exactly the marks that it must have, after all other rules."""
    if any(step != _marked_step(step, restricted) for step in _reads(plan.pipeline)):
        raise InternalError("a plan has lost the marks of restricted tables")
    expected = _restricted(plan, restricted)
    if expected.output_exprs() != plan.output_exprs():
        raise InternalError("a plan has lost the marks of restricted searches")


def _reads(steps: Pipeline) -> Iterator[PlanStep]:
    return (s for s in all_steps(steps) if isinstance(s, NodeScan | Expand | Connect | Intersect))
