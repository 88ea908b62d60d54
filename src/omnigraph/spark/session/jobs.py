"""A running Spark action: its progress, and its cancellation.

The action runs in a separate thread and the caller waits for it, so that Ctrl-C, a limit or a
``Cancel`` ends it immediately: a thread that waits for an answer of Java cannot be interrupted, and
an interrupted one would leave the answer for the next call to read. ``report`` runs in the caller's
thread.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.errors import Cancelled
from omnigraph.spark.session.failures import spark_call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.read.limits import Cancel

T = TypeVar("T")

Report = Callable[[int, int], None]
"""Called with the number of finished tasks, and the total as far as known."""

_POLL_SECONDS = 0.05
_END_SECONDS = 30.0


def run_watched(
    session: SparkSession,
    is_connect: bool,
    action: Callable[[], T],
    label: str,
    *,
    cancel: Cancel | None = None,
    check: Callable[[], None] | None = None,
    report: Report | None = None,
) -> T:
    """Run an action that calls Spark; its exceptions are translated to typed errors.

    An exception of ``check`` ends it; so does ``cancel``, with ``Cancelled``.
    """
    with spark_call(label):
        job: ClassicJob | ConnectJob
        job = ConnectJob(session) if is_connect else ClassicJob(session, label)
    outcome: list[T] = []
    failure: list[BaseException] = []
    done = threading.Event()

    def body(wrapped: Callable[[], T]) -> None:
        try:
            outcome.append(wrapped())
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    reported: tuple[int, int] | None = None
    try:
        with spark_call(label):
            wrapped = job.wrapped(action)
        thread = threading.Thread(target=body, args=(wrapped,), name=f"spark {label}", daemon=True)
        thread.start()
        while not done.wait(_POLL_SECONDS):
            if cancel is not None and cancel.is_set:
                raise Cancelled(f"{label} was cancelled")
            if check is not None:
                check()
            if report is not None and (now := job.tasks()) not in (reported, (0, 0)):
                report(*now)
                reported = now
    except BaseException:
        _end(job, done)
        raise
    finally:
        job.close()
    if failure:
        with spark_call(label):
            raise failure[0]
    return outcome[0]


def _end(job: ClassicJob | ConnectJob, done: threading.Event) -> None:
    """Cancel repeatedly until it has ended: the action may just be submitting its next job."""
    until = time.monotonic() + _END_SECONDS
    while not done.is_set() and time.monotonic() < until:
        with suppress(Exception):
            job.cancel()
        done.wait(_POLL_SECONDS)


class ClassicJob:
    """An action of a driver in our own Java, as a group of jobs."""

    def __init__(self, session: SparkSession, label: str) -> None:
        self._session = session
        self._context = session.sparkContext
        self._label = label
        self._group = f"omnigraph-{uuid.uuid4().hex}"

    def wrapped(self, action: Callable[[], T]) -> Callable[[], T]:
        """The function for the thread of the action."""
        from pyspark import inheritable_thread_target

        def grouped() -> T:
            self._context.setJobGroup(self._group, self._label, interruptOnCancel=True)
            return action()

        # The thread inherits the caller's local properties, such as the scheduler pool.
        inherited: Callable[[], T] = inheritable_thread_target(self._session)(grouped)
        return inherited

    def cancel(self) -> None:
        """Cancel its running jobs."""
        self._context.cancelJobGroup(self._group)

    def tasks(self) -> tuple[int, int]:
        """The number of finished tasks, and the total."""
        tracker = self._context.statusTracker()
        done = total = 0
        for number in tracker.getJobIdsForGroup(self._group):
            job = tracker.getJobInfo(number)
            for stage in job.stageIds if job is not None else ():
                state = tracker.getStageInfo(stage)
                if state is not None:
                    total += state.numTasks
                    done += min(state.numCompletedTasks, state.numTasks)
        return done, total

    def close(self) -> None:
        return None


class ConnectJob:
    """An action on a Spark Connect server, as the operations of one thread."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tag = f"omnigraph-{uuid.uuid4().hex}"
        self._thread: int | None = None
        self._before = (0, 0)
        self._now = (0, 0)
        session.registerProgressHandler(self._progress)

    def wrapped(self, action: Callable[[], T]) -> Callable[[], T]:
        def tagged() -> T:
            self._thread = threading.get_ident()
            self._session.addTag(self._tag)
            return action()

        return tagged

    def _progress(
        self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        # A session notifies all handlers of all operations, in the thread of the operation.
        if threading.get_ident() != self._thread:
            return
        total = sum(stage.num_tasks for stage in stages)
        # The server also counts failed attempts.
        finished = sum(min(stage.num_completed_tasks, stage.num_tasks) for stage in stages)
        self._now = (self._before[0] + finished, self._before[1] + total)
        if done:
            self._before = self._now

    def cancel(self) -> None:
        self._session.interruptTag(self._tag)

    def tasks(self) -> tuple[int, int]:
        return self._now

    def close(self) -> None:
        self._session.removeProgressHandler(self._progress)
