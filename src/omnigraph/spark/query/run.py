"""Runs a bound plan on Spark: the same rows in the same order as the embedded engine.

Search scores depend on a whole table and ranks on all rows of the query, so the driver computes
them once and sends them to the workers. Distances and word matches depend on one row: the workers
compute them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import LimitExceeded, SparkError
from omnigraph.lang.query import typed
from omnigraph.plan.nodes import NodeScan, ReadPlan
from omnigraph.read.engine import ResultWindow
from omnigraph.read.frame import Frame
from omnigraph.read.run import Run
from omnigraph.read.search.vector import metric_of
from omnigraph.spark.query.frame import Driver, SparkRows
from omnigraph.spark.query.result import Finish
from omnigraph.spark.query.rows import LABEL, Ranking, SearchResults, Vector, WorkerQuery
from omnigraph.spark.query.sources import SparkTables
from omnigraph.spark.query.steps import Steps
from omnigraph.spark.query.work import WEIGHT
from omnigraph.spark.session.failures import ROWS_LOST, translated

if TYPE_CHECKING:
    from omnigraph.plan.prepared import PlanInfo
    from omnigraph.read.context import QueryContext
    from omnigraph.read.limits import ResourceGuard
    from omnigraph.spark.session.engine import SparkEngine

_ATTEMPTS = 4
_LIBRARIES = ("pyspark", "py4j", "grpc")
MOST_HITS = 4_000_000
"""The maximum number of scores that are sent to the workers."""
RowIds = npt.NDArray[np.int64]


def execute_on_spark(
    engine: SparkEngine, context: QueryContext, plan: ReadPlan, info: PlanInfo, guard: ResourceGuard
) -> Iterator[pa.RecordBatch]:
    """The batches of the result. The tables are those of the snapshot, resolved here, once."""
    if plan.limit == 0:
        return
    window = ResultWindow(plan, guard)
    for rows in _in_attempts(engine, context, plan, info, guard):
        batch = window.clip(rows)
        if batch is not None:
            yield batch
        if window.is_full:
            return


def _in_attempts(
    engine: SparkEngine, context: QueryContext, plan: ReadPlan, info: PlanInfo, guard: ResourceGuard
) -> Iterator[pa.RecordBatch]:
    """The rows of the plan, restarted if an executor died with checkpointed rows.

    Spark repeats the tasks of a lost executor, but cannot recompute checkpointed rows. Rows that
    the caller already has are skipped, which needs a deterministic order.
    """
    given = 0
    for attempt in range(1, _ATTEMPTS + 1):
        passed = given
        try:
            for batch in _translating(_rows(engine, context, plan, info, guard)):
                new = batch.slice(min(passed, batch.num_rows))
                passed -= batch.num_rows - new.num_rows
                given += new.num_rows
                if new.num_rows:
                    yield new
            return
        except SparkError as error:
            is_lost = ROWS_LOST in str(error.__cause__)
            if not is_lost or attempt == _ATTEMPTS or (given and not _has_order(plan, info)):
                raise


def _has_order(plan: ReadPlan, info: PlanInfo) -> bool:
    """Whether the order of the rows is deterministic."""
    if not plan.order:
        return False
    # Groups are not ordered by their lists.
    is_grouped = info.is_aggregate or plan.distinct
    return not (is_grouped and any(pa.types.is_nested(field.type) for field in info.schema))


def _translating(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; errors that PySpark raises while it plans are translated."""
    try:
        yield from batches
    except Exception as error:
        if type(error).__module__.partition(".")[0] in _LIBRARIES:
            failure = translated(error, LABEL)
            raise failure from failure.__cause__
        raise


def _rows(
    engine: SparkEngine, context: QueryContext, plan: ReadPlan, info: PlanInfo, guard: ResourceGuard
) -> Iterator[pa.RecordBatch]:
    driver = Driver(engine, guard)
    # Workers keep their tables for this query.
    name = uuid.uuid4().hex
    run = Run(context, guard, info)
    tables, searches = SparkTables(driver, run, name, plan), DriverSearches(run, plan)
    edges = frozenset(info.edge_types)
    query = WorkerQuery(name, tables.locators(), edges, searches.search_results())
    steps = Steps(driver, query, tables)
    rows = _nearest(driver, plan, searches)
    if rows is None:
        rows = steps.pipeline(plan.pipeline, info.live, SparkRows(), weighted=info.needs_counts)
    yield from Finish(driver, plan, info).batches(query, rows, searches)


def _nearest(driver: Driver, plan: ReadPlan, searches: DriverSearches) -> SparkRows | None:
    """The rows of a pure vector search, in the form of scanned rows."""
    row_ids = searches.nearest_rows()
    if row_ids is None:
        return None
    (step,) = plan.pipeline
    assert isinstance(step, NodeScan)
    ones = np.ones(len(row_ids), np.int64)
    table = pa.table({"c0": row_ids, WEIGHT: ones})
    data = driver.run(lambda: driver.engine.session.createDataFrame(table))
    return SparkRows({step.variable: "c0"}, data)


class DriverSearches:
    """The searches of the embedded engine, by row id."""

    def __init__(self, run: Run, plan: ReadPlan) -> None:
        self._run = run
        self._plan = plan

    def search_results(self) -> SearchResults:
        """The results that do not depend on the rows of the query."""
        rankings: dict[typed.TypedExpr, Ranking] = {}
        vectors: dict[typed.TypedExpr, Vector] = {}
        for expr in self._parts():
            if isinstance(expr, typed.Nearest) and expr not in vectors:
                source = self._run.source(expr.field.variable)
                if source is not None:
                    metric = metric_of(source.entity_type.properties[expr.field.name])
                    vectors[expr] = Vector(self._run.searches.vector(expr), metric)
            elif isinstance(expr, typed.Bm25) and expr not in rankings:
                rankings[expr] = self._scored(expr)
        return SearchResults(rankings, vectors)

    def fusions(self) -> dict[typed.Rrf, int | None]:
        """The fused rankings of the plan, with the limit of each."""
        plan = self._plan
        end = None if plan.limit is None else plan.limit + (plan.offset or 0)
        grouped = self._run.info.is_aggregate or plan.distinct
        first = plan.meaning(plan.order[0].expr) if plan.order and not grouped else None
        return {
            expr: end if expr == first else None
            for expr in self._parts()
            if isinstance(expr, typed.Rrf)
        }

    def fused(self, expr: typed.Rrf, row_ids: RowIds, limit: int | None) -> Ranking:
        """The ranks of rows among themselves."""
        variable = expr.primary.field.variable
        rows = np.sort(row_ids)
        frame = Frame(len(rows))
        if variable in self._run.edge_types:
            frame.edges[variable] = rows
        else:
            nodes = self._run.nodes(self._run.types[variable])
            if nodes is not None:
                frame.nodes[variable] = nodes.index().numbers_of_rows(rows.astype(np.uint64))
        if not len(rows):
            return Ranking(rows, np.empty(0), np.empty(0))
        score, rank = self._run.searches.order(frame, expr, limit)
        is_match = score.values.is_valid().to_numpy(zero_copy_only=False)
        scores, ranks = score.values.drop_null(), rank.values.drop_null()
        return self._sent(Ranking(rows[is_match], scores.to_numpy(), ranks.to_numpy()))

    def nearest_rows(self) -> RowIds | None:
        """The rows of a plan that is a pure vector search, from the vector index; else ``None``."""
        row_ids = self._run.searches.nearest_rows(self._plan)
        return None if row_ids is None else row_ids.astype(np.int64)

    def _parts(self) -> Iterator[typed.TypedExpr]:
        for expr in self._plan.exprs():
            yield from typed.walk(expr)

    def _scored(self, expr: typed.Bm25) -> Ranking:
        if self._run.source(expr.field.variable) is None:
            return Ranking(np.empty(0, np.int64), np.empty(0))
        hits = self._run.searches.scored(expr)
        order = np.argsort(hits.row_ids)
        return self._sent(Ranking(hits.row_ids[order].astype(np.int64), hits.scores[order]))

    def _sent(self, ranking: Ranking) -> Ranking:
        if len(ranking.row_ids) > MOST_HITS:
            raise LimitExceeded(
                f"a search matches {len(ranking.row_ids):,} rows; at most {MOST_HITS:,} can be "
                "sent to Spark",
                hint="search for rarer words, or run the query with engine='local'",
            )
        return ranking
