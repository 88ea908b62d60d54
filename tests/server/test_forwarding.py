"""Answers that a writer gives before it has a whole request."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest

from omnigraph.server.forwarding import Forwarder

PATIENCE = 60.0
"""Seconds until something counts as hung; far more than it takes."""


@pytest.mark.parametrize("is_whole", [False, True], ids=["refused early", "read to its end"])
def test_an_answer_before_the_end_of_the_body_closes_the_connection(is_whole: bool):
    async def scenario(path: str) -> list[Any]:
        ended = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"part0" if is_whole else b"part")
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
            await reader.read()
            writer.close()
            await writer.wait_closed()
            ended.set()

        pieces = [{"type": "http.request", "body": b"part", "more_body": True}]
        if is_whole:
            pieces.append({"type": "http.request", "body": b"0", "more_body": False})
        sent: list[Any] = []

        async def receive() -> Any:
            if not pieces:
                await asyncio.Event().wait()
            return pieces.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "method": "POST",
            "raw_path": b"/write",
            "query_string": b"",
            "headers": [(b"content-length", b"5" if is_whole else b"999999999999")],
        }
        async with asyncio.timeout(PATIENCE):
            server = await asyncio.start_unix_server(answer, path)
            forwarder = Forwarder(path)
            await forwarder(scope, receive, send)
            forwarder.close()
            await ended.wait()
            server.close()
            await server.wait_closed()
        return sent

    # A short path: that of a socket is limited.
    with tempfile.TemporaryDirectory() as folder:
        sent = asyncio.run(scenario(str(Path(folder) / "s")))
    assert sent[0]["status"] == 413
    assert ((b"connection", b"close") in sent[0]["headers"]) == (not is_whole)
