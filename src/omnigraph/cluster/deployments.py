"""Deployments: a record of each apply that a server was asked for, beside the ledger.

A record is written before the apply begins, and again when it has ended. One whose process is gone
says so: whether it is, is decided when the record is read.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.lock import read_lock
from omnigraph.cluster.reports import ApplyReport
from omnigraph.cluster.state_file import json_text
from omnigraph.cluster.storage import ClusterStorage, timestamp
from omnigraph.commit.ulid import is_ulid, new_ulid
from omnigraph.errors import StorageCorrupt, StorageMissing

DEPLOYMENTS = "__cluster/deployments"
DEPLOYMENT_VERSION = 1
MOST_KEPT = 1_000
"""Older records are removed when a new one is written."""

NOT_IN_FORCE = "deployment_not_in_force"
STATE_KEPT = "graph_state_kept"

Outcome = Literal["running", "converged", "waiting", "failed", "lost"]


class DeploymentRecord(msgspec.Struct, frozen=True):
    """One apply by a server."""

    version: int
    id: str
    actor: str | None
    outcome: Outcome
    """``waiting``: applied, but a change waits for something. ``lost``: its process ended first."""
    started_at: str
    files: dict[str, str]
    """The SHA-256 of each file that was sent."""
    host: str
    pid: int
    process_start: str | None = None
    ended_at: str | None = None
    config_digest: str | None = None
    state_cas: str | None = None
    revision: int | None = None
    in_force: bool | None = None
    """Whether all processes of the server serve it; absent if that was not attempted."""
    report: dict[str, Any] | None = None

    @property
    def path(self) -> str:
        return f"{DEPLOYMENTS}/{self.id}.json"

    def to_json(self, *, is_whole: bool = True) -> dict[str, Any]:
        """A record as clients see it; the report only if it was asked for."""
        fields: dict[str, Any] = {
            "id": self.id,
            "outcome": self.outcome,
            "actor": self.actor,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "config_digest": self.config_digest,
            "revision": self.revision,
            "in_force": self.in_force,
            "files": self.files,
        }
        return fields | {"report": self.report} if is_whole else fields

    def ended(self, report: ApplyReport) -> DeploymentRecord:
        """The record after its apply."""
        outcome: Outcome = "converged" if report.is_converged else "waiting"
        return msgspec.structs.replace(
            self,
            outcome=outcome if report.ok else "failed",
            ended_at=timestamp(),
            config_digest=report.config_digest,
            state_cas=report.state.cas,
            revision=report.state.revision if report.state.has_state else None,
            report=report.to_json(),
        )

    def in_force_after(self, report: ApplyReport, *, is_in_force: bool) -> DeploymentRecord:
        """The record after an attempt to put it in force, with what was noticed then."""
        noted = msgspec.structs.replace(self, report=report.to_json(), in_force=is_in_force)
        return noted if report.ok else msgspec.structs.replace(noted, outcome="failed")

    def failed(self) -> DeploymentRecord:
        """The record of an apply that ended without a report."""
        return msgspec.structs.replace(self, outcome="failed", ended_at=timestamp())


def new_deployment(actor: str | None, files: Mapping[str, bytes]) -> DeploymentRecord:
    return DeploymentRecord(
        DEPLOYMENT_VERSION,
        new_ulid(),
        actor,
        "running",
        timestamp(),
        {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())},
        socket.gethostname(),
        os.getpid(),
        _start_of(os.getpid()),
    )


class Deployments:
    """The records of one cluster. Raises ``StorageError`` if the storage does not answer."""

    def __init__(self, storage: ClusterStorage) -> None:
        self._storage = storage

    def write(self, deployment: DeploymentRecord) -> None:
        """Write a record, or replace it."""
        document = {
            name: value
            for name, value in msgspec.to_builtins(deployment).items()
            if value is not None
        }
        self._storage.objects.write(deployment.path, json_text(document))

    def prune(self) -> None:
        """Remove the oldest records."""
        objects = self._storage.objects
        old = self._ids()[MOST_KEPT:]
        objects.delete_quietly(f"{DEPLOYMENTS}/{name}.json" for name in old)

    def read(self, deployment_id: str) -> DeploymentRecord | None:
        """A record as it is now; ``None`` if there is none."""
        if not is_ulid(deployment_id) or self._storage.is_missing:
            return None
        try:
            text = self._storage.objects.read(f"{DEPLOYMENTS}/{deployment_id}.json")
            deployment = msgspec.json.decode(text, type=DeploymentRecord)
        except (StorageMissing, StorageCorrupt, msgspec.DecodeError):
            return None
        if deployment.outcome == "running" and self._is_lost(deployment):
            return msgspec.structs.replace(deployment, outcome="lost")
        return deployment

    def newest(self, limit: int) -> list[DeploymentRecord]:
        """The newest records, newest first."""
        read = (self.read(name) for name in self._ids()[:limit])
        return [deployment for deployment in read if deployment is not None]

    def _ids(self) -> list[str]:
        if self._storage.is_missing:
            return []
        names = (name.removesuffix(".json") for name in self._storage.objects.list(DEPLOYMENTS))
        return sorted(filter(is_ulid, names), reverse=True)

    def _is_lost(self, deployment: DeploymentRecord) -> bool:
        """Whether the process of a deployment has ended without saying how.

        On another machine the lock is the only sign of life: an apply that is under way has it,
        and renews it.
        """
        if _is_of_this_machine(deployment):
            return not _is_running(deployment.pid, deployment.process_start)
        started = datetime.fromisoformat(deployment.started_at).timestamp()
        now, patience = time.time(), self._storage.lock_seconds
        if now - started < patience:
            return False
        try:
            lock = read_lock(self._storage)
        except ClusterStop:
            return False
        if lock is None or lock.record.pid != deployment.pid:
            return True
        # Clocks of two machines differ: twice the time that a renewal may take.
        return now - lock.modified > 2 * patience


def _is_of_this_machine(deployment: DeploymentRecord) -> bool:
    """Whether process ids of a record are those of this system; machines may share a name."""
    if deployment.host != socket.gethostname():
        return False
    own, start = _start_of(os.getpid()), deployment.process_start
    return own is None or start is None or own.partition("/")[0] == start.partition("/")[0]


def _is_running(pid: int, start: str | None) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    # Another process may have the same number by now.
    return start is None or _start_of(pid) == start


def _start_of(pid: int) -> str | None:
    """When a process started, in a form that only this system understands; if it can tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        # One that has ended may stay in the table for a moment.
        return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"
    except (OSError, IndexError):
        return None
