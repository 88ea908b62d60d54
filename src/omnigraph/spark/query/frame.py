"""The rows of a query on the driver: a Spark DataFrame, or a pass of the workers still to run.

Scans and conditions are deferred until the rows are needed, so that they run in one pass with the
next step. Rows are distinct in their variables; the weight is the number of occurrences.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.errors import LimitExceeded, SparkError
from omnigraph.lang.query import typed
from omnigraph.records import dataclass
from omnigraph.spark.query.rows import LABEL, BatchWork, WorkerQuery, task_function
from omnigraph.spark.query.work import (
    WEIGHT,
    Columns,
    FrameRows,
    RowIdOutput,
    RowOutput,
    RowWork,
    TableScan,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from omnigraph.read.limits import ResourceGuard
    from omnigraph.spark.session.engine import SparkEngine

T = TypeVar("T")
# Spark cannot estimate the size of rows read by Python; frames up to this many rows are broadcast.
MOST_BROADCAST = 100_000
_OVERFLOW = "ARITHMETIC_OVERFLOW"


class Driver:
    """Runs Spark actions for one query, within the limits of the query."""

    def __init__(self, engine: SparkEngine, guard: ResourceGuard) -> None:
        self.engine = engine
        self.guard = guard
        self._checkpoints: list[DataFrame] = []

    def run(self, action: Callable[[], T]) -> T:
        try:
            return self.engine.run(action, LABEL, check=self.guard.check)
        except SparkError as error:
            if _OVERFLOW in str(error.__cause__):
                raise LimitExceeded(
                    "the pattern has more rows than 64 bits can count",
                    hint="narrow it, or count something distinct",
                ) from error
            raise

    def checkpoint(self, data: DataFrame) -> DataFrame:
        """Compute rows now, so that dependent frames do not recompute them."""

        def computed() -> DataFrame:
            if self.engine.is_connect:
                # PySpark attaches the result to the active session of the thread: this one belongs
                # only to the action.
                session: Any = self.engine.session
                type(session)._active_session.session = session
            # New attribute ids for the columns: in a join of a checkpoint with its own source,
            # Spark would confuse the columns of the two.
            return data.localCheckpoint(eager=True).toDF(*data.columns)

        rows = self.run(computed)
        # Spark Connect frees unreferenced checkpoints, even if other frames are built on them.
        self._checkpoints.append(rows)
        return rows

    def tasks(self, count: int, work: BatchWork, schema: str) -> DataFrame:
        """The output of ``count`` tasks, each called with its number."""
        numbers = self.engine.session.range(0, count, 1, max(count, 1))
        return numbers.mapInArrow(task_function(work), schema)

    def expr(self, text: str) -> Column:
        """A column expression for this kind of Spark session."""
        functions: Any
        if self.engine.is_connect:
            from pyspark.sql.connect import functions
        else:
            from pyspark.sql import functions
        column: Column = functions.expr(text)
        return column


def broadcast_if_small(data: DataFrame, rows: int) -> DataFrame:
    """A frame to join: broadcast if it is small."""
    return data.hint("broadcast") if rows <= MOST_BROADCAST else data


@dataclass(frozen=True, slots=True)
class SparkRows:
    """The rows of a pipeline, by variable."""

    variables: dict[str, str] = field(default_factory=dict)
    """For each variable the column with its row ids."""
    data: DataFrame | None = None
    scan: TableScan | None = None
    filters: tuple[typed.TypedExpr, ...] = ()
    """Conditions not yet evaluated."""

    @property
    def columns(self) -> Columns:
        return tuple(self.variables.items())

    def where(self, conditions: Sequence[typed.TypedExpr]) -> SparkRows:
        return replace(self, filters=(*self.filters, *conditions)) if conditions else self

    def output(
        self, driver: Driver, query: WorkerQuery, output: RowOutput, most: int | None = None
    ) -> DataFrame:
        """Evaluate an output for the rows in one pass of the workers."""
        if self.scan is not None:
            work = RowWork(query, self.scan, self.filters, output, most)
            return driver.tasks(len(self.scan.splits), work.run, output.schema)
        data = self._data(driver)
        work = RowWork(query, FrameRows(self.columns), self.filters, output, most)
        return data.mapInArrow(task_function(work.run), output.schema)

    def numbers(self, driver: Driver, query: WorkerQuery) -> DataFrame:
        """The rows as a frame of Spark."""
        if self.scan is None and not self.filters:
            return self._data(driver)
        return self.output(driver, query, RowIdOutput(self.columns))

    def _data(self, driver: Driver) -> DataFrame:
        if self.data is not None:
            return self.data
        return driver.engine.session.range(1).selectExpr(f"CAST(1 AS BIGINT) AS {WEIGHT}")
