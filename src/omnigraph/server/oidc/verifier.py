"""Whom a token of an identity provider identifies.

The work for a token is bounded: its size, one signature, and at most one fetch of keys, which is
made only for a token that has everything but a known key. Verified tokens are remembered by their
digest until they expire or the keys change.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from omnigraph.commit.names import check_actor
from omnigraph.errors import InputError
from omnigraph.identity import Identity
from omnigraph.server.oidc.keys import OnRefresh, SigningKeys
from omnigraph.server.oidc.settings import ClaimPath, OidcSettings

if TYPE_CHECKING:
    from jwt import PyJWK

LONGEST_HEADER = 4 << 10
LONGEST_ACTOR = 256
MOST_VALUES = 1_000
"""The groups of an actor, or the values of a list, at most."""
LONGEST_VALUE = 1_000
_REMEMBERED = 4_096
_RESERVED = "omnigraph:"
_ABSENT = object()


class OidcVerifier:
    """Verifies the tokens of one provider. Belongs to the event loop of its process."""

    def __init__(self, settings: OidcSettings, on_refresh: OnRefresh) -> None:
        self.settings = settings
        self._keys = SigningKeys(settings, on_refresh)
        self._verified: OrderedDict[bytes, tuple[Identity, float]] = OrderedDict()
        self._version = 0

    async def identify(self, token: str) -> Identity | None:
        """The actor of a token; ``None`` if it is not valid.

        Raises ``ServerUnavailable`` if no keys could be fetched.
        """
        header = _header_of(token)
        if header is None or header.get("alg") not in self.settings.algorithms:
            return None
        digest = hashlib.sha256(token.encode("ascii")).digest()
        remembered = self._remembered(digest)
        if remembered is not None:
            return remembered
        algorithm, key_id = header["alg"], header.get("kid")
        if not isinstance(key_id, str | None) or "crit" in header:
            return None
        key = self._keys.find(key_id, algorithm)
        if key is None and self._lacks_only_a_key(token):
            await self._keys.renew()
            key = self._keys.find(key_id, algorithm)
        if key is None:
            return None
        claims = self._decoded(token, key, algorithm)
        return None if claims is None else self._accept(digest, claims)

    def _forget_old_keys(self) -> None:
        if self._version != self._keys.version:
            self._verified.clear()
            self._version = self._keys.version

    def _remembered(self, digest: bytes) -> Identity | None:
        self._forget_old_keys()
        entry = self._verified.get(digest)
        if entry is None or not self._keys.are_usable():
            return None
        identity, until = entry
        if time.time() >= until:
            del self._verified[digest]
            return None
        self._verified.move_to_end(digest)
        return identity

    def _accept(self, digest: bytes, claims: dict[str, Any]) -> Identity | None:
        identity = identity_of(claims, self.settings)
        self._forget_old_keys()
        if identity is not None:
            self._verified[digest] = identity, float(claims["exp"]) + self.settings.skew_seconds
            if len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        return identity

    def _lacks_only_a_key(self, token: str) -> bool:
        """Whether a token would be valid if its signature were; nothing else is known of it."""
        return self._decoded(token, None, "") is not None

    def _decoded(self, token: str, key: PyJWK | None, algorithm: str) -> dict[str, Any] | None:
        """The claims of a token; they are verified only if there is a key."""
        import jwt

        settings = self.settings
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                "" if key is None else key,
                algorithms=[algorithm],
                options={
                    "verify_signature": key is not None,
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": True,
                    "verify_nbf": True,
                    "verify_iat": True,
                    "verify_aud": True,
                    "verify_iss": True,
                    "enforce_minimum_key_length": True,
                },
                audience=settings.audiences,
                issuer=settings.issuer,
                leeway=settings.skew_seconds,
            )
            is_finite = math.isfinite(float(claims["exp"]))
        except Exception:
            # Whatever is wrong with it, the token is not valid; its texts may contain claims.
            return None
        return claims if is_finite else None


def _header_of(token: str) -> dict[str, Any] | None:
    """The header of a token, before anything is verified; ``None`` if it is not a token."""
    first, dot, rest = token.partition(".")
    if not dot or rest.count(".") != 1 or len(first) > LONGEST_HEADER or not token.isascii():
        return None
    try:
        header = json.loads(base64.urlsafe_b64decode(first + "=" * (-len(first) % 4)))
    except (ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) and isinstance(header.get("alg"), str) else None


# -- claims --------------------------------------------------------------------------------------


def identity_of(claims: dict[str, Any], settings: OidcSettings) -> Identity | None:
    """The identity that verified claims give; ``None`` if they name no actor.

    Groups and attributes of another form are left out: rules only allow, so nothing is widened.

    >>> settings = OidcSettings("https://id.example.org", ("a",), groups=("groups",))
    >>> identity_of({"sub": "ana", "groups": ["staff"]}, settings).groups
    frozenset({'staff'})
    """
    actor = _claim(claims, settings.actor)
    if not isinstance(actor, str) or not actor.strip():
        return None
    name = f"{settings.actor_prefix}{actor}"
    if len(name) > LONGEST_ACTOR or name.startswith(_RESERVED):
        return None
    try:
        check_actor(name)
    except InputError:
        return None
    groups = () if settings.groups is None else _claim(claims, settings.groups)
    if isinstance(groups, str):
        groups = (groups,)
    if not isinstance(groups, list | tuple) or not all(isinstance(g, str) for g in groups):
        groups = ()
    attributes = {}
    for attribute, path in settings.attributes:
        value = _claim(claims, path)
        if _is_list(value) or _is_atom(value):
            attributes[attribute] = tuple(value) if isinstance(value, list) else value
    return Identity(name, frozenset(groups[:MOST_VALUES]), attributes)


def _claim(claims: dict[str, Any], path: ClaimPath) -> Any:
    value: Any = claims
    for name in path:
        if not isinstance(value, dict):
            return _ABSENT
        value = value.get(name, _ABSENT)
    return value


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_VALUES and all(map(_is_atom, value))


def _is_atom(value: Any) -> bool:
    """Whether a claim can be compared with a property."""
    if isinstance(value, str):
        return len(value) <= LONGEST_VALUE
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool) or (isinstance(value, int) and -(2**63) <= value < 2**64)
