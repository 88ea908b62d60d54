"""Adjacency lists in CSR form: sorted targets, and the offset of each source's first target.

The targets of one source are distinct: parallel edges are one neighbour. ``EdgeAdjacency`` keeps
every edge, for queries that bind the edge itself.
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
# With at most this many neighbours at any source, all of them are compared.
_FEW_NEIGHBOURS = 4
# Up to this many pairs of nodes, a bitmap with one bit for each pair is used.
_MOST_BITS = 1 << 28


def spread(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Expand ranges given by start and length: the owner of each index, and the index."""
    total = int(counts.sum())
    owners = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    indices = np.arange(total) + np.repeat(starts - first, counts)
    return owners, indices


@dataclass(frozen=True, slots=True)
class Adjacency:
    """The neighbours of every number below ``sources``; any other has none."""

    offsets: Ints
    targets: Numbers
    _derived: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

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
        """A copy with more edges: the new ones are sorted and merged into the old ones."""
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
        derived = list(self._derived.values())
        made = sum(array.nbytes for array in derived if isinstance(array, np.ndarray))
        return self.offsets.nbytes + self.targets.nbytes + made

    def degrees(self, sources: npt.NDArray[np.integer]) -> Ints:
        """How many neighbours each source has."""
        clipped = np.minimum(sources, len(self.offsets) - 2)
        counts: Ints = self.offsets[clipped + 1] - self.offsets[clipped]
        return counts

    def neighbours(self, sources: npt.NDArray[np.integer]) -> tuple[Ints, Numbers]:
        """Every neighbour of each source, with the index of its source in the list."""
        clipped = np.minimum(sources, len(self.offsets) - 2)
        starts, ends = self.offsets[clipped], self.offsets[clipped + 1]
        if len(starts) and bool((starts[1:] == ends[:-1]).all()):
            # Sources that follow each other, such as all of them: so do their neighbours.
            owners = np.repeat(np.arange(len(starts)), ends - starts)
            return owners, self.targets[starts[0] : ends[-1]]
        owners, indices = spread(starts, ends - starts)
        return owners, self.targets[indices]

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
        joined: npt.NDArray[np.bool_] = slots[0].take(src, mode="clip") == dst
        for slot in slots[1:]:
            joined |= slot.take(src, mode="clip") == dst
        return joined

    def _slots(self) -> npt.NDArray[np.int32]:
        """The first, second, ... neighbour of each source, -1 where there is none."""
        counts = np.diff(self.offsets)
        owners, indices = spread(self.offsets[:-1], counts)
        slots = np.full((int(counts.max()), len(counts)), -1, np.int32)
        slots[indices - self.offsets[owners], owners] = self.targets
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
        """Look pairs up in a bitmap of all possible pairs."""

        def make() -> npt.NDArray[np.uint8]:
            pairs = self._pairs()
            positions = (pairs >> 32) * nodes + (pairs & _LOW)
            words, values = positions >> 3, (1 << (positions & 7)).astype(np.uint8)
            first = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))
            bits = np.zeros(sources * nodes // 8 + 1, np.uint8)
            bits[words[first]] = np.add.reduceat(values, first)
            return bits

        bits = self._once("bits", make)
        inside = (src < sources) & (dst < nodes)
        positions = np.where(inside, src.astype(np.int64) * nodes + dst, 0)
        is_set: npt.NDArray[np.bool_] = (
            bits[positions >> 3] >> (positions & 7).astype(np.uint8)
        ) & 1 == 1
        return is_set & inside

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """A structure that is computed on first use."""
        value = self._derived.get(name)
        if value is None:
            value = self._derived[name] = make()
        return value


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
        clipped = np.minimum(sources, len(self.offsets) - 2)
        counts: Ints = self.offsets[clipped + 1] - self.offsets[clipped]
        return counts

    def edges(self, sources: npt.NDArray[np.integer]) -> tuple[Ints, Numbers, Ints]:
        """Every edge of each source: the index of the source, the target, the row."""
        clipped = np.minimum(sources, len(self.offsets) - 2)
        starts = self.offsets[clipped]
        owners, indices = spread(starts, self.offsets[clipped + 1] - starts)
        return owners, self.targets[indices], self.rows[indices]


def _offsets(sources: Numbers) -> Ints:
    """Where the range of each source begins; the last entry serves all numbers without edges."""
    count = int(sources[-1]) + 1 if len(sources) else 0
    counts = np.bincount(sources, minlength=count) if len(sources) else np.zeros(0, np.int64)
    offsets = np.zeros(count + 2, np.int64)
    np.cumsum(counts, out=offsets[1 : count + 1])
    offsets[count + 1] = offsets[count]
    return offsets
