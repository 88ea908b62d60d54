"""Leases on S3: small objects that expire unless their holder renews them.

A lease is taken by creating its object, which exactly one of several can do. A background thread
renews it while it is held. One that was not renewed for its time to live belongs to a writer that
is dead, stopped or cut off: it is replaced, on the condition that nobody touched it since, and the
new holder's token is higher. Only the clock of the store decides what is too old, so clocks of
hosts may differ. A holder that was stopped for too long finds out by ``check``.

S3 tells contents apart, not writes: each renewal counts up, so that it changes the object's tag.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.errors import Conflict, OmniGraphError, StorageError, StorageMissing, StorageUnknown
from omnigraph.storage.leases import (
    LEASE_FOLDER,
    TTL_SECONDS,
    Turns,
    busy,
    jittered,
    lease_path,
)
from omnigraph.storage.objects import ObjectStore

_LOG = logging.getLogger(__name__)

_PROBE_SUFFIX = ".probe"
_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.1

# Stores give times in whole seconds: two of them are up to a second nearer than they look.
_CLOCK_STEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Record:
    """What a lease object says."""

    owner: str
    token: int
    name: str
    ttl: float
    beat: int = 0

    def text(self) -> str:
        return json.dumps(
            {
                "owner": self.owner,
                "token": self.token,
                "name": self.name,
                "ttl_seconds": self.ttl,
                "beat": self.beat,
            }
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A lease object as it was read: what it says, its tag, and its time on the store's clock."""

    record: _Record
    version: str
    modified: float


class S3Leases:
    """Leases of a graph on S3, by name."""

    def __init__(self, objects: ObjectStore, ttl: float = TTL_SECONDS) -> None:
        self._objects = objects
        self._ttl = ttl
        self._turns = Turns()

    @contextmanager
    def held(self, names: Iterable[str], timeout: float) -> Iterator[S3Held]:
        """See ``Leases``."""
        deadline = time.monotonic() + timeout
        with ExitStack() as stack:
            held = stack.enter_context(_renewed(self._ttl))
            for name in sorted(set(names)):
                stack.enter_context(self._turns.turn(name, deadline))
                lease = _Lease(self._objects, name, self._ttl)
                stack.callback(lease.release)
                lease.take(deadline)
                held.add(lease)
            yield held

    def is_free(self, name: str) -> bool:
        """See ``Leases``."""
        return _Watch(self._objects, name, self._ttl).is_free()


class S3Held:
    """Leases that are held, kept alive in the background."""

    def __init__(self) -> None:
        self._leases: list[_Lease] = []
        self._lock = threading.Lock()

    @property
    def tokens(self) -> Mapping[str, int]:
        """By name, how many holders before us died or were cut off, plus one."""
        return {lease.name: lease.token for lease in self._leases}

    def check(self) -> None:
        """Raise ``Conflict`` when one of the leases is not ours any more."""
        for lease in self._leases:
            lease.check()

    def add(self, lease: _Lease) -> None:
        """Keep one more lease alive."""
        with self._lock:
            self._leases.append(lease)

    def renew(self) -> None:
        """Renew every lease; one that cannot be renewed may be the next time."""
        with self._lock:
            leases = list(self._leases)
        for lease in leases:
            with suppress(OmniGraphError):
                lease.renew()


@contextmanager
def _renewed(ttl: float) -> Iterator[S3Held]:
    held = S3Held()
    done = threading.Event()

    def renew() -> None:
        while not done.wait(ttl / 3):
            held.renew()

    threading.Thread(target=renew, name="lease-renewal", daemon=True).start()
    try:
        yield held
    finally:
        done.set()


class _Lease:
    """One lease from the wish to have it to its end."""

    def __init__(self, objects: ObjectStore, name: str, ttl: float) -> None:
        self.name = name
        self._objects = objects
        self._path = lease_path(name)
        self._record = _Record(uuid.uuid4().hex, 1, name, ttl)
        self._watch = _Watch(objects, name, ttl)
        self._held = False
        self._is_settled = True
        self._renewed = 0.0

    @property
    def token(self) -> int:
        return self._record.token

    # -- taking --------------------------------------------------------------------------

    def take(self, deadline: float) -> None:
        """Wait for the lease and take it; ``Conflict`` when that lasts too long."""
        pause = _PAUSE_SECONDS
        self._held = self._put(None)
        while not self._held:
            seen = self._watch.look()
            if seen is None or self._is_mine(seen) or self._watch.is_stale(seen):
                self._held = self._put(seen)
                if self._held:
                    return
            left = deadline - time.monotonic()
            if left <= 0.0:
                raise busy(self.name)
            time.sleep(min(jittered(pause), left))
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _put(self, seen: _Seen | None) -> bool:
        """Create the object, or replace what a dead holder or a late request of ours left."""
        if seen is None:
            record = replace(self._record, token=1, beat=0)
            return self._written(record, lambda text: self._objects.create(self._path, text))
        if self._is_mine(seen):
            return self._beat(seen)
        return self._replaced(seen, replace(self._record, token=seen.record.token + 1))

    def _beat(self, seen: _Seen) -> bool:
        return self._replaced(seen, replace(seen.record, beat=seen.record.beat + 1))

    def _replaced(self, seen: _Seen, record: _Record) -> bool:
        return self._written(
            record, lambda text: self._objects.replace(self._path, text, seen.version)
        )

    def _written(self, record: _Record, put: Callable[[str], bool]) -> bool:
        """Write a record; when the answer says no or is lost, the object itself says who won."""
        # Taken before the request: the store's time of the object can only be later.
        started = time.monotonic()
        self._is_settled = False
        won = known = False
        with suppress(StorageUnknown):
            won = put(record.text())
            known = True
        if not won:
            seen = self._watch.look()
            won = seen is not None and seen.record == record
        if won:
            self._record, self._renewed = record, started
        self._is_settled = won or known
        return won

    def _is_mine(self, seen: _Seen) -> bool:
        return seen.record.owner == self._record.owner

    # -- holding -------------------------------------------------------------------------

    def renew(self) -> None:
        """Make the lease young again, if it is still ours."""
        seen = self._watch.look()
        if self._held and seen is not None and self._is_mine(seen):
            self._beat(seen)

    def check(self) -> None:
        """Raise ``Conflict`` unless the lease is ours and was renewed in time."""
        seen = self._watch.look()
        if seen is None or not self._is_mine(seen) or self._age() > self._record.ttl:
            raise Conflict(
                f"the right to write '{self.name}' expired and may have gone to somebody else",
                hint="repeat the write",
                details={"lease": self.name},
            )

    def release(self) -> None:
        """Give the lease back if it is still ours. What fails here ends by expiry instead."""
        was_held, self._held = self._held, False
        try:
            if was_held and self._age() < self._record.ttl / 3:
                # Too young to be taken by anybody before this request arrives.
                self._objects.delete(self._path)
            elif was_held or not self._is_settled:
                self._release_old()
        except OmniGraphError as error:
            _LOG.warning("the lease '%s' stays until it expires: %s", self.name, error)

    def _release_old(self) -> None:
        """Delete a lease that may be about to expire, or a creation that arrived late.

        S3 cannot delete on a condition, so the object is made young first: then nobody takes it
        between the look at it and its end.
        """
        seen = self._watch.look()
        if seen is not None and self._is_mine(seen) and self._beat(seen):
            self._objects.delete(self._path)

    def _age(self) -> float:
        return time.monotonic() - self._renewed


class _Watch:
    """One look after the other at a lease object, and whether its holder still renews it."""

    def __init__(self, objects: ObjectStore, name: str, ttl: float) -> None:
        self._objects = objects
        self._name = name
        self._path = lease_path(name)
        self._ttl = ttl
        self._version = ""
        self._look_again = 0.0

    def look(self) -> _Seen | None:
        """The object as it is now, ``None`` when there is none."""
        try:
            found = self._objects.read_stamped(self._path)
        except StorageMissing:
            return None
        record = _parse(found.text, self._name, self._ttl)
        return _Seen(record, found.version, found.modified.timestamp())

    def is_free(self) -> bool:
        """Whether the lease can be taken now."""
        seen = self.look()
        return seen is None or self.is_stale(seen)

    def is_stale(self, seen: _Seen) -> bool:
        """Whether a lease was not renewed for longer than it lives, by the store's clock.

        The store is asked when an object is seen for the first time, and again when the same one
        could have expired.
        """
        if seen.version == self._version and time.monotonic() < self._look_again:
            return False
        life = seen.record.ttl + _CLOCK_STEP_SECONDS
        age = self._store_time() - seen.modified
        if age >= life:
            return True
        self._version = seen.version
        self._look_again = time.monotonic() + min(life - age, life)
        return False

    def _store_time(self) -> float:
        """What time it is for the store: the time that it gives to a new object."""
        path = f"{LEASE_FOLDER}/{uuid.uuid4().hex}{_PROBE_SUFFIX}"
        found = None
        try:
            with suppress(StorageUnknown):
                self._objects.write(path, "")
                found = self._objects.head(path)
        finally:
            with suppress(StorageError):
                self._objects.delete(path)
        # Not knowing the time, nothing is called too old.
        return float("-inf") if found is None else found.modified.timestamp()


def _parse(text: str, name: str, ttl: float) -> _Record:
    """What a lease object says; one that nobody can read expires like any other."""
    try:
        data: dict[str, Any] = json.loads(text)
        return _Record(
            str(data["owner"]),
            int(data["token"]),
            str(data["name"]),
            float(data["ttl_seconds"]),
            int(data["beat"]),
        )
    except (ValueError, KeyError, TypeError):
        return _Record("", 0, name, ttl)
