"""Which provider is used, and the vector of a query that is a text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from omnigraph.embed import Embedders, EmbeddingConfig
from omnigraph.embed.providers.choice import make_embedder, resolve_query_vector
from omnigraph.embed.providers.local import MockEmbedder
from omnigraph.errors import EmbeddingError
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.settings import Settings

CATALOG = compile_schema(
    """
    node Doc {
      slug: String @key
      text: String
      free: Vector(4)? @embed("text")
      fixed: Vector(4)? @embed("text", model="m1")
      plain: Vector(8)?
    }
    edge Cites: Doc -> Doc { meaning: Vector(4)? }
    """
)
DOC, CITES = CATALOG.node("Doc"), CATALOG.edge("Cites")


def config(environ):
    return EmbeddingConfig.from_options(Settings.from_environ(environ).embedding_options())


# -- the environment ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "provider", "model", "address", "key"),
    [
        (
            {"OPENAI_API_KEY": "b"},
            "openai-compatible",
            "openai/text-embedding-3-large",
            "https://openrouter.ai/api/v1",
            "b",
        ),
        (
            {"OPENROUTER_API_KEY": "a", "OPENAI_API_KEY": "b", "GEMINI_API_KEY": "c"},
            "openai-compatible",
            "openai/text-embedding-3-large",
            "https://openrouter.ai/api/v1",
            "a",
        ),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "openai", "OPENROUTER_API_KEY": "a"},
            "openai",
            "text-embedding-3-large",
            "https://api.openai.com/v1",
            "",
        ),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "gemini", "GEMINI_API_KEY": "c"},
            "gemini",
            "gemini-embedding-2",
            "https://generativelanguage.googleapis.com/v1beta",
            "c",
        ),
        (
            {
                "OMNIGRAPH_EMBED_BASE_URL": "http://localhost:1/v1/",
                "OMNIGRAPH_EMBED_MODEL": "m",
                "OPENAI_API_KEY": " ",
            },
            "openai-compatible",
            "m",
            "http://localhost:1/v1",
            "",
        ),
        (
            {"OMNIGRAPH_EMBEDDINGS_MOCK": "yes", "OMNIGRAPH_EMBED_PROVIDER": "openai"},
            "mock",
            "",
            "",
            "",
        ),
    ],
)
def test_the_environment_says_which_provider(environ, provider, model, address, key):
    actual = config(environ).completed()
    assert (actual.provider, actual.model, actual.base_url, actual.api_key) == (
        provider,
        model,
        address,
        key,
    )


@pytest.mark.parametrize(
    ("text", "deadline", "timeout", "attempts", "backoff"),
    [
        ("", 60_000, 30_000, 4, 200),
        ("0", 0, 30_000, 4, 200),
        ("soon", 60_000, 30_000, 4, 200),
        ("-5", 60_000, 30_000, 4, 200),
        ("7", 7, 7, 7, 7),
    ],
)
def test_patience_is_read_and_nonsense_is_the_default(text, deadline, timeout, attempts, backoff):
    actual = config(
        {
            "OMNIGRAPH_EMBED_DEADLINE_MS": text,
            "OMNIGRAPH_EMBED_TIMEOUT_MS": text,
            "OMNIGRAPH_EMBED_RETRY_ATTEMPTS": text,
            "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS": text,
        }
    )
    assert (actual.deadline_ms, actual.timeout_ms) == (deadline, timeout)
    assert (actual.attempts, actual.backoff_ms) == (attempts, backoff)


@pytest.mark.parametrize("variable", ["OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"])
def test_keys_are_not_shown(variable):
    settings = Settings.from_environ({variable: "very-secret"})
    assert "very-secret" not in repr(settings)


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("openai-compatible", ["OPENROUTER_API_KEY", "OPENAI_API_KEY"]),
        ("openai", ["OPENAI_API_KEY"]),
        ("gemini", ["GEMINI_API_KEY"]),
    ],
)
def test_a_missing_key_names_its_variables_when_a_text_needs_it(provider, variables):
    """And not before."""
    embedders = Embedders(EmbeddingConfig(provider))
    with pytest.raises(EmbeddingError) as caught:
        embedders.get()
    assert all(name in (caught.value.hint or "") for name in variables)
    assert caught.value.details["variables"] == variables


def test_an_unknown_provider_is_named():
    with pytest.raises(EmbeddingError, match="unknown embedding provider 'abacus'"):
        make_embedder(EmbeddingConfig("abacus"))


def test_a_handle_has_one_provider():
    embedders = Embedders(EmbeddingConfig("mock"))
    assert embedders.get() is embedders.get()


def test_a_configuration_that_is_given_wins_over_the_environment(monkeypatch):
    """The environment is only asked by whoever reads the settings."""
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "abacus")
    assert make_embedder(EmbeddingConfig("mock", model="given")).model == "given"


# -- the mock -------------------------------------------------------------------------------------


def reference(text, size):
    """The mock of the reference, number by number, in its own arithmetic."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    values = []
    for _ in range(size):
        state ^= state << 13 & (2**64 - 1)
        state ^= state >> 7
        state ^= state << 17 & (2**64 - 1)
        values.append(
            np.float32(np.float32(state / float(2**64 - 1)) * np.float32(2)) - np.float32(1)
        )
    norm = np.float32(math.sqrt(sum(float(value) ** 2 for value in values)))
    return [float(value / norm) for value in values]


@pytest.mark.parametrize("text", ["", "hello", "Größe 日本", "x" * 1000])
def test_the_mock_gives_the_vectors_of_the_reference(text):
    actual = MockEmbedder().embed([text, "other"], 5).vectors
    assert actual[0].tolist() == reference(text, 5)
    assert actual.dtype == np.float32
    assert np.allclose(np.linalg.norm(actual, axis=1), 1)


def test_the_mock_is_pinned():
    """So that a change of arithmetic is seen."""
    (actual,) = MockEmbedder().embed(["hello"], 3).vectors
    assert actual.tolist() == pytest.approx(reference("hello", 3))
    assert MockEmbedder().embed([], 3).vectors.shape == (0, 3)


# -- a text as a query ----------------------------------------------------------------------------


def test_a_text_becomes_the_vector_of_its_embedding():
    actual = resolve_query_vector(DOC, "free", "hello", MockEmbedder())
    assert actual.tolist() == reference("hello", 4)
    assert resolve_query_vector(DOC, "plain", "hello", MockEmbedder()).shape == (8,)
    assert resolve_query_vector(CITES, "meaning", "hello", MockEmbedder()).shape == (4,)


def test_the_model_that_a_property_records_must_be_the_providers():
    actual = resolve_query_vector(DOC, "fixed", "hello", MockEmbedder("m1"))
    assert actual.tolist() == reference("hello", 4)
    with pytest.raises(EmbeddingError) as caught:
        resolve_query_vector(DOC, "fixed", "hello", MockEmbedder("m2"))
    assert "'m1'" in str(caught.value)
    assert "'m2'" in str(caught.value)
    assert "Doc.fixed" in str(caught.value)
    with pytest.raises(EmbeddingError, match=r"with the model 'm1', the provider has none$"):
        resolve_query_vector(DOC, "fixed", "hello", MockEmbedder())
    assert resolve_query_vector(DOC, "free", "hello", MockEmbedder("m2")).shape == (4,)
