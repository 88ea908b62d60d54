"""Searches that need more than one row: run by the driver, once.

Scores depend on a whole table and ranks on all rows of the query, so they are computed here and
sent to the workers. Distances and word matches depend on one row: the workers compute them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from omnigraph.errors import LimitExceeded
from omnigraph.lang.query import typed
from omnigraph.plan.nodes import ReadPlan
from omnigraph.read.frame import Frame
from omnigraph.read.search.vector import metric_of
from omnigraph.spark.query.rows import Ranking, SearchResults, Vector

if TYPE_CHECKING:
    from omnigraph.read.run import Run

MOST_HITS = 4_000_000
"""So many scores are sent to the workers at most."""

RowIds = npt.NDArray[np.int64]


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
        """The fused rankings of the plan, with how many of the nearest each takes."""
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
        """The rows of a plan that is a pure vector search, by the vector index; else none."""
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
