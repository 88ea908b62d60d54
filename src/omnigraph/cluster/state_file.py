"""The ledger as a file: its text, and writes that have exactly one winner.

A write succeeds only if the ledger is what the writer has read, also between processes and on local
disk. Whoever takes over an expired lock first advances the revision: a holder that was stopped
finds a ledger that it has not read, whatever it wants to write. So the revision is the token of the
fence, and the file has no field that the reference does not know.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.ledger import (
    AppliedRevision,
    GraphObservation,
    LedgerProblem,
    LedgerResource,
    LedgerState,
    ResourceStatus,
    read_state,
)
from omnigraph.cluster.location import LEDGER
from omnigraph.cluster.resources import profile_json
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.errors import StorageError, StorageMissing, StorageUnknown
from omnigraph.records import dataclass

MOST_REVISIONS = 2**63 - 1

EMPTY = LedgerState(1, AppliedRevision({}))


@dataclass(frozen=True, slots=True)
class LedgerRead:
    """A ledger as it was read; without a text there is none."""

    state: LedgerState = EMPTY
    text: str | None = None
    version: str | None = None

    @property
    def exists(self) -> bool:
        return self.text is not None

    @property
    def is_fence(self) -> bool:
        """Whether it only keeps a stopped ``import`` from writing: nothing was ever recorded."""
        return self.exists and self.state.state_revision == 0 and not self.state.resources

    @property
    def cas(self) -> str | None:
        return None if self.text is None else state_cas(self.text)


def state_cas(text: str) -> str:
    """The identity of a ledger in reports.

    >>> state_cas("")[:15]
    'sha256:e3b0c442'
    """
    return f"sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}"


def read_ledger(storage: ClusterStorage) -> LedgerRead:
    """The ledger of a cluster, empty if there is none; raises ``ClusterStop``."""
    if storage.is_missing:
        return LedgerRead()
    path = storage.path(LEDGER)
    try:
        stored = storage.objects.read_versioned(LEDGER)
        return LedgerRead(read_state(stored.text, path), stored.text, stored.version)
    except StorageMissing:
        return LedgerRead()
    except StorageError as error:
        raise ClusterStop("state_read_error", path, error.message) from error
    except LedgerProblem as problem:
        diagnostic = problem.diagnostic
        raise ClusterStop(diagnostic.code, diagnostic.path, diagnostic.message) from None


def write_ledger(storage: ClusterStorage, base: LedgerRead, state: LedgerState) -> LedgerRead:
    """Replace a ledger that nobody changed since it was read; raises ``ClusterStop``.

    The result has no version: a command writes once, and the next one reads again.
    """
    text, path = state_text(state), storage.path(LEDGER)
    try:
        won = _swap(storage, base, text)
        if not won:
            current = _current_text(storage)
            # Without an answer, a ledger with this text is the one that was sent.
            if won is not None or current != text:
                raise ClusterStop(
                    "state_cas_mismatch",
                    path,
                    "the ledger changed while the command ran (expected "
                    f"{base.cas or 'none'}, it is {(current and state_cas(current)) or 'none'}); "
                    "run the command again",
                )
    except StorageError as error:
        raise ClusterStop("state_write_error", path, error.message) from error
    return LedgerRead(state, text)


def _current_text(storage: ClusterStorage) -> str | None:
    try:
        return storage.objects.read(LEDGER)
    except StorageMissing:
        return None


def _swap(storage: ClusterStorage, base: LedgerRead, text: str) -> bool | None:
    """Whether the write succeeded; ``None`` if there was no answer."""
    try:
        if base.version is None:
            return storage.objects.create(LEDGER, text)
        return storage.objects.replace(LEDGER, text, base.version)
    except StorageUnknown:
        return None


def next_revision(state: LedgerState, path: str) -> int:
    """The revision of the next write; refused at the end of the range."""
    if state.state_revision >= MOST_REVISIONS:
        raise ClusterStop("state_write_error", path, "the ledger has no further revisions")
    return state.state_revision + 1


# -- text ----------------------------------------------------------------------------------------


def state_text(state: LedgerState) -> str:
    """The text of a ledger."""
    return json_text(state_json(state))


def json_text(document: dict[str, Any]) -> str:
    """A file of a cluster: two spaces, final newline."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def state_json(state: LedgerState) -> dict[str, Any]:
    revision: dict[str, Any] = {}
    if state.applied_revision.config_digest is not None:
        revision["config_digest"] = state.applied_revision.config_digest
    revision["resources"] = {
        address: resource_json(resource) for address, resource in sorted(state.resources.items())
    }
    return {
        "version": state.version,
        "state_revision": state.state_revision,
        "applied_revision": revision,
        "resource_statuses": statuses_json(state.resource_statuses),
        "approval_records": {
            key: {
                "consumed_at": record.consumed_at,
                "consumed_by_operation": record.consumed_by_operation,
            }
            for key, record in sorted(state.approval_records.items())
        },
        "recovery_records": {
            key: {
                "kind": record.kind,
                "graph_id": record.graph_id,
                "outcome": record.outcome,
                "recovered_at": record.recovered_at,
                "actor": record.actor,
            }
            for key, record in sorted(state.recovery_records.items())
        },
        "observations": observations_json(state),
    }


def resource_json(resource: LedgerResource) -> dict[str, Any]:
    document: dict[str, Any] = {"digest": resource.digest}
    if resource.embedding_provider is not None:
        document["embedding_provider"] = resource.embedding_provider
    if resource.applies_to is not None:
        document["applies_to"] = list(resource.applies_to)
    if resource.embedding_profile is not None:
        document["embedding_profile"] = profile_json(resource.embedding_profile)
    return document


def statuses_json(statuses: dict[str, ResourceStatus]) -> dict[str, Any]:
    documents: dict[str, Any] = {}
    for address, status in sorted(statuses.items()):
        document: dict[str, Any] = {"status": status.status}
        if status.conditions:
            document["conditions"] = list(status.conditions)
        if status.message is not None:
            document["message"] = status.message
        documents[address] = document
    return documents


def observations_json(state: LedgerState) -> dict[str, Any]:
    documents: dict[str, Any] = {}
    for address, observation in sorted(state.observations.items()):
        if isinstance(observation, GraphObservation):
            documents[address] = {
                "kind": "graph",
                "address": observation.address,
                "graph_uri": observation.graph_uri,
                "observed_at": observation.observed_at,
                "exists": observation.exists,
                "manifest_version": observation.manifest_version,
                "schema_digest": observation.schema_digest,
                "desired_schema_digest": observation.desired_schema_digest,
                "schema_matches_desired": observation.schema_matches_desired,
                "error": observation.error,
            }
        else:
            documents[address] = {
                "kind": "tombstone",
                "deleted_at": observation.deleted_at,
                "approval_id": observation.approval_id,
                "actor": observation.actor,
            }
    return documents
