"""Admission control: a process runs one small query at a time, and as many large ones as cores."""

from __future__ import annotations

import threading
import time

from omnigraph.read.slots import QuerySlots, SlotRequest
from omnigraph.read.threads import CORES

# A query that takes longer, in seconds, is not small.
_LONG = 0.002
# A thread whose next query comes within so many seconds runs queries in a row.
_RECENT = 0.002

_now = time.perf_counter


class _Thread(threading.local):
    """What the gate knows about the calling thread."""

    def __init__(self, gate: QueryGate) -> None:
        self.depth = 0
        self.since: float | None = None
        """When it acquired the gate as a small query."""
        self.until = 0.0
        """When its last query ended."""
        self.is_large = False
        """Whether its query is large, or its last one was."""
        self.small, self.large = SlotRequest(), SlotRequest()
        self.end = _ThreadEnd(gate, self.small, self.large)


class _ThreadEnd:
    """Is deleted with the other values of its thread, when the thread ends."""

    def __init__(self, gate: QueryGate, small: SlotRequest, large: SlotRequest) -> None:
        self._gate, self._small, self._large = gate, small, large

    def __del__(self) -> None:
        self._gate.small.drop(self._small)
        self._gate.large.drop(self._large)


class QueryGate:
    """Admits small queries one at a time, and large ones as many at a time as there are cores.

    Only one thread at a time can run Python. A query of a fraction of a millisecond calls Arrow
    dozens of times, and each call would release the interpreter lock and wait to acquire it again:
    four threads together would run fewer queries than one. More large queries than cores would only
    wait for that lock, too.

    A query that turns out to be large, or that reads from storage, releases the gate early, before
    its ``with`` block ends. A thread that runs large queries in a row is admitted at the beginning
    of each.
    """

    def __init__(self) -> None:
        self.small, self.large = QuerySlots(1), QuerySlots(CORES)
        self._own = _Thread(self)

    def __enter__(self) -> None:
        own = self._own
        own.depth += 1
        if own.depth > 1:
            return
        now = _now()
        own.small.is_in_a_row = own.large.is_in_a_row = now - own.until < _RECENT
        was_large, own.is_large = own.is_large, False
        try:
            if was_large and own.large.is_in_a_row:
                self.large.enter(own.large, now)
            elif self.small.enter(own.small, now):
                own.since = _now()
        except BaseException:  # Ctrl-C
            own.depth = 0
            raise

    def __exit__(self, *error: object) -> None:
        own = self._own
        own.depth -= 1
        if own.depth:
            return
        own.until = _now()
        if own.since is not None:
            own.since = None
            self.small.leave(own.small, may_keep=True)
        if own.large.has_slot:
            self.large.leave(own.large, may_keep=own.is_large)

    def release(self) -> None:
        """Admit the next query, because the rest of this one takes long or waits for I/O."""
        if self._own.since is not None:
            self._own.since = None
            self.small.leave(self._own.small, may_keep=False)

    def release_if_long(self) -> None:
        """Release the gate if the query has already run longer than a small query."""
        since = self._own.since
        if since is not None and _now() - since > _LONG:
            self.release()

    def continue_as_large(self) -> None:
        """Release the gate: the query is large, and continues as soon as it has a core."""
        own = self._own
        if own.depth:
            own.is_large = True
            if not own.large.has_slot:
                self.release()
                self.large.enter(own.large, _now())

    @property
    def is_free(self) -> bool:
        """Whether no small query holds the gate."""
        return self.small.is_free


GATE = QueryGate()
"""The gate of this process."""
