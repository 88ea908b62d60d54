"""The lock of a cluster: one command at a time changes it.

The lock is an object that its holder renews in the background. One that was not renewed within its
time to live belongs to a process that is dead, stopped or disconnected: the next command replaces
it by a conditional write and advances the ledger, so that no write of the former holder can
succeed. Whether it expired is decided by the clock of the store. A lock without a time to live was
written by another program and never expires.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.location import LEDGER
from omnigraph.cluster.state_file import json_text, next_revision, read_ledger, write_ledger
from omnigraph.cluster.storage import CONTROL, LOCK, ClusterStorage, timestamp
from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import OmniGraphError, StorageError, StorageMissing, StorageUnknown
from omnigraph.logs import logger
from omnigraph.records import dataclass
from omnigraph.storage.leases.s3_records import store_time

LOCK_VERSION = 1

_LOG = logger(__name__)
_ATTEMPTS = 5
# Stores report times in whole seconds: a difference of two is too large by up to a second.
_CLOCK_STEP_SECONDS = 1.0


class LockRecord(msgspec.Struct, frozen=True):
    """The content of the lock object; fields after ``pid`` are unknown to the reference."""

    version: int
    lock_id: str
    operation: str
    created_at: str
    pid: int
    ttl_seconds: float | None = None
    beat: int = 0
    token: int = 0
    """One more than that of the holder from whom the lock was taken over."""

    def text(self) -> str:
        return json_text(msgspec.to_builtins(self))


@dataclass(frozen=True, slots=True)
class LockRead:
    """A lock object as it was read."""

    record: LockRecord
    version: str
    modified: float

    @property
    def age_seconds(self) -> int:
        """The seconds since the lock was taken, by the clock of this machine."""
        try:
            created = datetime.fromisoformat(self.record.created_at)
        except ValueError:
            return 0
        if created.tzinfo is None:
            created = created.replace(tzinfo=UTC)
        return max(int(time.time() - created.timestamp()), 0)


class LockGuard(Protocol):
    """The right to change a cluster."""

    @property
    def lock_id(self) -> str | None: ...

    def check(self) -> None:
        """Raise ``ClusterStop`` if the lock was lost: nothing may be changed any more."""


class _NoLock:
    """In place of a lock where ``state.lock`` is false."""

    lock_id = None

    def check(self) -> None:
        return None


def read_lock(storage: ClusterStorage) -> LockRead | None:
    """The lock object, ``None`` if there is none; raises ``ClusterStop``."""
    if storage.is_missing:
        return None
    path = storage.path(LOCK)
    try:
        stored = storage.objects.read_versioned(LOCK)
    except StorageMissing:
        return None
    except StorageError as error:
        raise ClusterStop("state_lock_read_error", path, error.message) from error
    try:
        record = msgspec.json.decode(stored.text, type=LockRecord)
    except msgspec.DecodeError:
        raise ClusterStop("invalid_state_lock", path, "the file is not a lock") from None
    if record.version != LOCK_VERSION:
        raise ClusterStop(
            "unsupported_state_lock_version",
            path,
            f"the lock has version {record.version}, this program supports {LOCK_VERSION}",
        )
    return LockRead(record, stored.version, stored.modified.timestamp())


@contextmanager
def hold_lock(
    storage: ClusterStorage, operation: str, *, enabled: bool = True
) -> Iterator[LockGuard]:
    """Hold the lock for a block; raises ``ClusterStop`` if another process holds it."""
    if not enabled:
        yield _NoLock()
        return
    lock = ClusterLock(storage, operation)
    lock.acquire()
    done = threading.Event()

    def renew() -> None:
        while not done.wait(storage.lock_seconds / 3):
            with suppress(OmniGraphError, ClusterStop):
                lock.renew()

    threading.Thread(target=renew, name="cluster-lock-renewal", daemon=True).start()
    try:
        yield lock
    finally:
        done.set()
        lock.release()


class ClusterLock:
    """The lock, from taking it to its release."""

    def __init__(self, storage: ClusterStorage, operation: str) -> None:
        self._storage = storage
        self._ttl = storage.lock_seconds
        self._record = LockRecord(
            LOCK_VERSION, new_ulid(), operation, timestamp(), os.getpid(), self._ttl
        )
        self._version = ""
        self._renewed = 0.0
        self._is_lost = False
        self._renewing = threading.Lock()

    @property
    def lock_id(self) -> str:
        return self._record.lock_id

    # -- taking ------------------------------------------------------------------------------

    def acquire(self) -> None:
        try:
            for _ in range(_ATTEMPTS):
                if self._create():
                    return
                seen = read_lock(self._storage)
                if seen is not None:
                    self._take_over(seen)
                    return
        except StorageError as error:
            raise ClusterStop("state_lock_error", self._path, error.message) from error
        raise ClusterStop(
            "state_lock_error", self._path, "other commands keep taking and releasing the lock"
        )

    @property
    def _path(self) -> str:
        return self._storage.path(LOCK)

    def _create(self) -> bool:
        text, started = self._record.text(), _now()
        try:
            won = self._storage.objects.create(LOCK, text)
        except StorageUnknown:
            won = False
        if not won:
            seen = read_lock(self._storage)
            won = seen is not None and seen.record == self._record
        if won:
            self._renewed = started
        return won

    def _take_over(self, seen: LockRead) -> None:
        """Take the lock of a process that does not renew it any more."""
        if not self._is_expired(seen):
            raise _lock_busy(seen, self._path)
        started = _now()
        record = msgspec.structs.replace(self._record, token=seen.record.token + 1)
        if not self._replace(record, seen.version):
            current = read_lock(self._storage)
            raise _lock_busy(current or seen, self._path)
        self._renewed = started
        _LOG.warning(
            "took over the lock %s of %s, which expired",
            seen.record.lock_id,
            seen.record.operation,
        )
        try:
            self._fence()
        except BaseException:
            self.release()
            raise

    def _is_expired(self, seen: LockRead) -> bool:
        ttl = seen.record.ttl_seconds
        if ttl is None:
            return False
        if self._storage.location.is_local:
            return time.time() - seen.modified >= ttl
        age = store_time(self._storage.objects, CONTROL) - seen.modified
        return age >= ttl + _CLOCK_STEP_SECONDS

    def _fence(self) -> None:
        """Advance the ledger, so that a write that the former holder has begun cannot succeed."""
        for _ in range(_ATTEMPTS):
            ledger = read_ledger(self._storage)
            state = ledger.state
            if ledger.exists:
                revision = next_revision(state, self._storage.path(LEDGER))
                state = msgspec.structs.replace(state, state_revision=revision)
            try:
                write_ledger(self._storage, ledger, state)
            except ClusterStop as stop:
                # The former holder was faster: what it wrote is read and advanced.
                if stop.diagnostic.code != "state_cas_mismatch":
                    raise
            else:
                return
        raise ClusterStop("state_lock_error", self._path, "the ledger keeps changing")

    # -- holding -----------------------------------------------------------------------------

    def check(self) -> None:
        # The object is read each time: somebody may have removed it by its id.
        seen = None if self._is_expired_here() else read_lock(self._storage)
        if seen is None or seen.record.lock_id != self.lock_id:
            self._is_lost = True
        elif _now() - self._renewed > self._ttl / 3:
            self.renew()
        if self._is_lost or self._is_expired_here():
            self._is_lost = True
            raise ClusterStop(
                "state_lock_lost",
                self._path,
                f"the lock {self.lock_id} expired or was removed, and another command may hold "
                "it; nothing further was changed",
            )

    def _is_expired_here(self) -> bool:
        """Whether others may have taken the lock over, by the clock of this machine."""
        return self._is_lost or _now() - self._renewed > self._ttl

    def renew(self) -> None:
        """Renew the lock if it is still ours and did not expire."""
        with self._renewing:
            if self._is_expired_here():
                self._is_lost = True
                return
            started = _now()
            seen = read_lock(self._storage)
            if seen is None or seen.record.lock_id != self.lock_id:
                self._is_lost = True
                return
            record = msgspec.structs.replace(seen.record, beat=seen.record.beat + 1)
            if self._replace(record, seen.version):
                self._renewed = started

    def _replace(self, record: LockRecord, version: str) -> bool:
        try:
            won = self._storage.objects.replace(LOCK, record.text(), version)
        except StorageUnknown:
            won = False
        if not won:
            seen = read_lock(self._storage)
            won = seen is not None and seen.record == record
        if won:
            self._record = record
        return won

    def release(self) -> None:
        """Remove the lock if it is still ours. If that fails, it expires."""
        try:
            if not self._is_lost and _now() - self._renewed > self._ttl / 3:
                # Renewed first, so that nobody takes it over between the read and the delete.
                self.renew()
            seen = read_lock(self._storage)
            if seen is not None and seen.record.lock_id == self.lock_id:
                self._storage.objects.delete_if(LOCK, seen.version)
        except (OmniGraphError, ClusterStop) as error:
            _LOG.warning("cannot release the lock %s before it expires: %s", self.lock_id, error)


def _lock_busy(seen: LockRead, path: str) -> ClusterStop:
    record = seen.record
    expiry = "it does not expire"
    if record.ttl_seconds is not None:
        expiry = f"it expires {record.ttl_seconds:g} s after its last renewal"
    return ClusterStop(
        "state_lock_held",
        path,
        f"`cluster {record.operation}` (process {record.pid}) holds the lock {record.lock_id} "
        f"since {record.created_at}; {expiry}. If its process does not exist any more, "
        f"`omnigraph cluster force-unlock {record.lock_id}` removes it",
    )


def _now() -> float:
    """Seconds that also pass while the machine sleeps, where the system counts them."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
