"""Local embeddings: by the small model in the package ``wordllama``, or by a mock.

The vector of a text is the mean of the vectors of its tokens. Only the files of the package are
read: importing it would configure logging for the whole program and access the network.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.embed.providers.config import LOCAL_MODEL
from omnigraph.embed.providers.embedder import (
    UNTHROTTLED,
    EmbeddingBatch,
    Role,
    Throttle,
    unit_batch,
)
from omnigraph.errors import EmbeddingError, PackageMissing
from omnigraph.lang.fnv import fnv1a_64

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENS = "tokenizers/l2_supercat_tokenizer_config.json"
_SIZE = 256


class LocalEmbedder:
    """Needs no key and no network. The model is loaded with the first text."""

    model = LOCAL_MODEL
    max_texts = 2048

    def __init__(self) -> None:
        self._loaded: tuple[Any, npt.NDArray[np.float32]] | None = None
        self._load_lock = threading.Lock()

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        deadline: float | None = None,
        throttle: Throttle = UNTHROTTLED,
    ) -> EmbeddingBatch:
        """The first ``dimension`` of the model's 256 numbers; the role makes no difference."""
        throttle.acquire()
        if dimension > _SIZE:
            raise EmbeddingError(
                f"embedding dimension mismatch: expected {dimension}, got {_SIZE}",
                hint=f"the local model has at most {_SIZE} dimensions; declare Vector({_SIZE})",
                details={"expected": dimension, "actual": _SIZE},
            )
        tokens, weights = self._model()
        means = np.zeros((len(texts), dimension), np.float32)
        for position, text in enumerate(texts):
            ids = tokens.encode(text, add_special_tokens=False).ids
            if ids:
                means[position] = weights[ids, :dimension].mean(axis=0)
        return unit_batch(means, dimension)

    def _model(self) -> tuple[Any, npt.NDArray[np.float32]]:
        with self._load_lock:
            if self._loaded is None:
                self._loaded = _load()
            return self._loaded


def _load() -> tuple[Any, npt.NDArray[np.float32]]:
    package = find_spec("wordllama")
    if package is None or not package.submodule_search_locations:
        raise PackageMissing(
            "the local embedding model is not installed",
            hint="pip install 'omnigraph[local-embed]'",
        )
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    home = Path(next(iter(package.submodule_search_locations)))
    try:
        tokens = Tokenizer.from_file(str(home / _TOKENS))
        weights = load_file(str(home / _WEIGHTS))["embedding.weight"].astype(np.float32)
    except Exception as error:
        raise EmbeddingError(
            "the files of the local embedding model cannot be read",
            hint="pip install --force-reinstall 'omnigraph[local-embed]'",
        ) from error
    return tokens, weights


_MASK = 2**64 - 1


class MockEmbedder:
    """For tests and trials: vectors computed from the characters of a text, without any meaning.

    The numbers are those of the reference implementation, so the two programs can share test data.
    """

    max_texts = 2048

    def __init__(self, model: str = "") -> None:
        self.model = model

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        deadline: float | None = None,
        throttle: Throttle = UNTHROTTLED,
    ) -> EmbeddingBatch:
        throttle.acquire()
        vectors = np.empty((len(texts), dimension), np.float32)
        for position, text in enumerate(texts):
            vectors[position] = _vector(text, dimension)
        return EmbeddingBatch(vectors)


def _vector(text: str, dimension: int) -> npt.NDArray[np.float32]:
    state = fnv1a_64(text)
    ratios = np.empty(dimension, np.float32)
    for position in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        ratios[position] = state / float(_MASK)
    values = ratios * np.float32(2.0) - np.float32(1.0)
    norm = np.float32(np.sqrt(np.square(values.astype(np.float64)).sum()))
    scaled: npt.NDArray[np.float32] = values / norm if norm > np.finfo(np.float32).eps else values
    return scaled
