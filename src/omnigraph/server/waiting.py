"""Waits for a commit in place of one request, for as long as the request may still be answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from omnigraph.server import heads
from omnigraph.server.bodies import ClientLeft
from omnigraph.server.calls import Call, Wait
from omnigraph.server.errors import RequestRefused


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
