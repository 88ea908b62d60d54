"""First come, first served between processes that wait for one lease on local disk.

A process that finds a lease taken puts a ticket into the folder of its queue: an empty file that is
named by the time of arrival and locked by its owner. A waiter may try to take the lease when no
ticket is older than its own. The ticket of a process that died is not locked any more and is
removed; the ticket of a process that is stopped is not touched any more and is passed over.

The queue decides who may try. The lock of the lease alone decides who holds it, so a mistake here
costs a turn and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

QUEUE_SUFFIX = ".queue"
STOPPED_SECONDS = 2.0
"""A waiter that did not touch its ticket for so long is passed over."""

_NEXT_PAUSE_SECONDS = 0.001
_LATER_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.025
_PAUSE_FRACTION = 0.02
"""Of the time waited so far, what a pause may add to it."""


class LeaseQueue:
    """The processes that wait for one lease."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def is_empty(self) -> bool:
        """Whether there is no live waiter."""
        if not os.access(self._folder, os.F_OK):
            return True
        if self.has_waiters():
            return False
        self._remove_folder()
        return True

    def has_waiters(self, before: str | None = None) -> bool:
        """Whether there are live waiters, or some before the owner of a ticket."""
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return False
        return any(
            _is_waiting(f"{self._folder}/{name}")
            for name in names
            if before is None or name < before
        )

    @contextmanager
    def ticket(self) -> Iterator[Ticket]:
        """Wait in the queue."""
        ticket = Ticket(self, self._folder)
        try:
            yield ticket
        finally:
            ticket.remove()
            self._remove_folder()

    def _remove_folder(self) -> None:
        # Fails while there are waiters; a late waiter creates it again.
        with suppress(OSError):
            os.rmdir(self._folder)


class Ticket:
    """A position in a queue."""

    def __init__(self, queue: LeaseQueue, folder: str) -> None:
        self._queue = queue
        self._folder = folder
        self._arrived = time.monotonic_ns()
        self._is_next = False
        self._name = ""
        self._descriptor = -1
        self._write()

    def is_next(self) -> bool:
        """Whether it is this one's turn to try."""
        os.utime(self._descriptor)
        if not os.fstat(self._descriptor).st_nlink:
            # Another process took it for the ticket of a dead one before it was locked.
            os.close(self._descriptor)
            self._write()
        self._is_next = not self._queue.has_waiters(before=self._name)
        return self._is_next

    @property
    def pause(self) -> float:
        """How many seconds to wait before looking again."""
        least = _NEXT_PAUSE_SECONDS if self._is_next else _LATER_PAUSE_SECONDS
        waited = (time.monotonic_ns() - self._arrived) / 1e9
        return min(max(waited * _PAUSE_FRACTION, least), _LONGEST_PAUSE_SECONDS)

    def remove(self) -> None:
        """Leave the queue; a ticket that stays is removed by others as soon as it is unlocked."""
        with suppress(OSError):
            os.unlink(f"{self._folder}/{self._name}")
        with suppress(OSError):
            os.close(self._descriptor)

    def _write(self) -> None:
        """Put a locked file into the folder; written again it keeps its position."""
        while True:
            self._name = f"{self._arrived:020d}-{uuid.uuid4().hex[:8]}"
            descriptor = open_file(f"{self._folder}/{self._name}")
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Another process is checking whether it is locked.
                os.close(descriptor)
                continue
            self._descriptor = descriptor
            return


def _is_waiting(path: str) -> bool:
    """Whether the owner of a ticket is alive and not stopped."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        age = time.time_ns() - os.fstat(descriptor).st_mtime_ns
        return age < STOPPED_SECONDS * 1e9
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return False
    finally:
        os.close(descriptor)


def open_file(path: str) -> int:
    """Open a file, and make it and its folder where they are missing."""
    # The last waiter removes the empty folder, possibly right now.
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        folder = os.path.dirname(path)
        try:
            os.makedirs(folder, exist_ok=True)
        except FileExistsError:
            # It existed and is removed again; a file in its place would stay.
            if os.path.isfile(folder):
                raise
