"""``Deployer``: runs ``cluster apply`` in the writer process, for a client that sent the files.

It is the same function under the same lock as on the command line. The outcome is recorded beside
the ledger before and after, and put in force in all processes before the client has its answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.bundle import MemoryBundle
from omnigraph.cluster.deployments import (
    NOT_IN_FORCE,
    STATE_KEPT,
    DeploymentRecord,
    Deployments,
    new_deployment,
)
from omnigraph.cluster.diagnostics import ClusterDiagnostic, DiagnosticLog
from omnigraph.cluster.location import cluster_root
from omnigraph.cluster.plan_file import ReviewedPlan
from omnigraph.cluster.reports import ApplyReport
from omnigraph.cluster.sent_bundle import check_references
from omnigraph.cluster.state_commands import no_state
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.errors import OmniGraphError, StorageError
from omnigraph.server.request_log import ERROR, RequestLog
from omnigraph.server.state import ServerState
from omnigraph.settings import Settings

_NOT_IN_FORCE_TEXT = (
    "it is applied, but the server keeps its former state; /readyz and the log of the server say "
    "why"
)
_AGAIN_SECONDS = 1.0
"""The pause before a record that could not be written is written again."""


class Deployer:
    """The applies of one server. Its methods run on threads."""

    def __init__(
        self,
        location: str,
        settings: Settings,
        log: RequestLog,
        reload: Callable[[], None],
        state: Callable[[], ServerState],
    ) -> None:
        self._location = location
        self._settings = settings
        self._log = log
        self._reload = reload
        self._state = state
        self._unwritten: dict[str, DeploymentRecord] = {}
        """Records that the store did not take; they are written as soon as it does."""
        self._noting = threading.Lock()
        self._writing: threading.Thread | None = None

    def _storage(self) -> ClusterStorage:
        return ClusterStorage(cluster_root(self._location), self._settings)

    @property
    def records(self) -> Deployments:
        return Deployments(self._storage())

    def apply(
        self, bundle: MemoryBundle, actor: str | None, reviewed: ReviewedPlan | None
    ) -> DeploymentRecord:
        """Apply a configuration, and put it in force."""
        storage = self._storage()
        records = Deployments(storage)
        deployment = new_deployment(actor, bundle.contents)
        # If that fails, nothing is applied.
        records.write(deployment)
        with suppress(OmniGraphError):
            records.prune()
        self._log.event("deployment began", deployment=deployment.id, actor=actor)
        try:
            report = self._run(bundle, storage, actor, reviewed)
        except BaseException:
            self._note(records, deployment.failed())
            raise
        deployment = deployment.ended(report)
        self._note(records, deployment)
        if report.state.has_state:
            deployment = self._put_in_force(deployment, report)
            self._note(records, deployment)
        self._log.event(
            "deployment ended",
            deployment=deployment.id,
            outcome=deployment.outcome,
            revision=deployment.revision,
            in_force=deployment.in_force,
        )
        return deployment

    def _note(self, records: Deployments, deployment: DeploymentRecord) -> None:
        """Write what became of a deployment. It happened, whether or not the store takes that."""
        with self._noting:
            self._unwritten[deployment.id] = deployment
        try:
            self._write(records)
        except StorageError as error:
            self._log.event(
                "record of a deployment is not written",
                level=ERROR,
                deployment=deployment.id,
                error=error.message,
            )
            self._write_later()

    def _write(self, records: Deployments) -> None:
        with self._noting:
            for record in list(self._unwritten.values()):
                records.write(record)
                del self._unwritten[record.id]

    def _write_later(self) -> None:
        """Try again beside the next requests, until the store takes the records."""

        def write() -> None:
            while self._unwritten:
                time.sleep(_AGAIN_SECONDS)
                with suppress(StorageError):
                    self._write(self.records)

        with self._noting:
            if self._writing is None or not self._writing.is_alive():
                self._writing = threading.Thread(
                    target=write, name="omnigraph-deployments", daemon=True
                )
                self._writing.start()

    def _run(
        self,
        bundle: MemoryBundle,
        storage: ClusterStorage,
        actor: str | None,
        reviewed: ReviewedPlan | None,
    ) -> ApplyReport:
        root = storage.location.uri
        log = DiagnosticLog()
        check_references(bundle, root, log)
        if not log.ok:
            return ApplyReport(bundle.name, actor, None, no_state(), diagnostics=log.entries)
        return apply_cluster(bundle, self._settings, root=root, actor=actor, reviewed=reviewed)

    def _put_in_force(self, deployment: DeploymentRecord, report: ApplyReport) -> DeploymentRecord:
        problems: list[ClusterDiagnostic] = []
        try:
            self._reload()
        except OmniGraphError as error:
            self._log.event(
                "deployment is not in force",
                level=ERROR,
                deployment=deployment.id,
                error=error.message,
            )
        state = self._state()
        is_in_force = (state.revision or 0) >= report.state.revision
        if not is_in_force:
            problems.append(ClusterDiagnostic(NOT_IN_FORCE, "server", _NOT_IN_FORCE_TEXT))
        for graph in state.kept.values():
            problems.append(
                ClusterDiagnostic(
                    STATE_KEPT,
                    f"graph.{graph.graph_id}",
                    f"the server keeps its former state of the graph: {graph.message}",
                    "warning",
                )
            )
        noted = report.noting(problems)
        return deployment.in_force_after(noted, is_in_force=is_in_force)
