"""Runs a bound plan on Spark: the same rows in the same order as the embedded engine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.errors import SparkError
from omnigraph.plan.nodes import NodeScan
from omnigraph.read.engine import ResultWindow
from omnigraph.read.run import Run
from omnigraph.spark.query.frame import Driver, SparkRows
from omnigraph.spark.query.result import Finish
from omnigraph.spark.query.rows import WorkerQuery
from omnigraph.spark.query.searches import DriverSearches
from omnigraph.spark.query.sources import SparkTables
from omnigraph.spark.query.steps import Steps
from omnigraph.spark.query.tables import LABEL
from omnigraph.spark.query.work import WEIGHT
from omnigraph.spark.session.failures import ROWS_LOST, translated

if TYPE_CHECKING:
    from omnigraph.plan.nodes import ReadPlan
    from omnigraph.plan.prepared import PlanInfo
    from omnigraph.read.context import QueryContext
    from omnigraph.read.limits import ResourceGuard
    from omnigraph.spark.session.engine import SparkEngine

_ATTEMPTS = 4
_LIBRARIES = ("pyspark", "py4j", "grpc")


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
