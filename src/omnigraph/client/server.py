"""The client of an OmniGraph server: sends one request, and interprets its response.

There are no retries and no time limits. No text that leaves this module contains the token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from omnigraph.client.http import Failure, NoResponse, Response, send
from omnigraph.errors import (
    Cancelled,
    Conflict,
    HistoryGone,
    InputError,
    LimitExceeded,
    NotFound,
    OmniGraphError,
    OutcomePending,
    PolicyDenied,
    PreconditionFailed,
    QueryTimeout,
    ServerError,
    ServerUnavailable,
    SparkUnavailable,
    StorageFull,
    Unauthorized,
)
from omnigraph.escaping import escape
from omnigraph.records import dataclass

_CLASSES: Mapping[int, type[OmniGraphError]] = {
    400: InputError,
    401: Unauthorized,
    403: PolicyDenied,
    404: NotFound,
    408: ServerUnavailable,
    409: Conflict,
    410: HistoryGone,
    412: PreconditionFailed,
    413: LimitExceeded,
    429: ServerUnavailable,
    499: Cancelled,
    501: SparkUnavailable,
    503: ServerUnavailable,
    504: QueryTimeout,
    507: StorageFull,
}
_MAX_SHOWN = 4000


@dataclass(frozen=True, slots=True)
class Connection:
    """A server, or one graph of it, and the token of the caller.

    >>> Connection("http://127.0.0.1:8080/").url("branches", "feature/x")
    'http://127.0.0.1:8080/branches/feature%2Fx'
    """

    base: str
    token: str = field(default="", repr=False)

    def url(self, *segments: str, query: Mapping[str, str] | None = None) -> str:
        """The address of a resource; segments are escaped, whatever they contain."""
        path = "".join(f"/{_segment(name)}" for name in segments)
        address = f"{self.base.rstrip('/')}{path}"
        return f"{address}?{urlencode(query)}" if query else address

    def get(self, *segments: str, query: Mapping[str, str] | None = None) -> Any:
        """A resource of the server as plain data."""
        return self._send("GET", self.url(*segments, query=query), None, False)

    def post(self, *segments: str, body: Mapping[str, Any], changes: bool = False) -> Any:
        """The server's response to a JSON document.

        If a request that ``changes`` something gets no response, the outcome is unknown, and the
        error says so.
        """
        return self._send("POST", self.url(*segments), body, changes)

    def _send(self, method: str, url: str, body: Mapping[str, Any] | None, changes: bool) -> Any:
        check_address(self.base)
        try:
            response = send(method, url, self._headers(), body)
        except NoResponse as error:
            raise self._no_response(error.failure, changes) from None
        if not response.is_ok:
            raise self._refusal(response)
        try:
            return response.json()
        except ValueError:
            raise unexpected_response(self.base) from None

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self.token:
            if not self.token.isascii() or not self.token.isprintable():
                raise InputError(
                    "the token for the server contains characters that cannot be sent",
                    hint="store it again with `omnigraph login`",
                )
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    # -- errors --------------------------------------------------------------------------

    def _refusal(self, response: Response) -> OmniGraphError:
        status = response.status
        text = response.body.decode("utf-8", "replace").strip()
        details: dict[str, Any] = {"status": status}
        message = f"server returned {status}: {text}"
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, dict) and isinstance(body.get("error"), str):
            message = body["error"]
            details |= {key: value for key, value in body.items() if key != "error"}
        error_class = _CLASSES.get(status, ServerError)
        if status == 503 and "commit_id" in details:
            # The write may be done: nothing invites to repeat it.
            error_class = OutcomePending
        if error_class is ServerUnavailable:
            details["retry_after"] = _retry_after(response)
        if self.token:
            message = message.replace(self.token, "***")
        plain = escape(message, keep="\n\t")
        shown = plain if len(plain) <= _MAX_SHOWN else f"{plain[:_MAX_SHOWN]}…"
        hint = None if error_class is OutcomePending else _hint(status)
        return error_class(shown, hint=hint, details=details)

    def _no_response(self, failure: Failure, changes: bool) -> OmniGraphError:
        if failure is Failure.UNTRUSTED:
            return ServerUnavailable(
                f"the certificate of the server at {self.base} is not trusted",
                hint="check the address, and the certificates of this system",
            )
        if failure is Failure.UNREACHABLE:
            return ServerUnavailable(
                f"the server at {self.base} cannot be reached",
                hint="check the address, and that the server is running",
            )
        message = f"the connection to {self.base} broke before the server responded"
        if changes:
            return OutcomePending(
                message, hint="check whether the change was made before you repeat it"
            )
        return ServerUnavailable(message, hint="try again in a moment")


def check_address(base: str) -> None:
    """Refuse an invalid server address, and one that contains a secret.

    >>> check_address("ftp://h")
    Traceback (most recent call last):
    omnigraph.errors.InputError: invalid server address 'ftp://h'
    """
    hint = "write it as http://host:port or https://host"
    try:
        parts = urlsplit(base)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        raise InputError("the server address cannot be parsed", hint=hint) from None
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"the address of the server at '{parts.hostname}' contains a user or a password",
            hint="leave them out; `omnigraph login` stores a token",
        )
    if not is_server:
        raise InputError(f"invalid server address '{base}'", hint=hint)
    is_plain = base.isascii() and base.isprintable() and not {*base} & {*" ?#"}
    if not is_plain:
        raise InputError(f"invalid server address {base!a}", hint=hint)


def _segment(name: str) -> str:
    if name in ("", ".", ".."):
        raise InputError(f"invalid name '{name}' in a server address", hint="check the name")
    return quote(name, safe="", errors="surrogateescape")


def unexpected_response(base: str) -> ServerError:
    return ServerError(
        f"unexpected response from the server at {base}",
        hint="check that there is an OmniGraph server at this address",
    )


def _retry_after(response: Response) -> float | None:
    """The seconds that a server asks to wait; a date and anything else is ignored."""
    text = next((v for k, v in response.headers.items() if k.lower() == "retry-after"), "")
    return float(text) if text.isascii() and text.isdecimal() else None


def _hint(status: int) -> str | None:
    if status == 401:
        return "store a token for this server with `omnigraph login NAME`"
    if status in (408, 429, 503):
        return "repeat the request later"
    if 300 <= status < 400:
        return "the server has another address: use that one; redirects are not followed"
    return None
