"""The analyser of the text indexes, for rows that the indexes do not cover.

It yields exactly the terms of the indexes, so the same rows match with and without an index.
In this order: split at everything but letters and digits, drop words of 40 bytes and more,
lower-case, English stem, drop stop words, fold to ASCII.

A whole column is split at once, and each distinct word is analysed once; the terms of frequent
words are cached between calls.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.read.search.letters import fold, lower, word_ranges
from omnigraph.read.search.stemmer import stem
from omnigraph.records import dataclass

MAX_WORD_BYTES = 40

_STOP_TEXT = """
a about after again against all am an and are as at be been before below between both but by can
did do down each few for from further had has have he her here herself him himself his how i if in
into is it itself just me more most my myself now of off on or other our out over own re same she
should so some such than that the their them then there these they this those through to too under
until up was we were what when where which while who whom will with you your yourself
"""
_STOP_WORDS = frozenset(_STOP_TEXT.split())


@dataclass(frozen=True, slots=True, eq=False)
class Analysed:
    """A column of texts as terms.

    ``terms`` are the distinct terms; ``codes`` has the index into ``terms`` of each word, and
    ``rows`` its row, ascending. ``size`` is the number of rows.
    """

    terms: tuple[str, ...]
    codes: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    size: int

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of words of each row."""
        return np.bincount(self.rows, minlength=self.size)


def analyse_query(text: str) -> list[str]:
    """The terms of a query, in order, with repetitions.

    >>> analyse_query("The Running FOXES, naïvely!")
    ['run', 'fox', 'naiv']
    """
    analysed = analyse(pa.array([text], pa.string()))
    return [analysed.terms[code] for code in analysed.codes]


def split_words(text: str) -> list[str]:
    """The words of a text as written.

    >>> split_words("The Running FOXES, naïvely!")
    ['The', 'Running', 'FOXES', 'naïvely']
    """
    words, _ = _words(pa.array([text], pa.string()))
    result: list[str] = words.to_pylist()
    return result


def analyse(column: pa.Array | pa.ChunkedArray) -> Analysed:
    """The terms of a column of texts; a null has none."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    words, rows = _words(column)
    encoded = words.dictionary_encode()
    term_of = np.full(len(encoded.dictionary) + 1, -1, np.int64)
    terms: dict[str, int] = {}
    for position, word in enumerate(encoded.dictionary.to_pylist()):
        term = _term(word)
        if term is not None:
            term_of[position] = terms.setdefault(term, len(terms))
    codes = term_of[np.asarray(encoded.indices, np.int64)]
    kept = codes >= 0
    return Analysed(tuple(terms), codes[kept], rows[kept], len(column))


def _words(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Every word of a column as written, and its row.

    All texts are one array of bytes. A word begins at a word byte that follows another byte or
    begins a row. Without the bytes in between, the words are contiguous.
    """
    texts = column.cast(pa.large_string()).fill_null("")
    ends = np.frombuffer(texts.buffers()[1], np.int64, len(texts) + 1, 8 * texts.offset)
    content = texts.buffers()[2]
    if content is None or ends[0] == ends[-1]:
        return pa.array([], pa.large_string()), np.empty(0, np.int64)
    data = np.frombuffer(content, np.uint8, int(ends[-1] - ends[0]), int(ends[0]))
    ends = ends - ends[0]
    inside = _inside_words(data)
    starts = inside.copy()
    starts[1:] &= ~inside[:-1]
    begins = ends[:-1][ends[:-1] < len(data)]
    starts[begins] = inside[begins]
    positions = np.flatnonzero(starts)
    kept = np.cumsum(inside)
    offsets = np.append(kept[positions] - 1, kept[-1]).astype(np.int64)
    words = pa.LargeStringArray.from_buffers(
        len(positions), pa.py_buffer(offsets), pa.py_buffer(data[inside])
    )
    return words, np.searchsorted(ends, positions, side="right") - 1


def _inside_words(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """For each byte of a UTF-8 text, whether it belongs to a word."""
    table = _word_table()
    if data.max() < 128:
        return table[data]
    letters = np.frombuffer(data.tobytes().decode("utf-8").encode("utf-32-le"), np.uint32)
    first_bytes = (data & 0xC0) != 0x80
    inside: npt.NDArray[np.bool_] = table[letters][np.cumsum(first_bytes) - 1]
    return inside


@cache
def _word_table() -> npt.NDArray[np.bool_]:
    """For every code point, whether it belongs to words."""
    table = np.zeros(0x110000, np.bool_)
    for first, last in word_ranges():
        table[first : last + 1] = True
    return table


@lru_cache(maxsize=1 << 17)
def _term(word: str) -> str | None:
    """The term of one word; ``None`` if it is not indexed."""
    if len(word.encode("utf-8")) >= MAX_WORD_BYTES:
        return None
    term = stem(lower(word))
    return None if term in _STOP_WORDS else fold(term)
