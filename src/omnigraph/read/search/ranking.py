"""BM25 ranking of the rows that match a text query, and the fusion of two rankings.

The score of a row is the sum, over the words of the query, of
idf · (k1 + 1) · f / (f + k1 · (1 − b + b · l / L)): f is the frequency of the word in the text, l
the number of words of the text, L the average of l, and idf is ln((N − n + ½) / (n + ½) + 1) for n
of N texts with the word. Texts without any word are not counted.

N, n and L come from the part of the table that the text index covers, as the index counts them:
texts of deleted rows stay in N until the index is rebuilt. Rows outside the index are scored with
the same statistics, except that n counts the live rows, and L is the average of the first texts of
the covered part, because the index does not report it. Without an index the statistics are exact.

For an actor who sees only a part of a table they are exact too, and those of that part: N, n and L
count visible texts only, as if the others were deleted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from omnigraph.lang.query.typed import TextFunction
from omnigraph.read.limits import Check, unlimited
from omnigraph.read.search.analyser import Analysed, analyse, analyse_query
from omnigraph.read.search.text import analysed_batches, match_set
from omnigraph.records import dataclass
from omnigraph.storage.tables.search import (
    NOTHING,
    Hits,
    RowIds,
    SearchIndex,
    text_count,
    text_hits,
    text_index,
)
from omnigraph.storage.tables.table import Table

K1 = 1.2
B = 0.75
_SAMPLE = 2_000
# The number of matching texts that are read at once.
_PIECE = 16_384
DEFAULT_K = 60


@dataclass(frozen=True, slots=True)
class TextStatistics:
    """The corpus statistics of a column: texts, their average length, texts by term."""

    texts: int
    mean_length: float
    texts_with: Mapping[str, int]

    def idf(self, term: str) -> float:
        count = min(self.texts_with.get(term, 0), self.texts)
        return math.log((self.texts - count + 0.5) / (count + 0.5) + 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Matches:
    """Rows that have a term: the lengths of their texts, and the frequency of each term."""

    row_ids: RowIds
    lengths: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]


def bm25(
    table: Table,
    column: str,
    query: str,
    candidates: RowIds | None = None,
    limit: int | None = None,
    check: Check = unlimited,
) -> Hits:
    """The rows that match any word, by descending score, equal scores by row id.

    With ``candidates`` only those rows are ranked; the scores do not depend on them. ``check``
    runs while texts are read.
    """
    terms = Counter(analyse_query(query))
    if not terms or limit == 0:
        return NOTHING
    index = text_index(table, column)
    if index is None:
        matches, statistics = _match_texts(analysed_batches(table, column, check=check), terms)
        hits = _scored(matches, terms, statistics)
    elif index.complete:
        if candidates is None and limit is not None:
            return _best(table, index, query, limit)
        hits = _covered(table, index, query)
    else:
        inside = _covered(table, index, query)
        statistics = _covered_statistics(table, index, terms)
        texts = analysed_batches(table, column, index.outside, check=check)
        outside, _ = _match_texts(texts, terms)
        hits = _joined([inside, _scored(outside, terms, statistics)])
    if candidates is not None:
        kept = np.isin(hits.row_ids, candidates)
        hits = Hits(hits.row_ids[kept], hits.scores[kept])
    return best_first(hits).head(limit)


def bm25_among(
    table: Table,
    column: str,
    query: str,
    among: RowIds,
    totals: tuple[int, int],
    check: Check = unlimited,
) -> Hits:
    """The rows among some (ascending) that match any word, best first, as if there were no others.

    ``totals`` are the number of those rows that have words, and of their words (``text_totals``).
    """
    terms = Counter(analyse_query(query))
    if not terms or not len(among):
        return NOTHING
    rows = match_set(table, column, TextFunction.SEARCH, query, check=check)
    rows = np.intersect1d(rows, among)
    matches, counted = _match_texts(_analysed_rows(table, column, rows, check), terms)
    texts, words = totals
    mean = words / texts if texts else 1.0
    return best_first(_scored(matches, terms, TextStatistics(texts, mean, counted.texts_with)))


def _analysed_rows(
    table: Table, column: str, rows: RowIds, check: Check
) -> Iterator[tuple[RowIds, Analysed]]:
    for start in range(0, len(rows), _PIECE):
        check()
        piece = rows[start : start + _PIECE]
        texts = table.take(piece.tolist(), [column])[column]
        yield piece, analyse(texts.combine_chunks())


def text_totals(
    table: Table, column: str, fragment: int, among: RowIds, check: Check = unlimited
) -> tuple[int, int]:
    """The number of rows of a fragment, among some, that have words; and of their words."""
    texts = words = 0
    for row_ids, analysed in analysed_batches(table, column, (fragment,), check=check):
        lengths = analysed.lengths[np.isin(row_ids, among, assume_unique=True)]
        texts += int(np.count_nonzero(lengths))
        words += int(lengths.sum())
    return texts, words


def best_first(hits: Hits) -> Hits:
    """Hits by descending score, equal scores by row id."""
    order = np.lexsort((hits.row_ids, -hits.scores))
    return Hits(hits.row_ids[order], hits.scores[order])


def _covered(table: Table, index: SearchIndex, query: str, limit: int | None = None) -> Hits:
    hits = text_hits(table, index, query, limit=limit)
    return NOTHING if hits is None else hits


def _best(table: Table, index: SearchIndex, query: str, limit: int) -> Hits:
    """The best rows without reading all: more are requested until the limit splits no tie."""
    count = limit + 16
    while True:
        hits = best_first(_covered(table, index, query, count))
        if len(hits) < count or hits.scores[limit - 1] > hits.scores[-1]:
            return hits.head(limit)
        count *= 4


def _covered_statistics(
    table: Table, index: SearchIndex, terms: Mapping[str, int]
) -> TextStatistics:
    _, sample = _match_texts(analysed_batches(table, index.column, index.covered, _SAMPLE), {})
    texts_with = {term: len(_covered(table, index, term)) for term in terms}
    return TextStatistics(text_count(table, index), sample.mean_length, texts_with)


def _match_texts(
    batches: Iterable[tuple[RowIds, Analysed]], terms: Mapping[str, int]
) -> tuple[list[_Matches], TextStatistics]:
    """The rows that have a term, and the statistics of all rows."""
    matches: list[_Matches] = []
    texts = words = 0
    texts_with = np.zeros(len(terms), np.int64)
    columns = {term: column for column, term in enumerate(terms)}
    for row_ids, analysed in batches:
        lengths = analysed.lengths
        texts += int(np.count_nonzero(lengths))
        words += len(analysed.codes)
        counts = np.zeros((analysed.size, len(terms)), np.int64)
        for code, term in enumerate(analysed.terms):
            if term in columns:
                rows = analysed.rows[analysed.codes == code]
                counts[:, columns[term]] = np.bincount(rows, minlength=analysed.size)
        texts_with += np.count_nonzero(counts, axis=0)
        reached = np.flatnonzero(counts.any(axis=1))
        matches.append(_Matches(row_ids[reached], lengths[reached], counts[reached]))
    by_term = dict(zip(terms, texts_with.tolist(), strict=True))
    return matches, TextStatistics(texts, words / texts if texts else 1.0, by_term)


def _scored(
    matches: Iterable[_Matches], terms: Mapping[str, int], statistics: TextStatistics
) -> Hits:
    weights = np.array([n * statistics.idf(term) * (K1 + 1.0) for term, n in terms.items()])
    hits = []
    for match in matches:
        norms = K1 * (1.0 - B + B * match.lengths / statistics.mean_length)
        scores = (weights * match.counts / (match.counts + norms[:, None])).sum(axis=1)
        hits.append(Hits(match.row_ids, scores))
    return _joined(hits)


def _joined(hits: list[Hits]) -> Hits:
    if not hits:
        return NOTHING
    return Hits(
        np.concatenate([piece.row_ids for piece in hits]),
        np.concatenate([piece.scores for piece in hits]),
    )


def fuse(
    primary: npt.NDArray[np.uint64], secondary: npt.NDArray[np.uint64], k: int = DEFAULT_K
) -> Hits:
    """Rows of two rankings, best first, with their fused scores.

    A row scores 1 / (k + rank + 1) for each ranking it is in, with ranks from 0. Equal scores
    keep the order of the primary ranking; rows only in the secondary ranking come after those.

    >>> a, b = np.array([7, 8], np.uint64), np.array([8, 9], np.uint64)
    >>> fuse(a, b, 1).row_ids.tolist()
    [8, 7, 9]
    """
    rows, first = np.unique(np.concatenate([primary, secondary]), return_index=True)
    scores = np.zeros(len(rows), np.float64)
    for ranking in (primary, secondary):
        np.add.at(scores, np.searchsorted(rows, ranking), 1.0 / (k + 1.0 + np.arange(len(ranking))))
    order = np.lexsort((first, -scores))
    return Hits(rows[order].astype(np.uint64, copy=False), scores[order])
