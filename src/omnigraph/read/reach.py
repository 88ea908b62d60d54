"""Multi-hop traversals: a breadth-first search from one start or many at once.

From each start every node is reached at most once, at its smallest number of hops. The start
itself counts as visited; only a self-loop reaches it again, at the first hop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from omnigraph.topology.sets import among, distinct

if TYPE_CHECKING:
    from omnigraph.read.limits import ResourceGuard

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Step = Callable[[npt.NDArray[np.integer]], Iterable[tuple[Ints, Numbers]]]
"""Returns the neighbours of nodes in blocks, each with the index of its source in the list."""

# Up to this many (start, node) pairs a search uses one flag per pair; beyond, sorted lists.
_MOST_FLAGS = 32_000_000
_MOST_STARTS = 4_096
# The bytes of a pair while it is produced and merged with others.
_PAIR_BYTES = 24


class Reached(NamedTuple):
    """Pairs: the index of a start, and a node reached from it."""

    owners: Ints
    targets: Numbers


def most_starts(nodes: int | None) -> int:
    """The maximum number of starts in one block, for a number of nodes."""
    return min(max(_MOST_FLAGS // max(nodes or 1, 1), 1), _MOST_STARTS)


def reach(
    step: Step,
    starts: Numbers,
    min_hops: int,
    max_hops: int,
    nodes: int | None,
    guard: ResourceGuard,
) -> Reached:
    """The nodes reached from distinct starts within ``min_hops`` to ``max_hops``, by start.

    ``nodes`` is one more than the greatest node number, or ``None`` if a step may return new
    numbers. The starts are searched in blocks, so that a query can be cancelled in between.
    """
    block = most_starts(nodes)
    owners: list[Ints] = []
    targets: list[Numbers] = []
    count = 0
    for first in guard.between(range(0, len(starts), block)):
        block_starts = starts[first : first + block]
        if nodes is not None and len(block_starts) * nodes <= _MOST_FLAGS:
            reached = _reach_by_flags(step, block_starts, min_hops, max_hops, nodes)
        else:
            reached = _reach_by_keys(step, block_starts, min_hops, max_hops)
        count += len(reached.owners)
        guard.hold(count * _PAIR_BYTES)
        owners.append(reached.owners + first)
        targets.append(reached.targets)
    if not owners:
        return Reached(np.empty(0, np.int64), np.empty(0, np.int32))
    return Reached(np.concatenate(owners), np.concatenate(targets))


def _reach_by_flags(
    step: Step, starts: Numbers, min_hops: int, max_hops: int, nodes: int
) -> Reached:
    """Search with one visited flag per (start, node) pair."""
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
    """Mark keys as visited; returns the distinct ones that were not visited before."""
    new = keys[~visited[keys]]
    if len(new) * 16 < len(visited):
        fresh = distinct(new)
        visited[fresh] = True
        return fresh
    flags = np.zeros(len(visited), bool)
    flags[new] = True
    visited |= flags
    return np.flatnonzero(flags)


def _reach_by_keys(step: Step, starts: Numbers, min_hops: int, max_hops: int) -> Reached:
    """Search with the visited pairs in a sorted array of 64-bit keys."""
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
            unique = distinct(keys)
            fresh.append(unique[~among(unique, visited)])
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
    """Concatenate arrays, of which the first is empty."""
    return arrays[1] if len(arrays) == 2 else np.concatenate(arrays)


def _sorted(reached: list[Ints], most: int) -> Ints:
    """Concatenate and sort keys that are distinct and below ``most``."""
    if sum(map(len, reached)) * 16 >= most:
        flags = np.zeros(most, bool)
        for keys in reached:
            flags[keys] = True
        return np.flatnonzero(flags)
    keys = np.concatenate([np.empty(0, np.int64), *reached])
    keys.sort(kind="stable")
    return keys
