"""Rows that were computed beyond a page, kept for a moment: the next page is asked for soon.

To find the rows of a page, the pattern is matched and the rows are sorted again. So a page that
follows another computes some more rows than it returns. They are kept in this process, for exactly
the same query, parameters, actor, state and visible rows; another process computes them again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from omnigraph.api.cursors import PageCursor

MOST_BYTES = 4 << 20
"""The bytes that are kept of one query, about."""
_MOST = 64
_MOST_BYTES = 16 << 20
_SECONDS = 60.0


class RowsAhead(NamedTuple):
    """Some rows of a query."""

    start: int
    """How many rows come before them."""
    rows: pa.Table
    is_last: bool
    """Whether no row comes after them."""

    def of(self, offset: int, count: int) -> pa.Table | None:
        """``count`` rows, or all up to the end; ``None`` if some of them are not here."""
        first = offset - self.start
        is_here = first + count <= self.rows.num_rows or self.is_last
        return self.rows.slice(first, count) if first >= 0 and is_here else None


class _Kept(NamedTuple):
    ahead: RowsAhead
    size: int
    until: float


class PageCache:
    """The rows ahead of the pages that are read of a graph. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[PageCursor, _Kept] = OrderedDict()
        self._size = 0

    def get(self, position: PageCursor, count: int) -> pa.Table | None:
        """``count`` rows from a position on, or all up to the end, if they are here."""
        with self._lock:
            kept = self._kept.get(_key(position))
            if kept is None or kept.until < self._clock():
                return None
            self._kept.move_to_end(_key(position))
            return kept.ahead.of(position.offset, count)

    def put(self, position: PageCursor, ahead: RowsAhead) -> None:
        """Keep rows of the query of a position, instead of those that were kept of it."""
        size = ahead.rows.nbytes
        with self._lock:
            self._drop(_key(position))
            # The last rows may have been one batch too many.
            if size > 2 * MOST_BYTES:
                return
            self._kept[_key(position)] = _Kept(ahead, size, self._clock() + _SECONDS)
            self._size += size
            while len(self._kept) > _MOST or self._size > _MOST_BYTES:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: PageCursor) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._size -= dropped.size


def _key(position: PageCursor) -> PageCursor:
    """What all pages of one reading have in common."""
    return position.after(-position.offset)
