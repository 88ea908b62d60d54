"""From a bound plan to the rows of its result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.lang.query.typed import walk
from omnigraph.plan.arrow import filter_expression, pushable
from omnigraph.plan.live import bound
from omnigraph.plan.nodes import NodeScan, ReadPlan
from omnigraph.read.aggregate import aggregated
from omnigraph.read.blocks import together
from omnigraph.read.frame import Frame, Ints
from omnigraph.read.order import Key, first_candidates, sorted_places
from omnigraph.read.scan import direct
from omnigraph.read.values import values_of

if TYPE_CHECKING:
    from omnigraph.read.run import Run

# The first batch is small, so that a small limit costs little; the later ones are not.
_FIRST_BATCH = 1_024
_BATCH = 65_536


def execute(run: Run, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The batches of the result, computed as they are asked for where the plan allows."""
    info = run.info
    start = plan.offset or 0
    end = None if plan.limit is None else start + plan.limit
    if plan.limit == 0:
        return
    count = 0
    for columns in _streamed(run, plan, end) if info.streams else [_whole(run, plan, end)]:
        batch = pa.RecordBatch.from_arrays(columns, schema=info.schema)
        first = max(start - count, 0)
        last = batch.num_rows if end is None else min(end - count, batch.num_rows)
        # What came too late is not given out.
        run.guard.check()
        count += batch.num_rows
        if last > first:
            run.guard.result(count if end is None else min(count, end) - start)
            yield batch.slice(first, last - first)
        if end is not None and count >= end:
            return


def _streamed(run: Run, plan: ReadPlan, end: int | None) -> Iterator[list[pa.Array]]:
    """Rows in no particular order, a piece of the first scan at a time."""
    frames = _direct(run, plan, end)
    if frames is not None:
        for frame in frames:
            yield from _projected(run, plan, frame)
        return
    steps, live = plan.pipeline, run.info.live
    first = Frame(1)
    if steps and isinstance(steps[0], NodeScan):
        # The scan alone is cheap: it only finds which nodes there are.
        first = run.pipeline(steps[:1], live[:1], first, weighted=True)
        steps, live = steps[1:], live[1:]
    start, size = 0, _FIRST_BATCH
    while start < first.rows:
        piece = first.slice(start, size) if first.rows > size or start else first
        for frame in run.pieces(steps, live, piece, weighted=True):
            for part in _repeated(frame):
                yield from _projected(run, plan, part)
        start += size
        size = min(4 * size, _BATCH)


def _direct(run: Run, plan: ReadPlan, limit: int | None) -> Iterator[Frame] | None:
    """The rows of a plan that only scans one type, with what it asks for of them."""
    if len(plan.pipeline) != 1 or run.info.has_search:
        return None
    (step,) = plan.pipeline
    return direct(run, step, run.info.scanned, limit) if isinstance(step, NodeScan) else None


def _repeated(frame: Frame, batch: int = _BATCH) -> Iterator[Frame]:
    """Every row as often as it counts, so many at a time."""
    if frame.weights is None:
        yield frame
        return
    total = int(frame.total()[0])
    ends = np.cumsum(frame.weights)
    for start in range(0, total, batch):
        wanted = np.arange(start, min(start + batch, total))
        rows = frame.take(np.searchsorted(ends, wanted, side="right"))
        rows.weights = None
        yield rows


def _projected(run: Run, plan: ReadPlan, frame: Frame) -> Iterator[list[pa.Array]]:
    for start in run.guard.between(range(0, frame.rows, _BATCH)):
        piece = frame if frame.rows <= _BATCH else frame.slice(start, _BATCH)
        run.fetch(piece, [column.expr for column in plan.columns])
        yield [values_of(run, piece, column.expr) for column in plan.columns]


def _whole(run: Run, plan: ReadPlan, end: int | None) -> list[pa.Array]:
    """All rows, because each may be the first, or may belong to any group."""
    frame = _nearest_frame(run, plan, end)
    if frame is None:
        frames = _direct(run, plan, None)
        if frames is not None:
            frame = together(frames, run.guard)
    if frame is None or not frame.variables:
        weighted = run.info.needs_counts
        frame = run.pipeline(plan.pipeline, run.info.live, Frame(1), weighted=weighted)
    if run.info.is_aggregate or plan.distinct:
        # Different rows are groups of which nothing more is asked.
        return _ordered_output(run, plan, aggregated(run, plan, frame), end)
    if frame.weights is not None:
        total = int(frame.total()[0])
        run.guard.hold(total * max(frame.width, 8))
        frame = next(_repeated(frame, max(total, 1)), frame)
    _rank(run, plan, frame, end)
    if plan.order:
        run.guard.hold(2 * frame.nbytes + frame.rows * 8 * (len(plan.order) + 2))
        frame = frame.take(_places(run, plan, frame, end))
    run.fetch(frame, [column.expr for column in plan.columns])
    return [values_of(run, frame, column.expr) for column in run.guard.between(plan.columns)]


# -- order ------------------------------------------------------------------------------------


def _places(run: Run, plan: ReadPlan, frame: Frame, end: int | None) -> Ints:
    """The places of the first rows in the order of the plan."""
    kept = np.arange(frame.rows)
    first = plan.order[0].expr
    wanted = [(plan.meaning(key.expr), key.descending) for key in plan.order]
    if isinstance(first, typed.Score):
        best, *rest = run.searches.order(frame, first, end)
        wanted = wanted[1:]
        # A search keeps what it finds.
        kept = np.flatnonzero(best.values.is_valid().to_numpy(zero_copy_only=False))
    run.fetch(frame, [expr for expr, _ in wanted])
    keys = [Key(values_of(run, frame, expr), descending) for expr, descending in wanted]
    if isinstance(first, typed.Score):
        keys = [best, *keys, *rest]
    if len(kept) < frame.rows:
        keys = [Key(key.values.take(pa.array(kept)), key.descending) for key in keys]
    if end is not None:
        few = first_candidates(keys[0], end)
        if few is not None:
            keys = [Key(key.values.take(pa.array(few)), key.descending) for key in keys]
            kept = kept[few]
    ties = _ties(run, plan, frame.take(kept) if len(kept) < frame.rows else frame)
    order = sorted_places([*keys, *ties], run.guard.check) if len(kept) else kept
    return kept[order if end is None else order[:end]]


def _fusions(plan: ReadPlan) -> Iterator[typed.Rrf]:
    """The fused rankings that are returned."""
    for column in plan.columns:
        yield from (part for part in walk(column.expr) if isinstance(part, typed.Rrf))


def _rank(run: Run, plan: ReadPlan, frame: Frame, end: int | None) -> None:
    """Ranks are among all rows, so they are made before rows are left out."""
    first = plan.meaning(plan.order[0].expr) if plan.order else None
    for expr in _fusions(plan):
        run.searches.fused(frame, expr, end if expr == first else None)


def _ties(run: Run, plan: ReadPlan, frame: Frame) -> list[Key]:
    """The ids of all variables that were given a name, in the order of the names."""
    names = sorted({name for name in bound(plan.pipeline) if not typed.is_hidden(name)})
    there = [name for name in names if name in frame.variables]
    return [Key(run.column(frame, name, typed.ID_COLUMN)) for name in there]


def _ordered_output(
    run: Run, plan: ReadPlan, columns: list[pa.Array], end: int | None
) -> list[pa.Array]:
    """Rows that are values already, in the order of the plan; ties by the other columns."""
    if not plan.order or not len(columns[0]):
        return columns
    keys = [Key(columns[_position(key.expr)], key.descending) for key in plan.order]
    plain = [c for c in columns if not pa.types.is_nested(c.type)]
    order = sorted_places([*keys, *(Key(column) for column in plain)], run.guard.check)
    taken = pa.array(order if end is None else order[:end])
    return [column.take(taken) for column in columns]


def _position(expr: typed.TypedExpr) -> int:
    assert isinstance(expr, typed.Output), "groups are ordered by what is returned"
    return expr.position


# -- search -----------------------------------------------------------------------------------


def _nearest_frame(run: Run, plan: ReadPlan, end: int | None) -> Frame | None:
    """Where a plan only scans one type and wants the nearest of it, the index finds them."""
    if len(plan.pipeline) != 1 or not plan.order or end is None or plan.distinct:
        return None
    step, expr = plan.pipeline[0], plan.order[0].expr
    if not isinstance(step, NodeScan) or not isinstance(expr, typed.Nearest):
        return None
    source = run.nodes(step.type_name)
    if source is None or not all(pushable(each) for each in step.filters):
        return None
    condition = filter_expression(typed.And(step.filters)) if step.filters else None
    numbers = run.searches.nearest_nodes(expr, end, condition)
    return None if numbers is None else Frame(len(numbers), {step.variable: numbers})
