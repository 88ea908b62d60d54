"""Runs jobs in threads of the process that writes, and keeps their records.

A few run at a time, a bounded number waits. A job is cancelled at its next safe point: where it
reports progress, before it has committed. When the server ends, jobs that wait are cancelled at
once, and running ones are asked to stop; what they have committed stays.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from omnigraph.api.graph import Graph
from omnigraph.commit.job_ids import commits_of_job, working_for
from omnigraph.commit.names import normal_branch
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import Cancelled, OmniGraphError
from omnigraph.progress import Progress
from omnigraph.read.limits import Cancel
from omnigraph.records import dataclass
from omnigraph.server.admission import Overloaded
from omnigraph.server.jobs.owners import this_process
from omnigraph.server.jobs.records import JobProgress, JobRecord, JobRecords, JobStatus
from omnigraph.server.jobs.states import WITHOUT_COMMIT, current_state, error_of
from omnigraph.server.lanes import draining
from omnigraph.server.request_log import ERROR, RequestLog

MOST_RUNNING = 2
MOST_QUEUED = 32
_WRITE_SECONDS = 0.5
"""The shortest time between two records of progress."""
_BEAT_SECONDS = 10.0
"""The longest time between two records of a running job."""
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to run: what it is, for whom, and its work, which returns the result as JSON values."""

    kind: str
    actor: str | None
    branch: str | None
    options: dict[str, Any]
    work: Callable[[RunningJob], Any]
    release: Callable[[], None]
    """Called when the job has ended, however it ended."""


class RunningJob:
    """A job of this process."""

    def __init__(self, records: JobRecords, record: JobRecord) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._last = 0.0
        self._is_over = False
        self.record = record
        self.cancel = Cancel()
        """Set when the job shall end."""

    def on_progress(self, progress: Progress) -> None:
        """Note how far the job is; raises ``Cancelled`` if it shall end."""
        self.check()
        shown = JobProgress(
            progress.phase, progress.done, progress.total, progress.unit, dict(progress.detail)
        )
        with self._lock:
            self.record = self.record.changed(progress=shown)
            if time.monotonic() - self._last >= _WRITE_SECONDS:
                self._write()

    def check(self) -> None:
        """Raise ``Cancelled`` if the job shall end: a safe point, as nothing is half done."""
        if self.cancel.is_set:
            raise Cancelled(
                "the job was cancelled", hint="its record lists the commits that it made, if any"
            )

    def beat(self) -> None:
        """Show that the process is alive, and see whether somebody else asks to stop."""
        if not self.cancel.is_set:
            with suppress(OmniGraphError):
                if self._records.wants_cancel(self.record.id):
                    self.request_cancel()
        with self._lock:
            if not self._is_over and time.monotonic() - self._last >= _BEAT_SECONDS:
                self._write()

    def request_cancel(self) -> None:
        """End the job at its next safe point."""
        self.cancel.set()
        with self._lock:
            self.record = self.record.changed(is_cancel_requested=True)
            if not self._is_over:
                self._write()

    def note(self, **changes: Any) -> None:
        """Record a step that must not be lost."""
        with self._lock:
            self.record = self._records.write(self.record.changed(**changes), is_durable=True)
            self._last = time.monotonic()
            self._is_over = self.record.status.is_final

    def _write(self) -> None:
        # A record of progress that cannot be written changes nothing for the job.
        with suppress(OmniGraphError):
            self.record = self._records.write(self.record, is_durable=False)
        self._last = time.monotonic()


class JobExecutor:
    """The jobs of one process."""

    def __init__(self, log: RequestLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(MOST_RUNNING)
        self._jobs: dict[str, RunningJob] = {}
        self._ended = threading.Condition(self._lock)
        self._is_draining = False
        self._monitor: threading.Thread | None = None

    # -- starting ----------------------------------------------------------------------------

    def submit(self, graph: Graph, graph_id: str, new: NewJob) -> JobRecord:
        """Start a job, or let it wait for others; returns its first record."""
        records = JobRecords(graph._handle.store.objects)
        record = JobRecord(
            new_ulid(),
            new.kind,
            new.actor,
            new.branch,
            new.options,
            this_process(),
            now_micros(),
            now_micros(),
        )
        job = RunningJob(records, record)
        with self._lock:
            if self._is_draining:
                raise draining()
            if len(self._jobs) >= MOST_RUNNING + MOST_QUEUED:
                raise Overloaded(
                    f"{len(self._jobs)} jobs are running or waiting",
                    hint="repeat the request when some have ended",
                    details={"retry_after": 10},
                )
            self._jobs[record.id] = job
        try:
            self._write_dead(graph, graph_id, records)
            job.note()
        except BaseException:
            self._forget(record.id)
            raise
        self._start_monitor()
        thread = threading.Thread(
            target=self._run,
            args=(job, graph, graph_id, new),
            name=f"omnigraph-job-{record.id}",
            daemon=True,
        )
        thread.start()
        return job.record

    def _write_dead(self, graph: Graph, graph_id: str, records: JobRecords) -> None:
        """Write down which jobs have lost their process, and forget old ones."""
        ended: list[JobRecord] = []
        for record in records.every():
            if record.id in self._jobs:
                continue
            state = current_state(graph, graph_id, record)
            if state is not record and state.is_landed is not None:
                records.write(state, is_durable=True)
            if state.status.is_final:
                ended.append(state)
        records.prune(ended)

    # -- running -----------------------------------------------------------------------------

    def _run(self, job: RunningJob, graph: Graph, graph_id: str, new: NewJob) -> None:
        try:
            while not self._slots.acquire(timeout=_LOOK_SECONDS / 4):
                if job.cancel.is_set:
                    self._end(job, graph, graph_id, error=_not_started())
                    return
            try:
                self._work(job, graph, graph_id, new)
            finally:
                self._slots.release()
        finally:
            new.release()
            self._forget(job.record.id)

    def _work(self, job: RunningJob, graph: Graph, graph_id: str, new: NewJob) -> None:
        try:
            if job.cancel.is_set:
                raise _not_started()
            job.note(status=JobStatus.RUNNING, started_at=now_micros())
            with working_for(job.record.id):
                result = msgspec.to_builtins(new.work(job), str_keys=True)
        except BaseException as error:
            self._end(job, graph, graph_id, error=error)
            return
        self._end(job, graph, graph_id, result=result)

    def _end(
        self,
        job: RunningJob,
        graph: Graph,
        graph_id: str,
        *,
        result: Any = None,
        error: BaseException | None = None,
    ) -> None:
        status, body = JobStatus.SUCCEEDED, None
        if error is not None:
            is_cancelled = isinstance(error, Cancelled) and job.cancel.is_set
            status = JobStatus.CANCELLED if is_cancelled else JobStatus.FAILED
            body = error_of(error, job.record.id, graph.uri, graph_id)
            if not isinstance(error, OmniGraphError):
                self._log.event(
                    "job failed",
                    level=ERROR,
                    job=job.record.id,
                    error=f"{type(error).__name__}: {error}",
                    traceback="".join(traceback.format_exception(error)),
                )
        try:
            job.note(
                status=status,
                ended_at=now_micros(),
                result=result,
                error=body,
                commits=self._commits(graph, job.record),
            )
            JobRecords(graph._handle.store.objects).drop_cancel(job.record.id)
        except OmniGraphError as failure:
            # The record keeps saying *running*; when this process ends, that counts as dead.
            self._log.event(
                "the end of a job was not recorded",
                level=ERROR,
                job=job.record.id,
                status=str(status),
                error=failure.message,
            )

    @staticmethod
    def _commits(graph: Graph, record: JobRecord) -> list[str]:
        if record.kind in WITHOUT_COMMIT or record.branch is None:
            return []
        with suppress(OmniGraphError):
            branches = [normal_branch(record.branch)]
            since = record.created_at
            return commits_of_job(graph._handle.store, record.id, branches, since)
        return []

    # -- stopping ----------------------------------------------------------------------------

    def cancel(self, job_id: str) -> JobRecord | None:
        """End a job of this process at its next safe point; ``None`` if it is not here."""
        with self._lock:
            job = self._jobs.get(job_id)
        if job is None:
            return None
        job.request_cancel()
        return job.record

    def is_running(self, job_id: str) -> bool:
        with self._lock:
            return job_id in self._jobs

    def begin_drain(self) -> None:
        """Take no more jobs, and ask those that run to stop."""
        with self._lock:
            self._is_draining = True
            jobs = list(self._jobs.values())
        for job in jobs:
            job.request_cancel()

    def drain(self) -> None:
        """Wait until no job runs."""
        with self._ended:
            while self._jobs:
                self._ended.wait()

    def _forget(self, job_id: str) -> None:
        with self._ended:
            self._jobs.pop(job_id, None)
            self._ended.notify_all()

    # -- heartbeats ----------------------------------------------------------------------------

    def _start_monitor(self) -> None:
        with self._lock:
            if self._monitor is None:
                self._monitor = threading.Thread(
                    target=self._beat, name="omnigraph-jobs", daemon=True
                )
                self._monitor.start()

    def _beat(self) -> None:
        while True:
            with self._ended:
                self._ended.wait(_LOOK_SECONDS)
                jobs = list(self._jobs.values())
                if not jobs:
                    self._monitor = None
                    return
            for job in jobs:
                job.beat()


def _not_started() -> Cancelled:
    return Cancelled("the job was cancelled before it started", hint="nothing of it was done")
