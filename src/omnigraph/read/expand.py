"""Traversals along edges: to a new variable, or between two bound ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from omnigraph.plan.nodes import Connect, Expand, Intersect
from omnigraph.read import blocks
from omnigraph.read.frame import Frame, Ints, Mask, Numbers, times
from omnigraph.read.legs import LegTests, leads
from omnigraph.read.reach import Reached, Step, reach
from omnigraph.read.sources import EdgeSource, plain
from omnigraph.read.traversal_cost import TraversalMode
from omnigraph.read.values import keeps
from omnigraph.topology.adjacency import Adjacency, owners_of, spread
from omnigraph.topology.sets import among, distinct

if TYPE_CHECKING:
    from omnigraph.read.run import Run

# The bytes of a row under construction: its owner, its index and its target.
_ROW_BYTES = 24
# Distinct starts are counted exactly only below this number.
_FEW_STARTS = 4_096

Sources = npt.NDArray[np.integer]


class Traversal:
    """One traversal: the edge type, the direction, and whether by index or by adjacency."""

    def __init__(self, run: Run, step: Expand | Connect, source: EdgeSource, starts: int) -> None:
        self.source = source
        self.direction = str(step.direction)
        self.min_hops = step.min_hops
        self.max_hops = source.hops(step)
        self.is_empty = not source.rows or self.min_hops > self.max_hops
        self._guard = run.guard
        self._near = source.near(step.direction)
        # What is in memory already is always cheaper.
        self.is_cached = run.context.traversal.mode is None and source.cached_index() is not None
        """Whether the traversal uses an adjacency in memory."""
        if run.profiled or not self.is_cached:
            choice = source.choice(run.context.traversal, step, starts)
            self.is_cached = choice.mode is TraversalMode.CSR
            if run.profiled:
                run.note(choice.to_json())

    def adjacency(self) -> Adjacency:
        return self.source.index().adjacency(self.direction)

    def neighbours(self, sources: Sources) -> tuple[Ints, Numbers]:
        """The distinct neighbours of each source, with the index of their source."""
        adjacency, sources, counts = self._hop(sources)
        return adjacency.neighbours(sources, counts)

    def targets(self, sources: Sources) -> tuple[Numbers, Ints]:
        """The distinct neighbours of each source, and how many each source has."""
        adjacency, sources, counts = self._hop(sources)
        return adjacency.targets_of(sources, counts), counts

    def _hop(self, sources: Sources) -> tuple[Adjacency, Sources, Ints]:
        """The adjacency of one hop, the sources by its numbers, and their degrees."""
        if self.is_cached:
            adjacency = self.adjacency()
        else:
            unique, sources = np.unique(sources, return_inverse=True)
            adjacency = plain(self.source.look_up(self.direction, unique.astype(np.int32)))
        # The number of neighbours is known before they are materialized.
        counts = adjacency.degrees(sources)
        count = counts[0] if len(counts) == 1 else counts.sum()
        self._guard.hold(int(count) * _ROW_BYTES)
        return adjacency, sources, counts

    def edges(self, sources: Sources) -> tuple[Ints, Numbers, Ints]:
        """Every edge of each source: the index of the source, the target, the row of the edge."""
        if self.is_cached:
            adjacency = self.source.index().edge_adjacency(self.direction)
        else:
            unique, sources = np.unique(sources, return_inverse=True)
            adjacency = self.source.look_up(self.direction, unique.astype(np.int32))
        self._guard.hold(int(adjacency.degrees(sources).sum()) * (_ROW_BYTES + 8))
        return adjacency.edges(sources)

    def reachable(self, starts: Numbers) -> tuple[Ints, Numbers]:
        """The nodes reached from each start within the hops, with the index of their start."""
        if self.max_hops == 1:
            return self.neighbours(starts)
        unique, inverse = np.unique(starts, return_inverse=True)
        pairs = self.reached_once(unique.astype(np.int32))
        if len(unique) == len(starts) and bool((unique == starts).all()):
            return pairs.owners, pairs.targets
        counts = np.bincount(pairs.owners, minlength=len(unique))
        begins = np.cumsum(counts) - counts
        self._guard.hold(int(counts[inverse].sum()) * 20)
        owners, indices = spread(begins[inverse], counts[inverse])
        return owners, pairs.targets[indices]

    def reached_once(self, starts: Numbers) -> Reached:
        """The nodes reached from distinct starts by several hops."""
        if self.is_cached:
            hop, nodes = self._hop_in_blocks(), len(self._near.ids)
            return reach(hop, starts, self.min_hops, self.max_hops, nodes, self._guard)
        # An index may return new ids, so the number of nodes is unknown.
        return reach(
            lambda sources: [self.neighbours(sources)],
            starts,
            self.min_hops,
            self.max_hops,
            None,
            self._guard,
        )

    def _hop_in_blocks(self) -> Step:
        adjacency = self.adjacency()

        def hop(sources: Sources) -> Iterator[tuple[Ints, Numbers]]:
            for start, end, count in self._guard.between(blocks.cuts(adjacency.degrees(sources))):
                self._guard.hold(count * _ROW_BYTES)
                owners, targets = adjacency.neighbours(sources[start:end])
                yield (owners + start if start else owners), targets

        return hop

    @property
    def is_complete(self) -> bool:
        """Whether it is known that every target exists."""
        return self.source.has_all_ends or (self.is_cached and self.source.is_complete())

    def degrees(self, sources: Numbers) -> Ints | None:
        """The number of neighbours, if it is known without materializing them."""
        if not self.is_cached or self.max_hops > 1 or not self.source.is_complete():
            return None
        return self.adjacency().degrees(sources)


def _traversal(run: Run, step: Expand | Connect, frame: Frame) -> tuple[Traversal, Numbers] | None:
    """The traversal of a step from the rows of a frame; ``None`` if nothing can be reached."""
    source = run.visible_edges(step.edge_type, step.through)
    if source is None or not frame.rows:
        return None
    starts = run.numbers(frame, step.src)
    count = len(starts)
    # With an adjacency in memory the number of starts is only reported.
    if 1 < count < _FEW_STARTS and (run.profiled or source.cached_index() is None):
        count = len(distinct(starts))
    traversal = Traversal(run, step, source, count)
    return None if traversal.is_empty else (traversal, starts)


def expand(run: Run, step: Expand, frame: Frame, live: frozenset[str], *, weighted: bool) -> Frame:
    """Replace each row by one row per node reached from its source."""
    begun = _traversal(run, step, frame)
    if begun is None:
        return _no_rows(frame, step, step.dst)
    traversal, starts = begun
    if step.edge_variable is not None:
        return _expand_edges(run, step, frame, traversal, starts)
    is_needed = step.dst in live
    if not is_needed and not step.dst_filters:
        degrees = traversal.degrees(starts)
        if degrees is not None:
            run.note({"counted": True})
            return counted(frame, degrees, weighted=weighted)
    before = frame.keeping(live) if is_needed else frame
    if is_needed and traversal.max_hops == 1 and not before.variables:
        return _only_targets(run, step, before, traversal, starts)
    owners, targets = traversal.reachable(starts)
    run.guard.check()
    kept = selected(run, step, traversal.is_complete, targets)
    if kept is not None:
        owners, targets = owners.take(kept), targets.take(kept)
    if not is_needed:
        return counted(frame, np.bincount(owners, minlength=frame.rows), weighted=weighted)
    run.guard.hold(len(owners) * (frame.width + 8))
    rows = before.take(owners)
    rows.nodes[step.dst] = targets
    return rows


def _only_targets(
    run: Run, step: Expand, frame: Frame, traversal: Traversal, starts: Numbers
) -> Frame:
    """One row per node reached by one hop, of rows that have nothing but a weight."""
    targets, counts = traversal.targets(starts)
    weights = None if frame.weights is None else np.repeat(frame.weights, counts)
    run.guard.check()
    kept = selected(run, step, traversal.is_complete, targets)
    if kept is not None:
        targets = targets.take(kept)
        weights = None if weights is None else weights.take(kept)
    run.guard.hold(len(targets) * 16)
    return Frame(len(targets), {step.dst: targets}, weights=weights)


def _no_rows(frame: Frame, step: Expand | Connect, dst: str | None = None) -> Frame:
    rows = frame.slice(0, 0)
    if dst is not None:
        rows.nodes[dst] = np.empty(0, np.int32)
    if step.edge_variable is not None:
        rows.edges[step.edge_variable] = np.empty(0, np.int64)
    return rows


def counted(frame: Frame, counts: Ints, *, weighted: bool) -> Frame:
    """Keep the rows that reach a node, or weight them by their count; the nodes are not needed."""
    reached = np.flatnonzero(counts > 0)
    kept = frame if len(reached) == frame.rows else frame.take(reached)
    if not weighted:
        return kept
    weights = times(kept.counts(), counts.take(reached))
    return Frame(kept.rows, kept.nodes, kept.edges, kept.values, weights)


def selected(
    run: Run, step: Expand | Intersect, is_complete: bool, targets: Numbers
) -> Ints | None:
    """The indices of targets that exist and pass the step's filters; ``None`` if all do."""
    if not len(targets) or (not step.dst_filters and is_complete):
        return None
    nodes = run.nodes(step.dst_type)
    assert nodes is not None

    def passing(numbers: Numbers) -> Mask:
        frame = Frame(len(numbers), {step.dst: numbers})
        passed = None if is_complete else nodes.present(numbers)
        for condition in step.dst_filters:
            run.guard.check()
            if passed is None:
                passed = keeps(run, frame, condition)
            else:
                kept = np.flatnonzero(passed)
                passed[kept] = keeps(run, frame.take(kept), condition)
        assert passed is not None
        return passed

    # Of a few targets the same ones are not looked for.
    is_few = len(targets) <= blocks.FEW_NODES
    return np.flatnonzero(passing(targets) if is_few else run.memo(step).lookup(targets, passing))


def _expand_edges(
    run: Run, step: Expand, frame: Frame, traversal: Traversal, starts: Numbers
) -> Frame:
    """Replace each row by one row per edge."""
    assert step.edge_variable is not None
    owners, targets, rows = traversal.edges(starts)
    run.guard.hold(len(owners) * (frame.width + 16))
    run.guard.check()
    kept = selected(run, step, traversal.is_complete, targets)
    if kept is not None:
        owners, targets, rows = owners.take(kept), targets.take(kept), rows.take(kept)
    result = frame.take(owners)
    result.nodes[step.dst] = targets
    result.edges[step.edge_variable] = rows
    for condition in step.edge_filters:
        result = result.where(keeps(run, result, condition))
    return result


# -- between two bound variables --------------------------------------------------------------


def connect(run: Run, step: Connect, frame: Frame) -> Frame:
    """Keep the rows whose two nodes are joined."""
    begun = _traversal(run, step, frame)
    if begun is None:
        return _no_rows(frame, step)
    traversal, src = begun
    dst = run.numbers(frame, step.dst)
    if step.edge_variable is not None:
        owners, targets, rows = traversal.edges(src)
        kept = np.flatnonzero(targets == dst.take(owners))
        result = frame.take(owners.take(kept))
        result.edges[step.edge_variable] = rows.take(kept)
        for condition in step.edge_filters:
            result = result.where(keeps(run, result, condition))
        return result
    if traversal.max_hops == 1 and traversal.is_cached:
        return frame.where(traversal.adjacency().contains(src, dst))
    # Traverse from every distinct source, and look the pairs up among those reached.
    unique, inverse = np.unique(src, return_inverse=True)
    starts = unique.astype(np.int32)
    if traversal.max_hops == 1:
        owners, targets = traversal.neighbours(starts)
    else:
        owners, targets = traversal.reached_once(starts)
    pairs = (owners << 32) | targets
    pairs.sort()
    return frame.where(among((inverse.astype(np.int64) << 32) | dst, pairs))


# -- from several bound variables -------------------------------------------------------------


def intersect(
    run: Run, step: Intersect, frame: Frame, live: frozenset[str], *, weighted: bool
) -> Frame:
    """Replace each row by one row per node that is a neighbour of all of its sources.

    The neighbours of one source are tested against the others; of which is decided row by row.
    """
    first, others = run.joins(step)
    steps: list[Expand | Connect] = [first, *others]
    joins = [_traversal(run, join, frame) for join in steps]
    begun = [join for join in joins if join is not None]
    if len(begun) < len(joins):
        return _no_rows(frame, first, step.dst)
    if not all(traversal.is_cached for traversal, _ in begun):
        rows = expand(run, first, frame, frozenset({*frame.variables, step.dst}), weighted=weighted)
        for join in others:
            rows = connect(run, join, rows)
        return rows
    legs = [LegTests(join.source, join.direction, starts) for join, starts in begun]
    lead, tested = run.take_leads(step, frame) or leads(legs)
    run.guard.hold(int(tested.sum()) * _ROW_BYTES)
    pieces: list[tuple[Ints, Numbers]] = []
    for number, leg in enumerate(legs):
        rows_led = np.flatnonzero(lead == number)
        if not len(rows_led):
            continue
        run.guard.check()
        against = [other for other in legs if other is not leg]
        led = None if len(rows_led) == frame.rows else rows_led
        pieces.append(_led(leg, against, tested, led))
    owners, targets = pieces[0]
    if len(pieces) > 1:
        owners = np.concatenate([piece[0] for piece in pieces])
        targets = np.concatenate([piece[1] for piece in pieces])
    is_complete = any(traversal.is_complete for traversal, _ in begun)
    kept_targets = selected(run, step, is_complete, targets)
    if kept_targets is not None:
        owners, targets = owners.take(kept_targets), targets.take(kept_targets)
    if step.dst not in live:
        return counted(frame, np.bincount(owners, minlength=frame.rows), weighted=weighted)
    run.guard.hold(len(owners) * (frame.width + 8))
    if len(pieces) > 1:
        # The order of the rows does not depend on which source led which of them.
        order = np.argsort(owners, kind="stable")
        owners, targets = owners.take(order), targets.take(order)
    result = frame.keeping(live).take(owners)
    result.nodes[step.dst] = targets
    return result


def _led(
    leg: LegTests, others: list[LegTests], tested: Ints, rows: Ints | None
) -> tuple[Ints, Numbers]:
    """The neighbours of one leg that all others join, with their rows, of some rows or of all.

    ``tested`` is how many neighbours the leading leg of each row has.
    """

    def starts_of(leg: LegTests) -> Numbers:
        return leg.starts if rows is None else leg.starts.take(rows)

    sources = starts_of(leg)
    counts = tested if rows is None else tested.take(rows)
    targets = leg.adjacency.targets_of(sources, counts)
    owners: Ints | None = None
    for other in others:
        # As a rule few neighbours pass the first test; only of those the row is looked up.
        starts = starts_of(other)
        starts = np.repeat(starts, counts) if owners is None else starts.take(owners)
        kept = np.flatnonzero(other.joins(starts, targets))
        targets = targets.take(kept)
        owners = owners_of(kept, counts) if owners is None else owners.take(kept)
    assert owners is not None
    return owners if rows is None else rows.take(owners), targets
