"""The rows of a query on the driver: a frame of Spark, or a pass of the workers that is to come.

Scans and conditions wait until somebody needs the rows, so that they are one pass together with
what comes behind them. Rows are different from each other in their variables; how often one counts
stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.errors import LimitExceeded, SparkError
from omnigraph.lang.query import typed
from omnigraph.spark.query.rows import Query
from omnigraph.spark.query.work import (
    LABEL,
    WEIGHT,
    Columns,
    Given,
    Numbers,
    Output,
    RowWork,
    Scan,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from omnigraph.read.limits import ResourceGuard
    from omnigraph.spark.session.engine import SparkEngine

T = TypeVar("T")
# Spark knows no sizes of what Python reads; frames of so few rows go to every worker.
MOST_BROADCAST = 100_000
_OVERFLOW = "ARITHMETIC_OVERFLOW"


class Driver:
    """Spark for one query: every action can be ended by the limits of the query."""

    def __init__(self, engine: SparkEngine, guard: ResourceGuard) -> None:
        self.engine = engine
        self.guard = guard
        self._held: list[DataFrame] = []

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

    def kept(self, data: DataFrame) -> DataFrame:
        """The rows, computed now and once: what is built on them starts from here."""

        def computed() -> DataFrame:
            if self.engine.is_connect:
                # PySpark gives what comes back to the active session of the thread: this one is
                # of the action alone.
                session: Any = self.engine.session
                type(session)._active_session.session = session
            # New names for the columns, as Spark sees it: it confuses those of what was computed
            # with those of what it was computed from when the two are joined.
            return data.localCheckpoint(eager=True).toDF(*data.columns)

        found = self.run(computed)
        # Spark Connect forgets rows that nobody holds, whatever is built on them.
        self._held.append(found)
        return found

    def tasks(
        self,
        count: int,
        work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: str,
    ) -> DataFrame:
        """What so many tasks give, each of which is told its number."""
        return self.engine.session.range(0, count, 1, max(count, 1)).mapInArrow(work, schema)

    def expr(self, text: str) -> Column:
        """A column by its text, for whichever Spark this is."""
        functions: Any
        if self.engine.is_connect:
            from pyspark.sql.connect import functions
        else:
            from pyspark.sql import functions
        found: Column = functions.expr(text)
        return found


def near(data: DataFrame, rows: int) -> DataFrame:
    """A frame that is joined: sent to every worker if it is small."""
    return data.hint("broadcast") if rows <= MOST_BROADCAST else data


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows by their variables."""

    variables: dict[str, str] = field(default_factory=dict)
    """For each variable the column with its row ids."""
    data: DataFrame | None = None
    scan: Scan | None = None
    filters: tuple[typed.TypedExpr, ...] = ()
    """Conditions that are still to be looked at."""

    @property
    def columns(self) -> Columns:
        return tuple(self.variables.items())

    @property
    def is_unit(self) -> bool:
        """Whether nothing was bound yet: one row of nothing."""
        return self.data is None and self.scan is None

    def where(self, conditions: Sequence[typed.TypedExpr]) -> Rows:
        return replace(self, filters=(*self.filters, *conditions)) if conditions else self

    def output(
        self, driver: Driver, query: Query, output: Output, most: int | None = None
    ) -> DataFrame:
        """What the workers make of the rows in one pass."""
        if self.scan is not None:
            work = RowWork(query, self.scan, self.filters, output, most)
            return driver.tasks(len(self.scan.shares), work.function(), output.schema)
        data = self._data(driver)
        work = RowWork(query, Given(self.columns), self.filters, output, most)
        return data.mapInArrow(work.function(), output.schema)

    def numbers(self, driver: Driver, query: Query) -> DataFrame:
        """The rows as a frame of Spark."""
        if self.scan is None and not self.filters:
            return self._data(driver)
        return self.output(driver, query, Numbers(self.columns))

    def _data(self, driver: Driver) -> DataFrame:
        if self.data is not None:
            return self.data
        return driver.engine.session.range(1).selectExpr(f"CAST(1 AS BIGINT) AS {WEIGHT}")
