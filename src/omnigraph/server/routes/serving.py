"""The routes of the server itself."""

from __future__ import annotations

from functools import partial

from omnigraph.server.bodies import DEFAULT_LIMIT
from omnigraph.server.handlers import serving
from omnigraph.server.metrics import CONTENT_TYPE as METRICS_TYPE
from omnigraph.server.models import responses
from omnigraph.server.routes.shape import Route, ask, nothing

SERVER_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "/healthz",
        "health",
        "Check that the process runs",
        "health",
        None,
        "open",
        "inline",
        serving.health,
        nothing,
        response=responses.HealthOutput,
    ),
    Route(
        "GET",
        "/readyz",
        "ready",
        "Show what is served",
        "health",
        None,
        "open",
        "inline",
        serving.ready,
        nothing,
        response=responses.ReadinessOutput,
        statuses=(503,),
        since="1",
    ),
    Route(
        "GET",
        "/openapi.json",
        "openapi",
        "Get this document",
        "health",
        None,
        "open",
        "inline",
        serving.openapi,
        nothing,
        since="1",
    ),
    Route(
        "GET",
        "/metrics",
        "metrics",
        "Get the metrics of all processes",
        "management",
        "admin",
        "server",
        "inline",
        serving.metrics,
        partial(ask, action="admin"),
        content_type=METRICS_TYPE,
        free_on_loopback=True,
        since="1",
    ),
    Route(
        "POST",
        "/reload",
        "reload",
        "Read tokens, policies and the list of graphs again",
        "management",
        "config_manage",
        "server",
        "inline",
        serving.reload,
        partial(ask, action="config_manage"),
        body_limit=DEFAULT_LIMIT,
        body_type=None,
        response=responses.ReloadOutput,
        statuses=(409, 501, 503),
        since="1",
    ),
    Route(
        "GET",
        "/graphs",
        "listGraphs",
        "List the served graphs",
        "management",
        "graph_list",
        "server",
        "inline",
        serving.list_graphs,
        partial(ask, action="graph_list"),
        response=responses.GraphListResponse,
    ),
)
