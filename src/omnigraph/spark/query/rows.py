"""Expressions in a Spark worker: rows by their row ids, and values read on demand.

The embedded engine's own functions evaluate the expressions (see ``read.values.EvalContext``);
the number of a node or an edge is its row id here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.lang.query import typed
from omnigraph.read.frame import Frame, Mask
from omnigraph.read.search.vector import Metric, distances
from omnigraph.read.searches import match_rows, nullable, spread
from omnigraph.read.values import EvalContext, keeps
from omnigraph.spark.query.tables import WorkerTable, worker_table
from omnigraph.storage.tables.fragments import TableLocator

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The matches of a search, sorted by row id: scores, and ranks to break ties."""

    row_ids: npt.NDArray[np.int64]
    scores: Floats
    ranks: Floats | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    """The query vector of a search, and its metric."""

    values: tuple[float, ...] | None
    metric: Metric


@dataclass(frozen=True, slots=True)
class SearchResults:
    """Results of searches that the driver computed for the workers."""

    rankings: Mapping[typed.TypedExpr, Ranking] = field(default_factory=dict)
    vectors: Mapping[typed.TypedExpr, Vector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerQuery:
    """What the driver sends to every worker of a query."""

    name: str
    tables: Mapping[str, TableLocator]
    """The table of each variable; none for a type that the snapshot does not have."""
    edges: frozenset[str]
    """Which variables are edges."""
    search_results: SearchResults = SearchResults()


class WorkerRun(EvalContext):
    """The context of one task of a query."""

    def __init__(self, query: WorkerQuery) -> None:
        self.query = query
        self.types: Mapping[str, str] = {}

    @cached_property
    def searches(self) -> _Searches:
        return _Searches(self)

    def frame(self, rows: int, numbers: Mapping[str, Any], weights: Any = None) -> Frame:
        """A frame of row ids, without values."""
        edges = self.query.edges
        return Frame(
            rows,
            {name: row_ids for name, row_ids in numbers.items() if name not in edges},
            {name: row_ids for name, row_ids in numbers.items() if name in edges},
            weights=weights,
        )

    def table(self, variable: str) -> WorkerTable:
        locator = self.query.tables.get(variable)
        if locator is None:
            raise InternalError(f"${variable} has rows, but its type has no table")
        return worker_table(self.query.name, locator)

    def read_columns(
        self, frame: Frame, variable: str, names: Sequence[str]
    ) -> dict[str, pa.Array]:
        return self.table(variable).values(names, row_ids_in(frame, variable))

    def codes(self, frame: Frame, expr: typed.TypedExpr) -> None:
        """No codes: values are compared as they are."""
        return

    def keeps(self, frame: Frame, condition: typed.TypedExpr) -> Mask:
        """For which rows a condition is true."""
        self.fetch(frame, [condition])
        return keeps(self, frame, condition)


def row_ids_in(frame: Frame, variable: str) -> npt.NDArray[np.int64]:
    """The row ids of a variable."""
    columns: Any = frame.edges if variable in frame.edges else frame.nodes
    row_ids: npt.NDArray[np.int64] = columns[variable]
    return row_ids


class _Searches:
    """Searches by row: words are matched here, rankings come from the driver."""

    def __init__(self, run: WorkerRun) -> None:
        self._run = run

    def matches(self, frame: Frame, expr: typed.TextMatch, *, exact: bool) -> Any:
        return match_rows(self._run, frame, expr)

    def distances(self, frame: Frame, expr: typed.Nearest) -> pa.Array:
        vector = self._run.query.search_results.vectors[expr]
        if vector.values is None or not frame.rows:
            return pa.nulls(frame.rows, pa.float64())
        name, variable = expr.field.name, expr.field.variable
        rows = row_ids_in(frame, variable).astype(np.uint64)
        table = self._run.table(variable).table
        return nullable(distances(table, name, vector.values, rows, metric=vector.metric))

    def scores(self, frame: Frame, expr: typed.Bm25) -> pa.Array:
        return self._spread(frame, expr, expr.field.variable)

    def fused(self, frame: Frame, expr: typed.Rrf) -> pa.Array:
        return self._spread(frame, expr, expr.primary.field.variable)

    def ranks(self, frame: Frame, expr: typed.Rrf) -> pa.Array:
        """The order of rows with equal scores."""
        return self._spread(frame, expr, expr.primary.field.variable, by_rank=True)

    def _spread(
        self, frame: Frame, expr: typed.Score, variable: str, *, by_rank: bool = False
    ) -> pa.Array:
        ranking = self._run.query.search_results.rankings[expr]
        values = ranking.ranks if by_rank else ranking.scores
        assert values is not None
        return spread(ranking.row_ids, values, row_ids_in(frame, variable))
