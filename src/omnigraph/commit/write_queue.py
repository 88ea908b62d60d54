"""The queue of small writes on one branch of one handle, from which groups are taken.

One write of a branch leads: it commits, by itself or with others. Writes that arrive meanwhile
wait here. When the leader has finished, the first of them leads, without waiting for
more. The locks here protect the queue only; none is held while anything is read or written.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from omnigraph.commit.names import branch_label
from omnigraph.commit.receipts import Receipt
from omnigraph.errors import Closed, Conflict, OmniGraphError
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.commit.write_request import WriteRequest

_LOOK_SECONDS = 0.25
"""How often a write that its leader has taken looks whether it was put back."""


_MOST_QUEUES = 64
"""Idle queues are dropped when there are more: a caller may name any branch."""


class Turn(Enum):
    """The state of a write in its queue."""

    WAITS = "waits"
    LEADS = "leads"
    TAKEN = "taken"
    """A leader commits it."""
    ENDED = "ended"


@dataclass(eq=False, slots=True)
class QueuedWrite:
    """One write in the queue of its branch.

    ``outcome`` is set when it has ended: its receipt, its error, or none if it has to be committed
    by itself.
    """

    request: WriteRequest
    turn: Turn = Turn.WAITS
    outcome: Receipt | OmniGraphError | None = None
    woken: threading.Event = field(default_factory=threading.Event)
    thread: int = field(default_factory=threading.get_ident)
    is_abandoned: bool = False
    """Whether its thread was interrupted while a leader had it."""


class WriteQueue:
    """The writes that wait on one branch. Safe to share between threads."""

    def __init__(self, branch: str | None) -> None:
        self._branch = branch
        self._lock = threading.Lock()
        self._waiting: deque[QueuedWrite] = deque()
        self._leader: QueuedWrite | None = None
        self._is_closed = False
        self.was_shared = False
        """Whether the last commit had several members: their threads may write again at once."""

    def __len__(self) -> int:
        """How many writes wait."""
        return len(self._waiting)

    @property
    def is_led(self) -> bool:
        """Whether a write is being committed."""
        return self._leader is not None

    @property
    def is_led_here(self) -> bool:
        """Whether this thread commits, so that this is a write inside another."""
        leader = self._leader
        return leader is not None and leader.thread == threading.get_ident()

    def enter(self, entry: QueuedWrite) -> bool:
        """Become the leader if there is none, else wait; returns whether the entry leads."""
        with self._lock:
            if self._is_closed:
                raise _closed()
            if self._leader is None:
                self._leader, entry.turn = entry, Turn.LEADS
                return True
            self._waiting.append(entry)
            return False

    def wait(self, entry: QueuedWrite, timeout: float) -> bool:
        """Wait until an entry leads or has ended; returns which. ``Conflict`` if it takes too long.

        An entry that a leader has taken is waited for: its write may be published already.
        """
        deadline = time.monotonic() + timeout
        while not entry.woken.wait(max(deadline - time.monotonic(), _LOOK_SECONDS)):
            with self._lock:
                if entry.turn is Turn.WAITS and time.monotonic() >= deadline:
                    self._waiting.remove(entry)
                    entry.turn = Turn.ENDED
                    raise self._busy(timeout)
        return entry.turn is Turn.LEADS

    def take(self, most: int, fits: Callable[[WriteRequest], bool]) -> list[QueuedWrite]:
        """Take waiting writes that fit, first come first; for the leader only."""
        with self._lock:
            taken = [entry for entry in self._waiting if fits(entry.request)][: max(most, 0)]
            for entry in taken:
                entry.turn = Turn.TAKEN
                self._waiting.remove(entry)
        return taken

    def put_back(self, entries: Sequence[QueuedWrite]) -> None:
        """Let taken writes wait again, before all others."""
        with self._lock:
            for entry in reversed(entries):
                if self._is_closed:
                    _end(entry, _closed())
                elif entry.is_abandoned:
                    _end(entry, None)
                elif entry.turn is Turn.TAKEN:
                    entry.turn = Turn.WAITS
                    self._waiting.appendleft(entry)

    def end(self, entry: QueuedWrite, outcome: Receipt | OmniGraphError | None) -> None:
        """End a write that the leader has taken, or its own."""
        with self._lock:
            _end(entry, outcome)

    def leave(self, entry: QueuedWrite) -> None:
        """Leave the queue, however the write ended; if it leads, the next one does from now on."""
        with self._lock:
            entry.is_abandoned = entry.turn is Turn.TAKEN
            if entry.turn is Turn.WAITS and entry in self._waiting:
                self._waiting.remove(entry)
            if self._leader is not entry:
                return
            self._leader = self._waiting.popleft() if self._waiting else None
            if self._leader is not None:
                self._leader.turn = Turn.LEADS
                self._leader.woken.set()

    def close(self) -> None:
        """Refuse the writes that wait, and later ones; those that a leader has taken go on."""
        with self._lock:
            self._is_closed = True
            while self._waiting:
                _end(self._waiting.popleft(), _closed())

    def _busy(self, timeout: float) -> Conflict:
        return Conflict(
            f"branch '{branch_label(self._branch)}' is locked by another writer "
            f"(waited {timeout:g} s)",
            hint="retry later, or raise the lease timeout",
            details={"branch": branch_label(self._branch)},
        )


def _end(entry: QueuedWrite, outcome: Receipt | OmniGraphError | None) -> None:
    if entry.turn is not Turn.ENDED:
        entry.turn, entry.outcome = Turn.ENDED, outcome
        entry.woken.set()


def _closed() -> Closed:
    return Closed("this graph is closed", hint="open it again with Graph.open")


class WriteQueues:
    """The queues of all branches of one handle."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str | None, WriteQueue] = {}
        self._is_closed = False

    def of(self, branch: str | None) -> WriteQueue:
        with self._lock:
            if self._is_closed:
                raise _closed()
            queue = self._queues.get(branch)
            if queue is None:
                if len(self._queues) >= _MOST_QUEUES:
                    # Two queues of a branch do no harm: the leases decide who commits first.
                    self._queues = {
                        name: q for name, q in self._queues.items() if q.is_led or q.was_shared
                    }
                queue = self._queues[branch] = WriteQueue(branch)
            return queue

    def close(self) -> None:
        """Refuse all writes that wait."""
        with self._lock:
            self._is_closed = True
            queues = list(self._queues.values())
        for queue in queues:
            queue.close()
