"""A forwarder in front of an S3 server that logs requests and can fail at any of them.

Bytes pass unchanged, the Host header too, so signatures hold. A ``Fault`` says which request it
wants (the k-th of a kind, under a path) and what happens to it.
"""

from __future__ import annotations

import re
import socket
import socketserver
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import unquote, urlsplit


class Kind(StrEnum):
    GET = "GET"
    HEAD = "HEAD"
    PUT = "PUT"
    DELETE = "DELETE"
    LIST = "LIST"
    POST = "POST"


class Action(StrEnum):
    CUT_BEFORE = "the connection ends, the server hears nothing"
    CUT_AFTER = "the server does it, the connection ends without an answer"
    UNAVAILABLE = "503"
    PRECONDITION = "412"
    CONFLICT = "409"
    TRUNCATE = "the answer ends in the middle of its body"
    DELAY = "forwarded after a pause"


_RESPONSES = {
    Action.UNAVAILABLE: (503, "Service Unavailable", "SlowDown"),
    Action.PRECONDITION: (412, "Precondition Failed", "PreconditionFailed"),
    Action.CONFLICT: (409, "Conflict", "ConditionalRequestConflict"),
}


class Request(NamedTuple):
    """A request as it is logged."""

    method: str
    path: str
    query: str

    @property
    def kind(self) -> Kind:
        if self.method == "GET" and "list-type=" in self.query:
            return Kind.LIST
        if self.method == "POST" and self.query.split("&")[0] in ("delete", "delete="):
            return Kind.DELETE
        return Kind(self.method)


@dataclass
class Fault:
    """What happens to the ``at``-th matching request, and to ``times`` of them from there on."""

    action: Action
    at: int = 1
    times: float = 1
    kind: Kind | None = None
    path: str = ""
    seconds: float = 0.0
    """How long a delay lasts unless it is released before."""

    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    _matched: int = 0

    def takes(self, request: Request) -> bool:
        if self.kind not in (None, request.kind) or self.path not in request.path:
            return False
        self._matched += 1
        return self.at <= self._matched < self.at + self.times


class S3Proxy:
    """Runs while its context is open. ``clock_shift`` moves the server's times for the client."""

    def __init__(self, upstream_port: int, clock_shift: timedelta = timedelta()) -> None:
        self.upstream = ("127.0.0.1", upstream_port)
        self.clock_shift = clock_shift
        self.latency = 0.0
        """Seconds added to every request."""
        self._spans: list[tuple[float, float]] = []
        self._lock = threading.Lock()
        self._log: list[Request] = []
        self._faults: list[Fault] = []
        self._server = _Server(self)
        self.port = int(self._server.server_address[1])

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> list[Request]:
        with self._lock:
            return list(self._log)

    @property
    def depth(self) -> int:
        """How many requests since the last ``reset`` had to wait for one another: the most that did
        not overlap.
        """
        with self._lock:
            spans = sorted(self._spans, key=lambda span: span[1])
        depth, end = 0, float("-inf")
        for started, ended in spans:
            if started >= end:
                depth, end = depth + 1, ended
        return depth

    def answered(self, started: float) -> None:
        """Log that a request was answered."""
        with self._lock:
            self._spans.append((started, time.monotonic()))

    @property
    def counts(self) -> Counter[Kind]:
        """How many requests of each kind came since the last ``reset``."""
        return Counter(request.kind for request in self.log)

    def reset(self) -> None:
        """Forget the log and the faults."""
        with self._lock:
            for fault in self._faults:
                fault.released.set()
            self._log.clear()
            self._spans.clear()
            self._faults.clear()

    def plan(self, *faults: Fault) -> None:
        """Let faults happen from now on; the first that matches a request has it."""
        with self._lock:
            self._faults.extend(faults)

    def note(self, request: Request) -> Fault | None:
        """Log a request and say what happens to it."""
        with self._lock:
            self._log.append(request)
            taken = [fault for fault in self._faults if fault.takes(request)]
        if not taken:
            return None
        taken[0].reached.set()
        return taken[0]

    def __enter__(self) -> S3Proxy:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = True
    request_queue_size = 128

    def __init__(self, proxy: S3Proxy) -> None:
        self.proxy = proxy
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Connection)

    def opened(self, connection: socket.socket) -> None:
        self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        self._open.discard(connection)

    def close_connections(self) -> None:
        for connection in list(self._open):
            _shut(connection)


class _Message(NamedTuple):
    """A request or an answer: its first line and headers as they came, and its body."""

    head: bytes
    body: bytes

    @property
    def first_line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")


class _Connection(socketserver.BaseRequestHandler):
    """One connection of a client, with one of its own to the server."""

    server: _Server

    def handle(self) -> None:
        client: socket.socket = self.request
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.opened(client)
        try:
            with socket.create_connection(self.server.proxy.upstream) as upstream:
                upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.server.opened(upstream)
                try:
                    self._forward(_Stream(client), _Stream(upstream))
                finally:
                    self.server.closed(upstream)
        except OSError:
            return
        finally:
            self.server.closed(client)
            _shut(client)

    def _forward(self, client: _Stream, upstream: _Stream) -> None:
        while (message := client.message()) is not None:
            method, target, _ = message.first_line.split(" ", 2)
            parts = urlsplit(target)
            request = Request(method, unquote(parts.path), parts.query)
            started = time.monotonic()
            fault = self.server.proxy.note(request)
            time.sleep(self.server.proxy.latency)
            action = None if fault is None else fault.action
            if fault is not None and action is Action.DELAY:
                fault.released.wait(fault.seconds)
            if action is Action.CUT_BEFORE:
                return
            if action in _RESPONSES:
                client.send(_answer(action))
                continue
            upstream.send(message.head + message.body)
            answer = upstream.message(answered=method)
            if answer is None or action is Action.CUT_AFTER:
                return
            head = _shifted(answer.head, self.server.proxy.clock_shift)
            if action is Action.TRUNCATE:
                client.send(head + answer.body[: len(answer.body) // 2])
                return
            self.server.proxy.answered(started)
            client.send(head + answer.body)


class _Stream:
    """Whole messages from a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def message(self, answered: str | None = None) -> _Message | None:
        """The next message, ``None`` at the end; ``answered`` is the method that it answers."""
        head = self._until(b"\r\n\r\n")
        if head is None:
            return None
        if answered == "HEAD" or re.match(rb"HTTP/1\.1 (204|304) ", head):
            return _Message(head, b"")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if length is not None:
            return _Message(head, self._exactly(int(length.group(1))))
        if re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head):
            return _Message(head, self._chunks())
        return _Message(head, b"")

    def _chunks(self) -> bytes:
        body = b""
        while True:
            line = self._until(b"\r\n") or b"0\r\n"
            size = int(line.split(b";")[0], 16)
            body += line + self._exactly(size + 2)
            if size == 0:
                return body

    def _until(self, end: bytes) -> bytes | None:
        while end not in self._buffer:
            if not self._more():
                return None
        actual, _, self._buffer = self._buffer.partition(end)
        return actual + end

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size and self._more():
            pass
        actual, self._buffer = self._buffer[:size], self._buffer[size:]
        return actual

    def _more(self) -> bool:
        data = self._connection.recv(1 << 16)
        self._buffer += data
        return bool(data)


def _answer(action: Action) -> bytes:
    status, reason, code = _RESPONSES[action]
    body = f"<Error><Code>{code}</Code><Message>planned</Message></Error>".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/xml\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _shifted(head: bytes, shift: timedelta) -> bytes:
    """The headers of an answer from a server whose clock is off by ``shift``."""
    if not shift:
        return head

    def moved(actual: re.Match[bytes]) -> bytes:
        time = parsedate_to_datetime(actual.group(2).decode("latin-1")) + shift
        return actual.group(1) + format_datetime(time, usegmt=True).encode()

    return re.sub(rb"(?i)(\r\nlast-modified: *)([^\r]+)", moved, head)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
