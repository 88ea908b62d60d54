"""The in-memory indexes of a graph, and their eviction.

Entries are keyed by the physical identity of a table version, so branches that share a version
share its index, and the index of a deleted branch is never used for a new branch of the same name.
The least recently used entry is evicted when the memory limit is reached.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from omnigraph.storage.tables.types import TableVersion
from omnigraph.topology.cache import TableCache
from omnigraph.topology.edges import EdgeIndex
from omnigraph.topology.measures import Measures
from omnigraph.topology.nodes import Ids, NodeIndex
from omnigraph.topology.persisted import Persisted
from omnigraph.topology.view_cache import ViewCache

if TYPE_CHECKING:
    from omnigraph.plan.statistics import TableFacts
    from omnigraph.storage.tables.table import Table

_MEMORY = 512 << 20
_MOST = 64
_LOOK_EVERY = 64
_I = TypeVar("_I", NodeIndex, EdgeIndex)


class Topology:
    """The indexes of one graph that are in memory. Safe to share between threads."""

    def __init__(self, persisted: Persisted, memory: int = _MEMORY) -> None:
        self._persisted = persisted
        self._memory = memory
        self._lock = threading.RLock()
        self._building: dict[TableVersion, threading.Lock] = {}
        self._ids: dict[str, Ids] = {}
        self._uses: dict[str, int] = {}
        self._use_count = 0
        self._widths: dict[str, int] = {}
        self._measures: dict[str, Measures] = {}
        self._indexes: OrderedDict[TableVersion, NodeIndex | EdgeIndex] = OrderedDict()
        self.views = ViewCache()
        """What the views in use show of the tables."""

    def forget(self) -> None:
        """Drop all indexes. The numberings are kept: running queries use them."""
        with self._lock:
            self._indexes.clear()
            self.views.forget()
            for location, measures in self._measures.items():
                self._persisted.store_facts(location, measures)

    def ids(self, location: str) -> Ids:
        """The numbering of the node type whose table is at this location."""
        with self._lock:
            ids = self._ids.get(location)
            if ids is None:
                ids = self._ids[location] = self._persisted.read_ids(location)
            return ids

    def nodes(self, identity: TableVersion, open_table: Callable[[], Table]) -> NodeIndex:
        """The index of a node table, built if necessary."""

        def build() -> NodeIndex:
            before = self._latest(identity.location, NodeIndex)
            cache = self._cache(identity, open_table(), before)
            ids = self.ids(identity.location)
            if before is None:
                self._persisted.fill_nodes(identity, cache, ids)
            index = NodeIndex(cache, ids)
            self._persisted.store_nodes(identity, index)
            return index

        return self._get_or_build(identity, NodeIndex, build)

    def edges(
        self, identity: TableVersion, ends: tuple[str, str], open_table: Callable[[], Table]
    ) -> EdgeIndex:
        """The index of an edge table between the node tables at two locations."""

        def build() -> EdgeIndex:
            before = self._latest(identity.location, EdgeIndex)
            cache = self._cache(identity, open_table(), before)
            src, dst = self.ids(ends[0]), self.ids(ends[1])
            stored = None
            if before is None:
                stored = self._persisted.fill_edges(identity, cache, src, dst)
            either = self._persisted.either(identity, ends, cache, src, dst)
            index = EdgeIndex(cache, src, dst, before, stored, either)
            self._persisted.store_edges(identity, ends, index, src, dst)
            return index

        return self._get_or_build(identity, EdgeIndex, build)

    def uses(self, what: str) -> int:
        """Count a use of ``what``; returns the number of uses so far."""
        with self._lock:
            self._uses[what] = self._uses.get(what, 0) + 1
            self._use_count += 1
            if self._use_count % _LOOK_EVERY == 0:
                # Queries add columns to existing entries.
                self._shrink()
            return self._uses[what]

    def width(self, what: str, measure: Callable[[], int]) -> int:
        """The approximate size in bytes of a value of a column; measured once."""
        width = self._widths.get(what)
        if width is None:
            width = self._widths[what] = measure()
        return width

    def facts(self, location: str) -> TableFacts:
        """What was measured of a table, by this process or an earlier one."""
        return self._measured(location).facts

    def _measured(self, location: str) -> Measures:
        measures = self._measures.get(location)
        if measures is None:
            with self._lock:
                measures = self._measures.get(location)
                if measures is None:
                    measures = self._measures[location] = self._persisted.read_facts(location)
        return measures

    def _cache(
        self, identity: TableVersion, table: Table, before: NodeIndex | EdgeIndex | None
    ) -> TableCache:
        location = identity.location
        return TableCache(table, None if before is None else before.cache, self._measured(location))

    def _get_or_build(
        self, identity: TableVersion, index_type: type[_I], build: Callable[[], _I]
    ) -> _I:
        index = self.get(identity, index_type)
        if index is not None:
            return index
        # One thread builds the index of a version; others wait for it instead of building too.
        with self._lock:
            building = self._building.setdefault(identity, threading.Lock())
        with building:
            index = self.get(identity, index_type)
            if index is None:
                index = build()
                with self._lock:
                    self._indexes[identity] = index
                    self._measures[identity.location] = index.cache.measures
                    self._shrink()
        with self._lock:
            self._building.pop(identity, None)
        return index

    def get(self, identity: TableVersion, index_type: type[_I]) -> _I | None:
        """The index of a table version if it is in memory."""
        with self._lock:
            index = self._indexes.get(identity)
            if not isinstance(index, index_type):
                return None
            self._indexes.move_to_end(identity)
            return index

    def _shrink(self) -> None:
        size = sum(index.nbytes for index in self._indexes.values())
        while len(self._indexes) > 1 and (size > self._memory or len(self._indexes) > _MOST):
            _, evicted = self._indexes.popitem(last=False)
            size -= evicted.nbytes
        if size > self._memory:
            for index in self._indexes.values():
                index.cache.drop_columns()

    def _latest(self, location: str, index_type: type[_I]) -> _I | None:
        """The most recently used index of the same table, of another version or branch."""
        with self._lock:
            for identity in reversed(self._indexes):
                index = self._indexes[identity]
                if identity.location == location and isinstance(index, index_type):
                    return index
        return None
