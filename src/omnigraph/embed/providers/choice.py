"""The provider of a graph, and the vector of a text in a query."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from omnigraph.embed.providers.config import GEMINI, KEY_VARIABLES, LOCAL, MOCK, EmbeddingConfig
from omnigraph.embed.providers.embedder import Embedder, Role
from omnigraph.embed.providers.local import LocalEmbedder, MockEmbedder
from omnigraph.errors import EmbeddingError
from omnigraph.lang.schema.catalog import EdgeType, NodeType


def make_embedder(config: EmbeddingConfig) -> Embedder:
    """The configured provider; for a missing key, the error names its environment variables."""
    full = config.completed()
    if full.provider == MOCK:
        return MockEmbedder(full.model)
    if full.provider == LOCAL:
        return LocalEmbedder()
    if not full.api_key:
        variables = KEY_VARIABLES[full.provider]
        raise EmbeddingError(
            f"no key for the embedding provider '{full.provider}'",
            hint=f"set {' or '.join(variables)}, or pass the vector itself",
            details={"provider": full.provider, "variables": list(variables)},
        )
    from omnigraph.embed.providers.remote import GeminiEmbedder, OpenAIEmbedder

    return GeminiEmbedder(full) if full.provider == GEMINI else OpenAIEmbedder(full)


def resolve_query_vector(
    entity_type: NodeType | EdgeType,
    prop: str,
    text: str,
    embedder: Embedder,
    deadline: float | None = None,
) -> npt.NDArray[np.float32]:
    """The vector of a text in ``nearest`` on a property.

    Refused if the property records another model than that of the provider.
    """
    embed = entity_type.embeds.get(prop) if isinstance(entity_type, NodeType) else None
    refuse_other_model(
        f"{entity_type.name}.{prop}", None if embed is None else embed.model, embedder
    )
    dimension = entity_type.properties[prop].type.dimension
    assert dimension is not None
    batch = embedder.embed([text], dimension, role=Role.QUERY, deadline=deadline)
    return batch.require_all().reshape(dimension)


def refuse_other_model(prop: str, recorded: str | None, embedder: Embedder) -> None:
    """Vectors of two models cannot be compared, nor mixed in one property."""
    if recorded is None or recorded == embedder.model:
        return
    own = f"'{embedder.model}'" if embedder.model else "none"
    raise EmbeddingError(
        f"{prop} was embedded with the model '{recorded}', the provider has {own}",
        hint=f"set OMNIGRAPH_EMBED_MODEL to '{recorded}', or pass the vector itself",
        details={"recorded": recorded, "configured": embedder.model},
    )
