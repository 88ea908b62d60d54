"""When to begin to listen to the clients of reads: most have ended before it pays."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

_PATIENCE_SECONDS = 0.05
"""A read that takes longer ends when its client leaves."""


class Listening(Protocol):
    """A request whose client may leave."""

    def listen(self) -> None:
        """Cancel the read of this request when its client leaves."""
        ...


class Patience:
    """The reads that are too young for anybody to listen to their clients; one timer for all."""

    def __init__(self) -> None:
        self._started: dict[Listening, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, exchange: Listening) -> None:
        loop = asyncio.get_running_loop()
        self._started[exchange] = time.perf_counter()
        if self._timer is None:
            self._timer = loop.call_later(_PATIENCE_SECONDS, self._look, loop)

    def discard(self, exchange: Listening) -> None:
        self._started.pop(exchange, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = time.perf_counter()
        # The oldest come first.
        for exchange, started in list(self._started.items()):
            left = started + _PATIENCE_SECONDS - now
            if left > 0:
                self._timer = loop.call_later(left, self._look, loop)
                return
            del self._started[exchange]
            exchange.listen()
