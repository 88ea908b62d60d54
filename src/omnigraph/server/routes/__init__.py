"""The table of routes: everything that a request can be, and what each needs.

Routing, authorisation, admission, body limits, metrics, the OpenAPI document and
``docs/http-api.md`` are all made from this table.
"""

from __future__ import annotations

from omnigraph.server.routes.agents import AGENT_ROUTES
from omnigraph.server.routes.blobs import BLOB_ROUTES
from omnigraph.server.routes.branching import BRANCH_ROUTES
from omnigraph.server.routes.deploying import DEPLOYMENT_ROUTES
from omnigraph.server.routes.evolving import PLAN_ROUTES
from omnigraph.server.routes.history import HISTORY_ROUTES, ROW_ROUTES
from omnigraph.server.routes.maintaining import JOB_ROUTES, MAINTENANCE_ROUTES
from omnigraph.server.routes.policing import POLICY_ROUTES
from omnigraph.server.routes.reading import READ_ROUTES
from omnigraph.server.routes.serving import SERVER_ROUTES
from omnigraph.server.routes.shape import Lane, Route
from omnigraph.server.routes.writing import WRITE_ROUTES

__all__ = ["ROUTES", "Lane", "Route"]

ROUTES: tuple[Route, ...] = (
    *SERVER_ROUTES,
    *READ_ROUTES,
    *WRITE_ROUTES,
    *BRANCH_ROUTES,
    *HISTORY_ROUTES,
    *ROW_ROUTES,
    *BLOB_ROUTES,
    *DEPLOYMENT_ROUTES,
    *PLAN_ROUTES,
    *MAINTENANCE_ROUTES,
    *JOB_ROUTES,
    *POLICY_ROUTES,
    *AGENT_ROUTES,
)
