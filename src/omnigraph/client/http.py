"""The HTTP client: connections that are kept alive, bodies that are streamed in both directions.

There are no redirects, because following one could send a key to another host: a redirect is
returned like any other status. The proxies of the system apply, and TLS uses its certificates. No
error text of the underlying library leaves this module.

A request is sent again, on a new connection, only if it certainly was not received: the connection
that was kept had been closed, or not one byte was accepted. A request that changes nothing is also
sent again if a connection that was kept ends before the first byte of the response.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from omnigraph.client.connections import Failure, HttpConnection, NoResponse, Origin, failure_of
from omnigraph.records import dataclass

__all__ = ["Failure", "HttpPool", "NoResponse", "OpenResponse", "Response", "send"]

_CHUNK = 1 << 16
_IDLE = 8
_FRESH = 2.0
"""The seconds after which a kept connection is not used for a request that changes something."""
_LONGEST_SECONDS = 1e9
"""The longest time limit of a request: a socket takes no longer one."""

Body = bytes | Iterable[bytes] | None


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response of any status, including redirects."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The body as plain data; raises ``ValueError`` if it is not JSON."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("too deeply nested") from None


class OpenResponse:
    """A response whose body is read piece by piece. Close it, or read it to its end.

    ``deadline`` (``time.monotonic``) limits the time of the whole response.
    """

    def __init__(
        self,
        pool: HttpPool,
        connection: HttpConnection,
        answer: http.client.HTTPResponse,
        deadline: float | None,
    ) -> None:
        self.status = answer.status
        self.headers = cast("Mapping[str, str]", answer.headers)
        self._pool = pool
        self._connection: HttpConnection | None = connection
        self._answer = answer
        self._deadline = deadline

    @property
    def is_ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def closed(self) -> bool:
        return self._connection is None

    def read(self, size: int = _CHUNK) -> bytes:
        """At most ``size`` bytes, at least one; none at the end of the body."""
        connection = self._connection
        if connection is None:
            return b""
        try:
            self._limit_time(connection)
            data = self._answer.read1(size)
            # A body that ends early is an error, which only an unbounded read reports itself.
            if not data and self._answer.length:
                raise http.client.IncompleteRead(b"")
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | http.client.HTTPException | ValueError):
                raise NoResponse(failure_of(error)) from None
            raise
        if not data:
            self._connection = None
            self._answer.close()
            self._pool.release(connection, keep=not self._answer.will_close)
        return data

    def __iter__(self) -> Iterator[bytes]:
        while data := self.read():
            yield data

    def read_all(self, most: int | None = None) -> bytes:
        """The rest of the body; ``NoResponse`` if it is larger than ``most`` bytes."""
        pieces: list[bytes] = []
        size = 0
        for piece in self:
            pieces.append(piece)
            size += len(piece)
            if most is not None and size > most:
                self.close()
                raise NoResponse(Failure.TOO_LARGE)
        return b"".join(pieces)

    def read_error(self, most: int) -> bytes:
        """At most ``most`` bytes of the body, or as many as arrive."""
        pieces: list[bytes] = []
        try:
            while most > 0 and (piece := self.read(min(most, _CHUNK))):
                pieces.append(piece)
                most -= len(piece)
            # An empty rest gives the connection back.
            if not self.closed and self._answer.length == 0:
                self.read()
        except NoResponse:
            pass
        self.close()
        return b"".join(pieces)

    def close(self) -> None:
        """Give up the rest of the body, and with it the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection, keep=False)

    def __enter__(self) -> OpenResponse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _limit_time(self, connection: HttpConnection) -> None:
        if self._deadline is None:
            return
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.set_timeout(left)


class HttpPool:
    """Connections to any number of servers, shared by threads and kept between requests."""

    def __init__(self) -> None:
        self._idle: dict[Origin, list[tuple[float, HttpConnection]]] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        # A pool that is forgotten closes its connections too.
        weakref.finalize(self, _close_all, self._idle).atexit = False

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Body = None,
        *,
        changes: bool = True,
        timeout: float | None = None,
        max_bytes: int | None = None,
        max_error_bytes: int = 1 << 20,
    ) -> Response:
        """Send a request, and read the whole response.

        ``timeout`` (seconds) limits the time and ``max_bytes`` the size of the response. Of an
        error response at most ``max_error_bytes`` are read, or as many as arrive.
        """
        with self.open(method, url, headers, body, changes=changes, timeout=timeout) as answer:
            content = (
                answer.read_all(max_bytes) if answer.is_ok else answer.read_error(max_error_bytes)
            )
            return Response(answer.status, answer.headers, content)

    def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Body = None,
        *,
        changes: bool = True,
        timeout: float | None = None,
    ) -> OpenResponse:
        """Send a request, and return the response before its body is read.

        A body that is not bytes is sent in chunks as it is produced; what it raises is raised here.
        Unless the request ``changes`` something, it may be sent twice.
        """
        if timeout is not None:
            timeout = min(timeout, _LONGEST_SECONDS)
        deadline = None if timeout is None else time.monotonic() + timeout
        origin = Origin.of(url)
        connection = self._take(origin, changes)
        was_kept = connection is not None
        while True:
            if connection is None:
                connection = HttpConnection(origin, timeout)
            try:
                connection.set_timeout(timeout)
                answer = connection.exchange(method, url, headers, body)
                return OpenResponse(self, connection, answer, deadline)
            except BaseException as error:
                connection.close()
                if not isinstance(error, OSError | http.client.HTTPException | UnicodeError):
                    raise
                # A streamed body is untouched until the head of the request has been sent.
                is_repeatable = connection.sent == 0 or (
                    not changes and isinstance(body, bytes | None)
                )
                if not was_kept or not is_repeatable:
                    raise NoResponse(failure_of(error, is_sent=connection.sent > 0)) from None
            connection, was_kept = None, False

    def close(self) -> None:
        """Close the connections that are not in use; the others are closed when they end."""
        with self._lock:
            self._is_closed = True
        _close_all(self._idle)

    def release(self, connection: HttpConnection, *, keep: bool) -> None:
        """Take a connection back after its response has ended."""
        if keep:
            with self._lock:
                entries = self._idle.setdefault(connection.origin, [])
                if not self._is_closed and len(entries) < _IDLE:
                    entries.append((time.monotonic(), connection))
                    return
        connection.close()

    def _take(self, origin: Origin, changes: bool) -> HttpConnection | None:
        """A kept connection that is still open; the one that was used last, if there are several.

        Servers close idle connections: shortly before that, a request could get lost, which does
        not matter for one that changes nothing.
        """
        while True:
            with self._lock:
                entries = self._idle.get(origin)
                if not entries:
                    return None
                since, connection = entries.pop()
            is_fresh = not changes or time.monotonic() - since < _FRESH
            if is_fresh and connection.is_usable():
                return connection
            connection.close()


def _close_all(idle: dict[Origin, list[tuple[float, HttpConnection]]]) -> None:
    for entries in list(idle.values()):
        while entries:
            entries.pop()[1].close()


def send(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: Mapping[str, Any] | None = None,
    *,
    timeout: float | None = None,
    max_bytes: int | None = None,
    max_error_bytes: int = 1 << 20,
) -> Response:
    """Send one request on a connection of its own, with a JSON body if there is one."""
    data = None if body is None else json.dumps(body).encode("utf-8")
    if data is not None:
        headers = {"Content-Type": "application/json", **headers}
    pool = HttpPool()
    pool.close()
    return pool.send(
        method,
        url,
        headers,
        data,
        timeout=timeout,
        max_bytes=max_bytes,
        max_error_bytes=max_error_bytes,
    )
