"""The interface of the embedding providers, and the checks of their vectors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from omnigraph.errors import EmbeddingError
from omnigraph.records import dataclass


class Role(StrEnum):
    """The purpose of an embedding; some models distinguish the two."""

    QUERY = "query"
    DOCUMENT = "document"


class Throttle(Protocol):
    """Limits the requests to a provider."""

    def acquire(self) -> None:
        """Called before each attempt; blocks until it may be made."""

    def pause(self, seconds: float, *, everyone: bool) -> None:
        """Wait after a failure; with ``everyone`` at the request of the provider."""


class Unthrottled:
    """No limit: waits only after failures."""

    def acquire(self) -> None:
        return None

    def pause(self, seconds: float, *, everyone: bool) -> None:
        time.sleep(seconds)


UNTHROTTLED = Unthrottled()


@dataclass(frozen=True, slots=True)
class EmbeddingBatch:
    """The result of one request: a vector for each text, in their order."""

    vectors: npt.NDArray[np.float32]
    """Unit vectors; the row of a text without direction is meaningless."""
    without_direction: tuple[int, ...] = ()
    """The positions of texts whose vector is zero or not finite."""
    tokens: int | None = None
    """The tokens charged, if the provider reports them."""

    def require_all(self) -> npt.NDArray[np.float32]:
        """The vectors, if every text has one."""
        if self.without_direction:
            raise EmbeddingError(
                "the embedding of a text has no direction: it is zero or not finite",
                hint="embed a text with words in it",
            )
        return self.vectors


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def model(self) -> str:
        """The name of the model, as a property records it."""

    @property
    def max_texts(self) -> int:
        """The maximum number of texts in one request."""

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        deadline: float | None = None,
        throttle: Throttle = UNTHROTTLED,
    ) -> EmbeddingBatch:
        """One request, retried after transient failures until ``deadline`` (``time.monotonic``)."""


def unit_batch(
    vectors: Sequence[Sequence[float]] | npt.NDArray[np.float32],
    dimension: int,
    tokens: int | None = None,
) -> EmbeddingBatch:
    """Vectors of the requested dimension, scaled to length 1.

    >>> unit_batch([[3.0, 4.0]], 2).vectors.tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    for vector in vectors:
        if len(vector) != dimension:
            raise EmbeddingError(
                f"embedding dimension mismatch: expected {dimension}, got {len(vector)}",
                hint="choose a model that returns vectors of the property's dimension",
                details={"expected": dimension, "actual": len(vector)},
            )
    # Values out of range become infinite, and are rejected as such.
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.asarray(vectors, np.float32).reshape(-1, dimension)
        norms = np.sqrt(np.square(rows.astype(np.float64)).sum(axis=1)).astype(np.float32)
        good = np.isfinite(norms) & (norms > np.finfo(np.float32).eps)
        scaled = rows / np.where(good, norms, 1)[:, None]
    return EmbeddingBatch(scaled.astype(np.float32), tuple(np.flatnonzero(~good).tolist()), tokens)
