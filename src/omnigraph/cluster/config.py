"""The records of ``cluster.yaml``: what is declared, and on which line."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from omnigraph.cluster.bundle import CONFIG
from omnigraph.cluster.ledger import EmbeddingProfile
from omnigraph.cluster.resources import profile_json
from omnigraph.records import dataclass

CONFIG_VERSION = 1


@dataclass(frozen=True, slots=True)
class QuerySource:
    """Where queries are declared: a file or directory, or one query of a file."""

    path: str
    line: int
    field: str
    name: str | None = None
    """The only query that is registered; all of them if it is absent."""


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """A declared graph."""

    graph_id: str
    schema: str
    queries: tuple[QuerySource, ...] = ()
    provider: str | None = None
    """The address of its embedding provider."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """A declared policy and its bindings, normalised."""

    name: str
    file: str
    bindings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The content of ``cluster.yaml``."""

    name: str | None = None
    storage: str | None = None
    lock: bool = True
    providers: dict[str, EmbeddingProfile] = field(default_factory=dict)
    graphs: dict[str, GraphConfig] = field(default_factory=dict)
    policies: dict[str, PolicyConfig] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    """The line of each key, by the path to it."""

    def at(self, path: str) -> str:
        """File and line of a key, or of the closest one around it.

        >>> ClusterConfig(lines={"graphs.kb": 3}).at("graphs.kb.schema")
        'cluster.yaml:3'
        """
        while path and path not in self.lines:
            path, _, _ = path.rpartition(".")
        return f"{CONFIG}:{self.lines.get(path, 1)}"

    def to_json(self) -> dict[str, Any]:
        """The meaning of the file, in a fixed order: comments and formatting do not count."""
        return {
            "version": CONFIG_VERSION,
            "metadata": {"name": self.name},
            "storage": self.storage,
            "state": {"backend": "cluster", "lock": self.lock},
            "providers": {
                "embedding": {
                    name: profile_json(profile) for name, profile in sorted(self.providers.items())
                }
            },
            "graphs": {
                graph.graph_id: {
                    "schema": graph.schema,
                    "queries": [[query.name, query.path] for query in graph.queries],
                    "embedding_provider": graph.provider,
                }
                for _, graph in sorted(self.graphs.items())
            },
            "policies": {
                policy.name: {"file": policy.file, "applies_to": list(policy.bindings)}
                for _, policy in sorted(self.policies.items())
            },
        }
