"""The tables of the snapshot on the driver: where workers find them, and how they share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import AntiJoin, Connect, Expand, PlanStep
from omnigraph.read.scan import named_ids
from omnigraph.spark.query import edges
from omnigraph.spark.query.edges import DST, EDGE, SRC, EdgeScan
from omnigraph.spark.query.frame import Driver, near
from omnigraph.spark.query.tables import ID, ROW_ID, reader_of
from omnigraph.spark.query.work import LABEL
from omnigraph.spark.session.failures import carrying
from omnigraph.storage.tables.fragments import TableLocator, fragment_sizes, locate_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.commit.snapshot import Pin
    from omnigraph.lang.schema.catalog import EdgeType
    from omnigraph.plan.nodes import ReadPlan
    from omnigraph.plan.prepared import PlanInfo
    from omnigraph.read.context import QueryContext

# About so many rows are read by one task.
_SHARE_ROWS = 250_000
# An end of an edge that is not there: a number below zero, the same for the same id.
_MISSING = "-1 - (xxhash64({id}) & 9223372036854775807)"

Shares = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The nodes of one type."""

    at: TableLocator
    parts: Shares

    def shares(self, pushed: Sequence[typed.TypedExpr]) -> tuple[tuple[int, ...] | None, ...]:
        """What each task of a scan reads; few ids are asked of the index by one of them."""
        return (
            (None,) if any(named_ids(condition) is not None for condition in pushed) else self.parts
        )


class Sources:
    """The tables of one query, opened once."""

    def __init__(self, driver: Driver, context: QueryContext, name: str, plan: ReadPlan) -> None:
        self._driver = driver
        self._context = context
        self._name = name
        self._uses = dict(_uses(plan.pipeline))
        self._nodes: dict[str, NodeTable | None] = {}
        self._edges: dict[str, EdgeTable | None] = {}

    def nodes(self, type_name: str) -> NodeTable | None:
        """The nodes of a type, none when the snapshot is older than the type."""
        if type_name not in self._nodes:
            kind = self._context.catalog.node(type_name)
            found = None if kind is None else self._table(kind.table_key)
            self._nodes[type_name] = None if found is None else NodeTable(*found)
        return self._nodes[type_name]

    def edges(self, type_name: str) -> EdgeTable | None:
        """The edges of a type."""
        if type_name not in self._edges:
            kind = self._context.catalog.edge_types[type_name]
            ends = self.nodes(kind.from_type), self.nodes(kind.to_type)
            found = self._table(kind.table_key)
            table = None
            if found is not None and ends[0] is not None and ends[1] is not None:
                is_shared = self._uses.get(type_name, 0) > 1
                scan = _edge_scan(self._name, found, (ends[0], ends[1]))
                table = EdgeTable(self._driver, kind, scan, (ends[0], ends[1]), is_shared)
            self._edges[type_name] = table
        return self._edges[type_name]

    def variables(self, info: PlanInfo) -> Mapping[str, TableLocator]:
        """The table of every variable that has one."""
        found: dict[str, TableLocator] = {}
        for name, type_name in info.types.items():
            node = self.nodes(type_name)
            if node is not None:
                found[name] = node.at
        for name, type_name in info.edge_types.items():
            edge = self.edges(type_name)
            if edge is not None:
                found[name] = edge.at
        return found

    def _table(self, table_key: str) -> tuple[TableLocator, Shares] | None:
        pin = self._context.snapshot.pin(table_key)
        return None if pin is None else self._placed(pin)

    def _placed(self, pin: Pin) -> tuple[TableLocator, Shares]:
        store = self._context.store
        table = store.table(pin)
        at = locate_table(store.datasets, table, pin.row_count)
        return at, tuple(_shares(fragment_sizes(table)))


def _shares(fragments: Iterable[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """Parts together that have about as many rows as one task should read."""
    share: list[int] = []
    rows = 0
    for number, count in fragments:
        share.append(number)
        rows += count
        if rows >= _SHARE_ROWS:
            yield tuple(share)
            share, rows = [], 0
    if share:
        yield tuple(share)


def _uses(steps: Sequence[PlanStep]) -> Iterator[tuple[str, int]]:
    """How often the edges of each type are walked along."""
    counts: dict[str, int] = {}
    for step in _all(steps):
        if isinstance(step, Expand | Connect):
            counts[step.edge_type] = counts.get(step.edge_type, 0) + step.max_hops
    yield from counts.items()


def _all(steps: Sequence[PlanStep]) -> Iterator[PlanStep]:
    for step in steps:
        yield step
        if isinstance(step, AntiJoin):
            yield from _all(step.inner)


# -- edges ----------------------------------------------------------------------------------------


def _edge_scan(
    name: str, found: tuple[TableLocator, Shares], ends: tuple[NodeTable, NodeTable]
) -> EdgeScan:
    held = tuple(end.at.rows <= edges.MOST_IDS for end in ends)
    return EdgeScan(name, found[0], (ends[0].at, ends[1].at), found[1], (held[0], held[1]))


class EdgeTable:
    """The edges of one type, as numbers; computed once where they are walked more than once."""

    def __init__(
        self,
        driver: Driver,
        kind: EdgeType,
        scan: EdgeScan,
        ends: tuple[NodeTable, NodeTable],
        is_shared: bool,
    ) -> None:
        self._driver = driver
        self._kind = kind
        self._scan = scan
        self._ends = ends
        self._is_shared = is_shared
        self._data: DataFrame | None = None

    @property
    def at(self) -> TableLocator:
        return self._scan.at

    @property
    def rows(self) -> int:
        return self._scan.at.rows

    def hops(self, step: Expand | Connect) -> int:
        """Behind an edge between two types there is no further edge of that type."""
        return 1 if self._kind.from_type != self._kind.to_type else step.max_hops

    def data(self) -> DataFrame:
        """Source, target and row of every edge."""
        if self._data is None:
            scan = self._scan
            data = self._driver.tasks(len(scan.shares), _function(scan.run), scan.schema)
            for end, name in enumerate((SRC, DST)):
                if not scan.held[end]:
                    data = self._joined(data, name, self._ends[end])
            data = data.select(SRC, DST, EDGE)
            self._data = self._driver.kept(data) if self._is_shared else data
        return self._data

    def _joined(self, data: DataFrame, name: str, nodes: NodeTable) -> DataFrame:
        """The rows of ends, by their ids."""
        scan = _IdScan(self._scan.query, nodes.at, nodes.parts)
        ids = self._driver.tasks(len(scan.shares), _function(scan.run), scan.schema)
        both = data.withColumnRenamed(name, ID).join(near(ids, nodes.at.rows), [ID], "left")
        missing = _MISSING.format(id=ID)
        others = [column for column in (SRC, DST, EDGE) if column != name]
        return both.selectExpr(*others, f"coalesce(number, {missing}) AS {name}")


@dataclass(frozen=True, slots=True)
class _IdScan:
    """The ids of a node table with their rows."""

    query: str
    at: TableLocator
    shares: Shares
    schema = f"{ID} string, number bigint"

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = reader_of(self.query, self.at)
        for batch in batches:
            for position in batch.column(0).to_pylist():
                for rows in reader.scan([ID], None, self.shares[position]):
                    numbers = pa.array(rows[ROW_ID].to_numpy().astype(np.int64))
                    yield pa.record_batch([rows[ID], numbers], [ID, "number"])


def _function(
    run: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(batches)

    return carrying(work, LABEL)
