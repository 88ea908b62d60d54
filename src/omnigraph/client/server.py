"""The connection to an OmniGraph server: requests, their addresses, and typed errors.

A request is sent once; see ``client.http`` for the two exceptions. There is no time limit but that
of the request. No text that leaves this module contains the token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from omnigraph.client.http import Failure, HttpPool, NoResponse, OpenResponse, Response
from omnigraph.client.refusals import late_refusal, refusal
from omnigraph.errors import (
    InputError,
    LimitExceeded,
    OmniGraphError,
    OutcomePending,
    QueryTimeout,
    ServerError,
    ServerUnavailable,
)
from omnigraph.lang.diagnostics import Source
from omnigraph.records import dataclass

COMMIT_HEADER = "Omnigraph-Commit"
"""The newest commit that a client has made or seen: the server reads nothing older."""
JSON = "application/json"
_LONGEST_ADDRESS = 16 << 10


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request to a server, independent of how it is sent."""

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | bytes | Iterable[bytes] | None = None
    """A JSON object, or the bytes of a body, at once or in pieces."""
    headers: Mapping[str, str] = field(default_factory=dict)
    changes: bool = False
    """Whether it changes something, so that its outcome is unknown if there is no response."""
    source: Source | None = None
    """The text that diagnostics of the response are about."""
    timeout: float | None = None
    of_server: bool = False
    """Whether the address is one of the server, not of a graph there."""

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout >= 0:
            wrong = "negative" if self.timeout < 0 else self.timeout
            raise InputError(f"timeout cannot be {wrong}")

    @property
    def content(self) -> bytes | Iterable[bytes] | None:
        body = self.body
        return json.dumps(body).encode("utf-8") if isinstance(body, Mapping) else body


class Connection:
    """A server, or one graph of it, and the token of the caller. Safe to share between threads.

    >>> Connection("http://127.0.0.1:8080/").url("branches", "feature/x")
    'http://127.0.0.1:8080/branches/feature%2Fx'
    """

    def __init__(self, base: str, token: str = "", *, pool: HttpPool | None = None) -> None:
        self.base = base
        self._token = token
        self._pool = pool or HttpPool()
        self.last_commit: str | None = None
        """The commit of the last write through this connection."""

    def at(self, *segments: str) -> Connection:
        """A resource of the same server, with the same token and the same connections."""
        return Connection(self.url(*segments), self._token, pool=self._pool)

    def url(self, *segments: str, query: Mapping[str, str] | None = None) -> str:
        """The address of a resource; segments are escaped, whatever they contain."""
        path = "".join(f"/{_segment(name)}" for name in segments)
        address = f"{self.base.rstrip('/')}{path}"
        address = f"{address}?{urlencode(query)}" if query else address
        if len(address) > _LONGEST_ADDRESS:
            raise InputError(
                f"the address of the request is longer than {_LONGEST_ADDRESS} characters",
                hint="pass a shorter name",
            )
        return address

    @property
    def server(self) -> str:
        """The address of the server, if this is a graph of it.

        >>> Connection("http://127.0.0.1:8080/graphs/kb").server
        'http://127.0.0.1:8080'
        """
        server, mark, graph = self.base.rstrip("/").rpartition("/graphs/")
        return server if mark and "/" not in graph else self.base

    def address(self, request: ServerRequest) -> str:
        """The address of a request."""
        owner = self
        if request.of_server:
            owner = Connection(self.server, self._token, pool=self._pool)
        return owner.url(*request.segments, query=request.query)

    def get(self, *segments: str, query: Mapping[str, str] | None = None) -> Any:
        """A resource of the server as plain data."""
        return self.send(ServerRequest("GET", segments, query or {}))

    def post(self, *segments: str, body: Mapping[str, Any], changes: bool = False) -> Any:
        """The server's response to a JSON document.

        If a request that ``changes`` something gets no response, the outcome is unknown, and the
        error says so.
        """
        return self.send(ServerRequest("POST", segments, body=body, changes=changes))

    def send(self, request: ServerRequest) -> Any:
        """The response of a request as plain data."""
        return self.document(self.open(request), request)

    def document(self, answer: OpenResponse, request: ServerRequest) -> Any:
        """An open response as plain data."""
        pieces: list[bytes] = []
        with answer:
            try:
                pieces.extend(answer)
            except NoResponse as error:
                raise self._broken(pieces, error.failure, request) from None
            response = Response(answer.status, answer.headers, b"".join(pieces))
        try:
            return response.json()
        except ValueError:
            raise unexpected_response(self.base) from None

    def open(self, request: ServerRequest) -> OpenResponse:
        """A successful response whose body is still to be read."""
        check_address(self.base)
        url = self.address(request)
        headers = self.headers(request)
        try:
            answer = self._pool.open(
                request.method,
                url,
                headers,
                request.content,
                changes=request.changes,
                timeout=request.timeout,
            )
        except NoResponse as error:
            raise no_response(self.base, error.failure, request) from None
        self.note(answer.headers)
        if answer.is_ok:
            return answer
        content = answer.read_error(1 << 20)
        raise self.refusal(answer.status, answer.headers, content, request)

    def headers(self, request: ServerRequest) -> dict[str, str]:
        """All headers of a request."""
        headers = {"Accept": JSON}
        if isinstance(request.body, Mapping):
            headers["Content-Type"] = JSON
        if self._token:
            if not self._token.isascii() or not self._token.isprintable():
                raise InputError(
                    "the token for the server contains characters that cannot be sent",
                    hint="store it again with `omnigraph login`",
                )
            headers["Authorization"] = f"Bearer {self._token}"
        if self.last_commit is not None:
            headers[COMMIT_HEADER] = self.last_commit
        return {**headers, **request.headers}

    def note(self, headers: Mapping[str, str]) -> None:
        """Remember the commit of a write, so that later reads see it on any worker."""
        commit = headers.get(COMMIT_HEADER)
        if commit and commit.isascii() and commit.isalnum():
            self.last_commit = commit

    def refusal(
        self, status: int, headers: Mapping[str, str], content: bytes, request: ServerRequest
    ) -> OmniGraphError:
        """The error of a response that is not a success."""
        return refusal(status, headers, content, token=self._token, source=request.source)

    def _broken(
        self, pieces: list[bytes], failure: Failure, request: ServerRequest
    ) -> OmniGraphError:
        """The error of a response that has no end; its last line may say what it is."""
        _, line_end, last = b"".join(pieces[-2:]).removesuffix(b"\n").rpartition(b"\n")
        if line_end and last.startswith(b'{"status":'):
            return self.late_refusal(last, request)
        return no_response(self.base, failure, request)

    def late_refusal(self, content: bytes, request: ServerRequest) -> OmniGraphError:
        """The error with which a response has ended that began as a success."""
        return late_refusal(content, token=self._token, source=request.source)

    def close(self) -> None:
        self._pool.close()

    def __repr__(self) -> str:
        return f"<Connection {self.base}>"


def no_response(base: str, failure: Failure, request: ServerRequest) -> OmniGraphError:
    """The error of a request that got no response, or only a part of it."""
    if failure is Failure.UNTRUSTED:
        return ServerUnavailable(
            f"the certificate of the server at {base} is not trusted",
            hint="check the address, and the certificates of this system",
        )
    if failure is Failure.UNREACHABLE:
        return ServerUnavailable(
            f"the server at {base} cannot be reached",
            hint="check the address, and that the server is running",
        )
    if failure is Failure.TOO_LARGE:
        return LimitExceeded(f"the response of the server at {base} is too large")
    if failure is Failure.TIMEOUT and not request.changes and request.timeout is not None:
        return QueryTimeout(f"the server at {base} did not answer within {request.timeout:g} s")
    message = f"the connection to {base} broke before the server responded"
    if request.changes:
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
    """The error of a success whose content is not what the request asked for."""
    return ServerError(
        f"unexpected response from the server at {base}",
        hint="check that there is an OmniGraph server at this address",
    )
