"""Requests and responses about applies that a server runs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.cluster.deployments import DeploymentRecord
from omnigraph.server.models.responses import Json


class ClusterApplyRequest(msgspec.Struct, frozen=True):
    """A configuration: ``cluster.yaml`` and every file that it names."""

    files: dict[str, str]
    """The text of each file, by its name relative to ``cluster.yaml``."""
    plan: str | None = None
    """The text of a plan: apply exactly that, or nothing."""


class DeploymentParameters(msgspec.Struct, frozen=True):
    """How many deployments to list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20


class DeploymentOutput(msgspec.Struct, frozen=True):
    """One apply that the server has run, or runs."""

    id: str
    outcome: Literal["running", "converged", "waiting", "failed", "lost"]
    actor: str | None
    started_at: str
    ended_at: str | None
    config_digest: str | None
    revision: int | None
    in_force: bool | None
    files: dict[str, str]
    report: Json | UnsetType | None = UNSET

    @classmethod
    def of(cls, deployment: DeploymentRecord, *, is_whole: bool = True) -> DeploymentOutput:
        """A record as clients see it; the report only if it was asked for."""
        return cls(
            deployment.id,
            deployment.outcome,
            deployment.actor,
            deployment.started_at,
            deployment.ended_at,
            deployment.config_digest,
            deployment.revision,
            deployment.in_force,
            deployment.files,
            deployment.report if is_whole else UNSET,
        )


class DeploymentListOutput(msgspec.Struct, frozen=True):
    """Deployments, newest first."""

    deployments: list[DeploymentOutput]
