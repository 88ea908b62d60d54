"""Sends one HTTP request: no retries, no redirects, with the proxies of the system.

A redirect is returned like any other status, because following it could send a key to another host.
No error text of the underlying library leaves this module.
"""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import time
import urllib.request
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from omnigraph.records import dataclass

_CHUNK = 1 << 16
_NEVER_SENT = (ConnectionRefusedError, socket.gaierror, ssl.SSLError)
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.ENETDOWN)


class Failure(Enum):
    """The reason why a request has no response."""

    UNTRUSTED = auto()
    """The certificate of the server is not trusted."""
    UNREACHABLE = auto()
    """The request certainly never reached the server."""
    TIMEOUT = auto()
    BROKEN = auto()
    """The connection broke; the server may have received the request."""


class NoResponse(Exception):
    """A request without a usable response."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.name)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Response:
    """A response of any status, including redirects."""

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


class _EveryStatus(urllib.request.HTTPErrorProcessor):
    """Returns every response unchanged, so that no handler follows a redirect."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


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
    """Send one request, with a JSON body if there is one.

    ``timeout`` (seconds) limits the time and ``max_bytes`` the size of the whole response. Of an
    error response at most ``max_error_bytes`` are read, or as many as arrive.
    """
    data = None if body is None else json.dumps(body).encode("utf-8")
    if data is not None:
        headers = {"Content-Type": "application/json", **headers}
    until = None if timeout is None else time.monotonic() + timeout
    try:
        request = urllib.request.Request(url, data, dict(headers), method=method)
        # Built for every request: a proxy may have been configured since.
        with urllib.request.build_opener(_EveryStatus).open(request, timeout=timeout) as answer:
            if 200 <= answer.status < 300:
                content = _read(answer, until, max_bytes)
            else:
                content = _read_error(answer, until, max_error_bytes)
            return Response(answer.status, answer.headers, content)
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise NoResponse(_failure(error)) from None


def _read(answer: http.client.HTTPResponse, until: float | None, most: int | None) -> bytes:
    """The whole body; raises if it arrives too slowly for the timeout of the request."""
    if until is None and most is None:
        return answer.read()
    chunks: list[bytes] = []
    size = 0
    while chunk := answer.read1(_CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        if (most is not None and size > most) or (until is not None and time.monotonic() > until):
            raise TimeoutError
    return b"".join(chunks)


def _read_error(answer: http.client.HTTPResponse, until: float | None, most: int) -> bytes:
    chunks: list[bytes] = []
    try:
        while most > 0 and (until is None or time.monotonic() <= until):
            chunk = answer.read1(min(most, _CHUNK))
            if not chunk:
                break
            chunks.append(chunk)
            most -= len(chunk)
    except (OSError, http.client.HTTPException):
        pass
    return b"".join(chunks)


def _failure(error: Exception) -> Failure:
    reason = getattr(error, "reason", None)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return Failure.UNTRUSTED
    if isinstance(error, TimeoutError) or isinstance(reason, TimeoutError):
        return Failure.TIMEOUT
    # A malformed host name never reaches the network.
    is_malformed = isinstance(error, http.client.InvalidURL | UnicodeError)
    is_unsent = isinstance(reason, _NEVER_SENT) or (
        isinstance(reason, OSError) and reason.errno in _UNREACHABLE
    )
    return Failure.UNREACHABLE if is_malformed or is_unsent else Failure.BROKEN
