"""Slots that threads take in turns, so that few of them run at a time."""

from __future__ import annotations

import threading
import time
from collections import deque

# How long a thread that runs queries in a row may keep a slot while others of its kind wait, and
# how long it may keep it without a query.
_TURN, _PAUSE = 0.04, 0.0005
# How often a waiting thread looks whether a kept slot is in use: at first, and at least.
_LOOK, _LAST_LOOK = 0.002, 0.02
# The longest wait of a thread that runs queries now and then, and of one that runs them in a row;
# then a query runs without a slot, so that slots never limit throughput.
_PATIENCE, _PATIENCE_IN_A_ROW = 0.05, 0.25

_now = time.perf_counter


class SlotRequest:
    """A thread that takes slots."""

    __slots__ = ("has_slot", "is_in_a_row", "turn", "wake")

    def __init__(self) -> None:
        self.has_slot = False
        """Whether a query of it has a slot, or it has just been given one."""
        self.is_in_a_row = False
        """Whether it runs one query after the other."""
        self.turn = 0.0
        """When its turn began."""
        self.wake = threading.Lock()
        """Acquired while the thread waits."""
        self.wake.acquire()

    def wake_up(self) -> None:
        if self.wake.locked():
            self.wake.release()


class QuerySlots:
    """Some slots for queries, each for one at a time.

    A thread that continues on another core finds nothing in its caches, so threads that run queries
    in a row have turns: one keeps its slot for its next query while others wait. A thread that
    runs one now and then is admitted before them, after a running query.
    """

    def __init__(self, count: int) -> None:
        self._mutex = threading.Lock()
        self._count = self._free = count
        self._kept: dict[SlotRequest, float] = {}
        """Who keeps a slot without running a query, and since when; the longest first."""
        self._urgent: deque[SlotRequest] = deque()
        self._in_a_row: deque[SlotRequest] = deque()

    @property
    def is_free(self) -> bool:
        """Whether every slot is free."""
        return self._free == self._count

    def enter(self, request: SlotRequest, now: float) -> bool:
        """Take a slot, or wait for one; ``False`` if the query goes on without."""
        with self._mutex:
            wait = self._join(request, now)
        if wait is None:
            return True
        try:
            return self._is_admitted_after(wait, request, now)
        except BaseException:  # Ctrl-C
            self._withdraw(request)
            raise

    def leave(self, request: SlotRequest, *, may_keep: bool) -> None:
        """Give a slot back, or keep it for the next query of the thread."""
        with self._mutex:
            request.has_slot = False
            now = _now()
            if may_keep and self._in_a_row and request.is_in_a_row and not self._urgent:
                self._kept[request] = now
            else:
                self._pass_on(now)

    def drop(self, request: SlotRequest) -> None:
        """Give back a slot that a thread keeps, because the thread ends.

        Called by the collector of garbage too, which may interrupt whoever has the mutex, so this
        never waits; a slot that is not given back here is found by the looks of those who wait.
        """
        if self._mutex.acquire(blocking=False):
            try:
                since = self._kept.pop(request, None)
                if since is not None:
                    self._pass_on(since)
            finally:
                self._mutex.release()

    def _join(self, request: SlotRequest, now: float) -> float | None:
        """Admit a thread, or put it into a queue; returns the seconds after which it looks."""
        turn = self._turn_length()
        is_over = request.is_in_a_row and now - request.turn > turn
        if self._kept.pop(request, None) is not None:
            if not self._in_a_row or not is_over:
                self._admit(request, now)
                return None
            # Here and not at the end of a query: this thread waits from now on, so the next one
            # has the slot to itself.
            self._in_a_row.append(request)
            self._pass_on(now)
        elif self._free:
            self._free -= 1
            self._admit(request, now)
            return None
        elif request.is_in_a_row:
            # First if its turn was interrupted.
            if is_over:
                self._in_a_row.append(request)
            else:
                self._in_a_row.appendleft(request)
                return _LOOK
        elif self._kept:
            del self._kept[next(iter(self._kept))]
            self._admit(request, now)
            return None
        else:
            self._urgent.append(request)
            return _LOOK
        return (len(self._in_a_row) - 1) * turn / self._count + _LOOK

    def _turn_length(self) -> float:
        """How long a turn lasts: less if so many wait that the last would not be patient."""
        most = _PATIENCE_IN_A_ROW / 2 * self._count / max(len(self._in_a_row), 1)
        return min(_TURN, most)

    def _admit(self, request: SlotRequest, now: float) -> None:
        if now - request.turn > _TURN:
            request.turn = now
        request.has_slot = True

    def _pass_on(self, now: float) -> None:
        """Give a slot to the next thread."""
        queue = self._urgent or self._in_a_row
        if queue:
            request = queue.popleft()
            self._admit(request, now)
            request.wake_up()
        else:
            self._free += 1

    def _is_admitted_after(self, wait: float, request: SlotRequest, now: float) -> bool:
        next_look = _LOOK
        end = now + (_PATIENCE_IN_A_ROW if request.is_in_a_row else _PATIENCE)
        while True:
            request.wake.acquire(timeout=max(min(wait, end - now), 0.0))
            now = _now()
            with self._mutex:
                self._take_back(now)
                if request.has_slot:
                    # Not woken again by what happened before.
                    request.wake.acquire(blocking=False)
                    return True
                wait = _LAST_LOOK
                if not request.is_in_a_row or self._in_a_row[0] is request:
                    # A look costs the holder as much as a query, so they become rarer.
                    wait = next_look = min(4 * next_look, _LAST_LOOK)
                if now >= end:
                    (self._in_a_row if request.is_in_a_row else self._urgent).remove(request)
                    return False

    def _withdraw(self, request: SlotRequest) -> None:
        """Let others have the slot that a thread waited for."""
        with self._mutex:
            if request.has_slot:
                request.has_slot = False
                self._pass_on(_now())
            else:
                (self._in_a_row if request.is_in_a_row else self._urgent).remove(request)

    def _take_back(self, now: float) -> None:
        """Pass on the slots that were kept too long."""
        idle = [request for request, since in self._kept.items() if now - since > _PAUSE]
        for request in idle:
            del self._kept[request]
            self._pass_on(now)
        if idle and self._in_a_row:
            # The next one looks from now on, because this holder may go, too.
            self._in_a_row[0].wake_up()
