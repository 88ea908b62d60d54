"""Breadth-first walks over an adjacency, for one start or many at once.

From each start every node is reached at most once, at its smallest number of hops. The start
itself counts as reached; only an edge from it to itself lets it be found, at the first hop.
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
"""The neighbours of numbers, each with the place of its source in the list, in blocks."""

# Up to so many flags a walk keeps one for each (start, node); beyond, it keeps sorted lists.
_MOST_FLAGS = 32_000_000
_MOST_STARTS = 4_096
# What a pair takes while it is made and joined with others.
_PAIR_BYTES = 24


class Reached(NamedTuple):
    """Pairs: the place of a start, and a node that is reached from it."""

    owners: Ints
    targets: Numbers


def most_starts(nodes: int | None) -> int:
    """From how many starts a walk goes at once, if there are so many nodes."""
    return min(max(_MOST_FLAGS // max(nodes or 1, 1), 1), _MOST_STARTS)


def reach(
    step: Step,
    starts: Numbers,
    min_hops: int,
    max_hops: int,
    nodes: int | None,
    guard: ResourceGuard,
) -> Reached:
    """What different starts reach within some hops; owners come in order.

    ``nodes`` is one more than the greatest number, none when a step may meet new ones. The starts
    go in blocks, so that a walk from many can be ended.
    """
    block = most_starts(nodes)
    owners: list[Ints] = []
    targets: list[Numbers] = []
    count = 0
    for first in guard.between(range(0, len(starts), block)):
        some = starts[first : first + block]
        if nodes is not None and len(some) * nodes <= _MOST_FLAGS:
            found = _flagged(step, some, min_hops, max_hops, nodes)
        else:
            found = _listed(step, some, min_hops, max_hops)
        count += len(found.owners)
        guard.hold(count * _PAIR_BYTES)
        owners.append(found.owners + first)
        targets.append(found.targets)
    if not owners:
        return Reached(np.empty(0, np.int64), np.empty(0, np.int32))
    return Reached(np.concatenate(owners), np.concatenate(targets))


def _flagged(step: Step, starts: Numbers, min_hops: int, max_hops: int, nodes: int) -> Reached:
    visited = np.zeros(len(starts) * nodes, bool)
    origins = np.arange(len(starts), dtype=np.int64)
    visited[origins * nodes + starts] = True
    frontier: Ints = origins * nodes + starts
    found: list[Ints] = []
    for hop in range(1, max_hops + 1):
        first_keys = frontier - frontier % nodes
        fresh = [np.empty(0, np.int64)]
        for owners, targets in step((frontier % nodes).astype(np.int32)):
            keys = first_keys[owners] + targets
            if hop == 1 and min_hops <= 1:
                found.append(_loops(keys, origins * nodes + starts))
            fresh.append(_fresh(keys, visited))
        frontier = _joined(fresh)
        if not len(frontier):
            break
        if hop >= min_hops:
            found.append(frontier)
    keys = _sorted(found, len(visited))
    owners = keys // nodes
    return Reached(owners, (keys - owners * nodes).astype(np.int32))


def _fresh(keys: Ints, visited: npt.NDArray[np.bool_]) -> Ints:
    """The different keys that were not visited yet; they are from now on."""
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
    found: list[Ints] = []
    for hop in range(1, max_hops + 1):
        places = frontier >> 32 << 32
        fresh = [np.empty(0, np.int64)]
        for owners, targets in step((frontier & 0xFFFFFFFF).astype(np.int32)):
            keys = places[owners] | targets
            if hop == 1 and min_hops <= 1:
                found.append(_loops(keys, own))
            different = distinct(keys)
            fresh.append(different[~among(different, visited)])
        frontier = fresh[1] if len(fresh) == 2 else distinct(_joined(fresh))
        if not len(frontier):
            break
        visited = np.sort(np.concatenate([visited, frontier]), kind="stable")
        if hop >= min_hops:
            found.append(frontier)
    keys = _sorted(found, 1 << 62)
    return Reached(keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32))


def _loops(keys: Ints, own: Ints) -> Ints:
    """The starts with an edge to themselves."""
    return own[among(own, distinct(keys))]


def _joined(parts: list[Ints]) -> Ints:
    """Some parts as one; the first of them is empty."""
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def _sorted(found: list[Ints], most: int) -> Ints:
    """Different keys below a number in order."""
    if sum(map(len, found)) * 16 >= most:
        flags = np.zeros(most, bool)
        for keys in found:
            flags[keys] = True
        return np.flatnonzero(flags)
    keys = np.concatenate([np.empty(0, np.int64), *found])
    keys.sort(kind="stable")
    return keys
