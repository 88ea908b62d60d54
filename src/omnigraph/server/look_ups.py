"""Look-ups in the event loop: one of a kind fills the caches, the others wait for it there.

A look-up in cached tables is answered in the event loop. After a commit its caches have to be
extended, which needs a thread. If every look-up that arrives meanwhile took the thread too, they
would occupy it one after another long after the caches are filled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from omnigraph.server.calls import Reply

_REMEMBERED = 4096
"""How many kinds of reads are known to be look-ups."""
_LONGEST_WAIT = 0.05
"""Seconds; a read that has waited longer gets a thread of its own."""


class LookUps:
    """The kinds of reads that the event loop has answered, and who fills their caches now."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, None] = {}
        self._filling: dict[Hashable, asyncio.Future[None]] = {}

    def note(self, kind: Hashable) -> None:
        """A read of this kind was answered from memory only."""
        if kind not in self._kinds:
            if len(self._kinds) >= _REMEMBERED:
                del self._kinds[next(iter(self._kinds))]
            self._kinds[kind] = None

    async def wait(self, kind: Hashable, attempt: Callable[[], Reply | None]) -> Reply | None:
        """The answer from memory once another read has filled it; ``None`` if none does."""
        now = asyncio.get_running_loop().time
        end, reply = now() + _LONGEST_WAIT, None
        # Commits may make the caches stale again and again.
        while reply is None and (filling := self._filling.get(kind)) is not None:
            await asyncio.wait((filling,), timeout=max(end - now(), 0.0))
            if not filling.done():
                return None
            reply = attempt()
        return reply

    @contextmanager
    def fill(self, kind: Hashable) -> Iterator[None]:
        """While a read with a thread fills the caches of its kind; others wait for its end."""
        if kind not in self._kinds or kind in self._filling:
            yield
            return
        filling = self._filling[kind] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._filling[kind]
            filling.set_result(None)
