"""Runs jobs in threads of the process that writes, and keeps their records.

The thread of a job on Spark follows a process of its own, see ``in_process``.

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
from omnigraph.records import dataclass
from omnigraph.server.admission import Overloaded
from omnigraph.server.jobs.in_process import ProcessLost
from omnigraph.server.jobs.owners import this_process
from omnigraph.server.jobs.records import JobRecord, JobRecords, JobStatus
from omnigraph.server.jobs.running import RunningJob
from omnigraph.server.jobs.states import WITHOUT_COMMIT, current_state, died, error_of, landed
from omnigraph.server.lanes import draining
from omnigraph.server.metrics import JobOutcome, Metrics
from omnigraph.server.request_log import ERROR, RequestLog

MOST_RUNNING = 2
MOST_QUEUED = 32
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


class JobExecutor:
    """The jobs of one process."""

    def __init__(self, log: RequestLog, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(MOST_RUNNING)
        self._jobs: dict[str, RunningJob] = {}
        self._unwritten: dict[str, tuple[RunningJob, dict[str, Any]]] = {}
        """Jobs that have ended, whose last record could not be written yet."""
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
            if record.id in self._jobs or record.id in self._unwritten:
                continue
            state = current_state(graph, graph_id, record)
            if state is not record and state.is_landed is not None:
                records.write(state, is_durable=True)
                if not record.status.is_final:
                    self._metrics.job_ended(record.kind, "died", None)
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
        except BaseException as error:
            self._end(job, graph, graph_id, error=error)
            return
        self._metrics.job_started(new.kind)
        started = time.monotonic()
        try:
            with working_for(job.record.id):
                result = msgspec.to_builtins(new.work(job), str_keys=True)
        except BaseException as error:
            self._end(job, graph, graph_id, error=error, started=started)
            return
        self._end(job, graph, graph_id, result=result, started=started)

    def _end(
        self,
        job: RunningJob,
        graph: Graph,
        graph_id: str,
        *,
        result: Any = None,
        error: BaseException | None = None,
        started: float | None = None,
    ) -> None:
        if isinstance(error, ProcessLost):
            outcome, changes = self._lost(job, graph, graph_id)
        else:
            outcome, changes = self._outcome(job, graph, graph_id, result, error)
        seconds = None if started is None else time.monotonic() - started
        self._metrics.job_ended(job.record.kind, outcome, seconds)
        try:
            self._write_end(job, changes)
        except OmniGraphError as failure:
            # The record says *running* until it can be written, or this process ends.
            self._unwritten[job.record.id] = job, changes
            self._log.event(
                "the end of a job was not recorded",
                level=ERROR,
                job=job.record.id,
                status=str(changes["status"]),
                error=failure.message,
            )

    def _outcome(
        self,
        job: RunningJob,
        graph: Graph,
        graph_id: str,
        result: Any,
        error: BaseException | None,
    ) -> tuple[JobOutcome, dict[str, Any]]:
        """What a job came to, and the changes of its record."""
        changes = {"ended_at": now_micros(), "commits": self._commits(graph, job.record)}
        if error is None:
            return "succeeded", {**changes, "status": JobStatus.SUCCEEDED, "result": result}
        changes["error"] = error_of(error, job.record.id, graph.uri, graph_id)
        if not isinstance(error, OmniGraphError):
            self._log.event(
                "job failed",
                level=ERROR,
                job=job.record.id,
                error=f"{type(error).__name__}: {error}",
                traceback="".join(traceback.format_exception(error)),
            )
        if isinstance(error, Cancelled) and job.cancel.is_set:
            return "cancelled", {**changes, "status": JobStatus.CANCELLED}
        return "failed", {**changes, "status": JobStatus.FAILED}

    def _lost(
        self, job: RunningJob, graph: Graph, graph_id: str
    ) -> tuple[JobOutcome, dict[str, Any]]:
        """The end of a job whose own process ended without a word, or had to be killed."""
        with suppress(OmniGraphError):
            # Completes or rolls back what it had begun, so that the record can say which.
            graph.refresh()
        if job.cancel.is_set and landed(graph, job.record)[1] is False:
            return self._outcome(job, graph, graph_id, None, _stopped())
        self._log.event("the process of a job ended", level=ERROR, job=job.record.id)
        record = died(graph, graph_id, job.record)
        return "died", {
            "status": record.status,
            "ended_at": now_micros(),
            "commits": record.commits,
            "is_landed": record.is_landed,
            "error": record.error,
        }

    @staticmethod
    def _write_end(job: RunningJob, changes: dict[str, Any]) -> None:
        job.note(**changes)
        job.drop_cancel()

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
        self._write_ends()

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
                if not jobs and not self._unwritten:
                    self._monitor = None
                    return
            for job in jobs:
                job.beat()
            self._write_ends()

    def _write_ends(self) -> None:
        """Write what could not be written when jobs ended."""
        for job_id, (job, changes) in list(self._unwritten.items()):
            with suppress(OmniGraphError):
                self._write_end(job, changes)
                self._unwritten.pop(job_id, None)


def _not_started() -> Cancelled:
    return Cancelled("the job was cancelled before it started", hint="nothing of it was done")


def _stopped() -> Cancelled:
    return Cancelled("the job was cancelled, and its process was ended", hint="it made no commit")
