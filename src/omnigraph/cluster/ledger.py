"""The files of a cluster as records: the ledger and the recovery sidecars.

Reading is strict: an unknown field, a repeated key or a name that could not be part of a path is an
error, because the file was written by another release, or by hand.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, TypeVar

import msgspec

from omnigraph.cluster.diagnostics import ClusterDiagnostic

STATE_VERSION = 1
SIDECAR_VERSION = 1
APPROVAL_VERSION = 1

_Record = TypeVar("_Record", bound=msgspec.Struct)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PARTS = {"graph": 1, "schema": 1, "query": 2, "policy": 1, "provider": 2}
"""The kinds of resources, and how many names their addresses have."""


class EmbeddingProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider of embeddings; its key is the name of a variable, ``${NAME}``."""

    kind: str = "openai-compatible"
    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None


class LedgerResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One applied resource."""

    digest: str
    embedding_provider: str | None = None
    applies_to: tuple[str, ...] | None = None
    embedding_profile: EmbeddingProfile | None = None


class AppliedRevision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was applied."""

    resources: dict[str, LedgerResource]
    config_digest: str | None = None


class ResourceStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an apply or refresh left a resource."""

    status: Literal["pending", "planned", "applying", "applied", "drifted", "blocked", "error"]
    conditions: tuple[str, ...] = ()
    message: str | None = None


class ApprovalRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An approval that was used."""

    consumed_at: str
    consumed_by_operation: str


class RecoveryRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An interrupted operation that was completed."""

    kind: str
    graph_id: str
    outcome: str
    recovered_at: str
    actor: str | None = None


class GraphObservation(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="graph"
):
    """What a refresh saw of a graph."""

    address: str
    graph_uri: str
    observed_at: str
    exists: bool
    desired_schema_digest: str | None = None
    manifest_version: int | None = None
    schema_digest: str | None = None
    schema_matches_desired: bool | None = None
    error: str | None = None


class TombstoneObservation(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="tombstone"
):
    """A graph that was deleted."""

    deleted_at: str
    approval_id: str | None = None
    actor: str | None = None


class LedgerState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ledger of a cluster."""

    version: int
    applied_revision: AppliedRevision
    state_revision: int = 0
    resource_statuses: dict[str, ResourceStatus] = {}
    approval_records: dict[str, ApprovalRecord] = {}
    recovery_records: dict[str, RecoveryRecord] = {}
    observations: dict[str, GraphObservation | TombstoneObservation] = {}

    @property
    def resources(self) -> dict[str, LedgerResource]:
        return self.applied_revision.resources


class ClusterSidecar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operation on a graph that is under way, or was interrupted."""

    schema_version: int
    operation_id: str
    started_at: str
    kind: Literal["graph_create", "schema_apply", "graph_delete"]
    graph_id: str
    graph_uri: str
    desired_schema_digest: str | None = None
    actor: str | None = None
    observed_manifest_version: int | None = None
    expected_manifest_version: int | None = None
    state_cas_base: str | None = None
    approval_id: str | None = None


class ApprovalArtifact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The approval of one destructive change, bound to what was approved by three digests."""

    schema_version: int
    approval_id: str
    resource: str
    operation: str
    reason: str
    bound_config_digest: str
    approved_by: str
    created_at: str
    bound_before_digest: str | None = None
    bound_after_digest: str | None = None
    consumed_at: str | None = None
    consumed_by_operation: str | None = None


class LedgerProblem(Exception):
    """Why a file is refused."""

    def __init__(self, code: str, path: str, message: str) -> None:
        super().__init__(message)
        self.diagnostic = ClusterDiagnostic(code, path, message)


def read_state(text: str, path: str) -> LedgerState:
    """Parse a ledger; raises ``LedgerProblem``."""
    tree = _tree(text, path, "invalid_state_json")
    version = tree.get("version")
    if isinstance(version, int) and not isinstance(version, bool) and version != STATE_VERSION:
        raise LedgerProblem(
            "unsupported_state_version",
            path,
            f"the ledger has version {version}, this program supports {STATE_VERSION}",
        )
    state = _convert(tree, LedgerState, path, "invalid_state_json")
    for address, resource in state.resources.items():
        _check_resource(address, resource, path)
    return state


def read_cluster_sidecar(text: str, path: str) -> ClusterSidecar:
    """Parse a recovery sidecar; raises ``LedgerProblem``."""
    tree = _tree(text, path, "invalid_recovery_sidecar")
    version = tree.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool) and version != SIDECAR_VERSION:
        raise LedgerProblem(
            "unsupported_recovery_sidecar_version",
            path,
            f"the sidecar has version {version}, this program supports {SIDECAR_VERSION}",
        )
    return _convert(tree, ClusterSidecar, path, "invalid_recovery_sidecar")


def read_approval(text: str, path: str) -> ApprovalArtifact:
    """Parse an approval; raises ``LedgerProblem``."""
    tree = _tree(text, path, "invalid_approval_artifact")
    version = tree.get("schema_version")
    if isinstance(version, int) and not isinstance(version, bool) and version != APPROVAL_VERSION:
        raise LedgerProblem(
            "unsupported_approval_version",
            path,
            f"the approval has version {version}, this program supports {APPROVAL_VERSION}",
        )
    return _convert(tree, ApprovalArtifact, path, "invalid_approval_artifact")


def parse_address(address: str) -> tuple[str, tuple[str, ...]] | None:
    """The kind and the names of a resource; ``None`` if it is not the address of one.

    >>> parse_address("query.kb.due"), parse_address("graph.../x")
    (('query', ('kb', 'due')), None)
    """
    kind, _, rest = address.partition(".")
    names = tuple(rest.split("."))
    if _PARTS.get(kind) != len(names) or not all(map(_NAME.fullmatch, names)):
        return None
    return kind, names


def _check_resource(address: str, resource: LedgerResource, path: str) -> None:
    # Names and digests become parts of paths.
    if parse_address(address) is None:
        raise LedgerProblem("invalid_state_json", path, f"invalid resource address '{address}'")
    if not _DIGEST.fullmatch(resource.digest):
        raise LedgerProblem("invalid_state_json", path, f"the digest of '{address}' is invalid")


def _tree(text: str, path: str, code: str) -> dict[str, Any]:
    def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        for key, value in pairs:
            if key in entries:
                raise LedgerProblem(code, path, f"the key '{key}' is repeated")
            entries[key] = value
        return entries

    try:
        tree = json.loads(text, object_pairs_hook=refuse_repeated)
    except ValueError as error:
        line = getattr(error, "lineno", None)
        where = f" at line {line}" if line else ""
        raise LedgerProblem(code, path, f"the file is not JSON{where}") from None
    except RecursionError:
        raise LedgerProblem(code, path, "the file is nested too deeply") from None
    if not isinstance(tree, dict):
        raise LedgerProblem(code, path, "the file is not a JSON object")
    return tree


def _convert(tree: dict[str, Any], kind: type[_Record], path: str, code: str) -> _Record:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise LedgerProblem(code, path, str(error)) from None
