"""Executes a bound plan: streaming, sorting, grouping, and the window of its result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.plan.live import named_variables
from omnigraph.plan.nodes import NodeScan, ReadPlan
from omnigraph.read.aggregate import aggregated
from omnigraph.read.blocks import together
from omnigraph.read.frame import Frame, Ints
from omnigraph.read.limits import ResourceGuard
from omnigraph.read.order import SortColumn, first_candidates, sort_indices
from omnigraph.read.scan import direct_scan
from omnigraph.read.values import values_of

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
        """The number of rows after which execution can stop; ``None`` without a limit."""
        self._guard = guard
        self._count = 0
        self.is_full = False

    def skip(self, rows: int) -> int:
        """Leave out the rows before the window, of so many that come next; returns their number."""
        skipped = min(max(self._start - self._count, 0), rows)
        self._count += skipped
        # Reported before the first row is, if their number is known.
        self._guard.check_rows(min(rows, self.end or rows) - skipped)
        return skipped

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
        return batch if last - first == batch.num_rows else batch.slice(first, last - first)


def execute(run: Run, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the result, computed on demand where the plan allows it."""
    if plan.limit == 0:
        return
    window = ResultWindow(plan, run.guard)
    if run.info.is_aggregate or plan.distinct:
        columns = _groups(run, plan, window.end)
        batch = window.clip(pa.RecordBatch.from_arrays(columns, schema=run.info.schema))
        if batch is not None:
            yield batch
        return
    if run.info.streams:
        frames = direct_scan(run, plan, window.end) or _streamed(run, plan)
    else:
        frames = iter([_sorted(run, plan, window)])
    exprs = [column.expr for column in plan.columns]
    # A ranking is of all rows.
    is_whole = run.info.has_search and not run.info.streams
    for frame in frames:
        size = frame.rows if is_whole else run.batch_rows or _BATCH
        for start in range(0, frame.rows, size or 1):
            run.guard.check()
            rows = frame if frame.rows <= size else frame.slice(start, size)
            run.fetch(rows, exprs)
            columns = [values_of(run, rows, expr) for expr in run.guard.between(exprs)]
            batch = window.clip(pa.RecordBatch.from_arrays(columns, schema=run.info.schema))
            if batch is not None:
                yield batch
            if window.is_full:
                return


def _streamed(run: Run, plan: ReadPlan) -> Iterator[Frame]:
    """Rows in no particular order, computed from one piece of the first scan at a time."""
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


def _every_row(run: Run, plan: ReadPlan) -> Frame:
    """All rows: a sort or a grouping needs every row before the first result."""
    frame = _nearest_frame(run, plan)
    if frame is None:
        frames = direct_scan(run, plan, None)
        if frames is not None:
            frame = together(frames, run.guard)
    if frame is None or not frame.variables:
        weighted = run.info.needs_counts
        rest = run.frames(plan.pipeline, run.info.live, Frame(1), weighted=weighted)
        frame = together(rest, run.guard, weighted=weighted)
    return frame


def _groups(run: Run, plan: ReadPlan, end: int | None) -> list[pa.Array]:
    """The columns of all groups; distinct rows are groups without aggregates."""
    return _sort_groups(run, plan, aggregated(run, plan, _every_row(run, plan)), end)


def _sorted(run: Run, plan: ReadPlan, window: ResultWindow) -> Frame:
    """The rows of the window in the order of the plan; their values are still to be read."""
    frame = _every_row(run, plan)
    if frame.weights is not None:
        total = int(frame.total()[0])
        run.guard.hold(total * max(frame.width, 8))
        frame = next(frame.repeated(max(total, 1)), frame)
    _rank(run, plan, frame, window.end)
    if plan.order:
        run.guard.hold(2 * frame.nbytes + frame.rows * 8 * (len(plan.order) + 2))
        indices = _sorted_rows(run, plan, frame, window.end)
        frame = frame.take(indices[window.skip(len(indices)) :])
    return frame


# -- order ------------------------------------------------------------------------------------


def _sorted_rows(run: Run, plan: ReadPlan, frame: Frame, end: int | None) -> Ints:
    """The indices of the first rows in the order of the plan."""
    kept = np.arange(frame.rows)
    first = plan.order[0].expr
    exprs = [(plan.meaning(key.expr), key.descending) for key in plan.order]
    if isinstance(first, typed.Score):
        best, *ranks = run.searches.order(frame, first, end)
        exprs = exprs[1:]
        # A search returns only its matches.
        kept = np.flatnonzero(numpy_view(best.values.is_valid()))
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
    """Compute the returned fused rankings before rows are dropped: ranks count all rows."""
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
    keys = [SortColumn(_sortable(columns[n]), descending) for n, descending in plan.output_order()]
    ties = [SortColumn(c) for c in columns if not pa.types.is_nested(c.type)]
    order = sort_indices([*keys, *ties], run.guard.check)
    taken = arrow_view(order if end is None else order[:end])
    return [column.take(taken) for column in columns]


def _sortable(column: pa.Array) -> pa.Array:
    """A column that can be sorted: lists, by which only pages are, as their texts."""
    if not pa.types.is_nested(column.type):
        return column
    return pa.array([None if item is None else repr(item) for item in column.to_pylist()])


# -- search -----------------------------------------------------------------------------------


def _nearest_frame(run: Run, plan: ReadPlan) -> Frame | None:
    """The rows of a plan that is a pure vector search, found by the vector index."""
    if not plan.order or not isinstance(plan.order[0].expr, typed.Nearest):
        return None
    row_ids = run.searches.nearest_rows(plan)
    if row_ids is None:
        return None
    (step,) = plan.pipeline
    assert isinstance(step, NodeScan)
    source = run.nodes(step.type_name)
    assert source is not None
    return Frame(len(row_ids), {step.variable: source.index().numbers_of_rows(row_ids)})
