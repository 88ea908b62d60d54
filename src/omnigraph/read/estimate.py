"""Estimates for explain, from row counts; of the tables only the index coverage is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Intersect,
    NodeScan,
    PlanStep,
    ReadPlan,
    RowFilter,
    Total,
    Weigh,
)
from omnigraph.storage.tables.search import SearchIndex, text_index, vector_index

if TYPE_CHECKING:
    from omnigraph.read.run import Run

# The assumed selectivity of a condition.
_SELECTIVITY = 0.1


def estimates(run: Run, plan: ReadPlan) -> list[dict[str, Any]]:
    """The expected rows of each step, and the chosen strategy with its reason."""
    notes, _ = _steps(run, plan.pipeline, 1.0)
    searches = [key.expr for key in plan.order] + [column.expr for column in plan.columns]
    return [*notes, *(note for expr in searches for note in _searches(run, expr))]


def _steps(run: Run, steps: Sequence[PlanStep], rows: float) -> tuple[list[dict[str, Any]], float]:
    notes: list[dict[str, Any]] = []
    for step in steps:
        note, rows = _step(run, step, rows)
        notes.append(note)
        for expr in step.exprs():
            notes += _searches(run, expr)
    return notes, rows


def _step(run: Run, step: PlanStep, rows: float) -> tuple[dict[str, Any], float]:
    match step:
        case NodeScan():
            return _scan(run, step, rows)
        case Expand():
            return _walk(run, step, rows, len(step.dst_filters))
        case Connect():
            note, _ = _walk(run, step, rows, 0)
            rows *= _SELECTIVITY
            return {**note, "rows": round(rows)}, rows
        case RowFilter():
            rows *= _SELECTIVITY
            return {"step": "filter", "rows": round(rows)}, rows
        case Total():
            inner, rows = _steps(run, step.direct, rows)
            return {"step": "total", "inner": inner, "rows": 1}, 1.0
        case Weigh():
            inner, _ = _steps(run, step.inner, rows)
            return {
                "step": f"count for ${step.variable}",
                "inner": inner,
                "rows": round(rows),
            }, rows
        case Intersect():
            note, _ = _walk(run, step.as_joins()[0], rows, len(step.dst_filters))
            rows *= _SELECTIVITY
            return {**note, "step": f"intersect ${step.dst}", "rows": round(rows)}, rows
        case AntiJoin():
            inner, _ = _steps(run, step.inner, rows)
            return {"step": "without", "inner": inner, "rows": round(rows)}, rows
        case _:
            return {"step": type(step).__name__}, rows


def _scan(run: Run, step: NodeScan, rows: float) -> tuple[dict[str, Any], float]:
    source = run.nodes(step.type_name)
    count = 0 if source is None else source.rows
    by_key = source is not None and any(_names_one(condition) for condition in step.filters)
    expected = min(1.0, count) if by_key else count * _SELECTIVITY ** min(len(step.filters), 2)
    is_cached = source is not None and source.cached_index() is not None
    note = {
        "step": f"scan ${step.variable}",
        "by": "key" if by_key else "memory" if is_cached else "storage",
        "table_rows": count,
        "rows": round(rows * expected),
    }
    return note, rows * expected


def _names_one(condition: typed.TypedExpr) -> bool:
    match condition:
        case typed.Compare(op=typed.Relation.EQ, left=typed.Column(name="id")):
            return True
        case _:
            return False


def _walk(
    run: Run, step: Expand | Connect, rows: float, filters: int
) -> tuple[dict[str, Any], float]:
    name = f"{'expand' if isinstance(step, Expand) else 'connect'} ${step.src} to ${step.dst}"
    source = run.edges(step.edge_type)
    if source is None:
        return {"step": name, "rows": 0}, 0.0
    near, hops = source.near(step.direction), source.hops(step)
    degree = source.rows / max(near.rows, 1)
    choice = source.choice(run.context.traversal, step, round(rows), is_run=False)
    reached = min(rows * max(degree, 1.0) ** hops, max(rows, 1.0) * near.rows)
    reached *= _SELECTIVITY ** min(filters, 2)
    return {"step": name, **choice.to_json(), "rows": round(reached)}, reached


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
