"""The threads that run handlers: a lane for short reads, one for long reads, one for writes.

One thread runs short reads, because only one thread at a time can run Python and most reads take
less than a millisecond. A read that is expected to take long starts in the long lane. One that
turns out to take long leaves the short lane where it is: another thread serves the short lane from
then on, and the read continues when the long lane has a free slot. Writes are owned by the server:
they run to their end even if nobody waits for them any more.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from omnigraph.errors import Cancelled
from omnigraph.read.gate import GATE
from omnigraph.read.limits import Cancel
from omnigraph.server.admission import Draining, Permit

T = TypeVar("T")

SHORT_SECONDS = 0.005
"""A read that takes longer belongs to the long lane."""
_IDLE_SECONDS = 0.02
"""So does one that has waited so long, for the processor or for storage."""
_REMEMBERED = 4096
"""How many kinds of reads have an estimate."""
_WEIGHT = 0.1
"""How much a run that took longer counts in the estimate of its kind of read."""
_MOST_MOVED = 64
"""How many reads may wait for the long lane in threads of their own."""
_WRITE_THREADS = 64
_LOOK_SECONDS = 0.05

_now = time.perf_counter


class LaneObserver(Protocol):
    """Whoever counts what the lanes do; called from any thread."""

    def waited(self, lane: str, seconds: float) -> None:
        """A piece of work started after this time in the queue of its lane."""
        ...

    def moved(self) -> None:
        """A read moved from the short lane to the long one."""
        ...


class ReadCancel(Cancel):
    """Cancels a read. A read that moves to the long lane waits here until it may continue.

    ``timeout`` is that of the read, in seconds: it does not wait longer.
    """

    def __init__(self, timeout: float | None = None) -> None:
        super().__init__()
        self._move: Callable[[], None] | None = None
        self._deadline = None if timeout is None else _now() + timeout

    @property
    def is_late(self) -> bool:
        """Whether the time of the read is up."""
        return self._deadline is not None and _now() > self._deadline

    def move(self, wait: Callable[[], None]) -> None:
        """Call ``wait`` at the next check of the read."""
        self._move = wait

    @property
    def is_set(self) -> bool:
        wait = self._move
        if wait is not None:
            wait()
        return self._is_set


class _Job:
    """One piece of work for a thread, and the future of whoever waits for it."""

    __slots__ = (
        "at_end",
        "cancel",
        "fn",
        "future",
        "is_ended",
        "key",
        "loop",
        "queued",
        "seconds",
        "thread",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fn: Callable[[], Any],
        cancel: Cancel | None,
        permit: Permit | None,
        key: Hashable,
    ) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.fn = fn
        self.cancel = cancel
        self.at_end: list[Callable[[], None]] = [] if permit is None else [permit.release]
        self.is_ended = False
        self.key = key
        self.queued = _now()
        self.seconds = 0.0
        self.thread = 0

    def run(self) -> None:
        """Run it on this thread, and hand the outcome to the event loop."""
        self.thread = threading.get_ident()
        started = _now()
        result, error = None, None
        try:
            if self.cancel is not None and self.cancel.is_set:
                raise Cancelled("the query was cancelled")
            result = self.fn()
        except BaseException as raised:
            error = raised
        self.seconds = _now() - started
        if self.cancel is not None:
            # Whoever would move it now comes too late.
            self.thread = 0
        self.loop.call_soon_threadsafe(self._end, result, error)

    def _end(self, result: Any, error: BaseException | None) -> None:
        self.is_ended = True
        for release in self.at_end:
            release()
        if self.future.done():
            # The caller is gone.
            return
        if error is None:
            self.future.set_result(result)
        elif isinstance(error, StopIteration):
            # A future refuses this one.
            self.future.set_exception(RuntimeError("the work raised StopIteration"))
        else:
            self.future.set_exception(error)


class _ShortThread:
    """The thread that serves the short lane at the moment."""

    def __init__(self, lanes: Lanes) -> None:
        self.serves = True
        self.job: _Job | None = None
        self.started = 0.0
        self._clock = 0
        self._worked = 0.0
        self._lanes = lanes
        threading.Thread(target=self._run, name="omnigraph-short", daemon=True).start()

    @property
    def blocks(self) -> bool:
        """Whether its read takes long: by its processor time, or by what it waits for.

        On a busy machine a short read may have to wait for the processor; another thread would
        only make that worse.
        """
        waited = _now() - self.started
        if waited <= SHORT_SECONDS:
            return False
        try:
            worked = time.clock_gettime(self._clock) - self._worked
        except OSError:
            # The thread has ended.
            return False
        return worked > SHORT_SECONDS / 2 or waited > _IDLE_SECONDS

    def _run(self) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        while self.serves:
            job = self._lanes.next_short()
            if job is None:
                return
            self.started = _now()
            self._worked = time.thread_time()
            self.job = job
            job.run()
            self.job = None
            self._lanes.note(job)


class Lanes:
    """The lanes of one process. Create it and call it in the event loop's thread."""

    def __init__(
        self, *, long_threads: int | None = None, observer: LaneObserver | None = None
    ) -> None:
        self._size = long_threads or os.cpu_count() or 1
        self._observer = observer
        self._short: SimpleQueue[_Job | None] = SimpleQueue()
        self._long: SimpleQueue[_Job | None] = SimpleQueue()
        self._slots = _Slots(self._size)
        self._short_thread: _ShortThread | None = None
        self._long_threads = 0
        self._moved = 0
        self._lock = threading.Lock()
        self._estimates: OrderedDict[Hashable, float] = OrderedDict()
        self._reads: set[asyncio.Future[Any]] = set()
        self._writes: set[asyncio.Future[Any]] = set()
        self._pool = ThreadPoolExecutor(_WRITE_THREADS, "omnigraph-write")
        self._monitor: asyncio.TimerHandle | None = None
        self._is_closing = False

    # -- reads -----------------------------------------------------------------------------

    @property
    def observes_all(self) -> bool:
        """Whether even work that needs no thread must run in a lane."""
        return False

    async def read(
        self,
        fn: Callable[[], T],
        cancel: Cancel | None = None,
        *,
        permit: Permit | None = None,
        key: Hashable = None,
        is_long: bool = False,
    ) -> T:
        """Run a read. If the caller is cancelled, so is the read; its permit ends with it.

        ``key`` names the kind of read: one whose last runs took long starts in the long lane.
        """
        loop = asyncio.get_running_loop()
        job = _Job(loop, fn, cancel, permit, key)
        self._reads.add(job.future)
        if is_long or self._estimates.get(key, 0.0) > SHORT_SECONDS:
            self._start_long(job)
        else:
            self._start_short(job, loop)
        try:
            result: T = await job.future
        except asyncio.CancelledError:
            if cancel is not None:
                cancel.set()
            raise
        finally:
            self._reads.discard(job.future)
        return result

    def _start_short(self, job: _Job, loop: asyncio.AbstractEventLoop) -> None:
        if self._short_thread is None:
            self._short_thread = _ShortThread(self)
        self._short.put(job)
        if self._monitor is None:
            self._monitor = loop.call_later(SHORT_SECONDS, self._look, loop)

    def _start_long(self, job: _Job) -> None:
        if self._long_threads < self._size:
            self._long_threads += 1
            name = f"omnigraph-long-{self._long_threads}"
            threading.Thread(target=self._run_long, name=name, daemon=True).start()
        self._long.put(job)

    def next_short(self) -> _Job | None:
        """The next short read; for the thread of that lane."""
        job = self._short.get()
        if job is not None and self._observer is not None:
            self._observer.waited("short", _now() - job.queued)
        return job

    def _run_long(self) -> None:
        while True:
            job = self._long.get()
            if job is None:
                return
            turn = self._slots.enter()
            turn.wait()
            try:
                if self._observer is not None:
                    self._observer.waited("long", _now() - job.queued)
                job.run()
            finally:
                self._slots.leave(turn)
            self.note(job)

    def note(self, job: _Job) -> None:
        """Remember how long a kind of read takes; called by the thread that ran it."""
        if job.key is None:
            return
        with self._lock:
            # The shortest of the last runs, about: on a busy machine any run may take long.
            before = self._estimates.pop(job.key, job.seconds)
            longer = before + _WEIGHT * (job.seconds - before)
            self._estimates[job.key] = min(job.seconds, longer)
            if len(self._estimates) > _REMEMBERED:
                self._estimates.popitem(last=False)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Move the read that blocks the short lane, if it has run for too long."""
        self._monitor = None
        thread = self._short_thread
        if thread is None:
            return
        job = thread.job
        if job is not None and thread.blocks:
            self._move(thread, job)
        if job is not None or not self._short.empty():
            self._monitor = loop.call_later(SHORT_SECONDS, self._look, loop)

    def _move(self, thread: _ShortThread, job: _Job) -> None:
        if self._moved >= _MOST_MOVED:
            return
        self._moved += 1
        thread.serves = False
        self._short_thread = _ShortThread(self)
        if self._observer is not None:
            self._observer.moved()
        job.at_end.append(self._count_moved)
        if job.is_ended:
            self._count_moved()
        if isinstance(job.cancel, ReadCancel):
            job.cancel.move(_Move(job, self._slots))

    def _count_moved(self) -> None:
        self._moved -= 1

    # -- writes ----------------------------------------------------------------------------

    async def write(self, fn: Callable[[], T], *, permit: Permit | None = None) -> T:
        """Run a write to its end, also if the caller is cancelled; its permit ends with it."""
        if self._is_closing:
            if permit is not None:
                permit.release()
            raise draining()
        loop = asyncio.get_running_loop()
        queued = _now()

        def run() -> T:
            if self._observer is not None:
                self._observer.waited("write", _now() - queued)
            try:
                return fn()
            finally:
                if permit is not None:
                    permit.release()

        work = loop.run_in_executor(self._pool, run)
        self._writes.add(work)
        work.add_done_callback(self._ended)
        return await asyncio.shield(work)

    def _ended(self, work: asyncio.Future[Any]) -> None:
        self._writes.discard(work)
        if not work.cancelled():
            # Retrieved here: if the client left, nobody else looks at it.
            work.exception()

    # -- the end ---------------------------------------------------------------------------

    @property
    def running_writes(self) -> int:
        """How many writes are queued or running."""
        return len(self._writes)

    @property
    def running_reads(self) -> int:
        """How many reads are queued or running."""
        return len(self._reads)

    async def drain(self) -> None:
        """Refuse new writes, and wait until none is running."""
        self._is_closing = True
        while self._writes:
            await asyncio.wait(list(self._writes))

    async def finish_running(self) -> None:
        """Wait until what is queued or running now has ended, whatever comes later."""
        running = [*self._reads, *self._writes]
        if running:
            await asyncio.wait(running)

    def close(self) -> None:
        """End the threads that have nothing to do."""
        if self._monitor is not None:
            self._monitor.cancel()
            self._monitor = None
        self._short.put(None)
        for _ in range(self._long_threads):
            self._long.put(None)
        self._pool.shutdown(wait=False)


class _Slots:
    """How many reads of the long lane run at once; whoever has waited longest is the next.

    A semaphore goes to whoever asks first when it is free. Those are the threads of the lane, which
    ask again as soon as they have ended a read: a moved one would wait as long as there are others.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[threading.Event] = deque()

    def enter(self) -> threading.Event:
        """A turn, which is set as soon as it has a slot."""
        turn = threading.Event()
        with self._lock:
            if self._free:
                self._free -= 1
                turn.set()
            else:
                self._waiting.append(turn)
        return turn

    def leave(self, turn: threading.Event) -> None:
        """Give the slot of a turn to the next one; a turn without a slot waits no longer."""
        with self._lock:
            if not turn.is_set():
                self._waiting.remove(turn)
            elif self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


class _Move:
    """Where a moved read waits for a slot of the long lane, which it has until it ends."""

    def __init__(self, job: _Job, slots: _Slots) -> None:
        self._job = job
        self._slots = slots
        self._is_done = False

    def __call__(self) -> None:
        job = self._job
        # Helper threads of the read check its limits too; they must never wait.
        if self._is_done or job.thread != threading.get_ident():
            return
        self._is_done = True
        cancel = job.cancel
        assert isinstance(cancel, ReadCancel)
        cancel.move(_nothing)
        # Nobody must wait for a read that waits itself.
        GATE.leave()
        turn = self._slots.enter()
        while not turn.wait(_LOOK_SECONDS):
            if cancel.is_set or cancel.is_late:
                self._slots.leave(turn)
                return
        # Queued before the end of the job, which this thread reports in the same way.
        job.loop.call_soon_threadsafe(job.at_end.append, partial(self._slots.leave, turn))


def _nothing() -> None:
    """The read has moved already."""


def draining() -> Draining:
    """The refusal of work while the server ends."""
    return Draining(
        "the server is shutting down",
        hint="repeat the request: another server, or this one after its restart, answers it",
        details={"retry_after": 1},
    )
