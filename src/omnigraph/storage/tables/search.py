"""The only interface to Lance's searches: full-text search and nearest neighbours.

A text search uses only the index: the caller searches the fragments that it does not cover. A
vector search covers every row, with the index where there is one and by brute force elsewhere. Rows
are identified by their stable row ids.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.query import MatchQuery

from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.records import dataclass
from omnigraph.storage.tables.failures import is_unsupported_filter, lance_call
from omnigraph.storage.tables.table import Table, fragments_of
from omnigraph.storage.tables.wide_columns import batch_rows

if TYPE_CHECKING:
    import pyarrow.compute as pc

RowIds: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]

# Otherwise Lance stops after 50 terms, in alphabetical order.
_ALL_EXPANSIONS = 2**31 - 1
_TOO_WIDE = re.compile("Levenshtein automaton exceeds")
# A graph may have indexes of other programs, with many partitions or compressed.
_ALL_PARTITIONS = 1_000_000
_REFINE = 20

_ANALYSER: dict[str, object] = {
    "base_tokenizer": "simple",
    "language": "English",
    "max_token_length": 40,
    "lower_case": True,
    "stem": True,
    "remove_stop_words": True,
    "custom_stop_words": None,
    "ascii_folding": True,
    "split_identifiers": False,
    "split_on_numerics": False,
    "document_granularity": "row",
}
"""The tokenizer of our indexes. An index with another one would find other rows."""

_EDITION = 2
"""The format of our text indexes. Older releases of Lance wrote another format and stemmed by other
rules without recording it: queried by this release, such an index misses rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """The row ids of a search, and the score or distance of each."""

    row_ids: RowIds
    scores: Floats

    def __len__(self) -> int:
        return len(self.row_ids)

    def head(self, limit: int | None) -> Hits:
        return self if limit is None else Hits(self.row_ids[:limit], self.scores[:limit])


NOTHING = Hits(np.empty(0, np.uint64), np.empty(0, np.float64))


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """The index of one column: which fragments it covers, and the metric of a vector index."""

    name: str
    column: str
    covered: frozenset[int]
    outside: frozenset[int]
    metric: str | None = None

    @property
    def complete(self) -> bool:
        return not self.outside


def text_index(table: Table, column: str) -> SearchIndex | None:
    """The text index of a column, if it has one with our tokenizer.

    ``None`` if it is damaged, or if there are several: Lance does not say which one it uses.
    """
    if table.avoids_index(column):
        return None
    indexes = [index for index in _indexes(table, column) if index.index_type == "Inverted"]
    if len(indexes) != 1 or not _is_ours(indexes[0]):
        return None
    return _search_index(table, indexes[0], column)


def _is_ours(index: Any) -> bool:
    details = index.details or {}
    return all(details.get(name) == value for name, value in _ANALYSER.items()) and all(
        segment.index_version == _EDITION for segment in index.segments
    )


def vector_index(table: Table, column: str) -> SearchIndex | None:
    """The vector index of a column, unless it is damaged."""
    if table.avoids_index(column):
        return None
    for index in _indexes(table, column):
        metric = (index.details or {}).get("metric_type")
        if metric is not None:
            return _search_index(table, index, column, str(metric).lower())
    return None


def _indexes(table: Table, column: str) -> list[Any]:
    with lance_call("read", table.ref.path):
        indexes = table.dataset.describe_indices()
        return [index for index in indexes if list(index.field_names) == [column]]


def _search_index(table: Table, index: Any, column: str, metric: str | None = None) -> SearchIndex:
    with lance_call("read", table.ref.path):
        live = {fragment.fragment_id for fragment in table.dataset.get_fragments()}
        covered = {number for segment in index.segments for number in segment.fragment_ids}
    return SearchIndex(
        index.name, column, frozenset(covered & live), frozenset(live - covered), metric
    )


def text_count(table: Table, index: SearchIndex) -> int:
    """The number of texts in a text index, including those of deleted rows."""
    with lance_call("read", table.ref.path):
        stats = table.dataset.stats.index_stats(index.name)
        return sum(int(segment["num_docs"]) for segment in stats["indices"])


def text_hits(
    table: Table,
    index: SearchIndex,
    query: str,
    *,
    max_edits: int = 0,
    condition: pc.Expression | None = None,
    limit: int | None = None,
) -> Hits | None:
    """The rows that an index finds for any of the words, best first, with their scores.

    ``None`` if the index does not support that many edits, or if the filter needs a damaged index.
    """
    if condition is not None and table.avoids_index(condition):
        return None
    match_query = MatchQuery(
        query, index.column, fuzziness=max_edits, max_expansions=_ALL_EXPANSIONS
    )
    with lance_call("search", table.ref.path):
        try:
            rows = table.dataset.scanner(
                columns=["_score"],
                full_text_query=match_query,
                filter=condition,
                prefilter=True,
                limit=limit,
                with_row_id=True,
                fast_search=True,
            ).to_table()
        except (ValueError, pa.ArrowInvalid) as error:
            if _TOO_WIDE.search(str(error)) or is_unsupported_filter(error):
                return None
            raise
    return _hits(rows, "_score")


def vector_hits(
    table: Table,
    column: str,
    query: npt.NDArray[np.float32],
    k: int,
    *,
    metric: str,
    condition: pc.Expression | None = None,
    probes: int | None = None,
) -> Hits | None:
    """The k nearest rows among those that match a condition, nearest first.

    ``probes`` is the number of index partitions to search; all are searched if these have too few
    rows. Rows without a vector are excluded, and for cosine those with a zero vector. Distances are
    as Lance computes them: squared for ``l2``. ``None`` if Lance does not support the condition.
    """
    is_unindexed = table.avoids_index(f"{column} {condition}")
    dataset = table.dataset_for(f"{column} {condition}")
    compressed = not is_unindexed and any(
        "metric_type" in (index.details or {}) and not index.index_type.endswith("FLAT")
        for index in _indexes(table, column)
    )
    nearest = {
        "column": column,
        "q": query,
        "k": k,
        "metric": metric,
        "nprobes": _ALL_PARTITIONS if probes is None else probes,
        "refine_factor": _REFINE if compressed else None,
    }
    with lance_call("search", table.ref.path):
        try:
            rows = dataset.scanner(
                columns=["_distance"],
                nearest=nearest,
                filter=condition,
                prefilter=True,
                with_row_id=True,
            ).to_table()
        except (ValueError, pa.ArrowInvalid) as error:
            if condition is not None and is_unsupported_filter(error):
                return None
            raise
    if probes is not None and len(rows) < k:
        return vector_hits(table, column, query, k, metric=metric, condition=condition)
    return _hits(rows, "_distance")


def _hits(rows: pa.Table, scores: str) -> Hits:
    return Hits(
        numpy_view(rows["_rowid"]).astype(np.uint64, copy=False),
        numpy_view(rows[scores]).astype(np.float64),
    )


def column_batches(
    table: Table,
    column: str,
    fragments: Collection[int] | None = None,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """One column with the row ids, of the whole table or of some fragments, in scan order."""
    with lance_call("read", table.ref.path):
        selected = None if fragments is None else fragments_of(table.dataset, fragments)
        if selected == []:
            return
        yield from table.dataset.scanner(
            columns=[column],
            fragments=selected,
            limit=limit,
            with_row_id=True,
            batch_size=batch_rows(table.schema, [column]),
        ).to_batches()


def matching_rows(table: Table, condition: pc.Expression) -> RowIds:
    """The row ids that match a condition, ascending."""
    row_ids = table.read([], condition, row_ids=True)["_rowid"]
    ids: RowIds = np.sort(numpy_view(row_ids).astype(np.uint64, copy=False))
    return ids
