"""``Call`` and ``Reply``: a request as a handler sees it, and its answer. No HTTP library here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from omnigraph.commit.names import missing_branch
from omnigraph.errors import OmniGraphError, PolicyDenied
from omnigraph.identity import Identity
from omnigraph.read.limits import Cancel
from omnigraph.records import dataclass
from omnigraph.server.errors import RequestRefused

if TYPE_CHECKING:
    from omnigraph.api.changes import Head
    from omnigraph.api.graph import Graph
    from omnigraph.policy.actions import Action
    from omnigraph.policy.decision import Decision
    from omnigraph.server.routes import Route
    from omnigraph.server.state import ServedGraph, ServerProcess, ServerState

T = TypeVar("T")
Headers: TypeAlias = tuple[tuple[str, str], ...]

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
_ENCODER = msgspec.json.Encoder()


class RequestHeaders:
    """The headers of a request."""

    __slots__ = ("_by_name", "_items")

    def __init__(self, items: list[tuple[bytes, bytes]]) -> None:
        self._items = items
        self._by_name = dict(items)

    def all(self, name: str) -> list[bytes]:
        """Every value of a header; ``name`` is in lower case."""
        wanted = name.encode()
        value = self._by_name.get(wanted)
        if value is None:
            return []
        if len(self._by_name) == len(self._items):
            return [value]
        return [value for key, value in self._items if key == wanted]

    def items(self) -> list[tuple[bytes, bytes]]:
        """All headers in their order."""
        return list(self._items)

    def with_id(self, name: str, value: str) -> list[tuple[bytes, bytes]]:
        """All headers, with this value of one instead of what the client sent."""
        replaced = name.encode("ascii")
        kept = [item for item in self._items if item[0] != replaced]
        return [*kept, (replaced, value.encode("ascii"))]

    def one(self, name: str) -> str | None:
        """The only value of a header; refuses a repeated one, and one that is not ASCII."""
        if name.encode() not in self._by_name:
            return None
        values = self.all(name)
        if len(values) > 1:
            raise RequestRefused(400, "repeated_header", f"header '{name}' is given twice")
        try:
            return values[0].decode("ascii").strip()
        except UnicodeDecodeError:
            raise RequestRefused(400, "bad_header", f"header '{name}' is not ASCII") from None


RESPOND_ASYNC = "respond-async"


def prefers_async(headers: RequestHeaders) -> bool:
    """Whether a client asks not to wait for the end of the work (RFC 7240).

    >>> prefers_async(RequestHeaders([(b"prefer", b"respond-async, integers=string")]))
    True
    """
    given = b",".join(headers.all("prefer")).decode("latin-1").lower()
    return RESPOND_ASYNC in (part.strip() for part in given.replace(";", ",").split(","))


@dataclass(frozen=True, slots=True)
class Call:
    """A request after all checks that need no engine."""

    route: Route
    process: ServerProcess
    state: ServerState
    request_id: str
    headers: RequestHeaders
    identity: Identity | None
    """Whose token it was; none on a server without tokens."""
    served: ServedGraph | None
    path: dict[str, str]
    """The parameters in the path, decoded."""
    query: Any
    """The query string, as the model of the route."""
    body: Any
    """The body, as the model of the route; bytes if it has none."""
    body_bytes: int
    cancel: Cancel
    is_head: bool = False
    """Whether the client wants no body: the method is ``HEAD``."""

    @property
    def actor(self) -> str | None:
        """The name of the actor."""
        return None if self.identity is None else self.identity.id

    @property
    def graph_id(self) -> str:
        return self.serving.graph_id

    @property
    def serving(self) -> ServedGraph:
        """The graph of the path."""
        assert self.served is not None, "only routes of a graph ask"
        return self.served

    @property
    def graph(self) -> Graph:
        """The graph as the actor sees it."""
        return self.serving.graph_for(self.identity)

    @property
    def uri(self) -> str:
        """The address of the graph, as clients see it."""
        return self.serving.uri

    def may(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> bool:
        """Whether the actor may do this; not logged, because nothing follows from it alone."""
        return self._decide(action, branch, target, query).allowed

    def _decide(
        self, action: Action, branch: str | None, target: str | None, query: str | None
    ) -> Decision:
        graph_id = None if self.served is None else self.served.graph_id
        decide = self.state.access.decide
        return decide(graph_id, self.identity, action, branch, target, query=query)

    def allows(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> PolicyDenied | None:
        """``None`` if the actor may do this, or else the error."""
        decision = self._decide(action, branch, target, query)
        log = self.process.log
        if log.wants_decision(decision.allowed):
            log.decision(
                request_id=self.request_id,
                graph=None if self.served is None else self.served.graph_id,
                actor=self.actor,
                action=action,
                branch=branch,
                target=target,
                query=query,
                allowed=decision.allowed,
                rule=decision.rule,
            )
        if decision.allowed:
            return None
        return PolicyDenied(
            decision.message,
            details={"action": action, "branch": branch, "target": target},
        )

    def require(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> None:
        """Raise unless the actor may do this.

        A branch that the actor may not know of looks absent, whether it exists or not.
        """
        denied = self.allows(action, branch, target, query=query)
        if denied is not None:
            # The name of a new branch is the client's own.
            raise self.concealed(denied, branch, None if action == "branch_create" else target)

    def concealed(self, denied: PolicyDenied, *branches: str | None) -> OmniGraphError:
        """The error of a denial: that of an absent branch if the actor may not know of one."""
        access = self.state.access
        for name in branches:
            if name is not None and access.hides_branch(self.graph_id, self.identity, name):
                return missing_branch(name)
        return denied


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a handler."""

    body: bytes = b""
    status: int = 200
    content_type: str = JSON
    headers: Headers = ()
    stream: Iterator[bytes | Wait] | None = None
    """Further pieces of the body; a failure in it breaks the connection."""
    length: int | None = None
    """The length of the whole body, if it is known but not all of it is here."""
    follows: bool = False
    """Whether the stream waits for commits; it counts as a waiting connection to its end."""
    failed: Callable[[bytes], bytes] | None = None
    """The last piece of a body that fails; gets the error as JSON."""
    kept: Iterator[bytes] | None = None
    """Pieces before those of ``stream`` that are in memory; each is forgotten when it is sent."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing comes after ``body``."""
        return self.kept is None and self.stream is None

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Headers = ()) -> Reply:
        """A reply with a JSON body; encoded here, on the thread of the handler."""
        return cls(_ENCODER.encode(value), status, JSON, headers)


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to answer yet. No thread is held until a commit comes or the time is up.

    A read returns it in place of a reply; a stream, whose pieces it may be among, goes on after it.
    """

    branch: str
    head: Head
    """The head of the branch that has been seen."""
    seconds: float
    then: Callable[[bool], Reply | Wait] | None = None
    """Answers the read. Its argument says whether no more may be read for this request: the server
    ends, or its tokens or policies have changed."""


Handler: TypeAlias = Callable[[Call], Any]
"""Takes a ``Call``; returns a ``Reply`` or a ``Wait``; if it runs inline, also an awaitable."""
