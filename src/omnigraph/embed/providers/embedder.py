"""What every provider of embeddings does, and what its vectors have to be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
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


class Waiting(Protocol):
    """How a request waits for its turn, and after a failure."""

    def turn(self) -> None:
        """Called before each attempt; comes back when it may be made."""

    def pause(self, seconds: float, *, everyone: bool) -> None:
        """Wait after a failure; with ``everyone`` the provider asked for it."""


class Plain:
    """Nobody else asks, so only failures are waited for."""

    def turn(self) -> None:
        return None

    def pause(self, seconds: float, *, everyone: bool) -> None:
        time.sleep(seconds)


PLAIN = Plain()


@dataclass(frozen=True, slots=True)
class Batch:
    """What one request gave: a vector for each text, in their order."""

    vectors: npt.NDArray[np.float32]
    """Of length 1; what a text without direction has there means nothing."""
    pointless: tuple[int, ...] = ()
    """The positions of texts whose vectors have no direction."""
    tokens: int | None = None
    """What the request took, when the provider says so."""


class BatchEmbedder(Embedder, Protocol):
    """An embedder that takes many texts in one request."""

    @property
    def most_texts(self) -> int:
        """How many texts one request may have."""

    def embed_batch(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        waiting: Waiting = PLAIN,
    ) -> Batch:
        """One request, tried again while its failure may pass."""


Vectors = Sequence[Sequence[float]] | npt.NDArray[np.float32]


def unit_vectors(vectors: Vectors, dimension: int) -> npt.NDArray[np.float32]:
    """What a provider gave, if it has the size that was asked for, scaled to length 1.

    >>> unit_vectors([[3.0, 4.0]], 2).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    found = unit_batch(vectors, dimension)
    if found.pointless:
        raise EmbeddingError(
            "the embedding of a text has no direction: it is zero or not finite",
            hint="embed a text with words in it",
        )
    return found.vectors


def unit_batch(vectors: Vectors, dimension: int, tokens: int | None = None) -> Batch:
    """The same for many texts: one without direction does not spoil the others."""
    for vector in vectors:
        if len(vector) != dimension:
            raise EmbeddingError(
                f"embedding dimension mismatch: expected {dimension}, got {len(vector)}",
                hint="choose a model that gives vectors of the property's size",
                details={"expected": dimension, "actual": len(vector)},
            )
    # Numbers that are too large become infinite, and are found so.
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.asarray(vectors, np.float32).reshape(-1, dimension)
        norms = np.sqrt(np.square(found.astype(np.float64)).sum(axis=1)).astype(np.float32)
        good = np.isfinite(norms) & (norms > np.finfo(np.float32).eps)
        scaled = found / np.where(good, norms, 1)[:, None]
    return Batch(scaled.astype(np.float32), tuple(np.flatnonzero(~good).tolist()), tokens)
