"""One hop from many nodes at once, computed at its targets.

``expand`` pushes: it writes one row per edge, and equal rows are merged afterwards. If only the
targets matter and how often each is reached, and the sources have a large part of all edges, it is
cheaper to pull: every target sums the weights of the nodes that lead to it, in one pass over all
edges and without a row for each. The pass hardly holds the interpreter lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from omnigraph.plan.nodes import Expand
from omnigraph.read.expand import selected
from omnigraph.read.frame import Frame, Ints, sums
from omnigraph.topology.sets import Integers

if TYPE_CHECKING:
    from omnigraph.plan.nodes import PlanStep
    from omnigraph.read.run import Run
    from omnigraph.topology.adjacency import Adjacency

# The cost of pushing along an edge, in edges that are pulled.
_PUSH_COST = 2
# Fewer edges than this are pushed in any case.
_FEW_EDGES = 32_768
# The bytes of a node: its weight, its sum, its number and its weight in the result.
_NODE_BYTES = 32


def pull(
    run: Run, step: PlanStep, frame: Frame, live: frozenset[str], *, weighted: bool
) -> Frame | None:
    """Each node that a hop reaches once, with its weight; ``None`` to push."""
    if not isinstance(step, Expand) or not _is_merged(run, step, frame, live):
        return None
    source = run.visible_edges(step.edge_type, step.through)
    if source is None or source.rows < _FEW_EDGES or source.hops(step) != 1 or step.min_hops > 1:
        return None
    index = source.cached_index()
    if index is None or run.context.traversal.mode is not None:
        return None
    # An adjacency is not built only to save the rows of one hop.
    sources = index.reverse(str(step.direction))
    if sources is None:
        return None
    starts, along = run.numbers(frame, step.src), index.adjacency(str(step.direction))
    pulled = len(sources.targets)
    if len(starts) * along.most * _PUSH_COST < pulled:
        return None
    if int(along.degrees(starts).sum()) * _PUSH_COST < pulled:
        return None
    run.guard.hold((len(sources.offsets) + sources.reach) * _NODE_BYTES)
    has_weights = weighted and frame.weights is not None
    given = sums(starts, frame.counts(), 0) if has_weights else np.bincount(starts)
    reached = _summed(run, sources, given)
    if reached is None:
        return None
    run.note({"pulled": True})
    # Far faster on flags than on numbers.
    kept = np.flatnonzero(reached != 0)
    targets = kept.astype(np.int32)
    is_complete = source.has_all_ends or source.is_complete()
    passing = selected(run, step, is_complete, targets)
    if passing is not None:
        targets, kept = targets.take(passing), kept.take(passing)
    return Frame(
        len(targets), {step.dst: targets}, weights=reached.take(kept) if weighted else None
    )


def _is_merged(run: Run, step: Expand, frame: Frame, live: frozenset[str]) -> bool:
    """Whether the rows after a step have nothing but its target, and all are needed at once."""
    return (
        step.dst in live
        and step.edge_variable is None
        and not run.info.streams
        and frame.variables.isdisjoint(live)
    )


def _summed(run: Run, sources: Adjacency, weights: Ints) -> Ints | None:
    """For each node the sum of the weights of its sources; ``None`` if it may exceed 64 bits."""
    most = int(weights.max(initial=0)) * sources.most
    if most > 2**62:
        return None
    # Half as many bytes take half of the time.
    sum_type = np.int32 if most < 2**31 else np.int64
    padded: Integers = np.zeros(max(sources.reach, len(weights)), sum_type)
    padded[: len(weights)] = weights
    result = np.empty(len(sources.offsets) - 1, np.int64)
    for begin, end in run.guard.between(sources.pieces()):
        result[begin:end] = sources.sums_of(padded, begin, end)
    return result
