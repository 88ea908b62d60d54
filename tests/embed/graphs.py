"""Graphs with texts that wait for their vectors, and what they should get."""

from __future__ import annotations

from typing import Any

from omnigraph import Graph
from omnigraph.embed import EmbeddingConfig
from omnigraph.embed.providers.local import MockEmbedder

SCHEMA = """
node Doc {
  slug: String @key
  title: String?
  number: I64?
  vec: Vector(4)? @embed("title") @index
}
node Note {
  name: String @key
  text: String?
  small: Vector(3)? @embed("text")
  large: Vector(5)? @embed("text")
}
node Plain { name: String @key }
edge Cites: Doc -> Doc
"""
MOCK = EmbeddingConfig("mock")


def doc(slug: str, title: str | None, **more: Any) -> dict[str, Any]:
    return {"type": "Doc", "data": {"slug": slug, "title": title, **more}}


def docs(count: int, start: int = 0) -> list[dict[str, Any]]:
    numbers = range(start, start + count)
    return [doc(f"d{n:04}", f"text {n}", number=n) for n in numbers]


def new_graph(path: Any, records: list[dict[str, Any]], config: EmbeddingConfig = MOCK) -> Graph:
    graph = Graph.init(path, SCHEMA, embedding=config)
    if records:
        graph.load(records)
    return graph


def vectors(graph: Graph, type_name: str = "Doc", prop: str = "vec", branch: str = "main") -> dict:
    """The vectors of a type by the ids of their nodes."""
    rows = graph.snapshot(branch).read(type_name)
    return {row["id"]: row[prop] for row in rows.to_pylist()}


def mock_vector(text: str, dimension: int = 4) -> list[float]:
    return MockEmbedder().embed([text], dimension).vectors[0].tolist()


KEY = "sk-very-secret-5b1e"


def remote(url: str, **how: Any) -> EmbeddingConfig:
    """A provider on the loopback interface."""
    how = {"backoff_ms": 1, "timeout_ms": 20_000, "model": "m", "api_key": KEY, **how}
    return EmbeddingConfig(**{"provider": "openai-compatible", "base_url": url, **how})
