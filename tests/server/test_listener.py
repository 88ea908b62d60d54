"""Connections that arrive while a server stops accepting them, and clients that leave."""

from __future__ import annotations

import asyncio
import re
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


WHOLE = b"POST /first HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
CUT = b"POST /cut HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n"


@pytest.mark.parametrize(
    ("together", "later", "answered"),
    [
        (WHOLE, b"\x00 not HTTP\r\n\r\n", [b"200", b"400"]),
        (WHOLE + WHOLE, b"\x00 not HTTP\r\n\r\n", [b"200", b"200", b"400"]),
        (WHOLE + WHOLE + b"\x00 not HTTP\r\n\r\n", b"", [b"200", b"200", b"400"]),
        (WHOLE + CUT, b"", [b"200", b"400"]),
        (WHOLE, b"GET / HTTP/1.1\r\n" + b"x: %b\r\n" % (b"y" * 70_000), [b"200", b"431"]),
    ],
    ids=["after one", "after two", "at once", "malformed body", "large head"],
)
def test_a_whole_request_is_answered_whatever_follows_it(
    together: bytes, later: bytes, answered: list[bytes]
):
    """It may be a write: a refusal in its place would say that it was not made."""

    async def scenario() -> bytes:
        begun, may_answer = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            begun.set()
            await may_answer.wait()
            headers = [(b"content-length", b"2")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"{}"})

        listening = socket.create_server(("127.0.0.1", 0))
        listener = Listener(app, [listening])
        listener.start()
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        async with asyncio.timeout(PATIENCE):
            writer.write(together)
            await begun.wait()
            writer.write(later)
            # Long enough for the server to have read it, in most runs.
            await asyncio.sleep(0.05)
            may_answer.set()
            received = await reader.read()
            writer.close()
            await listener.drain()
            return received

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loops:
        received = loops.run(scenario())
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == answered
