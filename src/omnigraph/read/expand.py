"""From bound variables along edges: to new ones, or between two that are bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from omnigraph.plan.nodes import Connect, Expand
from omnigraph.read.blocks import cuts
from omnigraph.read.frame import Frame, Ints, Mask, Numbers, times
from omnigraph.read.sources import EdgeSource, plain
from omnigraph.read.strategy import TraversalMode
from omnigraph.read.traverse import Reached, Step, reach
from omnigraph.read.values import keeps
from omnigraph.topology.adjacency import EdgeAdjacency, spread
from omnigraph.topology.sets import among, distinct

if TYPE_CHECKING:
    from omnigraph.read.run import Run

# What a row takes while it is made: its owner, its place and its target.
_ROW_BYTES = 24

Sources = npt.NDArray[np.integer]
Edges = Callable[[Sources], tuple[Ints, Numbers, Ints]]


class Walk:
    """One traversal: which edges, which way, by which means."""

    def __init__(self, run: Run, step: Expand | Connect, source: EdgeSource, starts: int) -> None:
        self.direction = str(step.direction)
        self.min_hops = step.min_hops
        self.max_hops = source.hops(step)
        self.source = source
        self._guard = run.guard
        self.near = source.near(step.direction)
        self._choice = source.choice(run.context.traversal, step, starts)
        if run.profiled:
            run.note(self._choice.to_json())

    @property
    def is_cached(self) -> bool:
        return self._choice.mode is TraversalMode.CSR

    @property
    def nodes(self) -> int | None:
        """One more than the greatest number there can be; an index may meet new ids."""
        return len(self.near.ids) if self.is_cached else None

    @property
    def is_empty(self) -> bool:
        return not self.source.rows or self.min_hops > self.max_hops

    def neighbours(self, sources: Sources) -> tuple[Ints, Numbers]:
        """Different neighbours of numbers."""
        if self.is_cached:
            adjacency = self.source.index().adjacency(self.direction)
            # Before the neighbours are there, it is clear how many they are.
            self._guard.hold(int(adjacency.degrees(sources).sum()) * _ROW_BYTES)
            return adjacency.neighbours(sources)
        unique, inverse = np.unique(sources, return_inverse=True)
        found = plain(self.source.looked_up(self.direction, unique.astype(np.int32)))
        self._guard.hold(int(found.degrees(inverse).sum()) * _ROW_BYTES)
        return found.neighbours(inverse)

    def hop(self) -> Step:
        """Different neighbours of numbers, of so many at a time that they are a block."""
        if not self.is_cached:
            return lambda sources: [self.neighbours(sources)]
        adjacency = self.source.index().adjacency(self.direction)

        def walked(sources: Sources) -> Iterator[tuple[Ints, Numbers]]:
            for start, end, count in self._guard.between(cuts(adjacency.degrees(sources))):
                self._guard.hold(count * _ROW_BYTES)
                owners, targets = adjacency.neighbours(sources[start:end])
                yield (owners + start if start else owners), targets

        return walked

    def edges(self) -> Edges:
        """Every edge of numbers."""
        if self.is_cached:
            adjacency = self.source.index().edge_adjacency(self.direction)

            def walked(sources: Sources) -> tuple[Ints, Numbers, Ints]:
                self._guard.hold(int(adjacency.degrees(sources).sum()) * (_ROW_BYTES + 8))
                return adjacency.edges(sources)

            return walked

        def looked_up(sources: Sources) -> tuple[Ints, Numbers, Ints]:
            unique, inverse = np.unique(sources, return_inverse=True)
            found: EdgeAdjacency = self.source.looked_up(self.direction, unique.astype(np.int32))
            self._guard.hold(int(found.degrees(inverse).sum()) * (_ROW_BYTES + 8))
            return found.edges(inverse)

        return looked_up

    def all_reached(self, starts: Numbers) -> Reached:
        """What different starts reach by all hops."""
        return reach(self.hop(), starts, self.min_hops, self.max_hops, self.nodes, self._guard)

    def degrees(self, sources: Numbers) -> Ints | None:
        """How many neighbours numbers have, where that is known without looking at them."""
        if not self.is_cached or self.max_hops > 1 or not self.source.is_complete():
            return None
        return self.source.index().adjacency(self.direction).degrees(sources)


def expand(run: Run, step: Expand, frame: Frame, live: frozenset[str], *, weighted: bool) -> Frame:
    """One row for each row and each node that is reached from its source."""
    source = run.edges(step.edge_type)
    if source is None or not frame.rows:
        return _none(frame, step)
    starts = run.numbers(frame, step.src)
    walk = Walk(run, step, source, len(distinct(starts)) if len(starts) < 4096 else len(starts))
    if walk.is_empty:
        return _none(frame, step)
    if step.edge_variable is not None:
        return _expand_edges(run, step, frame, walk, starts)
    is_asked_for = step.dst in live
    if not is_asked_for and not step.dst_filters:
        degrees = walk.degrees(starts)
        if degrees is not None:
            run.note({"counted": True})
            return _counted(frame, degrees, weighted=weighted)
    owners, targets = _reached(run, walk, starts)
    run.guard.check()
    kept = _selected(run, step, walk, targets)
    if kept is not None:
        owners, targets = owners[kept], targets[kept]
    if not is_asked_for:
        return _counted(frame, np.bincount(owners, minlength=frame.rows), weighted=weighted)
    run.guard.hold(len(owners) * (frame.width + 8))
    found = frame.keeping(live).take(owners)
    found.nodes[step.dst] = targets
    return found


def _none(frame: Frame, step: Expand) -> Frame:
    found = frame.slice(0, 0)
    found.nodes[step.dst] = np.empty(0, np.int32)
    if step.edge_variable is not None:
        found.edges[step.edge_variable] = np.empty(0, np.int64)
    return found


def _counted(frame: Frame, counts: Ints, *, weighted: bool) -> Frame:
    """Nobody asks which nodes were reached: only whether, or how many."""
    there = counts > 0
    kept = frame.where(there)
    if weighted:
        weights = times(kept.counts(), counts[there])
        return Frame(kept.rows, kept.nodes, kept.edges, kept.values, weights)
    return kept


def _reached(run: Run, walk: Walk, starts: Numbers) -> tuple[Ints, Numbers]:
    if walk.max_hops == 1:
        return walk.neighbours(starts)
    unique, inverse = np.unique(starts, return_inverse=True)
    found = walk.all_reached(unique.astype(np.int32))
    if len(unique) == len(starts) and bool((unique == starts).all()):
        return found.owners, found.targets
    counts = np.bincount(found.owners, minlength=len(unique))
    begins = np.cumsum(counts) - counts
    run.guard.hold(int(counts[inverse].sum()) * 20)
    owners, places = spread(begins[inverse], counts[inverse])
    return owners, found.targets[places]


def _selected(run: Run, step: Expand, walk: Walk, targets: Numbers) -> Mask | None:
    """Which targets are there and pass the filters of the step; none when all do."""
    nodes = run.nodes(step.dst_type)
    assert nodes is not None
    is_complete = walk.is_cached and walk.source.is_complete()
    if not len(targets) or (not step.dst_filters and is_complete):
        return None

    def passing(unique: Numbers) -> Mask:
        frame = Frame(len(unique), {step.dst: unique})
        if not is_complete:
            frame = frame.where(nodes.present(unique))
        for condition in step.dst_filters:
            run.guard.check()
            frame = frame.where(keeps(run, frame, condition))
        passed = np.zeros(int(unique[-1]) + 1, bool)
        passed[frame.nodes[step.dst]] = True
        return passed[unique]

    return run.answers(step).of(targets, passing)


def _expand_edges(run: Run, step: Expand, frame: Frame, walk: Walk, starts: Numbers) -> Frame:
    """One row for each edge."""
    assert step.edge_variable is not None
    owners, targets, rows = walk.edges()(starts)
    run.guard.hold(len(owners) * (frame.width + 16))
    run.guard.check()
    kept = _selected(run, step, walk, targets)
    if kept is not None:
        owners, targets, rows = owners[kept], targets[kept], rows[kept]
    found = frame.take(owners)
    found.nodes[step.dst] = targets
    found.edges[step.edge_variable] = rows
    for condition in step.edge_filters:
        found = found.where(keeps(run, found, condition))
    return found


# -- between two that are bound ---------------------------------------------------------------


def connect(run: Run, step: Connect, frame: Frame) -> Frame:
    """Keep the rows whose two nodes are joined."""
    source = run.edges(step.edge_type)
    if source is None or not frame.rows:
        return _none_joined(frame, step)
    src, dst = run.numbers(frame, step.src), run.numbers(frame, step.dst)
    walk = Walk(run, step, source, len(distinct(src)) if len(src) < 4096 else len(src))
    if walk.is_empty:
        return _none_joined(frame, step)
    if step.edge_variable is not None:
        owners, targets, rows = walk.edges()(src)
        kept = targets == dst[owners]
        found = frame.take(owners[kept])
        found.edges[step.edge_variable] = rows[kept]
        for condition in step.edge_filters:
            found = found.where(keeps(run, found, condition))
        return found
    if walk.max_hops == 1 and walk.is_cached:
        adjacency = source.index().adjacency(walk.direction)
        return frame.where(adjacency.contains(src, dst))
    return frame.where(_joined(run, walk, src, dst))


def _none_joined(frame: Frame, step: Connect) -> Frame:
    found = frame.slice(0, 0)
    if step.edge_variable is not None:
        found.edges[step.edge_variable] = np.empty(0, np.int64)
    return found


def _joined(run: Run, walk: Walk, src: Numbers, dst: Numbers) -> Mask:
    """Walk from every different source, and look for the pairs among what is reached."""
    unique, inverse = np.unique(src, return_inverse=True)
    starts = unique.astype(np.int32)
    owners, targets = walk.neighbours(starts) if walk.max_hops == 1 else walk.all_reached(starts)
    pairs = (owners << 32) | targets
    pairs.sort()
    return among((inverse.astype(np.int64) << 32) | dst, pairs)
