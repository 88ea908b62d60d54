"""Vector search: the rows nearest to a vector, and the distances of given rows.

Order and distances are always those of an exact 64-bit computation. An index, or Lance's own brute
force, only yields candidates; their distances are then computed here, and more candidates are
requested while the limit could split a tie. With an approximate index (``method``, ``probes``) rows
may be missing, but distances are never wrong. Rows without a vector are never returned, nor are, by
cosine, rows whose vector is zero: their distance is undefined.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InputError, ValueConversionError
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.schema.vectors import VectorOptionError, vector_options
from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.read.limits import Check, unlimited
from omnigraph.storage.tables.search import (
    NOTHING,
    Floats,
    Hits,
    RowIds,
    column_batches,
    matching_rows,
    vector_hits,
)
from omnigraph.storage.tables.table import Table

if TYPE_CHECKING:
    import pyarrow.compute as pc

_ANNOTATION = "vector"
_CHUNK_BYTES = 32 << 20
# Lance computes distances in 32 bits; closer ones than this may be in either order.
_ROUNDING = 1e-4


class Metric(StrEnum):
    """The distance function of two vectors.

    ``cosine`` is 1 − cos, ``l2`` the Euclidean distance, ``dot`` 1 − the inner product.
    """

    COSINE = "cosine"
    L2 = "l2"
    DOT = "dot"


def metric_of(prop: Property) -> Metric:
    """The metric of a vector property; cosine unless the schema sets another."""
    annotation = prop.annotation(_ANNOTATION)
    if annotation is None or not annotation.value:
        return Metric.COSINE
    try:
        return Metric(str(annotation.value).lower())
    except ValueError:
        names = ", ".join(Metric)
        raise InputError(
            f"property '{prop.name}' has the unknown vector metric '{annotation.value}'",
            hint=f"the metrics are {names}",
        ) from None


def probes_of(prop: Property) -> int | None:
    """The number of index partitions that a search probes, if the schema sets it."""
    try:
        return vector_options(prop.type, prop.annotation(_ANNOTATION)).probes
    except VectorOptionError:
        return None


def nearest(
    table: Table,
    column: str,
    query: npt.ArrayLike,
    k: int,
    *,
    metric: Metric = Metric.COSINE,
    condition: pc.Expression | None = None,
    candidates: RowIds | None = None,
    ties: bool = False,
    check: Check = unlimited,
    probes: int | None = None,
) -> Hits:
    """The k rows nearest to a vector with their distances, nearest first, ties by row id.

    Only rows that pass the condition and are among the candidates are considered. With ``ties``,
    rows at the distance of the last one are included. ``check`` runs while vectors are read;
    ``probes`` limits the partitions that an approximate index searches.
    """
    vector = checked_query(table, column, query, metric)
    if k <= 0 or (candidates is not None and not len(candidates)):
        return NOTHING
    if candidates is None:
        hits = _searched(table, column, vector, k, metric, condition, check, probes)
        if hits is not None:
            return _cut(hits, k, ties)
        assert condition is not None
        candidates = matching_rows(table, condition)
    elif condition is not None:
        candidates = np.intersect1d(candidates, matching_rows(table, condition))
    rows = np.unique(candidates)
    hits = _nearest_first(rows, distances(table, column, vector, rows, metric=metric, check=check))
    return _cut(hits, k, ties)


def _cut(hits: Hits, k: int, ties: bool) -> Hits:
    if ties and len(hits) > k:
        k = int(np.searchsorted(hits.scores, hits.scores[k - 1], side="right"))
    return hits.head(k)


def distances(
    table: Table,
    column: str,
    query: npt.ArrayLike,
    row_ids: RowIds,
    *,
    metric: Metric = Metric.COSINE,
    check: Check = unlimited,
) -> Floats:
    """The distance of each row from a vector; NaN where it is undefined."""
    vector = checked_query(table, column, query, metric)
    rows, back = np.unique(row_ids, return_inverse=True)
    unique = np.full(len(rows), np.nan)
    for positions, vectors in _vectors(table, column, rows, len(vector)):
        check()
        unique[positions] = measure(vectors, vector, metric)
    result: Floats = unique[back]
    return result


def checked_query(
    table: Table, column: str, query: npt.ArrayLike, metric: Metric
) -> npt.NDArray[np.float32]:
    """The vector of a query; raises if it cannot be compared with those of the property."""
    vector = np.asarray(query, np.float32)
    size = table.schema.field(column).type.list_size
    if vector.shape != (size,):
        given = vector.shape[0] if vector.ndim == 1 else f"an array of shape {vector.shape}"
        raise ValueConversionError(
            f"vector dimension mismatch: property '{column}' is Vector({size}), "
            f"the query has {given}",
            details={"property": column, "expected": size, "actual": list(vector.shape)},
        )
    if not np.isfinite(vector).all():
        raise ValueConversionError(
            f"the query vector for property '{column}' holds a number that is not finite"
        )
    if metric is Metric.COSINE and not vector.any():
        raise ValueConversionError(
            f"the query vector for property '{column}' is zero in all {size} dimensions, and has "
            "no direction",
            hint='give another vector, or measure with @vector("l2")',
        )
    return vector


def measure(
    vectors: npt.NDArray[np.float32], query: npt.NDArray[np.float32], metric: Metric
) -> Floats:
    """The distance of each of many vectors to one.

    >>> rows = np.array([[1, 0], [0, 2], [0, 0]], np.float32)
    >>> measure(rows, np.array([1, 0], np.float32), Metric.COSINE).tolist()
    [0.0, 1.0, nan]
    """
    wide, target = vectors.astype(np.float64), query.astype(np.float64)
    result: Floats
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # Row by row, not as one matrix product: equal vectors must have equal distances.
        if metric is Metric.L2:
            difference = wide - target
            result = np.sqrt(np.vecdot(difference, difference))
        elif metric is Metric.DOT:
            result = 1.0 - np.vecdot(wide, target)
        else:
            scale = np.sqrt(np.vecdot(wide, wide) * np.vecdot(target, target))
            result = 1.0 - np.vecdot(wide, target) / scale
    result[~np.isfinite(result)] = np.nan
    return result


def _searched(
    table: Table,
    column: str,
    vector: npt.NDArray[np.float32],
    k: int,
    metric: Metric,
    condition: pc.Expression | None,
    check: Check,
    probes: int | None,
) -> Hits | None:
    """At least the k nearest rows; ``None`` if Lance cannot evaluate the condition."""
    count = k + max(16, k // 4)
    while True:
        check()
        candidates = vector_hits(
            table, column, vector, count, metric=metric, condition=condition, probes=probes
        )
        if candidates is None:
            return None
        rows = np.sort(candidates.row_ids)
        exact = distances(table, column, vector, rows, metric=metric, check=check)
        hits = _nearest_first(rows, exact)
        if len(candidates) < count or _gap(hits.scores, k):
            return hits
        count *= 4


def _gap(scores: Floats, k: int) -> bool:
    """Whether the last row is clearly farther than the k-th."""
    if len(scores) <= k:
        return False
    last = float(scores[-1])
    return last - float(scores[k - 1]) > _ROUNDING * max(1.0, abs(last))


def _nearest_first(row_ids: RowIds, scores: Floats) -> Hits:
    """Hits by ascending distance, ties by row id, without undefined distances."""
    is_defined = ~np.isnan(scores)
    row_ids, scores = row_ids[is_defined], scores[is_defined]
    order = np.lexsort((row_ids, scores))
    return Hits(row_ids[order], scores[order])


def _vectors(
    table: Table, column: str, rows: RowIds, size: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    """The vectors of some rows (ascending) with their positions, in blocks, without nulls."""
    if 4 * len(rows) < table.count():
        piece = max(1, _CHUNK_BYTES // (4 * size))
        for start in range(0, len(rows), piece):
            wanted = rows[start : start + piece]
            taken = table.take(wanted.tolist(), [column])[column].combine_chunks()
            yield _present(taken, np.arange(start, start + len(wanted)), size)
        return
    for batch in column_batches(table, column):
        ids = numpy_view(batch["_rowid"]).astype(np.uint64, copy=False)
        positions = np.searchsorted(rows, ids)
        positions[positions == len(rows)] = 0
        here = rows[positions] == ids if len(rows) else np.zeros(len(ids), np.bool_)
        yield _present(batch[column].filter(arrow_view(here)), positions[here], size)


def _present(
    column: pa.Array, positions: npt.NDArray[np.int64], size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    valid = np.asarray(column.is_valid())
    numbers = numpy_view(column.drop_null().flatten()).reshape(-1, size)
    return positions[valid], numbers.astype(np.float32, copy=False)
