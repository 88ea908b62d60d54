"""The edges of one version of a table, as adjacencies that are made when first asked for."""

from __future__ import annotations

import threading
from weakref import ref

import numpy as np

from omnigraph.topology.adjacency import Adjacency, EdgeAdjacency
from omnigraph.topology.held import HeldTable
from omnigraph.topology.ids import Ids, Numbers
from omnigraph.topology.nodes import NodeIndex

_SRC, _DST = "src", "dst"
OUT, IN, BOTH = "out", "in", "both"


class EdgeIndex:
    """Adjacencies by direction: along the edges, against them, or either way."""

    def __init__(
        self, held: HeldTable, src_ids: Ids, dst_ids: Ids, before: EdgeIndex | None = None
    ) -> None:
        self.held = held
        self.src = held.numbers(_SRC, src_ids)
        self.dst = held.numbers(_DST, dst_ids)
        self._lock = threading.Lock()
        self._plain: dict[str, Adjacency] = {}
        self._edges: dict[str, EdgeAdjacency] = {}
        self._answers: list[tuple[ref[NodeIndex], ref[NodeIndex], bool]] = []
        if before is not None:
            self._extend(before)

    def _extend(self, before: EdgeIndex) -> None:
        """Where edges were only added, what was sorted stays sorted."""
        old = before.held.parts
        if self.held.parts[: len(old)] != old:
            return
        start = len(before.src)
        for direction, known in before._plain.items():
            src, dst = self._ends(direction, start)
            self._plain[direction] = known.with_edges(src, dst) if len(src) else known

    @property
    def count(self) -> int:
        return len(self.src)

    @property
    def nbytes(self) -> int:
        # Lists of them: a query in another thread may add one meanwhile.
        plain = sum(each.nbytes for each in list(self._plain.values()))
        edges = sum(each.nbytes for each in list(self._edges.values()))
        return self.held.nbytes() + plain + edges

    def directions(self) -> tuple[str, ...]:
        """The directions that are made already."""
        return tuple(self._plain)

    def is_complete(self, src: NodeIndex, dst: NodeIndex) -> bool:
        """Whether every edge ends at nodes that are there; looked at once."""
        for known_src, known_dst, answer in self._answers:
            if known_src() is src and known_dst() is dst:
                return answer
        answer = bool((src.positions(self.src) >= 0).all())
        answer = answer and bool((dst.positions(self.dst) >= 0).all())
        # Only as long as the nodes are held elsewhere, and for the newest of them.
        self._answers = [(ref(src), ref(dst), answer), *self._answers[:3]]
        return answer

    def adopt(self, direction: str, adjacency: Adjacency) -> None:
        """Take over an adjacency that was stored."""
        self._plain[direction] = adjacency

    def adjacency(self, direction: str) -> Adjacency:
        found = self._plain.get(direction)
        if found is None:
            with self._lock:
                found = self._plain.get(direction)
                if found is None:
                    found = self._plain[direction] = Adjacency.of(*self._ends(direction))
        return found

    def edge_adjacency(self, direction: str) -> EdgeAdjacency:
        found = self._edges.get(direction)
        if found is None:
            with self._lock:
                found = self._edges.get(direction)
                if found is None:
                    found = self._edges[direction] = self._every_edge(direction)
        return found

    def _every_edge(self, direction: str) -> EdgeAdjacency:
        src, dst = self._ends(direction)
        rows = self.held.row_ids()
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
