"""Connections that arrive while a server stops accepting them, and clients that leave."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from omnigraph.server.listener import Listener

PATIENCE = 60.0
"""Seconds until something counts as hung; far more than it takes."""


async def never_asked(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no request was sent")


def test_a_drain_ends_though_a_connection_was_accepted_in_the_moment_of_the_stop(
    monkeypatch: pytest.MonkeyPatch,
):
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        address = listening.getsockname()
        listener = Listener(never_asked, [listening])
        create, stopped = listener._connection, asyncio.Event()

        def stop() -> None:
            listener.stop_accepting()
            stopped.set()

        def at_the_stop() -> asyncio.Protocol:
            # The protocol is told of its connection in the next turn of the loop, after this.
            loop.call_soon(stop)
            return create()

        monkeypatch.setattr(listener, "_connection", at_the_stop)
        listener.start()
        reader, writer = await asyncio.open_connection(*address)
        async with asyncio.timeout(PATIENCE):
            await stopped.wait()
            await listener.drain()
            assert await reader.read() == b""
        assert listener.connections == 0
        writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loops:
        loops.run(scenario())
