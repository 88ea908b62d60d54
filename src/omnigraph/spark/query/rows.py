"""Expressions in a Spark worker: rows by their row ids, and values read on demand.

The embedded engine's own functions evaluate the expressions (see ``read.context.EvalContext``);
the number of a node or an edge is its row id here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.lang.query import typed
from omnigraph.read.context import EvalContext
from omnigraph.read.frame import Frame, Mask
from omnigraph.read.search.text import matches
from omnigraph.read.search.vector import Metric, distances
from omnigraph.read.values import keeps, values_of
from omnigraph.spark.query.tables import Reader, reader_of
from omnigraph.storage.tables.fragments import TableLocator

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """What a search found: rows in the order of their ids, scores, and places among equals."""

    row_ids: npt.NDArray[np.int64]
    scores: Floats
    places: Floats | None = None


@dataclass(frozen=True, slots=True)
class Vector:
    """What a vector search looks for."""

    values: tuple[float, ...] | None
    metric: Metric


@dataclass(frozen=True, slots=True)
class Findings:
    """What the driver found out about the searches of a query."""

    rankings: Mapping[typed.TypedExpr, Ranking] = field(default_factory=dict)
    vectors: Mapping[typed.TypedExpr, Vector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """What every worker of a query is sent."""

    name: str
    tables: Mapping[str, TableLocator]
    """The table of each variable; none for a type that the snapshot does not have."""
    edges: frozenset[str]
    """Which variables are edges."""
    findings: Findings = Findings()


class WorkerRun(EvalContext):
    """The context of one task of a query."""

    searches: _Searches

    def __init__(self, query: Query) -> None:
        self.query = query
        self.types: Mapping[str, str] = {}
        self.searches = _Searches(self)

    def frame(self, rows: int, numbers: Mapping[str, Any], weights: Any = None) -> Frame:
        """Rows of which nothing is known but who they are."""
        edges = self.query.edges
        return Frame(
            rows,
            {name: found for name, found in numbers.items() if name not in edges},
            {name: found for name, found in numbers.items() if name in edges},
            weights=weights,
        )

    def reader(self, variable: str) -> Reader:
        at = self.query.tables.get(variable)
        if at is None:
            raise InternalError(f"${variable} has rows, but its type has no table")
        return reader_of(self.query.name, at)

    def read_columns(
        self, frame: Frame, variable: str, names: Sequence[str]
    ) -> dict[str, pa.Array]:
        return self.reader(variable).values(names, numbers_of(frame, variable))

    def codes(self, frame: Frame, expr: typed.TypedExpr) -> None:
        """No codes: values are compared as they are."""
        return

    def values(self, frame: Frame, expr: typed.TypedExpr) -> pa.Array:
        """The exact values of an expression, one for each row."""
        return values_of(self, frame, expr)

    def keeps(self, frame: Frame, condition: typed.TypedExpr) -> Mask:
        """For which rows a condition is true."""
        self.fetch(frame, [condition])
        return keeps(self, frame, condition)


def numbers_of(frame: Frame, variable: str) -> npt.NDArray[np.int64]:
    """The row ids of a variable."""
    found: Any = frame.edges if variable in frame.edges else frame.nodes
    numbers: npt.NDArray[np.int64] = found[variable]
    return numbers


class _Searches:
    """Searches by row: texts are looked at here, rankings were made by the driver."""

    def __init__(self, run: WorkerRun) -> None:
        self._run = run

    def matches(self, frame: Frame, expr: typed.TextMatch, *, exact: bool) -> Any:
        query, edits = _constant(expr.query), expr.max_edits
        if query is None:
            return pa.scalar(None, pa.bool_())
        texts = self._run.column(frame, expr.field.variable, expr.field.name)
        most = None if edits is None else int(_constant(edits))
        found = matches(texts, expr.function, str(query), most)
        return pa.array(found, mask=texts.is_null().to_numpy(zero_copy_only=False))

    def distances(self, frame: Frame, expr: typed.Nearest) -> pa.Array:
        vector = self._run.query.findings.vectors[expr]
        if vector.values is None or not frame.rows:
            return pa.nulls(frame.rows, pa.float64())
        name, variable = expr.field.name, expr.field.variable
        rows = numbers_of(frame, variable).astype(np.uint64)
        table = self._run.reader(variable).table
        found = distances(table, name, vector.values, rows, metric=vector.metric)
        return pa.array(found, mask=np.isnan(found))

    def scores(self, frame: Frame, expr: typed.Bm25) -> pa.Array:
        return self._spread(frame, expr, expr.field.variable)

    def fused(self, frame: Frame, expr: typed.Rrf) -> pa.Array:
        return self._spread(frame, expr, expr.primary.field.variable)

    def places(self, frame: Frame, expr: typed.Rrf) -> pa.Array:
        """What comes first of rows with equal scores."""
        return self._spread(frame, expr, expr.primary.field.variable, by_place=True)

    def _spread(
        self, frame: Frame, expr: typed.Score, variable: str, *, by_place: bool = False
    ) -> pa.Array:
        ranking = self._run.query.findings.rankings[expr]
        values = ranking.places if by_place else ranking.scores
        assert values is not None
        rows = numbers_of(frame, variable)
        found = np.full(len(rows), np.nan)
        if len(ranking.row_ids):
            last = len(ranking.row_ids) - 1
            places = np.searchsorted(ranking.row_ids, rows).clip(max=last)
            here = ranking.row_ids[places] == rows
            found[here] = values[places[here]]
        return pa.array(found, mask=np.isnan(found))


def _constant(expr: typed.TypedExpr) -> Any:
    assert isinstance(expr, typed.Constant)
    return expr.value
