"""From a bound plan to the rows of its result, and the scans that it begins with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.lang.types import PropType, Scalar
from omnigraph.plan.arrow import filter_expression, pushable
from omnigraph.plan.live import named_variables
from omnigraph.plan.nodes import NodeScan, ReadPlan
from omnigraph.read.aggregate import aggregated
from omnigraph.read.blocks import kept_rows, together
from omnigraph.read.frame import Frame, Ints
from omnigraph.read.limits import ResourceGuard
from omnigraph.read.order import SortColumn, first_candidates, sort_indices
from omnigraph.read.sources import ID, NodeSource
from omnigraph.read.values import values_of
from omnigraph.topology.nodes import NodeIndex

if TYPE_CHECKING:
    from omnigraph.read.run import Run

# The first batch is small, so that a small limit costs little.
_FIRST_BATCH = 1_024
_BATCH = 65_536


class ResultWindow:
    """Clips the batches of a result to the plan's offset and limit, and checks the row limit."""

    def __init__(self, plan: ReadPlan, guard: ResourceGuard) -> None:
        self._start = plan.offset or 0
        self.end = None if plan.limit is None else self._start + plan.limit
        """The number of rows that are enough."""
        self._guard = guard
        self._count = 0
        self.is_full = False

    def clip(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The rows of the next batch inside the window, if any."""
        first = max(self._start - self._count, 0)
        last = batch.num_rows if self.end is None else min(self.end - self._count, batch.num_rows)
        # A result that is ready after the deadline is not returned.
        self._guard.check()
        self._count += batch.num_rows
        self.is_full = self.end is not None and self._count >= self.end
        if last <= first:
            return None
        self._guard.check_rows(self._count - batch.num_rows + last - self._start)
        return batch.slice(first, last - first)


def execute(run: Run, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the result, computed on demand where the plan allows it."""
    if plan.limit == 0:
        return
    window = ResultWindow(plan, run.guard)
    if not run.info.streams:
        columns = _all_rows(run, plan, window.end)
        batch = window.clip(pa.RecordBatch.from_arrays(columns, schema=run.info.schema))
        if batch is not None:
            yield batch
        return
    exprs = [column.expr for column in plan.columns]
    for frame in direct_scan(run, plan, window.end) or _streamed(run, plan):
        for start in range(0, frame.rows, _BATCH):
            run.guard.check()
            rows = frame if frame.rows <= _BATCH else frame.slice(start, _BATCH)
            run.fetch(rows, exprs)
            columns = [values_of(run, rows, expr) for expr in exprs]
            batch = window.clip(pa.RecordBatch.from_arrays(columns, schema=run.info.schema))
            if batch is not None:
                yield batch
            if window.is_full:
                return


def _streamed(run: Run, plan: ReadPlan) -> Iterator[Frame]:
    """Rows in no particular order, from one piece of the first scan at a time."""
    steps, live = plan.pipeline, run.info.live
    first = Frame(1)
    if steps and isinstance(steps[0], NodeScan):
        # The scan alone is cheap: it only finds the numbers of the nodes.
        scanned = run.run_step(steps[0], first, live[0], weighted=True)
        assert isinstance(scanned, Frame)
        first, steps, live = scanned, steps[1:], live[1:]
    start, size = 0, _FIRST_BATCH
    while start < first.rows:
        piece = first.slice(start, size) if first.rows > size or start else first
        for frame in run.frames(steps, live, piece, weighted=True):
            if frame.weights is None:
                yield frame
            else:
                yield from frame.repeated(_BATCH)
        start += size
        size = min(4 * size, _BATCH)


def _all_rows(run: Run, plan: ReadPlan, end: int | None) -> list[pa.Array]:
    """The columns of all rows, because any row may come first, or belong to any group."""
    frame = _nearest_frame(run, plan)
    if frame is None:
        frames = direct_scan(run, plan, None)
        if frames is not None:
            frame = together(frames, run.guard)
    if frame is None or not frame.variables:
        weighted = run.info.needs_counts
        rest = run.frames(plan.pipeline, run.info.live, Frame(1), weighted=weighted)
        frame = together(rest, run.guard, weighted=weighted)
    if run.info.is_aggregate or plan.distinct:
        # Distinct rows are groups without aggregates.
        return _sort_groups(run, plan, aggregated(run, plan, frame), end)
    if frame.weights is not None:
        total = int(frame.total()[0])
        run.guard.hold(total * max(frame.width, 8))
        frame = next(frame.repeated(max(total, 1)), frame)
    _rank(run, plan, frame, end)
    if plan.order:
        run.guard.hold(2 * frame.nbytes + frame.rows * 8 * (len(plan.order) + 2))
        frame = frame.take(_sorted_rows(run, plan, frame, end))
    run.fetch(frame, [column.expr for column in plan.columns])
    return [values_of(run, frame, column.expr) for column in run.guard.between(plan.columns)]


# -- order ------------------------------------------------------------------------------------


def _sorted_rows(run: Run, plan: ReadPlan, frame: Frame, end: int | None) -> Ints:
    """The indices of the first rows in the order of the plan."""
    kept = np.arange(frame.rows)
    first = plan.order[0].expr
    exprs = [(plan.meaning(key.expr), key.descending) for key in plan.order]
    if isinstance(first, typed.Score):
        best, *ranks = run.searches.order(frame, first, end)
        exprs = exprs[1:]
        # A search keeps its matches only.
        kept = np.flatnonzero(best.values.is_valid().to_numpy(zero_copy_only=False))
    run.fetch(frame, [expr for expr, _ in exprs])
    keys = [SortColumn(values_of(run, frame, expr), descending) for expr, descending in exprs]
    if isinstance(first, typed.Score):
        keys = [best, *keys, *ranks]
    if len(kept) < frame.rows:
        keys = [key.take(kept) for key in keys]
    if end is not None:
        candidates = first_candidates(keys[0], end)
        if candidates is not None:
            keys = [key.take(candidates) for key in keys]
            kept = kept[candidates]
    if not len(kept):
        return kept
    rows = frame.take(kept) if len(kept) < frame.rows else frame
    # Ties are broken by the ids of all named variables, in the order of their names.
    named = [name for name in named_variables(plan) if name in rows.variables]
    ties = [SortColumn(run.column(rows, name, typed.ID_COLUMN)) for name in named]
    order = sort_indices([*keys, *ties], run.guard.check)
    return kept[order if end is None else order[:end]]


def _rank(run: Run, plan: ReadPlan, frame: Frame, end: int | None) -> None:
    """Compute returned fused rankings before rows are dropped: ranks are among all rows."""
    first = plan.meaning(plan.order[0].expr) if plan.order else None
    for column in plan.columns:
        for expr in typed.walk(column.expr):
            if isinstance(expr, typed.Rrf):
                run.searches.fused(frame, expr, end if expr == first else None)


def _sort_groups(
    run: Run, plan: ReadPlan, columns: list[pa.Array], end: int | None
) -> list[pa.Array]:
    """Groups in the order of the plan; ties are broken by the other columns."""
    if not plan.order or not len(columns[0]):
        return columns
    keys = [SortColumn(columns[n], descending) for n, descending in plan.output_order()]
    ties = [SortColumn(c) for c in columns if not pa.types.is_nested(c.type)]
    order = sort_indices([*keys, *ties], run.guard.check)
    taken = pa.array(order if end is None else order[:end])
    return [column.take(taken) for column in columns]


# -- search -----------------------------------------------------------------------------------


def _nearest_frame(run: Run, plan: ReadPlan) -> Frame | None:
    """The rows of a plan that is a pure vector search, found by the vector index."""
    row_ids = run.searches.nearest_rows(plan)
    if row_ids is None:
        return None
    (step,) = plan.pipeline
    assert isinstance(step, NodeScan)
    source = run.nodes(step.type_name)
    assert source is not None
    return Frame(len(row_ids), {step.variable: source.index().numbers_of_rows(row_ids)})


# -- scans ------------------------------------------------------------------------------------


def scan(run: Run, step: NodeScan, live: frozenset[str]) -> Frame:
    """The nodes of a type that all filters of a scan keep."""
    name, source = step.variable, run.nodes(step.type_name)
    if source is None:
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
    else:
        pushed = [condition for condition in conditions if pushable(condition)]
        conditions = [condition for condition in conditions if not pushable(condition)]
        frame = _by_table(run, step, source, pushed, name in live or bool(conditions))
    for condition in conditions:
        frame = kept_rows(run, frame, condition)
    return frame


def direct_scan(run: Run, plan: ReadPlan, limit: int | None) -> Iterator[Frame] | None:
    """The rows of a plan that only scans one type, with the columns it returns or sorts by.

    They are read in one pass and not cached; none if the table is in memory anyway, or if
    storage cannot evaluate the conditions.
    """
    if len(plan.pipeline) != 1 or run.info.has_search:
        return None
    (step,) = plan.pipeline
    if not isinstance(step, NodeScan):
        return None
    source, filters = run.nodes(step.type_name), step.filters
    if source is None or any(named_ids(condition) is not None for condition in filters):
        return None
    if source.preferred_index() is not None or not all(map(pushable, filters)):
        return None
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
    run: Run, step: NodeScan, source: NodeSource, filters: list[typed.TypedExpr], is_live: bool
) -> Frame:
    """The nodes that pushable filters keep: from memory where cached, else from storage."""
    name = step.variable
    index = source.preferred_index() if filters or is_live else source.cached_index()
    if index is not None and all(_is_cached(source, index, condition) for condition in filters):
        run.note({"by": "memory"})
        frame = Frame(index.cache.rows, {name: index.numbers})
        for condition in filters:
            frame = kept_rows(run, frame, condition)
        return frame
    run.note({"by": "storage", "pushed": len(filters)})
    pushed = filter_expression(typed.And(tuple(filters))) if filters else None
    if not filters and not is_live:
        # Only the number of nodes matters.
        return Frame(1, weights=np.array([source.rows], np.int64)) if source.rows else Frame(0)
    if index is not None:
        rows = _column(run, source.table().scan([], pushed, row_ids=True), "_rowid", pa.uint64())
        return Frame(len(rows), {name: index.numbers_of_rows(rows.to_numpy())})
    texts = _column(run, source.table().scan([ID], pushed), ID, pa.string())
    return Frame(len(texts), {name: source.ids.numbers(texts)})


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
    """The ids that a condition on the key names; none for any other condition."""
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
    """A few nodes by id: from memory where cached, else by the index of the table."""
    index = source.preferred_index(len(ids))
    if index is not None:
        numbers = index.ids.numbers_of(ids)
        return Frame(len(numbers), {name: numbers}).where(index.positions(numbers) >= 0)
    wanted = typed.Membership(
        typed.Column(name, ID, typed.STRING),
        typed.Constant(tuple(ids), PropType(Scalar.STRING, is_list=True)),
    )
    rows = source.table().read([ID], filter_expression(wanted)) if ids else None
    numbers = np.empty(0, np.int32) if rows is None else source.ids.numbers(rows[ID])
    return Frame(len(numbers), {name: numbers})
