"""What the record of a job means now: a record that says *running* may be of a dead process."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from omnigraph.api.graph import Graph
from omnigraph.commit.branches import Branches
from omnigraph.commit.job_ids import commits_of_job
from omnigraph.commit.names import normal_branch
from omnigraph.errors import OmniGraphError
from omnigraph.server.errors import RequestRefused, failure_of
from omnigraph.server.jobs.records import PROCESS_DIED, JobRecord, JobRecords, JobStatus

WITHOUT_COMMIT = frozenset({"cleanup", "verify"})
"""The kinds of jobs that never make a commit."""


def error_of(error: BaseException, job_id: str, uri: str, graph_id: str) -> dict[str, Any]:
    """An error as a record keeps it: the body of a response, and its status."""
    failure = failure_of(error, job_id, private={uri: f"graph '{graph_id}'"})
    body: dict[str, Any] = msgspec.to_builtins(failure.body)
    return {**body, "status": failure.status}


def current_state(graph: Graph, graph_id: str, record: JobRecord) -> JobRecord:
    """A record as it is true now; that of a living or ended job is returned as it is."""
    if record.status.is_final:
        return record if not _is_undecided(record) else died(graph, graph_id, record)
    if not record.has_lost_its_process:
        return record
    # It may have ended between the two looks.
    with suppress(OmniGraphError):
        record = JobRecords(graph._handle.store.objects).read(record.id)
        if record.status.is_final:
            return current_state(graph, graph_id, record)
    return died(graph, graph_id, record)


def died(graph: Graph, graph_id: str, record: JobRecord) -> JobRecord:
    """The record of a job whose process ended without a word."""
    commits, is_landed = landed(graph, record)
    return record.changed(
        status=JobStatus.FAILED,
        ended_at=record.ended_at or record.written_at,
        commits=commits,
        is_landed=is_landed,
        error=error_of(_died(record, commits, is_landed), record.id, graph.uri, graph_id),
    )


def _is_undecided(record: JobRecord) -> bool:
    """Whether a process died, and a recovery had not yet decided about its commit."""
    has_died = record.error is not None and record.error.get("reason") == PROCESS_DIED
    return has_died and record.is_landed is None and record.kind not in WITHOUT_COMMIT


def landed(graph: Graph, record: JobRecord) -> tuple[list[str], bool | None]:
    """The commits of a job, and whether it made any; ``None`` while a recovery may decide that."""
    if record.kind in WITHOUT_COMMIT:
        return [], None
    store = graph._handle.store
    try:
        # Looked for first: a write that is recovered meanwhile has its commit afterwards.
        is_open = bool(store.sidecars.list())
        names = Branches(store).list()
        branches = [normal_branch(name) for name in names if record.branch in (None, name)]
        commits = commits_of_job(store, record.id, branches, record.created_at)
    except OmniGraphError:
        return [], None
    return commits, True if commits else None if is_open else False


def _died(record: JobRecord, commits: list[str], is_landed: bool | None) -> RequestRefused:
    if commits:
        text, hint = f"its commit {commits[-1]} was made", "look at the commit before you repeat it"
    elif record.kind in WITHOUT_COMMIT:
        text, hint = "it makes no commit", "repeat it"
    elif is_landed is None:
        text = "whether its commit was made is not known yet"
        hint = "ask again when the next write has recovered what was interrupted"
    else:
        text, hint = "it made no commit", "repeat it"
    error = RequestRefused(
        503, "process_died", f"the process that ran the job ended; {text}", hint=hint
    )
    error.retryable = is_landed is not True
    return error
