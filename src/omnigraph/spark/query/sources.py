"""The tables of the snapshot: locators and splits on the driver, scans of edges in the workers.

Edge tables store the ids of their ends as strings. A worker looks up the row ids in the ids of the
node table, if these fit into its memory; otherwise Spark joins. A missing end gets a unique
negative number: a traversal can pass through it, but never ends there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.plan.nodes import Connect, Expand, Intersect, Pipeline, all_steps
from omnigraph.records import dataclass
from omnigraph.spark.query.frame import Driver, broadcast_if_small
from omnigraph.spark.query.rows import ID, Splits, row_ids_of, worker_table
from omnigraph.storage.tables.fragments import TableLocator, fragment_groups, locate_table
from omnigraph.topology.cache import one_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.plan.nodes import ReadPlan
    from omnigraph.read.run import Run
    from omnigraph.read.sources import EdgeSource, NodeSource

SRC, DST, EDGE = "s", "d", "e"
MOST_IDS = 2_000_000
"""The maximum number of node ids that a worker caches; beyond, Spark joins ids and ends."""
# The approximate number of rows that one task reads.
_SPLIT_ROWS = 250_000
# The number of a missing end of an edge: negative, and equal for equal ids.
_MISSING = "-1 - (xxhash64({id}) & 9223372036854775807)"


@dataclass(frozen=True, slots=True)
class IdScan:
    """The ids of a node table with their row ids."""

    query: str
    locator: TableLocator
    splits: Splits
    schema = f"{ID} string, number bigint"

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = worker_table(self.query, self.locator)
        for split in table.scan_splits(batches, self.splits, [ID]):
            for rows in split:
                yield pa.record_batch([rows[ID], pa.array(row_ids_of(rows))], [ID, "number"])


@dataclass(frozen=True, slots=True)
class EdgeScan:
    """Edges with the row ids of their ends, or with the ids of ends that do not fit."""

    query: str
    locator: TableLocator
    splits: Splits
    ends: tuple[TableLocator, TableLocator]
    is_resolved: tuple[bool, bool]
    """Whether workers look up the row ids of each end."""

    @property
    def schema(self) -> str:
        types = ["bigint" if is_resolved else "string" for is_resolved in self.is_resolved]
        return f"{SRC} {types[0]}, {DST} {types[1]}, {EDGE} bigint"

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = worker_table(self.query, self.locator)
        for split in table.scan_splits(batches, self.splits, ["src", "dst"]):
            scanned = list(split)
            if not scanned:
                continue
            # All at once, because every lookup first hashes all ids of the node table.
            rows = pa.Table.from_batches(scanned)
            src, dst = self._end(rows["src"], 0), self._end(rows["dst"], 1)
            yield pa.record_batch([src, dst, pa.array(row_ids_of(rows))], [SRC, DST, EDGE])

    def _end(self, column: pa.ChunkedArray, end: int) -> pa.Array:
        texts = one_array(column)
        if not self.is_resolved[end]:
            return texts
        cache = worker_table(self.query, self.ends[end]).cache
        return pa.array(numbers_of_ids(texts, cache.column(ID), cache.row_ids()))


def numbers_of_ids(
    texts: pa.Array, ids: pa.Array, row_ids: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The row ids of ids; a missing id gets a number below zero."""
    indices = pc.index_in(texts, value_set=ids)
    numbers = np.full(len(texts), -1, np.int64)
    present = indices.is_valid().to_numpy(zero_copy_only=False)
    numbers[present] = row_ids[indices.drop_null().to_numpy()]
    for index in np.flatnonzero(~present).tolist():
        numbers[index] = number_of_missing(texts[index].as_py())
    return numbers


def number_of_missing(text: str) -> int:
    """A number for a missing id, the same in every worker.

    >>> number_of_missing("nobody") < 0
    True
    """
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "little") >> 1)


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The nodes of one type."""

    locator: TableLocator
    splits: Splits


class SparkTables:
    """The tables of one query, each opened once."""

    def __init__(self, driver: Driver, run: Run, name: str, plan: ReadPlan) -> None:
        self._driver = driver
        self._run = run
        self._name = name
        self._hops = _hops(plan.pipeline)
        self._nodes: dict[str, NodeTable | None] = {}
        self._edges: dict[str, EdgeTable | None] = {}

    def nodes(self, type_name: str) -> NodeTable | None:
        """The nodes of a type; ``None`` if the snapshot is older than the type."""
        if type_name not in self._nodes:
            source = self._run.nodes(type_name)
            self._nodes[type_name] = None if source is None else NodeTable(*self._locate(source))
        return self._nodes[type_name]

    def edges(self, type_name: str) -> EdgeTable | None:
        """The edges of a type."""
        if type_name not in self._edges:
            source = self._run.edges(type_name)
            self._edges[type_name] = None if source is None else self._edge_table(source)
        return self._edges[type_name]

    def _edge_table(self, source: EdgeSource) -> EdgeTable:
        edge_type = source.entity_type
        src, dst = self.nodes(edge_type.from_type), self.nodes(edge_type.to_type)
        assert src is not None
        assert dst is not None
        is_resolved = (src.locator.rows <= MOST_IDS, dst.locator.rows <= MOST_IDS)
        ends = (src.locator, dst.locator)
        scan = EdgeScan(self._name, *self._locate(source), ends, is_resolved)
        return EdgeTable(self._driver, source, scan, (src, dst), self._hops[edge_type.name] > 1)

    def locators(self) -> Mapping[str, TableLocator]:
        """The table of every variable that has one."""
        info = self._run.info
        nodes = {name: self.nodes(type_name) for name, type_name in info.types.items()}
        edges = {name: self.edges(type_name) for name, type_name in info.edge_types.items()}
        tables = {**nodes, **edges}
        return {name: table.locator for name, table in tables.items() if table is not None}

    def _locate(self, source: NodeSource | EdgeSource) -> tuple[TableLocator, Splits]:
        table = source.table()
        locator = locate_table(self._run.context.store.datasets, table, source.rows)
        return locator, tuple(fragment_groups(table.fragments(), _SPLIT_ROWS))


def _hops(steps: Pipeline) -> Counter[str]:
    """The number of hops along the edges of each type."""
    hops: Counter[str] = Counter()
    for step in all_steps(steps):
        if isinstance(step, Expand | Connect):
            hops[step.edge_type] += step.max_hops
        elif isinstance(step, Intersect):
            hops.update(leg.edge_type for leg in step.legs)
    return hops


class EdgeTable:
    """The edges of one type as row ids; computed once if they are traversed more than once."""

    def __init__(
        self,
        driver: Driver,
        source: EdgeSource,
        scan: EdgeScan,
        ends: tuple[NodeTable, NodeTable],
        is_shared: bool,
    ) -> None:
        self.source = source
        self.locator = scan.locator
        self._driver = driver
        self._scan = scan
        self._ends = ends
        self._is_shared = is_shared
        self._data: DataFrame | None = None

    def data(self) -> DataFrame:
        """Source, target and row id of every edge."""
        if self._data is None:
            scan = self._scan
            data = self._driver.tasks(len(scan.splits), scan.run, scan.schema)
            for end, name in enumerate((SRC, DST)):
                if not scan.is_resolved[end]:
                    data = self._join_ids(data, name, self._ends[end])
            data = data.select(SRC, DST, EDGE)
            self._data = self._driver.checkpoint(data) if self._is_shared else data
        return self._data

    def _join_ids(self, data: DataFrame, name: str, nodes: NodeTable) -> DataFrame:
        """Replace the ids of an end by row ids."""
        scan = IdScan(self._scan.query, nodes.locator, nodes.splits)
        ids = self._driver.tasks(len(scan.splits), scan.run, scan.schema)
        ids = broadcast_if_small(ids, nodes.locator.rows)
        joined = data.withColumnRenamed(name, ID).join(ids, [ID], "left")
        missing = _MISSING.format(id=ID)
        others = [column for column in (SRC, DST, EDGE) if column != name]
        return joined.selectExpr(*others, f"coalesce(number, {missing}) AS {name}")
