"""Scans of node tables: by key, from memory or from storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.plan.arrow import filter_expression, pushable
from omnigraph.plan.nodes import NodeScan, ReadPlan
from omnigraph.read.blocks import kept_rows
from omnigraph.read.frame import Frame
from omnigraph.read.sources import ID, NodeSource
from omnigraph.read.values import compared_text
from omnigraph.topology.nodes import NodeIndex

if TYPE_CHECKING:
    from omnigraph.read.run import Run
    from omnigraph.read.visibility import VisibleNodes


def scan(run: Run, step: NodeScan, live: frozenset[str]) -> Frame:
    """The nodes of a type that pass all filters of a scan."""
    name, source = step.variable, run.nodes(step.type_name)
    if source is None:
        return Frame(0, {name: np.empty(0, np.int32)})
    visible = None
    if step.visible is not None:
        visible = run.visible_nodes(step.visible)
        if visible is None or visible.is_empty:
            return Frame(0, {name: np.empty(0, np.int32)})
    ids: frozenset[str] | None = None
    conditions: list[typed.TypedExpr] = []
    for condition in step.filters:
        named = named_ids(condition)
        if named is None:
            conditions.append(condition)
        else:
            ids = named if ids is None else ids & named
    if ids is not None:
        run.note({"by": "key"})
        frame = _by_key(name, source, sorted(ids))
        if visible is not None:
            frame = frame.where(visible.keeps(frame.nodes[name]))
    else:
        pushed = [condition for condition in conditions if pushable(condition)]
        conditions = [condition for condition in conditions if not pushable(condition)]
        is_live = name in live or bool(conditions)
        frame = _by_table(run, step, source, visible, pushed, is_live)
    for condition in conditions:
        frame = kept_rows(run, frame, condition)
    return frame


def direct_scan(run: Run, plan: ReadPlan, limit: int | None) -> Iterator[Frame] | None:
    """The rows of a plan that only scans one type, with the columns it returns or sorts by.

    They are read in one pass and not cached; ``None`` if the table is in memory anyway, or if
    storage cannot evaluate the conditions.
    """
    if len(plan.pipeline) != 1 or run.info.has_search:
        return None
    (step,) = plan.pipeline
    if not isinstance(step, NodeScan):
        return None
    source, filters = run.nodes(step.type_name), step.filters
    if source is None or source.cached_index() is not None:
        return None
    if any(named_ids(condition) is not None for condition in filters):
        return None
    if source.preferred_index() is not None or not all(map(pushable, filters)):
        return None
    if step.visible is not None:
        visible = run.visible_nodes(step.visible)
        if visible is None or visible.is_empty or not visible.is_pushable:
            return None
        assert visible.condition is not None
        filters = (*filters, visible.condition)
    pushed = filter_expression(typed.And(filters)) if filters else None
    names = list(dict.fromkeys([ID, *run.info.scanned]))
    report = run.report(step)
    report.notes.append({"by": "storage", "pushed": len(filters)})

    def frames() -> Iterator[Frame]:
        for batch in source.table().scan(names, pushed, limit=limit):
            run.guard.check()
            report.rows += batch.num_rows
            report.bytes = max(report.bytes, batch.nbytes)
            report.storage = source.reads
            values = {(step.variable, name): batch.column(name) for name in names}
            yield Frame(batch.num_rows, values=values)

    return frames()


def _by_table(
    run: Run,
    step: NodeScan,
    source: NodeSource,
    visible: VisibleNodes | None,
    filters: list[typed.TypedExpr],
    is_live: bool,
) -> Frame:
    """The nodes that pass pushable filters: from memory if cached, else from storage."""
    name = step.variable
    is_read = filters or is_live or visible is not None
    index = source.preferred_index() if is_read else source.cached_index()
    if index is not None and all(_is_cached(source, index, condition) for condition in filters):
        run.note({"by": "memory"})
        numbers = index.numbers if visible is None else visible.mask().numbers
        if visible is not None and not filters and not is_live:
            # Only the number of nodes matters.
            return _counted(len(numbers))
        frame = Frame(len(numbers), {name: numbers})
        for condition in _cheap_first(source, filters):
            frame = kept_rows(run, frame, condition)
        return frame
    run.note({"by": "storage", "pushed": len(filters)})
    if not is_read:
        return _counted(source.rows)
    if visible is not None and index is None and visible.is_pushable:
        assert visible.condition is not None
        filters, visible = [*filters, visible.condition], None
    pushed = filter_expression(typed.And(tuple(filters))) if filters else None
    if index is not None:
        rows = _column(run, source.table().scan([], pushed, row_ids=True), "_rowid", pa.uint64())
        numbers = index.numbers_of_rows(numpy_view(rows))
    else:
        texts = _column(run, source.table().scan([ID], pushed), ID, pa.string())
        numbers = source.ids.numbers(texts)
    frame = Frame(len(numbers), {name: numbers})
    return frame if visible is None else frame.where(visible.keeps(numbers))


def _counted(rows: int) -> Frame:
    """So many rows of which only the number matters."""
    return Frame(1, weights=np.array([rows], np.int64)) if rows else Frame(0)


def _cheap_first(
    source: NodeSource, filters: Sequence[typed.TypedExpr]
) -> Sequence[typed.TypedExpr]:
    """Comparisons of numbers and codes at once; the others only see the rows that pass."""
    if len(filters) < 2:
        return filters
    by_cost: tuple[list[typed.TypedExpr], ...] = ([], [], [])
    for condition in filters:
        by_cost[_cost(source, condition)].append(condition)
    cheap, *others = by_cost
    return [*([typed.And(tuple(cheap))] if len(cheap) > 1 else cheap), *chain(*others)]


def _cost(source: NodeSource, condition: typed.TypedExpr) -> int:
    """0 for a comparison of numbers or codes, 1 for a test of each distinct text, 2 for others."""
    text = compared_text(condition)
    if text is not None and source.has_few_values(text.name):
        return 0 if isinstance(condition, typed.Compare) else 1
    columns = [part for part in typed.walk(condition) if isinstance(part, typed.Column)]
    is_cheap = all(column.type.scalar.is_numeric and not column.type.is_list for column in columns)
    return 0 if is_cheap else 2


def _column(
    run: Run, batches: Iterator[pa.RecordBatch], name: str, type_: pa.DataType
) -> pa.ChunkedArray:
    """One column of the batches; the guard is checked before each."""
    return pa.chunked_array([batch[name] for batch in run.guard.between(batches)], type_)


def _is_cached(source: NodeSource, index: NodeIndex, condition: typed.TypedExpr) -> bool:
    """Whether the columns of a condition are in memory, or should be."""
    columns = (part.name for part in typed.walk(condition) if isinstance(part, typed.Column))
    return all(
        name == ID or index.cache.has(name) or source.is_worth_caching(name, 0) for name in columns
    )


# -- by key -----------------------------------------------------------------------------------


def named_ids(condition: typed.TypedExpr) -> frozenset[str] | None:
    """The ids listed in a condition on the key; ``None`` for any other condition."""
    match condition:
        case typed.Compare(
            op=typed.Relation.EQ,
            left=typed.Column(name="id"),
            right=typed.Constant(value=str(text)),
        ):
            return frozenset({text})
        case typed.Membership(
            item=typed.Column(name="id"), options=typed.Constant(value=tuple(texts))
        ):
            return frozenset(text for text in texts if isinstance(text, str))
        case _:
            return None


def _by_key(name: str, source: NodeSource, ids: Sequence[str]) -> Frame:
    """A few nodes by id: from memory if cached, else by the index of the table."""
    index = source.preferred_index(len(ids))
    if index is not None:
        numbers = index.numbers_of(ids)
        return Frame(len(numbers), {name: numbers})
    wanted = typed.Membership(
        typed.Column(name, ID, typed.STRING),
        typed.Constant(tuple(ids), PropType(Scalar.STRING, is_list=True)),
    )
    rows = source.table().read([ID], filter_expression(wanted)) if ids else None
    numbers = np.empty(0, np.int32) if rows is None else source.ids.numbers(rows[ID])
    return Frame(len(numbers), {name: numbers})
