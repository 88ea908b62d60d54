"""The next ledger while a command works on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.cluster.desired import DesiredResource
from omnigraph.cluster.ledger import (
    AppliedRevision,
    ApprovalRecord,
    GraphObservation,
    LedgerResource,
    LedgerState,
    RecoveryRecord,
    ResourceStatus,
    TombstoneObservation,
)
from omnigraph.cluster.resources import address_parts, graph_digest, owner_of
from omnigraph.cluster.storage import timestamp

APPLIED = ResourceStatus("applied")


class LedgerDraft:
    """A copy of a ledger that can be changed."""

    def __init__(self, state: LedgerState) -> None:
        self._base = state
        self.config_digest = state.applied_revision.config_digest
        self.resources = dict(state.resources)
        self.statuses = dict(state.resource_statuses)
        self.approvals = dict(state.approval_records)
        self.recoveries = dict(state.recovery_records)
        self.observations = dict(state.observations)
        self._underived: set[str] = set()

    def state(self, revision: int | None = None) -> LedgerState:
        """The ledger as it is now, with another revision if one is given."""
        self._derive()
        return LedgerState(
            self._base.version,
            AppliedRevision(self.resources, self.config_digest),
            self._base.state_revision if revision is None else revision,
            self.statuses,
            self.approvals,
            self.recoveries,
            self.observations,
        )

    @property
    def is_changed(self) -> bool:
        return self.state() != self._base

    # -- resources ---------------------------------------------------------------------------

    def record(self, resource: DesiredResource) -> None:
        """Record a resource as applied."""
        self.resources[resource.address] = LedgerResource(
            resource.digest, resource.provider, resource.bindings, resource.profile
        )
        self.statuses[resource.address] = APPLIED

    def forget(self, address: str) -> None:
        self.resources.pop(address, None)
        self.statuses.pop(address, None)

    def set_status(self, addresses: Iterable[str], status: ResourceStatus) -> None:
        for address in addresses:
            self.statuses[address] = status

    def record_schema(self, graph: str, digest: str) -> None:
        """Record the schema of a graph that exists, and the graph itself."""
        self.resources[f"schema.{graph}"] = LedgerResource(digest)
        existing = self.resources.get(f"graph.{graph}")
        provider = None if existing is None else existing.embedding_provider
        self.resources[f"graph.{graph}"] = LedgerResource("", provider)
        self.recompute(graph)

    def recompute(self, graph: str) -> None:
        """Derive the digest of a graph from what the ledger has of it when it is asked for."""
        self._underived.add(graph)

    def _derive(self) -> None:
        """Derive what is to be derived, in one pass over all resources."""
        graphs, self._underived = self._underived, set()
        if not graphs:
            return
        queries: dict[str, dict[str, str]] = {graph: {} for graph in graphs}
        for key, resource in self.resources.items():
            kind, names = address_parts(key)
            if kind == "query" and names[0] in queries:
                queries[names[0]][names[1]] = resource.digest
        for graph in graphs:
            self._derive_digest(graph, queries[graph])

    def _derive_digest(self, graph: str, queries: Mapping[str, str]) -> None:
        address = f"graph.{graph}"
        existing, schema = self.resources.get(address), self.resources.get(f"schema.{graph}")
        if existing is None or schema is None:
            return
        provider = existing.embedding_provider
        bound = None
        if provider is not None and provider in self.resources:
            bound = (provider, self.resources[provider].digest)
        digest = graph_digest(graph, schema.digest, queries, bound)
        self.resources[address] = LedgerResource(digest, provider)

    def set_provider(self, graph: str, provider: str | None) -> None:
        existing = self.resources[f"graph.{graph}"]
        self.resources[f"graph.{graph}"] = LedgerResource(existing.digest, provider)

    # -- events ------------------------------------------------------------------------------

    def observe(self, observation: GraphObservation) -> None:
        self.observations[observation.address] = observation

    def tombstone(self, graph: str, approval: str | None, actor: str | None) -> None:
        """Remove a graph, its schema and its queries; its policies stay."""
        for address in [key for key in self.resources if owner_of(key) == graph]:
            self.forget(address)
        for address in [key for key in self.statuses if owner_of(key) == graph]:
            del self.statuses[address]
        self.observations[f"graph.{graph}"] = TombstoneObservation(timestamp(), approval, actor)

    def consume(self, approval: str, operation: str) -> None:
        self.approvals.setdefault(approval, ApprovalRecord(timestamp(), operation))

    def recovered(self, operation: str, kind: str, graph: str, actor: str | None) -> None:
        self.recoveries[operation] = RecoveryRecord(
            kind, graph, "rolled_forward", timestamp(), actor
        )
