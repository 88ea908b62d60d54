"""The routes of applies and their records."""

from __future__ import annotations

from functools import partial

from omnigraph.server.bodies import LOAD_LIMIT
from omnigraph.server.handlers import deploying
from omnigraph.server.models.deploying import (
    ClusterApplyRequest,
    DeploymentListOutput,
    DeploymentOutput,
    DeploymentParameters,
)
from omnigraph.server.routes.shape import Route, ask

DEPLOYMENT_ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/cluster/apply",
        "applyCluster",
        "Apply a configuration to the cluster, and put it in force",
        "management",
        "config_manage",
        "server",
        "write",
        deploying.apply_cluster,
        partial(ask, action="config_manage"),
        body_limit=LOAD_LIMIT,
        request=ClusterApplyRequest,
        response=DeploymentOutput,
        takes_key=False,
        statuses=(409,),
        since="1",
    ),
    Route(
        "GET",
        "/deployments",
        "listDeployments",
        "List the newest applies by this server and others of the cluster",
        "management",
        "config_manage",
        "server",
        "read",
        deploying.list_deployments,
        partial(ask, action="config_manage"),
        query=DeploymentParameters,
        response=DeploymentListOutput,
        statuses=(409,),
        since="1",
    ),
    Route(
        "GET",
        "/deployments/{deployment_id}",
        "getDeployment",
        "Show one apply with its report",
        "management",
        "config_manage",
        "server",
        "read",
        deploying.get_deployment,
        partial(ask, action="config_manage"),
        response=DeploymentOutput,
        statuses=(404, 409),
        since="1",
    ),
)
