"""Static bearer tokens: where they come from, and whom a token identifies.

Only digests are kept. A presented token is compared with every digest, in the same way whether one
matches or not. Neither tokens nor digests appear in a message, a log or a representation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from hmac import compare_digest
from pathlib import Path
from typing import Any

from omnigraph.commit.names import check_actor
from omnigraph.errors import InputError, ServerNotReady
from omnigraph.escaping import escape
from omnigraph.settings import Settings

SINGLE_ACTOR = "default"
"""The actor of the token that has no name."""
_RESERVED = "omnigraph:"
"""Actors of commits that OmniGraph makes itself, such as recoveries."""
_LONGEST = 1_000
LONGEST_TOKEN = 16 << 10
"""Longer texts are no token of anybody."""


class TokenTable:
    """The actors of a server by their tokens.

    >>> table = TokenTable({"ana": "secret-1", "bo": "secret-2"})
    >>> table.actor_of("secret-2"), table.actor_of("secret-3")
    ('bo', None)
    >>> table
    <TokenTable of 2 actors>
    """

    def __init__(self, tokens: Mapping[str, str] | Sequence[tuple[str, str]] = ()) -> None:
        pairs = tokens.items() if isinstance(tokens, Mapping) else tokens
        actors: list[str | None] = [None]
        digests: list[bytes] = []
        for given, token in pairs:
            actor, secret = given.strip(), token.strip()
            _check(actor, secret)
            digest = _digest(secret)
            if actor in actors:
                raise _refused(f"actor '{escape(actor)}' has more than one token")
            if digest in digests:
                raise _refused(f"the token of actor '{escape(actor)}' has another actor too")
            actors.append(actor)
            digests.append(digest)
        self._actors: tuple[str | None, ...] = tuple(actors)
        self._digests = tuple(digests)
        self.files: tuple[Path, ...] = ()
        """The files that the tokens came from."""

    @classmethod
    def from_digests(cls, digests: Sequence[tuple[str, bytes]]) -> TokenTable:
        """The table that another process of the server made."""
        table = cls()
        table._actors = (None, *(actor for actor, _ in digests))
        table._digests = tuple(digest for _, digest in digests)
        return table

    @classmethod
    def from_settings(cls, settings: Settings) -> TokenTable:
        """The tokens of the environment, and of the file that it names.

        To reload, call it again: it reads the file again. Raises ``ServerNotReady``.
        """
        if settings.accepted_tokens_aws_secret:
            raise _refused(
                "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET is set, and this server cannot read "
                "AWS Secrets Manager",
                hint="write the tokens to a file that only the server can read, and name it in "
                "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
            )
        pairs: list[tuple[str, str]] = []
        if settings.accepted_token:
            pairs.append((SINGLE_ACTOR, settings.accepted_token))
        files: tuple[Path, ...] = ()
        if settings.accepted_tokens_file:
            files = (Path(settings.accepted_tokens_file),)
            pairs += _pairs(_content(files[0]), f"'{escape(settings.accepted_tokens_file)}'")
        elif settings.accepted_tokens_json:
            pairs += _pairs(settings.accepted_tokens_json, "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON")
        table = cls(pairs)
        table.files = files
        return table

    @property
    def digests(self) -> tuple[tuple[str, bytes], ...]:
        """Actors and the digests of their tokens, for other processes of the server only."""
        return tuple(
            (actor, digest)
            for actor, digest in zip(self._actors[1:], self._digests, strict=True)
            if actor is not None
        )

    @property
    def is_empty(self) -> bool:
        return not self._digests

    @property
    def actors(self) -> tuple[str, ...]:
        """The actors, sorted."""
        return tuple(sorted(actor for actor in self._actors if actor is not None))

    def actor_of(self, token: str | bytes) -> str | None:
        """Whom a token identifies; ``None`` if nobody."""
        presented = _digest(token)
        position = 0
        # Every entry is compared and there is no branch, so the time does not depend on the match.
        for number, digest in enumerate(self._digests, 1):
            position += number * compare_digest(digest, presented)
        return self._actors[position]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TokenTable)
            and self._actors == other._actors
            and self._digests == other._digests
        )

    def __hash__(self) -> int:
        return hash((self._actors, self._digests))

    def __repr__(self) -> str:
        return f"<TokenTable of {len(self._digests)} actors>"


def _digest(token: str | bytes) -> bytes:
    content = token if isinstance(token, bytes) else token.encode("utf-8", "surrogateescape")
    return hashlib.sha256(content).digest()


def _check(actor: str, token: str) -> None:
    if not actor:
        raise _refused("the name of an actor is blank")
    label = f"actor '{escape(actor[:80])}'"
    if len(actor) > _LONGEST or actor.startswith(_RESERVED):
        raise _refused(f"{label} cannot have a token: the name is reserved or too long")
    try:
        check_actor(actor)
    except InputError as error:
        raise _refused(f"{label}: {error.message}") from None
    if not token:
        raise _refused(f"the token of {label} is blank")
    if len(token) > LONGEST_TOKEN:
        raise _refused(f"the token of {label} has more than {LONGEST_TOKEN} characters")


def _content(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise _refused(f"cannot read '{escape(str(path))}': {reason}") from None
    except ValueError:
        raise _refused(f"'{escape(str(path))}' is not UTF-8 text") from None


def _pairs(text: str, source: str) -> list[tuple[str, str]]:
    """The entries of a JSON object, repeated keys included; the text is never quoted."""
    expected = _refused(f"{source} is not a JSON object of actors and their tokens")
    try:
        # Nested objects become lists of pairs too, and are refused below.
        pairs: Any = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        raise expected from None
    if not isinstance(pairs, _Pairs) or not all(isinstance(token, str) for _, token in pairs):
        raise expected
    return list(pairs)


class _Pairs(list[tuple[str, Any]]):
    """The entries of a JSON object."""


def _refused(message: str, hint: str | None = None) -> ServerNotReady:
    return ServerNotReady(
        f"bearer tokens: {message}",
        hint=hint
        or "tokens come from OMNIGRAPH_SERVER_BEARER_TOKEN and OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
    )
