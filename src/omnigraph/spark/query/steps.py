"""The steps of a pipeline on frames of Spark; see ``read.run`` for what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import InternalError
from omnigraph.plan.arrow import pushable
from omnigraph.plan.live import live_after, used
from omnigraph.plan.nodes import AntiJoin, Connect, Expand, NodeScan, PlanStep, RowFilter
from omnigraph.spark.query.frame import Driver, Rows, near
from omnigraph.spark.query.rows import Query
from omnigraph.spark.query.sources import Sources
from omnigraph.spark.query.walk import Walk
from omnigraph.spark.query.work import WEIGHT, Scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Steps:
    """Runs the pipeline of one query."""

    def __init__(self, driver: Driver, query: Query, sources: Sources) -> None:
        self._driver = driver
        self._query = query
        self._sources = sources
        self._columns: dict[str, str] = {}

    def pipeline(
        self,
        steps: Sequence[PlanStep],
        live: Sequence[frozenset[str]],
        rows: Rows,
        *,
        weighted: bool,
    ) -> Rows:
        """Run steps one after the other; ``weighted`` is whether it matters how often rows are."""
        for place, (step, kept) in enumerate(zip(steps, live, strict=True)):
            self._driver.guard.check()
            rows = self._step(step, rows)
            if place + 1 < len(steps):
                rows = self._tidy(rows, kept, weighted)
        return rows

    def numbers(self, rows: Rows) -> DataFrame:
        return rows.numbers(self._driver, self._query)

    def _column(self, variable: str) -> str:
        return self._columns.setdefault(variable, f"c{len(self._columns)}")

    def _step(self, step: PlanStep, rows: Rows) -> Rows:
        match step:
            case NodeScan():
                return self._product(rows, self._scan(step))
            case Expand():
                return self._expand(step, rows)
            case Connect():
                return self._connect(step, rows)
            case RowFilter():
                return rows.where([step.condition])
            case AntiJoin():
                return self._without(step, rows)
            case _:
                raise InternalError(f"Spark does not know {type(step).__name__}")

    def _tidy(self, rows: Rows, live: frozenset[str], weighted: bool) -> Rows:
        """Where one variable is left, or none, equal rows become one that counts more."""
        kept = {name: column for name, column in rows.variables.items() if name in live}
        if len(kept) == len(rows.variables) or len(kept) > 1:
            return rows
        data = self.numbers(rows)
        names = list(kept.values())
        if not weighted:
            once = data.selectExpr(*names, f"CAST(1 AS BIGINT) AS {WEIGHT}")
            return Rows(kept, once.distinct())
        total = self._driver.expr(f"coalesce(sum({WEIGHT}), 0) AS {WEIGHT}")
        return Rows(kept, data.groupBy(*names).agg(total).where(f"{WEIGHT} > 0"))

    # -- scans ---------------------------------------------------------------------------

    def _scan(self, step: NodeScan) -> Rows:
        variables = {step.variable: self._column(step.variable)}
        source = self._sources.nodes(step.type_name)
        if source is None or not source.at.rows:
            return Rows(variables, self._nothing(variables))
        pushed = tuple(each for each in step.filters if pushable(each))
        others = tuple(each for each in step.filters if not pushable(each))
        scan = Scan(step.variable, source.at, source.shares(pushed), pushed)
        return Rows(variables, scan=scan, filters=others)

    def _nothing(self, variables: dict[str, str]) -> DataFrame:
        names = [*variables.values(), WEIGHT]
        return self._driver.engine.session.range(0).selectExpr(*(f"id AS {n}" for n in names))

    def _none(self, rows: Rows, *new: str | None) -> Rows:
        """No row, with new variables."""
        more = {name: self._column(name) for name in new if name is not None}
        variables = {**rows.variables, **more}
        return Rows(variables, self._nothing(variables))

    def _product(self, rows: Rows, scanned: Rows) -> Rows:
        if rows.is_unit and not rows.filters:
            return scanned
        size = 0 if scanned.scan is None else scanned.scan.at.rows
        other = self.numbers(scanned).withColumnRenamed(WEIGHT, "w2")
        data = self.numbers(rows).crossJoin(near(other, size))
        variables = {**rows.variables, **scanned.variables}
        both = f"{WEIGHT} * w2 AS {WEIGHT}"
        return Rows(variables, data.selectExpr(*variables.values(), both))

    # -- along edges ---------------------------------------------------------------------

    def _expand(self, step: Expand, rows: Rows) -> Rows:
        walk = self._walk(step)
        if walk is None:
            return self._none(rows, step.dst, step.edge_variable)
        src, dst = rows.variables[step.src], self._column(step.dst)
        variables = {**rows.variables, step.dst: dst}
        data = self.numbers(rows)
        if step.edge_variable is not None:
            edge = variables[step.edge_variable] = self._column(step.edge_variable)
            data = data.join(walk.edges(src, dst, edge), [src])
        elif walk.max_hops == 1:
            data = data.join(walk.edges(src, dst), [src]).dropDuplicates([*variables.values()])
        else:
            data = self._driver.kept(data)
            data = data.join(walk.all_reached(data.select(src), src, dst), [src])
        data = data.where(f"{dst} >= 0").select(*variables.values(), WEIGHT)
        found = Rows(variables, data)
        if step.dst_filters:
            found = self._passing(step, found, dst)
        return found.where(step.edge_filters)

    def _walk(self, step: Expand | Connect) -> Walk | None:
        edges = self._sources.edges(step.edge_type)
        if edges is None or not edges.rows or step.min_hops > edges.hops(step):
            return None
        return Walk(self._driver, edges, step, edges.hops(step))

    def _passing(self, step: Expand, rows: Rows, dst: str) -> Rows:
        """The rows whose target passes the conditions of the step: judged by a scan."""
        scanned = self._scan(NodeScan(step.dst, step.dst_type, step.dst_filters))
        size = 0 if scanned.scan is None else scanned.scan.at.rows
        good = self.numbers(scanned).select(dst)
        data = self.numbers(rows).join(near(good, size), [dst], "left_semi")
        return replace(rows, data=data)

    def _connect(self, step: Connect, rows: Rows) -> Rows:
        walk = self._walk(step)
        if walk is None:
            return self._none(rows, step.edge_variable)
        src, dst = rows.variables[step.src], rows.variables[step.dst]
        data = self.numbers(rows)
        if src == dst:
            # The same variable on both sides: Spark joins by names, which must differ.
            data = data.selectExpr("*", f"{src} AS same")
            dst = "same"
        variables = dict(rows.variables)
        if step.edge_variable is not None:
            edge = variables[step.edge_variable] = self._column(step.edge_variable)
            data = data.join(walk.edges(src, dst, edge), [src, dst])
        elif walk.max_hops == 1:
            data = data.join(walk.edges(src, dst), [src, dst], "left_semi")
        else:
            data = self._driver.kept(data)
            pairs = walk.all_reached(data.select(src), src, dst)
            data = data.join(pairs, [src, dst], "left_semi")
        data = data.select(*variables.values(), WEIGHT)
        return Rows(variables, data).where(step.edge_filters)

    # -- negation ------------------------------------------------------------------------

    def _without(self, step: AntiJoin, rows: Rows) -> Rows:
        """The rows for which the inner pipeline, started from them, finds nothing."""
        needed = used(step)
        outer = {name: column for name, column in rows.variables.items() if name in needed}
        names = list(outer.values())
        live = live_after(step.inner, frozenset(outer))
        if not names:
            found = self.pipeline(step.inner, live, Rows(), weighted=False)
            inner = self.numbers(found)
            is_there = bool(self._driver.run(inner.limit(1).collect))
            return self._none(rows) if is_there else rows
        data = self._driver.kept(self.numbers(rows))
        starts = data.selectExpr(*names, f"CAST(1 AS BIGINT) AS {WEIGHT}")
        if len(names) < len(rows.variables):
            starts = starts.distinct()
        left = self.pipeline(step.inner, live, Rows(outer, starts), weighted=False)
        found_rows = self.numbers(left).select(*names)
        return Rows(rows.variables, data.join(found_rows, names, "left_anti"))
