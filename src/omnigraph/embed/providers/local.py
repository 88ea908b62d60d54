"""Embeddings on this machine, by the small model that the package ``wordllama`` ships.

The vector of a text is the mean of the vectors of its tokens. Only the files of the package are
read: it would set up logging for the whole program when imported, and look for a network.
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
from omnigraph.embed.providers.embedder import PLAIN, Batch, Role, Waiting, unit_batch, unit_vectors
from omnigraph.errors import EmbeddingError, PackageMissing

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENS = "tokenizers/l2_supercat_tokenizer_config.json"
_SIZE = 256


class LocalEmbedder:
    """Needs no key and no network. The model is loaded with the first text."""

    model = LOCAL_MODEL
    most_texts = 2048

    def __init__(self) -> None:
        self._loaded: tuple[Any, npt.NDArray[np.float32]] | None = None
        self._loading = threading.Lock()

    def embed(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.QUERY,
        deadline: float | None = None,
    ) -> npt.NDArray[np.float32]:
        """One row for each text; of the 256 numbers of the model the first ``dimension``."""
        return unit_vectors(self._means(texts, dimension), dimension)

    def embed_batch(
        self,
        texts: Sequence[str],
        dimension: int,
        *,
        role: Role = Role.DOCUMENT,
        waiting: Waiting = PLAIN,
    ) -> Batch:
        """All of the texts; one that has no words known to the model is told apart."""
        waiting.turn()
        return unit_batch(self._means(texts, dimension), dimension)

    def _means(self, texts: Sequence[str], dimension: int) -> npt.NDArray[np.float32]:
        if dimension > _SIZE:
            raise EmbeddingError(
                f"embedding dimension mismatch: expected {dimension}, got {_SIZE}",
                hint=f"the local model gives at most {_SIZE} numbers; declare Vector({_SIZE})",
                details={"expected": dimension, "actual": _SIZE},
            )
        tokens, weights = self._model()
        found = np.zeros((len(texts), dimension), np.float32)
        for position, text in enumerate(texts):
            ids = tokens.encode(text, add_special_tokens=False).ids
            if ids:
                found[position] = weights[ids, :dimension].mean(axis=0)
        return found

    def _model(self) -> tuple[Any, npt.NDArray[np.float32]]:
        with self._loading:
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
