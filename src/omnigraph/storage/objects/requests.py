"""The threads of this process that wait for object stores."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

_THREADS = 32
_LOCK = threading.Lock()
_POOL: list[ThreadPoolExecutor] = []


def request_pool() -> ThreadPoolExecutor:
    """Threads for single requests. A task must not wait for another task, nor for a lease."""
    with _LOCK:
        if not _POOL:
            _POOL.append(ThreadPoolExecutor(_THREADS, "omnigraph-requests"))
        return _POOL[0]


# A forked process has no threads.
os.register_at_fork(after_in_child=_POOL.clear)
