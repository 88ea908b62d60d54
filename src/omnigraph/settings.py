"""The only module that reads the environment.

Only the entry points of the program create a ``Settings``; other code gets it from its caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from omnigraph.errors import InputError

T = TypeVar("T")

_OPENBLAS_TIMEOUT = "OPENBLAS_THREAD_TIMEOUT"
_TRUE = frozenset({"1", "true", "yes", "on"})
_ENVIRON: ContextVar[Mapping[str, str] | None] = ContextVar("environ", default=None)


def environment() -> Mapping[str, str]:
    """The environment of this process, or of the command that this thread runs for another one."""
    own = _ENVIRON.get()
    return os.environ if own is None else own


@contextmanager
def environment_of(environ: Mapping[str, str]) -> Iterator[None]:
    """Read the settings of another process in this thread: of a command that this one runs for it.

    >>> with environment_of({"OMNIGRAPH_DEBUG": "1"}):
    ...     Settings.from_environ().debug
    True
    """
    token = _ENVIRON.set(environ)
    try:
        yield
    finally:
        _ENVIRON.reset(token)


def save_memory() -> None:
    """Keep numeric libraries from starting threads, which abort the process without memory."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@contextmanager
def idle_threads_asleep() -> Iterator[None]:
    """Let the threads of a numeric library that is loaded meanwhile sleep while they are idle.

    As soon as NumPy is imported, OpenBLAS starts a thread for each further core. Without work it
    spins for 2**28 cycles, a tenth of a second, before it sleeps, and so after each product. With
    2**20 cycles it still waits for products that follow each other. Only its first look counts.
    """
    if _OPENBLAS_TIMEOUT in os.environ:
        yield
        return
    os.environ[_OPENBLAS_TIMEOUT] = "20"
    try:
        yield
    finally:
        os.environ.pop(_OPENBLAS_TIMEOUT, None)


class Setting(Generic[T]):
    """One setting: its environment variables (the first one set counts) and its type."""

    def __init__(
        self, variables: tuple[str, ...], parse: Callable[[str, str], T], is_secret: bool = False
    ) -> None:
        self.variables = variables
        self.parse = parse
        self.is_secret = is_secret

    def __set_name__(self, owner: type[Settings], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, settings: None, owner: type[Settings]) -> Setting[T]: ...
    @overload
    def __get__(self, settings: Settings, owner: type[Settings]) -> T: ...
    def __get__(self, settings: Settings | None, owner: type[Settings]) -> Setting[T] | T:
        if settings is None:
            return self
        return self.parse(*settings.text_of(self.variables))


def _switch(variable: str) -> Setting[bool]:
    return Setting((variable,), lambda _, text: text.lower() in _TRUE)


def _flag(variable: str) -> Setting[bool]:
    """A switch that any text turns on, except ``0`` and ``false``."""
    return Setting((variable,), lambda _, text: text.lower() not in ("", "0", "false"))


def _text(*variables: str, is_secret: bool = False) -> Setting[str]:
    return Setting(variables, lambda _, text: text, is_secret)


def _whole(variable: str, default: int, *, least: int = 0) -> Setting[int]:
    def parse(variable: str, text: str) -> int:
        if not text:
            return default
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise InputError(
                f"invalid {variable} '{text}'; expected a whole number from {least} on",
                hint=f"the default is {default}",
            )
        return int(text)

    return Setting((variable,), parse)


def _choice(variable: str, *choices: str) -> Setting[str]:
    def parse(variable: str, text: str) -> str:
        choice = text.lower() or choices[0]
        if choice not in choices:
            expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise InputError(f"invalid {variable} '{text}'; expected {expected}")
        return choice

    return Setting((variable,), parse)


class Settings:
    """The environment, typed. Using a setting with an invalid value raises ``InputError``.

    >>> Settings.from_environ({"OMNIGRAPH_MAINTENANCE_CONCURRENCY": "4"}).maintenance_concurrency
    4
    >>> Settings.from_environ({"OMNIGRAPH_MAINTENANCE_CONCURRENCY": "x"}).maintenance_concurrency
    Traceback (most recent call last):
    ...
    omnigraph.errors.InputError: invalid OMNIGRAPH_MAINTENANCE_CONCURRENCY 'x'; expected a whole \
number from 1 on
    """

    __slots__ = ("_texts",)
    _texts: Mapping[str, str]

    def __init__(self, texts: Mapping[str, str] = MappingProxyType({})) -> None:
        object.__setattr__(self, "_texts", texts)

    debug = _switch("OMNIGRAPH_DEBUG")
    """Show the Python traceback of an internal error."""

    operator_home = _text("OMNIGRAPH_HOME")
    """The directory of the operator's configuration; ``~/.omnigraph`` when empty."""

    profile = _text("OMNIGRAPH_PROFILE")
    """The profile to use if none is given."""

    bearer_token = _text("OMNIGRAPH_BEARER_TOKEN", is_secret=True)
    """The token for servers that have none of their own."""

    cluster_lock_seconds = _whole("OMNIGRAPH_CLUSTER_LOCK_SECONDS", 60, least=1)
    """How long the lock of a cluster is valid after its holder renewed it last."""

    no_color = _text("NO_COLOR")
    """If set to anything, output has no colours."""

    terminal = _text("TERM")
    """The kind of terminal; ``dumb`` disables colours and progress bars."""

    warm = _choice("OMNIGRAPH_WARM", "auto", "off")
    """Whether commands on local graphs run in the warm process of this user, if there is one."""

    warm_idle_seconds = _whole("OMNIGRAPH_WARM_IDLE_SECONDS", 900, least=1)
    """The warm process ends when it has had nothing to do for so long."""

    user_runtime = _text("XDG_RUNTIME_DIR")
    """The directory of this user's sockets; the warm process has its own in it."""

    pager = _text("PAGER")
    """The program that shows long output on a terminal; ``less`` when empty."""

    s3_access_key_id = _text("AWS_ACCESS_KEY_ID", is_secret=True)
    s3_secret_access_key = _text("AWS_SECRET_ACCESS_KEY", is_secret=True)
    s3_session_token = _text("AWS_SESSION_TOKEN", is_secret=True)
    s3_region = _text("AWS_REGION", "AWS_DEFAULT_REGION")

    s3_endpoint = _text("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    """The address of an S3 server other than Amazon's."""

    s3_allow_http = _switch("AWS_ALLOW_HTTP")
    """Allow unencrypted connections to the S3 server."""

    s3_path_style = _switch("AWS_S3_FORCE_PATH_STYLE")
    """Put the bucket into the path of a URL instead of its host name."""

    embed_mock = _switch("OMNIGRAPH_EMBEDDINGS_MOCK")
    """Compute meaningless embeddings without a provider, for tests."""

    embed_provider = _text("OMNIGRAPH_EMBED_PROVIDER")
    embed_base_url = _text("OMNIGRAPH_EMBED_BASE_URL")
    embed_model = _text("OMNIGRAPH_EMBED_MODEL")
    embed_deadline_ms = _text("OMNIGRAPH_EMBED_DEADLINE_MS")
    embed_timeout_ms = _text("OMNIGRAPH_EMBED_TIMEOUT_MS")
    embed_retry_attempts = _text("OMNIGRAPH_EMBED_RETRY_ATTEMPTS")
    embed_retry_backoff_ms = _text("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS")
    openrouter_api_key = _text("OPENROUTER_API_KEY", is_secret=True)
    openai_api_key = _text("OPENAI_API_KEY", is_secret=True)
    gemini_api_key = _text("GEMINI_API_KEY", is_secret=True)

    traversal_mode = _choice("OMNIGRAPH_TRAVERSAL_MODE", "auto", "indexed", "csr")
    """The traversal mode: by an index, by an adjacency in memory, or the cheaper of both."""

    indexed_max_hops = _whole("OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", 6)
    """Longer traversals, in hops, never use an index."""

    indexed_max_frontier = _whole("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", 1024)
    """Traversals from more nodes never use an index."""

    maintenance_concurrency = _whole("OMNIGRAPH_MAINTENANCE_CONCURRENCY", 8, least=1)
    """The number of maintenance tasks that run in parallel."""

    spark_master = _text("OMNIGRAPH_SPARK_MASTER")
    """The Spark master, such as ``spark://host:7077``; this machine when empty."""

    spark_remote = _text("SPARK_REMOTE", is_secret=True)
    """A Spark Connect server, used if no master is set; its address may contain a token."""

    spark_memory = _text("OMNIGRAPH_SPARK_MEMORY")
    """The memory of the Spark driver; ``2g`` when empty."""

    spark_archive = _text("OMNIGRAPH_SPARK_ARCHIVE")
    """Whether to speed up the start of Spark: ``auto`` (the default), ``build`` or ``off``."""

    spark_key_bytes = _whole("OMNIGRAPH_SPARK_KEY_BYTES", 1 << 30)
    """The bytes of keys that a load on Spark keeps in the driver; more keys are joined."""

    spark_python = _text("PYSPARK_PYTHON")
    """The Python of cluster workers; the path of this interpreter when empty."""

    bind = _text("OMNIGRAPH_BIND")
    """The address that a server binds, if none is given."""

    unauthenticated = _flag("OMNIGRAPH_UNAUTHENTICATED")
    """Serve without tokens and policies."""

    require_all_graphs = _flag("OMNIGRAPH_REQUIRE_ALL_GRAPHS")
    """A server does not start if one of its graphs cannot be served."""

    accepted_token = _text("OMNIGRAPH_SERVER_BEARER_TOKEN", is_secret=True)
    """A token that a server accepts, of the actor ``default``."""

    accepted_tokens_file = _text("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE")
    """A JSON file with the tokens that a server accepts, by actor."""

    accepted_tokens_json = _text("OMNIGRAPH_SERVER_BEARER_TOKENS_JSON", is_secret=True)
    """The same as JSON text, if there is no file."""

    accepted_tokens_aws_secret = _text("OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET")
    """The tokens of a server in AWS Secrets Manager; refused."""

    oidc_file = _text("OMNIGRAPH_SERVER_OIDC_FILE")
    """A YAML file with the identity provider whose tokens a server accepts."""

    actor_writes = _text("OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX")
    """How many writes of one actor a server runs at a time; 16 if empty or invalid."""

    actor_write_bytes = _text("OMNIGRAPH_PER_ACTOR_BYTES_MAX")
    """The estimated bytes of these writes; 4 GiB if empty or invalid."""

    read_slots = _whole("OMNIGRAPH_READ_SLOTS", 256, least=1)
    """How many reads one server process has in flight."""

    read_bytes = _whole("OMNIGRAPH_READ_BYTES", 512 << 20, least=1)
    """The bytes of these reads."""

    actor_read_slots = _whole("OMNIGRAPH_PER_ACTOR_READ_SLOTS", 256, least=1)
    """How many of them one actor has."""

    actor_read_bytes = _whole("OMNIGRAPH_PER_ACTOR_READ_BYTES", 256 << 20, least=1)
    """How many of the bytes one actor has."""

    waiting_slots = _whole("OMNIGRAPH_WAITING_SLOTS", 1024, least=1)
    """How many long polls and streams of events one server process has."""

    actor_waiting_slots = _whole("OMNIGRAPH_PER_ACTOR_WAITING_SLOTS", 256, least=1)
    """How many of them one actor has."""

    query_timeout = _whole("OMNIGRAPH_QUERY_TIMEOUT_SECONDS", 30, least=1)
    """The time of a query on a server, in seconds."""

    query_max_rows = _whole("OMNIGRAPH_QUERY_MAX_ROWS", 100_000, least=1)
    """The rows of the result of a query on a server."""

    query_max_memory = _whole("OMNIGRAPH_QUERY_MAX_MEMORY", 512 << 20, least=1)
    """The intermediate rows of a query on a server, in bytes."""

    agent_branches = _text("OMNIGRAPH_AGENT_BRANCHES")
    """Where agents write through a server: rules such as ``bot-*=agents/{actor}/``."""

    agent_max_rows = _whole("OMNIGRAPH_AGENT_MAX_ROWS", 200, least=1)
    """Rows in one result of a tool of a server."""

    agent_max_bytes = _whole("OMNIGRAPH_AGENT_MAX_BYTES", 100_000, least=1000)
    """Bytes in one result of a tool of a server."""

    agent_hosts = _text("OMNIGRAPH_AGENT_HOSTS")
    """Hosts, besides loopback ones, that agents may address a server by."""

    agent_origins = _text("OMNIGRAPH_AGENT_ORIGINS")
    """Origins of web pages whose agents may use a server."""

    drain_seconds = _whole("OMNIGRAPH_DRAIN_SECONDS", 30)
    """How long a server that ends waits for requests in flight."""

    log_level = _choice("OMNIGRAPH_LOG_LEVEL", "info", "debug", "warning", "error")
    """What a server logs."""

    logged_decisions = _choice("OMNIGRAPH_LOG_DECISIONS", "denied", "all")
    """Which decisions of policies a server logs: those that deny, or all."""

    slow_query_ms = _whole("OMNIGRAPH_SLOW_QUERY_MS", 1000)
    """Requests that take longer are logged with the text of their query."""

    trace_endpoint = _text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    """The OpenTelemetry collector that a server sends spans to; none when empty."""

    java_home = _text("JAVA_HOME")
    omnigraph_cache = _text("OMNIGRAPH_CACHE_DIR")
    user_cache = _text("XDG_CACHE_HOME")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """The settings of this process, or those of the given mapping."""
        values = environment() if environ is None else environ
        texts = {name: values.get(name, "").strip() for name in cls.variables()}
        return cls({name: text for name, text in texts.items() if text})

    @classmethod
    def variables(cls) -> tuple[str, ...]:
        """The names of all environment variables."""
        return tuple(name for setting in _settings() for name in setting.variables)

    def text_of(self, variables: tuple[str, ...]) -> tuple[str, str]:
        """The first of the variables that is set, and its text; empty if none is set."""
        name = next((name for name in variables if name in self._texts), variables[0])
        return name, self._texts.get(name, "")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings are read only: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and dict(self._texts) == dict(other._texts)

    def __hash__(self) -> int:
        return hash(frozenset(self._texts.items()))

    def __repr__(self) -> str:
        hidden = {
            name for setting in _settings() if setting.is_secret for name in setting.variables
        }
        shown = (f"{k}={'***' if k in hidden else v!r}" for k, v in self._texts.items())
        return f"<Settings {' '.join(shown)}>"

    @staticmethod
    def server_token(name: str, environ: Mapping[str, str] | None = None) -> str:
        """The token of a server, by its name in the operator's configuration.

        >>> Settings.server_token("my-lab", {"OMNIGRAPH_TOKEN_MY_LAB": " abc "})
        'abc'
        """
        values = environment() if environ is None else environ
        return values.get(f"OMNIGRAPH_TOKEN_{name.upper().replace('-', '_')}", "").strip()

    @staticmethod
    def referenced(name: str, environ: Mapping[str, str] | None = None) -> str:
        """The variable that a configuration file refers to as ``${NAME}``; empty if not set.

        >>> Settings.referenced("LAB_KEY", {"LAB_KEY": " abc "})
        'abc'
        """
        values = environment() if environ is None else environ
        return values.get(name, "").strip()

    def operator_directory(self) -> str | None:
        """The directory of the operator's configuration; none if there is no home directory.

        >>> Settings.from_environ({"OMNIGRAPH_HOME": "/etc/og"}).operator_directory()
        '/etc/og'
        """
        directory = os.path.expanduser(self.operator_home or "~/.omnigraph")
        return None if directory.startswith("~") else directory

    def storage_options(self) -> dict[str, str]:
        """The S3 options, under the names that Lance and the object store share.

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
        """The options of ``EmbeddingConfig.from_options``.

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
        """The directory for this user's caches, which can be rebuilt at any time.

        >>> Settings.from_environ({"XDG_CACHE_HOME": "/var/cache/ada"}).cache_dir()
        '/var/cache/ada/omnigraph'
        """
        if self.omnigraph_cache:
            return self.omnigraph_cache
        return os.path.join(self.user_cache or os.path.expanduser("~/.cache"), "omnigraph")

    def spark_options(self) -> dict[str, str]:
        """The options of ``SparkConfig.from_options``.

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


def _settings() -> list[Setting[Any]]:
    return [value for value in vars(Settings).values() if isinstance(value, Setting)]
