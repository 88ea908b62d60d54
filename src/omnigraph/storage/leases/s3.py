"""Leases on S3: small objects that expire unless their holder renews them.

A lease is taken by creating its object, a race that exactly one writer wins. A background thread
renews it while it is held. A lease that was not renewed within its time to live belongs to a writer
that is dead, stopped or disconnected: it is replaced by a conditional write, and the new holder
gets a higher token. Expiry is decided by the clock of the store alone, so host clocks may differ. A
holder that was stopped for too long finds out by ``check``.

S3 distinguishes contents, not writes: each renewal increments a counter, which changes the ETag.

A waiter appends its name to the list of waiters in the object. A holder that has seen waiters hands
the lease to the first of them; otherwise it deletes the object, so a lease without waiters costs no
extra request. The first waiter takes the lease within a short time or is skipped.

A holder that cannot delete the object removes its name from it. The lease is free then, but it is
taken only when it has expired: a delete whose answer was lost may still arrive.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from omnigraph.errors import Conflict, OmniGraphError, StorageUnknown
from omnigraph.logs import logger
from omnigraph.storage.leases import TTL_SECONDS
from omnigraph.storage.leases.local import Deadline, ThreadQueue, jittered, lease_busy, lease_path
from omnigraph.storage.leases.s3_records import NOBODY, LeaseObserver, LeaseRecord, LeaseState
from omnigraph.storage.objects.requests import request_pool
from omnigraph.storage.objects.store import ObjectStore

_LOG = logger(__name__)

_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.1

_GRANT_SECONDS = 2.0
"""Seconds that a handed-over lease waits for its new holder."""
_BUSY_SECONDS = 10.0
"""Seconds during which waiters are expected for a lease after one was seen."""
_ASK_SECONDS = 2.0
"""Seconds after which a holder asks again who waits: a waiter is skipped for so long at most."""
_ATTEMPTS = 3
"""Attempts to change an object that others change concurrently."""


class AwaitedLeases:
    """The names of leases that may have waiters, as far as this process has seen lately.

    A name is dropped some seconds after the last waiter was seen. Safe to share between threads.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._looked: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, name: str) -> None:
        """A waiter was seen; names without one for too long are dropped."""
        now = time.monotonic()
        with self._lock:
            self._until = {other: until for other, until in self._until.items() if until > now}
            self._until[name] = now + _BUSY_SECONDS

    def is_to_ask(self, name: str) -> bool:
        """Whether the waiters of a lease were not listed lately; the caller lists them now."""
        now = time.monotonic()
        with self._lock:
            self._looked = {
                other: at for other, at in self._looked.items() if at > now - _ASK_SECONDS
            }
            if name in self._looked:
                return name in self
            self._looked[name] = now
            return True

    def __contains__(self, name: str) -> bool:
        return self._until.get(name, 0.0) > time.monotonic()

    def __len__(self) -> int:
        return len(self._until)


class S3Leases:
    """Leases of a graph on S3, by name."""

    def __init__(self, objects: ObjectStore, ttl: float = TTL_SECONDS) -> None:
        self._objects = objects
        self._ttl = ttl
        self._threads = ThreadQueue()
        self._awaited = AwaitedLeases()

    @contextmanager
    def acquire(self, names: Iterable[str], timeout: float) -> Iterator[S3LeaseGuard]:
        with ExitStack() as stack:
            guard = stack.enter_context(_renew_in_background(self._ttl))
            tried: list[_Lease] = []

            def take(names: Iterable[str], timeout: float) -> None:
                deadline = Deadline(timeout)
                wanted = sorted(set(names))
                for name in wanted:
                    stack.enter_context(self._threads.wait(name, deadline))
                self._take_in_order(wanted, deadline, tried, guard.add)

            guard.take = take
            try:
                take(names, timeout)
                yield guard
            finally:
                guard.finish_ahead()
                self._release(tried, guard.discarded)

    def _take_in_order(
        self,
        names: list[str],
        deadline: Deadline,
        tried: list[_Lease],
        add: Callable[[_Lease], None],
    ) -> None:
        """Take several leases: free ones at the same time, others one after another.

        Nobody waits for a lease while holding a later one, so writers cannot wait for each other.
        """

        def new(name: str) -> _Lease:
            lease = _Lease(self._objects, name, self._ttl, self._awaited)
            tried.append(lease)
            return lease

        leases = [new(name) for name in names]
        if len(leases) > 1:
            attempts = [request_pool().submit(lease.try_take) for lease in leases]
            failed = [e for attempt in attempts if (e := attempt.exception()) is not None]
            if failed:
                raise failed[0]
            first = next((n for n, lease in enumerate(leases) if not lease.is_taken), len(leases))
            later = [lease for lease in leases[first:] if lease.is_taken]
            self._release(later, ())
            leases[first:] = [
                new(lease.name) if lease in later else lease for lease in leases[first:]
            ]
        for lease in leases:
            if not lease.is_taken:
                lease.take(deadline)
            add(lease)

    def _release(self, tried: Iterable[_Lease], discarded: Iterable[str]) -> None:
        """Release leases, and remove other objects with them in one request. Never raises."""
        released = [(lease, path) for lease in tried if (path := lease.release()) is not None]
        try:
            self._objects.delete_all([*discarded, *(path for _, path in released)])
        except OmniGraphError as error:
            _LOG.warning("cannot delete leases before they expire: %s", error)
            # If this fails, too, the others would only wait for the same store.
            with suppress(OmniGraphError):
                for lease, _ in released:
                    lease.disown()

    def is_free(self, name: str) -> bool:
        observer = LeaseObserver(self._objects, name, self._ttl)
        seen = observer.look()
        return seen is None or seen.record.is_disowned or observer.is_stale(seen)

    def is_disowned(self, name: str) -> bool:
        seen = LeaseObserver(self._objects, name, self._ttl).look()
        return seen is not None and seen.record.is_disowned


class S3LeaseGuard:
    """Acquired leases, renewed in the background."""

    def __init__(self) -> None:
        self._leases: list[_Lease] = []
        self._lock = threading.Lock()
        self.take: Callable[[Iterable[str], float], None] = lambda names, timeout: None
        self._ahead: Future[None] | None = None
        self.discarded: list[str] = []

    def extend_ahead(self, names: Iterable[str], timeout: float) -> None:
        done: Future[None] = Future()

        def take() -> None:
            try:
                done.set_result(self.take(names, timeout))
            except Exception as error:
                done.set_exception(error)

        self._ahead = done
        # A thread of its own: it may wait for a lease while others need the pool to release it.
        threading.Thread(target=take, name="lease-ahead", daemon=True).start()

    def extend(self, names: Iterable[str], timeout: float) -> bool:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.result()
        tokens = self.tokens
        missing = [name for name in names if name not in tokens]
        if missing:
            self.take(missing, timeout)
        return True

    def finish_ahead(self) -> None:
        """Wait for leases that were asked for ahead and are not needed any more."""
        if self._ahead is not None:
            self._ahead.exception()

    def discard(self, path: str) -> bool:
        self.discarded.append(path)
        return True

    @property
    def tokens(self) -> Mapping[str, int]:
        """By name, one more than the number of earlier holders that lost the lease."""
        return {lease.name: lease.token for lease in self._leases}

    def check(self) -> None:
        for lease in self._leases:
            lease.check()

    def add(self, lease: _Lease) -> None:
        with self._lock:
            self._leases.append(lease)

    def renew(self) -> None:
        """Renew every lease; a failed renewal is retried the next time."""
        with self._lock:
            leases = list(self._leases)
        for lease in leases:
            with suppress(OmniGraphError):
                lease.renew()


@contextmanager
def _renew_in_background(ttl: float) -> Iterator[S3LeaseGuard]:
    guard = S3LeaseGuard()
    done = threading.Event()

    def renew() -> None:
        while not done.wait(ttl / 3):
            guard.renew()

    threading.Thread(target=renew, name="lease-renewal", daemon=True).start()
    try:
        yield guard
    finally:
        done.set()


class _Lease:
    """One lease, from waiting for it to its release."""

    def __init__(self, objects: ObjectStore, name: str, ttl: float, awaited: AwaitedLeases) -> None:
        self.name = name
        self._objects = objects
        self._path = lease_path(name)
        self._ttl = ttl
        self._awaited = awaited
        self._waiters: tuple[str, ...] = ()
        self._is_queued = False
        self._record = LeaseRecord(uuid.uuid4().hex, 1, name, ttl)
        self._observer = LeaseObserver(objects, name, ttl)
        self._is_taken = False
        self._is_answered = True
        self._renewed = 0.0
        self._peek: Future[LeaseState | None] | None = None

    @property
    def token(self) -> int:
        return self._record.token

    # -- taking --------------------------------------------------------------------------

    @property
    def is_taken(self) -> bool:
        return self._is_taken

    def try_take(self) -> None:
        """Take the lease if it is free."""
        self._is_taken = self._put(None)

    def take(self, deadline: Deadline) -> None:
        """Wait for the lease and take it; ``Conflict`` after the deadline."""
        pause = _PAUSE_SECONDS
        is_patient = deadline.left() > 0.0
        passed = 0
        self.try_take()
        while not self._is_taken:
            seen = self._observer.look()
            self._note_waiters(seen)
            if seen is not None and self._is_mine(seen):
                self._is_taken = self._put(seen)
            elif seen is None or self._observer.is_stale(seen):
                # Earlier waiters may take it first, each in one round.
                mine, waiters = self._record.owner, self._waiters
                ahead = waiters.index(mine) if mine in waiters else len(waiters)
                if not is_patient or passed >= ahead:
                    self._is_taken = self._put(seen)
                passed += 1
            elif is_patient:
                passed = 0
                self._enter(seen)
            if self._is_taken:
                return
            left = deadline.left()
            if left <= 0.0:
                raise lease_busy(self.name, deadline)
            time.sleep(min(jittered(pause), left))
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _note_waiters(self, seen: LeaseState | None) -> None:
        """Remember the waiters: if the object is deleted, earlier ones go first."""
        if seen is None:
            return
        self._waiters = seen.record.waiters
        if self._waiters or not self._is_mine(seen):
            self._awaited.note(self.name)

    def _enter(self, seen: LeaseState) -> None:
        """Append our name to the waiters, unless it is there already."""
        if self._record.owner in seen.record.waiters:
            return
        waiters = (*seen.record.waiters, self._record.owner)
        record = replace(seen.record, waiters=waiters, renewed=seen.renewed)
        self._is_queued = True
        with suppress(StorageUnknown):
            self._objects.replace(self._path, record.text(), seen.version)

    def _leave(self) -> None:
        for _ in range(_ATTEMPTS):
            seen = self._observer.look()
            if seen is None or self._record.owner not in seen.record.waiters:
                return
            record = replace(seen.record, waiters=self._others(seen), renewed=seen.renewed)
            if self._objects.replace(self._path, record.text(), seen.version):
                return

    def _put(self, seen: LeaseState | None) -> bool:
        """Create the object, or replace one left by a dead holder or by a late request of ours."""
        if seen is None:
            record = replace(self._record, token=1, beat=0)
            return self._write_record(record, lambda text: self._objects.create(self._path, text))
        if self._is_mine(seen):
            return self._beat(seen)
        record = replace(self._record, token=seen.record.token + 1, waiters=self._others(seen))
        return self._replace(seen, record)

    def _others(self, seen: LeaseState) -> tuple[str, ...]:
        return tuple(waiter for waiter in seen.record.waiters if waiter != self._record.owner)

    def _beat(self, seen: LeaseState) -> bool:
        record = replace(
            seen.record, ttl_seconds=self._ttl, beat=seen.record.beat + 1, renewed=None
        )
        return self._replace(seen, record)

    def _replace(self, seen: LeaseState, record: LeaseRecord) -> bool:
        return self._write_record(
            record, lambda text: self._objects.replace(self._path, text, seen.version)
        )

    def _write_record(self, record: LeaseRecord, put: Callable[[str], bool]) -> bool:
        """Write a record; if the answer is negative or lost, the object shows who won."""
        # Taken before the request: the store's time of the object can only be later.
        started = time.monotonic()
        self._is_answered = False
        won = answered = False
        with suppress(StorageUnknown):
            won = put(record.text())
            answered = True
        if not won:
            seen = self._observer.look()
            won = seen is not None and seen.record.is_same_write(record)
        if won:
            self._record, self._renewed = record, started
        self._is_answered = won or answered
        return won

    def _is_mine(self, seen: LeaseState) -> bool:
        return seen.record.owner == self._record.owner

    # -- holding -------------------------------------------------------------------------

    def renew(self) -> None:
        """Renew the lease if it is still ours."""
        for _ in range(_ATTEMPTS):
            seen = self._observer.look()
            self._note_waiters(seen)
            if not self._is_taken or seen is None or not self._is_mine(seen) or self._beat(seen):
                return

    def check(self) -> None:
        """Raise ``Conflict`` unless the lease is ours and was renewed in time."""
        if self._is_taken and self._age() < self._ttl / 3:
            # Nobody may have taken it over yet. Who waits for it is asked meanwhile, for its
            # release, but not by each of many writes in a row.
            if self._awaited.is_to_ask(self.name):
                self._peek = request_pool().submit(self._observer.look)
            return
        seen = self._observer.look()
        self._note_waiters(seen)
        if seen is None or not self._is_mine(seen) or self._age() > self._ttl:
            raise Conflict(
                f"the lease of '{self.name}' expired, and another writer may hold it",
                hint="repeat the write",
                details={"lease": self.name},
            )

    def release(self) -> str | None:
        """Release the lease if it is still ours. If that fails, it expires.

        Returns the path of an object that the caller has to remove at once.
        """
        was_taken, self._is_taken = self._is_taken, False
        try:
            if self._is_queued and not was_taken:
                self._leave()
            if was_taken and self._peek is not None:
                # Without an answer the lease is deleted, and who waits takes it.
                with suppress(OmniGraphError):
                    self._note_waiters(self._peek.result())
            if was_taken and self.name in self._awaited and self._hand_over():
                return None
            if was_taken and self._age() < self._ttl / 3:
                # Renewed recently enough not to be taken over before the request arrives.
                return self._path
            if was_taken or self._is_queued or not self._is_answered:
                self._release_old()
        except OmniGraphError as error:
            _LOG.warning("cannot release the lease '%s' before it expires: %s", self.name, error)
        return None

    def _hand_over(self) -> bool:
        """Hand the lease to the first waiter; returns whether it is no longer ours.

        A refused change may be an earlier one of ours whose answer was lost: only reading the
        object shows whether it may be deleted.
        """
        for _ in range(_ATTEMPTS):
            seen = self._observer.look()
            if seen is None or not self._is_mine(seen):
                return True
            if not seen.record.waiters:
                return False
            self._awaited.note(self.name)
            heir, *others = seen.record.waiters
            record = replace(
                seen.record,
                owner=heir,
                ttl_seconds=min(_GRANT_SECONDS, self._ttl),
                beat=0,
                waiters=tuple(others),
                renewed=None,
            )
            if self._objects.replace(self._path, record.text(), seen.version):
                return True
        seen = self._observer.look()
        return seen is None or not self._is_mine(seen)

    def _release_old(self) -> None:
        """Delete a lease that may be about to expire, or a creation that arrived late.

        S3 has no conditional delete, so the object is renewed first: then it is not taken over
        between the read and the delete.
        """
        seen = self._observer.look()
        if seen is None or not self._is_mine(seen):
            return
        if self._beat(seen) and not self._hand_over():
            try:
                self._objects.delete(self._path)
            except OmniGraphError:
                self.disown()
                raise

    def disown(self) -> None:
        """Remove our name from an object that could not be deleted.

        It lives no longer than it would have, and long enough for a delete to arrive.
        """
        for _ in range(_ATTEMPTS):
            seen = self._observer.look()
            if seen is None or not self._is_mine(seen):
                return
            left = min(self._ttl - self._age(), self._ttl * 2 / 3)
            record = replace(seen.record, owner=NOBODY, ttl_seconds=left, renewed=None)
            if self._objects.replace(self._path, record.text(), seen.version):
                return

    def _age(self) -> float:
        return time.monotonic() - self._renewed
