"""The provider of a graph, and the vector of a query that is a text."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from omnigraph.embed.providers.config import GEMINI, KEY_VARIABLES, LOCAL, MOCK, EmbeddingConfig
from omnigraph.embed.providers.embedder import Embedder, Role
from omnigraph.errors import EmbeddingError
from omnigraph.lang.schema.catalog import EdgeType, NodeType


def make_embedder(config: EmbeddingConfig) -> Embedder:
    """The provider that a configuration names; an error names the variables of a missing key."""
    full = config.completed()
    if full.provider == MOCK:
        from omnigraph.embed.providers.mock import MockEmbedder

        return MockEmbedder(full.model)
    if full.provider == LOCAL:
        from omnigraph.embed.providers.local import LocalEmbedder

        return LocalEmbedder()
    if not full.api_key:
        variables = KEY_VARIABLES[full.provider]
        raise EmbeddingError(
            f"an embedding is needed, and the provider '{full.provider}' has no key",
            hint=f"set {' or '.join(variables)}, or give the vector itself",
            details={"provider": full.provider, "variables": list(variables)},
        )
    from omnigraph.embed.providers.remote import GeminiEmbedder, OpenAIEmbedder

    return GeminiEmbedder(full) if full.provider == GEMINI else OpenAIEmbedder(full)


class Embedders:
    """The one provider of a handle, made when the first text needs it."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self.config = config
        self._made: Embedder | None = None
        self._making = threading.Lock()

    def get(self) -> Embedder:
        with self._making:
            if self._made is None:
                self._made = make_embedder(self.config)
            return self._made


def resolve_query_vector(
    kind: NodeType | EdgeType,
    prop: str,
    text: str,
    embedder: Embedder,
    deadline: float | None = None,
) -> npt.NDArray[np.float32]:
    """The vector that a text stands for in ``nearest`` on a property.

    Refused when the property records another model than the provider has: vectors of two models
    cannot be compared.
    """
    embed = kind.embeds.get(prop) if isinstance(kind, NodeType) else None
    refuse_other_model(f"{kind.name}.{prop}", None if embed is None else embed.model, embedder)
    dimension = kind.properties[prop].type.dimension
    assert dimension is not None
    batch = embedder.embed([text], dimension, role=Role.QUERY, deadline=deadline)
    return batch.require_all().reshape(dimension)


def refuse_other_model(prop: str, recorded: str | None, embedder: Embedder) -> None:
    """Vectors of two models cannot be compared, nor stand in one property."""
    if recorded is None or recorded == embedder.model:
        return
    own = f"'{embedder.model}'" if embedder.model else "none"
    raise EmbeddingError(
        f"{prop} was embedded with the model '{recorded}', the provider has {own}",
        hint=f"set OMNIGRAPH_EMBED_MODEL to '{recorded}', or give the vector itself",
        details={"recorded": recorded, "configured": embedder.model},
    )
