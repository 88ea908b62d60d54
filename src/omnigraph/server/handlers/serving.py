"""The server itself: health, readiness, its document, graphs, metrics and reload."""

from __future__ import annotations

import omnigraph
from omnigraph.commit.rows import FORMAT_VERSION
from omnigraph.errors import ServerNotReady
from omnigraph.server.calls import Call, Reply
from omnigraph.server.errors import RequestRefused
from omnigraph.server.heads import API_VERSION
from omnigraph.server.metrics import CONTENT_TYPE
from omnigraph.server.models.responses import (
    GraphInfo,
    GraphListResponse,
    HealthOutput,
    ReloadOutput,
)
from omnigraph.server.readiness import readiness


def health(call: Call) -> Reply:
    """The process runs."""
    return Reply.json(HealthOutput("ok", omnigraph.__version__, FORMAT_VERSION, API_VERSION))


def ready(call: Call) -> Reply:
    """What is served, and whether anything is not."""
    process = call.process
    output = readiness(
        call.state,
        is_draining=process.is_draining,
        failure=process.reload_failure,
    )
    return Reply.json(output, 503 if output.status == "draining" else 200)


def openapi(call: Call) -> Reply:
    """The OpenAPI document; without security if the server has no tokens."""
    from omnigraph.server.openapi import document_bytes

    return Reply(document_bytes(is_open=call.state.tokens.is_empty))


def list_graphs(call: Call) -> Reply:
    """The served graphs that the actor may know of."""
    access = call.state.access
    graphs = [
        GraphInfo(graph_id, served.uri)
        for graph_id, served in sorted(call.state.graphs.items())
        if not access.hides_graph(graph_id, call.identity)
    ]
    return Reply.json(GraphListResponse(graphs))


async def metrics(call: Call) -> Reply:
    """The metrics of all processes, as Prometheus reads them."""
    process = call.process
    gather = process.gather_metrics
    body = process.metrics.render() if gather is None else await gather()
    return Reply(body, content_type=CONTENT_TYPE)


async def reload(call: Call) -> Reply:
    """Read tokens, policies and the list of graphs again; in force everywhere on return."""
    if call.process.reload is None:
        raise RequestRefused(501, "reload_unavailable", "this server cannot reload")
    try:
        await call.process.reload()
    except ServerNotReady as error:
        # The reason names files of the server, so it is only in the log.
        raise RequestRefused(
            409,
            "reload_refused",
            "the reload was refused, and the old state stays in force",
            hint="the log of the server says why",
        ) from error
    state = call.process.state
    return Reply.json(
        ReloadOutput(state.digest, state.revision, len(state.graphs), len(state.unserved))
    )
