"""``Route``: one operation of the server, and the functions that its table is made with."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, TypeAlias

from omnigraph.errors import PolicyDenied
from omnigraph.identity import Identity
from omnigraph.policy.actions import Action
from omnigraph.records import dataclass
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.bodies import DEFAULT_LIMIT
from omnigraph.server.calls import JSON, Call, Handler, Reply
from omnigraph.server.config import ServerConfig
from omnigraph.server.state import Decisions, ServedGraph

Lane: TypeAlias = Literal["inline", "read", "write"]


def nothing(call: Call) -> None:
    """The authorisation of routes that everybody may call."""


def ask(call: Call, action: Action) -> None:
    call.require(action)


def _body_bytes(call: Call) -> int:
    return call.body_bytes


def branch_bytes(call: Call) -> int:
    return BRANCH_OPERATION_BYTES


@dataclass(frozen=True, slots=True)
class Route:
    """One operation."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    operation_id: str
    summary: str
    tag: str
    action: Action | None
    """What the actor must be allowed; none only for health, readiness and the document."""
    scope: Literal["open", "server", "graph"]
    lane: Lane
    """Writes run in the writer process and count in admission."""
    handler: Handler
    authorize: Callable[[Call], None]
    """Raises unless the actor may do this; runs in the event loop, before anything is looked up."""
    body_limit: int = 0
    spool_limit: int = 0
    """That of a request which prefers a job: its body is kept in a file."""
    request: type | None = None
    query: type | None = None
    response: Any = None
    content_type: str = JSON
    """That of the response."""
    other_types: tuple[str, ...] = ()
    """What else a client may ask for by ``Accept``."""
    body_type: str | None = JSON
    """That of the request; ``None`` for any."""
    on_denied: Callable[[Call, PolicyDenied], None] | None = None
    """Replaces the error of a denied actor; runs on a thread."""
    writes: Callable[[Decisions, Identity | None, ServedGraph, dict[str, str]], bool] | None = None
    """Decides about the lane, if it depends on the path and the actor."""
    relays: Callable[[Call], bool] | None = None
    """Whether the writer process must answer, if that depends on the body and the actor."""
    size: Callable[[Call], int] = _body_bytes
    """The estimated size of a write, for admission."""
    in_memory: Callable[[Call], Reply | None] | None = None
    """Answers a read at once if it needs nothing but memory; runs in the event loop."""
    takes_key: bool = True
    """Whether a write takes an idempotency key."""
    is_conditional: bool = False
    """Whether the header ``Omnigraph-If-Graph-Commit`` is required."""
    is_lenient: bool = False
    """Whether the body may be absent or null, and a malformed one is a plain bad request."""
    free_on_loopback: bool = False  # needs no token if only this machine can connect
    headers: tuple[str, ...] = ()
    """The headers of a request that count here, besides those of every route of its kind."""
    deprecated: bool = False
    successor: str | None = None
    success: int = 200
    """The status of a success."""
    statuses: tuple[int, ...] = ()
    """What it answers besides that and the statuses that every route of its kind has."""
    since: Literal["0.8", "1"] = "0.8"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters in the path."""
        return _parameters(self.path)

    @property
    def has_body(self) -> bool:
        return self.body_limit > 0

    def is_free(self, config: ServerConfig) -> bool:
        """Whether it needs no token."""
        return self.scope == "open" or (self.free_on_loopback and config.is_loopback)

    def lane_for(
        self,
        access: Decisions,
        identity: Identity | None,
        served: ServedGraph | None,
        path: dict[str, str],
    ) -> Lane:
        """The lane of one request."""
        if self.writes is None or served is None:
            return self.lane
        return "write" if self.writes(access, identity, served, path) else "read"


@cache
def _parameters(path: str) -> tuple[str, ...]:
    return tuple(part[1:-1] for part in path.split("/") if part.startswith("{"))


def of_graph(
    method: Literal["GET", "POST", "PUT", "DELETE"],
    path: str,
    operation: str,
    summary: str,
    tag: str,
    action: Action,
    handler: Handler,
    *,
    authorize: Callable[[Call], None] | None = None,
    lane: Lane = "read",
    **rest: Any,
) -> Route:
    if method == "POST":
        rest.setdefault("body_limit", DEFAULT_LIMIT)
    return Route(
        method,
        f"/graphs/{{graph_id}}{path}",
        f"cluster_{operation}",
        summary,
        tag,
        action,
        "graph",
        lane,
        handler,
        authorize or partial(ask, action=action),
        **rest,
    )
