"""Deterministic vectors computed from the characters of a text, without any meaning.

The numbers are those of the reference implementation, so the two programs can share test data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from omnigraph.embed.providers.embedder import UNTHROTTLED, EmbeddingBatch, Role, Throttle
from omnigraph.lang.fnv import fnv1a_64

_MASK = 2**64 - 1


class MockEmbedder:
    """For tests and trials: no key, no network."""

    max_texts = 2048

    def __init__(self, model: str = "") -> None:
        self.model = model

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        deadline: float | None = None,
        throttle: Throttle = UNTHROTTLED,
    ) -> EmbeddingBatch:
        throttle.acquire()
        vectors = np.empty((len(texts), dimension), np.float32)
        for position, text in enumerate(texts):
            vectors[position] = _vector(text, dimension)
        return EmbeddingBatch(vectors)


def _vector(text: str, dimension: int) -> npt.NDArray[np.float32]:
    state = fnv1a_64(text)
    ratios = np.empty(dimension, np.float32)
    for position in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        ratios[position] = state / float(_MASK)
    values = ratios * np.float32(2.0) - np.float32(1.0)
    norm = np.float32(np.sqrt(np.square(values.astype(np.float64)).sum()))
    scaled: npt.NDArray[np.float32] = values / norm if norm > np.finfo(np.float32).eps else values
    return scaled
