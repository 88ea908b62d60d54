"""Breadth-first walks over an adjacency, for one start or many at once.

From each start every node is reached at most once, at its smallest number of hops. The start
itself counts as reached; only an edge from it to itself lets it be found, at the first hop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from omnigraph.topology.sets import among, distinct

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Step = Callable[[npt.NDArray[np.integer]], tuple[Ints, Numbers]]
"""The neighbours of numbers, each with the place of its source in the list."""

# Up to so many flags a walk keeps one for each (start, node); beyond, it keeps sorted lists.
_MOST_FLAGS = 64_000_000
_MOST_STARTS = 4_096


class Reached(NamedTuple):
    """Pairs: the place of a start, and a node that is reached from it."""

    owners: Ints
    targets: Numbers


def reach(
    step: Step,
    starts: Numbers,
    min_hops: int,
    max_hops: int,
    nodes: int | None,
    check: Callable[[], None],
) -> Reached:
    """What different starts reach within some hops; owners come in order.

    ``nodes`` is one more than the greatest number, none when a step may meet new ones; ``check``
    runs before each hop. The starts go in blocks, so that a walk from many can be ended.
    """
    block = len(starts) if nodes is None else max(_MOST_FLAGS // max(nodes, 1), 1)
    block = min(max(block, 1), _MOST_STARTS)
    owners: list[Ints] = []
    targets: list[Numbers] = []
    for first in range(0, len(starts), block):
        some = starts[first : first + block]
        if nodes is not None and len(some) * nodes <= _MOST_FLAGS:
            found = _flagged(step, some, min_hops, max_hops, nodes, check)
        else:
            found = _listed(step, some, min_hops, max_hops, check)
        owners.append(found.owners + first)
        targets.append(found.targets)
    if not owners:
        return Reached(np.empty(0, np.int64), np.empty(0, np.int32))
    return Reached(np.concatenate(owners), np.concatenate(targets))


def _flagged(
    step: Step, starts: Numbers, min_hops: int, max_hops: int, nodes: int, check: Callable[[], None]
) -> Reached:
    visited = np.zeros(len(starts) * nodes, bool)
    origins = np.arange(len(starts), dtype=np.int64)
    visited[origins * nodes + starts] = True
    frontier: Ints = origins * nodes + starts
    found: list[Ints] = []
    for hop in range(1, max_hops + 1):
        check()
        owners, targets = step((frontier % nodes).astype(np.int32))
        keys = (frontier // nodes)[owners] * nodes + targets
        if hop == 1 and min_hops <= 1:
            found.append(_loops(keys, origins * nodes + starts))
        frontier = _fresh(keys, visited)
        if not len(frontier):
            break
        if hop >= min_hops:
            found.append(frontier)
    keys = _sorted(found)
    return Reached(keys // nodes, (keys % nodes).astype(np.int32))


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


def _listed(
    step: Step, starts: Numbers, min_hops: int, max_hops: int, check: Callable[[], None]
) -> Reached:
    origins = np.arange(len(starts), dtype=np.int64)
    own = (origins << 32) | starts
    visited = own
    frontier = own
    found: list[Ints] = []
    for hop in range(1, max_hops + 1):
        check()
        owners, targets = step((frontier & 0xFFFFFFFF).astype(np.int32))
        keys = ((frontier >> 32)[owners] << 32) | targets
        if hop == 1 and min_hops <= 1:
            found.append(_loops(keys, own))
        fresh = distinct(keys)
        frontier = fresh[~among(fresh, visited)]
        if not len(frontier):
            break
        visited = np.sort(np.concatenate([visited, frontier]), kind="stable")
        if hop >= min_hops:
            found.append(frontier)
    keys = _sorted(found)
    return Reached(keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32))


def _loops(keys: Ints, own: Ints) -> Ints:
    """The starts with an edge to themselves."""
    return own[among(own, distinct(keys))]


def _sorted(found: list[Ints]) -> Ints:
    if not found:
        return np.empty(0, np.int64)
    keys = np.concatenate(found)
    keys.sort(kind="stable")
    return keys
