"""Writes the files of a cluster by hand, as ``cluster apply`` leaves them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omnigraph.cluster.ledger import EmbeddingProfile
from omnigraph.cluster.resources import profile_digest

ULID = "01JABCDEFGHJKMNPQRSTVWXYZ0"


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class ClusterFiles:
    """A cluster in a directory; every method writes the ledger again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state: dict[str, Any] = {
            "version": 1,
            "state_revision": 3,
            "applied_revision": {"config_digest": digest_of("config"), "resources": {}},
            "resource_statuses": {},
            "approval_records": {},
            "recovery_records": {},
            "observations": {},
        }

    @property
    def resources(self) -> dict[str, Any]:
        resources: dict[str, Any] = self.state["applied_revision"]["resources"]
        return resources

    @property
    def ledger(self) -> Path:
        return self.root / "__cluster" / "state.json"

    def file(self, path: str, text: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
        return file

    def save(self) -> ClusterFiles:
        self.file("__cluster/state.json", json.dumps(self.state, indent=2) + "\n")
        return self

    def graph(self, name: str, provider: str | None = None) -> ClusterFiles:
        self.resources[f"graph.{name}"] = {"digest": digest_of(f"graph {name}")}
        if provider is not None:
            self.resources[f"graph.{name}"]["embedding_provider"] = provider
        self.resources[f"schema.{name}"] = {"digest": digest_of(f"schema {name}")}
        return self.save()

    def query(self, graph: str, name: str, text: str) -> Path:
        digest = digest_of(text)
        self.resources[f"query.{graph}.{name}"] = {"digest": digest}
        self.save()
        return self.file(f"__cluster/resources/query/{graph}/{name}/{digest}.gq", text)

    def policy(self, name: str, text: str, applies_to: Sequence[str] | None) -> Path:
        digest = digest_of(text)
        self.resources[f"policy.{name}"] = {"digest": digest}
        if applies_to is not None:
            self.resources[f"policy.{name}"]["applies_to"] = list(applies_to)
        self.save()
        return self.file(f"__cluster/resources/policy/{name}/{digest}.yaml", text)

    def provider(self, name: str, **profile: str) -> ClusterFiles:
        self.resources[f"provider.embedding.{name}"] = {
            "digest": profile_digest(EmbeddingProfile(**profile)),
            "embedding_profile": profile,
        }
        return self.save()

    def sidecar(self, graph: str, **changes: Any) -> Path:
        sidecar = {
            "schema_version": 1,
            "operation_id": ULID,
            "started_at": "2026-11-18T00:00:00Z",
            "actor": None,
            "kind": "schema_apply",
            "graph_id": graph,
            "graph_uri": f"{self.root}/graphs/{graph}.omni",
            "observed_manifest_version": 1,
            "expected_manifest_version": None,
            "desired_schema_digest": digest_of("schema"),
            "state_cas_base": None,
            "approval_id": None,
            **changes,
        }
        return self.file(f"__cluster/recoveries/{ULID}.json", json.dumps(sidecar, indent=2) + "\n")
