"""Tables and expressions in a Spark worker.

Nodes and edges are identified by the row ids of their tables, and values are read on demand, at the
version of the snapshot. The functions of the embedded engine evaluate the expressions (see
``read.values.EvalContext``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.lang.query import typed
from omnigraph.read.frame import Frame, Mask
from omnigraph.read.search.vector import Metric, distances
from omnigraph.read.searches import match_rows, nullable, spread
from omnigraph.read.sources import take_rows
from omnigraph.read.values import EvalContext, keeps
from omnigraph.records import dataclass
from omnigraph.spark.session.failures import carrying
from omnigraph.storage.tables.fragments import TableLocator, open_version
from omnigraph.storage.tables.table import Table
from omnigraph.topology.cache import TableCache

Ints = npt.NDArray[np.int64]
Splits = tuple[tuple[int, ...] | None, ...]
"""The fragments that each task of a scan reads; ``None`` for the whole table."""
BatchWork = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ID, ROW_ID = "id", "_rowid"
LABEL = "query"
# Up to this size, caching a column costs less than reading from the table twice.
_SMALL = 20_000
# A column of a larger table is cached once more than 1/_FRACTION of its rows were read, unless it
# is wider than _WIDEST bytes.
_FRACTION = 8
_WIDEST = 64 << 20
_SAMPLE = 64
Floats = npt.NDArray[np.float64]


class WorkerTable:
    """One table in one worker, during one query."""

    def __init__(self, locator: TableLocator) -> None:
        self._locator = locator
        self._requested: dict[str, int] = {}

    @cached_property
    def table(self) -> Table:
        return open_version(self._locator)

    @cached_property
    def cache(self) -> TableCache:
        return TableCache(self.table)

    def values(self, names: Sequence[str], row_ids: Ints) -> dict[str, pa.Array]:
        """Columns of some rows."""
        cached = [name for name in names if self._is_worth_caching(name, len(row_ids))]
        columns: dict[str, pa.Array] = {}
        if cached:
            positions = pa.array(self.cache.positions(row_ids))
            columns = {name: self.cache.column(name).take(positions) for name in cached}
        rest = [name for name in names if name not in columns]
        return columns | take_rows(self.table, row_ids, rest) if rest else columns

    def scan_splits(
        self,
        batches: Iterable[pa.RecordBatch],
        splits: Splits,
        columns: Sequence[str],
        condition: Any = None,
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """For each split whose number is in the input: its rows, with their row ids."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self.table.scan(columns, condition, row_ids=True, fragments=splits[number])

    def _is_worth_caching(self, name: str, count: int) -> bool:
        rows = self._locator.rows
        if rows <= _SMALL or self.cache.has(name):
            return True
        requested = self._requested[name] = self._requested.get(name, 0) + count
        return requested * _FRACTION > rows and self._width(name) * rows <= _WIDEST

    def _width(self, name: str) -> int:
        sample = self.table.read([name], limit=_SAMPLE)
        return int(sample.nbytes // max(sample.num_rows, 1)) + 1


_last: tuple[str, dict[tuple[str, int], WorkerTable]] = ("", {})
"""The tables that this worker opened for its last query."""


def worker_table(query: str, locator: TableLocator) -> WorkerTable:
    """A table, opened once in a query.

    Nothing is kept for the next query: a recreated branch may have other rows under the same
    version.
    """
    global _last
    if _last[0] != query:
        _last = (query, {})
    tables = _last[1]
    key = (locator.uri, locator.version)
    if key not in tables:
        tables[key] = WorkerTable(locator)
    return tables[key]


def row_ids_of(batch: pa.RecordBatch | pa.Table) -> Ints:
    """The row ids of scanned rows."""
    row_ids: Ints = batch[ROW_ID].to_numpy().astype(np.int64)
    return row_ids


def task_function(run: BatchWork) -> BatchWork:
    """A function for ``mapInArrow`` whose typed errors reach the driver."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run(batches)

    return carrying(work, LABEL)


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The matches of a search, sorted by row id: scores, and ranks to break ties."""

    row_ids: npt.NDArray[np.int64]
    scores: Floats
    ranks: Floats | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    """The query vector of a search, and its metric."""

    values: tuple[float, ...] | None
    metric: Metric


@dataclass(frozen=True, slots=True)
class SearchResults:
    """Results of searches that the driver computed for the workers."""

    rankings: Mapping[typed.TypedExpr, Ranking] = field(default_factory=dict)
    vectors: Mapping[typed.TypedExpr, Vector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerQuery:
    """What the driver sends to every worker of a query."""

    name: str
    tables: Mapping[str, TableLocator]
    """The table of each variable; ``None`` for a type that the snapshot does not have."""
    edges: frozenset[str]
    """Which variables are edges."""
    search_results: SearchResults = SearchResults()


class WorkerRun(EvalContext):
    """The context of one task of a query."""

    def __init__(self, query: WorkerQuery) -> None:
        self.query = query
        self.types: Mapping[str, str] = {}

    @cached_property
    def searches(self) -> _Searches:
        return _Searches(self)

    def frame(self, rows: int, numbers: Mapping[str, Any], weights: Any = None) -> Frame:
        """A frame of row ids, without values."""
        edges = self.query.edges
        return Frame(
            rows,
            {name: row_ids for name, row_ids in numbers.items() if name not in edges},
            {name: row_ids for name, row_ids in numbers.items() if name in edges},
            weights=weights,
        )

    def table(self, variable: str) -> WorkerTable:
        locator = self.query.tables.get(variable)
        if locator is None:
            raise InternalError(f"${variable} has rows, but its type has no table")
        return worker_table(self.query.name, locator)

    def read_columns(
        self, frame: Frame, variable: str, names: Sequence[str]
    ) -> dict[str, pa.Array]:
        return self.table(variable).values(names, row_ids_in(frame, variable))

    def codes(self, frame: Frame, expr: typed.TypedExpr, *, few: bool = False) -> None:
        """No dictionary codes: values are compared directly."""
        return

    def keeps(self, frame: Frame, condition: typed.TypedExpr) -> Mask:
        """The mask of rows for which a condition is true."""
        self.fetch(frame, [condition])
        return keeps(self, frame, condition)


def row_ids_in(frame: Frame, variable: str) -> npt.NDArray[np.int64]:
    """The row ids of a variable."""
    columns: Any = frame.edges if variable in frame.edges else frame.nodes
    row_ids: npt.NDArray[np.int64] = columns[variable]
    return row_ids


class _Searches:
    """Searches by row: words are matched here, rankings come from the driver."""

    def __init__(self, run: WorkerRun) -> None:
        self._run = run

    def matches(self, frame: Frame, expr: typed.TextMatch, *, exact: bool) -> Any:
        return match_rows(self._run, frame, expr)

    def distances(self, frame: Frame, expr: typed.Nearest) -> pa.Array:
        vector = self._run.query.search_results.vectors[expr]
        if vector.values is None or not frame.rows:
            return pa.nulls(frame.rows, pa.float64())
        name, variable = expr.field.name, expr.field.variable
        rows = row_ids_in(frame, variable).astype(np.uint64)
        table = self._run.table(variable).table
        return nullable(distances(table, name, vector.values, rows, metric=vector.metric))

    def scores(self, frame: Frame, expr: typed.Bm25) -> pa.Array:
        return self._spread(frame, expr, expr.field.variable)

    def fused(self, frame: Frame, expr: typed.Rrf) -> pa.Array:
        return self._spread(frame, expr, expr.primary.field.variable)

    def ranks(self, frame: Frame, expr: typed.Rrf) -> pa.Array:
        """The order of rows with equal scores."""
        return self._spread(frame, expr, expr.primary.field.variable, by_rank=True)

    def _spread(
        self, frame: Frame, expr: typed.Score, variable: str, *, by_rank: bool = False
    ) -> pa.Array:
        ranking = self._run.query.search_results.rankings[expr]
        values = ranking.ranks if by_rank else ranking.scores
        assert values is not None
        return spread(ranking.row_ids, values, row_ids_in(frame, variable))
