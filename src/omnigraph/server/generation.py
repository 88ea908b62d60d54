"""A generation: everything that a server serves by, as its processes exchange it.

The supervisor reads plan, tokens and identity provider once and hands them to all processes, so
that they decide in the same way; a reload makes another generation. Of tokens it has the digests
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from omnigraph.server.access import Access, RunState, classify
from omnigraph.server.authentication import Authentication
from omnigraph.server.boot import (
    BootPlan,
    file_signature,
    plan_from_cluster,
    plan_from_store,
    source_signature,
)
from omnigraph.server.config import ServerConfig
from omnigraph.server.control import KeptGraph
from omnigraph.server.oidc.keys import OnRefresh
from omnigraph.server.oidc.settings import OidcSettings, read_oidc_file
from omnigraph.server.oidc.verifier import OidcVerifier
from omnigraph.server.tokens import TokenTable
from omnigraph.settings import Settings


class Generation(msgspec.Struct, frozen=True):
    """What to serve, whom to accept, and how to decide."""

    plan: BootPlan
    tokens: tuple[tuple[str, bytes], ...]
    """Actors and the SHA-256 of their tokens."""
    state: RunState
    oidc: OidcSettings | None = None
    """The identity provider whose tokens are accepted too."""

    def authentication(
        self, on_refresh: OnRefresh, previous: Authentication | None = None
    ) -> Authentication:
        """Whom the server recognises. What a previous one has cached of the same provider stays."""
        verifier = None if previous is None else previous.oidc
        if self.oidc is None:
            verifier = None
        elif verifier is None or verifier.settings != self.oidc:
            verifier = OidcVerifier(self.oidc, on_refresh)
        return Authentication(TokenTable.from_digests(self.tokens), verifier)

    def access(self, config: ServerConfig, previous: Access | None = None) -> Access:
        """The decisions of a server with this configuration; see ``Access.from_plan``."""
        return Access.from_plan(
            self.plan, self.state, is_loopback=config.is_loopback, previous=previous
        )

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> Generation:
        return msgspec.json.decode(data, type=Generation)


def read_generation(
    config: ServerConfig, settings: Settings, previous: BootPlan | None = None
) -> Generation:
    """Read what a server is to serve by; raises ``ServerNotReady``.

    ``previous`` is what it serves already.
    """
    source = config.source
    if source.kind == "cluster":
        plan = plan_from_cluster(source.location, settings, previous)
    else:
        plan = plan_from_store(
            source.location, source.policy_file, source.queries_directory, source.server_policy_file
        )
    tokens = TokenTable.from_settings(settings)
    oidc = read_oidc_file(Path(settings.oidc_file)) if settings.oidc_file else None
    recognises = not tokens.is_empty or oidc is not None
    state = classify(plan, recognises=recognises, unauthenticated=config.unauthenticated)
    return Generation(plan, tokens.digests, state, oidc)


class GenerationSource:
    """Reads generations of one server, and tells when to read again."""

    def __init__(self, config: ServerConfig, settings: Settings) -> None:
        self._config = config
        self._settings = settings

    def read(self, previous: bytes = b"") -> bytes:
        """The newest generation, encoded; raises ``ServerNotReady``.

        A graph of the previous one that cannot be served any more stays as it is there.
        """
        if not previous:
            return self._noted(read_generation(self._config, self._settings)).encode()
        before = Generation.decode(previous)
        live = before.plan.served
        generation = self._noted(read_generation(self._config, self._settings, before.plan))
        kept = [
            KeptGraph(graph.graph_id, graph.code, graph.message)
            for graph in generation.plan.quarantined
            if graph.graph_id in live
        ]
        return self._keeping(generation, before, kept).encode()

    def keep(self, generation: bytes, previous: bytes, kept: Sequence[KeptGraph]) -> bytes:
        """The generation with some graphs as they are in the previous one."""
        wanted, before = Generation.decode(generation), Generation.decode(previous)
        return self._keeping(wanted, before, kept).encode()

    def _keeping(
        self, generation: Generation, before: Generation, kept: Sequence[KeptGraph]
    ) -> Generation:
        if not kept:
            return generation
        return msgspec.structs.replace(generation, plan=generation.plan.keeping(before.plan, kept))

    def _noted(self, generation: Generation) -> Generation:
        """Called with everything that is read."""
        return generation

    def signature(self) -> object:
        """Changes if a file that ``read`` reads may have changed."""
        source = self._config.source
        files = (self._settings.accepted_tokens_file, self._settings.oidc_file)
        return (
            source_signature(
                source.location,
                source.kind == "cluster",
                self._settings,
                (source.policy_file, source.server_policy_file),
                source.queries_directory,
            ),
            *(file_signature(Path(file)) if file else None for file in files),
        )
