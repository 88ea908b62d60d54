"""Embeddings: the providers, and the job that fills vector properties from texts."""

from omnigraph.embed.providers.choice import Embedders, make_embedder, resolve_query_vector
from omnigraph.embed.providers.config import EmbeddingConfig
from omnigraph.embed.providers.embedder import Embedder, Role

__all__ = [
    "Embedder",
    "EmbeddingConfig",
    "Embedders",
    "Role",
    "make_embedder",
    "resolve_query_vector",
]
