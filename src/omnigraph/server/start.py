"""The start of a server: one process, or a supervisor with workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omnigraph.server.access import RunState
from omnigraph.server.config import ServerConfig
from omnigraph.server.control import KeptGraph
from omnigraph.server.generation import Generation, GenerationSource
from omnigraph.server.lifecycle import OnListening, SingleProcess, run_to_end
from omnigraph.server.request_log import WARNING, RequestLog, follow_engine
from omnigraph.server.supervisor import Supervisor
from omnigraph.settings import Settings

_APPLICATION = "omnigraph.server.application:GraphApplication"
_STATE_WARNINGS = {
    RunState.OPEN: "the server is open: whoever can connect may read and write",
    RunState.DEFAULT_DENY: "default-deny: there are tokens but no policy, so only reads are "
    "allowed",
}


def run_server(
    config: ServerConfig,
    settings: Settings,
    on_listening: OnListening,
    warnings: Iterable[str] = (),
) -> int:
    """Serve until a signal ends the server; returns the exit code.

    Raises ``ServerNotReady`` if nothing can be served.
    """
    log = RequestLog(config.log)
    follow_engine(log)
    for warning in warnings:
        log.event("setting ignored", level=WARNING, message=warning)
    source = _LoggedSource(config, settings, log)

    async def serve() -> int:
        if config.workers > 1:
            return await Supervisor(config, source, log, _APPLICATION).run(on_listening)
        # Imports the engine, which a supervisor never needs.
        from omnigraph.server.application import GraphApplication

        return await SingleProcess(config, source, log, GraphApplication).run(on_listening)

    return run_to_end(serve())


class _LoggedSource(GenerationSource):
    """Says in the log what is read."""

    def __init__(self, config: ServerConfig, settings: Settings, log: RequestLog) -> None:
        super().__init__(config, settings)
        self._log = log

    def _noted(self, generation: Generation) -> Generation:
        log = self._log
        if generation.tokens:
            log.event("token source loaded", source="env-or-file", actors=len(generation.tokens))
        if generation.state in _STATE_WARNINGS:
            log.event(_STATE_WARNINGS[generation.state], level=WARNING)
        for warning in generation.plan.warnings:
            log.event("cluster startup diagnostic", level=WARNING, message=warning)
        return generation

    def _keeping(
        self, generation: Generation, before: Generation, kept: Sequence[KeptGraph]
    ) -> Generation:
        for graph in kept:
            self._log.event(
                "graph keeps its earlier state",
                level=WARNING,
                graph_id=graph.graph_id,
                code=graph.code,
                error=graph.message,
            )
        return super()._keeping(generation, before, kept)
