"""A bound plan on Spark: the same rows in the same order as the embedded engine gives."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.plan.nodes import NodeScan
from omnigraph.read.run import Run
from omnigraph.spark.failures import translated
from omnigraph.spark.query.frame import Driver, Rows
from omnigraph.spark.query.result import Finish
from omnigraph.spark.query.rows import Query
from omnigraph.spark.query.searches import DriverSearches
from omnigraph.spark.query.sources import Sources
from omnigraph.spark.query.steps import Steps
from omnigraph.spark.query.work import LABEL, WEIGHT

if TYPE_CHECKING:
    from omnigraph.plan.nodes import ReadPlan
    from omnigraph.plan.prepared import Outline
    from omnigraph.read.limits import Watch
    from omnigraph.read.run import Surroundings
    from omnigraph.spark.session import SparkEngine

_LIBRARIES = ("pyspark", "py4j", "grpc")


def execute_on_spark(
    engine: SparkEngine, around: Surroundings, plan: ReadPlan, outline: Outline, watch: Watch
) -> Iterator[pa.RecordBatch]:
    """The batches of the result. The tables are those of the snapshot, resolved here, once."""
    if plan.limit == 0:
        return
    start = plan.offset or 0
    end = None if plan.limit is None else start + plan.limit
    count = 0
    for batch in _translating(_rows(engine, around, plan, outline, watch)):
        first = max(start - count, 0)
        last = batch.num_rows if end is None else min(end - count, batch.num_rows)
        watch.check()
        count += batch.num_rows
        if last > first:
            watch.result(count if end is None else min(count, end) - start)
            yield batch.slice(first, last - first)
        if end is not None and count >= end:
            return


def _translating(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; what PySpark raises while a plan is made is one of our errors too."""
    try:
        yield from batches
    except Exception as error:
        if type(error).__module__.partition(".")[0] in _LIBRARIES:
            raise translated(error, LABEL) from None
        raise


def _rows(
    engine: SparkEngine, around: Surroundings, plan: ReadPlan, outline: Outline, watch: Watch
) -> Iterator[pa.RecordBatch]:
    driver = Driver(engine, watch)
    # What workers keep of tables belongs to this query.
    name = uuid.uuid4().hex
    sources = Sources(driver, around, name, plan)
    searches = DriverSearches(Run(around, watch, outline), plan)
    tables, edges = sources.variables(outline), frozenset(outline.edge_types)
    query = Query(name, tables, edges, searches.findings())
    steps = Steps(driver, query, sources)
    rows = _nearest(driver, plan, searches)
    if rows is None:
        rows = steps.pipeline(plan.pipeline, outline.live, Rows(), weighted=outline.needs_counts)
    yield from Finish(driver, plan, outline).batches(query, rows, searches)


def _nearest(driver: Driver, plan: ReadPlan, searches: DriverSearches) -> Rows | None:
    """The rows that a vector index found, as they would come out of the scan."""
    row_ids = searches.nearest_rows()
    if row_ids is None:
        return None
    (step,) = plan.pipeline
    assert isinstance(step, NodeScan)
    ones = np.ones(len(row_ids), np.int64)
    table = pa.table({"c0": row_ids, WEIGHT: ones})
    data = driver.run(lambda: driver.engine.session.createDataFrame(table))
    return Rows({step.variable: "c0"}, data)
