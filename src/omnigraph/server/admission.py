"""How much work an actor, and a process, may have in flight.

Writes are counted per actor in the process that executes them and are refused at once. Reads are
counted per process and actor; a read that meets a full process waits for a moment before it is
refused. A permit belongs to the work and not to the connection: it is released when the work ends.
Who waits for a commit does no work: such connections have counts of their own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable

from omnigraph.errors import ServerUnavailable
from omnigraph.records import dataclass

ANONYMOUS = "anonymous"
"""The actor of a server without tokens."""
BRANCH_OPERATION_BYTES = 256
"""The estimated size of an operation on branches."""
RETRY_SECONDS = 60
"""The pause that a refused writer is asked for."""
QUEUE_LENGTH = 64
"""How many reads may wait for a full process."""
QUEUE_SECONDS = 0.25
"""How long a read waits for a full process."""
_BUSY_SECONDS = 1
_WAIT_SECONDS = 5
"""The pause that a refused follower of changes is asked for."""


class TooMany(ServerUnavailable, code="too_many_requests"):
    """The actor has too much in flight; answered with 429."""


class Overloaded(ServerUnavailable, code="overloaded"):
    """The process has too much in flight; answered with 503."""


class Draining(ServerUnavailable, code="draining"):
    """The server ends; answered with 503."""


class GraphUnavailable(ServerUnavailable, code="graph_unavailable"):
    """The process cannot open the graph at the moment; answered with 503."""


class Permit:
    """The right to run one piece of work. Released once, by whoever ends the work."""

    __slots__ = ("_release",)

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Give it back; further calls do nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class WriteCaps:
    """What one actor may have in flight: writes, and their estimated bytes."""

    writes: int = 16
    size: int = 4 << 30


class Admission:
    """Counts the writes of each actor, over all graphs. Safe to share between threads.

    >>> admission = Admission(WriteCaps(writes=1))
    >>> with admission.enter("ada", 10):
    ...     admission.enter("ada", 10)
    Traceback (most recent call last):
    ...
    omnigraph.server.admission.TooMany: actor in-flight count cap 1 exceeded
    >>> admission.in_flight
    0
    """

    def __init__(self, caps: WriteCaps = WriteCaps()) -> None:  # noqa: B008 - immutable
        self.caps = caps
        self._lock = threading.Lock()
        self._writes: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self.refused = 0
        """How many writes were refused."""

    @property
    def in_flight(self) -> int:
        """How many writes are running."""
        return self._writes.total()

    def enter(self, actor: str | None, size: int) -> Permit:
        """Admit a write, or raise ``TooMany``; a refused write leaves no trace in the counts."""
        actor = actor or ANONYMOUS
        with self._lock:
            used = self._bytes[actor] + size
            if self._writes[actor] >= self.caps.writes:
                self.refused += 1
                raise _too_many(f"actor in-flight count cap {self.caps.writes} exceeded")
            if used > self.caps.size:
                self.refused += 1
                raise _too_many(
                    f"actor byte budget exceeded: would use {used} bytes against cap "
                    f"{self.caps.size}"
                )
            self._writes[actor] += 1
            self._bytes[actor] = used
        return Permit(lambda: self._leave(actor, size))

    def _leave(self, actor: str, size: int) -> None:
        with self._lock:
            self._writes[actor] -= 1
            self._bytes[actor] -= size
            if not self._writes[actor]:
                # Actors come and go; the counts of those without work are dropped.
                del self._writes[actor], self._bytes[actor]


def _too_many(message: str, retry_after: int = RETRY_SECONDS) -> TooMany:
    return TooMany(
        message,
        hint="wait until other requests of this actor have ended",
        details={"retry_after": retry_after},
    )


@dataclass(frozen=True, slots=True)
class ReadCaps:
    """What one process, and one actor in it, may have in flight: reads, and their bytes."""

    reads: int = 256
    size: int = 512 << 20
    actor_reads: int = 256
    actor_size: int = 256 << 20


class ReadAdmission:
    """Counts the reads of a process. Used from one event loop only."""

    def __init__(self, caps: ReadCaps = ReadCaps()) -> None:  # noqa: B008 - immutable
        self.caps = caps
        self._reads: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._total = 0
        self._total_bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], str, int]] = deque()
        self.refused = 0
        """How many reads were refused."""

    @property
    def in_flight(self) -> int:
        """How many reads are admitted."""
        return self._total

    @property
    def waiting(self) -> int:
        """How many reads wait for the process."""
        return len(self._waiting)

    async def enter(self, actor: str | None, size: int) -> Permit:
        """Admit a read; ``TooMany`` for the actor, ``Overloaded`` if the process stays full."""
        actor = actor or ANONYMOUS
        self._check_actor(actor, size)
        if self._waiting or not self._has_room(size):
            await self._wait(actor, size)
        else:
            self._take(actor, size)
        return Permit(lambda: self._leave(actor, size))

    def _check_actor(self, actor: str, size: int) -> None:
        if self._reads[actor] >= self.caps.actor_reads:
            self.refused += 1
            raise _too_many(
                f"actor in-flight read cap {self.caps.actor_reads} exceeded", _BUSY_SECONDS
            )
        used = self._bytes[actor] + size
        if used > self.caps.actor_size:
            self.refused += 1
            raise _too_many(
                f"actor read byte budget exceeded: would use {used} bytes against cap "
                f"{self.caps.actor_size}",
                _BUSY_SECONDS,
            )

    def _has_room(self, size: int) -> bool:
        # One read always has room, or a large one would never run.
        return not self._total or (
            self._total < self.caps.reads and self._total_bytes + size <= self.caps.size
        )

    async def _wait(self, actor: str, size: int) -> None:
        if len(self._waiting) >= QUEUE_LENGTH:
            self.refused += 1
            raise _overloaded()
        entry = (asyncio.get_running_loop().create_future(), actor, size)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await entry[0]
        except BaseException as error:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif entry[0].done() and not entry[0].cancelled():
                # Admitted in the same moment: nobody else would give it back.
                self._leave(actor, size)
            if isinstance(error, TimeoutError):
                self.refused += 1
                raise _overloaded() from None
            raise

    def _take(self, actor: str, size: int) -> None:
        self._reads[actor] += 1
        self._bytes[actor] += size
        self._total += 1
        self._total_bytes += size

    def _leave(self, actor: str, size: int) -> None:
        self._reads[actor] -= 1
        self._bytes[actor] -= size
        if not self._reads[actor]:
            del self._reads[actor], self._bytes[actor]
        self._total -= 1
        self._total_bytes -= size
        while self._waiting:
            future, next_actor, next_size = self._waiting[0]
            if not future.done():
                if not self._has_room(next_size):
                    return
                self._take(next_actor, next_size)
                future.set_result(None)
            self._waiting.popleft()


def _overloaded(retry_after: int = _BUSY_SECONDS) -> Overloaded:
    return Overloaded(
        "the server is busy",
        hint="repeat the request",
        details={"retry_after": retry_after},
    )


@dataclass(frozen=True, slots=True)
class WaitCaps:
    """How many connections of one process, and of one actor in it, may wait for commits."""

    waits: int = 1024
    actor_waits: int = 256


class WaitAdmission:
    """Counts the long polls and the streams of events of a process. Used from one event loop only.

    >>> waits = WaitAdmission(WaitCaps(actor_waits=1))
    >>> with waits.enter("ada"):
    ...     waits.enter("ada")
    Traceback (most recent call last):
    ...
    omnigraph.server.admission.TooMany: actor cap of 1 waiting connections exceeded
    >>> waits.waiting
    0
    """

    def __init__(self, caps: WaitCaps = WaitCaps()) -> None:  # noqa: B008 - immutable
        self.caps = caps
        self._waits: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """How many connections are admitted."""
        return self._waits.total()

    def enter(self, actor: str | None) -> Permit:
        """Admit a connection; ``TooMany`` for the actor, ``Overloaded`` if the process is full."""
        actor = actor or ANONYMOUS
        if self._waits[actor] >= self.caps.actor_waits:
            raise _too_many(
                f"actor cap of {self.caps.actor_waits} waiting connections exceeded", _WAIT_SECONDS
            )
        if self.waiting >= self.caps.waits:
            raise _overloaded(_WAIT_SECONDS)
        self._waits[actor] += 1
        return Permit(lambda: self._leave(actor))

    def _leave(self, actor: str) -> None:
        self._waits[actor] -= 1
        if not self._waits[actor]:
            del self._waits[actor]
