"""Small queries of one process take turns.

Only one thread at a time can run Python. A query of a fraction of a millisecond calls Arrow dozens
of times, and every call would hand Python over to another thread and wait to get it back: four
threads together would answer fewer queries than one. Whoever has more to do, or asks storage,
leaves the turn to the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Whoever waits longer than this goes without a turn: it never stands in for a limit.
_PATIENCE = 0.05
_LONG = 0.002

_turn = threading.Lock()
_own = threading.local()


@contextmanager
def in_turn() -> Iterator[None]:
    """Run something that is over soon, unless ``leave`` is called in it."""
    if getattr(_own, "since", None) is not None or not _turn.acquire(timeout=_PATIENCE):
        yield
        return
    _own.since = time.perf_counter()
    try:
        yield
    finally:
        leave()


def leave() -> None:
    """Let others go on: what comes now takes long, or waits for something else than Python."""
    if getattr(_own, "since", None) is not None:
        _own.since = None
        _turn.release()


def leave_if_long() -> None:
    """The same once something has taken longer than was thought."""
    since = getattr(_own, "since", None)
    if since is not None and time.perf_counter() - since > _LONG:
        leave()
