"""What a query is expected to do on a snapshot, for explain; it is not run.

The rows are those that the planner expects. Of the tables only the index coverage is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.lang.query import typed
from omnigraph.plan.estimator import StepEstimate
from omnigraph.plan.explain import step_name
from omnigraph.plan.nodes import Connect, Expand, Intersect, NodeScan, PlanStep, ReadPlan
from omnigraph.storage.tables.search import SearchIndex, text_index, vector_index

if TYPE_CHECKING:
    from omnigraph.read.run import Run


def expectations(
    run: Run, plan: ReadPlan, expected: Sequence[StepEstimate]
) -> list[dict[str, Any]]:
    """The expected rows of each step, and the chosen strategy with its reason."""
    notes = _steps(run, plan.pipeline, expected, 1.0)
    searches = [key.expr for key in plan.order] + [column.expr for column in plan.columns]
    return [*notes, *(note for expr in searches for note in _searches(run, expr))]


def _steps(
    run: Run, steps: Sequence[PlanStep], expected: Sequence[StepEstimate], rows: float
) -> list[dict[str, Any]]:
    notes: list[dict[str, Any]] = []
    for step, estimate in zip(steps, expected, strict=True):
        note = {"step": step_name(step), **_strategy(run, step, rows)}
        if step.inner_steps():
            note["inner"] = _steps(run, step.inner_steps(), estimate.inner, rows)
        notes.append({**note, "rows": round(estimate.rows)})
        if not step.inner_steps():
            notes += [search for expr in step.exprs() for search in _searches(run, expr)]
        rows = estimate.rows
    return notes


def _strategy(run: Run, step: PlanStep, rows: float) -> dict[str, Any]:
    """How a step would find its rows, starting from a number of rows."""
    if isinstance(step, NodeScan):
        source = run.nodes(step.type_name)
        is_cached = source is not None and source.cached_index() is not None
        by_key = any(_names_one(condition) for condition in step.filters)
        return {
            "by": "key" if by_key else "memory" if is_cached else "storage",
            "table_rows": 0 if source is None else source.rows,
        }
    if isinstance(step, Intersect):
        step, _ = step.as_joins()
    if not isinstance(step, Expand | Connect):
        return {}
    edges = run.visible_edges(step.edge_type, step.through)
    if edges is None:
        return {}
    choice = edges.choice(run.context.traversal, step, round(rows), is_run=False)
    return choice.to_json()


def _names_one(condition: typed.TypedExpr) -> bool:
    match condition:
        case typed.Compare(op=typed.Relation.EQ, left=typed.Column(name=typed.ID_COLUMN)):
            return True
        case _:
            return False


def _searches(run: Run, expr: typed.TypedExpr) -> list[dict[str, Any]]:
    """The index that each search would use, and whether it covers the table."""
    notes = []
    for part in typed.walk(expr):
        if isinstance(part, typed.TextMatch | typed.Bm25 | typed.Nearest):
            column = part.field
            source = run.nodes(run.types.get(column.variable, ""))
            if source is None:
                continue
            look = vector_index if isinstance(part, typed.Nearest) else text_index
            index: SearchIndex | None = look(source.table(), column.name)
            name = type(part).__name__.lower()
            if isinstance(part, typed.TextMatch):
                name = str(part.function)
            note: dict[str, Any] = {
                "search": f"{name}(${column.variable}.{column.name})",
                "index": None if index is None else index.name,
            }
            if index is not None:
                note["complete"] = index.complete
                if isinstance(part, typed.Bm25):
                    note["scores"] = "by the statistics of the covered part"
            notes.append(note)
    return notes
