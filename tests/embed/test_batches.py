"""Many texts in one request: what is asked, what is checked, and how long somebody waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from omnigraph.embed import EmbeddingConfig
from omnigraph.embed.providers.choice import make_embedder
from omnigraph.embed.providers.local import MockEmbedder
from omnigraph.errors import EmbeddingError
from tests.embed.server import Drop, gemini_batch, openai, provider

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


class Noted:
    """Waits for nothing, and remembers what it should have waited for."""

    def __init__(self) -> None:
        self.rounds = 0
        self.pauses: list[tuple[float, bool]] = []

    def acquire(self) -> None:
        self.rounds += 1

    def pause(self, seconds: float, *, everyone: bool) -> None:
        self.pauses.append((seconds, everyone))


def embedder(url, kind="openai-compatible", **how):
    how = {"backoff_ms": 1, "timeout_ms": 5_000, "model": "m", **how}
    return make_embedder(EmbeddingConfig(kind, base_url=url, api_key=KEY, **how))


def letters(text, size):
    return [float(len(text) + position) for position in range(size)]


def unit(values):
    return np.array(values, np.float64) / np.linalg.norm(values)


def test_openai_gets_all_texts_in_one_request_and_its_order_is_put_right():
    texts = ["x" * (number + 1) for number in range(200)]
    with provider(openai(letters)) as server:
        actual = embedder(server.url).embed(texts, 2)
    assert len(server.requests) == 1
    assert np.allclose(actual.vectors, [unit(letters(text, 2)) for text in texts])
    assert actual.tokens == sum(map(len, texts))
    assert actual.without_direction == ()


def test_gemini_is_asked_for_a_batch_of_documents():
    with provider(gemini_batch(letters)) as server:
        actual = embedder(server.url, "gemini").embed(["abc", "d"], 3)
    ((path, headers, body),) = server.requests
    assert path == "/models/m:batchEmbedContents"
    assert {name.lower(): value for name, value in headers.items()}["x-goog-api-key"] == KEY
    assert [item["content"]["parts"][0]["text"] for item in body["requests"]] == ["abc", "d"]
    assert {item["taskType"] for item in body["requests"]} == {"RETRIEVAL_DOCUMENT"}
    assert {item["outputDimensionality"] for item in body["requests"]} == {3}
    assert np.allclose(actual.vectors, [unit([3, 4, 5]), unit([1, 2, 3])])
    assert actual.tokens is None


def test_the_mock_gives_the_same_one_by_one_and_together():
    texts = ["a", "b", "c"]
    assert np.array_equal(
        MockEmbedder().embed(texts, 4).vectors,
        [MockEmbedder().embed([text], 4).vectors[0] for text in texts],
    )


@pytest.mark.parametrize("bad", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [1e300, 1]])
def test_a_vector_without_direction_does_not_spoil_the_others(bad):
    def vector(text, size):
        return bad if text == "bad" else letters(text, size)

    with provider(openai(vector)) as server:
        actual = embedder(server.url).embed(["abc", "bad", "d"], 2)
    assert actual.without_direction == (1,)
    assert np.allclose(actual.vectors[[0, 2]], [unit([3, 4]), unit([1, 2])])


@pytest.mark.parametrize(
    ("kind", "answer", "message"),
    [
        ("openai", {"data": [{"index": 0, "embedding": [1, 2]}]}, "unexpected response"),
        ("openai", openai(lambda _, size: ["1"] * size), "unexpected response"),
        ("openai", openai(lambda _, size: [True] * size), "unexpected response"),
        ("openai", openai(lambda _, size: [1.0] * (size + 1)), "expected 2, got 3"),
        ("gemini", {"embeddings": [{"values": [1, 2]}]}, "unexpected response"),
        ("gemini", {"embeddings": 7}, "unexpected response"),
        ("gemini", gemini_batch(lambda _, size: [1.0] * (size - 1)), "expected 2, got 1"),
    ],
)
def test_an_answer_that_does_not_fit_is_a_typed_error(kind, answer, message):
    with provider(answer) as server, pytest.raises(EmbeddingError, match=message):
        embedder(server.url, kind).embed(["abc", "d"], 2)


def test_every_attempt_takes_a_turn():
    throttle = Noted()
    with provider((500, {}), Drop(), openai(letters)) as server:
        embedder(server.url).embed(["abc"], 2, throttle=throttle)
    assert throttle.rounds == 3
    assert throttle.pauses == [(0.001, False), (0.002, False)]


@pytest.mark.parametrize("status", [429, 503])
def test_the_pause_that_a_provider_asks_for_is_made_by_everybody(status):
    throttle = Noted()
    with provider((status, {}, {"Retry-After": "7"}), openai(letters)) as server:
        embedder(server.url).embed(["abc"], 2, throttle=throttle)
    assert throttle.pauses == [(7.0, True)]


def test_a_pause_may_be_asked_for_as_a_moment():
    throttle = Noted()
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    with provider((429, {}, {"Retry-After": then}), openai(letters)) as server:
        embedder(server.url).embed(["abc"], 2, throttle=throttle)
    ((seconds, everyone),) = throttle.pauses
    assert 0 < seconds <= 30
    assert everyone


def test_a_pause_that_nobody_understands_is_the_usual_one():
    throttle = Noted()
    with provider((429, {}, {"Retry-After": "later"}), openai(letters)) as server:
        embedder(server.url).embed(["abc"], 2, throttle=throttle)
    assert throttle.pauses == [(0.001, False)]


def test_a_pause_beyond_the_deadline_is_not_begun():
    throttle = Noted()
    with (
        provider((429, {}, {"Retry-After": "3600"})) as server,
        pytest.raises(EmbeddingError, match="embedding deadline exceeded"),
    ):
        embedder(server.url).embed(["abc"], 2, throttle=throttle)
    assert throttle.pauses == []
    assert len(server.requests) == 1
