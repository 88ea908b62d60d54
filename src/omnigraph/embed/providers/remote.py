"""Providers that are reached over HTTP: those that speak like OpenAI, and Gemini."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from omnigraph.embed.providers.config import EmbeddingConfig
from omnigraph.embed.providers.embedder import PLAIN, Batch, Role, Waiting, unit_batch, unit_vectors
from omnigraph.embed.providers.http import Patience, not_understood, post_json

_TEXTS_PER_REQUEST = 128
_TASKS = {Role.QUERY: "RETRIEVAL_QUERY", Role.DOCUMENT: "RETRIEVAL_DOCUMENT"}


class _Remote:
    """What is reached over HTTP has a configuration, and its model from there."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self._config = config
        self.model = config.model


class OpenAIEmbedder(_Remote):
    """``POST {base}/embeddings`` with a bearer key."""

    most_texts = 2048

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
            piece = texts[start : start + _TEXTS_PER_REQUEST]
            answer = self._ask(piece, dimension, patience, PLAIN)
            found.extend(self._vectors(answer, len(piece)))
        return unit_vectors(found, dimension)

    def embed_batch(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        waiting: Waiting = PLAIN,
    ) -> Batch:
        """All of the texts in one request."""
        answer = self._ask(texts, dimension, Patience.of(self._config, None), waiting)
        return unit_batch(self._vectors(answer, len(texts)), dimension, _tokens(answer))

    def _ask(
        self, texts: Sequence[str], dimension: int, patience: Patience, waiting: Waiting
    ) -> Any:
        return post_json(
            self._config,
            "/embeddings",
            {"Authorization": f"Bearer {self._config.api_key}"},
            {"model": self.model, "input": list(texts), "dimensions": dimension},
            patience,
            waiting,
        )

    def _vectors(self, answer: Any, count: int) -> list[list[float]]:
        """The vectors in the order of the texts, whatever order they came in."""
        try:
            by_text = {int(item["index"]): _numbers(item["embedding"]) for item in answer["data"]}
            return [by_text[position] for position in range(count)]
        except (KeyError, TypeError, ValueError):
            raise not_understood(self._config) from None


class GeminiEmbedder(_Remote):
    """``POST {base}/models/{model}:embedContent``, or ``:batchEmbedContents`` for many texts."""

    most_texts = 100

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
            request = self._request(text, dimension, role)
            answer = self._ask("embedContent", request, patience, PLAIN)
            try:
                found.append(_numbers(answer["embedding"]["values"]))
            except (KeyError, TypeError, ValueError):
                raise not_understood(self._config) from None
        return unit_vectors(found, dimension)

    def embed_batch(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        waiting: Waiting = PLAIN,
    ) -> Batch:
        """All of the texts in one request; the answer has their order."""
        requests = [self._request(text, dimension, role) for text in texts]
        patience = Patience.of(self._config, None)
        answer = self._ask("batchEmbedContents", {"requests": requests}, patience, waiting)
        try:
            found = [_numbers(each["values"]) for each in answer["embeddings"]]
        except (KeyError, TypeError, ValueError):
            raise not_understood(self._config) from None
        if len(found) != len(texts):
            raise not_understood(self._config)
        return unit_batch(found, dimension)

    def _request(self, text: str, dimension: int, role: Role) -> dict[str, object]:
        return {
            "model": f"models/{self.model}",
            "content": {"parts": [{"text": text}]},
            "taskType": _TASKS[role],
            "outputDimensionality": dimension,
        }

    def _ask(
        self, method: str, body: dict[str, object], patience: Patience, waiting: Waiting
    ) -> Any:
        return post_json(
            self._config,
            f"/models/{quote(self.model, safe='')}:{method}",
            {"x-goog-api-key": self._config.api_key},
            body,
            patience,
            waiting,
        )


def _tokens(answer: Any) -> int | None:
    """What a request took, if the answer says so."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    found = usage.get("total_tokens") if isinstance(usage, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list) or any(type(value) not in (int, float) for value in values):
        raise TypeError("no list of numbers")
    return [float(value) for value in values]
