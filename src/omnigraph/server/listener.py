"""Serves an ASGI application on sockets that are already bound, by uvicorn's HTTP protocol.

Several processes accept from one socket. A process that has many connections waits a moment before
it accepts the next one, so that the others get their part. The end is ordered: no new connection,
requests in flight are answered, idle connections are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from email.utils import formatdate
from typing import Any

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState as ConnectionState

from omnigraph.commit.ulid import new_ulid
from omnigraph.server.errors import RequestRefused, failure_of

KEEP_ALIVE_SECONDS = 75
"""How long a connection without a request stays open."""
HEAD_SECONDS = 30.0
"""How long a client may take for the head of a request."""
MOST_HEAD_BYTES = 64 << 10
BACKLOG = 2048
_PAUSE_SECONDS = 0.0002
"""The pause before the next accept, for each open connection."""
_LONGEST_PAUSE = 0.005
_LOOK_SECONDS = 0.02
_LINGER_SECONDS = 1.0


class _JoinedHead:
    """A transport that sends the head of a response with the first bytes after it.

    A system call for each of them takes as long as most of the other work for a small response. A
    head that nothing follows in the same turn of the event loop is sent at its end.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(b"HTTP/1.1 "):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            # The client may have left since.
            if not self._transport.is_closing():
                self._transport.write(head)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Connection(HttpToolsProtocol):
    """A connection whose requests have a bounded head, and whose refusals are JSON."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_between = True
        """Whether the next byte begins a request."""
        self._is_refused = False
        self._refusal: bytes | None = None
        """Sent after the answers to the requests that came before what is refused."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_JoinedHead(transport, self.loop))  # type: ignore[arg-type]
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        is_head = self._head_timer is not None or self._is_between
        super().data_received(data)
        if is_head and self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(
                    431, "headers_too_large", "the head of the request is larger than 64 KiB"
                )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._stop_timer()
        self._is_between = False
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._refuse_slow_head)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_between = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._refusal is not None and not self.transport.is_closing():
            self._send_last(self._refusal)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_slow_head(self) -> None:
        self._head_timer = None
        self._refuse(408, "head_timeout", "the head of the request did not arrive in time")

    def _unsupported_upgrade_warning(self) -> None:
        """Answered like any other request; not worth a line in the log."""

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "bad_http", "the request is not valid HTTP")

    def _refuse(self, status: int, reason: str, text: str) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        self._is_refused = True
        refusal = _refusal(status, reason, text)
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._send_last(refusal)
            return
        is_whole, is_queued = not cycle.more_body, bool(self.pipeline)
        if is_whole or is_queued:
            # What is wrong came after a whole request. That one may be a write, and has its answer.
            self._refusal = refusal
            if not is_whole:
                self.pipeline.popleft()
        elif cycle.response_started:
            # An answer is being sent on this connection: only its end can be said.
            self.transport.close()
        else:
            # The body is malformed: to the application its client has left.
            cycle.disconnected = True
            cycle.message_event.set()
            self._send_last(refusal)

    def _send_last(self, response: bytes) -> None:
        self.transport.write(response)
        # Closing with unread data would reset the connection before the client has read this.
        self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)


def _refusal(status: int, reason: str, text: str) -> bytes:
    """The whole response for a request that the application never sees."""
    request_id = new_ulid()
    failure = failure_of(RequestRefused(status, reason, text), request_id)
    body = msgspec.json.encode(failure.body)
    head = [
        STATUS_LINE[status],
        b"content-type: application/json\r\n",
        b"content-length: %d\r\n" % len(body),
        b"omnigraph-request-id: %b\r\n" % request_id.encode(),
        b"connection: close\r\n\r\n",
    ]
    return b"".join([*head, body])


class Listener:
    """Accepts connections for an application until it is drained."""

    def __init__(self, app: Any, sockets: list[socket.socket]) -> None:
        self._config = Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._config.load()
        self._state = ConnectionState()
        self._sockets = sockets
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._state.connections)

    def start(self) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            listening.setblocking(False)
            self._tasks.append(loop.create_task(self._accept(loop, listening)))
        self._tasks.append(loop.create_task(self._date()))

    async def _accept(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        is_tcp = listening.family != socket.AF_UNIX
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError:
                # No descriptors left, or a client that was gone already.
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            if is_tcp:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):
                # Cancelled in its middle, uvloop closes the connection without telling it.
                await asyncio.shield(loop.connect_accepted_socket(self._connection, accepted))
            await asyncio.sleep(min(_PAUSE_SECONDS * self.connections, _LONGEST_PAUSE))

    def _connection(self) -> asyncio.Protocol:
        return _Connection(config=self._config, server_state=self._state, app_state={})

    async def _date(self) -> None:
        """Keep the header ``date`` true to the second."""
        while True:
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            await asyncio.sleep(1)

    def stop_accepting(self) -> None:
        """Refuse new connections, and close those without a request."""
        for task in self._tasks:
            task.cancel()
        for listening in self._sockets:
            listening.close()
        for connection in list(self._state.connections):
            connection.shutdown()

    async def drain(self) -> None:
        """Stop accepting, and wait until all requests in flight are answered."""
        self.stop_accepting()
        while self._state.connections or self._state.tasks:
            await asyncio.sleep(_LOOK_SECONDS)
            # A connection may have been accepted in the moment of the stop.
            for connection in list(self._state.connections):
                connection.shutdown()
