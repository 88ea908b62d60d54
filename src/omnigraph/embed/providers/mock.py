"""Vectors made from the letters of a text: the same everywhere, and without any meaning.

The numbers are those of the reference implementation, so that what one program embedded for a
test the other finds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from omnigraph.embed.providers.embedder import PLAIN, Batch, Role, Waiting
from omnigraph.lang.fnv import fnv1a_64

_MASK = 2**64 - 1


class MockEmbedder:
    """For tests and trials: no key, no network."""

    most_texts = 2048

    def __init__(self, model: str = "") -> None:
        self.model = model

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.QUERY,
        deadline: float | None = None,
    ) -> npt.NDArray[np.float32]:
        """One row for each text, the same for queries and documents."""
        found = np.empty((len(texts), dimension), np.float32)
        for position, text in enumerate(texts):
            found[position] = _vector(text, dimension)
        return found

    def embed_batch(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        waiting: Waiting = PLAIN,
    ) -> Batch:
        """All of the texts; a turn is taken as if somebody were asked."""
        waiting.turn()
        return Batch(self.embed(texts, dimension, role=role))


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
