"""The right to write one table on one branch, held against every thread and process.

On local disk a lease is a lock of the operating system on a small file: it ends with the process
that holds it, however that ends, and a process that is merely stopped keeps it. So whoever can
take the lease of a writer knows that this writer is finished or dead. On S3 it is an object that
expires unless its holder renews it, see ``leases.s3``. Waiters are served in the order of arrival:
threads of one process by ``ThreadQueue``, processes by ``leases.queue``. A caller that does not
wait ignores the queue.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from omnigraph.errors import Conflict
from omnigraph.lang.fnv import fnv1a_64
from omnigraph.logs import logger
from omnigraph.storage.leases.queue import QUEUE_SUFFIX, LeaseQueue, open_file
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.links import refuse_links
from omnigraph.storage.objects.roots import Root
from omnigraph.storage.objects.store import ObjectStore

_LOG = logger(__name__)

LEASE_SUFFIX = ".lease"
LEASE_FOLDER = "__recovery"
TTL_SECONDS = 15.0


class LeaseGuard(Protocol):
    """Acquired leases."""

    def check(self) -> None:
        """Raise ``Conflict`` when one of them was lost."""


class Leases(Protocol):
    """The leases of one graph, by name."""

    def acquire(self, names: Iterable[str], timeout: float) -> AbstractContextManager[LeaseGuard]:
        """Hold several leases, taken in sorted order so that no two writers wait in a circle.

        Raises ``Conflict`` when one of them is not free in time; then none is held.
        """

    def is_free(self, name: str) -> bool:
        """Whether no live process holds a lease at this moment."""


def open_leases(root: Root, objects: ObjectStore, ttl: float = TTL_SECONDS) -> Leases:
    """The leases of a graph, of the kind that its storage can keep.

    ``ttl`` is how many seconds a lease lives unrenewed where it is an object, not a lock.
    """
    if root.is_local:
        return LocalLeases(root)
    # Imported here because the S3 leases build on this module.
    from omnigraph.storage.leases.s3 import S3Leases

    return S3Leases(objects, ttl)


def lease_path(name: str) -> str:
    """Where a lease lies under the root.

    >>> lease_path("node:Person@main")
    '__recovery/bc33766910a97e5d.lease'
    """
    return f"{LEASE_FOLDER}/{fnv1a_64(name):016x}{LEASE_SUFFIX}"


def lease_busy(name: str) -> Conflict:
    """The error of a lease that another writer holds."""
    table, _, branch = name.partition("@")
    what = f"table {table} on branch '{branch}'" if ":" in table else f"'{name}'"
    return Conflict(
        f"{what} is locked by another writer",
        hint="retry later, or raise the lease timeout",
        details={"lease": name},
    )


def jittered(pause: float) -> float:
    """About this pause, different for each waiter."""
    return pause * random.uniform(0.5, 1.5)


class ThreadQueue:
    """The threads of one process that want a lease: one has the turn, the others queue.

    The locks behind a lease do not distinguish threads, and only one thread of a process needs to
    ask for it. First come, first served.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._queues: dict[str, deque[threading.Lock]] = {}

    @contextmanager
    def wait(self, name: str, deadline: float) -> Iterator[None]:
        mine = threading.Lock()
        with self._guard:
            queue = self._queues.setdefault(name, deque())
            queue.append(mine)
            if queue[0] is not mine:
                mine.acquire()
        try:
            if queue[0] is not mine and not mine.acquire(
                timeout=max(deadline - time.monotonic(), 0.0)
            ):
                raise lease_busy(name)
            yield
        finally:
            self._leave(name, queue, mine)

    def waiting(self, name: str) -> int:
        """How many threads have the turn or queue for it."""
        with self._guard:
            return len(self._queues.get(name, ()))

    def _leave(self, name: str, queue: deque[threading.Lock], mine: threading.Lock) -> None:
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
        """See ``Leases``."""
        deadline = time.monotonic() + timeout
        with ExitStack() as stack:
            for name in sorted(set(names)):
                stack.enter_context(self._threads.wait(name, deadline))
                stack.enter_context(self._file(name, deadline))
            yield _LOCAL_GUARD

    def is_free(self, name: str) -> bool:
        """See ``Leases``."""
        try:
            with self.acquire([name], timeout=0.0):
                return True
        except Conflict:
            return False

    @contextmanager
    def _file(self, name: str, deadline: float) -> Iterator[None]:
        path = f"{self._top}/{lease_path(name)}"
        descriptor = self._lock(path, name, deadline)
        try:
            yield
        finally:
            _release(path, descriptor)

    def _lock(self, path: str, name: str, deadline: float) -> int:
        """Wait for the lock of a lease behind all earlier waiters."""
        is_patient = time.monotonic() < deadline
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
                raise lease_busy(name)
            with queue.ticket() as ticket:
                while True:
                    descriptor = _try_lock(path) if ticket.is_next() else None
                    if descriptor is not None:
                        return descriptor
                    left = deadline - time.monotonic()
                    if left <= 0.0:
                        raise lease_busy(name)
                    time.sleep(min(jittered(ticket.pause), left))


class _LocalLeaseGuard:
    """Locks of the operating system are lost with the process only."""

    def check(self) -> None:
        return None


_LOCAL_GUARD = _LocalLeaseGuard()


def _try_lock(path: str) -> int | None:
    """Lock the file of a lease; none when it is locked."""
    while True:
        descriptor = open_file(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def _release(path: str, descriptor: int) -> None:
    """Give a lock back. Never raises: what was done under the lease has its own answer.

    A file that stays is unlocked, and the next holder reuses it.
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
        # The descriptor is closed all the same, and the lock released.
        _LOG.warning("cannot close the lease file '%s': %s", path, error)


def _is_at(path: str, descriptor: int) -> bool:
    """Whether the file that was locked is still the one that others will find."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
