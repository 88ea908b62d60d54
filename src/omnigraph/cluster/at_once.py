"""Looks at many objects of a store: several at a time where each costs a round trip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

REQUESTS_AT_ONCE = 32
"""Texts that are read from a bucket at the same time."""
GRAPHS_AT_ONCE = 16
"""Graphs of a bucket that are opened at the same time."""
_BATCH = 256

T = TypeVar("T")
R = TypeVar("R")


def at_once(
    work: Callable[[T], R], items: Sequence[T], limit: int, *, is_local: bool
) -> Iterator[R]:
    """The results of some work in the order of its items; the first error ends it.

    On local disk one after the other: there is nothing to wait for.

    >>> list(at_once(abs, [-1, 2], 2, is_local=False))
    [1, 2]
    """
    if is_local or len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(limit, "cluster-look") as executor:
        for start in range(0, len(items), _BATCH):
            yield from executor.map(work, items[start : start + _BATCH])
