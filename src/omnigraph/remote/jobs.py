"""Jobs of a server: their requests and states, waiting for them, and ``graph.jobs``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.api.arguments import public
from omnigraph.client.refusals import refusal
from omnigraph.client.server import COMMIT_HEADER, ServerRequest
from omnigraph.errors import OmniGraphError, OutcomePending
from omnigraph.progress import OnProgress, Progress
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.remote.calls import RemoteCalls

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_PATIENCE_SECONDS = 60.0
"""How long a server may be away while a job is waited for."""
_FINAL = ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Job:
    """Long work of a server. Times are in microseconds since 1970."""

    job_id: str
    kind: str
    """What it does, such as ``optimize`` or ``load``."""
    status: str
    """``queued``, ``running``, ``succeeded``, ``failed`` or ``cancelled``."""
    actor: str | None
    branch: str | None
    created_at: int
    started_at: int | None = None
    ended_at: int | None = None
    cancel_requested: bool = False
    commits: tuple[str, ...] = ()
    """The commits that it made, as far as they are known."""
    progress: Progress | None = None
    result: Any = None
    """What it returned, as JSON values; not in a list of jobs."""
    error: Mapping[str, Any] | None = None
    """Why it failed, as the body of an error of the server."""
    landed: bool | None = None
    """If its process died: whether it made a commit; ``None`` if that is not known."""

    @property
    def has_ended(self) -> bool:
        return self.status in _FINAL

    def outcome(self) -> Any:
        """The result of a job that has ended; raises the error of one that failed."""
        if self.status == "succeeded":
            return self.result
        body = dict(self.error or {})
        status = int(body.pop("status", 500))
        raise refusal(status, {}, json.dumps(body).encode("utf-8"))


def job_of(document: Any) -> Job:
    """A job of a response."""
    progress = document.get("progress")
    return Job(
        str(document["job_id"]),
        str(document["kind"]),
        str(document["status"]),
        document["actor_id"],
        document["branch"],
        int(document["created_at"]),
        document["started_at"],
        document["ended_at"],
        bool(document["cancel_requested"]),
        tuple(document["commits"]),
        None if progress is None else Progress(**progress),
        document.get("result"),
        document.get("error"),
        document.get("landed"),
    )


def jobs_of(document: Any) -> list[Job]:
    """The jobs of a list."""
    return [job_of(item) for item in document["jobs"]]


# -- requests ---------------------------------------------------------------------------------


def start(*segments: str, body: Mapping[str, Any]) -> ServerRequest:
    """A call that becomes a job."""
    given = {name: value for name, value in body.items() if value is not None}
    return ServerRequest("POST", segments, body=given, changes=True)


def preferred(request: ServerRequest) -> ServerRequest:
    """The same request, as a job."""
    return replace(request, headers={**request.headers, "Prefer": "respond-async"})


def show(job_id: str) -> ServerRequest:
    """The state of a job."""
    return ServerRequest("GET", ("jobs", job_id))


def list_all(status: str | None, kind: str | None) -> ServerRequest:
    """The jobs that the token may know."""
    wanted = {"status": status, "kind": kind}
    query = {name: value for name, value in wanted.items() if value is not None}
    return ServerRequest("GET", ("jobs",), query)


def cancel(job_id: str) -> ServerRequest:
    """A job to stop, or to forget."""
    return ServerRequest("DELETE", ("jobs", job_id), changes=True)


# -- waiting ----------------------------------------------------------------------------------


def pauses() -> Iterator[float]:
    """The seconds to wait between two looks at a job."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 1.5, _LONGEST_PAUSE)


class Waiting:
    """Follows one job: reports its progress, and bears a server that is away for a while."""

    def __init__(self, job: Job, on_progress: OnProgress | None) -> None:
        self.job = job
        self._on_progress = on_progress
        self._last: Progress | None = None
        self._away_since: float | None = None

    def see(self, job: Job) -> None:
        """A new state."""
        self.job, self._away_since = job, None
        if job.progress is not None and job.progress != self._last:
            self._last = job.progress
            if self._on_progress is not None:
                self._on_progress(job.progress)

    def bear(self, error: OmniGraphError) -> None:
        """Raise unless the server may be back soon."""
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        if error.retryable and now - self._away_since < _PATIENCE_SECONDS:
            return
        if not error.retryable:
            raise error
        raise OutcomePending(
            f"the server does not answer any more; job {self.job.job_id} may still run",
            hint="look at the job when the server is back",
            details={"job_id": self.job.job_id},
        ) from error


def run(calls: RemoteCalls, request: ServerRequest, on_progress: OnProgress | None = None) -> Any:
    """Start a job, and wait for its result; an interrupted wait cancels it."""
    return follow(calls, calls.send(request, job_of), on_progress)


def follow(calls: RemoteCalls, job: Job, on_progress: OnProgress | None = None) -> Any:
    """Wait for the result of a job."""
    waiting = Waiting(job, on_progress)
    waits = pauses()
    try:
        waiting.see(job)
        while not waiting.job.has_ended:
            time.sleep(next(waits))
            try:
                waiting.see(calls.send(show(job.job_id), job_of))
            except OmniGraphError as error:
                waiting.bear(error)
    except BaseException as error:
        if not isinstance(error, OmniGraphError):
            with suppress(OmniGraphError):
                calls.send(cancel(job.job_id), job_of)
        raise
    done = waiting.job
    if done.commits:
        # Later reads of this connection include them.
        calls.connection.note({COMMIT_HEADER: done.commits[-1]})
    return done.outcome()


class RemoteJobs:
    """The jobs of a server, as ``graph.jobs``."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    @public
    def list(self, *, status: str | None = None, kind: str | None = None) -> list[Job]:
        """The jobs of this token, newest first; of everybody, if it may see them."""
        return self._calls.send(list_all(status, kind), jobs_of)

    @public
    def get(self, job_id: str) -> Job:
        """The state of a job.

        Raises:
            NotFound: there is no such job, or the token may not know it.
        """
        return self._calls.send(show(job_id), job_of)

    @public
    def cancel(self, job_id: str) -> Job:
        """Ask a job to stop at its next safe point; forget one that has ended.

        Raises:
            NotFound: there is no such job, or the token may not know it.
        """
        return self._calls.send(cancel(job_id), job_of)

    @public
    def wait(self, job_id: str, *, on_progress: OnProgress | None = None) -> Any:
        """Wait for the result of a job, as JSON values; raises its error if it fails.

        Raises:
            NotFound: there is no such job, or the token may not know it.
        """
        return follow(self._calls, self.get(job_id), on_progress)
