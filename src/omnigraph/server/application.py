"""Graphs behind HTTP: what the processes of a server run.

Opens the graphs of a generation, keeps them open over generations, and answers with the routes of
``app``. A reader opens graphs for reading, the writer and a single process for writing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from starlette.types import ASGIApp

from omnigraph.api.graph import Graph
from omnigraph.errors import OmniGraphError
from omnigraph.server.access import Access, RunState
from omnigraph.server.admission import Admission, ReadAdmission, WaitAdmission
from omnigraph.server.app import create_app
from omnigraph.server.authentication import Authentication
from omnigraph.server.boot import check_served
from omnigraph.server.control import KeptGraph, OpenedGraphs, ReloadFailure
from omnigraph.server.deploying import Deployer
from omnigraph.server.generation import Generation
from omnigraph.server.lifecycle import ProcessParts
from omnigraph.server.metrics import GraphCounts
from omnigraph.server.opening import Connect, OpenedPlan, connect_announcements, open_graphs
from omnigraph.server.request_log import WARNING
from omnigraph.server.state import Role, ServedGraph, ServerProcess, ServerState
from omnigraph.server.tracing import Instrumented, InstrumentedLanes, Tracing
from omnigraph.settings import Settings

_RUN_STATES: Mapping[RunState, Literal["open", "default_deny", "policy"]] = {
    RunState.OPEN: "open",
    RunState.DEFAULT_DENY: "default_deny",
    RunState.POLICY: "policy",
}


_REOPEN_SECONDS = 1.0
"""The pause before a graph that could not be opened is tried again; it doubles each time."""
_LONGEST_REOPEN = 30.0


class GraphApplication:
    """The graphs of one process."""

    def __init__(self, parts: ProcessParts) -> None:
        self._parts = parts
        self._settings = Settings.from_environ()
        self._tracing = Tracing.from_config(parts.config)
        self._lanes = InstrumentedLanes(self._tracing, parts.metrics)
        self._process: ServerProcess | None = None
        self._asgi: ASGIApp | None = None
        self._prepared: tuple[Generation, ServerState] | None = None
        self._generation: Generation | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._nobody = Access(RunState.POLICY)
        self._connect: Connect | None = None
        if parts.announcements is not None:
            self._connect = connect_announcements(Path(parts.announcements), parts.role)

    @property
    def asgi(self) -> ASGIApp:
        assert self._asgi is not None
        return self._asgi

    @property
    def process(self) -> ServerProcess:
        assert self._process is not None, "nothing is open yet"
        return self._process

    # -- generations -------------------------------------------------------------------------

    async def open(self, generation: bytes) -> OpenedGraphs:
        parts = self._parts
        self._generation = Generation.decode(generation)
        state, _ = await self._build(self._generation, {})
        self._process = ServerProcess(
            state,
            role=cast(Role, parts.role),
            lanes=self._lanes,
            admission=Admission(parts.config.write_caps),
            reads=ReadAdmission(parts.config.read_caps),
            waits=WaitAdmission(parts.config.wait_caps),
            metrics=parts.metrics,
            log=parts.log,
            forwarder=parts.host.forwarder,
            reload=parts.host.reload,
            gather_metrics=parts.host.gather_metrics,
            deployer=self._deployer(self._generation.plan.is_cluster),
        )
        self._asgi = Instrumented(create_app(self._process), self._process, self._tracing)
        parts.metrics.on_collect(self._counts)
        parts.metrics.on_gauges(self._gauges)
        self._reopen_later()
        return OpenedGraphs(tuple(state.graphs), tuple(state.unserved))

    def _deployer(self, is_cluster: bool) -> Deployer | None:
        """Applies configurations to the cluster; none on a server of a store."""
        if not is_cluster:
            return None
        host, loop = self._parts.host, asyncio.get_running_loop()

        def reload() -> None:
            asyncio.run_coroutine_threadsafe(host.reload(), loop).result()

        location = self._parts.config.source.location
        return Deployer(
            location, self._settings, self._parts.log, reload, lambda: self.process.state
        )

    async def prepare(self, generation: bytes) -> Sequence[KeptGraph]:
        wanted = Generation.decode(generation)
        before, self._prepared = self._prepared, None
        if before is not None:
            self._close_unused(before[1])
        state, kept = await self._build(wanted, self.process.state.graphs)
        self._prepared = wanted, state
        return kept

    def activate(self, *, is_kept: bool) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return
        before = self.process.state
        if is_kept:
            self._generation, state = prepared
            self.process.swap(state)
            self._reopen_later()
        self._close_unused(before if is_kept else prepared[1])

    # -- graphs that could not be opened -------------------------------------------------------

    def _reopen_later(self) -> None:
        """Try again to open what could not be opened, until it is open or not wanted any more."""
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None
        if any(graph.is_retried for graph in self.process.state.unserved.values()):
            self._reopening = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        delay = _REOPEN_SECONDS
        while any(graph.is_retried for graph in self.process.state.unserved.values()):
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_REOPEN)
            before, generation = self.process.state, self._generation
            assert generation is not None
            try:
                state, _ = await self._build(generation, before.graphs, is_repeated=True)
            except OmniGraphError:
                continue
            if self.process.state is not before or len(state.graphs) == len(before.graphs):
                self._close_unused(state)
                continue
            self.process.swap(state)
            opened = sorted(state.graphs.keys() - before.graphs.keys())
            self._parts.log.event("graphs are served again", graphs=opened)

    async def _build(
        self,
        generation: Generation,
        previous: Mapping[str, ServedGraph],
        *,
        is_repeated: bool = False,
    ) -> tuple[ServerState, Sequence[KeptGraph]]:
        """Open what is not open yet; raises ``ServerNotReady`` if too little can be served."""
        plan, config = generation.plan, self._parts.config
        mode: Literal["r", "rw"] = "r" if self._parts.role == "reader" else "rw"
        opened = await asyncio.to_thread(
            open_graphs, plan, mode, self._settings, self._current_access, previous, self._connect
        )
        state = ServerState(
            config,
            generation.authentication(self._note_keys, self._current_authentication()),
            generation.access(config, self._current_access()),
            _RUN_STATES[generation.state],
            opened.graphs,
            opened.unserved,
            plan.is_cluster,
            plan.digest,
            plan.revision,
            plan.kept,
        )
        if not is_repeated:
            self._report(opened, previous)
        try:
            check_served(
                plan, opened.unserved.values(), require_all_graphs=config.require_all_graphs
            )
        except BaseException:
            self._close_unused(state)
            raise
        return state, opened.kept

    def _current_authentication(self) -> Authentication | None:
        """The one in force, whose cached keys and tokens the next one may keep."""
        return None if self._process is None else cast(Authentication, self._process.state.tokens)

    def _note_keys(self, failure: str | None) -> None:
        """The keys of the identity provider were fetched, or could not be."""
        self._parts.metrics.fetched_keys("failed" if failure else "ok")
        if failure is not None:
            self._parts.log.event(
                "keys of the identity provider cannot be fetched", level=WARNING, error=failure
            )

    def _current_access(self) -> Access:
        """The rules in force; before the first generation nothing is allowed."""
        if self._process is None:
            return self._nobody
        return cast(Access, self._process.state.access)

    def _close_unused(self, state: ServerState) -> None:
        """Close the graphs of a state that the one in force does not have."""
        used = [] if self._process is None else self._process.state.graphs.values()
        kept = {id(served.graph) for served in used}
        for served in state.graphs.values():
            if id(served.graph) not in kept:
                task = asyncio.get_running_loop().create_task(self._close_later(served.graph))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def _close_later(self, graph: Graph) -> None:
        """Close a graph when the requests that began on it have ended."""
        await self._lanes.finish_running()
        # Streams of results take their rows piece by piece.
        await asyncio.sleep(self._parts.config.drain_seconds)
        await asyncio.to_thread(graph.close)

    def _report(self, opened: OpenedPlan, previous: Mapping[str, ServedGraph]) -> None:
        if self._parts.role == "reader":
            # The writer has said it already.
            return
        log = self._parts.log
        for graph in opened.unserved.values():
            log.event(
                "graph quarantined",
                level=WARNING,
                graph_id=graph.graph_id,
                code=graph.code,
                error=graph.message,
            )
        for graph_id, served in opened.graphs.items():
            if previous.get(graph_id) is served:
                # It was reported before; asking it for its schema would ask the storage.
                continue
            for name, query in served.queries.items():
                for advice in query.advice:
                    log.event(
                        "stored query advisory",
                        level=WARNING,
                        graph=graph_id,
                        query=name,
                        message=advice,
                    )
            for name, reason in served.queries.breakages(served.graph.catalog).items():
                log.event(
                    "stored query broken",
                    level=WARNING,
                    graph=graph_id,
                    query=name,
                    message=reason,
                )
            if graph_id in previous and previous[graph_id].graph is served.graph:
                continue
            for recovered in served.graph.recovered:
                log.event(
                    "interrupted write recovered",
                    graph_id=graph_id,
                    operation_id=recovered.operation_id,
                    outcome=str(recovered.kind),
                )

    def notice(self, reload_failure: ReloadFailure | None) -> None:
        self.process.reload_failure = reload_failure

    # -- metrics -----------------------------------------------------------------------------

    def _counts(self) -> Iterator[GraphCounts]:
        for graph_id, served in self.process.state.graphs.items():
            handle = served.graph._handle
            traffic = handle.store.objects.traffic
            yield GraphCounts(
                graph_id,
                handle.store.recoveries,
                (
                    ("plans", "hit", handle.plans.hits),
                    ("plans", "miss", handle.plans.misses),
                ),
                (
                    ("read", traffic.reads),
                    ("write", traffic.writes),
                    ("list", traffic.lists),
                    ("delete", traffic.deletes),
                ),
            )

    def _gauges(self) -> Mapping[str, int]:
        return {
            "reads_in_flight": self.process.reads.in_flight,
            "reads_waiting": self.process.reads.waiting,
            "requests_waiting": self.process.commit_news.waiting,
            "writes_in_flight": self.process.admission.in_flight,
            **self._witness(),
        }

    def _witness(self) -> Mapping[str, int]:
        """What is in force; the processes agree, so only one of them counts."""
        if self._parts.role == "reader":
            return {}
        state = self.process.state
        return {
            "ledger_revision": state.revision or 0,
            "graphs_served": len(state.graphs),
            "graphs_unserved": len(state.unserved),
            "graphs_kept": len(state.kept),
        }

    # -- the end -----------------------------------------------------------------------------

    def begin_drain(self) -> None:
        self.process.begin_drain()
        self.process.jobs.begin_drain()

    async def drain(self) -> None:
        await self._lanes.drain()
        await asyncio.to_thread(self.process.jobs.drain)

    async def close(self) -> None:
        if self._reopening is not None:
            self._reopening.cancel()
        self._lanes.close()
        graphs = [served.graph for served in self.process.state.graphs.values()]
        await asyncio.gather(*(asyncio.to_thread(graph.close) for graph in graphs))
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
