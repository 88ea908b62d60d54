"""The limits of a query: time, memory, rows, cancellation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import TypeVar

from omnigraph.errors import Cancelled, InputError, MemoryExceeded, QueryTimeout, RowLimitExceeded
from omnigraph.read.gate import GATE
from omnigraph.records import dataclass

MEMORY = 1 << 30
"""The default limit for the intermediate rows of one query, in bytes."""
Check = Callable[[], None]
"""Raises if the query must end; called regularly during long work."""
T = TypeVar("T")
_now = time.monotonic


def unlimited() -> None:
    """The check for work without limits."""


class Cancel:
    """Ends a query from another thread.

    >>> cancel = Cancel()
    >>> cancel.set()
    >>> cancel.is_set
    True
    """

    def __init__(self) -> None:
        # A plain flag: nobody waits for it, and every request of a server makes one.
        self._is_set = False

    def set(self) -> None:
        """End all queries that use this object, at their next check."""
        self._is_set = True

    @property
    def is_set(self) -> bool:
        return self._is_set


class Waited:
    """The seconds during which nobody has asked a query for its next rows."""

    def __init__(self) -> None:
        self.seconds = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one query; ``None`` means no limit.

    The time starts when this object is created, so it includes parsing the text and parameters.
    """

    timeout: float | None = None
    max_rows: int | None = None
    max_memory: int | None = MEMORY
    cancel: Cancel | None = None
    started: float = field(default_factory=lambda: _now())
    waited: Waited | None = None
    """Does not count as time of the query."""

    def __post_init__(self) -> None:
        if self.cancel is not None and not isinstance(self.cancel, Cancel):
            raise InputError(f"cancel must be a Cancel, not {type(self.cancel).__name__}")
        for name in ("timeout", "max_rows", "max_memory"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InputError(f"{name} cannot be {'negative' if value < 0 else value}")


class ResourceGuard:
    """Enforces the limits of one query while it runs."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._end = None if limits.timeout is None else limits.started + limits.timeout
        self.peak = 0
        """The largest size of the intermediate rows, in bytes."""

    @property
    def seconds_left(self) -> float | None:
        if self._end is None:
            return None
        waited = self._limits.waited
        return max(self._end + (0.0 if waited is None else waited.seconds) - _now(), 0.0)

    def check(self) -> None:
        """Raise if the time is up or the query was cancelled; called between steps."""
        GATE.release_if_long()
        limits = self._limits
        if limits.cancel is not None and limits.cancel.is_set:
            raise Cancelled("the query was cancelled")
        if self._end is not None and _now() > self._end and self.seconds_left == 0.0:
            raise QueryTimeout(
                f"the query took longer than {limits.timeout} seconds",
                hint="narrow the pattern, or allow more time",
                details={"timeout": limits.timeout},
            )

    def between(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, with a check before each."""
        for item in items:
            self.check()
            yield item

    def has_room(self, size: int) -> bool:
        """Whether intermediate rows of a size are allowed."""
        most = self._limits.max_memory
        return most is None or size <= most

    def hold(self, size: int) -> None:
        """Raise if intermediate rows would need too much memory; called before allocating them."""
        self.peak = max(self.peak, size)
        most = self._limits.max_memory
        if most is not None and not self.has_room(size):
            raise MemoryExceeded(
                f"the query needs about {size >> 20} MiB for intermediate rows, "
                f"more than the {most >> 20} MiB it may take",
                hint="filter earlier, return less, or raise max_memory",
                details={"bytes": size, "max_memory": most},
            )

    def check_rows(self, rows: int) -> None:
        """Raise if the result has too many rows."""
        most = self._limits.max_rows
        if most is not None and rows > most:
            raise RowLimitExceeded(
                f"the result has more than {most} rows",
                hint="add a limit to the query, or raise max_rows",
                details={"max_rows": most},
            )
