"""Adjacency lists in CSR form: sorted targets, and the list offsets.

The targets of one source are distinct: parallel edges yield one neighbour. ``EdgeAdjacency`` keeps
every edge, for queries that bind the edge itself.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.records import dataclass
from omnigraph.topology.nodes import Numbers
from omnigraph.topology.sets import Integers, Ints, Mask, distinct, without_repeats

_LOW = np.int64(0xFFFFFFFF)
# With at most this many neighbours at any source, all of them are compared.
_FEW_NEIGHBOURS = 4
# Up to this many pairs of nodes, or if a filter is not much smaller, a bitmap with one bit per pair
# is used; but not beyond the second number.
_FEW_BITS, _MOST_BITS = 1 << 23, 1 << 28
# The neighbours of fewer sources than this are taken by their indices.
_FEW_LISTS = 256
# Fewer pairs than this are looked up without a filter.
_FEW_TESTS = 4_096
# The bits of a filter for each edge, at least, and the factors of its hashes: each of them lets one
# in eight false pairs pass.
_FILTER_BITS = 16
_FACTORS = ((0x9E3779B1, 0x85EBCA77), (0xC2B2AE3D, 0x27D4EB2F))
# So many edges are summed at a time.
_PIECE = 1 << 18


def spread(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Expand ranges given by start and length: the owner of each index, and the index.

    >>> [array.tolist() for array in spread(np.array([5, 8, 1]), np.array([2, 0, 1]))]
    [[0, 0, 2], [5, 6, 1]]
    """
    return np.repeat(np.arange(len(counts)), counts), _indices(starts, counts)


def _indices(starts: Ints, counts: Ints) -> Ints:
    """Every index of ranges given by start and length."""
    indices = np.repeat(starts - np.cumsum(counts) + counts, counts)
    indices += np.arange(len(indices))
    return indices


def owners_of(indices: Ints, counts: Ints) -> Ints:
    """The owners of some ascending indices of all items, of which each owner has a number.

    >>> owners_of(np.array([0, 2]), np.array([2, 0, 1])).tolist()
    [0, 2]
    """
    if len(indices) < len(counts):
        return np.cumsum(counts).searchsorted(indices, side="right")
    return np.repeat(np.arange(len(counts)), counts).take(indices)


def _are_consecutive(starts: Ints, counts: Ints) -> bool:
    """Whether each range begins where the one before it ends."""
    if not len(starts) or starts[-1] + counts[-1] - starts[0] != counts.sum():
        return False
    return bool((starts[1:] == (starts + counts)[:-1]).all())


def _hashes(
    src: Integers, dst: Integers, bits: int, factors: tuple[int, int]
) -> npt.NDArray[np.uint32]:
    """Hashes of pairs with so many bits, at most 32."""
    mixed = src.astype(np.uint32) * np.uint32(factors[0])
    mixed ^= dst.astype(np.uint32) * np.uint32(factors[1])
    return mixed >> np.uint32(max(32 - bits, 0))


def _are_set(bits: npt.NDArray[np.uint8], positions: Integers) -> Mask:
    """Whether the bits at some positions are set."""
    words = bits.take(positions >> 3)
    words >>= (positions & 7).astype(np.uint8)
    words &= 1
    is_set: Mask = words.view(bool)
    return is_set


@dataclass(frozen=True, slots=True)
class Adjacency:
    """The neighbours of every number below ``sources``; other numbers have none."""

    offsets: Ints
    targets: Numbers
    _derived: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    _deriving: Any = field(default_factory=threading.RLock, compare=False, repr=False)

    @classmethod
    def of(cls, src: Numbers, dst: Numbers) -> Adjacency:
        """Build an adjacency from the two endpoints of every edge."""
        pairs = (src.astype(np.int64) << 32) | dst
        pairs.sort()
        return cls._of_sorted(pairs)

    @classmethod
    def _of_sorted(cls, pairs: Ints) -> Adjacency:
        pairs = without_repeats(pairs)
        sources = (pairs >> 32).astype(np.int32)
        return cls(offsets_of(sources), (pairs & _LOW).astype(np.int32))

    @classmethod
    def in_either_direction(cls, along: Adjacency, against: Adjacency) -> Adjacency:
        """The neighbours in either direction, merged from both sorted adjacencies."""
        pairs = np.concatenate([along._pairs(), against._pairs()])
        # A stable sort detects the two sorted runs and merges them.
        pairs.sort(kind="stable")
        return cls._of_sorted(pairs)

    def with_edges(self, src: Numbers, dst: Numbers) -> Adjacency:
        """A copy with more edges: the new ones are sorted and merged into the old ones."""
        new = (src.astype(np.int64) << 32) | dst
        new.sort()
        both = np.concatenate([self._pairs(), new])
        # A stable sort detects the two sorted runs and merges them.
        both.sort(kind="stable")
        return self._of_sorted(both)

    def _pairs(self) -> Ints:
        counts = np.diff(self.offsets)
        return (np.repeat(np.arange(len(counts)), counts) << 32) | self.targets

    @property
    def nbytes(self) -> int:
        # A copy: a query in another thread may add one meanwhile.
        derived = list(self._derived.values())
        made = sum(array.nbytes for array in derived if isinstance(array, np.ndarray))
        return self.offsets.nbytes + self.targets.nbytes + made

    def degrees(self, sources: Integers) -> Ints:
        """The number of neighbours of each source."""
        counts: Ints = self._counts.take(sources, mode="clip")
        return counts

    @property
    def _counts(self) -> Ints:
        """The number of neighbours of every source; the last one stands for numbers beyond."""
        counts: Ints = self._once("counts", lambda: np.diff(self.offsets))
        return counts

    def neighbours(self, sources: Integers, counts: Ints | None = None) -> tuple[Ints, Numbers]:
        """Every neighbour of each source, with the index of its source in the list.

        ``counts`` are the degrees of the sources, if they are known.
        """
        if len(sources) >= _FEW_TESTS and self.most == 1:
            return self._only_neighbours(sources)
        counts = self.degrees(sources) if counts is None else counts
        if len(sources) == 1:
            return np.zeros(counts[0], np.int64), self.targets_of(sources, counts)
        owners = np.repeat(np.arange(len(counts)), counts)
        return owners, self.targets_of(sources, counts)

    def targets_of(self, sources: Integers, counts: Ints) -> Numbers:
        """Every neighbour of each source; ``counts`` are the degrees of the sources."""
        if len(sources) >= _FEW_TESTS and self.most == 1:
            return self._only_neighbours(sources)[1]
        if len(sources) >= _FEW_LISTS and not self._may_be_consecutive(sources, counts):
            within = np.minimum(sources, len(self.offsets) - 2)
            lists = self._lists.take(arrow_view(within))
            return np.frombuffer(lists.buffers()[2], np.int32, int(counts.sum()))
        starts = self.offsets.take(sources, mode="clip")
        if len(starts) == 1 or _are_consecutive(starts, counts):
            # Such as all sources.
            return self.targets[starts[0] : starts[-1] + counts[-1]]
        return self.targets.take(_indices(starts, counts))

    def _may_be_consecutive(self, sources: Integers, counts: Ints) -> bool:
        """Whether there are as many neighbours as from those of the first source to the last's."""
        first, last = self.offsets.take(sources[[0, -1]], mode="clip").tolist()
        return bool(last + counts[-1] - first == counts.sum())

    @property
    def _lists(self) -> pa.Array:
        """The neighbours of each source as the bytes of one value.

        Arrow copies values at once and without the interpreter lock, five times as fast as NumPy
        takes as many numbers by their indices.
        """

        def make() -> pa.Array:
            ends = pa.py_buffer(
                self._once("byte offsets", lambda: self.offsets * self.targets.itemsize)
            )
            lists = [None, ends, pa.py_buffer(self.targets)]
            return pa.Array.from_buffers(pa.large_binary(), len(self.offsets) - 1, lists)

        return self._once("lists", make)

    def _only_neighbours(self, sources: Integers) -> tuple[Ints, Numbers]:
        """The neighbour of each source that has one, if none has more: a column of the sources."""
        (column,) = self._once("slots", self._slots)
        targets: Numbers = column.take(sources, mode="clip")
        owners = np.flatnonzero(targets >= 0)
        return owners, targets if len(owners) == len(targets) else targets.take(owners)

    @property
    def most(self) -> int:
        """The greatest number of neighbours of a source."""
        most: int = self._once("most", lambda: int(self._counts.max()))
        return most

    @property
    def is_narrow(self) -> bool:
        """Whether every source has few neighbours, so that a test compares all of them."""
        return self.most <= _FEW_NEIGHBOURS

    @property
    def reach(self) -> int:
        """One more than the greatest neighbour."""
        reach: int = self._once("reach", lambda: int(self.targets.max(initial=-1)) + 1)
        return reach

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Consecutive ranges of sources that have about ``_PIECE`` edges each, or one source."""
        firsts = np.arange(0, max(len(self.targets), 1), _PIECE)
        begins = distinct(self.offsets[:-1].searchsorted(firsts)).tolist()
        return itertools.pairwise([*begins, len(self.offsets) - 1])

    def sums_of(self, weights: Integers, begin: int, end: int) -> Integers:
        """For each source of a range the sum of the weights of its neighbours.

        ``weights`` has one for every number below ``reach``. Sums have their type, and wrap around.
        """
        offsets = self.offsets[begin : end + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        # Arrow takes half of NumPy's time, if it does not check again what ``reach`` says.
        targets = arrow_view(self.targets[first:last])
        taken = numpy_view(pc.take(arrow_view(weights), targets, boundscheck=False))
        running = np.empty(last - first + 1, weights.dtype)
        running[0] = 0
        # Far cheaper than ``add.reduceat``, and sources without neighbours need no care.
        np.cumsum(taken, dtype=weights.dtype, out=running[1:])
        ends = running.take(offsets - first)
        sums: Integers = ends[1:] - ends[:-1]
        return sums

    def contains(self, src: Integers, dst: Integers) -> Mask:
        """For each pair, whether an edge joins it."""
        if not len(self.targets):
            return np.zeros(len(src), bool)
        if self.is_narrow:
            joined = np.zeros(len(src), bool)
            for slot in self._once("slots", self._slots):
                joined |= slot.take(src, mode="clip") == dst
            return joined
        sources = len(self.offsets) - 2
        nodes = self.reach
        size = max(_FEW_BITS, 2 * _FILTER_BITS * len(self.targets))
        if sources * nodes <= min(size, _MOST_BITS):
            return self._by_bits(src, dst, sources, nodes)
        if len(src) < _FEW_TESTS:
            return self._by_search(src, dst)
        # Most pairs are not joined; a filter rejects nearly all of those.
        possible = self._possible(src, dst)
        joined = np.zeros(len(src), bool)
        joined[possible] = self._by_search(src.take(possible), dst.take(possible))
        return joined

    def _by_search(self, src: Integers, dst: Integers) -> Mask:
        """Look pairs up by a binary search among the neighbours of each source."""
        low: Ints = self.offsets.take(src, mode="clip")
        counts = self.degrees(src)
        end = low + counts
        high = end.copy()
        for _ in range(int(counts.max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            is_less = (self.targets.take(middle, mode="clip") < dst) & (low < high)
            np.copyto(low, middle + 1, where=is_less)
            np.copyto(high, middle, where=~is_less)
        joined: Mask = (low < end) & (self.targets.take(low, mode="clip") == dst)
        return joined

    def _possible(self, src: Integers, dst: Integers) -> Ints:
        """The indices of pairs that may be joined: all of their hashes are marked in a filter."""

        def make() -> Integers:
            counts = np.diff(self.offsets)
            sources = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
            size = (len(self.targets) * _FILTER_BITS - 1).bit_length()
            bits = np.zeros(1 << max(size - 3, 0), np.uint8)
            for factors in _FACTORS:
                hashes = _hashes(sources, self.targets, size, factors)
                np.bitwise_or.at(bits, hashes >> 3, (1 << (hashes & 7)).astype(np.uint8))
            return bits

        bits = self._once("filter", make)
        size = len(bits).bit_length() + 2
        possible = np.flatnonzero(_are_set(bits, _hashes(src, dst, size, _FACTORS[0])))
        hashes = _hashes(src.take(possible), dst.take(possible), size, _FACTORS[1])
        return possible.take(np.flatnonzero(_are_set(bits, hashes)))

    def _slots(self) -> Numbers:
        """The first, second, ... neighbour of each source, -1 where there is none."""
        counts = np.diff(self.offsets)
        owners, indices = spread(self.offsets[:-1], counts)
        slots = np.full((int(counts.max()), len(counts)), -1, np.int32)
        slots[indices - self.offsets[owners], owners] = self.targets
        return slots

    def _by_bits(self, src: Integers, dst: Integers, sources: int, nodes: int) -> Mask:
        """Look pairs up in a bitmap of all possible pairs."""

        def make() -> Integers:
            pairs = self._pairs()
            positions = (pairs >> 32) * nodes + (pairs & _LOW)
            words, values = positions >> 3, (1 << (positions & 7)).astype(np.uint8)
            first = np.flatnonzero(np.concatenate([[True], words[1:] != words[:-1]]))
            bits = np.zeros(sources * nodes // 8 + 1, np.uint8)
            bits[words[first]] = np.add.reduceat(values, first)
            return bits

        bits = self._once("bits", make)
        inside = (src < sources) & (dst < nodes)
        positions = src.astype(np.int64) * nodes
        positions += dst
        if not inside.all():
            positions[~inside] = 0
        return _are_set(bits, positions) & inside

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """A derived structure, computed on first use."""
        value = self._derived.get(name)
        if value is None:
            with self._deriving:
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
        return cls(offsets_of(sources), dst[order], rows[order])

    @property
    def nbytes(self) -> int:
        return self.offsets.nbytes + self.targets.nbytes + self.rows.nbytes

    def where(self, kept: Mask) -> EdgeAdjacency:
        """A part of the edges."""
        counts = np.diff(self.offsets)
        sources = np.repeat(np.arange(len(counts), dtype=np.int32), counts)[kept]
        return EdgeAdjacency(offsets_of(sources), self.targets[kept], self.rows[kept])

    def degrees(self, sources: Integers) -> Ints:
        """The number of edges of each source."""
        ends: Ints = self.offsets.take(sources + 1, mode="clip")
        return ends - self.offsets.take(sources, mode="clip")

    def edges(self, sources: Integers) -> tuple[Ints, Numbers, Ints]:
        """Every edge of each source: the index of the source, the target, the row."""
        starts = self.offsets.take(sources, mode="clip")
        owners, indices = spread(starts, self.degrees(sources))
        return owners, self.targets.take(indices), self.rows.take(indices)


def offsets_of(sources: Numbers) -> Ints:
    """The offset of each source; the last entry is for all numbers without edges."""
    count = int(sources[-1]) + 1 if len(sources) else 0
    counts = np.bincount(sources, minlength=count) if len(sources) else np.zeros(0, np.int64)
    offsets = np.zeros(count + 2, np.int64)
    np.cumsum(counts, out=offsets[1 : count + 1])
    offsets[count + 1] = offsets[count]
    return offsets
