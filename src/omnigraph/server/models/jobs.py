"""Requests and responses about jobs and maintenance."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.server.jobs.records import PROCESS_DIED, JobProgress, JobRecord, JobStatus
from omnigraph.server.models.requests import EngineName
from omnigraph.server.models.responses import Count, Json

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class JobProgressOutput(msgspec.Struct, frozen=True):
    """How far a job is; ``total`` is 0 while it is unknown."""

    phase: str
    done: Count
    total: Count
    unit: str
    detail: dict[str, int]

    @classmethod
    def of(cls, progress: JobProgress) -> JobProgressOutput:
        """The progress of a record."""
        return msgspec.convert(msgspec.to_builtins(progress), cls)


class JobOutput(msgspec.Struct, frozen=True):
    """A job. Times are in microseconds since 1970.

    ``result`` is that of the call that the job runs, ``error`` the body of the error that the call
    would have been answered with, and its ``status``. ``landed`` is present if the process of the
    job died: whether it made a commit, or null if that is not known yet.
    """

    job_id: str
    kind: str
    status: JobStatus
    actor_id: str | None
    branch: str | None
    created_at: int
    started_at: int | None
    ended_at: int | None
    cancel_requested: bool
    commits: list[str]
    progress: JobProgressOutput | UnsetType = UNSET
    result: Any = UNSET
    error: Json | UnsetType = UNSET
    landed: bool | UnsetType | None = UNSET

    @classmethod
    def of(cls, record: JobRecord, *, is_whole: bool = True) -> JobOutput:
        """A record in the form of the contract; without its result for a list."""
        died = record.error is not None and record.error.get("reason") == PROCESS_DIED
        has_result = is_whole and record.status is JobStatus.SUCCEEDED
        return cls(
            record.id,
            record.kind,
            record.status,
            record.actor,
            record.branch,
            record.created_at,
            record.started_at,
            record.ended_at,
            record.is_cancel_requested,
            record.commits,
            UNSET if record.progress is None else JobProgressOutput.of(record.progress),
            record.result if has_result else UNSET,
            UNSET if record.error is None else record.error,
            record.is_landed if died else UNSET,
        )


class JobListOutput(msgspec.Struct, frozen=True):
    """Jobs, newest first."""

    jobs: list[JobOutput]


class JobFilter(msgspec.Struct, frozen=True):
    """Which jobs to list."""

    status: JobStatus | None = None
    kind: str | None = None


# -- maintenance -----------------------------------------------------------------------------


class OptimizeRequest(msgspec.Struct, frozen=True):
    """A branch to optimize."""

    branch: str | None = None
    if_needed: bool = False
    engine: EngineName | None = None


class CleanupRequest(msgspec.Struct, frozen=True):
    """Which versions to remove. Durations are in seconds; one of the first two is required."""

    keep_versions: Count | None = None
    older_than: Seconds | None = None
    min_age: Seconds | None = None
    feed_retention: Seconds | None = None
    dry_run: bool = False


class RepairRequest(msgspec.Struct, frozen=True):
    """A branch to repair, or, without ``confirm``, to examine."""

    branch: str | None = None
    confirm: bool = False
    force: bool = False


class VerifyRequest(msgspec.Struct, frozen=True):
    """A branch to verify; all without one."""

    branch: str | None = None
    checksums: bool = True


class EnsureIndexesRequest(msgspec.Struct, frozen=True):
    """A branch whose missing indexes are built."""

    branch: str | None = None


class RebuildIndexesRequest(msgspec.Struct, frozen=True):
    """A type, or one of its columns, whose indexes are built again."""

    type: str
    column: str | None = None
    branch: str | None = None


class FillRequest(msgspec.Struct, frozen=True):
    """What to embed: types, or properties as ``Type.property``; everything without both."""

    types: list[str] | None = None
    properties: list[str] | None = None
    branch: str | None = None
    again: bool = False
    threads: Positive | None = None
    commit_rows: Positive | None = None
    max_rows: Positive | None = None
    max_failures: Count = 0
    engine: EngineName | None = None


class ReportParameters(msgspec.Struct, frozen=True):
    """The branch of a report."""

    branch: str | None = None


class IndexParameters(msgspec.Struct, frozen=True):
    """A branch, and whether the recall of vector indexes is measured."""

    branch: str | None = None
    measure_recall: bool = False


class ReportOutput(msgspec.Struct, frozen=True):
    """A report of the library, as plain data."""

    report: Any
