"""The tables of one snapshot as a query uses them.

A table that is small, or was asked for before, is held in memory; of any other only the rows that
are needed are fetched, through its indexes. The values are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query.checked import Direction
from omnigraph.read.frame import Ints, Mask, Numbers
from omnigraph.read.gate import GATE
from omnigraph.read.strategy import TraversalChoice, TraversalSettings, choose
from omnigraph.storage.tables.types import TableVersion
from omnigraph.topology.adjacency import Adjacency, EdgeAdjacency
from omnigraph.topology.cache import Codes, one_array
from omnigraph.topology.edges import EdgeIndex
from omnigraph.topology.ids import Ids
from omnigraph.topology.nodes import NodeIndex

if TYPE_CHECKING:
    from omnigraph.commit.snapshot import Pin
    from omnigraph.commit.store import GraphStore
    from omnigraph.lang.schema.catalog import EdgeType, NodeType
    from omnigraph.plan.nodes import Connect, Expand
    from omnigraph.storage.tables.table import Table
    from omnigraph.topology.store import Topology

ID = "id"
# Holding so small a table costs less than two lookups.
_SMALL = 20_000
# From so many rows on, values are compared and grouped by codes.
_CODED = 20_000
# More rows than this are not looked up by their ids one by one.
_MOST_LOOKUPS = 1_024
# Of a column that is not in memory, this share of the rows is fetched without reading all.
_SHARE = 8
# A column wider than this altogether is never held whole.
_WIDEST = 256 << 20
_SAMPLE = 64
# Columns of which it is known that their values are short.
_SHORT = frozenset({ID, "src", "dst"})


def table_id(pin: Pin) -> TableVersion:
    """What is held of a table is found by this; a pin without a tag has that of its branch."""
    life = pin.life[1] if pin.branch is not None and pin.life is not None else ""
    return TableVersion(pin.location, pin.branch, pin.version, pin.e_tag or life)


class _Source:
    """One table of one snapshot."""

    def __init__(
        self, kind: NodeType | EdgeType, pin: Pin, store: GraphStore, topology: Topology
    ) -> None:
        self.pin = pin
        self.identity = table_id(pin)
        self.rows = pin.row_count
        self.reads = 0
        """How often the table was asked for something."""
        self._types = kind.arrow_schema()
        self._store = store
        self._topology = topology
        self._uses: dict[str, int] = {}

    def table(self) -> Table:
        GATE.release()
        self.reads += 1
        return self._store.table(self.pin)

    def is_asked_again(self, name: str = "") -> bool:
        """Whether an earlier query asked for the table or a column of it: then holding pays."""
        if name not in self._uses:
            self._uses[name] = self._topology.uses(self._place(name))
        return self._uses[name] > 1

    def fits(self, name: str, index: Callable[[], NodeIndex | EdgeIndex]) -> bool:
        """Whether a column may be held whole."""
        return self._width(name, index) * self.rows <= _WIDEST

    def _width(self, name: str, index: Callable[[], NodeIndex | EdgeIndex]) -> int:
        """About how many bytes a value takes; where that differs, some values are looked at."""
        type_ = self._types.field(name).type
        if not _varies(type_) or name in _SHORT:
            return _width(type_)
        return self._topology.width(
            self._place(name), lambda: _mean_width(self.table(), name, index())
        )

    def _place(self, name: str) -> str:
        return f"{self.pin.location}/{name}" if name else self.pin.location


class NodeSource(_Source):
    """The nodes of one type in one snapshot."""

    def __init__(self, kind: NodeType, pin: Pin, store: GraphStore, topology: Topology) -> None:
        super().__init__(kind, pin, store, topology)
        self.kind = kind

    @cached_property
    def ids(self) -> Ids:
        return self._topology.ids(self.pin.location)

    # -- in memory -----------------------------------------------------------------------

    def cached_index(self) -> NodeIndex | None:
        """The index if it is in memory."""
        return self._topology.cached_nodes(self.identity)

    def index(self) -> NodeIndex:
        """The index, made now if need be."""
        return self._topology.nodes(self.identity, self.table)

    def usual(self, lookups: int = 1) -> NodeIndex | None:
        """The index where holding it pays: the table is small, or asked for again."""
        found = self.cached_index()
        if found is not None:
            return found
        if self.rows <= _SMALL or lookups > _MOST_LOOKUPS or self.is_asked_again():
            return self.index()
        return None

    # -- values --------------------------------------------------------------------------

    def values(self, names: Sequence[str], numbers: Numbers) -> dict[str, pa.Array]:
        """Columns for some nodes, null where a node is not there."""
        found: dict[str, pa.Array] = {}
        if ID in names:
            found[ID] = self.ids.texts(numbers)
        wanted = [name for name in names if name != ID]
        if not wanted:
            return found
        index = self.usual(len(numbers))
        if index is None:
            return found | self._looked_up(wanted, numbers)
        cached = [n for n in wanted if index.cache.has(n) or self.is_worth_caching(n, len(numbers))]
        for name in cached:
            found[name] = index.values(name, numbers)
        rest = [name for name in wanted if name not in cached]
        return found | self._taken(index, rest, numbers) if rest else found

    def is_worth_caching(self, name: str, count: int) -> bool:
        """Whether a column should be read whole for the sake of some rows, and fits."""
        is_much = self.rows <= _SMALL or count * _SHARE > self.rows
        return (is_much or self.is_asked_again(name)) and self.fits(name, self.index)

    def codes(self, name: str, numbers: Numbers) -> Codes | None:
        """For many nodes, numbers that are equal where their values are; none if not at hand."""
        if len(numbers) < _CODED or name == ID:
            return None
        type_ = self._types.field(name).type
        index = self.usual(len(numbers))
        if index is None or not (pa.types.is_string(type_) or pa.types.is_integer(type_)):
            return None
        if not index.cache.has(name) and not self.is_worth_caching(name, len(numbers)):
            return None
        return index.codes(name, numbers)

    def _taken(
        self, index: NodeIndex, names: Sequence[str], numbers: Numbers
    ) -> dict[str, pa.Array]:
        unique, inverse = np.unique(numbers, return_inverse=True)
        present = index.positions(unique) >= 0
        rows = self.table().take(index.row_ids(unique[present]).tolist(), names)
        places = np.full(len(unique), -1, np.int64)
        places[present] = np.arange(int(present.sum()))
        return _gathered(rows, names, places[inverse])

    def _looked_up(self, names: Sequence[str], numbers: Numbers) -> dict[str, pa.Array]:
        unique, inverse = np.unique(numbers, return_inverse=True)
        texts = self.ids.texts(unique)
        rows = self.table().read([ID, *names], pc.field(ID).isin(texts))
        places = pc.index_in(texts, value_set=rows[ID]).fill_null(-1).to_numpy()
        return _gathered(rows, names, places[inverse])

    def present(self, numbers: Numbers) -> Mask:
        """Which of the numbers are nodes of this snapshot."""
        index = self.usual(len(numbers))
        if index is not None:
            return index.positions(numbers) >= 0
        unique, inverse = np.unique(numbers, return_inverse=True)
        texts = self.ids.texts(unique)
        rows = self.table().read([ID], pc.field(ID).isin(texts))
        found: Mask = pc.is_in(texts, value_set=rows[ID]).to_numpy(zero_copy_only=False)
        return found[inverse]


class EdgeSource(_Source):
    """The edges of one type in one snapshot."""

    def __init__(
        self,
        kind: EdgeType,
        pin: Pin,
        ends: tuple[NodeSource, NodeSource],
        store: GraphStore,
        topology: Topology,
    ) -> None:
        super().__init__(kind, pin, store, topology)
        self.kind = kind
        self.ends = ends

    def near(self, direction: Direction) -> NodeSource:
        """The nodes from which a traversal starts."""
        return self.ends[1 if direction is Direction.IN else 0]

    def hops(self, step: Expand | Connect) -> int:
        """Behind an edge between two types there is no further edge of that type."""
        return 1 if self.kind.from_type != self.kind.to_type else step.max_hops

    def choice(
        self,
        settings: TraversalSettings,
        step: Expand | Connect,
        starts: int,
        *,
        is_run: bool = True,
    ) -> TraversalChoice:
        """By which means to traverse; an explain does not count as a use."""
        is_cached = self.cached_index() is not None
        return choose(
            settings,
            hops=self.hops(step),
            frontier=starts,
            edges=self.rows,
            sources=self.near(step.direction).rows,
            is_covered=not is_cached and self.is_covered(step.direction),
            is_built=is_cached or (is_run and self.is_asked_again()),
        )

    def cached_index(self) -> EdgeIndex | None:
        return self._topology.cached_edges(self.identity)

    def index(self) -> EdgeIndex:
        ends = (self.ends[0].pin.location, self.ends[1].pin.location)
        return self._topology.edges(self.identity, ends, self.table)

    def is_complete(self) -> bool:
        """Whether both ends of every edge are there, as they always should be."""
        return self.index().is_complete(self.ends[0].index(), self.ends[1].index())

    def is_covered(self, direction: Direction) -> bool:
        """Whether the indexes of the ends know every row."""
        coverage = self.table().indexes()
        wanted = {"out": ["src"], "in": ["dst"]}.get(str(direction), ["src", "dst"])
        found = [coverage.get(f"{column}_equality") for column in wanted]
        return all(each is not None and each.complete for each in found)

    # -- by the index --------------------------------------------------------------------

    def looked_up(self, direction: str, sources: Numbers) -> EdgeAdjacency:
        """The edges of a few different nodes, by their places in the list."""
        pieces = []
        if direction != "in":
            pieces.append(self._edges_at("src", "dst", sources, 0))
        if direction != "out":
            pieces.append(self._edges_at("dst", "src", sources, 1))
        own = np.concatenate([piece[0] for piece in pieces])
        other = np.concatenate([piece[1] for piece in pieces])
        rows = np.concatenate([piece[2] for piece in pieces])
        if direction == "both":
            # A self-loop was met from both of its ends.
            _, first = np.unique(np.stack([rows, own]), axis=1, return_index=True)
            own, other, rows = own[first], other[first], rows[first]
        return EdgeAdjacency.of(own, other, rows)

    def _edges_at(
        self, near: str, far: str, sources: Numbers, end: int
    ) -> tuple[Numbers, Numbers, Ints]:
        texts = self.ends[end].ids.texts(sources)
        rows = self.table().read([near, far], pc.field(near).isin(texts), row_ids=True)
        own = pc.index_in(rows[near], value_set=texts).combine_chunks().to_numpy()
        other = self.ends[1 - end].ids.numbers(rows[far])
        return own.astype(np.int32), other, rows["_rowid"].to_numpy().astype(np.int64)

    # -- values --------------------------------------------------------------------------

    def values(self, names: Sequence[str], row_ids: Ints) -> dict[str, pa.Array]:
        """Columns of some edges, by their rows."""
        index = self.cached_index()
        found: dict[str, pa.Array] = {}
        rest = list(names)
        if index is not None and (self.rows <= _SMALL or len(row_ids) * _SHARE > self.rows):
            places = index.cache.positions(row_ids)
            for name in names:
                if self.fits(name, self.index):
                    found[name] = index.cache.column(name).take(pa.array(places))
                    rest.remove(name)
        if rest:
            unique, inverse = np.unique(row_ids, return_inverse=True)
            rows = self.table().take(unique.tolist(), rest)
            found |= _gathered(rows, rest, inverse)
        return found


def row_width(source: NodeSource | EdgeSource, names: Sequence[str]) -> int:
    """About how many bytes a row of some columns takes; a guess where nothing is held."""
    index = source.cached_index()
    if index is None:
        return sum(_width(source._types.field(name).type) for name in names)
    return sum(source._width(name, lambda: index) for name in names)


def _varies(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_list(kind))


def _mean_width(table: Table, name: str, index: NodeIndex | EdgeIndex) -> int:
    rows = index.cache.row_ids()
    if not len(rows):
        return 1
    some = rows[:: max(len(rows) // _SAMPLE, 1)][:_SAMPLE]
    return int(table.take(some.tolist(), [name]).nbytes // len(some)) + 1


def plain(adjacency: EdgeAdjacency) -> Adjacency:
    """Without the edges: parallel ones are one neighbour."""
    counts = np.diff(adjacency.offsets[:-1])
    sources = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return Adjacency.of(sources, adjacency.targets)


def _gathered(rows: pa.Table, names: Sequence[str], places: Ints) -> dict[str, pa.Array]:
    missing = places < 0
    taken = pa.array(places, mask=missing) if missing.any() else pa.array(places)
    return {name: one_array(rows[name]).take(taken) for name in names}


def _width(kind: pa.DataType) -> int:
    """About how many bytes a value takes."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return 24
    if pa.types.is_list(kind):
        return 8 * _width(kind.value_type)
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 64
