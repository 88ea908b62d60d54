"""New ids for many rows at once, as a column."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.commit.ulid import ALPHABET, encode_ulid, reserve_ulids

_LENGTH = 26
# So many characters at the end are made for all rows together, in numbers of 64 bits.
_VARIED = 8
_BITS = 5 * _VARIED
_SHIFTS = np.arange(_BITS - 5, -1, -5, dtype=np.uint64)
_PIECE = 1 << 20
_LETTERS = np.frombuffer(ALPHABET.encode(), dtype=np.uint8)


def new_ids(count: int) -> pa.Array:
    """So many new ids, each greater than the one before.

    >>> ids = new_ids(3).to_pylist()
    >>> [len(text) for text in ids], ids == sorted(set(ids))
    ([26, 26, 26], True)
    """
    start = reserve_ulids(count) if count else 0
    return pa.concat_arrays(list(_columns(start, count))) if count else pa.array([], pa.string())


def _columns(start: int, count: int) -> Iterator[pa.Array]:
    """The texts of consecutive numbers, in pieces that share how they begin."""
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
