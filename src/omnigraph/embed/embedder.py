"""What every provider of embeddings does, and what its vectors have to be."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from omnigraph.errors import EmbeddingError


class Role(StrEnum):
    """What a text is embedded for; some models tell the two apart."""

    QUERY = "query"
    DOCUMENT = "document"


class Embedder(Protocol):
    """Turns texts into vectors of length 1."""

    @property
    def model(self) -> str:
        """The name of the model, as a property records it."""

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.QUERY,
        deadline: float | None = None,
    ) -> npt.NDArray[np.float32]:
        """One row for each text. ``deadline`` is a moment of ``time.monotonic``."""


def unit_vectors(
    vectors: Sequence[Sequence[float]] | npt.NDArray[np.float32], dimension: int
) -> npt.NDArray[np.float32]:
    """What a provider gave, if it has the size that was asked for, scaled to length 1.

    >>> unit_vectors([[3.0, 4.0]], 2).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    for vector in vectors:
        if len(vector) != dimension:
            raise EmbeddingError(
                f"embedding dimension mismatch: expected {dimension}, got {len(vector)}",
                hint="choose a model that gives vectors of the property's size",
                details={"expected": dimension, "actual": len(vector)},
            )
    found = np.asarray(vectors, np.float32).reshape(-1, dimension)
    norms = np.sqrt(np.square(found.astype(np.float64)).sum(axis=1)).astype(np.float32)
    if not np.isfinite(norms).all() or (norms <= np.finfo(np.float32).eps).any():
        raise EmbeddingError(
            "the embedding of a text has no direction: it is zero or not finite",
            hint="embed a text with words in it",
        )
    scaled: npt.NDArray[np.float32] = found / norms[:, None]
    return scaled
