"""Look-ups in the event loop: after a commit one of a kind takes a thread, others wait for it."""

from __future__ import annotations

import asyncio

from omnigraph.server.calls import Reply
from omnigraph.server.look_ups import LookUps

ANSWER = Reply(b"{}")


class Cache:
    """A cache that the event loop can read while it is fresh, and that a thread fills."""

    def __init__(self) -> None:
        self.is_fresh = True
        self.fills = 0

    def attempt(self) -> Reply | None:
        return ANSWER if self.is_fresh else None

    async def read(self, look_ups: LookUps, kind: str = "by key") -> Reply:
        reply = self.attempt()
        if reply is not None:
            look_ups.note(kind)
            return reply
        reply = await look_ups.wait(kind, self.attempt)
        if reply is None:
            with look_ups.fill(kind):
                self.fills += 1
                await asyncio.sleep(0)
                self.is_fresh = True
                reply = ANSWER
        return reply


def together(count: int, cache: Cache, *, is_warm: bool = True) -> None:
    async def run() -> None:
        look_ups = LookUps()
        if is_warm:
            assert await cache.read(look_ups) is ANSWER
        cache.is_fresh = False
        replies = await asyncio.gather(*(cache.read(look_ups) for _ in range(count)))
        assert replies == [ANSWER] * count

    asyncio.run(run())


def test_one_look_up_of_many_fills_the_cache():
    cache = Cache()
    together(20, cache)
    assert cache.fills == 1


def test_a_read_that_was_never_answered_in_memory_waits_for_nobody():
    """Other queries of one text run beside each other."""
    cache = Cache()
    together(20, cache, is_warm=False)
    assert cache.fills == 20


def test_nobody_waits_long_for_a_read_that_takes_long(monkeypatch):
    monkeypatch.setattr("omnigraph.server.look_ups._LONGEST_WAIT", 0.01)

    async def run() -> None:
        look_ups = LookUps()
        look_ups.note("k")
        with look_ups.fill("k"):
            assert await look_ups.wait("k", lambda: None) is None

    asyncio.run(run())


def test_nobody_waits_long_while_commits_make_the_caches_stale_again(monkeypatch):
    monkeypatch.setattr("omnigraph.server.look_ups._LONGEST_WAIT", 0.05)

    async def run() -> None:
        look_ups, is_over = LookUps(), False
        look_ups.note("k")

        async def fill_for_ever() -> None:
            while not is_over:
                # The next one begins before those that wait look again.
                with look_ups.fill("k"):
                    await asyncio.sleep(0.001)

        filling = asyncio.ensure_future(fill_for_ever())
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(20):
                assert await look_ups.wait("k", lambda: None) is None
        finally:
            is_over = True
            await filling

    asyncio.run(run())


def test_a_read_that_fails_releases_those_that_wait():
    async def run() -> None:
        look_ups = LookUps()
        look_ups.note("k")
        try:
            with look_ups.fill("k"):
                waiting = asyncio.ensure_future(look_ups.wait("k", lambda: ANSWER))
                await asyncio.sleep(0)
                raise ValueError
        except ValueError:
            pass
        assert await waiting is ANSWER

    asyncio.run(run())
