"""Splits long work into blocks, so that a query can be cancelled between two of them.

A step that multiplies rows (a product, a traversal) processes only as many input rows at a time as
produce about ``ROWS`` output rows. The steps after it process these before the next block. So
memory use depends on the output of the pipeline, not on the output of its widest step.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import Connect, Expand, Intersect, NodeScan, PlanStep, RowFilter
from omnigraph.read.frame import Frame, Ints, Mask, Numbers
from omnigraph.read.legs import FEW_STARTS, Leads, leads_of
from omnigraph.read.reach import most_starts
from omnigraph.read.traversal_cost import TraversalMode
from omnigraph.read.values import keeps
from omnigraph.topology.cache import one_array
from omnigraph.topology.sets import distinct

if TYPE_CHECKING:
    from omnigraph.read.limits import ResourceGuard
    from omnigraph.read.run import Run
    from omnigraph.read.sources import EdgeSource

ROWS = 1 << 20
"""More output rows than this are divided, into blocks of a quarter as many.

The arrays of a larger block may be returned to the system after each step, and then every page of
the next ones is a fault, which costs as much as the work on it. The size does not depend on the
number of threads, because the order of rows may depend on it.
"""
BYTES = 64 << 20
"""The approximate size of the values of a block."""
FEW_VALUES = 8_192
"""Up to this many values are read at once, whatever their width."""
FEW_NODES = 4_096
"""Results for at most this many nodes are not stored."""


class FrameBlocks:
    """Consecutive rows of a frame; each block begins at one of the given rows."""

    def __init__(self, frame: Frame, begins: Sequence[int]) -> None:
        self._frame = frame
        self._begins = begins
        self.on_block: Callable[[Frame, int, int], None] | None = None
        """Called with every block, the row where it begins and that where it ends."""

    def __len__(self) -> int:
        return len(self._begins)

    def __iter__(self) -> Iterator[Frame]:
        frame = self._frame
        for begin, end in itertools.pairwise(itertools.chain(self._begins, [frame.rows])):
            block = frame.slice(begin, end - begin)
            if self.on_block is not None:
                self.on_block(block, begin, end)
            yield block


def blocks(frame: Frame, counts: int | Ints) -> FrameBlocks | None:
    """Blocks of rows with at most about ``ROWS`` output rows; ``None`` if one block is enough.

    ``counts`` is the number of output rows of each row, or one number for all rows.
    """
    if isinstance(counts, int):
        size = max(ROWS // max(counts, 1), 1)
        if frame.rows <= size:
            return None
        return FrameBlocks(frame, range(0, frame.rows, max(size // 4, 1)))
    ranges = cuts(counts)
    return None if len(ranges) < 2 else FrameBlocks(frame, [begin for begin, _, _ in ranges])


def cuts(counts: Ints) -> list[tuple[int, int, int]]:
    """Ranges with at most about ``ROWS`` output rows: begin, end, the number of output rows.

    An item that exceeds the size of a block on its own ends its range.

    >>> cuts(np.array([5, ROWS, 7]))
    [(0, 2, 1048581), (2, 3, 7)]
    """
    ends = np.cumsum(counts)
    if not len(ends) or ends[-1] <= ROWS:
        return [(0, len(ends), int(ends[-1]) if len(ends) else 0)]
    block = (ends - counts) // max(ROWS // 4, 1)
    begins = [0, *(np.flatnonzero(block[1:] != block[:-1]) + 1).tolist()]
    total = np.concatenate([[0], ends])
    return [
        (begin, end, int(total[end] - total[begin]))
        for begin, end in itertools.pairwise([*begins, len(ends)])
    ]


def step_blocks(run: Run, step: PlanStep, frame: Frame, live: frozenset[str]) -> FrameBlocks | None:
    """The blocks of rows to run a step on, one by one; ``None`` to run it on all rows at once."""
    match step:
        case NodeScan():
            return blocks(frame, run.scanned(step, live).rows)
        case Expand() | Connect():
            return blocks(frame, _degrees(run, step, frame, live))
        case Intersect():
            leads = leads_of(run, step, frame)
            return None if leads is None else _led_blocks(run, step, frame, leads)
        case RowFilter():
            return _value_blocks(run, frame, step.condition)
        case _:
            return blocks(frame, 1)


def _led_blocks(run: Run, step: Intersect, frame: Frame, leads: Leads) -> FrameBlocks | None:
    """Blocks for an intersection; what leads their rows is kept until the step runs on them."""
    pieces = blocks(frame, leads.tested)
    if pieces is None:
        run.keep_leads(step, frame, leads)
        return None

    def keep(block: Frame, begin: int, end: int) -> None:
        run.keep_leads(step, block, Leads(leads.numbers[begin:end], leads.tested[begin:end]))

    pieces.on_block = keep
    return pieces


def _value_blocks(run: Run, frame: Frame, condition: typed.TypedExpr) -> FrameBlocks | None:
    """Blocks of rows for which a condition reads at most about ``BYTES`` of values."""
    if frame.rows <= FEW_VALUES:
        return None
    return blocks(frame, max(run.width(condition) * ROWS // BYTES, 1))


def _degrees(run: Run, step: Expand | Connect, frame: Frame, live: frozenset[str]) -> int | Ints:
    """The number of output rows of each row: exact for one hop, an upper bound for several."""
    is_joined = isinstance(step, Connect) and step.edge_variable is None
    is_counted = (
        isinstance(step, Expand)
        and step.edge_variable is None
        and step.dst not in live
        and not step.dst_filters
    )
    source = run.visible_edges(step.edge_type, step.through)
    if source is None or is_joined or is_counted:
        return 1
    if source.hops(step) > 1:
        return _most_reached(run, step, source, frame)
    index = source.cached_index()
    if index is None:
        if frame.rows <= FEW_STARTS or run.context.traversal.mode is TraversalMode.INDEXED:
            return 1
        index = source.index()
    numbers, direction = run.numbers(frame, step.src), str(step.direction)
    if step.edge_variable is not None:
        return index.edge_adjacency(direction).degrees(numbers)
    adjacency = index.adjacency(direction)
    # Few rows are never divided, whatever they are.
    return 1 if frame.rows * adjacency.most <= ROWS else adjacency.degrees(numbers)


def _most_reached(run: Run, step: Expand | Connect, source: EdgeSource, frame: Frame) -> int:
    """The output rows to assume per row, so that a block has the starts of one traversal."""
    starts = most_starts(len(source.near(step.direction).ids))
    numbers = run.numbers(frame, step.src)
    if frame.rows <= starts or len(distinct(numbers)) < frame.rows:
        return 1
    return max(ROWS // starts, 1)


def together(
    frames: Iterable[Frame], guard: ResourceGuard, *, weighted: bool | None = None
) -> Frame:
    """The frames of blocks as one frame.

    If ``weighted`` is not ``None``, equal rows are merged, with or without their counts.
    """
    kept: list[Frame] = []
    size = 0
    last = Frame(0)
    for last in frames:
        if last.rows:
            kept.append(last)
            size += last.nbytes
            if len(kept) > 1:
                guard.hold(2 * size)
    if len(kept) < 2:
        return kept[0] if kept else last
    frame = _concatenated(kept)
    return frame if weighted is None else frame.merged(weighted=weighted)


def _concatenated(frames: Sequence[Frame]) -> Frame:
    first = frames[0]
    # A small block may have values that other blocks do not have.
    keys = [key for key in first.values if all(key in frame.values for frame in frames)]
    return Frame(
        sum(frame.rows for frame in frames),
        {name: np.concatenate([f.nodes[name] for f in frames]) for name in first.nodes},
        {name: np.concatenate([f.edges[name] for f in frames]) for name in first.edges},
        {key: one_array(pa.chunked_array([f.values[key] for f in frames])) for key in keys},
        None
        if all(frame.weights is None for frame in frames)
        else np.concatenate([frame.counts() for frame in frames]),
    )


def kept_rows(run: Run, frame: Frame, condition: typed.TypedExpr) -> Frame:
    """The rows for which a condition is true."""
    pieces = run.guard.between(_value_blocks(run, frame, condition) or [frame])
    return together((b.where(keeps(run, b, condition)) for b in pieces), run.guard)


def read_in_blocks(
    read: Callable[[npt.NDArray[np.integer]], dict[str, pa.Array]],
    rows: npt.NDArray[np.integer],
    row_bytes: int,
    guard: ResourceGuard,
) -> dict[str, pa.Array]:
    """Columns of many rows; raises before reading if they need too much memory."""
    guard.hold(len(rows) * row_bytes)
    size = max(BYTES // max(row_bytes, 1), 1)
    if len(rows) <= size:
        return read(rows)
    starts = guard.between(range(0, len(rows), size))
    pieces = [read(rows[start : start + size]) for start in starts]
    return {n: one_array(pa.chunked_array([piece[n] for piece in pieces])) for n in pieces[0]}


_Value = TypeVar("_Value", np.bool_, np.int64)


class Memo(Generic[_Value]):
    """Caches a value per node number, so that a query computes it once for every node."""

    def __init__(self, dtype: type[_Value]) -> None:
        self._lock = threading.Lock()
        self._answered: Mask = np.zeros(0, bool)
        self._values: npt.NDArray[_Value] = np.zeros(0, dtype)

    def lookup(
        self, numbers: Numbers, ask: Callable[[Numbers], npt.NDArray[_Value]]
    ) -> npt.NDArray[_Value]:
        """The result for each number; ``ask`` gets the distinct numbers that are not cached.

        A block that needs the same nodes as another one waits for its results.
        """
        if len(numbers) <= FEW_NODES and not len(self._answered):
            unique, inverse = np.unique(numbers, return_inverse=True)
            return ask(unique)[inverse]
        size = int(numbers.max()) + 1
        flags = np.zeros(size, bool)
        flags[numbers] = True
        with self._lock:
            if size > len(self._answered):
                more = np.zeros(size - len(self._answered), bool)
                self._answered = np.concatenate([self._answered, more])
                self._values = np.concatenate([self._values, more.astype(self._values.dtype)])
            new = np.flatnonzero(flags & ~self._answered[:size]).astype(np.int32)
            if len(new):
                self._values[new] = ask(new)
                self._answered[new] = True
            values = self._values
        result: npt.NDArray[_Value] = values[numbers]
        return result
