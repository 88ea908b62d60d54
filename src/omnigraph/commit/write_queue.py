"""The queue of small writes on one branch of one handle, from which groups are taken.

One write of a branch leads: it commits, by itself or with others. Writes that arrive meanwhile
wait here. When the leader has finished, the first of them leads. Nobody waits for a group to fill.
The locks here protect the queue only; none is held while anything is read or written.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from omnigraph.commit.metadata import Receipt
from omnigraph.commit.names import branch_label
from omnigraph.errors import Closed, Conflict, OmniGraphError

if TYPE_CHECKING:
    from omnigraph.commit.write_request import WriteRequest

_LOOK_SECONDS = 0.25
"""How often a write that its leader has taken looks whether it was put back."""


class Turn(Enum):
    """Where a write stands."""

    WAITS = "waits"
    LEADS = "leads"
    TAKEN = "taken"
    """A leader commits it."""
    ENDED = "ended"


@dataclass(eq=False, slots=True)
class Ticket:
    """One write in the queue of its branch.

    ``outcome`` is set when it has ended: its receipt, its error, or none if it has to be committed
    by itself.
    """

    request: WriteRequest
    turn: Turn = Turn.WAITS
    outcome: Receipt | OmniGraphError | None = None
    woken: threading.Event = field(default_factory=threading.Event)


class WriteQueue:
    """The writes that wait on one branch. Safe to share between threads."""

    def __init__(self, branch: str | None) -> None:
        self._branch = branch
        self._lock = threading.Lock()
        self._waiting: deque[Ticket] = deque()
        self._leader: Ticket | None = None
        self._is_closed = False
        self.was_shared = False
        """Whether the last commit had several members: their threads may write again at once."""

    def __len__(self) -> int:
        """How many writes wait."""
        return len(self._waiting)

    @property
    def is_led(self) -> bool:
        """Whether somebody commits."""
        return self._leader is not None

    @property
    def is_busy(self) -> bool:
        """Whether somebody commits, or a group has just been committed."""
        return self.is_led or self.was_shared

    def enter(self, ticket: Ticket) -> bool:
        """Lead if nobody does, else wait; says whether the ticket leads."""
        with self._lock:
            if self._is_closed:
                raise _closed()
            if self._leader is None:
                self._leader, ticket.turn = ticket, Turn.LEADS
                return True
            self._waiting.append(ticket)
            return False

    def wait(self, ticket: Ticket, timeout: float) -> bool:
        """Wait until a ticket leads or has ended; says which. ``Conflict`` if it takes too long.

        A ticket that a leader has taken is waited for: its write may be published already.
        """
        deadline = time.monotonic() + timeout
        while not ticket.woken.wait(max(deadline - time.monotonic(), _LOOK_SECONDS)):
            with self._lock:
                if ticket.turn is Turn.WAITS and time.monotonic() >= deadline:
                    self._waiting.remove(ticket)
                    ticket.turn = Turn.ENDED
                    raise self._busy(timeout)
        return ticket.turn is Turn.LEADS

    def take(self, most: int, fits: Callable[[WriteRequest], bool]) -> list[Ticket]:
        """Take waiting writes that fit, first come first; for the leader only."""
        with self._lock:
            taken = [ticket for ticket in self._waiting if fits(ticket.request)][: max(most, 0)]
            for ticket in taken:
                ticket.turn = Turn.TAKEN
                self._waiting.remove(ticket)
        return taken

    def put_back(self, tickets: Sequence[Ticket]) -> None:
        """Let taken writes wait again, before all others."""
        with self._lock:
            for ticket in reversed(tickets):
                if self._is_closed:
                    _end(ticket, _closed())
                elif ticket.turn is Turn.TAKEN:
                    ticket.turn = Turn.WAITS
                    self._waiting.appendleft(ticket)

    def end(self, ticket: Ticket, outcome: Receipt | OmniGraphError | None) -> None:
        """End a write that the leader has taken, or its own."""
        with self._lock:
            _end(ticket, outcome)

    def leave(self, ticket: Ticket) -> None:
        """Leave the queue, however the write ended; if it leads, the next one does from now on."""
        with self._lock:
            if ticket.turn is Turn.WAITS and ticket in self._waiting:
                self._waiting.remove(ticket)
            if self._leader is not ticket:
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


def _end(ticket: Ticket, outcome: Receipt | OmniGraphError | None) -> None:
    if ticket.turn is not Turn.ENDED:
        ticket.turn, ticket.outcome = Turn.ENDED, outcome
        ticket.woken.set()


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
                queue = self._queues[branch] = WriteQueue(branch)
            return queue

    def close(self) -> None:
        """Refuse all writes that wait."""
        with self._lock:
            self._is_closed = True
            queues = list(self._queues.values())
        for queue in queues:
            queue.close()
