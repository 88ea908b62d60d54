"""How fast a provider may be asked: so many requests, and so many tokens, in a minute.

A token bucket for each of the two. A request takes its turn when it is made, so that those who wait
go one after another; one that is larger than a bucket makes the next wait longer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from omnigraph.errors import InputError

_MINUTE = 60.0
_NAP_SECONDS = 0.1
_LETTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class RateLimit:
    """What a provider allows in a minute; none is no limit.

    >>> RateLimit(60, 100_000).shared(4)
    RateLimit(requests_per_minute=15.0, tokens_per_minute=25000.0)
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{name} must be a number, not {type(value).__name__}")
            if not value > 0:
                raise InputError(f"{name} must be above 0")

    def shared(self, by: int) -> RateLimit:
        """The part of one of several who ask at the same time."""
        return RateLimit(_part(self.requests_per_minute, by), _part(self.tokens_per_minute, by))


def _part(value: float | None, by: int) -> float | None:
    return None if value is None else value / max(1, by)


def guessed_tokens(letters: int) -> int:
    """About how many tokens a text has; what it really took is made good afterwards."""
    return letters // _LETTERS_PER_TOKEN + 1


def nothing() -> None:
    """The check of somebody whom nobody stops."""


class _Bucket:
    """Fills with time, holds what one second brings, and may be owed."""

    def __init__(self, per_minute: float, least: float, now: float) -> None:
        self._per_second = per_minute / _MINUTE
        self._most = max(least, self._per_second)
        self._level = self._most
        self._at = now

    def take(self, cost: float, now: float) -> float:
        """Take so much; gives the seconds until that is paid."""
        self._level = min(self._most, self._level + (now - self._at) * self._per_second) - cost
        self._at = now
        return max(0.0, -self._level / self._per_second)


class Pace:
    """The turns of all who ask one provider in one process. Safe to share between threads."""

    def __init__(
        self,
        limit: RateLimit,
        check: Callable[[], None] = nothing,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        now = clock()
        requests, tokens = limit.requests_per_minute, limit.tokens_per_minute
        self._requests = None if requests is None else _Bucket(requests, 1.0, now)
        self._tokens = None if tokens is None else _Bucket(tokens, 0.0, now)
        self._check = check
        self._clock = clock
        self._sleep = sleep
        self._closed_until = now
        self._lock = threading.Lock()

    def turn(self, tokens: int, stop: Callable[[], None] = nothing) -> None:
        """Wait until one more request of about so many tokens may be made.

        What ``stop`` raises ends the wait, as what the check of all raises does.
        """
        with self._lock:
            now = self._clock()
            waits = [self._closed_until - now]
            if self._requests is not None:
                waits.append(self._requests.take(1.0, now))
            if self._tokens is not None:
                waits.append(self._tokens.take(float(tokens), now))
            until = now + max(waits)
        self._rest(until, stop)
        # Meanwhile the provider may have asked everybody to wait.
        while (closed := self._closed_until) > self._clock():
            self._rest(closed, stop)

    def make_good(self, tokens: int) -> None:
        """A request took so many more tokens than was guessed, or fewer."""
        with self._lock:
            if self._tokens is not None:
                self._tokens.take(float(tokens), self._clock())

    def pause(self, seconds: float, stop: Callable[[], None] = nothing, *, everyone: bool) -> None:
        """Wait after a failure, and let all others wait too."""
        until = self._clock() + seconds
        if everyone:
            with self._lock:
                self._closed_until = max(self._closed_until, until)
        self._rest(until, stop)

    def _rest(self, until: float, stop: Callable[[], None]) -> None:
        """Wait in short naps, so that whoever cancels need not."""
        while True:
            self._check()
            stop()
            left = until - self._clock()
            if left <= 0:
                return
            self._sleep(min(left, _NAP_SECONDS))
