"""Jobs: listing, showing and cancelling them; and starting one for a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omnigraph.server.calls import RESPOND_ASYNC, Call, Reply, prefers_async
from omnigraph.server.jobs.executor import NewJob
from omnigraph.server.jobs.in_process import run_in_process
from omnigraph.server.jobs.process_work import ProcessWork
from omnigraph.server.jobs.records import JobRecord, JobRecords, missing_job
from omnigraph.server.jobs.running import RunningJob
from omnigraph.server.jobs.states import current_state
from omnigraph.server.models.jobs import JobFilter, JobListOutput, JobOutput


def start_job(
    call: Call,
    kind: str,
    branch: str | None,
    options: dict[str, Any],
    work: Callable[[RunningJob], Any],
    release: Callable[[], None] = lambda: None,
) -> Reply:
    """Start a job; the answer says where its state is. ``release`` is called when it has ended."""
    new = NewJob(kind, call.actor, branch, options, work, release)
    record = call.process.jobs.submit(call.graph, call.graph_id, new)
    call.process.log.event(
        "job started",
        request_id=call.request_id,
        graph=call.graph_id,
        actor=call.actor,
        job=record.id,
        kind=kind,
    )
    headers = [("location", f"/graphs/{call.graph_id}/jobs/{record.id}")]
    if prefers_async(call.headers):
        headers.append(("preference-applied", RESPOND_ASYNC))
    return Reply.json(JobOutput.of(record), 202, tuple(headers))


def runs_on_spark(engine: str | None) -> bool:
    """Whether a job runs on Spark, which must be asked for; refused where it is not installed."""
    if engine != "spark":
        return False
    from omnigraph.spark.session.engine import require_pyspark

    require_pyspark()
    return True


def run_on_spark(call: Call, job: RunningJob, work: ProcessWork) -> Any:
    """Run the work of a job on Spark, in a process of its own, as the actor of the call."""
    return run_in_process(job, call.graph, work, call.process.state.config.log)


def authorize_jobs(call: Call) -> None:
    """Whoever may read the graph has jobs of its own; those of others need ``admin``."""
    call.require("read")


def list_jobs(call: Call) -> Reply:
    """The jobs that the actor may know, newest first."""
    wanted: JobFilter = call.query
    sees_all = call.allows("admin") is None
    jobs = []
    for record in _records(call).every():
        if not sees_all and record.actor != call.actor:
            continue
        state = current_state(call.graph, call.graph_id, record)
        if wanted.status in (None, state.status) and wanted.kind in (None, state.kind):
            jobs.append(JobOutput.of(state, is_whole=False))
    return Reply.json(JobListOutput(jobs))


def get_job(call: Call) -> Reply:
    """The state of a job."""
    return Reply.json(JobOutput.of(_find(call)))


def cancel_job(call: Call) -> Reply:
    """Ask a job to stop; forget one that has ended."""
    state = _find(call)
    records = _records(call)
    if state.status.is_final:
        if not call.process.jobs.is_running(state.id):
            records.delete(state.id)
        return Reply.json(JobOutput.of(state))
    stopped = call.process.jobs.cancel(state.id)
    if stopped is None:
        # It runs in another server of this graph, which looks for such requests.
        records.request_cancel(state.id)
        stopped = state.changed(is_cancel_requested=True)
    return Reply.json(JobOutput.of(stopped), 202)


def _find(call: Call) -> JobRecord:
    """The job of the path; one of another actor is absent without ``admin``."""
    job_id = call.path["job_id"]
    record = _records(call).read(job_id)
    if record.actor != call.actor and call.allows("admin") is not None:
        raise missing_job(job_id)
    return current_state(call.graph, call.graph_id, record)


def _records(call: Call) -> JobRecords:
    return JobRecords(call.graph._handle.store.objects)
