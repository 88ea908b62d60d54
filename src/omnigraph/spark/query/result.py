"""Turns the rows of a pipeline into the result: groups, order, limit, values.

A sum of floats depends on the order of addition, which Spark does not guarantee: the last digits of
``sum`` and ``avg`` may differ from run to run. Everything else is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.lang.values.arrow import arrow_type
from omnigraph.plan.live import is_row_count, named_variables
from omnigraph.spark.query.frame import Driver, SparkRows
from omnigraph.spark.query.rows import task_function
from omnigraph.spark.query.work import (
    DOUBLE,
    LONG,
    TEXT,
    WEIGHT,
    Decode,
    EncodedColumn,
    EncodedOutput,
    ResultOutput,
    spark_type,
    unpacked,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from omnigraph.plan.nodes import ReadPlan
    from omnigraph.plan.prepared import PlanInfo
    from omnigraph.spark.query.rows import WorkerQuery
    from omnigraph.spark.query.run import DriverSearches

# Results with at most this many rows are collected by the driver at once.
_FEW = 50_000


class Finish:
    """Order, groups, limit and values of a query."""

    def __init__(self, driver: Driver, plan: ReadPlan, info: PlanInfo) -> None:
        self._driver = driver
        self._plan = plan
        self._info = info
        self._end = None if plan.limit is None else plan.limit + (plan.offset or 0)
        self._types = info.schema.serialize().to_pybytes()

    def batches(
        self, query: WorkerQuery, rows: SparkRows, searches: DriverSearches
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the result, in order; may return more rows than requested."""
        query, rows = self._ranked(query, rows, searches)
        if self._info.is_aggregate or self._plan.distinct:
            data = self._groups(query, rows)
        elif self._plan.order:
            data = self._sorted(query, rows)
        else:
            if self._end is not None and rows.data is not None and not rows.filters:
                # Any rows, up to the limit.
                rows = replace(rows, data=rows.data.limit(self._end))
            data = rows.output(self._driver, query, self._pieces(), self._end)
        for piece in self._collect(data):
            yield from unpacked(piece)

    def _pieces(self) -> ResultOutput:
        return ResultOutput(tuple(column.expr for column in self._plan.columns), self._types)

    def _ranked(
        self, query: WorkerQuery, rows: SparkRows, searches: DriverSearches
    ) -> tuple[WorkerQuery, SparkRows]:
        """Compute fused rankings before rows are dropped: ranks are among all rows."""
        wanted = searches.fusions()
        if not wanted:
            return query, rows
        data = self._driver.checkpoint(rows.numbers(self._driver, query))
        rankings = dict(query.search_results.rankings)
        for expr, limit in wanted.items():
            column = rows.variables[expr.primary.field.variable]
            rows_read = self._driver.run(data.select(column).distinct().toArrow)
            row_ids = rows_read[column].to_numpy().astype(np.int64)
            rankings[expr] = searches.fused(expr, row_ids, limit)
        search_results = replace(query.search_results, rankings=rankings)
        return replace(query, search_results=search_results), SparkRows(rows.variables, data)

    # -- order ---------------------------------------------------------------------------

    def _sorted(self, query: WorkerQuery, rows: SparkRows) -> DataFrame:
        """The rows in the order of the plan; ties by the ids of the variables."""
        items, ways = self._keys()
        data = rows.output(self._driver, query, EncodedOutput(tuple(items), rows.columns))
        if isinstance(self._plan.order[0].expr, typed.Score):
            # A search keeps only its matches.
            data = data.where(f"{items[0].name} IS NOT NULL")
        names = [item.name for item in items]
        data = self._ordered(data, list(zip(names, ways, strict=True)))
        left = data.select(*rows.variables.values(), WEIGHT)
        return SparkRows(rows.variables, left).output(self._driver, query, self._pieces())

    def _keys(self) -> tuple[list[EncodedColumn], list[bool]]:
        """The sort keys, and whether each is descending."""
        plan = self._plan
        first = plan.order[0].expr
        keys = [(plan.meaning(key.expr), key.descending) for key in plan.order]
        if isinstance(first, typed.Score):
            keys[0] = (first, not isinstance(first, typed.Nearest))
        items = [
            EncodedColumn(f"k{number}", expr, spark_type(arrow_type(expr.type)))
            for number, (expr, _) in enumerate(keys)
        ]
        ways = [descending for _, descending in keys]
        if isinstance(first, typed.Rrf):
            items.append(EncodedColumn("rank", first, DOUBLE, is_rank=True))
            ways.append(False)
        for number, name in enumerate(named_variables(plan)):
            expr = typed.Column(name, typed.ID_COLUMN, typed.STRING)
            items.append(EncodedColumn(f"t{number}", expr, TEXT))
            ways.append(False)
        return items, ways

    def _ordered(self, data: DataFrame, keys: list[tuple[str, bool]]) -> DataFrame:
        columns: list[Column] = []
        for name, descending in keys:
            column = self._driver.expr(name)
            columns.append(column.desc_nulls_last() if descending else column.asc_nulls_first())
        data = data.orderBy(*columns)
        return data if self._end is None else data.limit(self._end)

    def _groups(self, query: WorkerQuery, rows: SparkRows) -> DataFrame:
        plan = self._plan
        data, columns = _grouped(self._driver, query, plan, rows)
        if plan.order:
            keys = [(f"g{number}", descending) for number, descending in plan.output_order()]
            plain = [
                (f"g{number}", False)
                for number, column in enumerate(plan.columns)
                if not pa.types.is_nested(arrow_type(column.expr.type))
            ]
            data = self._ordered(data, [*keys, *plain])
        elif self._end is not None:
            data = data.limit(self._end)
        work = Decode(query, tuple(columns), self._types)
        return data.mapInArrow(task_function(work.run), "piece binary")

    # -- to the driver -------------------------------------------------------------------

    def _collect(self, data: DataFrame) -> Iterator[bytes]:
        """The batches in order: collected at once if they are few, else one by one."""
        keys = [c for c in self._plan.columns if not isinstance(c.expr, typed.Aggregate)]
        is_one = self._info.is_aggregate and not keys
        if is_one or (self._end is not None and self._end <= _FEW):
            for row in self._driver.run(data.collect):
                yield bytes(row[0])
            return
        pieces = self._driver.run(self._driver.checkpoint(data).toLocalIterator)
        while (piece := self._driver.run(lambda: next(pieces, None))) is not None:
            yield bytes(piece[0])


def _grouped(
    driver: Driver, query: WorkerQuery, plan: ReadPlan, rows: SparkRows
) -> tuple[DataFrame, list[tuple[str, str | None]]]:
    """The groups of rows, in no particular order, and their columns.

    Returns a Spark column for each column of the result, with the variable whose row id it holds.
    """
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
    return data.select(*(name for name, _ in columns)), columns


def _type(expr: typed.TypedExpr) -> str:
    return spark_type(arrow_type(expr.type))


def _is_sum(expr: typed.Aggregate) -> bool:
    return expr.function in (typed.AggregateFunction.SUM, typed.AggregateFunction.AVG)


def _argument(name: str, expr: typed.Aggregate) -> EncodedColumn | None:
    """The argument of an aggregate; ``None`` if it counts rows."""
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
