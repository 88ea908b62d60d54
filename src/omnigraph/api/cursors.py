"""Cursors of pages: places in the rows of one query on one state of a graph.

A cursor is opaque. It names the commit whose state is read and the number of rows before it, and
is bound to the text and the parameters of the query, to the actor, to the policy in force, and to
what the actor sees. A server signs its cursors with a key of the graph, see ``cursor_keys``:
whoever changes a byte has an invalid cursor. In the caller's own process there is nobody to keep
from changing one: cursors there have a plain checksum, and no server accepts them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from omnigraph.errors import ForeignCursor, HistoryGone, InvalidCursor, ViewChanged
from omnigraph.plan.view import View
from omnigraph.records import dataclass

_VERSION = b"\x01"
_PURPOSE = b"omnigraph page cursor"
KEY_ID_BYTES = 8
_MAC_BYTES = hashlib.sha256().digest_size
_LONGEST = 2_048
_MARK = 32
_AGAIN = "begin again without a cursor"


# -- keys ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CursorKey:
    """A key that signs cursors. Its text never shows the secret."""

    key_id: bytes
    secret: bytes

    def __repr__(self) -> str:
        return f"<CursorKey {self.key_id.hex()}>"


class CursorKeys(Protocol):
    """The keys of a graph."""

    def signing(self) -> CursorKey:
        """The key for new cursors."""
        ...

    def find(self, key_id: bytes) -> CursorKey | None:
        """A key whose cursors are still accepted."""
        ...


class _Unsigned:
    """The keys of a caller who has the graph in its own process: none."""

    _KEY = CursorKey(bytes(KEY_ID_BYTES), b"")

    def signing(self) -> CursorKey:
        return self._KEY

    def find(self, key_id: bytes) -> CursorKey | None:
        return self._KEY if key_id == self._KEY.key_id else None


UNSIGNED: CursorKeys = _Unsigned()


# -- cursors -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CursorScope:
    """What a cursor may be used for."""

    query: str
    """A digest of the text, of the name of the query, and of the state that the caller names."""
    params: str
    actor: str
    policy: str
    """The mark of the policy in force; empty if there is none."""

    @classmethod
    def of(
        cls,
        text: str,
        name: str | None,
        params: Mapping[str, Any] | None,
        actor: str | None,
        policy: str,
        *state: str | None,
    ) -> CursorScope:
        """``state`` is how the caller names the state to read: its branch, or its commit.

        ``policy`` is the digest of the policy in force.

        >>> one = CursorScope.of("query q() {}", "q", {"a": 1, "b": 2}, "ana", "", "main")
        >>> one == CursorScope.of("query q() {}", "q", {"b": 2, "a": 1}, "ana", "", "main")
        True
        >>> one == CursorScope.of("query q() {}", "q", {"a": 1, "b": 2}, "ana", "", "review")
        False
        """
        return cls(
            _digest("query", text, name, *state),
            _digest("params", params or {}),
            _digest("actor", actor),
            policy[:_MARK],
        )


def _digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_MARK]


def view_mark(view: View) -> str:
    """The mark of what an actor sees: empty if that is everything."""
    return "" if view.is_whole else view.digest[:_MARK]


@dataclass(frozen=True, slots=True)
class PageCursor:
    """A place in the rows of a query."""

    scope: CursorScope
    commit: str
    """Its state is read."""
    offset: int
    """The number of rows before the place."""
    moment: int
    """What ``now()`` means in the query, in milliseconds since 1970."""
    view: str
    """The mark of what the actor saw when the first page was read."""

    def after(self, rows: int) -> PageCursor:
        """The place some rows further."""
        return PageCursor(self.scope, self.commit, self.offset + rows, self.moment, self.view)

    def text(self, keys: CursorKeys) -> str:
        """The cursor as its holder gets it."""
        scope, key = self.scope, keys.signing()
        fields = [self.commit, self.offset, self.moment, self.view]
        fields += [scope.query, scope.params, scope.actor, scope.policy]
        packed = json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode("ascii")
        signed = _VERSION + key.key_id + packed
        return _encoded(signed + _mac(key, signed))

    @classmethod
    def parse(cls, text: str, keys: CursorKeys, scope: CursorScope) -> PageCursor:
        """The cursor of an earlier page of the same query.

        Raises ``InvalidCursor``, ``ForeignCursor`` if it was issued to another actor, or
        ``ViewChanged`` if it was issued under another policy.
        """
        cursor = cls(*_checked(text, keys))
        if cursor.scope.actor != scope.actor:
            raise ForeignCursor("the cursor was issued to another actor", hint=_AGAIN)
        if replace(cursor.scope, policy=scope.policy) != scope:
            raise InvalidCursor(
                "the cursor belongs to another query, to other parameters or to another branch",
                hint="pass the same query and parameters with it, or begin again without a cursor",
            )
        if cursor.scope != scope:
            # Also if the actor still sees the same: what it may have had may be less.
            raise _view_changed("the policy has changed since the first page was read")
        return cursor

    def check_view(self, view: View) -> None:
        """Raise if the actor sees other rows than when the first page was read."""
        if self.view != view_mark(view):
            raise _view_changed("the actor sees other rows than when the first page was read")

    def gone(self) -> HistoryGone:
        """The error of a state that does not exist any more."""
        return HistoryGone(
            "the state that the cursor reads does not exist any more",
            hint=f"{_AGAIN}; a tag keeps the state of a commit",
            details={"commit_id": self.commit},
        )


def _checked(text: str, keys: CursorKeys) -> tuple[CursorScope, str, int, int, str]:
    """The fields of a cursor whose signature is right."""
    raw = _decoded(text)
    head = len(_VERSION) + KEY_ID_BYTES
    if len(raw) <= head + _MAC_BYTES or raw[: len(_VERSION)] != _VERSION:
        raise _invalid()
    key = keys.find(raw[len(_VERSION) : head])
    signed, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
    if key is None or not hmac.compare_digest(mac, _mac(key, signed)):
        raise _invalid()
    try:
        commit, offset, moment, view, query, params, actor, policy = json.loads(signed[head:])
    except (ValueError, TypeError, RecursionError):
        # Only without a secret can somebody sign this.
        raise _invalid() from None
    texts = (commit, view, query, params, actor, policy)
    is_valid = all(isinstance(part, str) for part in texts) and all(
        type(number) is int and 0 <= number < 1 << 53 for number in (offset, moment)
    )
    if not is_valid:
        raise _invalid()
    return CursorScope(query, params, actor, policy), commit, offset, moment, view


def _mac(key: CursorKey, signed: bytes) -> bytes:
    return hmac.digest(key.secret, _PURPOSE + signed, "sha256")


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _decoded(text: str) -> bytes:
    if not text.isascii() or len(text) > _LONGEST:
        raise _invalid()
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise _invalid() from None
    if _encoded(raw) != text:
        # Some letters of a text in this encoding have bits that mean nothing.
        raise _invalid()
    return raw


def _view_changed(message: str) -> ViewChanged:
    return ViewChanged(message, hint=_AGAIN, details={"cursor": "page"})


def _invalid() -> InvalidCursor:
    return InvalidCursor("the cursor is invalid, or too old", hint=_AGAIN)
