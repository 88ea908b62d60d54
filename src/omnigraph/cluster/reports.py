"""What the commands report: records with JSON in a fixed order of fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from omnigraph.cluster.desired import DesiredResource
from omnigraph.cluster.diagnostics import ClusterDiagnostic
from omnigraph.cluster.diff import BlastRadius, ResourceChange
from omnigraph.cluster.location import LEDGER
from omnigraph.cluster.lock import LockRead
from omnigraph.cluster.resources import Dependency, kind_of
from omnigraph.cluster.state_file import LedgerRead
from omnigraph.cluster.storage import LOCK, ClusterStorage
from omnigraph.records import dataclass

Diagnostics = tuple[ClusterDiagnostic, ...]


def is_ok(diagnostics: Diagnostics) -> bool:
    return all(diagnostic.severity != "error" for diagnostic in diagnostics)


def _diagnostics_json(diagnostics: Diagnostics) -> list[dict[str, str]]:
    return [diagnostic.to_json() for diagnostic in diagnostics]


@dataclass(frozen=True, slots=True)
class StateObservations:
    """The ledger and the lock as a command saw them."""

    state_path: str
    lock_path: str
    has_state: bool = False
    config_digest: str | None = None
    revision: int = 0
    cas: str | None = None
    resource_count: int = 0
    foreign_lock: LockRead | None = None
    acquired: str | None = None

    @classmethod
    def of(
        cls,
        storage: ClusterStorage,
        ledger: LedgerRead,
        foreign: LockRead | None = None,
        acquired: str | None = None,
    ) -> StateObservations:
        return cls(
            storage.path(LEDGER),
            storage.path(LOCK),
            ledger.exists,
            ledger.state.applied_revision.config_digest,
            ledger.state.state_revision,
            ledger.cas,
            len(ledger.state.resources),
            foreign,
            acquired,
        )

    def to_json(self) -> dict[str, Any]:
        lock = self.foreign_lock
        fields: dict[str, Any] = {
            "state_path": self.state_path,
            "lock_path": self.lock_path,
            "state_found": self.has_state,
            "applied_config_digest": self.config_digest,
            "state_revision": self.revision,
            "state_cas": self.cas,
            "resource_count": self.resource_count,
            "locked": lock is not None,
            "lock_id": lock and lock.record.lock_id,
            "lock_acquired": self.acquired is not None,
            "acquired_lock_id": self.acquired,
            "lock_operation": lock and lock.record.operation,
            "lock_created_at": lock and lock.record.created_at,
            "lock_pid": lock and lock.record.pid,
            "lock_age_seconds": lock and lock.age_seconds,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ValidateReport:
    """What a configuration declares, and everything that is wrong with it."""

    config_dir: str
    config_file: str
    resources: Mapping[str, DesiredResource]
    dependencies: tuple[Dependency, ...]
    diagnostics: Diagnostics

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "config_dir": self.config_dir,
            "config_file": self.config_file,
            "resource_digests": {key: self.resources[key].digest for key in self.resources},
            "resources": [
                {"address": resource.address, "kind": kind_of(key), "digest": resource.digest}
                | ({} if resource.path is None else {"path": resource.path})
                for key, resource in self.resources.items()
            ],
            "dependencies": [edge.to_json() for edge in self.dependencies],
            "diagnostics": _diagnostics_json(self.diagnostics),
        }


@dataclass(frozen=True, slots=True)
class ApprovalGate:
    """A change that needs an approval, and whether it has one."""

    resource: str
    reason: str
    is_satisfied: bool

    def to_json(self) -> dict[str, Any]:
        return {"resource": self.resource, "reason": self.reason, "satisfied": self.is_satisfied}


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What an apply would do now."""

    config_dir: str
    config_digest: str | None
    resource_digests: Mapping[str, str]
    dependencies: tuple[Dependency, ...]
    state: StateObservations
    changes: tuple[ResourceChange, ...] = ()
    blast: tuple[BlastRadius, ...] = ()
    gates: tuple[ApprovalGate, ...] = ()
    diagnostics: Diagnostics = ()
    policy_changes: tuple[Mapping[str, Any], ...] = ()
    broken_queries: tuple[Mapping[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "config_dir": self.config_dir,
            "desired_revision": revision_json(self.config_digest),
            "resource_digests": dict(self.resource_digests),
            "dependencies": [edge.to_json() for edge in self.dependencies],
            "state_observations": self.state.to_json(),
            "changes": [change.to_json() for change in self.changes],
            "blast_radius": [entry.to_json() for entry in self.blast],
            "approvals_required": [gate.to_json() for gate in self.gates],
            "diagnostics": _diagnostics_json(self.diagnostics),
            "authority": "observed",
            "policy_changes": [dict(change) for change in self.policy_changes],
            "broken_queries": [dict(query) for query in self.broken_queries],
        }


def revision_json(config_digest: str | None) -> dict[str, str]:
    return {} if config_digest is None else {"config_digest": config_digest}


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """What an apply did."""

    config_dir: str
    actor: str | None
    config_digest: str | None
    state: StateObservations
    changes: tuple[ResourceChange, ...] = ()
    is_converged: bool = False
    is_written: bool = False
    statuses: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Diagnostics = ()

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    def noting(self, diagnostics: Iterable[ClusterDiagnostic]) -> ApplyReport:
        """The report with further problems."""
        return replace(self, diagnostics=(*self.diagnostics, *diagnostics))

    @property
    def applied_count(self) -> int:
        return sum(change.disposition in ("applied", "derived") for change in self.changes)

    @property
    def deferred_count(self) -> int:
        return len(self.changes) - self.applied_count

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "config_dir": self.config_dir,
            **({} if self.actor is None else {"actor": self.actor}),
            "desired_revision": revision_json(self.config_digest),
            "state_observations": self.state.to_json(),
            "changes": [change.to_json() for change in self.changes],
            "applied_count": self.applied_count,
            "deferred_count": self.deferred_count,
            "converged": self.is_converged,
            "state_written": self.is_written,
            "resource_statuses": dict(self.statuses),
            "diagnostics": _diagnostics_json(self.diagnostics),
        }


@dataclass(frozen=True, slots=True)
class ApproveReport:
    """An approval, if one was written."""

    config_dir: str
    approval_id: str | None = None
    resource: str | None = None
    operation: str | None = None
    approved_by: str | None = None
    diagnostics: Diagnostics = ()

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        fields = {
            "approval_id": self.approval_id,
            "resource": self.resource,
            "operation": self.operation,
            "approved_by": self.approved_by,
        }
        given = {name: value for name, value in fields.items() if value is not None}
        return {
            "ok": self.ok,
            "config_dir": self.config_dir,
            **given,
            "diagnostics": _diagnostics_json(self.diagnostics),
        }


@dataclass(frozen=True, slots=True)
class StateReport:
    """The ledger after a status, a refresh or an import."""

    operation: str
    config_dir: str
    state: StateObservations
    resource_digests: Mapping[str, str] = field(default_factory=dict)
    statuses: Mapping[str, Any] = field(default_factory=dict)
    observations: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: Diagnostics = ()

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            **({} if self.operation == "status" else {"operation": self.operation}),
            "config_dir": self.config_dir,
            "state_observations": self.state.to_json(),
            "resource_digests": dict(self.resource_digests),
            "resource_statuses": dict(self.statuses),
            "observations": dict(self.observations),
            "diagnostics": _diagnostics_json(self.diagnostics),
        }


@dataclass(frozen=True, slots=True)
class UnlockReport:
    """Whether a lock was removed."""

    config_dir: str
    state: StateObservations
    is_removed: bool = False
    diagnostics: Diagnostics = ()

    @property
    def ok(self) -> bool:
        return is_ok(self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "config_dir": self.config_dir,
            "state_observations": self.state.to_json(),
            "lock_removed": self.is_removed,
            "diagnostics": _diagnostics_json(self.diagnostics),
        }
