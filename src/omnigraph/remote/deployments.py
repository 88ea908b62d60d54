"""Deployments of a server: their requests and records, and ``graph.deployments``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.api.arguments import Positive, public
from omnigraph.client.server import ServerRequest
from omnigraph.errors import InputError
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.remote.calls import RemoteCalls


@dataclass(frozen=True, slots=True)
class Deployment:
    """One apply of a configuration by a server. Times are those of RFC 3339."""

    deployment_id: str
    outcome: str
    """``running``, ``converged``, ``waiting``, ``failed`` or ``lost``."""
    actor: str | None
    started_at: str
    ended_at: str | None
    config_digest: str | None
    revision: int | None
    """The revision of the ledger after it."""
    in_force: bool | None
    """Whether the server serves it; ``None`` if that was not attempted."""
    files: Mapping[str, str]
    """The SHA-256 of each file that was sent."""
    report: Mapping[str, Any] | None = None
    """The JSON of ``cluster apply``; not in a list of deployments."""


def deployment_of(document: Any) -> Deployment:
    """A deployment of a response."""
    report = document.get("report")
    return Deployment(
        str(document["id"]),
        str(document["outcome"]),
        document["actor"],
        str(document["started_at"]),
        document["ended_at"],
        document["config_digest"],
        document["revision"],
        document["in_force"],
        dict(document["files"]),
        None if report is None else dict(report),
    )


def deployments_of(document: Any) -> list[Deployment]:
    """The deployments of a list."""
    return [deployment_of(item) for item in document["deployments"]]


# -- requests ---------------------------------------------------------------------------------


def list_newest(limit: int) -> ServerRequest:
    """The newest deployments of the cluster."""
    return ServerRequest("GET", ("deployments",), {"limit": str(limit)}, of_server=True)


def show(deployment_id: str) -> ServerRequest:
    """One deployment with its report."""
    return ServerRequest("GET", ("deployments", deployment_id), of_server=True)


def apply(files: Mapping[str, str], plan: str | None) -> ServerRequest:
    """A configuration to apply."""
    for name, text in files.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InputError("files must be texts by their names")
    body: dict[str, Any] = {"files": dict(files)}
    if plan is not None:
        body["plan"] = plan
    return ServerRequest("POST", ("cluster", "apply"), body=body, changes=True, of_server=True)


class RemoteDeployments:
    """The deployments of the cluster of a server, as ``graph.deployments``."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    @public
    def list(self, *, limit: Positive = 20) -> list[Deployment]:
        """The newest deployments, newest first, without their reports.

        Raises:
            PolicyDenied: the token does not allow it.
        """
        return self._calls.send(list_newest(limit), deployments_of)

    @public
    def get(self, deployment_id: str) -> Deployment:
        """One deployment with its report.

        Raises:
            NotFound: there is no such deployment.
            PolicyDenied: the token does not allow it.
        """
        return self._calls.send(show(deployment_id), deployment_of)

    @public
    def apply(self, files: Mapping[str, str], *, plan: str | None = None) -> Deployment:
        """Apply a configuration: ``cluster.yaml`` and every file that it names, as texts by name.

        ``plan`` is the text of a plan: exactly that is applied, or nothing. What is wrong with the
        files is in the report of the deployment; nothing was changed then.

        Raises:
            InputError: the files have invalid names, or ``cluster.yaml`` is missing.
            PolicyDenied: the token does not allow it.
            OutcomePending: there was no answer, so the outcome is not known.
        """
        return self._calls.send(apply(files, plan), deployment_of)
