"""Leases on local disk: the exclusive right to write one table on one branch.

On local disk a lease is an operating system lock on a small file. It ends with the process that
holds it, however the process ends; a process that is merely stopped keeps it. Whoever acquires the
lease of a writer therefore knows that the writer has finished or died. On S3 a lease is an object
that expires unless its holder renews it, see ``leases.s3``. Waiters are served in order of arrival:
threads of one process by ``ThreadQueue``, processes by ``LeaseQueue``. A caller that does not wait
bypasses the queue. The queue decides who may try; only the lock decides who holds the lease, so an
error in the queue costs a turn and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Protocol

from omnigraph.errors import Conflict
from omnigraph.lang.fnv import fnv1a_64
from omnigraph.logs import logger
from omnigraph.storage.leases import TTL_SECONDS
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import Root, refuse_links
from omnigraph.storage.objects.store import ObjectStore

QUEUE_SUFFIX = ".queue"
STOPPED_SECONDS = 2.0
"""A waiter that did not touch its ticket for this many seconds is skipped."""

_NEXT_PAUSE_SECONDS = 0.001
_LATER_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.025
_PAUSE_FRACTION = 0.02
"""The next pause as a fraction of the time waited so far."""


class LeaseQueue:
    """The processes that wait for one lease.

    A process that finds a lease taken adds a ticket to the directory of the queue: an empty file
    named by the time of arrival and locked by its owner. A waiter may try to take the lease when no
    ticket is older than its own. The ticket of a dead process is unlocked and gets removed; the
    ticket of a stopped process is no longer touched and is skipped.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def is_empty(self) -> bool:
        if not os.access(self._folder, os.F_OK):
            return True
        if self.has_waiters():
            return False
        self._remove_folder()
        return True

    def has_waiters(self, before: str | None = None) -> bool:
        """Whether there are live waiters, or live waiters before the owner of a ticket."""
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
        os.utime(self._descriptor)
        if not os.fstat(self._descriptor).st_nlink:
            # Another process removed it as that of a dead one before it was locked.
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
        """Leave the queue. If the removal fails, other waiters remove the unlocked ticket."""
        with suppress(OSError):
            os.unlink(f"{self._folder}/{self._name}")
        with suppress(OSError):
            os.close(self._descriptor)

    def _write(self) -> None:
        """Create the locked file; a rewritten ticket keeps its position."""
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
    """Open a file; it and its directory are created if missing."""
    # The last waiter removes the empty directory, possibly at this moment.
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        folder = os.path.dirname(path)
        try:
            os.makedirs(folder, exist_ok=True)
        except FileExistsError:
            # The directory existed and was removed again; a plain file there would stay.
            if os.path.isfile(folder):
                raise


_LOG = logger(__name__)

LEASE_SUFFIX = ".lease"
LEASE_FOLDER = "__recovery"


class LeaseGuard(Protocol):
    """Acquired leases."""

    def check(self) -> None:
        """Raise ``Conflict`` if one of them was lost."""

    def extend_ahead(self, names: Iterable[str], timeout: float) -> None:
        """Start to acquire leases that ``extend`` is called for later, if that is slow."""

    def extend(self, names: Iterable[str], timeout: float) -> bool:
        """Hold further leases until these are released, if releasing them together is cheaper.

        Raises ``Conflict`` if one of them is not free in time.
        """

    def discard(self, path: str) -> bool:
        """Remove an object when the leases are released, if that is cheaper than now."""


class Leases(Protocol):
    """The leases of one graph, by name."""

    def acquire(self, names: Iterable[str], timeout: float) -> AbstractContextManager[LeaseGuard]:
        """Hold several leases, acquired in sorted order to avoid deadlocks.

        Raises ``Conflict`` if one of them is not free in time; then none is held.
        """

    def is_free(self, name: str) -> bool:
        """Whether no live process holds a lease right now."""

    def is_disowned(self, name: str) -> bool:
        """Whether the holder of a lease has released it, but could not remove it.

        It is free, but only who waits gets it: it has to expire first.
        """


def open_leases(root: Root, objects: ObjectStore, ttl: float = TTL_SECONDS) -> Leases:
    """The leases of a graph, of the kind that its storage supports.

    ``ttl`` is the time to live in seconds of a lease that is an object rather than a lock.
    """
    if root.is_local:
        return LocalLeases(root)
    # Imported here because the S3 leases build on this module.
    from omnigraph.storage.leases.s3 import S3Leases

    return S3Leases(objects, ttl)


def lease_path(name: str) -> str:
    """The path of a lease under the root.

    >>> lease_path("node:Person@main")
    '__recovery/bc33766910a97e5d.lease'
    """
    return f"{LEASE_FOLDER}/{fnv1a_64(name):016x}{LEASE_SUFFIX}"


class Deadline:
    """The end of a wait for leases."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._end = time.monotonic() + timeout

    def left(self) -> float:
        """The seconds left; zero or less once it has passed."""
        return self._end - time.monotonic()


def lease_busy(name: str, deadline: Deadline) -> Conflict:
    table, _, branch = name.partition("@")
    what = f"table {table} on branch '{branch}'" if ":" in table else f"'{name}'"
    waited = f" (waited {deadline.timeout:g} s)" if deadline.timeout > 0.0 else ""
    return Conflict(
        f"{what} is locked by another writer{waited}",
        hint="retry later, or raise the lease timeout",
        details={"lease": name},
    )


def jittered(pause: float) -> float:
    """This pause with random jitter."""
    return pause * random.uniform(0.5, 1.5)


class ThreadQueue:
    """The threads of one process that want a lease: one has the turn, the others wait.

    The locks behind a lease do not distinguish threads, and one thread per process is enough to
    compete for it. First come, first served.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queues: dict[str, deque[threading.Lock]] = {}

    @contextmanager
    def wait(self, name: str, deadline: Deadline) -> Iterator[None]:
        mine = threading.Lock()
        with self._guard:
            queue = self._queues.setdefault(name, deque())
            queue.append(mine)
            if queue[0] is not mine:
                mine.acquire()
        try:
            if queue[0] is not mine and not mine.acquire(timeout=max(deadline.left(), 0.0)):
                raise lease_busy(name, deadline)
            yield
        finally:
            with self._guard:
                was_first = queue[0] is mine
                queue.remove(mine)
                if not queue:
                    del self._queues[name]
                elif was_first:
                    queue[0].release()


class LocalLeases:
    """Leases of a graph on local disk, by name."""

    def __init__(self, root: Root) -> None:
        self._top = root.uri
        self._threads = ThreadQueue()

    @contextmanager
    def acquire(self, names: Iterable[str], timeout: float) -> Iterator[LeaseGuard]:
        deadline = Deadline(timeout)
        with ExitStack() as stack:
            for name in sorted(set(names)):
                stack.enter_context(self._threads.wait(name, deadline))
                path = f"{self._top}/{lease_path(name)}"
                stack.callback(_release, path, self._lock(path, name, deadline))
            yield _LOCAL_GUARD

    def is_free(self, name: str) -> bool:
        try:
            with self.acquire([name], timeout=0.0):
                return True
        except Conflict:
            return False

    def is_disowned(self, name: str) -> bool:
        # A file that could not be removed is unlocked, and can be locked at once.
        return False

    def _lock(self, path: str, name: str, deadline: Deadline) -> int:
        """Wait for the lock of a lease, after all earlier waiters."""
        is_patient = deadline.left() > 0.0
        with storage_call("lease", path):
            folder = path.removesuffix(LEASE_SUFFIX) + QUEUE_SUFFIX
            for checked in (path, folder):
                # Unlocked files in the directory of a queue are removed.
                refuse_links(self._top, checked.removeprefix(f"{self._top}/"))
            queue = LeaseQueue(folder)
            if not is_patient or queue.is_empty():
                descriptor = _try_lock(path)
                if descriptor is not None:
                    return descriptor
            if not is_patient:
                raise lease_busy(name, deadline)
            with queue.ticket() as ticket:
                while True:
                    descriptor = _try_lock(path) if ticket.is_next() else None
                    if descriptor is not None:
                        return descriptor
                    left = deadline.left()
                    if left <= 0.0:
                        raise lease_busy(name, deadline)
                    time.sleep(min(jittered(ticket.pause), left))


class _LocalLeaseGuard:
    """Operating system locks are lost only with the process."""

    def check(self) -> None:
        return None

    def extend_ahead(self, names: Iterable[str], timeout: float) -> None:
        return None

    def extend(self, names: Iterable[str], timeout: float) -> bool:
        return False

    def discard(self, path: str) -> bool:
        return False


_LOCAL_GUARD = _LocalLeaseGuard()


def _try_lock(path: str) -> int | None:
    """Lock the file of a lease; ``None`` if it is locked."""
    while True:
        descriptor = open_file(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Unless the path has been recreated meanwhile: others would lock the new file.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            # An open descriptor would hold the lock for the life of the process.
            os.close(descriptor)
            raise
        os.close(descriptor)


def _release(path: str, descriptor: int) -> None:
    """Release a lock. Never raises: the outcome of the work under the lease must not change.

    A file that could not be removed is unlocked, and the next holder reuses it.
    """
    # Removed while still locked: a waiter notices and creates it again.
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        _LOG.warning("cannot remove the lease file '%s': %s", path, error)
    try:
        os.close(descriptor)
    except OSError as error:
        # The descriptor is closed nevertheless, and the lock released.
        _LOG.warning("cannot close the lease file '%s': %s", path, error)
