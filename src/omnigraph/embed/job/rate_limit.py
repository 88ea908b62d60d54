"""The rate limit of a provider: requests and tokens per minute.

Each of the two has a token bucket. A request is charged when it is made, so waiting requests are
sent one after another; a request larger than a bucket delays the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from omnigraph.argument_checks import Positive, Rate, check_fields, public
from omnigraph.records import dataclass

_MINUTE = 60.0
_NAP_SECONDS = 0.1
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The requests and tokens that a provider allows per minute; ``None`` is unlimited.

    >>> RateLimit(60, 100_000).split(4)
    RateLimit(requests_per_minute=15.0, tokens_per_minute=25000.0)
    """

    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @public
    def split(self, by: Positive) -> RateLimit:
        """The limit for each of several processes."""
        both = (self.requests_per_minute, self.tokens_per_minute)
        return RateLimit(*(None if value is None else value / by for value in both))


def estimate_tokens(characters: int) -> int:
    """The approximate number of tokens; corrected when the provider reports the real number."""
    return characters // _CHARACTERS_PER_TOKEN + 1


def no_check() -> None:
    """The check of a job that cannot be cancelled."""


class _Bucket:
    """A token bucket: holds at most the tokens of one second, and may become negative."""

    def __init__(self, per_minute: float, least: float, now: float) -> None:
        self._per_second = per_minute / _MINUTE
        self._most = max(least, self._per_second)
        self._level = self._most
        self._at = now

    def take(self, cost: float, now: float) -> float:
        """Charge ``cost``; returns the seconds until the level is zero again."""
        self._level = min(self._most, self._level + (now - self._at) * self._per_second) - cost
        self._at = now
        return max(0.0, -self._level / self._per_second)


class RateLimiter:
    """Limits all requests of a process to one provider. Safe to share between threads."""

    def __init__(
        self,
        limit: RateLimit,
        check: Callable[[], None] = no_check,
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

    def acquire(self, tokens: int, stop: Callable[[], None] = no_check) -> None:
        """Wait until one more request of about ``tokens`` tokens may be sent.

        An exception of ``stop``, or of the common check, ends the wait.
        """
        with self._lock:
            now = self._clock()
            waits = [self._closed_until - now]
            if self._requests is not None:
                waits.append(self._requests.take(1.0, now))
            if self._tokens is not None:
                waits.append(self._tokens.take(float(tokens), now))
            until = now + max(waits)
        self._wait(until, stop)
        # Meanwhile the provider may have asked all requests to wait.
        while (closed := self._closed_until) > self._clock():
            self._wait(closed, stop)

    def correct(self, tokens: int) -> None:
        """Charge the difference between the real and the estimated tokens of a request."""
        with self._lock:
            if self._tokens is not None:
                self._tokens.take(float(tokens), self._clock())

    def pause(self, seconds: float, stop: Callable[[], None] = no_check, *, everyone: bool) -> None:
        """Wait after a failure; with ``everyone`` all other requests wait too."""
        until = self._clock() + seconds
        if everyone:
            with self._lock:
                self._closed_until = max(self._closed_until, until)
        self._wait(until, stop)

    def _wait(self, until: float, stop: Callable[[], None]) -> None:
        """Wait in short steps, so that a cancel takes effect soon."""
        while True:
            self._check()
            stop()
            left = until - self._clock()
            if left <= 0:
                return
            self._sleep(min(left, _NAP_SECONDS))
