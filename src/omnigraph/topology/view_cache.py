"""The masks and visible edges of the views in use; the least recently used ones are evicted.

An entry belongs to a version of a table and to what decides about its rows, so actors with equal
rules share it. Entries of other versions in the same group are reused as far as they hold.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

MEMORY = 256 << 20
_MOST = 1_024
_MOST_COUNTS = 65_536


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


V = TypeVar("V", bound=_Sized)


class ViewCache:
    """Values by key. Safe to share between threads."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._lock = threading.RLock()
        self._building: dict[Hashable, threading.Lock] = {}
        self._values: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()
        self._latest: dict[Hashable, Any] = {}
        self._counts: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for _, value in list(self._values.values()))

    def forget(self) -> None:
        """Drop everything."""
        with self._lock:
            self._values.clear()
            self._latest.clear()
            self._counts.clear()

    def get(self, key: Hashable, type_: type[V]) -> V | None:
        """A value if it is in memory."""
        with self._lock:
            entry = self._values.get(key)
            if entry is None:
                return None
            self._values.move_to_end(key)
            value = entry[1]
            assert isinstance(value, type_)
            return value

    def get_or_build(
        self, key: Hashable, group: Hashable, type_: type[V], build: Callable[[V | None], V]
    ) -> V:
        """A value, built if necessary from the latest one of its group; by one thread at a time."""
        value = self.get(key, type_)
        if value is not None:
            return value
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building:
            value = self.get(key, type_)
            if value is None:
                value = build(self._latest.get(group))
                with self._lock:
                    self._values[key] = group, value
                    self._latest[group] = value
                self.shrink()
        with self._lock:
            self._building.pop(key, None)
        return value

    def shrink(self) -> None:
        """Evict what was not used for longest, while the memory limit is exceeded."""
        with self._lock:
            size = self.nbytes
            while len(self._values) > 1 and (size > self._memory or len(self._values) > _MOST):
                _, (group, evicted) = self._values.popitem(last=False)
                if self._latest.get(group) is evicted:
                    del self._latest[group]
                size -= evicted.nbytes

    def counts(self, key: Hashable, count: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """Two numbers, counted once."""
        counts = self._counts.get(key)
        if counts is None:
            counts = count()
            with self._lock:
                self._counts[key] = counts
                while len(self._counts) > _MOST_COUNTS:
                    self._counts.popitem(last=False)
        return counts
