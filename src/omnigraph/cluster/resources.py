"""Resources of a cluster: their addresses, their digests, and which depends on which."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.cluster.ledger import EmbeddingProfile, parse_address
from omnigraph.records import dataclass

CLUSTER = "cluster"
"""The binding of a policy to the server."""
PROVIDER = "provider.embedding."

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def is_name(text: str) -> bool:
    """Whether a text can name a graph, a query, a policy or a provider.

    >>> is_name("kb-rules"), is_name("1st"), is_name("a.b")
    (True, False, False)
    """
    return _NAME.fullmatch(text) is not None


def address_parts(address: str) -> tuple[str, tuple[str, ...]]:
    """The kind and the names of an address that was checked before.

    >>> address_parts("query.kb.due")
    ('query', ('kb', 'due'))
    """
    parts = parse_address(address)
    assert parts is not None
    return parts


def kind_of(address: str) -> str:
    """The kind of a resource in summaries.

    >>> kind_of("provider.embedding.main"), kind_of("graph.kb"), kind_of("pipeline.x")
    ('embedding_provider', 'graph', 'unknown')
    """
    parts = parse_address(address)
    if parts is None:
        return "unknown"
    return "embedding_provider" if parts[0] == "provider" else parts[0]


def owner_of(address: str) -> str | None:
    """The id of the graph that a graph, a schema or a query belongs to.

    >>> owner_of("query.kb.due"), owner_of("policy.rules")
    ('kb', None)
    """
    parts = parse_address(address)
    if parts is None or parts[0] not in ("graph", "schema", "query"):
        return None
    return parts[1][0]


@dataclass(frozen=True, slots=True)
class Dependency:
    """A resource that needs another."""

    source: str
    target: str

    def to_json(self) -> dict[str, str]:
        return {"from": self.source, "to": self.target}


# -- digests -------------------------------------------------------------------------------------


def content_digest(content: bytes) -> str:
    """The digest of a schema, a policy, or the file of a query."""
    return hashlib.sha256(content).hexdigest()


def profile_json(profile: EmbeddingProfile) -> dict[str, str]:
    """The fields of a provider in their order, absent ones omitted."""
    return {
        name: value
        for name in ("kind", "base_url", "model", "api_key")
        if (value := getattr(profile, name)) is not None
    }


def profile_digest(profile: EmbeddingProfile) -> str:
    """The digest of a provider: its fields in their order, absent ones omitted.

    >>> profile_digest(EmbeddingProfile("mock"))[:8]
    '609029fe'
    """
    return hashlib.sha256(b"embedding-provider\0" + compact(profile_json(profile))).hexdigest()


def key_variable(profile: EmbeddingProfile) -> str | None:
    """The variable with the key of a provider; ``None`` if there is none.

    >>> key_variable(EmbeddingProfile("openai", api_key="${LAB_KEY}"))
    'LAB_KEY'
    """
    key = profile.api_key or ""
    name = key[2:-1] if key.startswith("${") and key.endswith("}") else ""
    return name if name.isascii() and name.isidentifier() else None


def graph_digest(
    graph: str,
    schema: str,
    queries: Mapping[str, str],
    provider: tuple[str, str] | None = None,
) -> str:
    """The digest of a graph: that of its schema, its queries by name, and its provider."""
    digest = hashlib.sha256(f"graph\0{graph}\0schema\0{schema}\0".encode())
    for name in sorted(queries):
        digest.update(f"query\0{name}\0{queries[name]}\0".encode())
    if provider is not None:
        digest.update(f"embedding_provider\0{provider[0]}\0{provider[1]}\0".encode())
    return digest.hexdigest()


def config_digest(config: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """The digest of a whole configuration: its meaning, and the digest of every resource."""
    digest = hashlib.sha256(b"cluster-config\0" + compact(config) + b"\0")
    for address in sorted(digests):
        digest.update(f"{address}\0{digests[address]}\0".encode())
    return digest.hexdigest()


def compact(document: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


# -- bindings ------------------------------------------------------------------------------------


def normal_bindings(bindings: Iterable[str]) -> tuple[str, ...]:
    """Bindings as the ledger has them: sorted, once each, a bare id as ``graph.<id>``.

    >>> normal_bindings(["kb", "cluster", "graph.kb"])
    ('cluster', 'graph.kb')
    """
    return tuple(sorted({normal_binding(binding) for binding in bindings}))


def normal_binding(binding: str) -> str:
    return binding if binding == CLUSTER or "." in binding else f"graph.{binding}"
