"""Neighbours by number: sorted targets, and for each source where its own begin.

The targets of one source are different from each other: parallel edges are one neighbour. What
needs the edges themselves uses ``EdgeAdjacency``, which keeps every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.topology.ids import Numbers
from omnigraph.topology.sets import among, without_repeats

Ints = npt.NDArray[np.int64]
_LOW = np.int64(0xFFFFFFFF)
# With no more neighbours than this at any source, each of them is looked at.
_FEW_NEIGHBOURS = 4
# Up to so many pairs of nodes, one bit is kept for each.
_MOST_BITS = 1 << 28


def spread(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """For ranges given by start and length: whose range each place belongs to, and the place."""
    total = int(counts.sum())
    owners = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    places = np.arange(total) + np.repeat(starts - first, counts)
    return owners, places


@dataclass(frozen=True, slots=True)
class Adjacency:
    """The neighbours of every number below ``sources``; any other has none."""

    offsets: Ints
    targets: Numbers
    _kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, src: Numbers, dst: Numbers) -> Adjacency:
        """From the two ends of every edge."""
        pairs = (src.astype(np.int64) << 32) | dst
        pairs.sort()
        return cls._of_sorted(pairs)

    @classmethod
    def _of_sorted(cls, pairs: Ints) -> Adjacency:
        pairs = without_repeats(pairs)
        sources = (pairs >> 32).astype(np.int32)
        return cls(_offsets(sources), (pairs & _LOW).astype(np.int32))

    def with_edges(self, src: Numbers, dst: Numbers) -> Adjacency:
        """The same with more edges: the new ones are sorted, the old ones only merged."""
        new = (src.astype(np.int64) << 32) | dst
        new.sort()
        both = np.concatenate([self._pairs(), new])
        # This sort finds the two runs and merges them.
        both.sort(kind="stable")
        return self._of_sorted(both)

    def _pairs(self) -> Ints:
        counts = np.diff(self.offsets)
        return (np.repeat(np.arange(len(counts)), counts) << 32) | self.targets

    @property
    def nbytes(self) -> int:
        # A list of them: a query in another thread may add one meanwhile.
        kept = list(self._kept.values())
        made = sum(each.nbytes for each in kept if isinstance(each, np.ndarray))
        return self.offsets.nbytes + self.targets.nbytes + made

    def degrees(self, sources: npt.NDArray[np.integer]) -> Ints:
        """How many neighbours each source has."""
        known = np.minimum(sources, len(self.offsets) - 2)
        counts: Ints = self.offsets[known + 1] - self.offsets[known]
        return counts

    def neighbours(self, sources: npt.NDArray[np.integer]) -> tuple[Ints, Numbers]:
        """Every neighbour of each source, with the place of its source in the list."""
        known = np.minimum(sources, len(self.offsets) - 2)
        starts, ends = self.offsets[known], self.offsets[known + 1]
        if len(starts) and bool((starts[1:] == ends[:-1]).all()):
            # Sources that follow each other, such as all of them: so do their neighbours.
            owners = np.repeat(np.arange(len(starts)), ends - starts)
            return owners, self.targets[starts[0] : ends[-1]]
        owners, places = spread(starts, ends - starts)
        return owners, self.targets[places]

    def contains(
        self, src: npt.NDArray[np.integer], dst: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.bool_]:
        """For each pair, whether it is joined."""
        if not len(self.targets):
            return np.zeros(len(src), bool)
        if self._once("most", lambda: int(np.diff(self.offsets).max())) <= _FEW_NEIGHBOURS:
            return self._among_few(src, dst)
        sources, nodes = len(self.offsets) - 2, int(self._once("nodes", self._nodes))
        if sources * nodes <= _MOST_BITS:
            return self._by_bits(src, dst, sources, nodes)
        keys = self._once("keys", self._pairs)
        return among((np.asarray(src, np.int64) << 32) | dst, keys)

    def _among_few(
        self, src: npt.NDArray[np.integer], dst: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.bool_]:
        slots = self._once("slots", self._slots)
        found: npt.NDArray[np.bool_] = slots[0].take(src, mode="clip") == dst
        for slot in slots[1:]:
            found |= slot.take(src, mode="clip") == dst
        return found

    def _slots(self) -> npt.NDArray[np.int32]:
        """The first, second, ... neighbour of each source, -1 where there is none."""
        counts = np.diff(self.offsets)
        owners, places = spread(self.offsets[:-1], counts)
        slots = np.full((int(counts.max()), len(counts)), -1, np.int32)
        slots[places - self.offsets[owners], owners] = self.targets
        return slots

    def _nodes(self) -> int:
        return int(self.targets.max()) + 1

    def _by_bits(
        self,
        src: npt.NDArray[np.integer],
        dst: npt.NDArray[np.integer],
        sources: int,
        nodes: int,
    ) -> npt.NDArray[np.bool_]:
        """One bit for each pair there could be."""

        def make() -> npt.NDArray[np.uint8]:
            pairs = self._pairs()
            places = (pairs >> 32) * nodes + (pairs & _LOW)
            homes, values = places >> 3, (1 << (places & 7)).astype(np.uint8)
            first = np.flatnonzero(np.concatenate([[True], homes[1:] != homes[:-1]]))
            bits = np.zeros(sources * nodes // 8 + 1, np.uint8)
            bits[homes[first]] = np.add.reduceat(values, first)
            return bits

        bits = self._once("bits", make)
        inside = (src < sources) & (dst < nodes)
        places = np.where(inside, src.astype(np.int64) * nodes + dst, 0)
        found: npt.NDArray[np.bool_] = (bits[places >> 3] >> (places & 7).astype(np.uint8)) & 1 == 1
        return found & inside

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """Something that is computed when it is first needed."""
        found = self._kept.get(name)
        if found is None:
            found = self._kept[name] = make()
        return found


@dataclass(frozen=True, slots=True)
class EdgeAdjacency:
    """Every edge of every source: its target, and its row in the edge table."""

    offsets: Ints
    targets: Numbers
    rows: Ints

    @classmethod
    def of(cls, src: Numbers, dst: Numbers, rows: Ints) -> EdgeAdjacency:
        order = np.lexsort((rows, dst, src))
        sources = src[order]
        return cls(_offsets(sources), dst[order], rows[order])

    @property
    def nbytes(self) -> int:
        return self.offsets.nbytes + self.targets.nbytes + self.rows.nbytes

    def degrees(self, sources: npt.NDArray[np.integer]) -> Ints:
        """How many edges each source has."""
        known = np.minimum(sources, len(self.offsets) - 2)
        counts: Ints = self.offsets[known + 1] - self.offsets[known]
        return counts

    def edges(self, sources: npt.NDArray[np.integer]) -> tuple[Ints, Numbers, Ints]:
        """Every edge of each source: the place of the source, the target, the row."""
        known = np.minimum(sources, len(self.offsets) - 2)
        starts = self.offsets[known]
        owners, places = spread(starts, self.offsets[known + 1] - starts)
        return owners, self.targets[places], self.rows[places]


def _offsets(sources: Numbers) -> Ints:
    """Where the range of each source begins; the last number stands for all that have none."""
    count = int(sources[-1]) + 1 if len(sources) else 0
    counts = np.bincount(sources, minlength=count) if len(sources) else np.zeros(0, np.int64)
    offsets = np.zeros(count + 2, np.int64)
    np.cumsum(counts, out=offsets[1 : count + 1])
    offsets[count + 1] = offsets[count]
    return offsets
