"""What an apply does with each change: apply, derive, defer or block it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from omnigraph.cluster.desired import DesiredState
from omnigraph.cluster.diff import Disposition, ResourceChange
from omnigraph.cluster.ledger import LedgerState
from omnigraph.cluster.resources import kind_of, normal_bindings, owner_of

RECOVERY_PENDING = "cluster_recovery_pending"
APPROVAL_REQUIRED = "approval_required"
NOT_APPLIED = "dependency_not_applied"
UNSUPPORTED = "apply_unsupported_kind"

_Verdict = tuple[Disposition, str | None]
_APPLIED: _Verdict = ("applied", None)


def classify(
    changes: Sequence[ResourceChange],
    desired: DesiredState,
    state: LedgerState,
    *,
    pending: Collection[str],
    approved: Collection[str],
) -> list[ResourceChange]:
    """The changes with their dispositions.

    ``pending`` are graphs with an interrupted operation, ``approved`` the addresses of gated
    changes that somebody approved.
    """
    judge = _Judge(changes, desired, state, pending, approved)
    return [_judged(change, judge.verdict(change)) for change in changes]


def _judged(change: ResourceChange, verdict: _Verdict) -> ResourceChange:
    return replace(change, disposition=verdict[0], reason=verdict[1])


class _Judge:
    def __init__(
        self,
        changes: Sequence[ResourceChange],
        desired: DesiredState,
        state: LedgerState,
        pending: Collection[str],
        approved: Collection[str],
    ) -> None:
        self._changes: Mapping[str, ResourceChange] = {
            change.resource: change for change in changes
        }
        self._desired = desired
        self._state = state
        self._pending = pending
        self._approved = approved

    def verdict(self, change: ResourceChange) -> _Verdict:
        match kind_of(change.resource), change.operation:
            case "graph", "create":
                return self._unless_pending(change)
            case "graph", "update":
                is_ready = self._is_applied(f"schema.{owner_of(change.resource)}")
                return ("derived", None) if is_ready else ("deferred", UNSUPPORTED)
            case "graph", "delete":
                return self._graph_delete(change)
            case "schema", "create":
                graph = self._changes.get(f"graph.{owner_of(change.resource)}")
                if graph is not None and graph.operation == "create":
                    return self._unless_pending(change)
                return "blocked", RECOVERY_PENDING
            case "schema", "update":
                return self._unless_pending(change)
            case "schema" | "query", "delete":
                graph = self._changes.get(f"graph.{owner_of(change.resource)}")
                if graph is not None and graph.operation == "delete":
                    return self._graph_delete(graph)
                is_query = kind_of(change.resource) == "query"
                return _APPLIED if is_query else ("deferred", UNSUPPORTED)
            case "query", _:
                if owner_of(change.resource) in self._pending:
                    return "blocked", RECOVERY_PENDING
                is_ready = self._is_applied(f"schema.{owner_of(change.resource)}")
                return _APPLIED if is_ready else ("blocked", NOT_APPLIED)
            case "policy", _ if self._guards_kept_graph(change.resource):
                return "blocked", NOT_APPLIED
            case "policy", "delete":
                return _APPLIED
            case "policy", _:
                bindings = self._desired.resources[change.resource].bindings or ()
                graphs = {binding.removeprefix("graph.") for binding in bindings}
                is_pending = not graphs.isdisjoint(self._pending)
                return ("blocked", RECOVERY_PENDING) if is_pending else _APPLIED
            case "embedding_provider", "delete" if self._is_used(change.resource):
                return "blocked", NOT_APPLIED
            case "embedding_provider", _:
                return _APPLIED
        return "deferred", UNSUPPORTED

    def _guards_kept_graph(self, policy: str) -> bool:
        """Whether a policy is bound to a graph whose deletion waits: it stays as long as that."""
        for binding in guarded_graphs(self._state, policy):
            graph = self._changes.get(binding)
            if graph is None or graph.operation != "delete":
                continue
            if self._graph_delete(graph) != _APPLIED:
                return True
        return False

    def _is_used(self, provider: str) -> bool:
        """Whether a graph that keeps its recorded state uses a provider."""
        for graph in provider_users(self._state, provider):
            change = self._changes.get(graph)
            if change is None or self.verdict(change)[0] not in ("applied", "derived"):
                return True
        return False

    def _unless_pending(self, change: ResourceChange) -> _Verdict:
        is_pending = owner_of(change.resource) in self._pending
        return ("blocked", RECOVERY_PENDING) if is_pending else _APPLIED

    def _graph_delete(self, change: ResourceChange) -> _Verdict:
        if owner_of(change.resource) in self._pending:
            return "blocked", RECOVERY_PENDING
        if change.resource not in self._approved:
            return "blocked", APPROVAL_REQUIRED
        return _APPLIED

    def _is_applied(self, schema: str) -> bool:
        """Whether a schema is in force, or will be when the changes before it are made."""
        change = self._changes.get(schema)
        if change is None:
            return schema in self._state.resources
        return self.verdict(change)[0] == "applied"


def guarded_graphs(state: LedgerState, policy: str) -> tuple[str, ...]:
    """The addresses of the graphs that an applied policy is bound to."""
    applied = state.resources.get(policy)
    return () if applied is None else normal_bindings(applied.applies_to or ())


def provider_users(state: LedgerState, provider: str) -> tuple[str, ...]:
    """The addresses of the recorded graphs that use a provider."""
    return tuple(
        address
        for address, resource in state.resources.items()
        if resource.embedding_provider == provider
    )


def demote(
    changes: Sequence[ResourceChange],
    failed: Mapping[str, str],
    desired: DesiredState,
    state: LedgerState,
) -> list[ResourceChange]:
    """Block the changes of graphs whose operation failed, and what depends on them.

    ``failed`` maps the address of the change that failed to the reason.
    """
    graphs = {owner_of(address) for address in failed}
    demoted = []
    for change in changes:
        if change.resource in failed:
            demoted.append(_judged(change, ("blocked", failed[change.resource])))
        elif change.disposition in ("applied", "derived") and _depends(
            change, graphs, desired, state
        ):
            demoted.append(_judged(change, ("blocked", NOT_APPLIED)))
        else:
            demoted.append(change)
    return demoted


def _depends(
    change: ResourceChange,
    graphs: Collection[str | None],
    desired: DesiredState,
    state: LedgerState,
) -> bool:
    owner = owner_of(change.resource)
    if owner is not None:
        return owner in graphs
    if kind_of(change.resource) == "embedding_provider" and change.operation == "delete":
        users = provider_users(state, change.resource)
        return any(user.removeprefix("graph.") in graphs for user in users)
    if kind_of(change.resource) != "policy":
        return False
    wanted = desired.resources.get(change.resource)
    bindings = {*(wanted.bindings or () if wanted else ()), *guarded_graphs(state, change.resource)}
    return any(binding.removeprefix("graph.") in graphs for binding in bindings)
