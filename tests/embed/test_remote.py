"""Providers over HTTP: what they are asked, which failures pass, and that no key shows."""

from __future__ import annotations

import time

import numpy as np
import pytest

from omnigraph.embed import EmbeddingConfig
from omnigraph.embed.providers.choice import make_embedder
from omnigraph.embed.providers.embedder import Role
from omnigraph.errors import EmbeddingError
from tests.embed.server import Drop, Hang, gemini, openai, provider

KEY = "sk-very-secret"


def fails(message):
    return pytest.raises(EmbeddingError, match=message)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def embedder(url, kind="openai-compatible", **how):
    how = {"backoff_ms": 1, "timeout_ms": 5_000, "model": "m", **how}
    return make_embedder(EmbeddingConfig(kind, base_url=url, api_key=KEY, **how))


def letters(text, size):
    return [float(len(text) + position) for position in range(size)]


def unit(values):
    return np.array(values, np.float64) / np.linalg.norm(values)


# -- what is asked and answered -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["openai-compatible", "openai"])
def test_openai_is_asked_as_it_wants(kind):
    with provider(openai(letters)) as server:
        actual = embedder(server.url + "/v1/", kind).embed(["abc", "d"], 2).require_all()
    ((path, headers, body),) = server.requests
    assert path == "/v1/embeddings"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {"model": "m", "input": ["abc", "d"], "dimensions": 2}
    assert actual.dtype == np.float32
    assert np.allclose(actual, [unit([3, 4]), unit([1, 2])])


@pytest.mark.parametrize(
    ("role", "task"), [(Role.QUERY, "RETRIEVAL_QUERY"), (Role.DOCUMENT, "RETRIEVAL_DOCUMENT")]
)
def test_gemini_is_asked_as_it_wants(role, task):
    with provider(gemini(letters)) as server:
        actual = embedder(server.url, "gemini").embed(["abc"], 3, role=role).require_all()
    ((path, headers, body),) = server.requests
    assert path == "/models/m:embedContent"
    assert {name.lower(): value for name, value in headers.items()}["x-goog-api-key"] == KEY
    assert body == {
        "model": "models/m",
        "content": {"parts": [{"text": "abc"}]},
        "taskType": task,
        "outputDimensionality": 3,
    }
    assert np.allclose(actual, [unit([3, 4, 5])])


# -- failures that pass ---------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [(429, {}), (500, {}), (503, b"busy"), Drop()], ids=repr)
def test_what_may_pass_is_tried_again(failure):
    with provider(failure, failure, openai(letters)) as server:
        embedder(server.url).embed(["abc"], 2).require_all()
    assert len(server.requests) == 3


@pytest.mark.parametrize("failure", [(429, {}), (500, {}), Drop()], ids=repr)
def test_it_is_tried_so_often_and_no_more(failure):
    with (
        provider(failure) as server,
        fails("failed 4 times") as caught,
    ):
        embedder(server.url).embed(["abc"], 2).require_all()
    assert len(server.requests) == 4
    assert caught.value.details["attempts"] == 4


def test_nobody_at_the_address_is_a_typed_error():
    with provider({}) as server:
        address = server.url
    with fails("the connection failed"):
        embedder(address, attempts=2).embed(["abc"], 2).require_all()


def test_a_provider_that_hangs_is_given_up():
    with provider(Hang()) as server, fails("did not answer in time"):
        embedder(server.url, timeout_ms=50, attempts=2).embed(["abc"], 2).require_all()


def test_the_deadline_ends_the_attempts():
    with (
        provider((500, {})) as server,
        fails("embedding deadline exceeded"),
    ):
        embedder(server.url, deadline_ms=5_000, backoff_ms=10_000).embed(["abc"], 2).require_all()
    assert len(server.requests) == 1


def test_the_deadline_of_the_caller_counts_too():
    with provider(openai(letters)) as server:
        with fails("embedding deadline exceeded"):
            embedder(server.url).embed(["abc"], 2, deadline=time.monotonic() - 1).require_all()
        embedder(server.url, deadline_ms=0).embed(
            ["abc"], 2, deadline=time.monotonic() + 60
        ).require_all()
    assert len(server.requests) == 1


def test_a_hanging_provider_does_not_outlast_the_deadline():
    with (
        provider(Hang()) as server,
        fails("embedding deadline exceeded"),
    ):
        embedder(server.url, deadline_ms=50).embed(["abc"], 2).require_all()


# -- failures that stay ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((400, {"error": f"bad key {KEY}"}), "HTTP status 400"),
        ((401, {"error": f"bad key {KEY}"}), "HTTP status 401"),
        ((404, {}), "HTTP status 404"),
        ((302, {}), "HTTP status 302"),
        (b"<html>", "unexpected response"),
        ({"data": []}, "unexpected response"),
        ({"data": [{"index": 0}]}, "unexpected response"),
        ({"data": [{"index": 0, "embedding": "abc"}]}, "unexpected response"),
        ([1], "unexpected response"),
        (openai(lambda _, size: [1.0] * (size + 1)), "expected 2, got 3"),
        (openai(lambda _, size: [0.0] * size), "no direction"),
        (openai(lambda _, size: [float("nan")] * size), "no direction"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(answer, message):
    with provider(answer) as server, fails(message) as caught:
        embedder(server.url).embed(["abc"], 2).require_all()
    assert len(server.requests) == 1
    assert KEY not in repr(caught.value.to_json())


def test_a_refused_key_names_its_variables():
    with provider((401, {})) as server, pytest.raises(EmbeddingError) as caught:
        embedder(server.url).embed(["abc"], 2).require_all()
    assert caught.value.hint == "check OPENROUTER_API_KEY or OPENAI_API_KEY"


def test_gemini_that_answers_otherwise_is_not_understood():
    with (
        provider({"values": [1.0]}) as server,
        fails("unexpected response"),
    ):
        embedder(server.url, "gemini").embed(["abc"], 1).require_all()


@pytest.mark.parametrize("address", ["no address", "ftp://127.0.0.1/", "file:///etc"])
def test_an_address_that_is_none_is_a_typed_error(address):
    with fails("address of the embedding provider"):
        embedder(address).embed(["abc"], 2).require_all()


def test_a_configuration_does_not_show_its_key():
    assert KEY not in repr(EmbeddingConfig("openai", api_key=KEY))
