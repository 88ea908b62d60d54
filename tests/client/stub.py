"""A server on the loopback interface that answers what a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DROP = object()
"""The connection is closed without an answer."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def token(self) -> str | None:
        return self.headers.get("Authorization")


@dataclass
class Stub:
    """Answers by method and path, such as ``"GET /graphs"``; everything else is a 404."""

    url: str = ""
    responses: dict[str, Any] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)
    """The port of the client, for each request."""

    @property
    def requested(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.requests]


@contextmanager
def stub_server(**responses: Any) -> Iterator[Stub]:
    state = Stub(responses=dict(responses))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(None)

        def do_DELETE(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                data = b"".join(self._chunks())
            else:
                data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_json = self.headers.get("Content-Type") == "application/json"
            self._answer(json.loads(data) if is_json else data)

        def _chunks(self) -> Iterator[bytes]:
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        def _answer(self, body: Any) -> None:
            headers = dict(self.headers)
            state.requests.append(Request(self.command, self.path, headers, body))
            state.connections.append(self.client_address[1])
            answer = state.responses.get(f"{self.command} {self.path}", (404, b""))
            if callable(answer):
                answer = answer(state)
            if answer is DROP:
                self.close_connection = True
                return
            status, content, *more = answer if isinstance(answer, tuple) else (200, answer)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in more[0].items() if more else ():
                self.send_header(name, value)
            length = more[1] if len(more) > 1 else len(data)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(data)
            # A body that is shorter than announced ends with the connection.
            self.close_connection |= length != len(data)

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
