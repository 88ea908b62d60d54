"""A cache of limited size that threads may share."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key; a full cache starts anew.

    Each operation is one operation of a dict, so that no lock is needed.

    >>> cache = BoundedCache[str, int](2)
    >>> for number, name in enumerate("abc"):
    ...     cache.put(name, number)
    >>> cache.get("a"), cache.get("c"), len(cache)
    (None, 2, 1)
    """

    __slots__ = ("_limit", "_values", "get")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[K, V] = {}
        self.get = self._values.get

    def put(self, key: K, value: V) -> None:
        if len(self._values) >= self._limit:
            self._values.clear()
        self._values[key] = value

    def __len__(self) -> int:
        return len(self._values)
