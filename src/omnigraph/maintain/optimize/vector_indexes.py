"""The index of a vector column: its parameters, whether it still fits, and its recall.

Accuracy is not traded for speed unless the schema says so: the index chosen here is exact at any
number of rows. ``@vector(…, method=…, probes=…)`` may ask for an approximate one, whose recall is
measured on a sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.schema.vectors import (
    EXACT_METHOD,
    VECTOR,
    VectorOptionError,
    VectorOptions,
    vector_options,
)
from omnigraph.records import dataclass
from omnigraph.storage.tables.search import Hits, column_batches, vector_hits
from omnigraph.storage.tables.segments import IndexFacts, some_vectors
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import IndexKind, IndexSpec

FEW_ROWS = 4096
"""A smaller table is searched exactly, whatever method its schema declares."""
ROWS_PER_PARTITION = 4096
MIN_PER_PARTITION = 256
"""Lance trains no partition with fewer rows."""
MAX_CHOSEN = 4096
WHOLE_BYTES = 256 << 20
"""Up to this size all vectors are in one partition, for all of them are read anyway."""
PARTITION_BYTES = 64 << 20
GROWN = 4
"""An index is rebuilt when its table has grown by this factor since the build."""

QUERIES = 64
NEIGHBOURS = 10
SAMPLE_ROWS = 1_000_000
# Distances of Lance and of this module are in 32 bits.
_ROUNDING = 1e-4


# -- parameters -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The parameters of an index for a number of rows, and the reason."""

    spec: IndexSpec
    why: str


def declared_vector_index(prop: Property) -> IndexSpec:
    """The declared parameters of a vector index; the others are chosen by the number of rows.

    An annotation that cannot be parsed belongs to another program and is ignored.
    """
    try:
        options = vector_options(prop.type, prop.annotation(VECTOR))
    except VectorOptionError:
        options = VectorOptions()
    return IndexSpec(
        prop.name,
        IndexKind.VECTOR,
        metric=options.metric,
        partitions=options.partitions or 0,
        method=(options.method or EXACT_METHOD).upper(),
        sub_vectors=options.sub_vectors,
        probes=options.probes,
        dimension=prop.type.dimension or 0,
    )


def choose_index(spec: IndexSpec, rows: int) -> IndexChoice:
    """The index to build for a number of rows; deterministic.

    >>> spec = IndexSpec("v", IndexKind.VECTOR, partitions=0, dimension=768)
    >>> [choose_index(spec, rows).spec.partitions for rows in (100, 50_000, 1_000_000)]
    [1, 1, 46]
    """
    if spec.kind is not IndexKind.VECTOR:
        return IndexChoice(spec, "")
    exact = IndexKind.VECTOR.value
    if rows < FEW_ROWS and not spec.is_exact:
        few = replace(spec, method=exact, partitions=1, sub_vectors=None)
        return IndexChoice(few, f"fewer than {FEW_ROWS} rows are searched exactly")
    if spec.method != exact and spec.sub_vectors is None and spec.method.endswith("PQ"):
        spec = replace(spec, sub_vectors=_sub_vectors(spec.dimension))
    if spec.partitions:
        most = max(1, rows // MIN_PER_PARTITION)
        return IndexChoice(
            replace(spec, partitions=min(spec.partitions, most)), "declared in the schema"
        )
    if spec.is_exact:
        size = rows * spec.dimension * 4
        if size <= WHOLE_BYTES:
            return IndexChoice(
                replace(spec, partitions=1), "exact; the vectors fit in one partition"
            )
        count = min(math.ceil(size / PARTITION_BYTES), MAX_CHOSEN)
        why = f"exact; partitions of about {PARTITION_BYTES >> 20} MiB"
        return IndexChoice(replace(spec, partitions=count), why)
    count = max(1, min(rows // ROWS_PER_PARTITION, MAX_CHOSEN))
    why = f"declared in the schema; partitions of about {ROWS_PER_PARTITION} rows"
    return IndexChoice(replace(spec, partitions=count), why)


def _sub_vectors(dimension: int) -> int:
    """The number of equal sub-vectors: about one code per eight elements."""
    divisors = [n for n in range(1, dimension + 1) if dimension % n == 0]
    return min(divisors, key=lambda n: (abs(n - dimension / 8), n))


def partitions_for(spec: IndexSpec, rows: int) -> int:
    """The partitions of a segment: a small one needs fewer."""
    if spec.kind is not IndexKind.VECTOR:
        return 1
    return max(1, min(spec.partitions, rows // (4 * MIN_PER_PARTITION)))


def rebuild_reason(facts: IndexFacts, spec: IndexSpec, rows: int) -> str | None:
    """Why an index has to be rebuilt, or None. ``spec`` is the one chosen now."""
    if spec.kind is not IndexKind.VECTOR:
        return None
    if facts.method.upper() != spec.method:
        return f"it is {facts.method}, but {spec.method} is declared"
    if facts.metric != spec.metric:
        return f"it measures {facts.metric}, but {spec.metric} is declared"
    if spec.sub_vectors is not None and facts.sub_vectors != spec.sub_vectors:
        return f"it has {facts.sub_vectors} sub-vectors, but {spec.sub_vectors} are declared"
    if spec.partitions > 1 and facts.largest * GROWN <= rows:
        return f"it was built for {facts.largest} rows, and there are {rows} now"
    return None


def may_be_degraded(facts: IndexFacts, spec: IndexSpec) -> bool:
    """Whether a rebuild could improve the recall: one of a single segment would be the same."""
    return spec.kind is IndexKind.VECTOR and not spec.is_exact and facts.segments > 1


# -- recall ---------------------------------------------------------------------------------------


def measure_recall(table: Table, spec: IndexSpec) -> float | None:
    """The fraction of the nearest rows that the index finds; None without vectors.

    Some stored vectors are searched for. A row nearer than the last hit that is not a hit itself
    was missed. At most a million rows are read for that: whole fragments, evenly spread.
    """
    queries = some_vectors(table, spec.column, QUERIES)
    if spec.metric == "cosine":
        queries = queries[np.linalg.norm(queries, axis=1) > 0]
    if not len(queries):
        return None
    hits = [_hits(table, spec, query) for query in queries]
    limits = [_limit(query_hits) for query_hits in hits]
    matched = missed = 0
    for row_ids, vectors in _rows(table, spec.column):
        distances = _distances(queries, vectors, spec.metric)
        for number, query_hits in enumerate(hits):
            is_hit = np.isin(row_ids, query_hits.row_ids)
            matched += int(is_hit.sum())
            missed += int(((distances[number] < limits[number]) & ~is_hit).sum())
    return None if not matched + missed else matched / (matched + missed)


def _limit(hits: Hits) -> float:
    """A smaller distance is clearly nearer than the last hit; with too few hits, any is."""
    if len(hits) < NEIGHBOURS:
        return math.inf
    last = float(hits.scores[-1])
    return last - _ROUNDING * max(1.0, abs(last))


def _hits(table: Table, spec: IndexSpec, query: npt.NDArray[np.float32]) -> Hits:
    hits = vector_hits(
        table, spec.column, query, NEIGHBOURS, metric=spec.metric, probes=spec.probes
    )
    # Lance refuses only filters.
    assert hits is not None
    return hits


def _rows(
    table: Table, column: str
) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32]]]:
    """Row ids and vectors of the sample, in batches."""
    size = table.schema.field(column).type.list_size
    fragments = table.fragments()
    step = max(1, math.ceil(sum(fragment.rows for fragment in fragments) / SAMPLE_ROWS))
    sample = [fragment.number for fragment in fragments[::step]]
    for batch in column_batches(table, column, sample):
        is_valid = batch[column].is_valid()
        numbers = batch[column].filter(is_valid).flatten().to_numpy(zero_copy_only=False)
        row_ids = batch["_rowid"].filter(is_valid).to_numpy(zero_copy_only=False)
        yield row_ids.astype(np.uint64), numbers.astype(np.float32).reshape(-1, size)


def _distances(
    queries: npt.NDArray[np.float32], vectors: npt.NDArray[np.float32], metric: str
) -> npt.NDArray[np.float64]:
    """As Lance computes them: squared for ``l2``; infinite for a zero vector."""
    a, b = queries.astype(np.float64), vectors.astype(np.float64)
    product: npt.NDArray[np.float64] = a @ b.T
    if metric == "dot":
        return 1.0 - product
    squares_a, squares_b = np.vecdot(a, a)[:, None], np.vecdot(b, b)[None, :]
    distances: npt.NDArray[np.float64]
    if metric == "l2":
        distances = squares_a + squares_b - 2.0 * product
        return distances
    with np.errstate(divide="ignore", invalid="ignore"):
        distances = 1.0 - product / np.sqrt(squares_a * squares_b)
    return np.where(np.isfinite(distances), distances, np.inf)
