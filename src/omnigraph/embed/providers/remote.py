"""Providers over HTTP: those compatible with OpenAI, and Gemini."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from omnigraph.embed.providers.config import EmbeddingConfig
from omnigraph.embed.providers.embedder import (
    UNTHROTTLED,
    EmbeddingBatch,
    Role,
    Throttle,
    unit_batch,
)
from omnigraph.embed.providers.http import post_json, unexpected_response

_TASKS = {Role.QUERY: "RETRIEVAL_QUERY", Role.DOCUMENT: "RETRIEVAL_DOCUMENT"}


class RemoteEmbedder:
    """A provider over HTTP; subclasses define its requests and responses."""

    max_texts = 2048

    def __init__(self, config: EmbeddingConfig) -> None:
        self._config = config
        self.model = config.model

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        deadline: float | None = None,
        throttle: Throttle = UNTHROTTLED,
    ) -> EmbeddingBatch:
        """All of the texts in one request."""
        path, headers, body = self.request(texts, dimension, role)
        answer = post_json(self._config, path, headers, body, deadline, throttle)
        try:
            vectors = self.vectors(answer, len(texts))
        except (KeyError, TypeError, ValueError):
            raise unexpected_response(self._config) from None
        return unit_batch(vectors, dimension, _tokens(answer))

    def request(
        self, texts: Sequence[str], dimension: int, role: Role
    ) -> tuple[str, dict[str, str], dict[str, object]]:
        """The path, the headers and the body of a request."""
        raise NotImplementedError

    def vectors(self, answer: Any, count: int) -> list[list[float]]:
        """The vectors in the order of the texts."""
        raise NotImplementedError


class OpenAIEmbedder(RemoteEmbedder):
    """``POST {base}/embeddings`` with a bearer key; the role makes no difference."""

    def request(
        self, texts: Sequence[str], dimension: int, role: Role
    ) -> tuple[str, dict[str, str], dict[str, object]]:
        body = {"model": self.model, "input": list(texts), "dimensions": dimension}
        return "/embeddings", {"Authorization": f"Bearer {self._config.api_key}"}, body

    def vectors(self, answer: Any, count: int) -> list[list[float]]:
        by_index = {int(item["index"]): _numbers(item["embedding"]) for item in answer["data"]}
        return [by_index[index] for index in range(count)]


class GeminiEmbedder(RemoteEmbedder):
    """``POST {base}/models/{model}:embedContent``, or ``:batchEmbedContents`` for several texts."""

    max_texts = 100

    def request(
        self, texts: Sequence[str], dimension: int, role: Role
    ) -> tuple[str, dict[str, str], dict[str, object]]:
        requests: list[dict[str, object]] = [
            {
                "model": f"models/{self.model}",
                "content": {"parts": [{"text": text}]},
                "taskType": _TASKS[role],
                "outputDimensionality": dimension,
            }
            for text in texts
        ]
        is_single = len(requests) == 1
        method = "embedContent" if is_single else "batchEmbedContents"
        path = f"/models/{quote(self.model, safe='')}:{method}"
        body: dict[str, object] = requests[0] if is_single else {"requests": requests}
        return path, {"x-goog-api-key": self._config.api_key}, body

    def vectors(self, answer: Any, count: int) -> list[list[float]]:
        embeddings = [answer["embedding"]] if count == 1 else answer["embeddings"]
        if len(embeddings) != count:
            raise ValueError("one embedding per text is expected")
        return [_numbers(embedding["values"]) for embedding in embeddings]


def _tokens(answer: Any) -> int | None:
    """The tokens charged, if the response reports them."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else None


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list) or any(type(value) not in (int, float) for value in values):
        raise TypeError("a list of numbers is expected")
    return [float(value) for value in values]
