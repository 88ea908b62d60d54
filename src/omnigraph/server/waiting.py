"""Waits in place of one request: for a commit, or for the generation that can answer it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from omnigraph.errors import ServerUnavailable
from omnigraph.server import heads
from omnigraph.server.admission import Permit
from omnigraph.server.bodies import ClientLeft
from omnigraph.server.calls import Call, Wait
from omnigraph.server.errors import RequestRefused
from omnigraph.server.lanes import ReadCancel


class WaitingConnection:
    """The waits of one request; from the first one on, its connection counts as one that waits."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """They do not count as time of the request."""
        self._permit: Permit | None = None

    def admit(self, call: Call) -> None:
        """Count the connection; raises if too many wait already."""
        if self._permit is not None:
            return
        try:
            self._permit = call.process.waits.enter(call.actor)
        except ServerUnavailable:
            call.process.metrics.refused("wait")
            raise

    async def wait(self, call: Call, wait: Wait, leaves: Callable[[], Awaitable[None]]) -> bool:
        """See ``wait_for_commit``."""
        self.admit(call)
        started = time.perf_counter()
        try:
            return await wait_for_commit(call, wait, leaves)
        finally:
            self.seconds += time.perf_counter() - started

    def release(self) -> None:
        """The response has ended."""
        if self._permit is not None:
            self._permit.release()


async def wait_for_commit(call: Call, wait: Wait, leaves: Callable[[], Awaitable[None]]) -> bool:
    """Wait; returns whether nothing more may be read for this request.

    That is so if the process ends, if its tokens or policies have changed, or if the token of the
    request has expired: whoever still may asks again. Raises ``ClientLeft`` if ``leaves`` returns.
    """
    process = call.process
    if process.is_draining or process.state is not call.state:
        return True
    handle = call.graph._handle
    waiting = asyncio.ensure_future(
        process.commit_news.wait(handle, wait.branch, wait.head, wait.seconds)
    )
    leaving = asyncio.ensure_future(leaves())
    try:
        await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientLeft
    finally:
        waiting.cancel()
        leaving.cancel()
    return process.is_draining or not await _is_still_known(call)


async def call_after_switch(
    call: Call, seconds: float, leaves: Callable[[], Awaitable[None]]
) -> Call:
    """The same request to the next generation, authorised by it; at the latest after a time."""
    process = call.process
    if process.state is call.state:
        switching = asyncio.ensure_future(process.await_switch(seconds))
        leaving = asyncio.ensure_future(leaves())
        try:
            await asyncio.wait({switching, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not switching.done():
                raise ClientLeft
        finally:
            switching.cancel()
            leaving.cancel()
    if process.is_draining:
        raise ServerUnavailable("the server is ending", hint="repeat the request")
    state, route, headers = process.state, call.route, call.headers
    identity = await heads.authenticate(headers, state.tokens)
    served = heads.find_graph(state, call.path["graph_id"], identity)
    before = route.lane_for(call.state.access, call.identity, call.served, call.path)
    if route.lane_for(state.access, identity, served, call.path) != before:
        raise ServerUnavailable("the stored query has changed", hint="repeat the request")
    cancel = ReadCancel(state.config.limits.timeout)
    again = replace(call, state=state, identity=identity, served=served, cancel=cancel)
    route.authorize(again)
    return again


async def _is_still_known(call: Call) -> bool:
    """Whether the token of a request is still that of its actor, under the same rules."""
    if call.process.state is not call.state:
        return False
    if call.state.tokens.is_empty:
        return True
    try:
        return await heads.authenticate(call.headers, call.state.tokens) == call.identity
    except RequestRefused:
        return False
