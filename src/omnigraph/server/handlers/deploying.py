"""Applies of configurations, and the records of them."""

from __future__ import annotations

from omnigraph.cluster.plan_file import read_plan
from omnigraph.cluster.sent_bundle import received_bundle
from omnigraph.server.calls import Call, Reply
from omnigraph.server.deploying import Deployer
from omnigraph.server.errors import RequestRefused
from omnigraph.server.models.deploying import (
    ClusterApplyRequest,
    DeploymentListOutput,
    DeploymentOutput,
    DeploymentParameters,
)

SENT = "sent configuration"
"""The name of the directory in reports."""


def apply_cluster(call: Call) -> Reply:
    """Apply what was sent; in force everywhere on return."""
    request: ClusterApplyRequest = call.body
    deployer = _deployer(call)
    bundle = received_bundle(SENT, request.files)
    reviewed = None if request.plan is None else read_plan(request.plan, "plan")
    return Reply.json(DeploymentOutput.of(deployer.apply(bundle, call.actor, reviewed)))


def list_deployments(call: Call) -> Reply:
    """The newest deployments, without their reports."""
    parameters: DeploymentParameters = call.query
    records = _deployer(call).records.newest(parameters.limit)
    outputs = [DeploymentOutput.of(record, is_whole=False) for record in records]
    return Reply.json(DeploymentListOutput(outputs))


def get_deployment(call: Call) -> Reply:
    """One deployment with its report."""
    record = _deployer(call).records.read(call.path["deployment_id"])
    if record is None:
        raise RequestRefused(404, "deployment_not_found", "deployment not found")
    return Reply.json(DeploymentOutput.of(record))


def _deployer(call: Call) -> Deployer:
    deployer = call.process.deployer
    if deployer is None:
        raise RequestRefused(
            409,
            "not_a_cluster",
            "this server serves a single graph, not a cluster",
            hint="start it with omnigraph-server --cluster",
        )
    return deployer
