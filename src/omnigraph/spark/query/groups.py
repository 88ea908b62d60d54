"""Groups on Spark: keys and arguments as columns, aggregates as Spark computes them.

A sum of floats depends on the order of addition, which Spark does not promise: the last digits of
``sum`` and ``avg`` may differ from run to run. Everything else is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.lang.query import typed
from omnigraph.lang.values.arrow import arrow_type
from omnigraph.plan.live import is_row_count
from omnigraph.spark.query.encode import DOUBLE, LONG, spark_type
from omnigraph.spark.query.tables import task_function
from omnigraph.spark.query.work import WEIGHT, Decode, EncodedColumn, EncodedOutput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.plan.nodes import ReadPlan
    from omnigraph.spark.query.frame import Driver, SparkRows
    from omnigraph.spark.query.rows import WorkerQuery


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """The groups of a plan; a column of Spark for each column of the result."""

    data: DataFrame
    columns: tuple[tuple[str, str | None], ...]
    """Their names, each with the variable whose row id it holds."""

    def decode(self, query: WorkerQuery, types: bytes) -> DataFrame:
        """The rows of the result, in the order of the groups."""
        work = Decode(query, self.columns, types)
        return self.data.mapInArrow(task_function(work.run), "piece binary")


def grouped(driver: Driver, query: WorkerQuery, plan: ReadPlan, rows: SparkRows) -> GroupedRows:
    """The groups of rows, in no particular order."""
    keys: list[EncodedColumn] = []
    arguments: list[EncodedColumn] = []
    sums: set[str] = set()
    totals: list[str] = []
    columns: list[tuple[str, str | None]] = []
    for number, column in enumerate(plan.columns):
        name, expr = f"g{number}", column.expr
        variable = None
        if isinstance(expr, typed.Aggregate):
            argument = _argument(f"x{number}", expr)
            if argument is not None:
                arguments.append(argument)
                if _is_sum(expr):
                    sums.add(argument.name)
            totals.append(f"{_total(f'x{number}', expr)} AS {name}")
        else:
            # Entities are grouped by row id, unless the groups are sorted by their ids.
            is_number = isinstance(expr, typed.Entity) and not plan.order
            keys.append(EncodedColumn(name, expr, LONG if is_number else _type(expr), is_number))
            if is_number and isinstance(expr, typed.Entity):
                variable = expr.variable
        columns.append((name, variable))
    values = EncodedOutput((*keys, *arguments), sums=frozenset(sums))
    data = rows.output(driver, query, values)
    names = [key.name for key in keys]
    if totals:
        data = data.groupBy(*names).agg(*map(driver.expr, totals))
    else:
        data = data.select(*names).distinct()
    return GroupedRows(data.select(*(name for name, _ in columns)), tuple(columns))


def _type(expr: typed.TypedExpr) -> str:
    return spark_type(arrow_type(expr.type))


def _is_sum(expr: typed.Aggregate) -> bool:
    return expr.function in (typed.AggregateFunction.SUM, typed.AggregateFunction.AVG)


def _argument(name: str, expr: typed.Aggregate) -> EncodedColumn | None:
    """The argument of an aggregate; none if it counts rows."""
    if is_row_count(expr):
        return None
    if isinstance(expr.arg, typed.Entity):
        return EncodedColumn(name, expr.arg, LONG, is_number=True)
    return EncodedColumn(name, expr.arg, DOUBLE if _is_sum(expr) else _type(expr.arg))


def _total(x: str, expr: typed.Aggregate) -> str:
    """An aggregate as a Spark SQL expression."""
    count = f"coalesce(sum(IF({x} IS NULL, 0, {WEIGHT})), 0)"
    match expr.function:
        case typed.AggregateFunction.COUNT if is_row_count(expr):
            return f"coalesce(sum({WEIGHT}), 0)"
        case typed.AggregateFunction.COUNT:
            return f"count(DISTINCT {x})" if expr.distinct else count
        case typed.AggregateFunction.MIN:
            return f"min({x})"
        case typed.AggregateFunction.MAX:
            return f"max({x})"
    total = f"sum({x} * {WEIGHT})"
    if expr.function is typed.AggregateFunction.SUM:
        return total
    return f"{total} / nullif({count}, 0)"
