"""Connections that arrive while a server stops accepting them, and clients that leave."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from omnigraph.server.listener import Listener, _JoinedHead

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


class Wire(asyncio.Transport):
    """A transport that lists what would be sent by one system call each."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.sent.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def write_eof(self) -> None:
        self.sent.append(b"<end>")


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def test_a_head_is_sent_with_the_bytes_that_follow_it():
    async def scenario() -> None:
        wire = Wire()
        joined = _JoinedHead(wire, asyncio.get_running_loop())
        joined.write(HEAD)
        joined.write(b"body")
        joined.write(b"more")
        assert wire.sent == [HEAD + b"body", b"more"]
        await asyncio.sleep(0)
        assert wire.sent == [HEAD + b"body", b"more"]

    asyncio.run(scenario())


def test_a_head_that_nothing_follows_is_sent_in_the_next_turn_of_the_loop():
    async def scenario() -> None:
        wire = Wire()
        joined = _JoinedHead(wire, asyncio.get_running_loop())
        joined.write(HEAD)
        assert wire.sent == []
        await asyncio.sleep(0)
        assert wire.sent == [HEAD]

    asyncio.run(scenario())


@pytest.mark.parametrize("leaves", [False, True])
def test_a_head_is_sent_before_the_end_unless_the_client_has_left(leaves):
    async def scenario() -> None:
        wire = Wire()
        joined = _JoinedHead(wire, asyncio.get_running_loop())
        joined.write(HEAD)
        if leaves:
            wire.close()
        joined.write_eof()
        await asyncio.sleep(0)
        assert wire.sent == ([b"<end>"] if leaves else [HEAD, b"<end>"])

    asyncio.run(scenario())
