"""``graph.deployments`` of the async client."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.api.arguments import Positive, public
from omnigraph.remote import deployments
from omnigraph.remote.async_namespaces import AsyncRemoteCalls
from omnigraph.remote.deployments import Deployment


class AsyncRemoteDeployments:
    """The deployments of the cluster of a server, as ``graph.deployments``."""

    def __init__(self, calls: AsyncRemoteCalls) -> None:
        self._calls = calls

    @public
    async def list(self, *, limit: Positive = 20) -> list[Deployment]:
        """The newest deployments, newest first, without their reports.

        Raises:
            PolicyDenied: the token does not allow it.
        """
        request = deployments.list_newest(limit)
        return await self._calls.send(request, deployments.deployments_of)

    @public
    async def get(self, deployment_id: str) -> Deployment:
        """One deployment with its report.

        Raises:
            NotFound: there is no such deployment.
            PolicyDenied: the token does not allow it.
        """
        return await self._calls.send(deployments.show(deployment_id), deployments.deployment_of)

    @public
    async def apply(self, files: Mapping[str, str], *, plan: str | None = None) -> Deployment:
        """Apply a configuration: ``cluster.yaml`` and every file that it names, as texts by name.

        See ``RemoteDeployments.apply``.

        Raises:
            InputError: the files have invalid names, or ``cluster.yaml`` is missing.
            PolicyDenied: the token does not allow it.
            OutcomePending: there was no answer, so the outcome is not known.
        """
        request = deployments.apply(files, plan)
        return await self._calls.send(request, deployments.deployment_of)
