"""The configuration of a server, as its processes exchange it.

It is made once, from the command line and the settings, and travels to the worker processes over
their control channel. It contains no secrets.
"""

from __future__ import annotations

import ipaddress
import os
from functools import cache
from typing import Literal

import msgspec

from omnigraph.errors import InputError
from omnigraph.mcp.branch_prefixes import PrefixRules, parse_prefixes
from omnigraph.server.admission import ReadCaps, WaitCaps, WriteCaps
from omnigraph.settings import Settings

DEFAULT_BIND = "127.0.0.1:8080"
_MOST_DEFAULT_WORKERS = 4


class ServerSource(msgspec.Struct, frozen=True):
    """What a server serves: one store, or the applied state of a cluster."""

    kind: Literal["store", "cluster"]
    location: str
    """The graph, or the cluster's directory or storage root."""
    policy_file: str | None = None
    """For a store only."""
    queries_directory: str | None = None
    """For a store only."""
    server_policy_file: str | None = None
    """For a store only: the bundle of the server itself."""


class QueryLimits(msgspec.Struct, frozen=True):
    """The limits of every read."""

    timeout: float = 30.0
    """In seconds."""
    max_rows: int = 100_000
    max_memory: int = 512 << 20
    """For intermediate rows, in bytes."""


class LogOptions(msgspec.Struct, frozen=True):
    """What is logged, and where."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    descriptor: int = 2
    """The file descriptor of the log."""
    slow_seconds: float = 1.0
    """Reads that take longer are logged with their text."""
    all_decisions: bool = False
    """Whether decisions that allow are logged as those that deny."""


class AgentOptions(msgspec.Struct, frozen=True):
    """What agents may do by MCP, and who may connect."""

    branches: PrefixRules = ()
    """Patterns of actors, and the prefixes of the branches that they may write to."""
    max_rows: int = 200
    """Rows in one result."""
    max_bytes: int = 100_000
    """Bytes in one result."""
    hosts: tuple[str, ...] = ()
    """Values of the header ``Host`` that are accepted besides those of a loopback address."""
    origins: tuple[str, ...] = ()
    """The same of the header ``Origin``."""


class ServerConfig(msgspec.Struct, frozen=True):
    """Everything that a server was told when it started."""

    source: ServerSource
    bind: str = DEFAULT_BIND
    workers: int = 1
    """Reader processes; with one, a single process does everything."""
    unauthenticated: bool = False
    require_all_graphs: bool = False
    flat: bool = False
    """Whether the routes of the only graph exist without a prefix too."""
    drain_seconds: float = 30.0
    read_caps: ReadCaps = ReadCaps()
    write_caps: WriteCaps = WriteCaps()
    wait_caps: WaitCaps = WaitCaps()
    limits: QueryLimits = QueryLimits()
    log: LogOptions = LogOptions()
    agents: AgentOptions = AgentOptions()
    trace_endpoint: str = ""
    """The OTLP collector that spans are sent to; none when empty."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to bind."""
        return parse_bind(self.bind)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.address[0])


@cache
def parse_bind(bind: str) -> tuple[str, int]:
    """The host and port of an address.

    >>> parse_bind("127.0.0.1:8080"), parse_bind("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))
    >>> parse_bind("8080")
    Traceback (most recent call last):
    ...
    omnigraph.errors.InputError: invalid address '8080'; expected HOST:PORT
    """
    host, colon, port = bind.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    if not colon or not host or not is_number or int(port) > 65535:
        raise InputError(
            f"invalid address '{bind}'; expected HOST:PORT",
            hint=f"the default is {DEFAULT_BIND}; port 0 chooses a free one",
        )
    return host, int(port)


@cache
def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine only.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def default_workers() -> int:
    """One reader process per core, at most four."""
    return min(_MOST_DEFAULT_WORKERS, os.cpu_count() or 1)


def make_config(
    source: ServerSource,
    settings: Settings,
    *,
    bind: str | None = None,
    workers: int | None = None,
    unauthenticated: bool = False,
    require_all_graphs: bool = False,
    flat: bool = False,
) -> tuple[ServerConfig, list[str]]:
    """The configuration of a server, and warnings about settings that are ignored."""
    warnings: list[str] = []

    def cap(variable: str, text: str, default: int) -> int:
        if not text or (text.isascii() and text.isdecimal() and int(text) > 0):
            return int(text or default)
        warnings.append(f"invalid {variable} '{text}' is ignored; the default {default} is used")
        return default

    writes = WriteCaps()
    config = ServerConfig(
        source=source,
        bind=bind or settings.bind or DEFAULT_BIND,
        workers=default_workers() if workers is None else workers,
        unauthenticated=unauthenticated or settings.unauthenticated,
        require_all_graphs=require_all_graphs or settings.require_all_graphs,
        flat=flat,
        drain_seconds=float(settings.drain_seconds),
        read_caps=ReadCaps(
            settings.read_slots,
            settings.read_bytes,
            settings.actor_read_slots,
            settings.actor_read_bytes,
        ),
        write_caps=WriteCaps(
            cap("OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", settings.actor_writes, writes.writes),
            cap("OMNIGRAPH_PER_ACTOR_BYTES_MAX", settings.actor_write_bytes, writes.size),
        ),
        wait_caps=WaitCaps(settings.waiting_slots, settings.actor_waiting_slots),
        limits=QueryLimits(
            float(settings.query_timeout), settings.query_max_rows, settings.query_max_memory
        ),
        log=LogOptions(
            level=_level(settings.log_level),
            slow_seconds=settings.slow_query_ms / 1000,
            all_decisions=settings.logged_decisions == "all",
        ),
        agents=AgentOptions(
            branches=parse_prefixes(settings.agent_branches),
            max_rows=settings.agent_max_rows,
            max_bytes=settings.agent_max_bytes,
            hosts=tuple(settings.agent_hosts.split()),
            origins=tuple(settings.agent_origins.split()),
        ),
        trace_endpoint=settings.trace_endpoint,
    )
    if config.workers < 1:
        raise InputError(f"invalid number of workers {config.workers}; expected 1 or more")
    parse_bind(config.bind)
    return config, warnings


def _level(text: str) -> Literal["debug", "info", "warning", "error"]:
    match text:
        case "debug" | "info" | "warning" | "error":
            return text
    raise InputError(f"invalid log level '{text}'")
