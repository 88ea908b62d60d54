"""One request to a server, and what its answer means.

There are no attempts after the first and no time limits; proxies are those of the system. A
redirect is never followed, for it could carry the token to another host. No text that leaves this
module holds the token, nor words of the library below.
"""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from omnigraph.errors import (
    Conflict,
    InputError,
    NotFound,
    OmniGraphError,
    OutcomePending,
    PolicyDenied,
    PreconditionFailed,
    ServerError,
    ServerUnavailable,
)

_CLASSES: Mapping[int, type[OmniGraphError]] = {
    400: InputError,
    403: PolicyDenied,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
}
_MOST_SHOWN = 4000
_MOST_BYTES = 1 << 20
"""Of an answer that is an error; nobody reads more."""
_NEVER_SENT = (ConnectionRefusedError, socket.gaierror, ssl.SSLError)
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.ENETDOWN)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Connection:
    """A server, or one graph of it, and the token that says who asks.

    >>> Connection("http://127.0.0.1:8080/").url("branches", "feature/x")
    'http://127.0.0.1:8080/branches/feature%2Fx'
    """

    base: str
    token: str = field(default="", repr=False)

    def url(self, *segments: str, query: Mapping[str, str] | None = None) -> str:
        """The address of something: each segment is one, whatever it holds."""
        path = "".join(f"/{_segment(name)}" for name in segments)
        found = f"{self.base.rstrip('/')}{path}"
        return f"{found}?{urlencode(query)}" if query else found

    def get(self, *segments: str, query: Mapping[str, str] | None = None) -> Any:
        """What the server has there, as plain data."""
        return self._asked(self._request("GET", self.url(*segments, query=query), None), False)

    def post(self, *segments: str, body: Mapping[str, Any], changes: bool = False) -> Any:
        """What the server answers to a JSON document.

        When a request that ``changes`` something gets no answer, nobody knows what became of it,
        and the error says so.
        """
        data = json.dumps(body).encode("utf-8")
        return self._asked(self._request("POST", self.url(*segments), data), changes)

    # -- the request ---------------------------------------------------------------------

    def _request(self, method: str, url: str, data: bytes | None) -> urllib.request.Request:
        check_address(self.base)
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        if self.token:
            if not self.token.isascii() or not self.token.isprintable():
                raise InputError(
                    "the token for the server holds characters that cannot be sent",
                    hint="store it again with `omnigraph login`",
                )
            headers["Authorization"] = f"Bearer {self.token}"
        return urllib.request.Request(url, data, headers, method=method)

    def _asked(self, request: urllib.request.Request, changes: bool) -> Any:
        try:
            # Made anew each time: a proxy may have been set since.
            opener = urllib.request.build_opener(_NoRedirects)
            with opener.open(request) as answer:
                data = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, _start_of(error)) from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise self._lost(error, changes) from None
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise not_understood(self.base) from None

    # -- what went wrong -----------------------------------------------------------------

    def _refused(self, status: int, data: bytes) -> OmniGraphError:
        text = data.decode("utf-8", "replace").strip()
        details: dict[str, Any] = {"status": status}
        message = f"server returned {status}: {text}"
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, dict) and isinstance(body.get("error"), str):
            message = body["error"]
            details |= {key: value for key, value in body.items() if key != "error"}
        kind = _CLASSES.get(status, ServerError)
        return kind(self._shown(message), hint=_hint(status), details=details)

    def _shown(self, text: str) -> str:
        """A server's text without the token, and without what would steer a terminal."""
        plain = text.replace(self.token, "***") if self.token else text
        plain = "".join(sign if sign.isprintable() or sign in "\n\t" else " " for sign in plain)
        return plain if len(plain) <= _MOST_SHOWN else f"{plain[:_MOST_SHOWN]}…"

    def _lost(self, error: Exception, changes: bool) -> OmniGraphError:
        reason = getattr(error, "reason", None)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return ServerUnavailable(
                f"the certificate of the server at {self.base} is not trusted",
                hint="check the address, and the certificates of this system",
            )
        if _is_unsent(error):
            return ServerUnavailable(
                f"the server at {self.base} cannot be reached",
                hint="check the address, and whether the server runs",
            )
        if changes:
            return OutcomePending(
                f"the connection to {self.base} broke before the server answered",
                hint="look whether the change is there before you repeat it",
            )
        return ServerUnavailable(
            f"the connection to {self.base} broke before the server answered",
            hint="repeat after a moment",
        )


def check_address(base: str) -> None:
    """Refuse what is no address of a server, or has a secret in it.

    >>> check_address("ftp://h")
    Traceback (most recent call last):
    omnigraph.errors.InputError: 'ftp://h' is no address of a server
    """
    hint = "write it as http://host:port or https://host"
    try:
        parts = urlsplit(base)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        raise InputError("the address of the server cannot be read", hint=hint) from None
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"the address of the server at '{parts.hostname}' has a user or a password in it",
            hint="leave them out; `omnigraph login` keeps a token",
        )
    if not is_server:
        raise InputError(f"'{base}' is no address of a server", hint=hint)
    is_plain = base.isascii() and base.isprintable() and not {*base} & {*" ?#"}
    if not is_plain:
        raise InputError(f"{base!a} is no address of a server", hint=hint)


def _is_unsent(error: Exception) -> bool:
    """Whether a request surely never reached the server."""
    reason = getattr(error, "reason", None)
    # A name that cannot be one of a host is no matter of the network.
    is_no_host = isinstance(error, http.client.InvalidURL | UnicodeError)
    return (
        is_no_host
        or isinstance(reason, _NEVER_SENT)
        or (isinstance(reason, OSError) and reason.errno in _UNREACHABLE)
    )


def _segment(name: str) -> str:
    if name in ("", ".", ".."):
        raise InputError(f"'{name}' is no name that a server could have", hint="check the name")
    return quote(name, safe="", errors="surrogateescape")


def not_understood(base: str) -> ServerError:
    return ServerError(
        f"the answer of the server at {base} was not understood",
        hint="check that there is an OmniGraph server at this address",
    )


def _start_of(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return b""


def _hint(status: int) -> str | None:
    if status == 401:
        return "store a token for this server with `omnigraph login NAME`"
    if 300 <= status < 400:
        return "the server has another address: use that one; redirects are not followed"
    return None
