"""The keys that sign the cursors of a served graph, in a private object beside its data.

Every process of every server of the graph reads the same object, so they accept each other's
cursors, also after a restart. The newest key signs. It is replaced after a day, and its cursors are
accepted for one more day. A process that meets an unknown key reads the object again, so no process
has to be told about a new one. Deleting the object makes all cursors invalid.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from omnigraph.api.cursors import KEY_ID_BYTES, CursorKey
from omnigraph.errors import OmniGraphError, StorageCorrupt, StorageError, StorageMissing
from omnigraph.records import dataclass
from omnigraph.storage.objects.store import ObjectStore

PATH = "__server/cursor_keys.json"
SIGNING_SECONDS = 86_400.0
"""How long a key signs cursors."""
ACCEPTED_SECONDS = 86_400.0
"""How long its cursors are accepted after the next key has taken its place."""
_LOOK_SECONDS = 30.0
"""A process reads the keys again after so long: those that were revoked are not accepted longer."""
_SECRET_BYTES = 32
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _StoredKey:
    key: CursorKey
    created: float


class StoredCursorKeys:
    """The keys of one graph. Safe to share between threads."""

    def __init__(self, objects: ObjectStore, clock: Callable[[], float] = time.time) -> None:
        self._objects = objects
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: tuple[_StoredKey, ...] = ()
        """The newest first."""
        self._read_at: float | None = None
        self._is_damaged = False

    def signing(self) -> CursorKey:
        """The key for new cursors; makes one if there is none, or if the newest is too old."""
        with self._lock:
            self._look()
            if not self._keys or self._clock() - self._keys[0].created >= SIGNING_SECONDS:
                self._renew()
            return self._keys[0].key

    def find(self, key_id: bytes) -> CursorKey | None:
        """A key whose cursors are still accepted."""
        with self._lock:
            if not self._look() and self._find(key_id) is None:
                self._read()
            return self._find(key_id)

    def _find(self, key_id: bytes) -> CursorKey | None:
        for stored in self._accepted():
            if stored.key.key_id == key_id:
                return stored.key
        return None

    def _accepted(self) -> tuple[_StoredKey, ...]:
        """The newest key, and those that it or another has replaced not long ago."""
        now = self._clock()
        replaced = zip(self._keys, self._keys[1:], strict=False)
        older = (old for new, old in replaced if now - new.created < ACCEPTED_SECONDS)
        return (*self._keys[:1], *older)

    # -- the object --------------------------------------------------------------------------

    def _look(self) -> bool:
        """Read the keys unless that was done lately; returns whether it was done now."""
        if self._read_at is not None and 0 <= self._clock() - self._read_at < _LOOK_SECONDS:
            return False
        self._read()
        return True

    def _read(self) -> str | None:
        """Read the keys; returns the version of the object, ``None`` if there is none."""
        self._is_damaged = False
        try:
            stored = self._objects.read_versioned(PATH)
        except (StorageMissing, StorageCorrupt) as error:
            self._is_damaged = isinstance(error, StorageCorrupt)
            self._keys, version = (), None
        else:
            self._keys, version = _decoded(stored.text), stored.version
        self._read_at = self._clock()
        return version

    def _renew(self) -> None:
        """Put a new key in front, unless another process has just done it."""
        version = self._read()
        if self._keys and self._clock() - self._keys[0].created < SIGNING_SECONDS:
            return
        secret = CursorKey(secrets.token_bytes(KEY_ID_BYTES), secrets.token_bytes(_SECRET_BYTES))
        # A key that is not accepted any more is not kept either.
        text = _encoded((_StoredKey(secret, self._clock()), *self._accepted()))
        try:
            if self._is_damaged:
                # It is no text, so it has no version that could be replaced.
                self._objects.delete(PATH)
            if version is None:
                self._objects.create(PATH, text, private=True)
            else:
                self._objects.replace(PATH, text, version, private=True)
        except OmniGraphError:
            # An old key still signs where nothing can be written.
            if not self._keys:
                raise
            return
        # Its own, or that of a process that was faster.
        self._read()
        if not self._keys:
            raise StorageError("the keys of the cursors were removed while they were read")


def _encoded(keys: tuple[_StoredKey, ...]) -> str:
    listed = [
        {"id": k.key.key_id.hex(), "secret": k.key.secret.hex(), "created": k.created} for k in keys
    ]
    return json.dumps({"format": _FORMAT, "keys": listed}, indent=1) + "\n"


def _decoded(text: str) -> tuple[_StoredKey, ...]:
    """The keys of an object; none of one that is damaged, which is then replaced."""
    try:
        document: Any = json.loads(text)
        keys = tuple(
            _StoredKey(
                CursorKey(bytes.fromhex(item["id"]), bytes.fromhex(item["secret"])),
                float(item["created"]),
            )
            for item in document["keys"]
        )
    except (ValueError, TypeError, KeyError):
        return ()
    is_whole = all(
        len(k.key.key_id) == KEY_ID_BYTES and len(k.key.secret) >= _SECRET_BYTES for k in keys
    )
    return tuple(sorted(keys, key=lambda k: -k.created)) if is_whole else ()
