"""Texts as vectors: the providers, and which of them a graph uses."""

from omnigraph.embed.config import EmbeddingConfig
from omnigraph.embed.embedder import Embedder, Role
from omnigraph.embed.providers import Embedders, make_embedder, resolve_query_vector

__all__ = [
    "Embedder",
    "EmbeddingConfig",
    "Embedders",
    "Role",
    "make_embedder",
    "resolve_query_vector",
]
