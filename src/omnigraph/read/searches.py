"""The searches of one query: matches, distances, scores and rankings.

A search runs once, on its whole table or on the remaining nodes, whichever are fewer. Its results
are stored by node, so they can be used as conditions, as columns and as sort keys.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.embed.providers.choice import resolve_query_vector
from omnigraph.errors import EmbeddingError, InternalError
from omnigraph.lang.query import typed
from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.plan.arrow import filter_expression, pushable
from omnigraph.plan.nodes import NodeScan, ReadPlan
from omnigraph.read.limits import Check, unlimited
from omnigraph.read.order import SortColumn
from omnigraph.read.search.ranking import DEFAULT_K, bm25, bm25_among, fuse
from omnigraph.read.search.text import match_set, matches
from omnigraph.read.search.vector import distances, metric_of, nearest, probes_of
from omnigraph.storage.tables.search import NOTHING, Hits, RowIds

if TYPE_CHECKING:
    from omnigraph.read.frame import Frame
    from omnigraph.read.run import Run
    from omnigraph.read.values import EvalContext

Floats = npt.NDArray[np.float64]
# Up to this many texts are matched here rather than by an index over all of them.
_FEW = 64


class Searches:
    """Runs the searches of one query, and caches their results while it runs."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._sets: dict[typed.TypedExpr, npt.NDArray[np.bool_]] = {}
        self._hits: dict[typed.TypedExpr, Hits] = {}
        self._vectors: dict[tuple[str, str, str], tuple[float, ...]] = {}

    # -- conditions ----------------------------------------------------------------------

    def matches(self, frame: Frame, expr: typed.TextMatch, *, exact: bool) -> Any:
        """Whether the text of each row matches; null where there is no text."""
        query, check = _text(expr.query), self._run.guard.check
        variable, column = expr.field.variable, expr.field.name
        if query is None or variable in self._run.edge_types or frame.rows <= _FEW:
            return match_rows(self._run, frame, expr, check)
        flags = self._sets.get(expr)
        if flags is None:
            source = self._run.existing_nodes(variable)
            edits = None if expr.max_edits is None else _number(expr.max_edits)
            rows = match_set(source.table(), column, expr.function, query, edits, check)
            # First the numbers, then their count: building the index assigns new ones.
            hits = source.index().numbers_of_rows(rows)
            flags = np.zeros(max(len(source.ids), 1), bool)
            flags[hits] = True
            self._sets[expr] = flags
            self._run.note({"search": f"{expr.function}(${variable}.{column})", "hits": len(rows)})
        numbers = self._run.numbers(frame, variable)
        is_match = flags[np.minimum(numbers, len(flags) - 1)] & (numbers < len(flags))
        if not exact:
            return arrow_view(is_match)
        texts = self._run.column(frame, variable, column)
        return arrow_view(is_match, numpy_view(texts.is_null()))

    # -- columns -------------------------------------------------------------------------

    def distances(self, frame: Frame, expr: typed.Nearest) -> pa.Array:
        """The distance of each row's vector; null where there is none."""
        vector = self.vector(expr)
        if vector is None or not frame.rows:
            return pa.nulls(frame.rows, pa.float64())
        source = self._run.existing_source(expr.field.variable)
        prop = source.entity_type.properties[expr.field.name]
        rows = self._rows(frame, expr.field.variable)
        check = self._run.guard.check
        return nullable(
            distances(source.table(), prop.name, vector, rows, metric=metric_of(prop), check=check)
        )

    def scores(self, frame: Frame, expr: typed.Bm25) -> pa.Array:
        """The BM25 score of each row; null where the text does not match."""
        if not frame.rows:
            return pa.nulls(0, pa.float64())
        return self._spread(frame, expr.field.variable, self.scored(expr))

    def fused(self, frame: Frame, expr: typed.Rrf, limit: int | None = None) -> pa.Array:
        """The fused score of each row; null where neither ranking has it."""
        if not frame.rows:
            return pa.nulls(0, pa.float64())
        return self._spread(frame, expr.primary.field.variable, self._fused(frame, expr, limit))

    def _spread(self, frame: Frame, variable: str, hits: Hits) -> pa.Array:
        order = np.argsort(hits.row_ids)
        return spread(hits.row_ids[order], hits.scores[order], self._rows(frame, variable))

    def _rows(self, frame: Frame, variable: str) -> RowIds:
        """The row ids of a variable, one for each row of a frame."""
        if variable in self._run.edge_types:
            return frame.edges[variable].astype(np.uint64)
        numbers = self._run.numbers(frame, variable)
        return self._run.existing_nodes(variable).index().row_ids(numbers).astype(np.uint64)

    # -- rankings ------------------------------------------------------------------------

    def order(self, frame: Frame, expr: typed.Score, limit: int | None) -> list[SortColumn]:
        """The sort keys that put the best rows first; the second key breaks ties."""
        if not frame.rows:
            return [SortColumn(pa.nulls(0, pa.float64()))]
        match expr:
            case typed.Nearest():
                return [SortColumn(self.distances(frame, expr))]
            case typed.Bm25():
                return [SortColumn(self.scores(frame, expr), descending=True)]
            case typed.Rrf():
                hits = self._fused(frame, expr, limit)
                ranking = Hits(hits.row_ids, np.arange(len(hits), dtype=np.float64))
                variable = expr.primary.field.variable
                scores = self._spread(frame, variable, hits)
                ranks = self._spread(frame, variable, ranking)
                return [SortColumn(scores, descending=True), SortColumn(ranks)]
            case _:
                raise InternalError(f"{type(expr).__name__} is not a ranking")

    def _fused(self, frame: Frame, expr: typed.Rrf, limit: int | None) -> Hits:
        """The fused ranking, computed once: later frames may lack ranked rows."""
        hits = self._hits.get(expr)
        if hits is None:
            k = DEFAULT_K if expr.k is None else _number(expr.k)
            first = self._ranking(expr.primary, frame, limit)
            second = self._ranking(expr.secondary, frame, limit)
            hits = self._hits[expr] = fuse(first.row_ids, second.row_ids, k)
        return hits

    def _ranking(self, expr: typed.Nearest | typed.Bm25, frame: Frame, limit: int | None) -> Hits:
        """The rows of a frame, best first; a vector search returns at most ``limit``."""
        rows = np.unique(self._rows(frame, expr.field.variable))
        if isinstance(expr, typed.Bm25):
            hits = self.scored(expr)
            kept = np.isin(hits.row_ids, rows)
            return Hits(hits.row_ids[kept], hits.scores[kept])
        vector = self.vector(expr)
        if vector is None:
            return NOTHING
        source = self._run.existing_source(expr.field.variable)
        prop = source.entity_type.properties[expr.field.name]
        return nearest(
            source.table(),
            prop.name,
            vector,
            len(rows) if limit is None else limit,
            metric=metric_of(prop),
            candidates=rows,
            check=self._run.guard.check,
        )

    def scored(self, expr: typed.Bm25) -> Hits:
        """All matches in the table; the scores do not depend on the other rows."""
        hits = self._hits.get(expr)
        if hits is None:
            query = _text(expr.query)
            table = self._run.existing_source(expr.field.variable).table()
            column, check = expr.field.name, self._run.guard.check
            hits = NOTHING
            if query is not None and expr.among is not None:
                texts = self._run.visibility.texts(expr.among.table_key, column, check)
                hits = bm25_among(table, column, query, texts.row_ids, texts.totals, check)
            elif query is not None:
                hits = bm25(table, column, query, check=check)
            self._hits[expr] = hits
        return hits

    def nearest_rows(self, plan: ReadPlan) -> RowIds | None:
        """The rows of a plan that is a pure vector search, by the vector index; else none."""
        if len(plan.pipeline) != 1 or not plan.order or plan.limit is None or plan.distinct:
            return None
        step, expr = plan.pipeline[0], plan.order[0].expr
        if not isinstance(step, NodeScan) or not isinstance(expr, typed.Nearest):
            return None
        source = self._run.nodes(step.type_name)
        if source is None or not all(map(pushable, step.filters)):
            return None
        vector = self.vector(expr)
        if vector is None:
            return NOTHING.row_ids
        prop = source.entity_type.properties[expr.field.name]
        filters, candidates = step.filters, None
        if step.visible is not None:
            visible = self._run.visible_nodes(step.visible)
            if visible is None or visible.is_empty:
                return NOTHING.row_ids
            if visible.is_pushable:
                assert visible.condition is not None
                filters = (*filters, visible.condition)
            else:
                candidates = visible.row_ids()
        return nearest(
            source.table(),
            prop.name,
            vector,
            # Lance allocates memory for the requested number of rows.
            min(plan.limit + (plan.offset or 0), source.rows),
            metric=metric_of(prop),
            condition=filter_expression(typed.And(filters)) if filters else None,
            candidates=candidates,
            ties=True,
            check=self._run.guard.check,
            probes=probes_of(prop),
        ).row_ids

    # -- query vectors -------------------------------------------------------------------

    def vector(self, expr: typed.Nearest) -> tuple[float, ...] | None:
        """The vector of a search; a text is embedded."""
        assert isinstance(expr.query, typed.Constant)
        value = expr.query.value
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(float(item) for item in value)  # type: ignore[arg-type]
        return self._embedded(expr, str(value))

    def _embedded(self, expr: typed.Nearest, text: str) -> tuple[float, ...]:
        key = (expr.field.variable, expr.field.name, text)
        embedded = self._vectors.get(key)
        if embedded is None:
            embedders = self._run.context.embedders
            if embedders is None:
                raise EmbeddingError("a text query needs an embedding, and there is no provider")
            left = self._run.guard.seconds_left
            until = None if left is None else time.monotonic() + left
            entity_type = self._run.existing_source(expr.field.variable).entity_type
            try:
                vector = resolve_query_vector(
                    entity_type, expr.field.name, text, embedders.get(), until
                )
            except EmbeddingError:
                # If the query is out of time, that is the error to report.
                self._run.guard.check()
                raise
            embedded = self._vectors[key] = tuple(vector.tolist())
        return embedded


def match_rows(
    context: EvalContext, frame: Frame, expr: typed.TextMatch, check: Check = unlimited
) -> Any:
    """Whether the text of each row matches, by reading the texts; null where there is none."""
    query = _text(expr.query)
    if query is None:
        return pa.scalar(None, pa.bool_())
    edits = None if expr.max_edits is None else _number(expr.max_edits)
    texts = context.column(frame, expr.field.variable, expr.field.name)
    is_match = matches(texts, expr.function, query, edits, check)
    return arrow_view(is_match, numpy_view(texts.is_null()))


def spread(
    row_ids: npt.NDArray[np.integer], scores: Floats, rows: npt.NDArray[np.integer]
) -> pa.Array:
    """The scores of some rows, by sorted row ids; null for a row without a score."""
    result = np.full(len(rows), np.nan)
    if len(row_ids):
        indices = np.searchsorted(row_ids, rows).clip(max=len(row_ids) - 1)
        present = row_ids[indices] == rows
        result[present] = scores[indices[present]]
    return nullable(result)


def nullable(scores: Floats) -> pa.Array:
    """Scores with null instead of NaN."""
    return arrow_view(scores, np.isnan(scores))


def _text(expr: typed.TypedExpr) -> str | None:
    assert isinstance(expr, typed.Constant)
    return None if expr.value is None else str(expr.value)


def _number(expr: typed.TypedExpr) -> int:
    assert isinstance(expr, typed.Constant)
    return int(expr.value)  # type: ignore[arg-type]
