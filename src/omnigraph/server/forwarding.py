"""Relays requests from a reader process to the writer process, byte for byte.

The writer listens on a Unix socket that the supervisor holds open, so a connection can be made
while the writer is being restarted; the request then waits for the new one. The writer checks the
token and the policy itself: nothing that is added here is trusted by it.

If the writer dies, what the client hears depends on whether the writer can have seen the whole
request: if not, nothing was done and the request can be repeated; if so, the outcome is unknown.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, cast

import httptools
from starlette.types import Message, Receive, Scope, Send

from omnigraph.errors import OmniGraphError, OutcomePending, ServerUnavailable
from omnigraph.server.calls import Call
from omnigraph.server.heads import REQUEST_ID

Outcome: TypeAlias = Literal["answered", "unavailable", "pending", "left"]

_HOP_BY_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"proxy-connection"),
    }
)
_NOT_RELAYED: Final = _HOP_BY_HOP | {b"date"}
"""Of an answer: the reader says itself when it sends it."""
_IDLE = 32
"""How many connections to the writer are kept for the next request."""
_CONNECT_SECONDS = 10.0
"""How long a request waits for a writer that is being restarted."""
_PAUSE_SECONDS = 0.05
_HIGH_WATER = 256 << 10


class WriterLost(Exception):
    """The connection to the writer ended before its answer did."""


class _WriterConnection(asyncio.Protocol):
    """One connection to the writer: a request at a time, and the parsed answer as messages."""

    def __init__(self, on_idle_lost: Callable[[_WriterConnection], None]) -> None:
        self._on_lost = on_idle_lost
        self._parser: Any = None
        self._queue: deque[Message | None] = deque()
        self._wake = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._queued = 0
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self.is_complete = False
        """Whether the last answer has arrived completely."""

    # -- asyncio -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._queue.append(None)
        self._wake.set()
        self._writable.set()
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- the answer --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return
        headers = [pair for pair in self._headers if pair[0] not in _NOT_RELAYED]
        self._put({"type": "http.response.start", "status": self._status, "headers": headers})

    def on_body(self, body: bytes) -> None:
        self._queued += len(body)
        if self._queued > _HIGH_WATER and self.transport is not None:
            self.transport.pause_reading()
        self._put({"type": "http.response.body", "body": body, "more_body": True})

    def on_message_complete(self) -> None:
        if self._status < 200:
            return
        self.is_complete = True
        self._put({"type": "http.response.body", "body": b"", "more_body": False})

    def _put(self, message: Message) -> None:
        self._queue.append(message)
        self._wake.set()

    # -- use ---------------------------------------------------------------------------------

    def begin(self, head: bytes) -> None:
        """Start a request."""
        assert self.transport is not None
        self._queue.clear()
        self._queued, self.is_complete, self._status = 0, False, 0
        self._parser = httptools.HttpResponseParser(self)
        self.transport.write(head)

    async def write(self, data: bytes) -> None:
        """Send a part of the body, when the writer has taken enough of the parts before it."""
        await self._writable.wait()
        if self.is_lost or self.transport is None or self.transport.is_closing():
            raise WriterLost
        self.transport.write(data)

    async def next(self) -> Message:
        """The next message of the answer; ``WriterLost`` if it ends too early."""
        while not self._queue:
            self._wake.clear()
            await self._wake.wait()
        message = self._queue.popleft()
        if message is None:
            self._queue.append(None)
            raise WriterLost
        if message["type"] == "http.response.body":
            self._queued -= len(message["body"])
            if self._queued <= _HIGH_WATER and self.transport is not None and not self.is_lost:
                self.transport.resume_reading()
        return message

    @property
    def is_reusable(self) -> bool:
        return (
            self.is_complete
            and not self.is_lost
            and self.transport is not None
            and not self.transport.is_closing()
            and bool(self._parser.should_keep_alive())
        )

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class Forwarder:
    """An ASGI application that lets the writer answer."""

    def __init__(self, path: str, observe: Callable[[Outcome], None] | None = None) -> None:
        self._path = path
        self._observe = observe or (lambda outcome: None)
        self._idle: deque[_WriterConnection] = deque()
        self._is_up = asyncio.Event()
        self._is_up.set()

    def set_writer(self, *, is_up: bool) -> None:
        """The writer process has ended, or a new one accepts requests."""
        if is_up:
            self._is_up.set()
        else:
            self._is_up.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay one request.

        Raises ``ServerUnavailable`` if the writer cannot have acted on it, and ``OutcomePending``
        if the writer ended before its answer did.
        """
        connection = await self._connect()
        connection.begin(_head(scope))
        request = _Request(connection, receive, is_chunked=_is_chunked(scope))
        pump = asyncio.create_task(request.pump())
        try:
            while True:
                message = await self._next(connection, pump)
                if message["type"] == "http.response.start" and not request.is_sent:
                    # Refused before its end: the rest of the body is not worth reading.
                    message["headers"].append((b"connection", b"close"))
                await send(message)
                if message["type"] == "http.response.body" and not message["more_body"]:
                    break
        except WriterLost:
            raise self._lost(request, scope) from None
        except _ClientLeft:
            self._observe("left")
            connection.close()
            return
        finally:
            is_sent = request.is_sent
            pump.cancel()
            with suppress(BaseException):
                await pump
            if is_sent and connection.is_reusable and len(self._idle) < _IDLE:
                self._idle.append(connection)
            else:
                connection.close()
        self._observe("answered")

    async def _next(self, connection: _WriterConnection, pump: asyncio.Task[None]) -> Message:
        """The next message of the answer, unless the client leaves first."""
        if connection._queue or pump.done():
            if pump.done() and not pump.cancelled() and pump.exception() is not None:
                await pump
            return await connection.next()
        answer = asyncio.ensure_future(connection.next())
        try:
            await asyncio.wait({answer, pump}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and pump.done():
                failure = pump.exception()
                if isinstance(failure, _ClientLeft):
                    raise failure
            return await answer
        finally:
            answer.cancel()

    def _lost(self, request: _Request, scope: Scope) -> OmniGraphError:
        if not request.is_sent:
            self._observe("unavailable")
            return _unavailable("the writer process ended")
        self._observe("pending")
        has_key = scope["method"] != "DELETE" and any(
            name == b"idempotency-key" for name, _ in scope["headers"]
        )
        hint = (
            "repeat the request with the same Idempotency-Key: it is executed once"
            if has_key
            else "look for the write in the list of commits before you repeat the request"
        )
        return OutcomePending(
            "the writer process ended before it answered; the outcome is unknown", hint=hint
        )

    async def _connect(self) -> _WriterConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_lost and connection.is_reusable:
                return connection
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._is_up.wait()
                while True:
                    # The backlog may be full for a moment.
                    with suppress(OSError):
                        _, connection = await loop.create_unix_connection(
                            lambda: _WriterConnection(self._forget), self._path
                        )
                        return connection
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError:
            self._observe("unavailable")
            raise _unavailable("the writer process does not answer") from None

    def _forget(self, connection: _WriterConnection) -> None:
        with suppress(ValueError):
            self._idle.remove(connection)

    def close(self) -> None:
        """Close the connections that are kept."""
        for connection in list(self._idle):
            connection.close()


def replayed(scope: Scope, call: Call, receive: Receive) -> tuple[Scope, Receive]:
    """A request whose body has been read and decoded, to be relayed all the same."""
    body: bytes = call.body
    own = (REQUEST_ID.encode(), b"content-length", b"content-encoding", b"transfer-encoding")
    headers = [
        *(item for item in scope["headers"] if item[0] not in own),
        (REQUEST_ID.encode(), call.request_id.encode("ascii")),
        (b"content-length", b"%d" % len(body)),
    ]
    pending = [body]

    async def replay() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return await receive()

    return {**scope, "headers": headers}, replay


class _ClientLeft(Exception):
    """The client closed its connection."""


class _Request:
    """The body on its way from the client to the writer."""

    def __init__(
        self, connection: _WriterConnection, receive: Receive, *, is_chunked: bool
    ) -> None:
        self._connection = connection
        self._receive = receive
        self._is_chunked = is_chunked
        self.is_sent = False
        """Whether the writer can have the whole request."""

    async def pump(self) -> None:
        """Send the body, then wait until the client leaves."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft
            body, more = message.get("body", b""), message.get("more_body", False)
            if self._is_chunked:
                body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
                body += b"" if more else b"0\r\n\r\n"
            if not more:
                # Set before the last byte leaves: from here on the writer may act.
                self.is_sent = True
            if body:
                await self._connection.write(body)
            if not more:
                break
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft


def _head(scope: Scope) -> bytes:
    """The request line and headers as they came, without those of the connection."""
    target = scope["raw_path"]
    if scope["query_string"]:
        target = b"%b?%b" % (target, scope["query_string"])
    lines = [b"%b %b HTTP/1.1\r\n" % (scope["method"].encode("ascii"), target)]
    lines += [
        b"%b: %b\r\n" % (name, value) for name, value in scope["headers"] if name not in _HOP_BY_HOP
    ]
    if _is_chunked(scope):
        lines.append(b"transfer-encoding: chunked\r\n")
    return b"".join([*lines, b"\r\n"])


def _is_chunked(scope: Scope) -> bool:
    return any(name == b"transfer-encoding" for name, _ in scope["headers"])


def _unavailable(message: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"{message}; nothing was written",
        hint="repeat the request",
        details={"retry_after": 1},
    )
