"""Ids of many rows as columns: from their keys, or new ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.ulid import ALPHABET, encode_ulid, reserve_ulids

# JSON escapes these characters.
_ESCAPED = r'["\\\x00-\x1f]'
_SPELLED_ALIKE = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean)
_LENGTH = 26
# This many trailing characters are computed for all rows at once, as 64-bit integers.
_VARIED = 8
_BITS = 5 * _VARIED
_SHIFTS = np.arange(_BITS - 5, -1, -5, dtype=np.uint64)
_PIECE = 1 << 20
_LETTERS = np.frombuffer(ALPHABET.encode(), dtype=np.uint8)


def spelled_keys(columns: Sequence[Any]) -> Any | None:
    """The ids of ``key_id``, null if a part is null; ``None`` if Arrow formats some differently.

    >>> spelled_keys([pa.array([7, None])]).to_pylist()
    ['7', None]
    >>> spelled_keys([pa.array(["a,b", "c"]), pa.array([7, 8])]).to_pylist()
    ['["a,b","7"]', '["c","8"]']
    """
    if not all(any(is_type(column.type) for is_type in _SPELLED_ALIKE) for column in columns):
        return None
    texts = [column.cast(pa.string()) for column in columns]
    if len(texts) == 1:
        return texts[0]
    for text in texts:
        if pc.any(pc.match_substring_regex(text, _ESCAPED)).as_py():
            return None
    parts = [part for text in texts for part in ('","', text)][1:]
    return pc.binary_join_element_wise('["', *parts, '"]', "")


def new_ids(count: int) -> pa.Array:
    """``count`` new ids, strictly increasing.

    >>> ids = new_ids(3).to_pylist()
    >>> [len(text) for text in ids], ids == sorted(set(ids))
    ([26, 26, 26], True)
    """
    start = reserve_ulids(count) if count else 0
    return pa.concat_arrays(list(_columns(start, count))) if count else pa.array([], pa.string())


def _columns(start: int, count: int) -> Iterator[pa.Array]:
    """The texts of consecutive numbers, in pieces with a common prefix."""
    end = start + count
    while start < end:
        low = start & (1 << _BITS) - 1
        rows = min(end - start, (1 << _BITS) - low, _PIECE)
        yield _texts(start, low, rows)
        start += rows


def _texts(start: int, low: int, rows: int) -> pa.Array:
    characters = np.empty((rows, _LENGTH), dtype=np.uint8)
    characters[:] = np.frombuffer(encode_ulid(start).encode(), dtype=np.uint8)
    numbers = np.arange(low, low + rows, dtype=np.uint64)
    characters[:, -_VARIED:] = _LETTERS[(numbers[:, None] >> _SHIFTS) & np.uint64(31)]
    bounds = np.arange(0, (rows + 1) * _LENGTH, _LENGTH, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(bounds), pa.py_buffer(characters))
