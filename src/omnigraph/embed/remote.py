"""Providers that are reached over HTTP: those that speak like OpenAI, and Gemini."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from omnigraph.embed.config import EmbeddingConfig
from omnigraph.embed.embedder import Role, unit_vectors
from omnigraph.embed.http import Patience, not_understood, post_json

_TEXTS_PER_REQUEST = 128
_TASKS = {Role.QUERY: "RETRIEVAL_QUERY", Role.DOCUMENT: "RETRIEVAL_DOCUMENT"}


class _Remote:
    """What is reached over HTTP has a configuration, and its model from there."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self._config = config
        self.model = config.model


class OpenAIEmbedder(_Remote):
    """``POST {base}/embeddings`` with a bearer key."""

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.QUERY,
        deadline: float | None = None,
    ) -> npt.NDArray[np.float32]:
        """One row for each text; the role makes no difference to these models."""
        patience = Patience.of(self._config, deadline)
        found: list[list[float]] = []
        for start in range(0, len(texts), _TEXTS_PER_REQUEST):
            piece = list(texts[start : start + _TEXTS_PER_REQUEST])
            answer = post_json(
                self._config,
                "/embeddings",
                {"Authorization": f"Bearer {self._config.api_key}"},
                {"model": self.model, "input": piece, "dimensions": dimension},
                patience,
            )
            found.extend(self._vectors(answer, len(piece)))
        return unit_vectors(found, dimension)

    def _vectors(self, answer: Any, count: int) -> list[list[float]]:
        """The vectors in the order of the texts, whatever order they came in."""
        try:
            by_text = {int(item["index"]): _numbers(item["embedding"]) for item in answer["data"]}
            return [by_text[position] for position in range(count)]
        except (KeyError, TypeError, ValueError):
            raise not_understood(self._config) from None


class GeminiEmbedder(_Remote):
    """``POST {base}/models/{model}:embedContent``, one request for each text."""

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.QUERY,
        deadline: float | None = None,
    ) -> npt.NDArray[np.float32]:
        """One row for each text; the model is told what the text is for."""
        patience = Patience.of(self._config, deadline)
        found = []
        for text in texts:
            answer = post_json(
                self._config,
                f"/models/{quote(self.model, safe='')}:embedContent",
                {"x-goog-api-key": self._config.api_key},
                {
                    "model": f"models/{self.model}",
                    "content": {"parts": [{"text": text}]},
                    "taskType": _TASKS[role],
                    "outputDimensionality": dimension,
                },
                patience,
            )
            try:
                found.append(_numbers(answer["embedding"]["values"]))
            except (KeyError, TypeError, ValueError):
                raise not_understood(self._config) from None
        return unit_vectors(found, dimension)


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list):
        raise TypeError("no list")
    return [float(value) for value in values]
