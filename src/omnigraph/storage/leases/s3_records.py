"""The objects of leases on S3: their content, and whether their holder still renews them."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import suppress
from dataclasses import asdict

import msgspec

from omnigraph.errors import StorageError, StorageMissing, StorageUnknown
from omnigraph.records import dataclass
from omnigraph.storage.leases.local import LEASE_FOLDER, lease_path
from omnigraph.storage.objects.store import ObjectStore

_PROBE_SUFFIX = ".probe"

# Stores report times in whole seconds: a difference of two is too large by up to a second.
_CLOCK_STEP_SECONDS = 1.0

NOBODY = ""
"""The owner of a lease whose holder has released it, but could not delete the object."""
_UNREADABLE = "?"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a lease object."""

    owner: str
    token: int
    name: str
    ttl_seconds: float
    beat: int = 0
    waiters: tuple[str, ...] = ()
    """The waiters in order of arrival."""
    renewed: float | None = None
    """When its holder wrote it, by the store's clock; ``None`` if nothing was written since."""

    def text(self) -> str:
        stored = {name: value for name, value in asdict(self).items() if value not in ((), None)}
        return json.dumps(stored)

    @property
    def is_disowned(self) -> bool:
        return self.owner == NOBODY

    def is_same_write(self, other: LeaseRecord) -> bool:
        """Whether both are the same write by the holder; waiters may have been added since."""
        return (self.owner, self.token, self.beat) == (other.owner, other.token, other.beat)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease object as read: its record, its ETag, and its time by the store's clock."""

    record: LeaseRecord
    version: str
    modified: float

    @property
    def renewed(self) -> float:
        """When the holder wrote it last."""
        return self.modified if self.record.renewed is None else self.record.renewed


class LeaseObserver:
    """Polls a lease object and decides whether its holder still renews it."""

    def __init__(self, objects: ObjectStore, name: str, ttl: float) -> None:
        self._objects = objects
        self._name = name
        self._path = lease_path(name)
        self._ttl = ttl
        self._last_renewal: tuple[str, int, int] | None = None
        self._look_again = 0.0

    def look(self) -> LeaseState | None:
        """The object as it is now, ``None`` if it does not exist."""
        try:
            stored = self._objects.read_versioned(self._path)
        except StorageMissing:
            return None
        record = _parse(stored.text, self._name, self._ttl)
        return LeaseState(record, stored.version, stored.modified.timestamp())

    def is_stale(self, seen: LeaseState) -> bool:
        """Whether a lease was not renewed within its time to live, by the store's clock.

        The store's clock is read when a renewal is first seen, and again when that renewal could
        have expired.
        """
        renewal = (seen.record.owner, seen.record.token, seen.record.beat)
        if renewal == self._last_renewal and time.monotonic() < self._look_again:
            return False
        life = seen.record.ttl_seconds + _CLOCK_STEP_SECONDS
        age = store_time(self._objects) - seen.renewed
        if age >= life:
            return True
        self._last_renewal = renewal
        self._look_again = time.monotonic() + min(life - age, life)
        return False


def store_time(objects: ObjectStore, folder: str = LEASE_FOLDER) -> float:
    """The clock of an object store: the time that it gives to a new object."""
    path = f"{folder}/{uuid.uuid4().hex}{_PROBE_SUFFIX}"
    probe = None
    try:
        with suppress(StorageUnknown):
            objects.write(path, "")
            probe = objects.head(path)
    finally:
        with suppress(StorageError):
            objects.delete(path)
    # Without the time, nothing counts as expired.
    return float("-inf") if probe is None else probe.modified.timestamp()


def _parse(text: str, name: str, ttl: float) -> LeaseRecord:
    """The record of a lease object; an unreadable one expires like any other."""
    try:
        return msgspec.json.decode(text, type=LeaseRecord)
    except msgspec.DecodeError:
        return LeaseRecord(_UNREADABLE, 0, name, ttl)
