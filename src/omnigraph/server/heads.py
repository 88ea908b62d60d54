"""The head of a request: its limits, its path, its token. Nothing of a body."""

from __future__ import annotations

import itertools
import re
from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from omnigraph.cluster.graph_ids import is_graph_id
from omnigraph.commit.ulid import new_ulid
from omnigraph.escaping import escape
from omnigraph.identity import Identity
from omnigraph.server.admission import GraphUnavailable
from omnigraph.server.calls import RequestHeaders
from omnigraph.server.errors import RequestRefused
from omnigraph.server.state import ServedGraph, ServerState, Tokens

LONGEST_TARGET = 16 << 10
LARGEST_HEADERS = 64 << 10
MOST_HEADERS = 100
REQUEST_ID = "omnigraph-request-id"
HTTP_API = "omnigraph-http-api"
API_VERSION = "0.8"
_VERSIONS = ("0.8", "0.8.0", "1")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SCHEME = "Bearer "
# A ULID per request would cost more than all checks of its head.
_PROCESS = new_ulid()
_NUMBERS = itertools.count(1)


def request_id_of(headers: RequestHeaders) -> str:
    """The id that the client chose, if it is harmless, or a new one."""
    given = headers.all(REQUEST_ID)
    if len(given) == 1 and _REQUEST_ID.fullmatch(given[0]):
        return given[0].decode("ascii")
    return f"{_PROCESS}-{next(_NUMBERS):x}"


def check_size(scope: Scope) -> None:
    """Refuse a target or headers that are too large."""
    items = scope["headers"]
    if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
        raise RequestRefused(
            414, "target_too_long", f"the request target is longer than {LONGEST_TARGET} bytes"
        )
    size = sum(map(len, itertools.chain.from_iterable(items)))
    if len(items) > MOST_HEADERS or size > LARGEST_HEADERS:
        raise RequestRefused(431, "headers_too_large", "the headers are too large")


def names_version(headers: RequestHeaders) -> bool:
    """Whether the client names a version of the interface; refuses one that we do not speak."""
    version = headers.one(HTTP_API)
    if version is not None and version not in _VERSIONS:
        raise RequestRefused(
            400,
            "api_contract_mismatch",
            f"this server does not speak version '{escape(version)}' of the HTTP API",
            hint=f"it speaks {API_VERSION}",
        )
    return version is not None


def segments_of(raw_path: bytes) -> tuple[str, ...]:
    """The segments of a path, each decoded by itself, so that ``a%2Fb`` is one.

    >>> segments_of(b"/branches/a%2Fb")
    ('branches', 'a/b')
    """
    try:
        return tuple(unquote_to_bytes(part).decode("utf-8") for part in raw_path.split(b"/")[1:])
    except UnicodeDecodeError:
        raise RequestRefused(400, "bad_path", "the path is not UTF-8") from None


async def authenticate(headers: RequestHeaders, tokens: Tokens) -> Identity | None:
    """Whose token a request has; ``None`` on a server without tokens."""
    given = headers.all("authorization")
    if len(given) > 1:
        raise RequestRefused(400, "repeated_header", "header 'authorization' is given twice")
    if tokens.is_empty:
        return None
    try:
        value = given[0].decode("ascii") if given else ""
    except UnicodeDecodeError:
        value = ""
    if not value.startswith(_SCHEME):
        raise RequestRefused(401, "missing_token", "missing bearer token")
    identity = await tokens.identify(value.removeprefix(_SCHEME))
    if identity is None:
        raise RequestRefused(401, "invalid_token", "invalid bearer token")
    return identity


def find_graph(state: ServerState, graph_id: str, identity: Identity | None) -> ServedGraph:
    """The graph of a path; one that the actor must not know of looks absent."""
    served = state.graphs.get(graph_id)
    if served is None and not is_graph_id(graph_id):
        raise RequestRefused(
            400,
            "bad_graph_id",
            f"invalid graph id '{escape(graph_id)[:80]}'",
            hint="1 to 64 letters, digits and hyphens",
        )
    is_hidden = state.access.hides_graph(graph_id, identity)
    if served is not None and not is_hidden:
        return served
    unserved = state.unserved.get(graph_id)
    if unserved is not None and unserved.is_retried and not is_hidden:
        raise GraphUnavailable(
            f"graph '{graph_id}' cannot be opened at the moment",
            hint="repeat the request later: the server tries again",
        )
    raise RequestRefused(404, "graph_not_found", f"graph '{graph_id}' not found")
