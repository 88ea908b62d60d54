"""The right to write one table on one branch, held against every thread and process.

On local disk a lease is a lock of the operating system on a small file: it ends with the process
that holds it, however that ends, and a process that is merely stopped keeps it. So whoever can
take the lease of a writer knows that this writer is finished or dead.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from omnigraph.errors import Conflict
from omnigraph.lang.fnv import fnv1a_64
from omnigraph.storage.failures import translated
from omnigraph.storage.roots import Root

LEASE_SUFFIX = ".lease"
_FOLDER = "__recovery"
_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.1


class LocalLeases:
    """Leases of a graph on local disk, by name."""

    def __init__(self, root: Root) -> None:
        self._folder = Path(root.uri, _FOLDER)
        self._guard = threading.Lock()
        self._threads: dict[str, threading.Lock] = {}

    @contextmanager
    def held(self, names: Iterable[str], timeout: float) -> Iterator[None]:
        """Hold several leases, taken in sorted order so that no two writers wait in a circle.

        Raises ``Conflict`` when one of them is not free in time; then none is held.
        """
        deadline = time.monotonic() + timeout
        with ExitStack() as stack:
            for name in sorted(set(names)):
                stack.enter_context(self._one(name, deadline))
            yield

    def is_free(self, name: str) -> bool:
        """Whether nobody holds a lease at this moment."""
        try:
            with self.held([name], timeout=0.0):
                return True
        except Conflict:
            return False

    @contextmanager
    def _one(self, name: str, deadline: float) -> Iterator[None]:
        # Locks of the operating system do not tell threads of one process apart.
        with self._guard:
            own = self._threads.setdefault(name, threading.Lock())
        if not own.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            raise _busy(name)
        try:
            path = self._path(name)
            descriptor = self._lock(path, name, deadline)
            try:
                yield
            finally:
                # Removed while still held: who waits for it notices and makes it anew.
                path.unlink(missing_ok=True)
                os.close(descriptor)
        finally:
            own.release()

    def _lock(self, path: Path, name: str, deadline: float) -> int:
        pause = _PAUSE_SECONDS
        while True:
            with translated("lease", str(path)):
                self._folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if time.monotonic() >= deadline:
                    raise _busy(name) from None
                time.sleep(min(pause, max(deadline - time.monotonic(), 0.0)))
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                continue
            if _is_at(path, descriptor):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()} {name}\n".encode())
                return descriptor
            os.close(descriptor)

    def _path(self, name: str) -> Path:
        return self._folder / f"{fnv1a_64(name):016x}{LEASE_SUFFIX}"


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the file that was locked is still the one that others will find."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _busy(name: str) -> Conflict:
    return Conflict(
        f"'{name}' is being written by somebody else",
        hint="repeat later, or raise the time to wait",
        details={"lease": name},
    )
