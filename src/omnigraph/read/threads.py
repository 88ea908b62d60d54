"""Runs blocks of rows on several threads, where the work is done outside the interpreter.

NumPy and Arrow release the interpreter lock while they work on arrays, so blocks of many rows run
on all cores. The results come in the order of the blocks: the rows of a query and their order do
not depend on the number of threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
R = TypeVar("R")

# Every block takes memory: this many are what one query may be expected to take.
_MOST_WORKERS = 4


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


CORES = _cores()
"""The cores that this process may use."""
WORKERS = min(CORES, _MOST_WORKERS)
"""The number of blocks that one query works on at a time."""
FEWEST = 8
"""Fewer blocks are done by one thread: others would cost as much as they save."""


class _Worker(threading.local):
    """Whether the calling thread works on a block."""

    is_worker = False


_OWN = _Worker()


def can_spread(blocks: int) -> bool:
    """Whether so many blocks are spread; a thread that works on a block does not spread them."""
    return WORKERS > 1 and blocks >= FEWEST and not _OWN.is_worker


def in_order(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """The results of all items in their order, computed by ``WORKERS`` threads.

    An item is taken when its turn comes, so only the items in work and their results are in
    memory. After a failure no further item is begun, and the error of the first one is raised.
    """
    # Small queries never come here.
    from concurrent.futures import Future, ThreadPoolExecutor

    begun: deque[Future[R]] = deque()

    def one(item: T) -> R:
        _OWN.is_worker = True
        return work(item)

    def begin(item: T) -> Future[R]:
        try:
            return pool.submit(one, item)
        except RuntimeError:
            # No more threads can be started: this one does the work.
            done: Future[R] = Future()
            done.set_result(work(item))
            return done

    # The threads live as long as these items: starting them costs far less than one block.
    with ThreadPoolExecutor(WORKERS, "omnigraph-read") as pool:
        try:
            for item in items:
                begun.append(begin(item))
                if len(begun) > WORKERS:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()
