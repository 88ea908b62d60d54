"""The records of jobs: small objects in the directory ``__jobs`` of the graph.

A record is written by the process that runs the job, and read by every process. A second object
asks it to stop, so that nobody else writes the record of a living job. Other programs ignore the
directory.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from omnigraph.commit.ulid import now_micros
from omnigraph.errors import NotFound, OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.server.jobs.owners import JobOwner
from omnigraph.storage.objects.store import ObjectStore

FOLDER = "__jobs"
PROCESS_DIED = "process_died"
"""The reason of the error of a job whose process ended without a word."""
MOST_RECORDS = 200
"""How many records of ended jobs a graph keeps."""
LONGEST_SECONDS = 7 * 24 * 3600
"""How long it keeps them."""
_RECORD, _CANCEL = ".job", ".cancel"
_LONGEST_ID = 26
"""The length of every id; a file name of any length is an error of the storage."""


class JobStatus(StrEnum):
    """The states of a job; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING)


class JobProgress(msgspec.Struct, frozen=True):
    """How far a job is; ``total`` is 0 while it is unknown."""

    phase: str
    done: int = 0
    total: int = 0
    unit: str = "tasks"
    detail: dict[str, int] = {}


class JobRecord(msgspec.Struct, frozen=True):
    """One job. Times are in microseconds since 1970."""

    id: str
    kind: str
    actor: str | None
    branch: str | None
    """The branch that it works on; none for all."""
    options: dict[str, Any]
    owner: JobOwner
    created_at: int
    written_at: int
    status: JobStatus = JobStatus.QUEUED
    started_at: int | None = None
    ended_at: int | None = None
    progress: JobProgress | None = None
    result: Any = None
    error: Any = None
    """The body of the error that a request would have been answered with, and its ``status``."""
    commits: list[str] = []
    """The commits that it made, as far as they are known."""
    is_landed: bool | None = None
    """Of a job whose process died: whether it made a commit; none if that is not known."""
    is_cancel_requested: bool = False
    worker: JobOwner | None = None
    """The process that does the work, if it is not the owner, which only records it."""

    @property
    def has_lost_its_process(self) -> bool:
        """Whether neither the process that records it is alive, nor the one that works."""
        working = self.worker is not None and not self.worker.has_died(self.written_at)
        return self.owner.has_died(self.written_at) and not working

    def changed(self, **changes: Any) -> JobRecord:
        """The record with other values."""
        return msgspec.structs.replace(self, **changes)


class JobRecords:
    """The records of one graph."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def read(self, job_id: str) -> JobRecord:
        """A record; ``NotFound`` if there is none."""
        if not job_id.isalnum() or not job_id.isascii() or len(job_id) > _LONGEST_ID:
            raise missing_job(job_id)
        try:
            record = self._read(f"{job_id}{_RECORD}")
        except StorageMissing:
            raise missing_job(job_id) from None
        if record is None:
            raise missing_job(job_id)
        return record

    def every(self) -> list[JobRecord]:
        """All records, newest first; one that cannot be read is left out."""
        records = []
        for name in reversed(self._objects.list(FOLDER)):
            if name.endswith(_RECORD):
                with suppress(StorageMissing):
                    record = self._read(name)
                    records += [] if record is None else [record]
        return records

    def _read(self, name: str) -> JobRecord | None:
        try:
            text = self._objects.read(f"{FOLDER}/{name}")
            return msgspec.json.decode(text, type=JobRecord)
        except (msgspec.MsgspecError, StorageCorrupt):
            return None

    def write(self, record: JobRecord, *, is_durable: bool) -> JobRecord:
        """Write a record; progress may be lost in a power failure, outcomes may not."""
        record = record.changed(written_at=now_micros())
        content, path = msgspec.json.encode(record), f"{FOLDER}/{record.id}{_RECORD}"
        if is_durable:
            self._objects.write(path, content.decode("utf-8"))
        else:
            self._objects.write_bytes(path, content)
        return record

    def delete(self, job_id: str) -> None:
        """Forget a job."""
        self._objects.delete_quietly(f"{FOLDER}/{job_id}{end}" for end in (_RECORD, _CANCEL))

    def request_cancel(self, job_id: str) -> None:
        """Ask the process of a job to stop it."""
        self._objects.create(f"{FOLDER}/{job_id}{_CANCEL}", "")

    def wants_cancel(self, job_id: str) -> bool:
        """Whether somebody has asked to stop a job."""
        return self._objects.head(f"{FOLDER}/{job_id}{_CANCEL}") is not None

    def drop_cancel(self, job_id: str) -> None:
        """The job has ended: nothing is left to stop."""
        self._objects.delete_quietly([f"{FOLDER}/{job_id}{_CANCEL}"])

    def prune(self, ended: list[JobRecord]) -> None:
        """Forget ended jobs that are too old, or too many; ``ended`` are newest first."""
        oldest = now_micros() - LONGEST_SECONDS * 1_000_000
        for number, record in enumerate(ended):
            if number >= MOST_RECORDS or (record.ended_at or record.written_at) < oldest:
                with suppress(OmniGraphError):
                    self.delete(record.id)


def missing_job(job_id: str) -> NotFound:
    """The error of an unknown job, and of one that the actor may not know."""
    return NotFound(f"job '{job_id}' not found", details={"job": job_id})
