"""The lock: one command at a time, and a stopped holder changes nothing when it wakes up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.lock import ClusterLock, hold_lock, read_lock
from omnigraph.cluster.state_commands import force_unlock
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.commit.failpoints import Failpoint
from omnigraph.settings import Settings
from tests.cluster.lab import SCHEMA, WIDER, Lab, codes
from tests.cluster.ledgers import ULID

FOREIGN = {
    "version": 1,
    "lock_id": ULID,
    "operation": "apply",
    "created_at": "2026-11-18T00:00:00Z",
    "pid": 4711,
}
SHORT = Settings.from_environ({"OMNIGRAPH_CLUSTER_LOCK_SECONDS": "1"})


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


def plant(lab: Lab, **changes: object) -> None:
    lab.write("__cluster/lock.json", json.dumps(FOREIGN | changes))


# -- a lock that somebody holds ------------------------------------------------------------------


def test_every_command_that_writes_names_the_holder_and_leaves_its_lock(lab):
    lab.applied()
    plant(lab)
    (lab.directory / "__cluster" / "state.json").touch()
    for report in (lab.apply(), lab.refresh(), lab.import_(), lab.approve("graph.kb")):
        assert codes(report) == ["state_lock_held"]
        message = report.diagnostics[0].message
        assert ULID in message
        assert f"omnigraph cluster force-unlock {ULID}" in message
        assert "cluster apply" in message
    assert lab.status().ok
    assert lab.plan().ok
    assert json.loads(lab.lock.read_text()) == FOREIGN


def test_a_lock_of_another_program_never_expires(lab):
    lab.applied()
    plant(lab)
    os.utime(lab.lock, (0, 0))
    assert codes(lab.apply()) == ["state_lock_held"]


def test_force_unlock_needs_the_exact_id(lab):
    lab.applied()
    assert codes(force_unlock(lab.bundle, lab.settings, ULID)) == ["state_lock_missing"]
    plant(lab)
    wrong = force_unlock(lab.bundle, lab.settings, ULID[:-1])
    assert codes(wrong) == ["state_lock_id_mismatch"]
    assert ULID in wrong.diagnostics[0].message
    assert lab.lock.exists()
    right = force_unlock(lab.bundle, lab.settings, ULID)
    assert (right.ok, right.is_removed, lab.lock.exists()) == (True, True, False)
    assert lab.apply().ok


@pytest.mark.parametrize(
    ("text", "code"),
    [("{", "invalid_state_lock"), ('{"lock_id": 1}', "invalid_state_lock")],
)
def test_a_damaged_lock_is_reported(lab, text, code):
    lab.applied()
    lab.write("__cluster/lock.json", text)
    assert codes(force_unlock(lab.bundle, lab.settings, ULID)) == [code]
    assert codes(lab.apply()) == [code]
    plant(lab, version=2)
    assert codes(lab.apply()) == ["unsupported_state_lock_version"]


def test_the_lock_is_removed_after_failures(lab):
    lab.applied()
    lab.write("kb.pg", SCHEMA.replace("String", "I32"))
    assert not lab.apply().ok
    assert not lab.lock.exists()


def test_without_a_lock_there_is_a_warning(lab):
    lab.edit("cluster.yaml", "version: 1", "version: 1\nstate: {lock: false}")
    report = lab.import_()
    assert (report.ok, codes(report)) == (True, ["state_lock_disabled"])
    plant(lab)
    assert lab.apply().is_converged
    assert lab.lock.exists()


def test_the_lock_has_the_fields_of_the_format_first(lab):
    storage = ClusterStorage(str(lab.directory), Settings())
    with hold_lock(storage, "apply") as guard:
        document = json.loads(lab.lock.read_text())
        assert list(document)[:5] == ["version", "lock_id", "operation", "created_at", "pid"]
        assert document["lock_id"] == guard.lock_id
        assert (document["operation"], document["pid"]) == ("apply", os.getpid())
        status = lab.status()
        assert status.to_json()["state_observations"]["lock_id"] == guard.lock_id
    assert not lab.lock.exists()


# -- expiry --------------------------------------------------------------------------------------


def test_a_holder_renews_its_lock(lab):
    storage = ClusterStorage(str(lab.directory), SHORT)
    with hold_lock(storage, "apply") as guard:
        wait_for(lambda: json.loads(lab.lock.read_text())["beat"] >= 4)
        guard.check()
        with pytest.raises(ClusterStop, match="holds the lock"):
            ClusterLock(storage, "refresh").acquire()
    assert not lab.lock.exists()


def test_the_lock_of_a_dead_process_is_taken_over_and_the_ledger_is_advanced(lab):
    lab.applied()
    revision = lab.state["state_revision"]
    plant(lab, ttl_seconds=1, beat=3, token=4)
    os.utime(lab.lock, (time.time() - 10,) * 2)
    storage = ClusterStorage(str(lab.directory), SHORT)
    lock = ClusterLock(storage, "apply")
    lock.acquire()
    seen = read_lock(storage)
    assert seen is not None
    assert (seen.record.lock_id, seen.record.token) == (lock.lock_id, 5)
    assert lab.state["state_revision"] == revision + 1
    lock.release()
    assert lab.apply().ok


def test_a_holder_whose_lock_was_removed_finds_out_at_once(lab):
    storage = ClusterStorage(str(lab.directory), Settings())
    lock = ClusterLock(storage, "apply")
    lock.acquire()
    lock.check()
    assert force_unlock(lab.bundle, lab.settings, lock.lock_id).ok
    assert _is_lost(lock)


def test_a_holder_that_lost_its_lock_finds_out(lab):
    lab.applied()
    storage = ClusterStorage(str(lab.directory), SHORT)
    lock = ClusterLock(storage, "apply")
    lock.acquire()
    os.utime(lab.lock, (time.time() - 10,) * 2)
    other = ClusterLock(storage, "refresh")
    other.acquire()
    wait_for(lambda: _is_lost(lock))
    lock.release()
    assert json.loads(lab.lock.read_text())["lock_id"] == other.lock_id
    other.release()


def _is_lost(lock: ClusterLock) -> bool:
    try:
        lock.check()
    except ClusterStop as stop:
        return stop.diagnostic.code == "state_lock_lost"
    return False


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


# -- a process that is stopped -------------------------------------------------------------------


class Stopped:
    """A command in a process of its own, stopped at a boundary."""

    def __init__(self, process: subprocess.Popen[str], lab: Lab) -> None:
        self._process = process
        self._lab = lab

    def wake(self) -> dict[str, Any]:
        """Let it go on; returns its report."""
        os.kill(self._process.pid, signal.SIGCONT)
        out, _ = self._process.communicate(timeout=120)
        report: dict[str, Any] = json.loads(out)
        return report


@contextmanager
def stopped(lab: Lab, command: str, point: Failpoint) -> Iterator[Stopped]:
    """A command that stands still at a boundary, and whose lock has expired."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.stopped", str(lab.directory), command, point],
        env=os.environ | {"OMNIGRAPH_CLUSTER_LOCK_SECONDS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: _state_of(process) == "T")
        wait_for(lambda: time.time() - lab.lock.stat().st_mtime > 1.2)
        yield Stopped(process, lab)
    finally:
        process.kill()
        process.communicate()


def _state_of(process: subprocess.Popen[str]) -> str:
    assert process.poll() is None, "the command ended before it reached the boundary"
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def files(lab: Lab) -> dict[str, bytes]:
    return {
        str(path.relative_to(lab.directory)): path.read_bytes()
        for path in sorted(lab.directory.rglob("*"))
        if path.is_file() and "lock~" not in path.name
    }


def test_a_stopped_apply_that_wakes_up_after_another_one_changes_nothing(lab):
    lab.import_()
    lab.settings = SHORT
    with stopped(lab, "apply", Failpoint.CLUSTER_BEFORE_LEDGER) as holder:
        report = lab.apply()
        assert (report.ok, report.is_converged) == (True, True)
        before = files(lab)
        woken = holder.wake()
    assert woken["ok"] is False
    assert {entry["code"] for entry in woken["diagnostics"]} & LOST
    assert woken["state_written"] is False
    assert files(lab) == before
    assert lab.apply().is_converged


LOST = {"state_lock_lost", "state_cas_mismatch"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        Failpoint.CLUSTER_BEFORE_CREATE,
        Failpoint.CLUSTER_AFTER_CREATE,
        Failpoint.CLUSTER_AFTER_PAYLOADS,
        Failpoint.CLUSTER_BEFORE_LEDGER,
    ],
)
def test_a_stopped_apply_changes_nothing_wherever_it_stopped(lab, point):
    lab.import_()
    lab.settings = SHORT
    with stopped(lab, "apply", point) as holder:
        assert lab.apply().is_converged
        before = files(lab)
        woken = holder.wake()
    assert {entry["code"] for entry in woken["diagnostics"]} & LOST, woken
    assert files(lab) == before


@pytest.mark.slow
@pytest.mark.parametrize("point", [Failpoint.CLUSTER_BEFORE_SCHEMA, Failpoint.CLUSTER_AFTER_SCHEMA])
def test_a_stopped_migration_changes_nothing(lab, point):
    lab.applied()
    lab.write("kb.pg", WIDER)
    lab.settings = SHORT
    with stopped(lab, "apply", point) as holder:
        assert lab.apply().is_converged
        before = files(lab)
        woken = holder.wake()
    assert {entry["code"] for entry in woken["diagnostics"]} & LOST, woken
    assert files(lab) == before


@pytest.mark.slow
@pytest.mark.parametrize("point", [Failpoint.CLUSTER_BEFORE_DELETE, Failpoint.CLUSTER_AFTER_DELETE])
def test_a_stopped_deletion_spares_a_graph_that_was_created_meanwhile(lab, point):
    lab.applied()
    config = (lab.directory / "cluster.yaml").read_text()
    lab.write("cluster.yaml", "version: 1\n")
    lab.approve("graph.kb")
    lab.settings = SHORT
    with stopped(lab, "apply", point) as holder:
        assert lab.apply().is_converged
        lab.write("cluster.yaml", config)
        assert lab.apply().is_converged
        before = files(lab)
        woken = holder.wake()
    assert {entry["code"] for entry in woken["diagnostics"]} & LOST, woken
    assert files(lab) == before


@pytest.mark.slow
@pytest.mark.parametrize("command", ["import", "refresh"])
def test_a_stopped_import_or_refresh_changes_nothing(lab, command):
    if command == "refresh":
        lab.applied()
    lab.settings = SHORT
    with stopped(lab, command, Failpoint.CLUSTER_BEFORE_LEDGER) as holder:
        # The next holder finds nothing to do, or fails: the ledger was advanced all the same.
        report = lab.apply()
        assert report.ok is (command == "refresh")
        before = files(lab)
        woken = holder.wake()
    assert {entry["code"] for entry in woken["diagnostics"]} & LOST, woken
    assert files(lab) == before
    if command == "import":
        assert lab.import_().ok
    assert lab.apply().is_converged


@pytest.mark.slow
def test_a_holder_that_is_killed_leaves_a_lock_that_nobody_has_to_remove(lab):
    lab.import_()
    lab.settings = SHORT
    with stopped(lab, "apply", Failpoint.CLUSTER_AFTER_CREATE):
        pass
    assert lab.lock.exists()
    assert lab.apply().is_converged
    assert not lab.lock.exists()


# -- without the lock ----------------------------------------------------------------------------


def test_no_write_of_another_process_is_lost_even_without_a_lock(lab):
    """Compare-and-set alone: each recorded refresh has a revision of its own."""
    lab.edit("cluster.yaml", "version: 1", "version: 1\nstate: {lock: false}")
    lab.write("cluster.yaml", (lab.directory / "cluster.yaml").read_text().split("graphs:")[0])
    assert lab.import_().ok
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.racing", str(lab.directory), "20"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    recorded = [int(process.communicate(timeout=120)[0]) for process in processes]
    assert all(recorded)
    assert lab.state["state_revision"] == 1 + sum(recorded)
