"""The configuration of a provider: model, address, key, deadlines and retries."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from omnigraph.argument_checks import Natural, Positive, check_fields, public
from omnigraph.errors import EmbeddingError
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.embed.providers.embedder import Embedder

OPENAI_COMPATIBLE, OPENAI, GEMINI = "openai-compatible", "openai", "gemini"
MOCK, LOCAL = "mock", "local"
PROVIDERS = (OPENAI_COMPATIBLE, OPENAI, GEMINI, MOCK, LOCAL)
LOCAL_MODEL = "wordllama/l2_supercat_256"

_ADDRESSES = {
    OPENAI_COMPATIBLE: "https://openrouter.ai/api/v1",
    OPENAI: "https://api.openai.com/v1",
    GEMINI: "https://generativelanguage.googleapis.com/v1beta",
}
_MODELS = {
    OPENAI_COMPATIBLE: "openai/text-embedding-3-large",
    OPENAI: "text-embedding-3-large",
    GEMINI: "gemini-embedding-2",
    LOCAL: LOCAL_MODEL,
}
KEY_VARIABLES = {
    OPENAI_COMPATIBLE: ("OPENROUTER_API_KEY", "OPENAI_API_KEY"),
    OPENAI: ("OPENAI_API_KEY",),
    GEMINI: ("GEMINI_API_KEY",),
}


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """The settings of a provider. Empty settings have its defaults.

    >>> EmbeddingConfig("openai").completed().model
    'text-embedding-3-large'
    """

    provider: str = OPENAI_COMPATIBLE
    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    deadline_ms: Natural = 60_000
    """The deadline of one call with all its attempts; 0 is unlimited."""
    timeout_ms: Positive = 30_000
    """The timeout of one request."""
    attempts: Positive = 4
    backoff_ms: Positive = 200
    """The delay after the first failure; it doubles with every further failure."""

    def __post_init__(self) -> None:
        check_fields(self)

    @staticmethod
    @public
    def from_options(options: Mapping[str, str]) -> EmbeddingConfig:
        """The configuration of the environment, see ``Settings.embedding_options``.

        >>> EmbeddingConfig.from_options({"provider": "mock", "timeout_ms": "soon"}).timeout_ms
        30000
        """
        plain = EmbeddingConfig()
        provider = options.get("provider") or plain.provider
        keys = (options.get(variable.lower(), "") for variable in KEY_VARIABLES.get(provider, ()))
        return EmbeddingConfig(
            provider,
            options.get("model", ""),
            options.get("base_url", ""),
            next(filter(None, keys), ""),
            _number(options, "deadline_ms", plain.deadline_ms, least=0),
            _number(options, "timeout_ms", plain.timeout_ms),
            _number(options, "attempts", plain.attempts),
            _number(options, "backoff_ms", plain.backoff_ms),
        )

    def completed(self) -> EmbeddingConfig:
        """The configuration with the defaults of its provider; raises for an unknown provider."""
        if self.provider not in PROVIDERS:
            raise EmbeddingError(
                f"unknown embedding provider '{self.provider}'",
                hint=f"the providers are {', '.join(PROVIDERS)}; set OMNIGRAPH_EMBED_PROVIDER",
            )
        return replace(
            self,
            model=self.model or _MODELS.get(self.provider, ""),
            base_url=(self.base_url or _ADDRESSES.get(self.provider, "")).rstrip("/"),
        )


def _number(options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    """A numeric option; the default if it is not a number or too small."""
    try:
        value = int(options.get(name, ""))
    except ValueError:
        return default
    return value if value >= least else default


class Embedders:
    """The provider of a handle; it is created, and its modules imported, by the first text."""

    def __init__(self, config: EmbeddingConfig) -> None:
        self.config = config
        self._embedder: Embedder | None = None
        self._lock = threading.Lock()

    def get(self) -> Embedder:
        from omnigraph.embed.providers.choice import make_embedder

        with self._lock:
            if self._embedder is None:
                self._embedder = make_embedder(self.config)
            return self._embedder
