"""Admission control: a process runs one small query at a time, and as many large ones as cores."""

from __future__ import annotations

import threading
import time
from collections import deque

from omnigraph.read.threads import CORES

# A query that takes longer, in seconds, is not small.
_LONG = 0.002
# A thread whose next query comes within so many seconds runs queries in a row.
_RECENT = 0.002
# How long such a thread may keep the gate while others of its kind wait, and how long it may keep
# it without a query.
_TURN, _PAUSE = 0.04, 0.0005
# How often a waiting thread looks whether a kept gate is in use: at first, and at least.
_LOOK, _LAST_LOOK = 0.002, 0.02
# The longest wait of a thread that runs queries now and then, and of one that runs them in a row;
# then a query runs without admission, so that the gate never limits throughput.
_PATIENCE, _PATIENCE_IN_A_ROW = 0.05, 0.25

_now = time.perf_counter


class _Thread(threading.local):
    """What the gate knows about the calling thread."""

    def __init__(self, gate: QueryGate) -> None:
        self.depth = 0
        self.since: float | None = None
        """When it acquired the gate."""
        self.until = 0.0
        """When its last query ended."""
        self.has_slot = False
        self.ticket = _Ticket()
        self.end = _ThreadEnd(gate, self.ticket)


class _Ticket:
    """A thread at the gate."""

    __slots__ = ("is_in_a_row", "turn", "wake")

    def __init__(self) -> None:
        self.is_in_a_row = False
        self.turn = 0.0
        """When its turn began."""
        self.wake = threading.Lock()
        """Acquired while the thread waits."""
        self.wake.acquire()

    def wake_up(self) -> None:
        if self.wake.locked():
            self.wake.release()


class _ThreadEnd:
    """Is deleted with the other values of its thread, when the thread ends."""

    def __init__(self, gate: QueryGate, ticket: _Ticket) -> None:
        self._gate, self._ticket = gate, ticket

    def __del__(self) -> None:
        self._gate.leave(self._ticket)


class QueryGate:
    """Admits small queries one at a time, and large ones as many at a time as there are cores.

    Only one thread at a time can run Python. A query of a fraction of a millisecond calls Arrow
    dozens of times, and each call would release the interpreter lock and wait to acquire it again:
    four threads together would run fewer queries than one. And a thread that continues on another
    core finds nothing in its caches, so threads that run queries in a row have turns. A thread that
    runs one now and then is admitted before them, after the running query.

    A query that turns out to be large, or that reads from storage, releases the gate early, before
    its ``with`` block ends.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._holder: _Ticket | None = None
        self._idle: float | None = None
        """Since when the holder has kept the gate without running a query."""
        self._urgent: deque[_Ticket] = deque()
        self._in_a_row: deque[_Ticket] = deque()
        self._slots = threading.Semaphore(CORES)
        self._own = _Thread(self)

    # -- small queries -------------------------------------------------------------------

    def __enter__(self) -> None:
        own = self._own
        own.depth += 1
        if own.depth > 1:
            return
        now, ticket = _now(), own.ticket
        ticket.is_in_a_row = now - own.until < _RECENT
        with self._mutex:
            wait = self._join(ticket, now)
        if wait is None or self._is_admitted_after(wait, ticket, now):
            own.since = _now()

    def _join(self, ticket: _Ticket, now: float) -> float | None:
        """Admit a thread, or put it into a queue; returns the seconds after which it looks."""
        is_kept = self._holder is ticket or (self._idle is not None and not ticket.is_in_a_row)
        turn = self._turn_length()
        is_over = ticket.is_in_a_row and now - ticket.turn > turn
        if self._holder is ticket and self._in_a_row and is_over:
            # Here and not at the end of a query: this thread waits from now on, so the next one
            # has the interpreter to itself.
            self._in_a_row.append(ticket)
            self._pass_on(now)
        elif self._holder is None or is_kept:
            self._admit(ticket, now)
            return None
        elif not ticket.is_in_a_row:
            self._urgent.append(ticket)
            return _LOOK
        elif now - ticket.turn < turn:
            # Its turn was interrupted.
            self._in_a_row.appendleft(ticket)
            return _LOOK
        else:
            self._in_a_row.append(ticket)
        return (len(self._in_a_row) - 1) * turn + _LOOK

    def _turn_length(self) -> float:
        """How long a turn lasts: less if so many wait that the last would not be patient."""
        return min(_TURN, _PATIENCE_IN_A_ROW / 2 / max(len(self._in_a_row), 1))

    def _admit(self, ticket: _Ticket, now: float) -> None:
        if now - ticket.turn > _TURN:
            ticket.turn = now
        self._holder, self._idle = ticket, None

    def _pass_on(self, now: float) -> None:
        """Give the gate to the next thread."""
        queue = self._urgent or self._in_a_row
        self._holder = self._idle = None
        if queue:
            ticket = queue.popleft()
            self._admit(ticket, now)
            ticket.wake_up()

    def _is_admitted_after(self, wait: float, ticket: _Ticket, now: float) -> bool:
        next_look = _LOOK
        end = now + (_PATIENCE_IN_A_ROW if ticket.is_in_a_row else _PATIENCE)
        while True:
            ticket.wake.acquire(timeout=max(min(wait, end - now), 0.0))
            now = _now()
            with self._mutex:
                if self._idle is not None and now - self._idle > _PAUSE:
                    self._pass_on(now)
                    if self._in_a_row:
                        # The next one looks from now on, because this holder may go, too.
                        self._in_a_row[0].wake_up()
                if self._holder is ticket:
                    # Not woken again by what happened before.
                    ticket.wake.acquire(blocking=False)
                    return True
                wait = _LAST_LOOK
                if not ticket.is_in_a_row or self._in_a_row[0] is ticket:
                    # A look costs the holder as much as a query, so they become rarer.
                    wait = next_look = min(4 * next_look, _LAST_LOOK)
                if now >= end:
                    (self._in_a_row if ticket.is_in_a_row else self._urgent).remove(ticket)
                    return False

    def __exit__(self, *error: object) -> None:
        own = self._own
        own.depth -= 1
        if own.depth:
            return
        now = own.until = _now()
        if own.since is not None:
            own.since = None
            with self._mutex:
                if self._in_a_row and own.ticket.is_in_a_row and not self._urgent:
                    self._idle = now
                else:
                    self._pass_on(now)
        if own.has_slot:
            own.has_slot = False
            self._slots.release()

    def leave(self, ticket: _Ticket) -> None:
        """Pass on the gate that a thread has kept, because the thread ends.

        Called by the collector of garbage too, which may interrupt whoever has the mutex, so this
        never waits; a gate that is not passed on here is found by the looks of those who wait.
        """
        if self._mutex.acquire(blocking=False):
            try:
                if self._holder is ticket and self._idle is not None:
                    self._pass_on(self._idle)
            finally:
                self._mutex.release()

    # -- other queries -------------------------------------------------------------------

    def release(self) -> None:
        """Admit the next query, because the rest of this one takes long or waits for I/O."""
        if self._own.since is not None:
            self._own.since = None
            with self._mutex:
                self._pass_on(_now())

    def release_if_long(self) -> None:
        """Release the gate if the query has already run longer than a small query."""
        since = self._own.since
        if since is not None and _now() - since > _LONG:
            self.release()

    def continue_as_large(self) -> None:
        """Release the gate: the query is large, and continues as soon as it has a core.

        More large queries than cores would only wait for the interpreter lock.
        """
        own = self._own
        if own.depth and not own.has_slot:
            self.release()
            own.has_slot = self._slots.acquire(timeout=_PATIENCE)

    @property
    def is_free(self) -> bool:
        """Whether no query holds the gate."""
        return self._holder is None


GATE = QueryGate()
"""The gate of this process."""
