"""The edges of a table as adjacency lists in CSR form: sorted targets, and the list offsets.

The targets of one source are distinct: parallel edges yield one neighbour. ``EdgeAdjacency`` keeps
every edge, for queries that bind the edge itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import numpy.typing as npt

from omnigraph.records import dataclass
from omnigraph.topology.cache import TableCache
from omnigraph.topology.nodes import Ids, NodeIndex, Numbers
from omnigraph.topology.sets import Integers, Ints, Mask, without_repeats

OUT, IN, BOTH = "out", "in", "both"
_LOW = np.int64(0xFFFFFFFF)
# With at most this many neighbours at any source, all of them are compared.
_FEW_NEIGHBOURS = 4
# Up to this many pairs of nodes, or if a filter is not much smaller, a bitmap with one bit per pair
# is used; but not beyond the second number.
_FEW_BITS, _MOST_BITS = 1 << 23, 1 << 28
# Fewer pairs than this are looked up without a filter.
_FEW_TESTS = 4_096
# The bits of a filter for each edge, at least, and the factors of its hashes: each of them lets one
# in eight false pairs pass.
_FILTER_BITS = 16
_FACTORS = ((0x9E3779B1, 0x85EBCA77), (0xC2B2AE3D, 0x27D4EB2F))


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
        starts = self.offsets.take(sources, mode="clip")
        if len(starts) == 1 or _are_consecutive(starts, counts):
            # Such as all sources.
            return self.targets[starts[0] : starts[-1] + counts[-1]]
        return self.targets.take(_indices(starts, counts))

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
        nodes = self._once("nodes", lambda: int(self.targets.max()) + 1)
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


class StoredAdjacency(NamedTuple):
    """How the adjacency in either direction is read from a file, and written to it."""

    read: Callable[[], Adjacency | None]
    write: Callable[[Adjacency], None]


class EdgeIndex:
    """Adjacencies by direction: along the edges, against them, or both."""

    def __init__(
        self,
        cache: TableCache,
        src_ids: Ids,
        dst_ids: Ids,
        before: EdgeIndex | None = None,
        stored: Mapping[str, Adjacency] | None = None,
        either: StoredAdjacency | None = None,
    ) -> None:
        self.cache = cache
        self.src = cache.numbers("src", src_ids)
        self.dst = cache.numbers("dst", dst_ids)
        self._lock = threading.Lock()
        self._plain: dict[str, Adjacency] = dict(stored or {})
        self._either = either
        self._edges: dict[str, EdgeAdjacency] = {}
        self._complete: list[tuple[ref[NodeIndex], ref[NodeIndex], bool]] = []
        if before is not None:
            self._extend(before)
        self.cache.measures.note_degrees(
            lambda: (self._degrees(OUT, self.src), self._degrees(IN, self.dst)),
            (len(src_ids), len(dst_ids)),
            cache.rows_by_fragment(),
            same=src_ids is dst_ids,
        )

    def _extend(self, before: EdgeIndex) -> None:
        """Reuse the adjacencies of an older version if edges were only appended since."""
        old = before.cache.entries
        if self.cache.entries[: len(old)] != old:
            return
        start = len(before.src)
        for direction, adjacency in before._plain.items():
            src, dst = self._ends(direction, start)
            self._plain[direction] = adjacency.with_edges(src, dst) if len(src) else adjacency
        if BOTH in self._plain and self._either is not None:
            self._either.write(self._plain[BOTH])

    def _degrees(self, direction: str, ends: Numbers) -> Ints:
        adjacency = self._plain.get(direction)
        return np.bincount(ends) if adjacency is None else np.diff(adjacency.offsets)

    @property
    def nbytes(self) -> int:
        # Copies: a query in another thread may add one meanwhile.
        plain = sum(adjacency.nbytes for adjacency in list(self._plain.values()))
        edges = sum(adjacency.nbytes for adjacency in list(self._edges.values()))
        return self.cache.nbytes() + plain + edges

    def is_complete(self, src: NodeIndex, dst: NodeIndex) -> bool:
        """Whether both endpoints of every edge exist; computed once per pair of node indexes."""
        for src_ref, dst_ref, is_complete in self._complete:
            if src_ref() is src and dst_ref() is dst:
                return is_complete
        is_complete = bool((src.positions(self.src) >= 0).all())
        is_complete = is_complete and bool((dst.positions(self.dst) >= 0).all())
        # Weak references, and only the newest: the node indexes belong to the topology.
        self._complete = [(ref(src), ref(dst), is_complete), *self._complete[:3]]
        return is_complete

    def adjacency(self, direction: str) -> Adjacency:
        adjacency = self._plain.get(direction)
        if adjacency is None:
            with self._lock:
                adjacency = self._plain.get(direction)
                if adjacency is None:
                    adjacency = self._plain[direction] = self._build(direction)
        return adjacency

    def _build(self, direction: str) -> Adjacency:
        if direction != BOTH or self._either is None:
            return Adjacency.of(*self._ends(direction))
        adjacency = self._either.read()
        if adjacency is None:
            along, against = self._plain.get(OUT), self._plain.get(IN)
            if along is not None and against is not None:
                adjacency = Adjacency.in_either_direction(along, against)
            else:
                adjacency = Adjacency.of(*self._ends(BOTH))
            self._either.write(adjacency)
        return adjacency

    def edge_adjacency(self, direction: str) -> EdgeAdjacency:
        adjacency = self._edges.get(direction)
        if adjacency is None:
            with self._lock:
                adjacency = self._edges.get(direction)
                if adjacency is None:
                    adjacency = self._edges[direction] = self._every_edge(direction)
        return adjacency

    def _every_edge(self, direction: str) -> EdgeAdjacency:
        src, dst = self._ends(direction)
        rows = self.cache.row_ids()
        if direction == BOTH:
            # A self-loop is one edge, not two.
            loops = self.src == self.dst
            kept = np.concatenate([np.ones(len(loops), bool), ~loops])
            src, dst, rows = src[kept], dst[kept], np.concatenate([rows, rows])[kept]
        return EdgeAdjacency.of(src, dst, rows)

    def _ends(self, direction: str, start: int = 0) -> tuple[Numbers, Numbers]:
        src, dst = self.src[start:], self.dst[start:]
        if direction == OUT:
            return src, dst
        if direction == IN:
            return dst, src
        return np.concatenate([src, dst]), np.concatenate([dst, src])
