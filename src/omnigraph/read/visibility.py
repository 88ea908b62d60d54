"""Which rows of a snapshot the view of a query shows.

A query asks for the marks of its plan (``plan/rules/restrict.py``). Everything that is not a query
uses ``visible_rows``, which reads storage.

Masks of tables in memory are kept in memory too (``topology/visible.py``). Of any other table a few
rows are judged by their own columns; the answer is the same.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from omnigraph.plan.arrow import pushable
from omnigraph.plan.view import View
from omnigraph.read.search.ranking import text_totals
from omnigraph.read.sources import EdgeSource, NodeSource, take_rows
from omnigraph.read.tables import SnapshotTables
from omnigraph.topology.visible import NodeMask, RowMask, VisibleEdges, columns_of, true_rows

if TYPE_CHECKING:
    from omnigraph.read.frame import Ints, Mask, Numbers
    from omnigraph.read.limits import Check
    from omnigraph.storage.tables.search import RowIds
    from omnigraph.topology.adjacency import EdgeAdjacency


class VisibleNodes:
    """The visible nodes of one type in one snapshot."""

    def __init__(self, source: NodeSource, view: View) -> None:
        key = source.entity_type.table_key
        self.source = source
        self.condition = view.condition(key)
        """The condition of a visible node; ``None`` if all are visible."""
        self.is_empty = view.hides(key)
        self._rule = view.key_of(key)
        self._mask: NodeMask | None = None

    @property
    def is_pushable(self) -> bool:
        """Whether storage can evaluate the condition itself."""
        return self.condition is not None and pushable(self.condition)

    def mask(self) -> NodeMask:
        """The mask of the nodes, built if necessary."""
        mask = self._mask
        if mask is None:
            source = self.source
            index = source.index()

            def build(before: NodeMask | None) -> NodeMask:
                rows = None if before is None else before.rows
                return NodeMask(index, RowMask(index.cache, self.condition, rows))

            location = source.identity.location
            mask = self._mask = source.views.get_or_build(
                ("nodes", source.identity, self._rule),
                ("nodes", location, self._rule),
                NodeMask,
                build,
            )
        return mask

    def preferred_mask(self, lookups: int = 1) -> NodeMask | None:
        """The mask if the table is in memory, or should be."""
        if self._mask is None and self.source.preferred_index(lookups) is None:
            return None
        return self.mask()

    def row_ids(self) -> RowIds:
        """The row ids of the visible nodes, ascending."""
        rows = self.source.index().cache.row_ids()[self.mask().rows.flags]
        return np.sort(rows).astype(np.uint64)

    def keeps(self, numbers: Numbers) -> Mask:
        """A mask of the numbers that are visible nodes of the snapshot."""
        if self.is_empty or not len(numbers):
            return np.zeros(len(numbers), bool)
        mask = self.preferred_mask(len(numbers))
        if mask is not None:
            return mask.keeps(numbers)
        source = self.source
        # A missing node has nulls, for which a condition may be true.
        is_present = source.present(numbers)
        columns = source.values(columns_of(self.condition), numbers)
        return is_present & true_rows(self.condition, columns, len(numbers))


class VisibleEdgeSource(EdgeSource):
    """The visible edges of one type in one snapshot: like all edges of a smaller graph."""

    has_all_ends = True

    def __init__(
        self, source: EdgeSource, ends: tuple[VisibleNodes, VisibleNodes], view: View
    ) -> None:
        super().__init__(
            source.entity_type, source.pin, source.ends, source._store, source._topology
        )
        key = source.entity_type.table_key
        self.condition = view.condition(key)
        """The condition of the edges themselves; ``None`` if they have none."""
        self._base = source
        self._rule = view.key_of(key)
        self._visible_ends = ends
        self._visible: VisibleEdges | None = None

    def cached_index(self) -> VisibleEdges | None:
        """The visible edges, if the table is in memory."""
        if self._visible is None and self._base.cached_index() is not None:
            return self.index()
        return self._visible

    def index(self) -> VisibleEdges:
        visible = self._visible
        if visible is None:
            index, views = self._base.index(), self.views
            src, dst = (end.mask() for end in self._visible_ends)
            identities = (self.identity, *(end.identity for end in self.ends))

            def build_own(before: RowMask | None) -> RowMask:
                return RowMask(index.cache, self.condition, before)

            def build(before: VisibleEdges | None) -> VisibleEdges:
                own = None
                if self.condition is not None:
                    own = views.get_or_build(
                        ("own", self.identity, self._rule),
                        ("own", self.identity.location, self._rule),
                        RowMask,
                        build_own,
                    )
                return VisibleEdges(index, own, (src, dst), before, views.shrink)

            visible = self._visible = views.get_or_build(
                ("edges", identities, self._rule),
                ("edges", self.identity.location, self._rule),
                VisibleEdges,
                build,
            )
        return visible

    def is_complete(self) -> bool:
        """Both ends of every visible edge are visible, so they exist."""
        return True

    def look_up(self, direction: str, sources: Numbers) -> EdgeAdjacency:
        """The visible edges of a few distinct visible nodes."""
        edges = super().look_up(direction, sources)
        # In both directions the ends have one type.
        far = self._visible_ends[0 if direction == "in" else 1]
        kept = far.keeps(edges.targets)
        if self.condition is not None:
            kept &= self.keeps_rows(edges.rows)
        return edges.where(kept)

    def keeps_rows(self, row_ids: Ints) -> Mask:
        """A mask of the edges whose own condition is true, by row id; whatever their ends are."""
        names = columns_of(self.condition)
        columns = take_rows(self.table(), row_ids, names) if names else {}
        return true_rows(self.condition, columns, len(row_ids))


class VisibleTexts(NamedTuple):
    """The visible texts of a column."""

    row_ids: RowIds
    """The visible rows of the table, ascending."""
    totals: tuple[int, int]
    """How many of them have words, and how many words."""


class Visibility:
    """What the view of a context shows of the tables of its snapshot."""

    def __init__(self, tables: SnapshotTables) -> None:
        self._tables = tables
        self.view = tables.context.view
        self._nodes: dict[str, VisibleNodes | None] = {}
        self._edges: dict[str, VisibleEdgeSource | None] = {}

    def nodes(self, type_name: str) -> VisibleNodes | None:
        """The visible nodes of a type; ``None`` if the snapshot is older than the type."""
        if type_name not in self._nodes:
            source = self._tables.nodes(type_name)
            visible = None if source is None else VisibleNodes(source, self.view)
            return self._nodes.setdefault(type_name, visible)
        return self._nodes[type_name]

    def edges(self, type_name: str) -> VisibleEdgeSource | None:
        """The visible edges of a type; ``None`` if there are none."""
        if type_name not in self._edges:
            source = self._tables.edges(type_name)
            visible = None
            if source is not None and not self.view.hides(source.entity_type.table_key):
                src = self.nodes(source.entity_type.from_type)
                dst = self.nodes(source.entity_type.to_type)
                assert src is not None
                assert dst is not None
                visible = VisibleEdgeSource(source, (src, dst), self.view)
            return self._edges.setdefault(type_name, visible)
        return self._edges[type_name]

    def texts(self, table_key: str, column: str, check: Check) -> VisibleTexts:
        """The visible texts of a column; their words are counted once for each fragment."""
        kind, _, name = table_key.partition(":")
        if kind == "edge":
            edges = self.edges(name)
            if edges is None:
                return VisibleTexts(np.empty(0, np.uint64), (0, 0))
            index = edges.index()
            cache, flags = index.cache, index.kept
        else:
            nodes = self.nodes(name)
            if nodes is None or nodes.is_empty:
                return VisibleTexts(np.empty(0, np.uint64), (0, 0))
            cache, flags = nodes.source.index().cache, nodes.mask().rows.flags
        rows = cache.row_ids()
        texts = words = start = 0
        for fragment in cache.fragments:
            end = start + fragment.rows
            here = flags[start:end]
            kept = rows[start:end][here].astype(np.uint64)
            shown = hashlib.blake2b(np.packbits(here).tobytes(), digest_size=16).digest()
            counts = self._tables.context.topology.views.counts(
                (table_key, cache.table.layout, fragment.signature, column, shown),
                partial(text_totals, cache.table, column, fragment.number, kept, check),
            )
            texts, words, start = texts + counts[0], words + counts[1], end
        return VisibleTexts(np.sort(rows[flags]).astype(np.uint64), (texts, words))
