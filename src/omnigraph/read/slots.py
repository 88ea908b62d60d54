"""Slots that threads take in turns, so that few of them run at a time."""

from __future__ import annotations

import threading
import time
from collections import deque

# How long a thread that runs queries in a row may keep a slot while others of its kind wait, how
# long it may keep it without a query, and after how many queries: a thread that runs only a few
# at a time would leave its slot unused after the last.
_TURN, _PAUSE, _FEW = 0.04, 0.0005, 3
# How often a waiting thread looks whether a kept slot is in use: at first, and at least.
_LOOK, _LAST_LOOK = 0.002, 0.02
# The longest wait of a thread that runs queries now and then, or while no query ends, and of one
# that runs them in a row; then a query runs without a slot, so that slots never limit throughput.
_PATIENCE, _PATIENCE_IN_A_ROW = 0.05, 0.25

_now = time.perf_counter


class SlotUser:
    """A thread that takes slots."""

    __slots__ = ("in_a_row", "turn", "wake")

    def __init__(self) -> None:
        self.in_a_row = 0
        """How many queries it has run one after the other, before this one."""
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
        self._count = count
        self._running: set[SlotUser] = set()
        """Whose queries have a slot; one of them may just have been given it."""
        self._kept: dict[SlotUser, float] = {}
        """Who keeps a slot without running a query, and since when; the longest first."""
        self._urgent: deque[SlotUser] = deque()
        self._in_a_row: deque[SlotUser] = deque()
        self._ended = 0.0
        """When the last query ended."""

    def __contains__(self, user: SlotUser) -> bool:
        """Whether the query of a thread has a slot."""
        return user in self._running

    @property
    def is_free(self) -> bool:
        """Whether nobody runs a query or keeps a slot."""
        return not self._running and not self._kept

    @property
    def _has_room(self) -> bool:
        return len(self._running) + len(self._kept) < self._count

    def enter(self, user: SlotUser, now: float) -> bool:
        """Take a slot, or wait for one; ``False`` if the query goes on without."""
        try:
            with self._mutex:
                wait = self._join(user, now)
            return wait is None or self._is_admitted_after(wait, user, now)
        except BaseException:  # Ctrl-C
            with self._mutex:
                self._withdraw(user)
                self._running.discard(user)
                self._pass_on(_now())
            raise

    def leave(self, user: SlotUser, *, may_keep: bool) -> None:
        """Give a slot back, or keep it for the next query of the thread."""
        with self._mutex:
            self._ended = now = _now()
            self._running.discard(user)
            self._withdraw(user)
            if may_keep and user.in_a_row >= _FEW and self._in_a_row and not self._urgent:
                self._kept[user] = now
            else:
                self._pass_on(now)

    def drop(self, user: SlotUser) -> None:
        """Give back the slot of a thread that ends.

        Called by the collector of garbage too, which may interrupt whoever has the mutex, so this
        never waits; a slot that is not given back here is found by the looks of those who wait.
        """
        self._running.discard(user)
        if self._mutex.acquire(blocking=False):
            try:
                self._kept.pop(user, None)
                self._withdraw(user)
                self._pass_on(_now())
            finally:
                self._mutex.release()

    def _join(self, user: SlotUser, now: float) -> float | None:
        """Admit a thread, or put it into a queue; returns the seconds after which it looks."""
        turn = self._turn_length()
        is_over = user.in_a_row > 0 and now - user.turn > turn
        is_kept = self._kept.pop(user, None) is not None
        if is_kept and self._in_a_row and is_over:
            # Here and not at the end of a query: this thread waits from now on, so the next one
            # has the slot to itself.
            self._in_a_row.append(user)
            self._pass_on(now)
        elif self._has_room or user in self._running:
            # It has a slot already if Ctrl-C came before it was given back.
            self._admit(user, now)
            return None
        elif user.in_a_row:
            # First if its turn was interrupted.
            if is_over:
                self._in_a_row.append(user)
            else:
                self._in_a_row.appendleft(user)
                return _LOOK
        elif self._kept:
            del self._kept[next(iter(self._kept))]
            self._admit(user, now)
            return None
        else:
            self._urgent.append(user)
            return _LOOK
        return (len(self._in_a_row) - 1) * turn / self._count + _LOOK

    def _turn_length(self) -> float:
        """How long a turn lasts: less if so many wait that the last would not be patient."""
        most = _PATIENCE_IN_A_ROW / 2 * self._count / max(len(self._in_a_row), 1)
        return min(_TURN, most)

    def _admit(self, user: SlotUser, now: float) -> None:
        if now - user.turn > self._turn_length():
            user.turn = now
        self._running.add(user)

    def _pass_on(self, now: float) -> None:
        """Give free slots to the next threads."""
        while self._has_room and (queue := self._urgent or self._in_a_row):
            # Ctrl-C may leave it in the queue and with a slot, but never without both.
            user = queue[0]
            self._admit(user, now)
            queue.popleft()
            user.wake_up()

    def _is_admitted_after(self, wait: float, user: SlotUser, now: float) -> bool:
        next_look = _LOOK
        begin, end = now, now + (_PATIENCE_IN_A_ROW if user.in_a_row else _PATIENCE)
        while True:
            user.wake.acquire(timeout=max(min(wait, end - now), 0.0))
            now = _now()
            with self._mutex:
                self._take_back(now)
                if user in self._running:
                    # Not woken again by what happened before.
                    user.wake.acquire(blocking=False)
                    return True
                wait = _LAST_LOOK
                if not user.in_a_row or user is self._in_a_row[0]:
                    # A look costs the holder as much as a query, so they become rarer.
                    wait = next_look = min(4 * next_look, _LAST_LOOK)
                if now >= end or now - max(self._ended, begin) > _PATIENCE:
                    self._withdraw(user)
                    return False

    def _withdraw(self, user: SlotUser) -> None:
        """Take a thread out of its queue, if it is in one."""
        for queue in (self._urgent, self._in_a_row):
            if user in queue:
                queue.remove(user)

    def _take_back(self, now: float) -> None:
        """Pass on the slots that were kept too long."""
        idle = [user for user, since in self._kept.items() if now - since > _PAUSE]
        for user in idle:
            del self._kept[user]
        self._pass_on(now)
        if idle and self._in_a_row:
            # The next one looks from now on, because this holder may go, too.
            self._in_a_row[0].wake_up()
