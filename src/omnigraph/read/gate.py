"""Admission control: a process runs one small query at a time, and as many large ones as cores."""

from __future__ import annotations

import os
import threading
import time

from omnigraph.read.slots import QuerySlots, SlotUser
from omnigraph.read.threads import CORES

# A query that takes longer, in seconds, is not small.
_LONG = 0.002
# A thread whose next query comes within so many seconds runs queries in a row.
_RECENT = 0.002
# After so many large queries in a row, the next one is taken for large before it begins.
_SOME = 2

_now = time.perf_counter


class _Thread(threading.local):
    """What the gate knows about the calling thread."""

    def __init__(self, gate: QueryGate) -> None:
        self.depth = 0
        self.since = 0.0
        """When its query began to run."""
        self.until = 0.0
        """When its last query ended."""
        self.is_large = False
        """Whether its query, or between two of them the last one, is large."""
        self.large_in_a_row = 0
        """How many large queries it has run one after the other, before this one."""
        self.has_requested = False
        """Whether its query has requested a slot among large ones; it does so once."""
        self.small, self.large = SlotUser(), SlotUser()
        self.end = _ThreadEnd(gate, self.small, self.large)


class _ThreadEnd:
    """Is deleted with the other values of its thread, when the thread ends."""

    def __init__(self, gate: QueryGate, small: SlotUser, large: SlotUser) -> None:
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
        if own.depth:
            own.depth += 1
            return
        now = _now()
        in_a_row = own.small.in_a_row + 1 if now - own.until < _RECENT else 0
        own.small.in_a_row = own.large.in_a_row = in_a_row
        own.large_in_a_row = own.large_in_a_row + 1 if own.is_large and in_a_row else 0
        own.has_requested = own.large_in_a_row >= _SOME
        own.is_large = False
        try:
            if own.has_requested:
                self.large.enter(own.large, now)
            else:
                self.small.enter(own.small, now)
            own.since = _now()
            # Last: an interrupt comes only after a call, and then this block has begun.
            own.depth = 1
        except BaseException:  # Ctrl-C
            self.leave()
            raise

    def __exit__(self, *error: object) -> None:
        own = self._own
        own.depth -= 1
        if own.depth:
            return
        try:
            own.until = _now()
            if own.small in self.small:
                self.small.leave(own.small, may_keep=True)
            if own.large in self.large:
                self.large.leave(own.large, may_keep=own.is_large)
        except BaseException:  # Ctrl-C
            self.leave()
            raise

    def release(self) -> None:
        """Admit the next small query, because the rest of this one takes long."""
        small = self._own.small
        if small in self.small:
            self.small.leave(small, may_keep=False)

    def release_if_long(self) -> None:
        """Release the gate if the query has already run longer than a small query."""
        own = self._own
        if own.small in self.small and _now() - own.since > _LONG:
            self.release()

    def leave(self) -> None:
        """Admit the next query of either kind, because this one waits for something else."""
        self.release()
        large = self._own.large
        if large in self.large:
            self.large.leave(large, may_keep=False)

    def continue_as_large(self) -> None:
        """Release the gate: the query is large, and continues as soon as it has a core."""
        own = self._own
        if own.depth:
            own.is_large = True
            if not own.has_requested:
                own.has_requested = True
                self.release()
                self.large.enter(own.large, _now())

    def forget_others(self) -> None:
        """Begin anew in a forked process, which has none of the threads with slots or mutexes."""
        self.small, self.large = QuerySlots(1), QuerySlots(CORES)

    @property
    def is_free(self) -> bool:
        """Whether no small query holds the gate."""
        return self.small.is_free


GATE = QueryGate()
"""The gate of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=GATE.forget_others)
