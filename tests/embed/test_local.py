"""The model that a package ships: words of one meaning are near, and no network is needed."""

from __future__ import annotations

import socket
from importlib.util import find_spec

import numpy as np
import pytest

from omnigraph.embed import EmbeddingConfig
from omnigraph.embed.providers import local
from omnigraph.embed.providers.choice import make_embedder
from omnigraph.embed.providers.config import LOCAL_MODEL
from omnigraph.errors import EmbeddingError, PackageMissing

installed = pytest.mark.skipif(
    find_spec("wordllama") is None, reason="the extra local-embed is not installed"
)


@pytest.fixture
def offline(monkeypatch):
    def refuse(*_args, **_more):
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@installed
@pytest.mark.parametrize("size", [64, 256])
def test_words_of_one_meaning_are_near(offline, size):
    embedder = make_embedder(EmbeddingConfig("local"))
    texts = ["a dog runs", "the puppy is running", "the stock market fell"]
    dog, puppy, market = embedder.embed(texts, size).require_all()
    assert dog @ puppy > 0.5 > abs(dog @ market)
    assert np.allclose(np.linalg.norm([dog, puppy, market], axis=1), 1)
    assert embedder.model == LOCAL_MODEL


@installed
def test_a_text_without_words_has_no_vector():
    with pytest.raises(EmbeddingError, match="no direction"):
        make_embedder(EmbeddingConfig("local")).embed([""], 8).require_all()


def test_it_has_a_largest_size():
    with pytest.raises(EmbeddingError, match="expected 512, got 256"):
        make_embedder(EmbeddingConfig("local")).embed(["dog"], 512)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(local, "find_spec", lambda _: None)
    with pytest.raises(PackageMissing, match="not installed") as caught:
        make_embedder(EmbeddingConfig("local")).embed(["dog"], 8)
    assert "omnigraph[local-embed]" in (caught.value.hint or "")
