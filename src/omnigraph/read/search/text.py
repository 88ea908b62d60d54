"""Text search: the matching rows, identical with and without an index.

The index is used for the fragments it covers; for all others the analyser yields the same terms. A
query matches a row that has any of its terms. A fuzzy query matches a row with a term that is at
most a few edits away from a word of the query as written (neither lower-cased nor stemmed, like the
indexes). A null matches nothing, nor does a query without terms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.lang.query.typed import TextFunction
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.read.limits import Check, unlimited
from omnigraph.read.search.analyser import Analysed, analyse, analyse_query, split_words
from omnigraph.storage.tables.search import RowIds, column_batches, text_hits, text_index
from omnigraph.storage.tables.table import Table

DEFAULT_EDITS = 2
# Longer than any term: with this many edits every term matches every other.
_MOST_EDITS = 255
# The number of texts in memory that are analysed at once.
_BLOCK = 16_384
_NO_ROWS: RowIds = np.empty(0, np.uint64)


def match_set(
    table: Table,
    column: str,
    function: TextFunction,
    query: str,
    max_edits: int | None = None,
    check: Check = unlimited,
) -> RowIds:
    """The ids of the rows that match a query, ascending; ``check`` runs while texts are read."""
    edits = allowed_edits(function, max_edits)
    terms = query_terms(query, edits)
    if not terms:
        return _NO_ROWS
    index = text_index(table, column)
    hits = None if index is None else text_hits(table, index, query, max_edits=edits)
    if index is None or hits is None:
        return _scanned(table, column, None, terms, edits, check)
    if index.complete:
        return np.unique(hits.row_ids)
    outside = _scanned(table, column, index.outside, terms, edits, check)
    return np.unique(np.concatenate([hits.row_ids, outside]))


def matches(
    texts: pa.Array | pa.ChunkedArray,
    function: TextFunction,
    query: str,
    max_edits: int | None = None,
    check: Check = unlimited,
) -> npt.NDArray[np.bool_]:
    """Whether each text matches: as ``match_set``, for texts in memory.

    >>> matches(pa.array(["red foxes", None]), TextFunction.SEARCH, "fox").tolist()
    [True, False]
    """
    edits = allowed_edits(function, max_edits)
    terms = query_terms(query, edits)
    is_match = np.zeros(len(texts), np.bool_)
    for start in range(0, len(texts) if terms else 0, _BLOCK):
        check()
        analysed = analyse(texts.slice(start, _BLOCK))
        is_match[start + _matching_rows(analysed, terms, edits)] = True
    return is_match


def query_terms(query: str, edits: int) -> list[str]:
    """The terms of a query."""
    return split_words(query) if edits else analyse_query(query)


def allowed_edits(function: TextFunction, max_edits: int | None) -> int:
    """The number of edits that a call allows: 2 by default for ``fuzzy``, 0 for the others."""
    if function is not TextFunction.FUZZY:
        return 0
    if max_edits is None:
        return DEFAULT_EDITS
    if max_edits < 0:
        raise InputError(
            f"the edit distance of `fuzzy` cannot be negative, got {max_edits}",
            hint="0 matches exactly, 2 is the default",
        )
    return min(max_edits, _MOST_EDITS)


def _scanned(
    table: Table,
    column: str,
    fragments: Collection[int] | None,
    terms: Sequence[str],
    edits: int,
    check: Check,
) -> RowIds:
    parts = [
        row_ids[_matching_rows(analysed, terms, edits)]
        for row_ids, analysed in analysed_batches(table, column, fragments, check=check)
    ]
    return np.unique(np.concatenate(parts)) if parts else _NO_ROWS


def analysed_batches(
    table: Table,
    column: str,
    fragments: Collection[int] | None = None,
    limit: int | None = None,
    check: Check = unlimited,
) -> Iterator[tuple[RowIds, Analysed]]:
    """The terms of a column and the row ids, batch by batch."""
    for batch in column_batches(table, column, fragments, limit):
        check()
        row_ids = numpy_view(batch["_rowid"]).astype(np.uint64, copy=False)
        yield row_ids, analyse(batch[column])


def _matching_rows(analysed: Analysed, terms: Sequence[str], edits: int) -> npt.NDArray[np.int64]:
    wanted = near_terms(analysed.terms, terms, edits)
    return np.unique(analysed.rows[wanted[analysed.codes]])


def near_terms(
    candidates: Sequence[str], terms: Sequence[str], edits: int
) -> npt.NDArray[np.bool_]:
    """A mask of the candidates that are within ``edits`` of a term of a query."""
    if edits == 0:
        exact = frozenset(terms)
        return np.fromiter((term in exact for term in candidates), np.bool_, len(candidates))
    is_near = np.zeros(len(candidates), np.bool_)
    for term in dict.fromkeys(terms):
        is_near |= within_edits(candidates, term, edits)
    return is_near


def within_edits(terms: Sequence[str], wanted: str, edits: int) -> npt.NDArray[np.bool_]:
    """For each term, whether it is within ``edits`` of ``wanted``, as the text indexes count.

    An edit inserts, removes or replaces one character; swapping two characters is two edits.

    >>> within_edits(["fox", "ox", "xof", "whale"], "fox", 1).tolist()
    [True, True, False, False]
    """
    near = np.zeros(len(terms), np.bool_)
    if not terms:
        return near
    lengths = np.fromiter(map(len, terms), np.int64, len(terms))
    candidates = np.flatnonzero(np.abs(lengths - len(wanted)) <= edits)
    if len(candidates):
        chosen = [terms[position] for position in candidates.tolist()]
        near[candidates] = _distances(chosen, lengths[candidates], wanted) <= edits
    return near


def _distances(
    terms: list[str], lengths: npt.NDArray[np.int64], wanted: str
) -> npt.NDArray[np.int32]:
    """The edit distance of every term, computed at once: one table with a layer per term."""
    width = max(1, int(lengths.max()))
    letters = np.array(terms, dtype=f"<U{width}").view(np.uint32).reshape(len(terms), width)
    row = np.broadcast_to(np.arange(width + 1, dtype=np.int32), (len(terms), width + 1)).copy()
    for position, letter in enumerate(wanted, start=1):
        before = row
        row = np.empty_like(before)
        row[:, 0] = position
        replaced = before[:, :-1] + (letters != ord(letter))
        shorter = before[:, 1:] + 1
        best = np.minimum(replaced, shorter)
        for column in range(width):
            row[:, column + 1] = np.minimum(best[:, column], row[:, column] + 1)
    result: npt.NDArray[np.int32] = row[np.arange(len(terms)), lengths]
    return result
