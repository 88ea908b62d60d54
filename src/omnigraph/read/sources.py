"""The tables of one snapshot as a query reads them.

A table that is small, or was read before, is cached in memory. Of any other table only the needed
rows are read, through its indexes. The values are the same either way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query.checked import Direction
from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.read.frame import Ints, Mask, Numbers
from omnigraph.read.gate import GATE
from omnigraph.read.traversal_cost import TraversalChoice, TraversalSettings, choose
from omnigraph.storage.tables.types import TableVersion
from omnigraph.topology.adjacency import Adjacency, EdgeAdjacency
from omnigraph.topology.cache import Codes, one_array
from omnigraph.topology.edges import EdgeIndex
from omnigraph.topology.nodes import Ids, NodeIndex

if TYPE_CHECKING:
    from omnigraph.commit.snapshot import Pin
    from omnigraph.commit.store import GraphStore
    from omnigraph.lang.schema.catalog import EdgeType, NodeType
    from omnigraph.plan.nodes import Connect, Expand
    from omnigraph.storage.tables.table import Table
    from omnigraph.topology.store import Topology
    from omnigraph.topology.view_cache import ViewCache

ID = "id"
# Caching a table of at most this many rows costs less than two lookups.
_SMALL = 20_000
# From this many rows on, values are compared and grouped by codes.
_CODED = 20_000
# A column has few values if there is one for so many rows.
_FEW_VALUES = 16
# More rows than this are not looked up by their ids one by one.
_MOST_LOOKUPS = 1_024
# A column is read completely if more than one in this many of its rows is needed.
_FRACTION = 8
# A column wider than this in total is never cached.
_WIDEST = 256 << 20
_SAMPLE = 64
# Columns whose values are short.
_SHORT = frozenset({ID, "src", "dst"})

_Type = TypeVar("_Type", "NodeType", "EdgeType")
_Index = TypeVar("_Index", NodeIndex, EdgeIndex)


def table_id(pin: Pin) -> TableVersion:
    """The identity of a pinned table; without an e-tag, it includes the branch identifier."""
    life = pin.life[1] if pin.branch is not None and pin.life is not None else ""
    return TableVersion(pin.location, pin.branch, pin.version, pin.e_tag or life)


class _Source(ABC, Generic[_Type, _Index]):
    """One table of one snapshot."""

    _index_type: type[_Index]

    def __init__(self, entity_type: _Type, pin: Pin, store: GraphStore, topology: Topology) -> None:
        self.entity_type: _Type = entity_type
        self.pin = pin
        self.identity = table_id(pin)
        self.rows = pin.row_count
        self.reads = 0
        """The number of reads of the table."""
        self._store = store
        self._topology = topology
        self._uses: dict[str, int] = {}
        self._index: _Index | None = None

    @property
    def views(self) -> ViewCache:
        """What the views in use show of the tables."""
        return self._topology.views

    def table(self) -> Table:
        GATE.release()
        self.reads += 1
        return self._store.table(self.pin)

    # -- in memory -----------------------------------------------------------------------

    def cached_index(self) -> _Index | None:
        """The index if it is in memory; the query holds a reference from then on."""
        if self._index is None:
            self._index = self._topology.get(self.identity, self._index_type)
        return self._index

    def index(self) -> _Index:
        """The index, built if necessary."""
        if self._index is None:
            self._index = self._build_index()
        return self._index

    @abstractmethod
    def _build_index(self) -> _Index:
        """Build the index of the whole table."""

    def is_used_again(self, name: str = "") -> bool:
        """Whether an earlier query read the table or a column of it, so that caching pays."""
        if name not in self._uses:
            self._uses[name] = self._topology.uses(self._use_key(name))
        return self._uses[name] > 1

    # -- widths --------------------------------------------------------------------------

    def fits(self, name: str) -> bool:
        """Whether a column may be cached."""
        return self._width(name) * self.rows <= _WIDEST

    def row_width(self, names: Sequence[str]) -> int:
        """The approximate bytes per row of some columns; a guess if nothing is cached."""
        index = self.cached_index()
        if index is None:
            return sum(_type_width(self._types.field(name).type) for name in names)
        return sum(self._width(name) for name in names)

    def _width(self, name: str) -> int:
        """The approximate bytes per value; for variable widths, from a sample."""
        type_ = self._types.field(name).type
        if not (pa.types.is_string(type_) or pa.types.is_list(type_)) or name in _SHORT:
            return _type_width(type_)
        return self._topology.width(self._use_key(name), lambda: self._mean_width(name))

    def _mean_width(self, name: str) -> int:
        table, rows = self.table(), self.index().cache.row_ids()
        if not len(rows):
            return 1
        sample = rows[:: max(len(rows) // _SAMPLE, 1)][:_SAMPLE]
        return int(table.take(sample.tolist(), [name]).nbytes // len(sample)) + 1

    @cached_property
    def _types(self) -> pa.Schema:
        return self.entity_type.arrow_schema()

    def _use_key(self, name: str) -> str:
        return f"{self.pin.location}/{name}" if name else self.pin.location


class NodeSource(_Source["NodeType", NodeIndex]):
    """The nodes of one type in one snapshot."""

    _index_type = NodeIndex

    @cached_property
    def ids(self) -> Ids:
        return self._topology.ids(self.pin.location)

    def _build_index(self) -> NodeIndex:
        return self._topology.nodes(self.identity, self.table)

    def preferred_index(self, lookups: int = 1) -> NodeIndex | None:
        """The index if caching pays: the table is small, or used again."""
        index = self.cached_index()
        if index is not None:
            return index
        if self.rows <= _SMALL or lookups > _MOST_LOOKUPS or self.is_used_again():
            return self.index()
        return None

    # -- values --------------------------------------------------------------------------

    def values(self, names: Sequence[str], numbers: Numbers) -> dict[str, pa.Array]:
        """Columns of some nodes, null where a node is missing."""
        columns: dict[str, pa.Array] = {}
        if ID in names:
            columns[ID] = self.ids.texts(numbers)
        properties = [name for name in names if name != ID]
        if not properties:
            return columns
        index = self.preferred_index(len(numbers))
        if index is None:
            return columns | self._look_up(properties, numbers)
        rest = []
        for name in properties:
            if index.cache.has(name) or self.is_worth_caching(name, len(numbers)):
                columns[name] = index.values(name, numbers)
            else:
                rest.append(name)
        return columns | self._take(index, rest, numbers) if rest else columns

    def is_worth_caching(self, name: str, count: int) -> bool:
        """Whether a column should be cached to read ``count`` rows, and fits."""
        is_much = self.rows <= _SMALL or count * _FRACTION > self.rows
        return (is_much or self.is_used_again(name)) and self.fits(name)

    def codes(self, name: str, numbers: Numbers) -> Codes | None:
        """Codes that are equal where the values are; ``None`` for few nodes or if not available."""
        if len(numbers) < _CODED or name == ID:
            return None
        type_ = self._types.field(name).type
        index = self.preferred_index(len(numbers))
        if index is None or not (pa.types.is_string(type_) or pa.types.is_integer(type_)):
            return None
        if not index.cache.has(name) and not self.is_worth_caching(name, len(numbers)):
            return None
        return index.codes(name, numbers)

    def has_few_values(self, name: str) -> bool:
        """Whether a column is known to have few distinct values, so that its codes are compared."""
        index = self.cached_index()
        facts = None if index is None else index.cache.measures.facts.columns.get(name)
        return facts is not None and facts.distinct * _FEW_VALUES <= self.rows

    def _take(
        self, index: NodeIndex, names: Sequence[str], numbers: Numbers
    ) -> dict[str, pa.Array]:
        unique, inverse = np.unique(numbers, return_inverse=True)
        present = index.positions(unique) >= 0
        rows = self.table().take(index.row_ids(unique[present]).tolist(), names)
        indices = np.full(len(unique), -1, np.int64)
        indices[present] = np.arange(int(present.sum()))
        return gather(rows, names, indices[inverse])

    def _look_up(self, names: Sequence[str], numbers: Numbers) -> dict[str, pa.Array]:
        unique, inverse = np.unique(numbers, return_inverse=True)
        texts = self.ids.texts(unique)
        rows = self.table().read([ID, *names], pc.field(ID).isin(texts))
        indices = numpy_view(pc.index_in(texts, value_set=rows[ID]).fill_null(-1))
        return gather(rows, names, indices[inverse])

    def present(self, numbers: Numbers) -> Mask:
        """A mask of the numbers that are nodes of this snapshot."""
        index = self.preferred_index(len(numbers))
        if index is not None:
            return index.positions(numbers) >= 0
        unique, inverse = np.unique(numbers, return_inverse=True)
        texts = self.ids.texts(unique)
        condition = pc.field(ID).isin(texts)
        # An index knows the rows without reading them, and almost always every node exists.
        if self.table().read([], condition, row_ids=True).num_rows == len(unique):
            return np.ones(len(numbers), bool)
        rows = self.table().read([ID], condition)
        is_present: Mask = numpy_view(pc.is_in(texts, value_set=rows[ID]))
        return is_present[inverse]


class EdgeSource(_Source["EdgeType", EdgeIndex]):
    """The edges of one type in one snapshot."""

    _index_type = EdgeIndex
    has_all_ends = False
    """Whether the ends of every edge that is found are known to exist."""

    def __init__(
        self,
        entity_type: EdgeType,
        pin: Pin,
        ends: tuple[NodeSource, NodeSource],
        store: GraphStore,
        topology: Topology,
    ) -> None:
        super().__init__(entity_type, pin, store, topology)
        self.ends = ends

    def _build_index(self) -> EdgeIndex:
        ends = (self.ends[0].pin.location, self.ends[1].pin.location)
        return self._topology.edges(self.identity, ends, self.table)

    def near(self, direction: Direction) -> NodeSource:
        """The nodes from which a traversal starts."""
        return self.ends[1 if direction is Direction.IN else 0]

    def hops(self, step: Expand | Connect) -> int:
        """The maximum number of hops: 1 for an edge type between two node types."""
        if self.entity_type.from_type != self.entity_type.to_type:
            return 1
        return step.max_hops

    def choice(
        self,
        settings: TraversalSettings,
        step: Expand | Connect,
        starts: int,
        *,
        is_run: bool = True,
    ) -> TraversalChoice:
        """The traversal mode; with ``is_run`` false, as for explain, it does not count as a use."""
        is_cached = self.cached_index() is not None
        return choose(
            settings,
            hops=self.hops(step),
            frontier=starts,
            edges=self.rows,
            sources=self.near(step.direction).rows,
            is_covered=not is_cached and self.is_covered(step.direction),
            is_built=is_cached or (is_run and self.is_used_again()),
        )

    def is_complete(self) -> bool:
        """Whether both endpoints of every edge exist, as they always should."""
        return self.index().is_complete(self.ends[0].index(), self.ends[1].index())

    def is_covered(self, direction: Direction) -> bool:
        """Whether the indexes of the endpoints cover every row."""
        coverage = self.table().indexes()
        columns = {"out": ["src"], "in": ["dst"]}.get(str(direction), ["src", "dst"])
        indexes = [coverage.get(f"{column}_equality") for column in columns]
        return all(index is not None and index.complete for index in indexes)

    # -- by the index --------------------------------------------------------------------

    def look_up(self, direction: str, sources: Numbers) -> EdgeAdjacency:
        """The edges of a few distinct nodes, by the positions of the nodes in ``sources``."""
        ends = []
        if direction != "in":
            ends.append(self._edges_at("src", "dst", sources, 0))
        if direction != "out":
            ends.append(self._edges_at("dst", "src", sources, 1))
        own = np.concatenate([end[0] for end in ends])
        other = np.concatenate([end[1] for end in ends])
        rows = np.concatenate([end[2] for end in ends])
        if direction == "both":
            # A self-loop was found from both of its endpoints.
            _, first = np.unique(np.stack([rows, own]), axis=1, return_index=True)
            own, other, rows = own[first], other[first], rows[first]
        return EdgeAdjacency.of(own, other, rows)

    def _edges_at(
        self, near: str, far: str, sources: Numbers, end: int
    ) -> tuple[Numbers, Numbers, Ints]:
        texts = self.ends[end].ids.texts(sources)
        rows = self.table().read([near, far], pc.field(near).isin(texts), row_ids=True)
        own = numpy_view(pc.index_in(rows[near], value_set=texts).combine_chunks())
        other = self.ends[1 - end].ids.numbers(rows[far])
        return own.astype(np.int32), other, numpy_view(rows["_rowid"]).astype(np.int64)

    # -- values --------------------------------------------------------------------------

    def values(self, names: Sequence[str], row_ids: Ints) -> dict[str, pa.Array]:
        """Columns of some edges, by row id."""
        index = self.cached_index()
        columns: dict[str, pa.Array] = {}
        rest = list(names)
        if index is not None and (self.rows <= _SMALL or len(row_ids) * _FRACTION > self.rows):
            positions = index.cache.positions(row_ids)
            for name in names:
                if self.fits(name):
                    columns[name] = index.cache.column(name).take(arrow_view(positions))
                    rest.remove(name)
        return columns | take_rows(self.table(), row_ids, rest) if rest else columns


def take_rows(table: Table, row_ids: Ints, names: Sequence[str]) -> dict[str, pa.Array]:
    """Columns of some rows, each row read once."""
    unique, inverse = np.unique(row_ids, return_inverse=True)
    return gather(table.take(unique.tolist(), names), names, inverse)


def gather(rows: pa.Table, names: Sequence[str], indices: Ints) -> dict[str, pa.Array]:
    """Columns of rows by index; a negative index is null."""
    missing = indices < 0
    taken = arrow_view(indices, missing) if missing.any() else arrow_view(indices)
    return {name: one_array(rows[name]).take(taken) for name in names}


def plain(adjacency: EdgeAdjacency) -> Adjacency:
    """Only the neighbours, without the edges: parallel edges yield one neighbour."""
    counts = np.diff(adjacency.offsets[:-1])
    sources = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return Adjacency.of(sources, adjacency.targets)


def _type_width(type_: pa.DataType) -> int:
    """The approximate bytes per value of a type."""
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size) * _type_width(type_.value_type)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return 24
    if pa.types.is_list(type_):
        return 8 * _type_width(type_.value_type)
    try:
        return max(int(type_.bit_width) // 8, 1)
    except ValueError:
        return 64
