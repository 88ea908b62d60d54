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
# The last two pairs of characters are looked up for all rows at once; the others are the same in
# every piece.
_PAIR_BITS = 10
_BITS = 2 * _PAIR_BITS
_PAIRS = np.frombuffer("".join(a + b for a in ALPHABET for b in ALPHABET).encode(), dtype=np.uint16)


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
        rows = min(end - start, (1 << _BITS) - low)
        yield _texts(start, low, rows)
        start += rows


def _texts(start: int, low: int, rows: int) -> pa.Array:
    pairs = np.empty((rows, _LENGTH // 2), dtype=np.uint16)
    pairs[:] = np.frombuffer(encode_ulid(start).encode(), dtype=np.uint16)
    numbers = np.arange(low, low + rows, dtype=np.int32)
    pairs[:, -2] = _PAIRS[numbers >> _PAIR_BITS]
    pairs[:, -1] = _PAIRS[numbers & (1 << _PAIR_BITS) - 1]
    bounds = np.arange(0, (rows + 1) * _LENGTH, _LENGTH, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(bounds), pa.py_buffer(pairs))
