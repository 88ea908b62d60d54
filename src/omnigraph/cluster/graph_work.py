"""The part of an apply that moves graphs: creating, migrating and deleting them.

Each operation writes its sidecar first. After the first failure nothing further is moved in the
run. A failed operation keeps its sidecar, unless the graph is provably as it was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from omnigraph.cluster.desired import DesiredState
from omnigraph.cluster.diagnostics import ClusterStop, DiagnosticLog
from omnigraph.cluster.ledger import ApprovalArtifact, ClusterSidecar
from omnigraph.cluster.lock import LockGuard
from omnigraph.cluster.observe import look_at_graph
from omnigraph.cluster.resources import content_digest
from omnigraph.cluster.sidecars import new_sidecar, sidecar_path, with_outcome, write_sidecar
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.errors import AlreadyExists, OmniGraphError, StorageError
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph

_BATCH = 200
"""Objects that are deleted between two checks of the lock."""


@dataclass(frozen=True, slots=True)
class FinishedWork:
    """What was done to graphs, to be recorded."""

    sidecars: list[ClusterSidecar] = field(default_factory=list)
    deleted: dict[str, ApprovalArtifact] = field(default_factory=dict)
    operations: dict[str, str] = field(default_factory=dict)


class GraphWork:
    """The operations on graphs of one apply."""

    def __init__(
        self,
        storage: ClusterStorage,
        guard: LockGuard,
        desired: DesiredState,
        log: DiagnosticLog,
        actor: str | None,
        cas: str | None,
    ) -> None:
        self._storage = storage
        self._guard = guard
        self._desired = desired
        self._log = log
        self._actor = actor
        self._cas = cas
        self.failed: dict[str, str] = {}
        """The address of each change that failed or was skipped, with the reason."""
        self.finished = FinishedWork()

    def _is_skipped(self, address: str, code: str) -> bool:
        if not self.failed:
            return False
        self._log.warning(code, address, "skipped, because an operation on a graph failed before")
        self.failed[address] = code
        return True

    def _fail(self, address: str, code: str, message: str) -> None:
        self._log.error(code, address, message)
        self.failed[address] = code

    # -- creating ----------------------------------------------------------------------------

    def create(self, graph: str, *, restarts: bool) -> None:
        """Create a graph; ``restarts`` where an interrupted creation left files without data."""
        from omnigraph.api.graph import Graph

        address = f"graph.{graph}"
        if self._is_skipped(address, "graph_create_skipped"):
            return
        schema = self._desired.resources[f"schema.{graph}"]
        sidecar = new_sidecar(
            self._storage,
            "graph_create",
            graph,
            desired=schema.digest,
            actor=self._actor,
            cas=self._cas,
        )
        write_sidecar(self._storage, self._guard, sidecar)
        reached(Failpoint.CLUSTER_BEFORE_CREATE)
        self._guard.check()
        try:
            with Graph.init(
                self._storage.graph_uri(graph),
                self._desired.schema_text(graph),
                force=restarts,
                actor=self._actor,
                storage_options=self._storage.options,
                local_files=False,
            ) as created:
                version = created.snapshot().version
        except AlreadyExists as error:
            # Somebody else made it: nothing was changed, so there is nothing to recover.
            message = f"{error.message}; run `omnigraph cluster refresh` to adopt the graph"
            self._fail(address, "graph_create_failed", message)
            self._discard(sidecar)
            return
        except OmniGraphError as error:
            self._fail(address, "graph_create_failed", error.message)
            return
        reached(Failpoint.CLUSTER_AFTER_CREATE)
        write_sidecar(self._storage, self._guard, with_outcome(sidecar, version))
        self.finished.sidecars.append(sidecar)

    # -- migrating ---------------------------------------------------------------------------

    def migrate(self, graph: str) -> None:
        """Change the schema of a graph; dropped data stays in earlier versions."""
        address = f"schema.{graph}"
        if self._is_skipped(address, "schema_apply_skipped"):
            return
        try:
            with self._open(graph) as opened:
                self._migrate(graph, opened)
        except OmniGraphError as error:
            self._fail(address, "schema_apply_failed", error.message)

    @contextmanager
    def _open(self, graph: str) -> Iterator[Graph]:
        from omnigraph.api.graph import Graph

        self._guard.check()
        with Graph.open(
            self._storage.graph_uri(graph),
            actor=self._actor,
            storage_options=self._storage.options,
            local_files=False,
        ) as opened:
            yield opened

    def _migrate(self, graph: str, opened: Graph) -> None:
        address, text = f"schema.{graph}", self._desired.schema_text(graph)
        preview = opened.schema.apply(text, dry_run=True)
        if preview.violations:
            first = preview.violations[0]
            message = f"existing rows do not fit: {first.table_key}: {first.message}"
            self._fail(address, "schema_apply_failed", message)
            return
        before = opened.schema.text()
        sidecar = new_sidecar(
            self._storage,
            "schema_apply",
            graph,
            desired=self._desired.resources[address].digest,
            actor=self._actor,
            cas=self._cas,
            manifest_version=opened.snapshot().version,
        )
        write_sidecar(self._storage, self._guard, sidecar)
        reached(Failpoint.CLUSTER_BEFORE_SCHEMA)
        self._guard.check()
        try:
            applied = opened.schema.apply(text)
        except OmniGraphError as error:
            self._fail(address, "schema_apply_failed", error.message)
            self._discard_if_unchanged(graph, sidecar, before)
            return
        reached(Failpoint.CLUSTER_AFTER_SCHEMA)
        outcome = with_outcome(sidecar, applied.manifest_version)
        write_sidecar(self._storage, self._guard, outcome)
        self.finished.sidecars.append(sidecar)

    def _discard_if_unchanged(self, graph: str, sidecar: ClusterSidecar, before: str) -> None:
        """Remove the sidecar of a migration that provably changed nothing."""
        try:
            live = look_at_graph(self._storage, graph)
        except ClusterStop:
            return
        is_unchanged = live.manifest_version == sidecar.observed_manifest_version
        if is_unchanged and live.digest == content_digest(before.encode("utf-8")):
            self._discard(sidecar)

    def _discard(self, sidecar: ClusterSidecar) -> None:
        path = sidecar_path(sidecar)
        try:
            self._guard.check()
            self._storage.objects.delete(path)
        except StorageError as error:
            self._log.warning("recovery_sidecar_cleanup_failed", path, error.message)

    # -- deleting ----------------------------------------------------------------------------

    def delete(self, graph: str, approval: ApprovalArtifact) -> None:
        """Delete a graph with everything in it."""
        address = f"graph.{graph}"
        if self._is_skipped(address, "graph_delete_skipped"):
            return
        sidecar = new_sidecar(
            self._storage,
            "graph_delete",
            graph,
            desired="",
            actor=self._actor,
            cas=self._cas,
            approval=approval.approval_id,
        )
        write_sidecar(self._storage, self._guard, sidecar)
        reached(Failpoint.CLUSTER_BEFORE_DELETE)
        self._guard.check()
        try:
            self._delete_root(f"graphs/{graph}.omni")
        except StorageError as error:
            self._fail(address, "graph_delete_failed", error.message)
            return
        reached(Failpoint.CLUSTER_AFTER_DELETE)
        self.finished.sidecars.append(sidecar)
        self.finished.deleted[graph] = approval
        self.finished.operations[graph] = sidecar.operation_id

    def _delete_root(self, root: str) -> None:
        objects = self._storage.objects
        # The manifest first: what is left of an interrupted deletion is no graph any more.
        names = sorted(objects.sizes_below(root), key=lambda name: "/__manifest/" not in name)
        for start in range(0, len(names), _BATCH):
            self._guard.check()
            objects.delete_all(names[start : start + _BATCH])
        self._guard.check()
        objects.delete_prefix(root)
