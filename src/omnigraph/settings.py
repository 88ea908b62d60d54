"""The one place that reads the environment.

A setting exists here only when something uses it. Whoever needs one takes a ``Settings`` from
its caller; only the edges of the program build one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

_TRUE = frozenset({"1", "true", "yes", "on"})


def save_memory() -> None:
    """Let libraries that are loaded later start no threads of their own for arithmetic.

    Each would take memory at once, and the library ends the process when there is none.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _switch(variable: str) -> Any:
    return field(default=False, metadata={"variables": (variable,)})


def _text(*variables: str, is_secret: bool = False) -> Any:
    """A text; of several variables the first that is set counts."""
    return field(default="", repr=not is_secret, metadata={"variables": variables})


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says.

    >>> Settings.from_environ({"OMNIGRAPH_DEBUG": "1"}).debug
    True
    """

    debug: bool = _switch("OMNIGRAPH_DEBUG")
    """Show the Python traceback when OmniGraph itself fails."""

    operator_home: str = _text("OMNIGRAPH_HOME")
    """The directory of the operator's configuration; ``~/.omnigraph`` when empty."""

    profile: str = _text("OMNIGRAPH_PROFILE")
    """The profile that counts when none is named."""

    bearer_token: str = _text("OMNIGRAPH_BEARER_TOKEN", is_secret=True)
    """The token for servers that have none of their own."""

    no_color: str = _text("NO_COLOR")
    """Anything here, and nothing is coloured."""

    terminal: str = _text("TERM")
    """What the terminal is; a ``dumb`` one gets neither colours nor bars."""

    pager: str = _text("PAGER")
    """The program that shows long output on a terminal; ``less`` when empty."""

    s3_access_key_id: str = _text("AWS_ACCESS_KEY_ID", is_secret=True)
    s3_secret_access_key: str = _text("AWS_SECRET_ACCESS_KEY", is_secret=True)
    s3_session_token: str = _text("AWS_SESSION_TOKEN", is_secret=True)
    s3_region: str = _text("AWS_REGION", "AWS_DEFAULT_REGION")

    s3_endpoint: str = _text("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    """Where the S3 server is, when it is not Amazon's."""

    s3_allow_http: bool = _switch("AWS_ALLOW_HTTP")
    """Speak to the server without encryption."""

    s3_path_style: bool = _switch("AWS_S3_FORCE_PATH_STYLE")
    """Name the bucket in the path of an address, not in its host."""

    embed_mock: bool = _switch("OMNIGRAPH_EMBEDDINGS_MOCK")
    """Embed texts without a provider, by numbers that mean nothing: for tests."""

    embed_provider: str = _text("OMNIGRAPH_EMBED_PROVIDER")
    embed_base_url: str = _text("OMNIGRAPH_EMBED_BASE_URL")
    embed_model: str = _text("OMNIGRAPH_EMBED_MODEL")
    embed_deadline_ms: str = _text("OMNIGRAPH_EMBED_DEADLINE_MS")
    embed_timeout_ms: str = _text("OMNIGRAPH_EMBED_TIMEOUT_MS")
    embed_retry_attempts: str = _text("OMNIGRAPH_EMBED_RETRY_ATTEMPTS")
    embed_retry_backoff_ms: str = _text("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS")
    openrouter_api_key: str = _text("OPENROUTER_API_KEY", is_secret=True)
    openai_api_key: str = _text("OPENAI_API_KEY", is_secret=True)
    gemini_api_key: str = _text("GEMINI_API_KEY", is_secret=True)

    traversal_mode: str = _text("OMNIGRAPH_TRAVERSAL_MODE")
    """How traversals find edges: ``indexed``, ``csr``, or by cost when empty."""

    indexed_max_hops: str = _text("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS")
    """More hops than this never go through an index; 6 when empty."""

    indexed_max_frontier: str = _text("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER")
    """More starts than this never go through an index; 1024 when empty."""

    maintenance_concurrency: str = _text("OMNIGRAPH_MAINTENANCE_CONCURRENCY")
    """How many shares of upkeep this process does at once; 8 when empty."""

    spark_master: str = _text("OMNIGRAPH_SPARK_MASTER")
    """Where Spark runs: a master such as ``spark://host:7077``; this machine when empty."""

    spark_remote: str = _text("SPARK_REMOTE", is_secret=True)
    """A Spark Connect server, when no master is named; its address may hold a token."""

    spark_memory: str = _text("OMNIGRAPH_SPARK_MEMORY")
    """What the driver of Spark may take; ``2g`` when empty."""

    spark_archive: str = _text("OMNIGRAPH_SPARK_ARCHIVE")
    """Whether starts of Spark are made faster: ``auto`` (as when empty), ``build`` or ``off``."""

    spark_key_bytes: str = _text("OMNIGRAPH_SPARK_KEY_BYTES")
    """Of how many bytes of keys a load on Spark holds all; more are joined. 1 GiB when empty."""

    spark_python: str = _text("PYSPARK_PYTHON")
    """The Python of the workers of a cluster; the path of this one when empty."""

    java_home: str = _text("JAVA_HOME")
    omnigraph_cache: str = _text("OMNIGRAPH_CACHE_DIR")
    user_cache: str = _text("XDG_CACHE_HOME")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """The settings of this process, or those of the given mapping."""
        values = os.environ if environ is None else environ
        found: dict[str, bool | str] = {}
        for setting in fields(cls):
            texts = (values.get(name, "").strip() for name in setting.metadata["variables"])
            text = next(filter(None, texts), "")
            found[setting.name] = text.lower() in _TRUE if setting.default is False else text
        return cls(**found)  # type: ignore[arg-type]

    @classmethod
    def variables(cls) -> tuple[str, ...]:
        """The names of every environment variable that is read."""
        return tuple(name for setting in fields(cls) for name in setting.metadata["variables"])

    @staticmethod
    def server_token(name: str, environ: Mapping[str, str] | None = None) -> str:
        """The token for one server, by the name that the operator's configuration gives it.

        >>> Settings.server_token("my-lab", {"OMNIGRAPH_TOKEN_MY_LAB": " abc "})
        'abc'
        """
        values = os.environ if environ is None else environ
        return values.get(f"OMNIGRAPH_TOKEN_{name.upper().replace('-', '_')}", "").strip()

    def operator_directory(self) -> str | None:
        """Where the operator's configuration lies; none where there is no home directory.

        >>> Settings.from_environ({"OMNIGRAPH_HOME": "/etc/og"}).operator_directory()
        '/etc/og'
        """
        found = os.path.expanduser(self.operator_home or "~/.omnigraph")
        return None if found.startswith("~") else found

    def storage_options(self) -> dict[str, str]:
        """How to reach S3, in the words that Lance and the object store share.

        >>> Settings.from_environ({"AWS_REGION": "eu-central-1"}).storage_options()
        {'aws_region': 'eu-central-1'}
        """
        options = {
            "aws_access_key_id": self.s3_access_key_id,
            "aws_secret_access_key": self.s3_secret_access_key,
            "aws_session_token": self.s3_session_token,
            "aws_region": self.s3_region,
            "aws_endpoint": self.s3_endpoint,
            "allow_http": "true" if self.s3_allow_http else "",
            "aws_virtual_hosted_style_request": "false" if self.s3_path_style else "",
        }
        return {name: value for name, value in options.items() if value}

    def embedding_options(self) -> dict[str, str]:
        """How to get embeddings, in the words of ``EmbeddingConfig.from_options``.

        >>> Settings.from_environ({"OMNIGRAPH_EMBEDDINGS_MOCK": "1"}).embedding_options()
        {'provider': 'mock'}
        """
        options = {
            "provider": "mock" if self.embed_mock else self.embed_provider,
            "base_url": self.embed_base_url,
            "model": self.embed_model,
            "deadline_ms": self.embed_deadline_ms,
            "timeout_ms": self.embed_timeout_ms,
            "attempts": self.embed_retry_attempts,
            "backoff_ms": self.embed_retry_backoff_ms,
            "openrouter_api_key": self.openrouter_api_key,
            "openai_api_key": self.openai_api_key,
            "gemini_api_key": self.gemini_api_key,
        }
        return {name: value for name, value in options.items() if value}

    def cache_dir(self) -> str:
        """Where what can be made again at any time is kept for this user.

        >>> Settings.from_environ({"XDG_CACHE_HOME": "/var/cache/ada"}).cache_dir()
        '/var/cache/ada/omnigraph'
        """
        if self.omnigraph_cache:
            return self.omnigraph_cache
        return os.path.join(self.user_cache or os.path.expanduser("~/.cache"), "omnigraph")

    def spark_options(self) -> dict[str, str]:
        """How to run Spark, in the words of ``SparkConfig.from_options``.

        >>> options = Settings.from_environ({"OMNIGRAPH_SPARK_MASTER": "local[2,4]"})
        >>> options.spark_options()["master"]
        'local[2,4]'
        """
        options = {
            "master": self.spark_master,
            "remote": self.spark_remote,
            "memory": self.spark_memory,
            "archive": self.spark_archive,
            "python": self.spark_python,
            "java_home": self.java_home,
            "cache_dir": self.cache_dir(),
        }
        return {name: value for name, value in options.items() if value}
