"""The records of applies by servers: what they say when nobody can be asked any more."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from omnigraph.cluster.deployments import (
    MOST_KEPT,
    DeploymentRecord,
    Deployments,
    new_deployment,
)
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.commit.ulid import new_ulid
from omnigraph.server.config import LogOptions
from omnigraph.server.deploying import Deployer
from omnigraph.server.lifecycle import CannotServe
from omnigraph.server.request_log import RequestLog
from omnigraph.settings import Settings
from tests.cluster.lab import WIDER, Lab
from tests.cluster.ledgers import ULID
from tests.crash.cluster_operations import sent_files

PID = 4711


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab").applied()


@pytest.fixture
def records(lab: Lab) -> Deployments:
    return Deployments(ClusterStorage(str(lab.directory), Settings()))


def elsewhere(minutes: float, **changes: Any) -> DeploymentRecord:
    """The record of an apply that another machine began some time ago."""
    began = datetime.now(UTC) - timedelta(minutes=minutes)
    record = new_deployment("ana", {"cluster.yaml": b"version: 1\n"})
    return msgspec.structs.replace(
        record, host="another", pid=PID, started_at=began.isoformat(), **changes
    )


def lock(lab: Lab, pid: int, minutes: float) -> None:
    """A lock that was renewed some time ago."""
    document = {"version": 1, "lock_id": ULID, "operation": "apply", "created_at": "", "pid": pid}
    path = lab.write("__cluster/lock.json", json.dumps(document | {"ttl_seconds": 30.0}))
    moment = time.time() - minutes * 60
    os.utime(path, (moment, moment))


@pytest.mark.parametrize(
    ("minutes", "holder", "renewed", "outcome"),
    [
        (0, None, 0, "running"),
        (60, None, 0, "lost"),
        (60, PID, 0, "running"),
        (60, PID, 30, "lost"),
        (60, PID + 1, 0, "lost"),
    ],
    ids=["just begun", "no lock", "renewed", "not renewed", "of somebody else"],
)
def test_an_apply_on_another_machine_runs_as_long_as_it_renews_its_lock(
    lab, records, minutes, holder, renewed, outcome
):
    record = elsewhere(minutes)
    records.write(record)
    if holder is not None:
        lock(lab, holder, renewed)
    read = records.read(record.id)
    assert read is not None
    assert read.outcome == outcome
    # Whoever reads it does not write it.
    assert json.loads((lab.directory / record.path).read_text())["outcome"] == "running"


def test_an_apply_on_this_machine_runs_as_long_as_its_process(records):
    record = new_deployment("ana", {})
    records.write(record)
    assert [entry.outcome for entry in records.newest(5)] == ["running"]
    # The process has this number, but is not the one that wrote the record.
    machine = (record.process_start or "").partition("/")[0]
    records.write(msgspec.structs.replace(record, process_start=f"{machine}/1"))
    assert [entry.outcome for entry in records.newest(5)] == ["lost"]


def test_a_machine_of_the_same_name_is_another_one(lab, records):
    record = msgspec.structs.replace(
        new_deployment("ana", {}), pid=PID, process_start="another-boot/1"
    )
    records.write(record)
    assert [entry.outcome for entry in records.newest(5)] == ["running"]


def test_an_apply_that_has_ended_is_never_called_lost(records):
    record = elsewhere(60, outcome="converged")
    records.write(record)
    assert records.read(record.id) == record


def test_the_newest_records_are_kept(lab, records):
    folder = lab.directory / "__cluster" / "deployments"
    folder.mkdir()
    names = sorted(new_ulid() for _ in range(MOST_KEPT + 3))
    for name in names:
        (folder / f"{name}.json").write_text("{}")
    (folder / "readme.json").write_text("{}")
    records.prune()
    kept = sorted(path.stem for path in folder.iterdir())
    assert kept == [*names[3:], "readme"]


@pytest.mark.parametrize("name", ["../../state", "", "a/b", ULID, f"{ULID}.json"])
def test_only_ids_are_looked_up(records, name):
    assert records.read(name) is None


def test_what_could_not_be_put_in_force_says_so(lab):
    def fail() -> None:
        raise CannotServe("the old state stays in force")

    lab.write("kb.pg", WIDER)
    served: Any = SimpleNamespace(revision=2, kept={})
    log = RequestLog(LogOptions("error", os.open(os.devnull, os.O_WRONLY)))
    deployer = Deployer(str(lab.directory), Settings(), log, fail, lambda: served)
    done = deployer.apply(sent_files(lab.directory), "ana", None)
    assert (done.outcome, done.in_force, done.revision) == ("failed", False, 3)
    assert done.report is not None
    assert [entry["code"] for entry in done.report["diagnostics"]] == ["deployment_not_in_force"]
    assert deployer.records.read(done.id) == done
    # It is applied all the same: the ledger is the truth.
    assert lab.plan().changes == ()
