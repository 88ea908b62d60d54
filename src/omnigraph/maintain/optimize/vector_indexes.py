"""Which index a vector column gets, whether the one it has still fits, and how much that one finds.

Nothing is traded for speed unless the schema asks for it: what is chosen here is exact at any
number of rows. ``@vector(…, method=…, probes=…)`` may ask for less work and fewer of the near rows;
how many it still finds is measured on a sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
from omnigraph.storage.tables.search import Hits, column_batches, vector_hits
from omnigraph.storage.tables.segments import IndexFacts, some_vectors
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import IndexKind, IndexSpec

FEW_ROWS = 4096
"""A table of fewer rows is searched exactly, whatever method its schema names."""
ROWS_PER_PARTITION = 4096
LEAST_PER_PARTITION = 256
"""From fewer rows Lance learns no partition."""
MOST_CHOSEN = 4096
WHOLE_BYTES = 256 << 20
"""Up to so many bytes of vectors lie in one partition, where all of them are looked at anyway."""
PARTITION_BYTES = 64 << 20
GROWN = 4
"""A table of so many times the rows that an index was built from may get another one."""

QUERIES = 64
NEIGHBOURS = 10
SAMPLE_ROWS = 1_000_000
# Distances of Lance and of this module are in 32 bits.
_ROUNDING = 1e-4


# -- the choice -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """The parameters of an index for a number of rows, and why these."""

    spec: IndexSpec
    why: str


def declared_index(prop: Property) -> IndexSpec:
    """What the schema says of the index of a vector; what it leaves open is chosen by rows.

    An annotation that cannot be read is another program's, and is as if it were not there.
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


def chosen(spec: IndexSpec, rows: int) -> Choice:
    """The index to build for so many rows; the same rows and schema choose the same.

    >>> spec = IndexSpec("v", IndexKind.VECTOR, partitions=0, dimension=768)
    >>> [chosen(spec, rows).spec.partitions for rows in (100, 50_000, 1_000_000)]
    [1, 1, 46]
    """
    if spec.kind is not IndexKind.VECTOR:
        return Choice(spec, "")
    exact = IndexKind.VECTOR.value
    if rows < FEW_ROWS and not spec.is_exact:
        few = replace(spec, method=exact, partitions=1, sub_vectors=None)
        return Choice(few, f"fewer than {FEW_ROWS} rows are searched exactly")
    if spec.method != exact and spec.sub_vectors is None and spec.method.endswith("PQ"):
        spec = replace(spec, sub_vectors=_sub_vectors(spec.dimension))
    if spec.partitions:
        most = max(1, rows // LEAST_PER_PARTITION)
        return Choice(replace(spec, partitions=min(spec.partitions, most)), "the schema says so")
    if spec.is_exact:
        size = rows * spec.dimension * 4
        if size <= WHOLE_BYTES:
            return Choice(replace(spec, partitions=1), "exact; the vectors fit in one partition")
        count = min(math.ceil(size / PARTITION_BYTES), MOST_CHOSEN)
        why = f"exact; partitions of about {PARTITION_BYTES >> 20} MiB"
        return Choice(replace(spec, partitions=count), why)
    count = max(1, min(rows // ROWS_PER_PARTITION, MOST_CHOSEN))
    why = f"as the schema asks; partitions of about {ROWS_PER_PARTITION} rows"
    return Choice(replace(spec, partitions=count), why)


def _sub_vectors(dimension: int) -> int:
    """About one code for eight numbers, of equal pieces."""
    divisors = [n for n in range(1, dimension + 1) if dimension % n == 0]
    return min(divisors, key=lambda n: (abs(n - dimension / 8), n))


def partitions_for(spec: IndexSpec, rows: int) -> int:
    """Of a segment that knows so many of the rows: a small one has no use for many."""
    if spec.kind is not IndexKind.VECTOR:
        return 1
    return max(1, min(spec.partitions, rows // (4 * LEAST_PER_PARTITION)))


def unfit(facts: IndexFacts, spec: IndexSpec, rows: int) -> str | None:
    """Why an index of a table is to be built anew, if it is. ``spec`` is what was chosen now."""
    if spec.kind is not IndexKind.VECTOR:
        return None
    if facts.method.upper() != spec.method:
        return f"it is {facts.method}, and {spec.method} is asked for"
    if facts.metric != spec.metric:
        return f"it measures {facts.metric}, and {spec.metric} is asked for"
    if spec.sub_vectors is not None and facts.sub_vectors != spec.sub_vectors:
        return f"it has {facts.sub_vectors} sub-vectors, and {spec.sub_vectors} are asked for"
    if spec.partitions > 1 and facts.largest * GROWN <= rows:
        return f"it was built for {facts.largest} rows, and there are {rows}"
    return None


def may_have_worn(facts: IndexFacts, spec: IndexSpec) -> bool:
    """Whether building an index anew could find more.

    One that is a single segment was built from all that it knows: it would come out the same.
    """
    return spec.kind is IndexKind.VECTOR and not spec.is_exact and facts.segments > 1


# -- what it finds --------------------------------------------------------------------------------


def recall(table: Table, spec: IndexSpec) -> float | None:
    """How much of what is near a search by the index finds, from 0 to 1; none without vectors.

    Some stored vectors are searched for. What lies nearer than the last hit of each, and is no
    hit, was missed. At most a million rows are looked through for that, whole parts that lie
    evenly over the table.
    """
    queries = some_vectors(table, spec.column, QUERIES)
    if spec.metric == "cosine":
        queries = queries[np.linalg.norm(queries, axis=1) > 0]
    if not len(queries):
        return None
    hits = [_hits(table, spec, query) for query in queries]
    limits = [_limit(each) for each in hits]
    found = missed = 0
    for row_ids, vectors in _rows(table, spec.column):
        apart = _distances(queries, vectors, spec.metric)
        for number, each in enumerate(hits):
            here = np.isin(row_ids, each.row_ids)
            found += int(here.sum())
            missed += int(((apart[number] < limits[number]) & ~here).sum())
    return None if not found + missed else found / (found + missed)


def _limit(hits: Hits) -> float:
    """Nearer than this is clearly nearer than the last hit; all is, when there are too few."""
    if len(hits) < NEIGHBOURS:
        return math.inf
    last = float(hits.scores[-1])
    return last - _ROUNDING * max(1.0, abs(last))


def _hits(table: Table, spec: IndexSpec, query: npt.NDArray[np.float32]) -> Hits:
    hits = vector_hits(
        table, spec.column, query, NEIGHBOURS, metric=spec.metric, probes=spec.probes
    )
    # Only a condition can be too much for Lance.
    assert hits is not None
    return hits


def _rows(
    table: Table, column: str
) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.float32]]]:
    """Row ids and vectors of the sample, in pieces."""
    size = table.schema.field(column).type.list_size
    for batch in column_batches(table, column, _sampled_parts(table)):
        there = batch[column].is_valid()
        numbers = batch[column].filter(there).flatten().to_numpy(zero_copy_only=False)
        row_ids = batch["_rowid"].filter(there).to_numpy(zero_copy_only=False)
        yield row_ids.astype(np.uint64), numbers.astype(np.float32).reshape(-1, size)


def _sampled_parts(table: Table) -> Sequence[int]:
    parts = table.fragments()
    total = sum(part.rows for part in parts)
    step = max(1, math.ceil(total / SAMPLE_ROWS))
    return [part.number for part in parts[::step]]


def _distances(
    queries: npt.NDArray[np.float32], vectors: npt.NDArray[np.float32], metric: str
) -> npt.NDArray[np.float64]:
    """As Lance measures: squared for ``l2``; infinite where there is no direction."""
    wide, others = queries.astype(np.float64), vectors.astype(np.float64)
    product: npt.NDArray[np.float64] = wide @ others.T
    if metric == "dot":
        return 1.0 - product
    here, there = np.vecdot(wide, wide), np.vecdot(others, others)
    apart: npt.NDArray[np.float64]
    if metric == "l2":
        apart = here[:, None] + there[None, :] - 2.0 * product
        return apart
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = 1.0 - product / np.sqrt(here[:, None] * there[None, :])
    return np.where(np.isfinite(apart), apart, np.inf)
