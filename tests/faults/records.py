"""What a server writes beside a graph: the records of jobs and deployments, the keys of cursors.

Each operation changes one of them from a state to another; who looks afterwards sees one of both.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from omnigraph.api.cursor_keys import SIGNING_SECONDS, StoredCursorKeys
from omnigraph.cluster.deployments import DeploymentRecord, Deployments
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.server.jobs.owners import JobOwner
from omnigraph.server.jobs.records import JobRecord, JobRecords, JobStatus
from omnigraph.settings import Settings
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from tests.faults import seccomp
from tests.faults.children import report_ending
from tests.faults.victims import ending_of_rest

JOB = JobRecord("01J", "load", "ana", "main", {}, JobOwner("m", 1, "1"), 1, 1)
ENDED = JOB.changed(status=JobStatus.SUCCEEDED, result={"rows": "x" * 10_000}, commits=["01C"])
DEPLOYMENT = DeploymentRecord(
    1, "01ARZ3NDEKTSV4RRFFQ69G5FAV", "ana", "failed", "2026-01-01T00:00:00Z", {}, "elsewhere", 1
)
NOW = 1_800_000_000.0


def _jobs(root: Path) -> JobRecords:
    return JobRecords(ObjectStore(parse_root(str(root))))


def _deployments(root: Path) -> Deployments:
    return Deployments(ClusterStorage(str(root), Settings()))


def _keys(root: Path, now: float = NOW) -> StoredCursorKeys:
    return StoredCursorKeys(ObjectStore(parse_root(str(root))), lambda: now)


def _write_job(record: JobRecord, durable: bool, root: Path) -> None:
    _jobs(root).write(record, is_durable=durable)


def _ask_to_stop(root: Path) -> None:
    _jobs(root).request_cancel(JOB.id)


def _write_deployment(outcome: Any, root: Path) -> None:
    _deployments(root).write(
        DeploymentRecord(*(getattr(DEPLOYMENT, name) for name in _FIRST), outcome, *_REST)
    )


_FIRST = ("version", "id", "actor")
_REST = (DEPLOYMENT.started_at, {"cluster.yaml": "0" * 64}, DEPLOYMENT.host, DEPLOYMENT.pid)


def _sign(now: float, root: Path) -> None:
    _keys(root, now).signing()


def _job(root: Path) -> tuple[str, ...]:
    jobs = _jobs(root)
    return tuple(f"{record.id} {record.status}" for record in jobs.every())


def _stop(root: Path) -> tuple[bool, tuple[str, ...]]:
    return _jobs(root).wants_cancel(JOB.id), _job(root)


def _deployment(root: Path) -> tuple[str, ...]:
    return tuple(record.outcome for record in _deployments(root).newest(10))


def _key(root: Path) -> int:
    """How many keys there are; the newest signs."""
    keys = _keys(root)
    keys._read()
    return len(keys._keys)


class Change(NamedTuple):
    """A change of a record: what was there, the change, and what a reader sees."""

    before: Callable[[Path], None]
    change: Callable[[Path], None]
    look: Callable[[Path], Any]
    may_stay: bool = False
    """Whether it succeeds without the change: what was there is good enough."""


def _nothing(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)


CHANGES: dict[str, Change] = {
    "the first record of a job": Change(_nothing, partial(_write_job, JOB, True), _job),
    "the end of a job": Change(
        partial(_write_job, JOB, True), partial(_write_job, ENDED, True), _job
    ),
    "the progress of a job": Change(
        partial(_write_job, JOB, True), partial(_write_job, ENDED, False), _job
    ),
    "the request to stop a job": Change(partial(_write_job, JOB, True), _ask_to_stop, _stop),
    "the first record of a deployment": Change(
        _nothing, partial(_write_deployment, "failed"), _deployment
    ),
    "the end of a deployment": Change(
        partial(_write_deployment, "failed"),
        partial(_write_deployment, "converged"),
        _deployment,
    ),
    "the first key of cursors": Change(_nothing, partial(_sign, NOW), _key),
    "the next key of cursors": Change(
        partial(_sign, NOW), partial(_sign, NOW + SIGNING_SECONDS), _key, may_stay=True
    ),
}


def changing(name: str, root: Path) -> Iterator[None]:
    """A change as an operation that may be killed."""
    yield
    CHANGES[name].change(root)


def suffering(name: str, root: Path) -> Iterator[None]:
    """A change of which a call fails; tells how it ended."""
    yield
    work = changing(name, root)
    next(work)
    seccomp.install(reading=False)
    os.kill(os.getpid(), signal.SIGSTOP)
    report_ending(ending_of_rest(work))
