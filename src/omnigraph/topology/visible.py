"""The part of a table that a view shows: masks of its rows, and adjacencies of its edges.

A mask is made by one pass over the columns of a condition, fragment by fragment; versions that
share fragments share their masks, so after a commit only new rows are judged. An edge is part of
the visible edges if its own condition holds and both of its ends are visible. So every traversal
along them stays inside the view, whatever its length, and their degrees count nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.plan.arrow import ColumnVisitor
from omnigraph.topology.adjacency import Adjacency, EdgeAdjacency, offsets_of
from omnigraph.topology.cache import TableCache, one_array
from omnigraph.topology.edges import BOTH, IN, OUT, EdgeIndex
from omnigraph.topology.nodes import NodeIndex, Numbers
from omnigraph.topology.sets import Integers, Mask


def columns_of(condition: typed.TypedExpr | None) -> tuple[str, ...]:
    """The columns that a condition on one row reads."""
    if condition is None:
        return ()
    parts = list(typed.walk(condition))
    names = {part.name for part in parts if isinstance(part, typed.Column)}
    if any(isinstance(part, typed.Entity) for part in parts):
        names.add(typed.ID_COLUMN)
    return tuple(sorted(names))


def true_rows(
    condition: typed.TypedExpr | None, columns: Mapping[str, pa.Array], rows: int
) -> Mask:
    """A mask of the rows for which a condition is true; null is not true.

    >>> x = typed.Column("row~0", "x", typed.INT)
    >>> positive = typed.Compare(typed.Relation.GT, x, typed.Constant(0, typed.INT))
    >>> true_rows(positive, {"x": pa.array([1, None, -1])}, 3).tolist()
    [True, False, False]
    """
    if condition is None:
        return np.ones(rows, bool)
    truth = ColumnVisitor(columns).visit(condition)
    if isinstance(truth, pa.Scalar):
        return np.full(rows, truth.as_py() is True)
    mask: Mask = numpy_view(truth.fill_null(False))
    return mask


class RowMask:
    """Whether a condition holds for each row of one version of a table, by position."""

    def __init__(
        self, cache: TableCache, condition: typed.TypedExpr | None, before: RowMask | None = None
    ) -> None:
        self.layout = cache.table.layout
        shared: Mapping[str, Mask] = {}
        # In another schema the same name may belong to another column.
        if before is not None and before.layout == self.layout:
            shared = before._by_fragment
        names = columns_of(condition)
        pieces: list[Mask] = [np.empty(0, bool)]
        start = 0
        for fragment in cache.fragments:
            piece = shared.get(fragment.signature)
            if piece is None:
                columns = _fragment_columns(cache, fragment.number, names, start, fragment.rows)
                piece = true_rows(condition, columns, fragment.rows)
            pieces.append(piece)
            start += fragment.rows
        self.flags: Mask = np.concatenate(pieces)
        self.count = int(np.count_nonzero(self.flags))
        self._by_fragment: dict[str, Mask] = {}
        start = 0
        for fragment in cache.fragments:
            self._by_fragment[fragment.signature] = self.flags[start : start + fragment.rows]
            start += fragment.rows

    @property
    def nbytes(self) -> int:
        return self.flags.nbytes


def _fragment_columns(
    cache: TableCache, number: int, names: tuple[str, ...], start: int, rows: int
) -> dict[str, pa.Array]:
    """Some columns of a fragment: from memory if they are cached, else read and not kept."""
    columns = {name: cache.column(name).slice(start, rows) for name in names if cache.has(name)}
    missing = [name for name in names if name not in columns]
    if missing:
        table = cache.table.read_fragments([number], missing)[number]
        columns |= {name: one_array(table[name]) for name in missing}
    return columns


class NodeMask:
    """The visible nodes of one version of a table, by number."""

    def __init__(self, index: NodeIndex, rows: RowMask) -> None:
        self.rows = rows
        self.count = rows.count
        is_all = rows.count == len(rows.flags)
        self.numbers: Numbers = index.numbers if is_all else index.numbers[rows.flags]
        """The numbers of the visible nodes, by position."""
        # The last flag stands for the numbers of nodes that are new since.
        self._by_number: Mask = np.zeros(len(index.ids) + 1, bool)
        self._by_number[self.numbers] = True

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self._by_number.nbytes + self.numbers.nbytes

    def keeps(self, numbers: Integers) -> Mask:
        """A mask of the numbers that are visible nodes of this version."""
        kept: Mask = self._by_number.take(numbers, mode="clip")
        return kept


class VisibleEdges(EdgeIndex):
    """The visible edges of one version of a table: an index of a part of its rows."""

    def __init__(
        self,
        index: EdgeIndex,
        own: RowMask | None,
        ends: tuple[NodeMask, NodeMask],
        before: VisibleEdges | None = None,
        on_growth: Callable[[], None] = lambda: None,
    ) -> None:
        """``own`` is the mask of a condition on the edges, ``before`` that of another version."""
        self.cache = index.cache
        self._index = index
        self._own = own
        self._masks = ends
        self._on_growth = on_growth
        self._lock = threading.Lock()
        self._plain: dict[str, Adjacency] = {}
        self._edges: dict[str, EdgeAdjacency] = {}
        self.kept: Mask = ends[0].keeps(index.src) & ends[1].keeps(index.dst)
        """Whether each edge is visible, by position."""
        if own is not None:
            self.kept &= own.flags
        self.count = int(np.count_nonzero(self.kept))
        if before is not None:
            self._extend_visible(before)

    def _extend_visible(self, before: VisibleEdges) -> None:
        """Reuse the adjacencies of another version if visible edges were only appended since."""
        old, start = before.cache.entries, len(before.kept)
        if self.cache.entries[: len(old)] != old or not np.array_equal(
            self.kept[:start], before.kept
        ):
            return
        is_longer = bool(self.kept[start:].any())
        for direction, adjacency in list(before._plain.items()):
            if is_longer:
                adjacency = adjacency.with_edges(*self._ends(direction, start))
            self._plain[direction] = adjacency
        if not is_longer:
            self._edges.update(before._edges)

    @property
    def nbytes(self) -> int:
        # Copies: a query in another thread may add one meanwhile.
        plain = sum(adjacency.nbytes for adjacency in list(self._plain.values()))
        edges = sum(adjacency.nbytes for adjacency in list(self._edges.values()))
        return self.kept.nbytes + plain + edges

    def is_complete(self, src: NodeIndex, dst: NodeIndex) -> bool:
        """Both ends of a visible edge are visible, so they exist."""
        return True

    def _build(self, direction: str) -> Adjacency:
        self._on_growth()
        near, far = self._masks if direction != IN else self._masks[::-1]
        if self._own is None and (direction != BOTH or near is far):
            # Whether two nodes are joined does not depend on which edge joins them.
            return _between(self._index.adjacency(direction), near, far)
        return Adjacency.of(*self._ends(direction))

    def _every_edge(self, direction: str) -> EdgeAdjacency:
        self._on_growth()
        src, dst = self._ends(direction)
        rows = self.cache.row_ids()[self.kept]
        if direction == BOTH:
            # A self-loop is one edge, not two.
            is_loop = src[: len(rows)] == dst[: len(rows)]
            kept = np.concatenate([np.ones(len(rows), bool), ~is_loop])
            src, dst, rows = src[kept], dst[kept], np.concatenate([rows, rows])[kept]
        return EdgeAdjacency.of(src, dst, rows)

    def _ends(self, direction: str, start: int = 0) -> tuple[Numbers, Numbers]:
        positions = np.flatnonzero(self.kept[start:]) + start
        src, dst = self._index.src.take(positions), self._index.dst.take(positions)
        if direction == OUT:
            return src, dst
        if direction == IN:
            return dst, src
        return np.concatenate([src, dst]), np.concatenate([dst, src])


def _between(adjacency: Adjacency, near: NodeMask, far: NodeMask) -> Adjacency:
    """The part of an adjacency between visible nodes; it stays sorted."""
    counts = np.diff(adjacency.offsets)
    is_near = near.keeps(np.arange(len(counts)))
    kept = np.flatnonzero(np.repeat(is_near, counts) & far.keeps(adjacency.targets))
    owners = np.repeat(np.arange(len(counts), dtype=np.int32), counts).take(kept)
    return Adjacency(offsets_of(owners), adjacency.targets.take(kept))
