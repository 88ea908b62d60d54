"""What a process serves: an immutable generation of graphs, tokens and policy, and its machinery.

A reload builds a new ``ServerState`` beside the old one and swaps it as a whole. Requests that have
started finish on the generation they started with; open graphs are shared between generations.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from starlette.types import ASGIApp

from omnigraph.api.graph import Graph
from omnigraph.errors import CommitNotFound, PolicyDenied
from omnigraph.identity import Identity
from omnigraph.policy.actions import Action
from omnigraph.policy.decision import Decision
from omnigraph.records import dataclass
from omnigraph.server.admission import Admission, ReadAdmission, WaitAdmission
from omnigraph.server.bodies import BodyTimes
from omnigraph.server.boot import GraphSpec, Quarantine
from omnigraph.server.commit_news import CommitNews
from omnigraph.server.config import ServerConfig
from omnigraph.server.control import KeptGraph, ReloadFailure
from omnigraph.server.cursor_keys import ServedCursorKeys
from omnigraph.server.jobs.executor import JobExecutor
from omnigraph.server.lanes import Lanes
from omnigraph.server.metrics import Metrics
from omnigraph.server.request_log import RequestLog
from omnigraph.server.stored_queries import ServedQueries
from omnigraph.server.switching import SchemaFit

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.plan.view import View
    from omnigraph.policy.policy import Policy
    from omnigraph.server.deploying import Deployer

Role: TypeAlias = Literal["all", "reader", "writer"]
_SEEN_COMMITS = 256
_REMEMBERED_ACTORS = 256
_REFRESH_SECONDS = 5.0


class Tokens(Protocol):
    """Who a token belongs to."""

    @property
    def is_empty(self) -> bool: ...
    async def identify(self, token: str) -> Identity | None: ...


class Decisions(Protocol):
    """Who may do what, on each graph and on the server."""

    def decide(
        self,
        graph_id: str | None,
        actor: Identity | None,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> Decision: ...

    def view(
        self, graph_id: str, actor: Identity | None, branch: str, catalog: Catalog
    ) -> View: ...

    def policy_of(self, graph_id: str) -> Policy | None: ...

    def hides_graph(self, graph_id: str, actor: Identity | None) -> bool: ...

    def hides_branch(self, graph_id: str, actor: Identity | None, branch: str) -> bool: ...


class ServedGraph:
    """One open graph and its stored queries."""

    def __init__(
        self,
        graph_id: str,
        graph: Graph,
        queries: ServedQueries,
        spec: GraphSpec | None = None,
    ) -> None:
        self._spec = spec
        self.graph_id = graph_id
        self.graph = graph
        self.queries = queries
        self.fit = SchemaFit(queries)
        self.uri = graph.uri
        self._invoked = Graph(graph._handle.with_queries(queries))
        self.cursor_keys = ServedCursorKeys(graph._handle.store.objects)
        """Sign the cursors of pages, in all processes that serve the graph."""
        self._of_actors: dict[Identity, Graph] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._refreshed = -math.inf

    def is_of(self, spec: GraphSpec) -> bool:
        """Whether the open graph is that of another plan too, whatever its queries and policy."""
        own = self._spec
        return own is not None and (own.uri, own.embedding) == (spec.uri, spec.embedding)

    def serves(self, spec: GraphSpec) -> bool:
        """Whether a plan wants the graph exactly as it is served."""
        return self._spec is not None and self._spec.is_same(spec)

    def has_seen(self, commit_id: str) -> bool:
        """Whether ``see`` has nothing to do."""
        return commit_id in self._seen

    def graph_for(self, identity: Identity | None) -> Graph:
        """The graph as an actor sees it; as everybody does on a server without tokens."""
        if identity is None:
            return self._invoked
        graph = self._of_actors.get(identity)
        if graph is None:
            if len(self._of_actors) >= _REMEMBERED_ACTORS:
                self._of_actors.clear()
            graph = self._of_actors[identity] = self._invoked.for_actor(identity)
        return graph

    def see(self, commit_id: str) -> None:
        """Make sure that reads include a commit, which the client knows from a response.

        Every read looks for newer commits itself; only an object store that lists them late needs
        a refresh.
        """
        if commit_id in self._seen:
            return
        try:
            self.graph.commit(commit_id)
        except CommitNotFound:
            # Refreshing drops caches: clients that send random ids must not cause it often.
            now = time.monotonic()
            if now - self._refreshed < _REFRESH_SECONDS:
                return
            self._refreshed = now
            self.graph.refresh()
        self._seen[commit_id] = None
        while len(self._seen) > _SEEN_COMMITS:
            self._seen.popitem(last=False)


@dataclass(frozen=True, slots=True)
class ServerState:
    """One generation of what a server serves."""

    config: ServerConfig
    tokens: Tokens
    access: Decisions
    run_state: Literal["open", "default_deny", "policy"]
    graphs: Mapping[str, ServedGraph]
    unserved: Mapping[str, Quarantine]
    is_cluster: bool = False
    """Whether schemas are changed by ``cluster apply`` only."""
    digest: str = ""
    revision: int | None = None
    kept: Mapping[str, KeptGraph] = field(default_factory=dict)
    """The graphs that keep an earlier state than the one that was applied, and why."""

    @property
    def only_graph(self) -> str | None:
        """The graph whose routes exist without a prefix too, if there is one."""
        if not self.config.flat:
            return None
        declared = [*self.graphs, *self.unserved]
        return declared[0] if len(declared) == 1 else None


class ServerProcess:
    """One process of a server: the current state, and what lives as long as the process."""

    def __init__(
        self,
        state: ServerState,
        *,
        role: Role = "all",
        lanes: Lanes,
        admission: Admission,
        reads: ReadAdmission,
        waits: WaitAdmission,
        metrics: Metrics,
        log: RequestLog,
        forwarder: ASGIApp | None = None,
        times: BodyTimes = BodyTimes(),  # noqa: B008 - immutable
        reload: Callable[[], Awaitable[None]] | None = None,
        gather_metrics: Callable[[], Awaitable[bytes]] | None = None,
        deployer: Deployer | None = None,
    ) -> None:
        self.state = state
        self.role: Role = role
        self.lanes = lanes
        self.admission = admission
        self.reads = reads
        self.waits = waits
        self.metrics = metrics
        self.log = log
        self.forwarder = forwarder
        """Relays writes to the writer process; only in a reader."""
        self.times = times
        self.reload = reload
        """Puts changed tokens, policies and graphs in force in all processes, or raises."""
        self.gather_metrics = gather_metrics
        """The metrics of all processes."""
        self.jobs = JobExecutor(log, metrics)
        """The long work of this process; readers start none."""
        self.deployer = deployer
        """Applies configurations to the cluster that is served; none on a server of a store."""
        self.is_draining = False
        self.commit_news = CommitNews(lanes)
        """The requests that wait for a commit."""
        self.reload_failure: ReloadFailure | None = None
        """Why the last reload failed, so that an older state is in force."""
        self._switching = asyncio.Event()

    def swap(self, state: ServerState) -> None:
        """Put a new generation in force."""
        self.state = state
        self._wake()

    async def await_switch(self, seconds: float) -> None:
        """Return when another generation is in force, the process ends, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._switching.wait()

    def begin_drain(self) -> None:
        """End whatever waits: the process ends soon."""
        self.is_draining = True
        self._wake()

    def _wake(self) -> None:
        switched, self._switching = self._switching, asyncio.Event()
        switched.set()
        self.commit_news.wake()


class CurrentGate:
    """The engine's gate for one graph: asks whatever policy is in force at that moment."""

    def __init__(self, graph_id: str, access: Callable[[], Decisions]) -> None:
        self._graph_id = graph_id
        self._access = access

    @property
    def digest(self) -> str:
        """That of the policy of the graph; empty if it has none."""
        policy = self._access().policy_of(self._graph_id)
        return "" if policy is None else policy.digest

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process it asks the policy that is in force now."""
        return _gate_of_today, (self._graph_id, self._access())

    def view(self, actor: Identity | None, branch: str, catalog: Catalog) -> View:
        """What the actor sees of a branch."""
        return self._access().view(self._graph_id, actor, branch, catalog)

    def check(
        self,
        actor: Identity | str | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> None:
        """Raise ``PolicyDenied`` unless the actor may do this."""
        identity = Identity(actor) if isinstance(actor, str) else actor
        decision = self._access().decide(
            self._graph_id, identity, cast(Action, action), branch, target, query=query
        )
        if not decision.allowed:
            raise PolicyDenied(
                decision.message,
                details={"action": action, "branch": branch, "target": target},
            )


def _gate_of_today(graph_id: str, access: Decisions) -> CurrentGate:
    return CurrentGate(graph_id, lambda: access)
