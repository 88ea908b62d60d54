"""Opens the graphs of a plan; one that cannot be served is set aside with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from omnigraph.api.graph import Graph
from omnigraph.api.handle import Mode, parse_location
from omnigraph.commit.announcements import Announced, Announcer
from omnigraph.commit.manifests import Manifests
from omnigraph.errors import OmniGraphError
from omnigraph.records import dataclass
from omnigraph.server.boot import (
    BootPlan,
    GraphSpec,
    Quarantine,
    embedding_config,
    quarantine_of,
)
from omnigraph.server.control import KeptGraph
from omnigraph.server.state import CurrentGate, Decisions, ServedGraph
from omnigraph.server.stored_queries import ServedQueries
from omnigraph.settings import Settings

Connect: TypeAlias = Callable[[Manifests], None]

AT_A_TIME = 4
IN_BUCKET_AT_A_TIME = 16
"""Graphs in a bucket: opening one is mostly waiting for its requests."""
INVALID_QUERY = "stored_query_invalid"


@dataclass(frozen=True, slots=True)
class OpenedPlan:
    """What could be opened, and what could not, those of the plan included."""

    graphs: Mapping[str, ServedGraph]
    unserved: Mapping[str, Quarantine]
    kept: tuple[KeptGraph, ...] = ()
    """Graphs that are open already, and could not be opened as the plan wants them."""


def open_graphs(
    plan: BootPlan,
    mode: Mode,
    settings: Settings,
    access: Callable[[], Decisions],
    previous: Mapping[str, ServedGraph] | None = None,
    connect: Connect | None = None,
) -> OpenedPlan:
    """Open every graph of a plan; a graph of ``previous`` at the same address stays open.

    One that is in ``previous`` but cannot be served as the plan wants is neither served nor set
    aside, but kept.

    ``access`` gives the decisions that are in force: writes of the graphs ask them too. ``connect``
    connects a graph with those of the other processes.
    """
    opener = _Opener(mode, settings, access, previous or {}, connect)
    is_local = all(parse_location(graph.uri, None, settings).is_local for graph in plan.graphs[:1])
    limit = AT_A_TIME if is_local else IN_BUCKET_AT_A_TIME
    with ThreadPoolExecutor(limit, "open-graph") as executor:
        opened = list(executor.map(opener.open, plan.graphs))
    return OpenedPlan(
        {graph.graph_id: graph for graph in opened if isinstance(graph, ServedGraph)},
        {
            graph.graph_id: graph
            for graph in (*plan.quarantined, *opened)
            if isinstance(graph, Quarantine)
        },
        tuple(graph for graph in opened if isinstance(graph, KeptGraph)),
    )


class _Opener:
    def __init__(
        self,
        mode: Mode,
        settings: Settings,
        access: Callable[[], Decisions],
        previous: Mapping[str, ServedGraph],
        connect: Connect | None,
    ) -> None:
        self._mode: Mode = mode
        self._settings = settings
        self._access = access
        self._previous = previous
        self._connect = connect

    def open(self, spec: GraphSpec) -> ServedGraph | Quarantine | KeptGraph:
        previous = self._previous.get(spec.graph_id)
        if previous is None:
            return self._open(spec, None)
        if previous.serves(spec):
            return previous
        opened = self._open(spec, previous)
        if isinstance(opened, Quarantine):
            return KeptGraph(opened.graph_id, opened.code, opened.message)
        return opened

    def _open(self, spec: GraphSpec, previous: ServedGraph | None) -> ServedGraph | Quarantine:
        try:
            queries = ServedQueries.read(spec.queries)
        except OmniGraphError as error:
            return Quarantine(spec.graph_id, INVALID_QUERY, error.message)
        is_shared = previous is not None and previous.is_of(spec)
        graph: Graph | None = None
        try:
            graph = previous.graph if previous is not None and is_shared else self._graph(spec)
            # Queries that do not fit the schema are refused; everything else is served.
            queries.checked(graph.catalog)
        except OmniGraphError as error:
            if graph is not None and not is_shared:
                graph.close()
            return quarantine_of(spec.graph_id, error)
        return ServedGraph(spec.graph_id, graph, queries, spec)

    def _graph(self, spec: GraphSpec) -> Graph:
        embedding = None
        if spec.embedding is not None:
            embedding = embedding_config(spec.embedding, self._settings)
        graph = Graph.open(
            spec.uri,
            self._mode,
            local_files=False,
            auto_compact=self._mode == "rw",
            embedding=embedding,
            policy=CurrentGate(spec.graph_id, self._access),
        )
        if self._connect is not None:
            self._connect(graph._handle.store.manifests)
        return graph


def connect_announcements(path: Path, role: str) -> Connect:
    """The writer announces what it publishes, readers follow it."""
    if role == "writer":
        announcer = Announcer(path)
        return lambda manifests: manifests.announce(announcer)
    announced = Announced(path)
    return lambda manifests: manifests.follow(announced)
