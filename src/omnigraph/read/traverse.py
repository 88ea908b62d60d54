"""Traversals: the choice between index and adjacency, and the search of an adjacency.

Both give the same rows. The index of the edge table is queried hop by hop for the edges of a few
nodes; an adjacency costs one pass over the table, once, and is searched breadth first from one
start or many at once.

From each start every node is reached at most once, at its smallest number of hops. The start
itself counts as visited; only a self-loop reaches it again, at the first hop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from omnigraph.records import dataclass
from omnigraph.topology.sets import among, distinct

if TYPE_CHECKING:
    from omnigraph.read.limits import ResourceGuard

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Step = Callable[[npt.NDArray[np.integer]], Iterable[tuple[Ints, Numbers]]]
"""The neighbours of numbers, each with the index of its source in the list, in blocks."""

# Up to so many (start, node) pairs a traversal uses one flag for each; beyond, sorted lists.
_MOST_FLAGS = 32_000_000
_MOST_STARTS = 4_096
# The bytes of a pair while it is produced and merged with others.
_PAIR_BYTES = 24
# The cost of adding an edge to an adjacency, in edges read through the index.
_CSR_FACTOR = 1.5


class TraversalMode(StrEnum):
    INDEXED = "indexed"
    CSR = "csr"


@dataclass(frozen=True, slots=True)
class TraversalSettings:
    """The traversal mode of the caller or the environment, and its thresholds."""

    mode: TraversalMode | None = None
    max_hops: int = 6
    max_frontier: int = 1024


@dataclass(frozen=True, slots=True)
class TraversalChoice:
    """The chosen mode with the numbers behind it, for explain."""

    mode: TraversalMode
    reason: str
    frontier: int
    hops: int
    edges: int
    indexed_cost: float | None = None
    csr_cost: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "strategy": str(self.mode),
            "reason": self.reason,
            "frontier": self.frontier,
            "hops": self.hops,
            "edges": self.edges,
            "indexed_cost": self.indexed_cost,
            "csr_cost": self.csr_cost,
        }


def choose(
    settings: TraversalSettings,
    *,
    hops: int,
    frontier: int,
    edges: int,
    sources: int,
    is_covered: bool,
    is_built: bool,
) -> TraversalChoice:
    """The cheaper mode, CSR on a tie; hops of an edge between two types count as one.

    >>> choose(TraversalSettings(), hops=1, frontier=1, edges=2_000_000, sources=100_000,
    ...        is_covered=True, is_built=False).mode
    <TraversalMode.INDEXED: 'indexed'>
    """
    indexed: float | None = None
    csr: float | None = None
    if settings.mode is not None:
        mode, reason = settings.mode, "forced"
    elif hops > settings.max_hops:
        mode, reason = TraversalMode.CSR, "many hops"
    elif frontier > settings.max_frontier:
        mode, reason = TraversalMode.CSR, "many starts"
    else:
        per_hop = frontier * edges / max(sources, 1) if is_covered else edges
        indexed = hops * per_hop
        csr = 0.0 if is_built else _CSR_FACTOR * edges
        mode = TraversalMode.INDEXED if indexed < csr else TraversalMode.CSR
        reason = "built already" if mode is TraversalMode.CSR and is_built else "cheaper"
    return TraversalChoice(mode, reason, frontier, hops, edges, indexed, csr)


class Reached(NamedTuple):
    """Pairs: the index of a start, and a node that is reached from it."""

    owners: Ints
    targets: Numbers


def most_starts(nodes: int | None) -> int:
    """The number of starts of one block, by the number of nodes."""
    return min(max(_MOST_FLAGS // max(nodes or 1, 1), 1), _MOST_STARTS)


def reach(
    step: Step,
    starts: Numbers,
    min_hops: int,
    max_hops: int,
    nodes: int | None,
    guard: ResourceGuard,
) -> Reached:
    """The nodes that distinct starts reach within some hops, ordered by start.

    ``nodes`` is one more than the greatest number, none when a step may return new ones. The
    starts are traversed in blocks, so that a query can be cancelled in between.
    """
    block = most_starts(nodes)
    owners: list[Ints] = []
    targets: list[Numbers] = []
    count = 0
    for first in guard.between(range(0, len(starts), block)):
        block_starts = starts[first : first + block]
        if nodes is not None and len(block_starts) * nodes <= _MOST_FLAGS:
            reached = _flagged(step, block_starts, min_hops, max_hops, nodes)
        else:
            reached = _listed(step, block_starts, min_hops, max_hops)
        count += len(reached.owners)
        guard.hold(count * _PAIR_BYTES)
        owners.append(reached.owners + first)
        targets.append(reached.targets)
    if not owners:
        return Reached(np.empty(0, np.int64), np.empty(0, np.int32))
    return Reached(np.concatenate(owners), np.concatenate(targets))


def _flagged(step: Step, starts: Numbers, min_hops: int, max_hops: int, nodes: int) -> Reached:
    visited = np.zeros(len(starts) * nodes, bool)
    origins = np.arange(len(starts), dtype=np.int64)
    visited[origins * nodes + starts] = True
    frontier: Ints = origins * nodes + starts
    reached: list[Ints] = []
    for hop in range(1, max_hops + 1):
        first_keys = frontier - frontier % nodes
        fresh = [np.empty(0, np.int64)]
        for owners, targets in step((frontier % nodes).astype(np.int32)):
            keys = first_keys[owners] + targets
            if hop == 1 and min_hops <= 1:
                reached.append(_loops(keys, origins * nodes + starts))
            fresh.append(_fresh(keys, visited))
        frontier = _joined(fresh)
        if not len(frontier):
            break
        if hop >= min_hops:
            reached.append(frontier)
    keys = _sorted(reached, len(visited))
    owners = keys // nodes
    return Reached(owners, (keys - owners * nodes).astype(np.int32))


def _fresh(keys: Ints, visited: npt.NDArray[np.bool_]) -> Ints:
    """Mark keys as visited; returns the distinct ones that were not before."""
    new = keys[~visited[keys]]
    if len(new) * 16 < len(visited):
        fresh = distinct(new)
        visited[fresh] = True
        return fresh
    flags = np.zeros(len(visited), bool)
    flags[new] = True
    visited |= flags
    return np.flatnonzero(flags)


def _listed(step: Step, starts: Numbers, min_hops: int, max_hops: int) -> Reached:
    origins = np.arange(len(starts), dtype=np.int64)
    own = (origins << 32) | starts
    visited = own
    frontier = own
    reached: list[Ints] = []
    for hop in range(1, max_hops + 1):
        owner_bits = frontier >> 32 << 32
        fresh = [np.empty(0, np.int64)]
        for owners, targets in step((frontier & 0xFFFFFFFF).astype(np.int32)):
            keys = owner_bits[owners] | targets
            if hop == 1 and min_hops <= 1:
                reached.append(_loops(keys, own))
            different = distinct(keys)
            fresh.append(different[~among(different, visited)])
        frontier = fresh[1] if len(fresh) == 2 else distinct(_joined(fresh))
        if not len(frontier):
            break
        visited = np.sort(np.concatenate([visited, frontier]), kind="stable")
        if hop >= min_hops:
            reached.append(frontier)
    keys = _sorted(reached, 1 << 62)
    return Reached(keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32))


def _loops(keys: Ints, own: Ints) -> Ints:
    """The starts with an edge to themselves."""
    return own[among(own, distinct(keys))]


def _joined(arrays: list[Ints]) -> Ints:
    """Several arrays as one; the first of them is empty."""
    return arrays[1] if len(arrays) == 2 else np.concatenate(arrays)


def _sorted(reached: list[Ints], most: int) -> Ints:
    """Distinct keys below a number, sorted."""
    if sum(map(len, reached)) * 16 >= most:
        flags = np.zeros(most, bool)
        for keys in reached:
            flags[keys] = True
        return np.flatnonzero(flags)
    keys = np.concatenate([np.empty(0, np.int64), *reached])
    keys.sort(kind="stable")
    return keys
