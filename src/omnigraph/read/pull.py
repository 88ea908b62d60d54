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
from omnigraph.read.frame import Frame, Ints, Numbers, sums

if TYPE_CHECKING:
    from omnigraph.plan.nodes import PlanStep
    from omnigraph.read.run import Run
    from omnigraph.topology.adjacency import Adjacency

# The cost of pushing along an edge, and that of a node, in edges that are pulled.
_PUSH_COST, _NODE_COST = 2, 1
# Fewer edges than this are pushed in any case.
_FEW_EDGES = 32_768
# The bytes of a node: its weight, its sum, its number and its weight in the result.
_NODE_BYTES = 32


def pull(
    run: Run, step: PlanStep, frame: Frame, live: frozenset[str], *, weighted: bool
) -> Frame | None:
    """Each node that a hop reaches once, with its weight; ``None`` to push."""
    if not isinstance(step, Expand) or not _needs_only_targets(run, step, frame, live):
        return None
    source = run.visible_edges(step.edge_type, step.through)
    if source is None or source.rows < _FEW_EDGES or source.hops(step) != 1 or step.min_hops > 1:
        return None
    index = source.cached_index()
    if index is None or run.context.traversal.mode is not None:
        return None
    # An adjacency is not built only to save the rows of one hop.
    against = index.opposite(str(step.direction))
    if against is None:
        return None
    starts, along = run.numbers(frame, step.src), index.adjacency(str(step.direction))
    nodes = len(against.offsets) + against.reach
    cost = len(against.targets) + nodes * _NODE_COST
    # A bound that costs nothing comes first.
    if len(starts) * along.most * _PUSH_COST < cost:
        return None
    if int(along.degrees(starts).sum()) * _PUSH_COST < cost:
        return None
    if not run.guard.has_room(nodes * _NODE_BYTES):
        # Pushing divides the rows.
        return None
    run.guard.hold(nodes * _NODE_BYTES)
    reached = _reached(run, against, starts, frame.weights if weighted else None)
    if reached is None:
        return None
    run.note({"pulled": True})
    # Far faster on flags than on numbers.
    numbers = np.flatnonzero(reached != 0)
    targets = numbers.astype(np.int32)
    is_complete = source.has_all_ends or source.is_complete()
    passing = selected(run, step, is_complete, targets)
    if passing is not None:
        targets, numbers = targets.take(passing), numbers.take(passing)
    weights = reached.take(numbers) if weighted else None
    return Frame(len(targets), {step.dst: targets}, weights=weights)


def _needs_only_targets(run: Run, step: Expand, frame: Frame, live: frozenset[str]) -> bool:
    """Whether the rows after a step have nothing but its target, and all are needed at once."""
    return (
        step.dst in live
        and step.edge_variable is None
        and not run.info.streams
        and frame.variables.isdisjoint(live)
    )


def _reached(run: Run, against: Adjacency, starts: Numbers, weights: Ints | None) -> Ints | None:
    """How often each node is reached from the starts; ``None`` if it may exceed 64 bits."""
    inside = starts < against.reach
    if not inside.all():
        # Those without edges.
        starts = starts[inside]
        weights = None if weights is None else weights[inside]
    if weights is None:
        given = np.bincount(starts, minlength=against.reach)
    else:
        given = sums(starts, weights, against.reach)
    most = int(given.max(initial=0)) * against.most
    if most > 2**62:
        return None
    # Half as many bytes take half of the time.
    given = given.astype(np.int32 if most < 2**31 else np.int64, copy=False)
    result = np.empty(len(against.offsets) - 1, np.int64)
    for begin, end in run.guard.between(against.pieces()):
        result[begin:end] = against.sums_of(given, begin, end)
    return result
