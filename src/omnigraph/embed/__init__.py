"""Embeddings: the providers, and the job that fills vector properties from texts."""

from omnigraph.embed.providers.config import Embedders, EmbeddingConfig

__all__ = ["Embedders", "EmbeddingConfig"]
