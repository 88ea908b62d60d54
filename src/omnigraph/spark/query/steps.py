"""The steps of a pipeline as operations on Spark DataFrames; see ``read.run`` for their meaning.

In a traversal every start reaches each node once, at its shortest distance. Each hop is computed
before the next, so that plans do not grow with the hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.errors import InternalError
from omnigraph.lang.query.checked import Direction
from omnigraph.plan.arrow import pushable
from omnigraph.plan.live import live_after, used
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Intersect,
    NodeScan,
    PlanStep,
    RowFilter,
    Total,
    Weigh,
)
from omnigraph.read.scan import named_ids
from omnigraph.spark.query.frame import Driver, SparkRows, broadcast_if_small
from omnigraph.spark.query.rows import WorkerQuery
from omnigraph.spark.query.sources import DST, EDGE, SRC, SparkTables
from omnigraph.spark.query.work import WEIGHT, TableScan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.spark.query.sources import EdgeTable

_START, _AT = "o", "t"


class Steps:
    """Runs the pipeline of one query."""

    def __init__(self, driver: Driver, query: WorkerQuery, sources: SparkTables) -> None:
        self._driver = driver
        self._query = query
        self._sources = sources
        self._columns: dict[str, str] = {}

    def pipeline(
        self,
        steps: Sequence[PlanStep],
        live: Sequence[frozenset[str]],
        rows: SparkRows,
        *,
        weighted: bool,
    ) -> SparkRows:
        """Run steps one after the other; ``weighted`` if the multiplicity of rows matters."""
        for number, (step, needed) in enumerate(zip(steps, live, strict=True)):
            self._driver.guard.check()
            rows = self._step(step, rows)
            if number + 1 < len(steps):
                rows = self._prune(rows, needed, weighted)
        return rows

    def numbers(self, rows: SparkRows) -> DataFrame:
        return rows.numbers(self._driver, self._query)

    def _column(self, variable: str) -> str:
        return self._columns.setdefault(variable, f"c{len(self._columns)}")

    def _step(self, step: PlanStep, rows: SparkRows) -> SparkRows:
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
            case Intersect():
                first, others = step.as_joins()
                rows = self._expand(first, rows)
                for join in others:
                    rows = self._connect(join, rows)
                return rows
            case Weigh():
                return self._weigh(step, rows)
            case Total():
                return self._total(step)
            case _:
                raise InternalError(f"Spark does not know {type(step).__name__}")

    def _prune(self, rows: SparkRows, live: frozenset[str], weighted: bool) -> SparkRows:
        """If at most one variable is live, merge equal rows and add their weights."""
        kept = {name: column for name, column in rows.variables.items() if name in live}
        if len(kept) == len(rows.variables) or len(kept) > 1:
            return rows
        data = self.numbers(rows)
        names = list(kept.values())
        if not weighted:
            once = data.selectExpr(*names, f"CAST(1 AS BIGINT) AS {WEIGHT}")
            return SparkRows(kept, once.distinct())
        total = self._driver.expr(f"coalesce(sum({WEIGHT}), 0) AS {WEIGHT}")
        return SparkRows(kept, data.groupBy(*names).agg(total).where(f"{WEIGHT} > 0"))

    # -- scans ---------------------------------------------------------------------------

    def _scan(self, step: NodeScan) -> SparkRows:
        variables = {step.variable: self._column(step.variable)}
        source = self._sources.nodes(step.type_name)
        if source is None or not source.locator.rows:
            return SparkRows(variables, self._nothing(variables))
        pushed = tuple(condition for condition in step.filters if pushable(condition))
        others = tuple(condition for condition in step.filters if not pushable(condition))
        # A few ids are looked up by one task.
        is_keyed = any(named_ids(condition) is not None for condition in pushed)
        splits = (None,) if is_keyed else source.splits
        scan = TableScan(step.variable, source.locator, splits, pushed)
        return SparkRows(variables, scan=scan, filters=others)

    def _nothing(self, variables: dict[str, str]) -> DataFrame:
        names = [*variables.values(), WEIGHT]
        return self._driver.engine.session.range(0).selectExpr(*(f"id AS {n}" for n in names))

    def _none(self, rows: SparkRows, *new: str | None) -> SparkRows:
        """An empty frame with new variables."""
        more = {name: self._column(name) for name in new if name is not None}
        variables = {**rows.variables, **more}
        return SparkRows(variables, self._nothing(variables))

    def _product(self, rows: SparkRows, scanned: SparkRows) -> SparkRows:
        if rows.data is None and rows.scan is None and not rows.filters:
            # No variable is bound yet: one empty row.
            return scanned
        size = 0 if scanned.scan is None else scanned.scan.locator.rows
        other = self.numbers(scanned).withColumnRenamed(WEIGHT, "w2")
        data = self.numbers(rows).crossJoin(broadcast_if_small(other, size))
        variables = {**rows.variables, **scanned.variables}
        both = f"{WEIGHT} * w2 AS {WEIGHT}"
        return SparkRows(variables, data.selectExpr(*variables.values(), both))

    # -- along edges ---------------------------------------------------------------------

    def _expand(self, step: Expand, rows: SparkRows) -> SparkRows:
        traversal = self._traversal(step)
        if traversal is None:
            return self._none(rows, step.dst, step.edge_variable)
        src, dst = rows.variables[step.src], self._column(step.dst)
        variables = {**rows.variables, step.dst: dst}
        data = self.numbers(rows)
        if step.edge_variable is not None:
            edge = variables[step.edge_variable] = self._column(step.edge_variable)
            data = data.join(traversal.edges(src, dst, edge), [src])
        elif traversal.max_hops == 1:
            data = data.join(traversal.edges(src, dst), [src]).dropDuplicates([*variables.values()])
        else:
            data = self._driver.checkpoint(data)
            data = data.join(traversal.all_reached(data.select(src), src, dst), [src])
        data = data.where(f"{dst} >= 0").select(*variables.values(), WEIGHT)
        reached = SparkRows(variables, data)
        if step.dst_filters:
            reached = self._passing(step, reached, dst)
        return reached.where(step.edge_filters)

    def _traversal(self, step: Expand | Connect) -> SparkTraversal | None:
        edges = self._sources.edges(step.edge_type)
        if edges is None or not edges.source.rows:
            return None
        max_hops = edges.source.hops(step)
        if step.min_hops > max_hops:
            return None
        return SparkTraversal(self._driver, edges, step, max_hops)

    def _passing(self, step: Expand, rows: SparkRows, dst: str) -> SparkRows:
        """The rows whose target is among those of a scan with the conditions of the step."""
        scanned = self._scan(NodeScan(step.dst, step.dst_type, step.dst_filters))
        size = 0 if scanned.scan is None else scanned.scan.locator.rows
        good = self.numbers(scanned).select(dst)
        data = self.numbers(rows).join(broadcast_if_small(good, size), [dst], "left_semi")
        return replace(rows, data=data)

    def _connect(self, step: Connect, rows: SparkRows) -> SparkRows:
        traversal = self._traversal(step)
        if traversal is None:
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
            data = data.join(traversal.edges(src, dst, edge), [src, dst])
        elif traversal.max_hops == 1:
            data = data.join(traversal.edges(src, dst), [src, dst], "left_semi")
        else:
            data = self._driver.checkpoint(data)
            pairs = traversal.all_reached(data.select(src), src, dst)
            data = data.join(pairs, [src, dst], "left_semi")
        data = data.select(*variables.values(), WEIGHT)
        return SparkRows(variables, data).where(step.edge_filters)

    # -- counting ------------------------------------------------------------------------

    def _weigh(self, step: Weigh, rows: SparkRows) -> SparkRows:
        """The rows, weighted by the number of rows of the inner pipeline."""
        variable = rows.variables[step.variable]
        data = self._driver.checkpoint(self.numbers(rows))
        starts = data.selectExpr(variable, f"CAST(1 AS BIGINT) AS {WEIGHT}").distinct()
        live = live_after(step.inner, frozenset({step.variable}))
        begun = SparkRows({step.variable: variable}, starts)
        inner = self.numbers(self.pipeline(step.inner, live, begun, weighted=True))
        total = self._driver.expr(f"sum({WEIGHT}) AS w2")
        data = data.join(inner.groupBy(variable).agg(total), [variable])
        names = list(rows.variables.values())
        return SparkRows(rows.variables, data.selectExpr(*names, f"{WEIGHT} * w2 AS {WEIGHT}"))

    def _total(self, step: Total) -> SparkRows:
        """One row, weighted by the sum of the signed numbers of rows of the terms."""
        counts = []
        for term in step.terms:
            live = live_after(term.inner, frozenset())
            rows = self.numbers(self.pipeline(term.inner, live, SparkRows(), weighted=True))
            counts.append(rows.selectExpr(f"{WEIGHT} * {term.sign} AS {WEIGHT}"))
        data = counts[0]
        for more in counts[1:]:
            data = data.union(more)
        total = self._driver.expr(f"coalesce(sum({WEIGHT}), 0) AS {WEIGHT}")
        return SparkRows({}, data.agg(total).where(f"{WEIGHT} > 0"))

    # -- negation ------------------------------------------------------------------------

    def _without(self, step: AntiJoin, rows: SparkRows) -> SparkRows:
        """The rows for which the inner pipeline yields nothing."""
        needed = used(step)
        outer = {name: column for name, column in rows.variables.items() if name in needed}
        names = list(outer.values())
        live = live_after(step.inner, frozenset(outer))
        if not names:
            inner = self.numbers(self.pipeline(step.inner, live, SparkRows(), weighted=False))
            has_match = bool(self._driver.run(inner.limit(1).collect))
            return self._none(rows) if has_match else rows
        data = self._driver.checkpoint(self.numbers(rows))
        starts = data.selectExpr(*names, f"CAST(1 AS BIGINT) AS {WEIGHT}")
        if len(names) < len(rows.variables):
            starts = starts.distinct()
        left = self.pipeline(step.inner, live, SparkRows(outer, starts), weighted=False)
        matched = self.numbers(left).select(*names)
        return SparkRows(rows.variables, data.join(matched, names, "left_anti"))


class SparkTraversal:
    """One traversal: which edges, which direction, how many hops."""

    def __init__(
        self, driver: Driver, edges: EdgeTable, step: Expand | Connect, max_hops: int
    ) -> None:
        self._driver = driver
        self._edges = edges
        self._direction = step.direction
        self.min_hops = step.min_hops
        self.max_hops = max_hops

    def edges(self, src: str, dst: str, edge: str | None = None) -> DataFrame:
        """Every edge as a pair of columns, in the direction of the traversal."""
        data = self._edges.data()
        forward, back = (SRC, DST), (DST, SRC)
        first, second = back if self._direction is Direction.IN else forward
        more = [] if edge is None else [f"{EDGE} AS {edge}"]
        pairs = data.selectExpr(f"{first} AS {src}", f"{second} AS {dst}", *more)
        if self._direction is Direction.BOTH:
            # A self-loop is the same edge from both of its ends.
            other = data.where(f"{SRC} <> {DST}")
            pairs = pairs.union(other.selectExpr(f"{DST} AS {src}", f"{SRC} AS {dst}", *more))
        return broadcast_if_small(pairs, self._edges.source.rows)

    def all_reached(self, starts: DataFrame, src: str, dst: str) -> DataFrame:
        """Pairs of a start and a node that is reached from it within the hops."""
        hop = self.edges(_AT, "n")
        own = starts.selectExpr(f"{src} AS {_START}").distinct()
        first = own.selectExpr(_START, f"{_START} AS {_AT}").join(hop, [_AT])
        pairs = self._driver.checkpoint(first.selectExpr(_START, f"n AS {_AT}").distinct())
        # A start is reached again only through a self-loop, as its first hop.
        fresh = pairs.where(f"{_START} <> {_AT}")
        hops = [pairs] if self.min_hops <= 1 else []
        visited = own.selectExpr(_START, f"{_START} AS {_AT}").union(fresh)
        for number in range(2, self.max_hops + 1):
            after = fresh.join(hop, [_AT]).selectExpr(_START, f"n AS {_AT}").distinct()
            fresh = after.join(visited, [_START, _AT], "left_anti")
            if number < self.max_hops:
                fresh = self._driver.checkpoint(fresh)
            if number >= self.min_hops:
                hops.append(fresh)
            if self.max_hops - number >= 2 and self._driver.run(fresh.isEmpty):
                break
            visited = visited.union(fresh)
        if not hops:
            hops = [pairs.limit(0)]
        reached = hops[0]
        for fresh in hops[1:]:
            reached = reached.union(fresh)
        return reached.selectExpr(f"{_START} AS {src}", f"{_AT} AS {dst}")
