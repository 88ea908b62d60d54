"""Admission control: a process runs one small query at a time."""

from __future__ import annotations

import threading
import time

# The longest wait in seconds; then a query runs without the gate, so it never limits throughput.
_PATIENCE = 0.05
# A query that takes longer, in seconds, is not small.
_LONG = 0.002
# A thread whose next query comes within so many seconds runs queries in a row; others let it do so
# for a while, as the interpreter lets a thread.
_PAUSE, _WHILE = 0.0005, 0.003


def _wait() -> None:
    time.sleep(_WHILE)


class _Thread(threading.local):
    """The calling thread's nesting depth, when it acquired the gate, and when it released it."""

    depth = 0
    since: float | None = None
    until = 0.0


class QueryGate:
    """Admits small queries one at a time in a process.

    Only one thread at a time can run Python. A query of a fraction of a millisecond calls Arrow
    dozens of times, and each call would release the interpreter lock and wait to acquire it again:
    four threads together would run fewer queries than one. For the same reason the gate does not
    pass to another thread after each query, if one runs many in a row. A query that turns out to be
    large, or that reads from storage, releases the gate early, before its ``with`` block ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = _Thread()
        self._runs_in_a_row = False

    def __enter__(self) -> None:
        own = self._own
        own.depth += 1
        if own.depth > 1:
            return
        runs_in_a_row = time.perf_counter() - own.until < _PAUSE
        if not self._lock.acquire(blocking=False):
            if self._runs_in_a_row:
                _wait()
            if not self._lock.acquire(timeout=_PATIENCE):
                return
        self._runs_in_a_row = runs_in_a_row
        own.since = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._own.depth -= 1
        if not self._own.depth:
            self.release()

    def release(self) -> None:
        """Admit the next query, because the rest of this one takes long or waits for I/O."""
        if self._own.since is not None:
            self._own.since = None
            self._own.until = time.perf_counter()
            self._lock.release()

    def release_if_long(self) -> None:
        """Release the gate if the query has already run longer than a small query."""
        since = self._own.since
        if since is not None and time.perf_counter() - since > _LONG:
            self.release()

    @property
    def is_free(self) -> bool:
        """Whether no query holds the gate."""
        return not self._lock.locked()


GATE = QueryGate()
"""The gate of this process."""
