"""What is held of a graph in memory, and for how long.

Everything is found by what identifies a table's version physically, so branches that share a
version share what is held of it, and nothing of a deleted branch is ever used for a new one of
its name. The least recently used goes when the memory set aside is full.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from omnigraph.storage.tables.types import TableVersion
from omnigraph.topology.edges import EdgeIndex
from omnigraph.topology.held import HeldTable
from omnigraph.topology.ids import Ids
from omnigraph.topology.nodes import NodeIndex
from omnigraph.topology.persisted import Persisted

if TYPE_CHECKING:
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
        self._asked = 0
        self._widths: dict[str, int] = {}
        self._held: OrderedDict[TableVersion, NodeIndex | EdgeIndex] = OrderedDict()

    def forget(self) -> None:
        """Drop everything but the numberings: whoever runs still counts by them."""
        with self._lock:
            self._held.clear()

    def ids(self, location: str) -> Ids:
        """The numbering of the node type whose table lies there."""
        with self._lock:
            found = self._ids.get(location)
            if found is None:
                found = self._ids[location] = self._persisted.read_ids(location)
            return found

    def held_nodes(self, identity: TableVersion) -> NodeIndex | None:
        """The index of a node table if it is in memory."""
        return self._get(identity, NodeIndex)

    def held_edges(self, identity: TableVersion) -> EdgeIndex | None:
        """The index of an edge table if it is in memory."""
        return self._get(identity, EdgeIndex)

    def nodes(self, identity: TableVersion, open_table: Callable[[], Table]) -> NodeIndex:
        """The index of a node table, made now if need be."""

        def make() -> NodeIndex:
            before = self._latest(identity.location, NodeIndex)
            held = HeldTable(open_table(), None if before is None else before.held)
            ids = self.ids(identity.location)
            if before is None:
                self._persisted.fill_nodes(identity, held, ids)
            index = NodeIndex(held, ids)
            self._persisted.keep_nodes(identity, index)
            return index

        return self._made(identity, NodeIndex, make)

    def edges(
        self, identity: TableVersion, ends: tuple[str, str], open_table: Callable[[], Table]
    ) -> EdgeIndex:
        """The index of an edge table between the node tables at two locations."""

        def make() -> EdgeIndex:
            before = self._latest(identity.location, EdgeIndex)
            held = HeldTable(open_table(), None if before is None else before.held)
            src, dst = self.ids(ends[0]), self.ids(ends[1])
            stored = {}
            if before is None:
                stored = self._persisted.fill_edges(identity, held, src, dst)
            index = EdgeIndex(held, src, dst, before)
            for direction, adjacency in stored.items():
                index.adopt(direction, adjacency)
            self._persisted.keep_edges(identity, ends, index, src, dst)
            return index

        return self._made(identity, EdgeIndex, make)

    def uses(self, what: str) -> int:
        """How often something was asked for, this time included."""
        with self._lock:
            self._uses[what] = self._uses.get(what, 0) + 1
            self._asked += 1
            if self._asked % _LOOK_EVERY == 0:
                # Columns were added to what is held.
                self._shrink()
            return self._uses[what]

    def width(self, what: str, measure: Callable[[], int]) -> int:
        """About how many bytes a value of a column takes; measured once."""
        found = self._widths.get(what)
        if found is None:
            found = self._widths[what] = measure()
        return found

    # -- the memory ----------------------------------------------------------------------

    def _made(self, identity: TableVersion, kind: type[_I], make: Callable[[], _I]) -> _I:
        found = self._get(identity, kind)
        if found is not None:
            return found
        # One builder at a time for each version; others wait for it instead of building too.
        with self._lock:
            alone = self._building.setdefault(identity, threading.Lock())
        with alone:
            found = self._get(identity, kind)
            if found is None:
                found = make()
                self._put(identity, found)
        with self._lock:
            self._building.pop(identity, None)
        return found

    def _get(self, identity: TableVersion, kind: type[_I]) -> _I | None:
        with self._lock:
            found = self._held.get(identity)
            if not isinstance(found, kind):
                return None
            self._held.move_to_end(identity)
            return found

    def _put(self, identity: TableVersion, index: NodeIndex | EdgeIndex) -> None:
        with self._lock:
            self._held[identity] = index
            self._shrink()

    def _shrink(self) -> None:
        taken = sum(each.nbytes for each in self._held.values())
        while len(self._held) > 1 and (taken > self._memory or len(self._held) > _MOST):
            _, gone = self._held.popitem(last=False)
            taken -= gone.nbytes
        if taken > self._memory:
            for index in self._held.values():
                index.held.drop_columns()

    def _latest(self, location: str, kind: type[_I]) -> _I | None:
        """What was used last of the same table, in another version or on another branch."""
        with self._lock:
            for identity in reversed(self._held):
                found = self._held[identity]
                if identity.location == location and isinstance(found, kind):
                    return found
        return None
