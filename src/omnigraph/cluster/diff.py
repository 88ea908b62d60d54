"""The difference between the desired state and the ledger, and what it reaches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from omnigraph.cluster.desired import DesiredResource, DesiredState
from omnigraph.cluster.ledger import LedgerResource, LedgerState
from omnigraph.cluster.resources import Dependency, kind_of, normal_bindings, owner_of
from omnigraph.records import dataclass

Operation = Literal["create", "update", "delete"]
Disposition = Literal["applied", "derived", "deferred", "blocked"]
MetadataChange = Literal["policy_bindings", "embedding_profile"]

APPROVAL_REASON = "deletes the graph and all of its data"
SCHEMA_REASON = "deletes the schema of a graph that stays"


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """One difference, and what a command does with it."""

    resource: str
    operation: Operation
    before: str | None = None
    after: str | None = None
    disposition: Disposition | None = None
    reason: str | None = None
    metadata: MetadataChange | None = None
    migration: Mapping[str, Any] | None = None

    @property
    def is_binding_change(self) -> bool:
        return self.metadata == "policy_bindings"

    def to_json(self) -> dict[str, Any]:
        """Plain data, keys in a fixed order; absent values are omitted."""
        document: dict[str, Any] = {"resource": self.resource, "operation": self.operation}
        fields = {
            "before_digest": self.before,
            "after_digest": self.after,
            "disposition": self.disposition,
            "reason": self.reason,
            "binding_change": self.is_binding_change or None,
            "metadata_change": self.metadata,
            "migration": self.migration,
        }
        return document | {name: value for name, value in fields.items() if value is not None}


def diff_states(desired: DesiredState, state: LedgerState) -> list[ResourceChange]:
    """Every difference, sorted by resource."""
    changes = []
    for address in sorted({*desired.resources, *state.resources}):
        wanted, applied = desired.resources.get(address), state.resources.get(address)
        if wanted is None:
            assert applied is not None
            changes.append(ResourceChange(address, "delete", applied.digest))
        elif applied is None:
            changes.append(ResourceChange(address, "create", None, wanted.digest))
        else:
            metadata = _metadata_change(wanted, applied)
            if wanted.digest != applied.digest or metadata is not None:
                changes.append(
                    ResourceChange(
                        address, "update", applied.digest, wanted.digest, metadata=metadata
                    )
                )
    return changes


def _metadata_change(wanted: DesiredResource, applied: LedgerResource) -> MetadataChange | None:
    if wanted.bindings is not None:
        # A ledger of an early release has no bindings: they are recorded.
        recorded = None if applied.applies_to is None else normal_bindings(applied.applies_to)
        return "policy_bindings" if recorded != wanted.bindings else None
    if wanted.profile is not None and applied.embedding_profile != wanted.profile:
        return "embedding_profile"
    return None


def gated_changes(changes: Sequence[ResourceChange]) -> Iterator[tuple[ResourceChange, str]]:
    """The changes that need an approval, with the reason."""
    deleted = {change.resource for change in changes if change.operation == "delete"}
    for change in changes:
        if change.operation != "delete":
            continue
        kind = kind_of(change.resource)
        if kind == "graph":
            yield change, APPROVAL_REASON
        elif kind == "schema" and f"graph.{owner_of(change.resource)}" not in deleted:
            yield change, SCHEMA_REASON


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """The resources that depend directly on one that changes."""

    resource: str
    affected: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"resource": self.resource, "affected": list(self.affected)}


def blast_radius(
    changes: Collection[ResourceChange],
    dependencies: Collection[Dependency],
    state: LedgerState,
) -> list[BlastRadius]:
    """What depends on each change, in the configuration and in the ledger."""
    dependents: dict[str, set[str]] = {}
    for edge in (*dependencies, *_recorded_dependencies(state)):
        dependents.setdefault(edge.target, set()).add(edge.source)
    return [
        BlastRadius(change.resource, tuple(sorted(affected)))
        for change in changes
        if (affected := dependents.get(change.resource))
    ]


def _recorded_dependencies(state: LedgerState) -> Iterator[Dependency]:
    for address, resource in state.resources.items():
        kind, owner = kind_of(address), owner_of(address)
        if kind in ("schema", "query"):
            yield Dependency(address, f"graph.{owner}")
        if kind == "query":
            yield Dependency(address, f"schema.{owner}")
        for binding in resource.applies_to or ():
            if binding.startswith("graph."):
                yield Dependency(address, binding)
        if resource.embedding_provider is not None:
            yield Dependency(address, resource.embedding_provider)
