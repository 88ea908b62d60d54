"""Providers over HTTP: those compatible with OpenAI, and Gemini.

A request has a deadline, several attempts, and errors that never show the key. Connection failures,
timeouts, 429 and 5xx are retried, after the delay that the provider requests; any other failure is
final, including redirects.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from omnigraph.client.http import Failure, NoResponse, send
from omnigraph.embed.providers.config import KEY_VARIABLES, EmbeddingConfig
from omnigraph.embed.providers.embedder import (
    UNTHROTTLED,
    EmbeddingBatch,
    Role,
    Throttle,
    unit_batch,
)
from omnigraph.errors import EmbeddingError

_TASKS = {Role.QUERY: "RETRIEVAL_QUERY", Role.DOCUMENT: "RETRIEVAL_DOCUMENT"}


class RemoteEmbedder(ABC):
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

    @abstractmethod
    def request(
        self, texts: Sequence[str], dimension: int, role: Role
    ) -> tuple[str, dict[str, str], dict[str, object]]:
        """The path, the headers and the body of a request."""

    @abstractmethod
    def vectors(self, answer: Any, count: int) -> list[list[float]]:
        """The vectors in the order of the texts."""


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


_MAX_BYTES = 256 << 20


class _Transient(Exception):
    """A failed attempt that may be repeated, and when the provider allows that."""

    def __init__(self, problem: str, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after = retry_after


def post_json(
    config: EmbeddingConfig,
    path: str,
    headers: Mapping[str, str],
    body: Mapping[str, object],
    deadline: float | None,
    throttle: Throttle,
) -> Any:
    """The response of a provider as plain data.

    The earlier of ``deadline`` (``time.monotonic``) and the deadline of the configuration applies;
    time spent waiting for the throttle is not counted.
    """
    if not config.base_url.startswith(("http://", "https://")):
        raise EmbeddingError(
            f"the address of the embedding provider '{config.provider}' is not an HTTP address",
            hint="check OMNIGRAPH_EMBED_BASE_URL",
        )
    until = _nearer(config, deadline)
    attempts = max(1, config.attempts)
    for attempt in range(1, attempts + 1):
        started = time.monotonic()
        throttle.acquire()
        until += time.monotonic() - started
        try:
            return _attempt(config, path, headers, body, until)
        except _Transient as failure:
            if attempt == attempts:
                raise EmbeddingError(
                    f"the embedding provider '{config.provider}' failed {attempt} "
                    f"{'times' if attempt > 1 else 'time'}: {failure}",
                    hint="repeat later",
                    details={"provider": config.provider, "attempts": attempt},
                ) from None
            retry_after = failure.retry_after
        delay = max(config.backoff_ms / 1000 * 2 ** (attempt - 1), retry_after or 0.0)
        if until - time.monotonic() <= delay:
            raise _deadline_exceeded(config)
        throttle.pause(delay, everyone=retry_after is not None)
    raise AssertionError("unreachable")


def _nearer(config: EmbeddingConfig, deadline: float | None) -> float:
    own = time.monotonic() + config.deadline_ms / 1000 if config.deadline_ms else float("inf")
    return own if deadline is None else min(own, deadline)


def _attempt(
    config: EmbeddingConfig,
    path: str,
    headers: Mapping[str, str],
    body: Mapping[str, object],
    until: float,
) -> Any:
    left = until - time.monotonic()
    if left <= 0:
        raise _deadline_exceeded(config)
    try:
        response = send(
            "POST",
            f"{config.base_url}{path}",
            headers,
            body,
            timeout=min(config.timeout_ms / 1000, left),
            max_bytes=_MAX_BYTES,
            max_error_bytes=0,
        )
    except NoResponse as error:
        if time.monotonic() >= until:
            raise _deadline_exceeded(config) from None
        is_late = error.failure is Failure.TIMEOUT
        raise _Transient(
            "it did not answer in time" if is_late else "the connection failed"
        ) from None
    if response.status == 429 or response.status >= 500:
        retry_after = _seconds(response.headers.get("Retry-After"))
        raise _Transient(f"HTTP status {response.status}", retry_after)
    if not response.is_ok:
        raise _refusal(config, response.status)
    try:
        return response.json()
    except ValueError:
        raise unexpected_response(config) from None


def _seconds(header: str | None) -> float | None:
    """The delay in a ``Retry-After`` header: seconds, or a date.

    >>> _seconds("7"), _seconds("soon"), _seconds(None)
    (7.0, None, None)
    """
    if header is None:
        return None
    try:
        return max(0.0, float(int(header)))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(header)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def unexpected_response(config: EmbeddingConfig) -> EmbeddingError:
    return EmbeddingError(
        f"unexpected response from the embedding provider '{config.provider}'",
        hint="check OMNIGRAPH_EMBED_BASE_URL and OMNIGRAPH_EMBED_PROVIDER",
    )


def _refusal(config: EmbeddingConfig, status: int) -> EmbeddingError:
    if status in (401, 403):
        hint = f"check {' or '.join(KEY_VARIABLES[config.provider])}"
    elif status == 404:
        hint = "check OMNIGRAPH_EMBED_MODEL and OMNIGRAPH_EMBED_BASE_URL"
    else:
        hint = "check that the model exists and returns vectors of the property's dimension"
    return EmbeddingError(
        f"the embedding provider '{config.provider}' refused the request for model "
        f"'{config.model}': HTTP status {status}",
        hint=hint,
        details={"provider": config.provider, "model": config.model, "status": status},
    )


def _deadline_exceeded(config: EmbeddingConfig) -> EmbeddingError:
    return EmbeddingError(
        f"embedding deadline exceeded: the provider '{config.provider}' took too long",
        hint="raise OMNIGRAPH_EMBED_DEADLINE_MS, or repeat later",
        details={"provider": config.provider},
    )
