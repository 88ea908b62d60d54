"""What fails after the publish changes no answer: it is logged, and whoever comes next copes."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.manifest import branch_reference
from omnigraph.commit.names import (
    BRANCHES_LEASE,
    SCHEMA_LEASE,
    SCHEMA_LOCK,
    publish_lease,
    table_lease,
)
from omnigraph.errors import BranchInUse, InputError, OutcomePending, StorageUnavailable
from omnigraph.storage.leases.local import LEASE_SUFFIX, lease_path
from tests.commit.world import SCHEMA, at, names, people

PERSON = table_lease("node:Person", None)
WIDER = SCHEMA.replace("age: I32?", "age: I32?  nick: String?")


def in_the_way(path, name):
    """Something at the path of a held lease that cannot be unlinked, which the kernel refuses."""
    file = Path(path, lease_path(name))

    def put():
        file.rename(file.with_suffix(".moved"))
        file.mkdir()

    return file, put


def tidy(file):
    file.rmdir()
    file.with_suffix(".moved").unlink()


# -- leases -----------------------------------------------------------------------------------


def test_a_lease_that_cannot_be_released_leaves_the_receipt_alone(graph, path, caplog):
    file, put = in_the_way(path, PERSON)
    with at(Failpoint.WRITE_AFTER_PUBLISH, put):
        receipt = graph.append(people(Ada=36))
    assert graph.commits()[0].commit_id == receipt.commit_id
    assert str(file) in caplog.text
    tidy(file)
    graph.append(people(Bob=1))
    assert names(graph) == ["Ada", "Bob"]


def test_the_publish_lease_cannot_change_the_receipt_either(graph, path):
    file, put = in_the_way(path, publish_lease(None))
    with at(Failpoint.PUBLISH_AFTER, put):
        receipt = graph.append(people(Ada=36))
    assert graph.commits()[0].commit_id == receipt.commit_id
    assert names(graph) == ["Ada"]
    tidy(file)


def test_what_is_still_to_be_settled_stays_so(graph, path):
    """The outcome is unknown: no error of the lease may claim anything else."""
    file, put = in_the_way(path, PERSON)

    def lose():
        put()
        raise OutcomePending("the store did not say", details={"commit_id": "01X"})

    with at(Failpoint.WRITE_AFTER_TABLES, lose), pytest.raises(OutcomePending):
        graph.append(people(Ada=36))
    tidy(file)
    graph.refresh()
    assert names(graph) == ["Ada"]


def test_an_error_of_the_write_is_not_replaced_by_one_of_its_lease(graph, path):
    file, put = in_the_way(path, PERSON)

    def refuse():
        put()
        raise InputError("no")

    with at(Failpoint.WRITE_AFTER_SIDECAR, refuse), pytest.raises(InputError, match="no"):
        graph.append(people(Ada=36))
    tidy(file)
    graph.append(people(Ada=36))
    assert names(graph) == ["Ada"]


def test_a_branch_is_made_and_deleted_although_the_lease_stays(graph, path):
    file, put = in_the_way(path, BRANCHES_LEASE)
    with at(Failpoint.BRANCH_AFTER_CREATE, put):
        graph.branches.create("review")
    tidy(file)
    assert graph.branches.list() == ["main", "review"]
    file, put = in_the_way(path, BRANCHES_LEASE)
    with at(Failpoint.BRANCH_BEFORE_TABLE_CLEANUP, put):
        graph.branches.delete("review")
    tidy(file)
    assert graph.branches.list() == ["main"]


def test_a_tag_is_made_although_the_lease_stays(graph, path):
    commit_id = graph.append(people(Ada=36)).commit_id
    file, put = in_the_way(path, BRANCHES_LEASE)
    with at(Failpoint.TAG_BEFORE_WRITE, put):
        assert graph.tags.create("v1", commit_id).commit_id == commit_id
    tidy(file)
    assert [tag.name for tag in graph.tags.list()] == ["v1"]


CHILD = """\
import sys
from omnigraph import Graph
import pyarrow as pa

with Graph.open(sys.argv[1], durability="os") as graph:
    print("ready", flush=True)
    sys.stdin.readline()
    rows = {"Person": pa.table({"name": ["Ada"], "age": pa.array([36], pa.int32())})}
    print(graph.append(rows).commit_id, flush=True)
    sys.stdin.readline()
"""


def test_lease_files_that_stay_are_taken_by_the_next(graph, path, tmp_path):
    """Every unlink of a lease fails with EIO, and the process goes on to live."""
    if shutil.which("strace") is None:
        pytest.fail("strace is missing; tools/ensure-strace installs it")
    leases = [path / lease_path(name) for name in (PERSON, publish_lease(None))]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    only = [argument for lease in leases for argument in ("-P", str(lease))]
    calls = "?unlink,?unlinkat"
    tracer = subprocess.Popen(
        [
            *("strace", "-f", "-o", str(tmp_path / "trace"), "-p", str(child.pid), *only),
            *("-e", "signal=none", "-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        child.stdin.write("\n")
        child.stdin.flush()
        commit_id = child.stdout.readline().strip()
        assert (tmp_path / "trace").read_text().count("INJECTED") >= len(leases)
        assert all(lease.exists() for lease in leases)
        assert graph.commits()[0].commit_id == commit_id
        graph.append(people(Bob=1))
        assert names(graph) == ["Ada", "Bob"]
        assert not any(lease.exists() for lease in leases)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.wait(timeout=60) == 0
    finally:
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        tracer.terminate()
        tracer.communicate()


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_lease_files_of_an_apply_that_stay_keep_nobody_out(graph, other, path, monkeypatch, code):
    real = os.unlink

    def fail(file, *args, **options):
        if str(file).endswith(LEASE_SUFFIX):
            raise OSError(code, "broken")
        real(file, *args, **options)

    with monkeypatch.context() as broken:
        broken.setattr(os, "unlink", fail)
        assert graph.schema.apply(WIDER).applied
    assert (path / lease_path(SCHEMA_LEASE)).exists()
    assert (path / lease_path(PERSON)).exists()
    assert not other._handle.store.leases.is_disowned(SCHEMA_LEASE)
    other.append(people(Ada=36))
    assert other.schema.apply(SCHEMA, allow_data_loss=True).applied
    assert names(graph) == ["Ada"]


# -- what else comes after the publish ---------------------------------------------------------


def test_a_schema_lock_that_cannot_be_removed_leaves_the_apply_done(graph, path, caplog):
    """The mark beside the lock is the last of it that goes."""
    mark = path / "__recovery" / "schema-apply.lock"

    def put():
        mark.unlink()
        mark.mkdir()
        (mark / "x").touch()

    with at(Failpoint.SCHEMA_BEFORE_CLEANUP, put):
        applied = graph.schema.apply(WIDER)
    assert (applied.applied, applied.commit_id) == (True, graph.commits()[0].commit_id)
    assert "lock" in caplog.text
    (mark / "x").unlink()
    mark.rmdir()
    graph.append(people(Ada=36))
    assert names(graph) == ["Ada"]


def test_a_schema_lock_that_stays_keeps_nobody_out(graph, path, monkeypatch, caplog):
    def fails(*args, **kwargs):
        raise StorageUnavailable("the disk is away")

    with monkeypatch.context() as broken:
        store = graph._handle.store
        with at(
            Failpoint.SCHEMA_BEFORE_CLEANUP,
            lambda: broken.setattr(store.inline, "delete_branch", fails),
        ):
            assert graph.schema.apply(WIDER).applied
    assert (path / branch_reference(SCHEMA_LOCK)).exists()
    assert "the lock of a schema apply that has ended stays" in caplog.text
    graph.append(people(Ada=36))
    assert not (path / branch_reference(SCHEMA_LOCK)).exists()


def test_rejected_records_that_cannot_be_written_do_not_unload_the_others(graph, caplog):
    records = [{"type": "Person", "data": {"name": "Ada"}}, {"type": "Person", "data": {}}]
    receipt = graph.load(records, rejects="/dev/full")
    assert (receipt.rejected, graph.commits()[0].commit_id) == (1, receipt.commit_id)
    assert "/dev/full" in caplog.text
    with pytest.raises(InputError, match="/dev/full"):
        graph.load(records, rejects="/dev/full", dry_run=True)


def test_a_merge_is_reported_although_its_source_stays(graph, caplog):
    graph.branches.create("work")
    commit_id = graph.append(people(Ada=36), branch="work").commit_id
    graph.tags.create("v1", commit_id)
    report = graph.merge("work", delete_branch=True)
    assert (report.commit_id, report.branch_deleted) == (graph.commits()[0].commit_id, False)
    assert "v1" in caplog.text
    with pytest.raises(BranchInUse):
        graph.branches.delete("work")
    graph.tags.delete("v1")
    assert graph.merge("work", delete_branch=True).branch_deleted
    assert graph.branches.list() == ["main"]


def test_optimize_is_done_although_the_manifest_was_not_compacted(graph, monkeypatch, caplog):
    for number in range(3):
        graph.append(people(**{f"p{number}": number}))

    def fails(*args):
        raise StorageUnavailable("the disk is away")

    monkeypatch.setattr(graph._handle.store.publisher, "compact", fails)
    report = graph.maintenance.optimize()
    assert report.commit_id == graph.commits()[0].commit_id
    assert "the manifest was not compacted" in caplog.text
    with pytest.raises(StorageUnavailable):
        graph.maintenance.optimize()


def test_checksums_that_cannot_be_recorded_leave_the_receipt_alone(graph, path):
    def put():
        checksums = path / "__checksums"
        shutil.rmtree(checksums, ignore_errors=True)
        checksums.touch()

    with at(Failpoint.PUBLISH_AFTER, put):
        receipt = graph.append(people(Ada=36))
    assert graph.commits()[0].commit_id == receipt.commit_id
    (path / "__checksums").unlink()
    with Graph.open(path) as again:
        assert names(again) == ["Ada"]
