"""The routes of schema changes that are only planned."""

from __future__ import annotations

from omnigraph.server.handlers import evolving
from omnigraph.server.models.evolving import SchemaPlanOutput, SchemaPlanRequest
from omnigraph.server.routes.shape import Route, of_graph

PLAN_ROUTES: tuple[Route, ...] = (
    of_graph(
        "POST",
        "/schema/plan",
        "plan_schema",
        "Show the steps to another schema",
        "schema",
        "read",
        evolving.plan_schema,
        request=SchemaPlanRequest,
        response=SchemaPlanOutput,
        since="1",
    ),
)
