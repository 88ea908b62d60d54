"""Traversals hop by hop: every start reaches each node once, at its shortest distance.

Each hop is computed before the next, which so starts from rows and not from a plan that has grown
by one more join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.lang.query.checked import Direction
from omnigraph.plan.nodes import Connect, Expand
from omnigraph.spark.query.edges import DST, EDGE, SRC
from omnigraph.spark.query.frame import Driver, broadcast_if_small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from omnigraph.spark.query.sources import EdgeTable

_START, _AT = "o", "t"


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
        # A start is found again only through an edge to itself, as its first hop.
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
