"""A generation: everything that a server serves by, as its processes exchange it.

The supervisor reads plan and tokens once and hands them to all processes, so that they decide in
the same way; a reload makes another generation. Of tokens it has the digests only.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from omnigraph.server.access import Access, RunState, classify
from omnigraph.server.boot import (
    BootPlan,
    file_signature,
    plan_from_cluster,
    plan_from_store,
    source_signature,
)
from omnigraph.server.config import ServerConfig
from omnigraph.server.tokens import TokenTable
from omnigraph.settings import Settings


class Generation(msgspec.Struct, frozen=True):
    """What to serve, whom to accept, and how to decide."""

    plan: BootPlan
    tokens: tuple[tuple[str, bytes], ...]
    """Actors and the SHA-256 of their tokens."""
    state: RunState

    @property
    def token_table(self) -> TokenTable:
        return TokenTable.from_digests(self.tokens)

    def access(self, config: ServerConfig) -> Access:
        """The decisions of a server with this configuration."""
        return Access.from_plan(self.plan, self.state, is_loopback=config.is_loopback)

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> Generation:
        return msgspec.json.decode(data, type=Generation)


def read_generation(config: ServerConfig, settings: Settings) -> Generation:
    """Read what a server is to serve by; raises ``ServerNotReady``."""
    source = config.source
    if source.kind == "cluster":
        plan = plan_from_cluster(source.location, settings)
    else:
        plan = plan_from_store(source.location, source.policy_file, source.queries_directory)
    tokens = TokenTable.from_settings(settings)
    return Generation(plan, tokens.digests, classify(tokens, plan, config.unauthenticated))


class GenerationSource:
    """Reads generations of one server, and tells when to read again."""

    def __init__(self, config: ServerConfig, settings: Settings) -> None:
        self._config = config
        self._settings = settings

    def read(self) -> bytes:
        """The newest generation, encoded; raises ``ServerNotReady``."""
        return read_generation(self._config, self._settings).encode()

    def signature(self) -> object:
        """Changes if a file that ``read`` reads may have changed."""
        source = self._config.source
        tokens = self._settings.accepted_tokens_file
        return (
            source_signature(
                source.location,
                source.kind == "cluster",
                self._settings,
                source.policy_file,
                source.queries_directory,
            ),
            file_signature(Path(tokens)) if tokens else None,
        )
