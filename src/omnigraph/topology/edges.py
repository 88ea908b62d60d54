"""The edges of a table by the numbers of their ends, and their adjacencies by direction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import ref

import numpy as np

from omnigraph.topology.adjacency import Adjacency, EdgeAdjacency
from omnigraph.topology.cache import TableCache
from omnigraph.topology.nodes import Ids, NodeIndex, Numbers
from omnigraph.topology.sets import Ints

OUT, IN, BOTH = "out", "in", "both"
OPPOSITE = {OUT: IN, IN: OUT, BOTH: BOTH}


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

    def opposite(self, direction: str) -> Adjacency | None:
        """The adjacency of the opposite direction, if it is in memory."""
        return self._plain.get(OPPOSITE[direction])

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
