"""Counts the calls of object stores: of each store, and of each thread over all stores."""

from __future__ import annotations

import threading

from omnigraph.records import dataclass

_KINDS = ("reads", "writes", "lists", "deletes")


class _ThreadCounts(threading.local):
    """The calls that this thread has made."""

    reads = 0
    writes = 0
    lists = 0
    deletes = 0


_THREAD = _ThreadCounts()


@dataclass(slots=True)
class Traffic:
    """The number of calls of a store, by kind.

    >>> before = thread_traffic()
    >>> traffic = StoreTraffic()
    >>> traffic.reads += 2
    >>> traffic.total, thread_traffic().since(before)
    (2, Traffic(reads=2, writes=0, lists=0, deletes=0))
    """

    reads: int = 0
    writes: int = 0
    lists: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        return self.reads + self.writes + self.lists + self.deletes

    def add(self, other: Traffic) -> None:
        """Add other calls to these."""
        for kind in _KINDS:
            setattr(self, kind, getattr(self, kind) + getattr(other, kind))

    def since(self, before: Traffic) -> Traffic:
        """The calls since an earlier count."""
        return Traffic(*(getattr(self, kind) - getattr(before, kind) for kind in _KINDS))


class StoreTraffic(Traffic):
    """The calls of one store; each is counted for the thread that makes it, too."""

    __slots__ = ()

    def __setattr__(self, kind: str, value: int) -> None:
        before = getattr(self, kind, 0)
        setattr(_THREAD, kind, getattr(_THREAD, kind) + value - before)
        super().__setattr__(kind, value)


def thread_traffic() -> Traffic:
    """The calls of this thread so far."""
    return Traffic(*(getattr(_THREAD, kind) for kind in _KINDS))
