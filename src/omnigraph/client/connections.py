"""One connection to a server: directly, through a proxy, or through a tunnel of one."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from omnigraph.records import dataclass

CONNECT_SECONDS = 30.0


class Failure(Enum):
    """The reason why a request has no response."""

    UNTRUSTED = auto()
    """The certificate of the server is not trusted."""
    UNREACHABLE = auto()
    """The request certainly never reached the server."""
    TIMEOUT = auto()
    BROKEN = auto()
    """The connection broke; the server may have received the request."""
    TOO_LARGE = auto()
    """The response is larger than the caller accepts."""


class NoResponse(Exception):
    """A request without a usable response."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.name)
        self.failure = failure


class _ConnectFailed(OSError):
    """The connection could not be made."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__()
        self.reason = reason


def failure_of(error: BaseException, *, is_sent: bool = True) -> Failure:
    """The kind of failure behind an error of the library."""
    if isinstance(error, _ConnectFailed):
        is_untrusted = isinstance(error.reason, ssl.SSLCertVerificationError)
        return Failure.UNTRUSTED if is_untrusted else Failure.UNREACHABLE
    if isinstance(error, TimeoutError):
        return Failure.TIMEOUT
    # A malformed address never reaches the network.
    if isinstance(error, http.client.InvalidURL | UnicodeError) or not is_sent:
        return Failure.UNREACHABLE
    return Failure.BROKEN


@dataclass(frozen=True, slots=True)
class Origin:
    """The server of a request, and the proxy to it: what a kept connection can be used for."""

    scheme: str
    host: str
    port: int
    proxy: str | None = None
    """The address of the proxy, with its password."""

    @staticmethod
    def of(url: str) -> Origin:
        """The origin of an address; the proxies are those of the system as of now."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise NoResponse(Failure.UNREACHABLE) from None
        is_secure = parts.scheme == "https"
        if not host or parts.scheme not in ("http", "https"):
            raise NoResponse(Failure.UNREACHABLE)
        proxies = getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all")
        if proxy and proxy_bypass(f"{host}:{port}" if port else host):
            proxy = None
        return Origin(parts.scheme, host, port or (443 if is_secure else 80), proxy or None)


class HttpConnection:
    """A connection that is made when it is first used, for one request at a time."""

    def __init__(self, origin: Origin, timeout: float | None) -> None:
        self.origin = origin
        self.sent = 0
        """The bytes of the current request that were handed to the system."""
        self._is_absolute = False
        self._proxy_headers: dict[str, str] = {}
        self._wire = self._prepare(timeout)

    def exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Iterable[bytes] | None,
    ) -> http.client.HTTPResponse:
        """Send a request, and read the head of the response."""
        self.sent = 0
        wire = self._wire
        if wire.sock is None:
            self._connect()
        target = url if self._is_absolute else _path(url)
        sent = {"User-Agent": "omnigraph", **self._proxy_headers, **headers}
        try:
            if body is None or isinstance(body, bytes):
                wire.request(method, target, body, sent)
            else:
                sent["Transfer-Encoding"] = "chunked"
                wire.request(method, target, body, sent, encode_chunked=True)
        except OSError:
            # A server may refuse a request before it has read all of it.
            answer = self._early_answer()
            if answer is None:
                raise
            return answer
        return wire.getresponse()

    def is_usable(self) -> bool:
        """Whether the server has neither closed the connection nor sent anything unasked."""
        sock = self._wire.sock
        if sock is None:
            return False
        try:
            return not select.select([sock], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def set_timeout(self, seconds: float | None) -> None:
        """Limit the time of each further operation."""
        self._wire.timeout = seconds
        if self._wire.sock is not None:
            self._wire.sock.settimeout(seconds)

    def close(self) -> None:
        self._wire.close()

    def abort(self) -> None:
        """End what another thread sends or receives on this connection."""
        sock = self._wire.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _prepare(self, timeout: float | None) -> http.client.HTTPConnection:
        origin = self.origin
        host, port = origin.host, origin.port
        if origin.proxy is None:
            return self._make(origin.scheme, host, port, timeout)
        try:
            proxy = urlsplit(origin.proxy if "://" in origin.proxy else f"http://{origin.proxy}")
            proxy_port = proxy.port or (443 if proxy.scheme == "https" else 80)
        except ValueError:
            raise NoResponse(Failure.UNREACHABLE) from None
        headers = _proxy_authorization(proxy.username, proxy.password)
        wire = self._make(origin.scheme, proxy.hostname or "", proxy_port, timeout)
        if origin.scheme == "https":
            wire.set_tunnel(host, port, headers)
        else:
            self._is_absolute, self._proxy_headers = True, headers
        return wire

    def _make(
        self, scheme: str, host: str, port: int, timeout: float | None
    ) -> http.client.HTTPConnection:
        try:
            if scheme == "https":
                return _SecureWire(self, host, port, timeout=timeout, context=_tls())
            return _PlainWire(self, host, port, timeout=timeout)
        except http.client.InvalidURL as error:
            raise NoResponse(failure_of(error)) from None

    def _connect(self) -> None:
        wire = self._wire
        timeout = wire.timeout
        wire.timeout = CONNECT_SECONDS if timeout is None else min(timeout, CONNECT_SECONDS)
        try:
            wire.connect()
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            raise _ConnectFailed(error) from None
        finally:
            wire.timeout = timeout
            self.sent = 0
        sock = cast(socket.socket, wire.sock)
        sock.settimeout(timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _early_answer(self) -> http.client.HTTPResponse | None:
        if not self.sent or self._wire.sock is None:
            return None
        try:
            answer = self._wire.getresponse()
        except (OSError, http.client.HTTPException):
            return None
        answer.will_close = True
        return answer


class _CountingWire(http.client.HTTPConnection):
    """Counts the bytes that the system accepts."""

    def __init__(self, owner: HttpConnection, *arguments: Any, **options: Any) -> None:
        self._owner = owner
        super().__init__(*arguments, **options)

    def send(self, data: Any) -> None:
        if self.sock is None or not isinstance(data, bytes):
            super().send(data)
            return
        rest = memoryview(data)
        while rest:
            accepted = self.sock.send(rest)
            self._owner.sent += accepted
            rest = rest[accepted:]


class _PlainWire(_CountingWire):
    """An unencrypted connection."""


class _SecureWire(_CountingWire, http.client.HTTPSConnection):
    """An encrypted connection."""


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _path(url: str) -> str:
    parts = urlsplit(url)
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path


def _proxy_authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    import base64

    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode('ascii')}"}
