"""Whom a bearer token identifies: static tokens first, then those of an identity provider.

The size of a token is bounded before anything is computed from it. Static tokens are compared in
constant time, and every token is compared with them, so nothing tells the two kinds apart.
"""

from __future__ import annotations

from omnigraph.identity import Identity
from omnigraph.server.oidc.verifier import OidcVerifier
from omnigraph.server.tokens import LONGEST_TOKEN, TokenTable


class Authentication:
    """The credentials that a server accepts. Immutable but for what it has cached."""

    def __init__(self, tokens: TokenTable, oidc: OidcVerifier | None = None) -> None:
        self._tokens = tokens
        self._oidc = oidc
        self._identities = {actor: Identity(actor) for actor in tokens.actors}

    @property
    def oidc(self) -> OidcVerifier | None:
        return self._oidc

    @property
    def is_empty(self) -> bool:
        """Whether there is nobody to recognise."""
        return self._tokens.is_empty and self._oidc is None

    async def identify(self, token: str) -> Identity | None:
        """Whose token this is; ``None`` if nobody's."""
        if len(token) > LONGEST_TOKEN:
            return None
        actor = self._tokens.actor_of(token)
        if actor is not None:
            return self._identities[actor]
        return None if self._oidc is None else await self._oidc.identify(token)

    def __repr__(self) -> str:
        return f"<Authentication by {self._tokens!r}{' and OIDC' if self._oidc else ''}>"
