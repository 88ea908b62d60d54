"""Commands on a cluster whose storage is a prefix of a bucket, by conditional writes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.cluster.applied import read_applied
from omnigraph.cluster.apply import apply_cluster
from omnigraph.cluster.diagnostics import ClusterStop
from omnigraph.cluster.lock import ClusterLock
from omnigraph.cluster.state_file import read_ledger, write_ledger
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.errors import StorageUnavailable
from omnigraph.settings import Settings
from omnigraph.storage.objects.s3 import S3Objects
from omnigraph.storage.objects.store import ObjectStore
from tests.cluster.lab import CONFIG, DUE, DUE_DATES, WIDER, Lab, codes, dispositions
from tests.cluster.many import many_graphs, record_as_applied

pytestmark = pytest.mark.rotates(3)

LEDGER, LOCK = "__cluster/state.json", "__cluster/lock.json"
LOST = {"state_lock_lost", "state_cas_mismatch"}


class BucketLab(Lab):
    """A configuration in a directory, whose storage is in a bucket."""

    def __init__(self, directory: Path, root: Any, settings: Settings) -> None:
        super().__init__(directory, settings)
        self.uri = root.uri
        self.objects = ObjectStore(root)
        self.write("cluster.yaml", f"storage: {root.uri}/\n{CONFIG}")

    @property
    def state(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.objects.read(LEDGER))
        return document

    def names(self, folder: str) -> list[str]:
        return [name for name, _ in self.objects.files_below(folder)]

    def open_graph(self, graph: str = "kb", mode: Any = "r") -> Graph:
        return Graph.open(
            f"{self.uri}/graphs/{graph}.omni",
            mode,
            storage_options=self.settings.storage_options(),
        )


def settings_for(endpoint: str, s3, **more: str) -> Settings:
    return Settings.from_environ(
        {
            "AWS_ACCESS_KEY_ID": s3.options["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": s3.options["aws_secret_access_key"],
            "AWS_REGION": s3.options["aws_region"],
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "yes",
            **more,
        }
    )


@pytest.fixture
def lab(s3, s3_root, tmp_path: Path) -> BucketLab:
    return BucketLab(tmp_path / "lab", s3_root("lab"), settings_for(s3.endpoint, s3))


def interrupted_at(point: Failpoint, lab: BucketLab) -> None:
    """An apply whose process dies at a boundary; its lock was released by nobody."""

    def die(passed: Failpoint) -> None:
        if passed is point:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), hooked(die):
        lab.apply()


def test_a_cluster_lives_in_a_bucket(lab):
    lab.applied()
    again = lab.apply()
    assert (again.is_converged, again.is_written) == (True, False)
    assert not (lab.directory / "__cluster").exists()
    applied = read_applied(lab.uri, lab.settings)
    assert [(graph.graph_id, graph.uri) for graph in applied.graphs] == [
        ("kb", f"{lab.uri}/graphs/kb.omni")
    ]
    with lab.open_graph(mode="rw") as graph:
        graph.load([{"type": "Task", "data": {"name": "a"}}])
    lab.write("kb.pg", WIDER)
    lab.write("queries/due.gq", DUE_DATES)
    plan = lab.plan()
    (schema,) = [change for change in plan.changes if change.resource == "schema.kb"]
    assert schema.migration["rows"] == {"node:Task": 1}
    assert lab.apply().is_converged
    assert lab.refresh().ok
    assert lab.drift().findings == ()
    status = lab.status().to_json()["state_observations"]
    assert status["state_path"] == f"{lab.uri}/{LEDGER}"
    with lab.open_graph() as graph:
        assert (graph.schema.text(), graph.snapshot().count("Task")) == (WIDER, 1)
    lab.write("cluster.yaml", f"storage: {lab.uri}\nversion: 1\n")
    assert lab.approve("graph.kb").ok
    assert lab.apply().is_converged
    assert lab.names("graphs") == []
    assert lab.names("__cluster/recoveries") == []
    assert len(lab.names("__cluster/approvals")) == 1


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.CLUSTER_BEFORE_CREATE,
        Failpoint.INIT_AFTER_TABLES,
        Failpoint.CLUSTER_AFTER_CREATE,
        Failpoint.CLUSTER_AFTER_PAYLOADS,
        Failpoint.CLUSTER_BEFORE_LEDGER,
    ],
)
def test_an_interrupted_creation_converges(lab, point):
    lab.import_()
    interrupted_at(point, lab)
    report = lab.apply()
    assert (report.ok, report.is_converged) == (True, True), report.diagnostics
    assert lab.names("__cluster/recoveries") == []


@pytest.mark.parametrize("point", [Failpoint.CLUSTER_BEFORE_SCHEMA, Failpoint.CLUSTER_AFTER_SCHEMA])
def test_an_interrupted_migration_converges(lab, point):
    lab.applied()
    lab.write("kb.pg", WIDER)
    interrupted_at(point, lab)
    assert lab.apply().is_converged
    with lab.open_graph() as graph:
        assert graph.schema.text() == WIDER


@pytest.mark.parametrize("point", [Failpoint.CLUSTER_BEFORE_DELETE, Failpoint.CLUSTER_AFTER_DELETE])
def test_an_interrupted_deletion_converges(lab, point):
    lab.applied()
    lab.write("cluster.yaml", f"storage: {lab.uri}\nversion: 1\n")
    approval = lab.approve("graph.kb")
    interrupted_at(point, lab)
    assert lab.apply().is_converged
    assert list(lab.state["approval_records"]) == [approval.approval_id]
    assert lab.names("graphs") == []


def test_a_ledger_that_changes_during_an_apply_is_not_overwritten(lab):
    lab.import_()
    changed = lab.objects.read(LEDGER).replace('"state_revision": 1', '"state_revision": 7')

    def change(passed: Failpoint) -> None:
        if passed is Failpoint.CLUSTER_BEFORE_LEDGER:
            lab.objects.write(LEDGER, changed)

    with hooked(change):
        report = lab.apply()
    assert codes(report, "error") == ["state_cas_mismatch"]
    assert lab.objects.read(LEDGER) == changed
    assert lab.apply().is_converged


def test_of_many_applies_at_once_one_writes_and_the_others_name_the_holder(lab):
    lab.import_()
    reports = []
    threads = [threading.Thread(target=lambda: reports.append(lab.apply())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(report.is_written for report in reports) == 1
    assert {code for report in reports for code in codes(report)} <= {"state_lock_held"}
    assert lab.objects.head(LOCK) is None


def test_a_tampered_text_is_repaired(lab):
    lab.applied()
    (blob,) = lab.names("__cluster/resources/query")
    lab.objects.write(blob, "tampered")
    assert codes(lab.status()) == ["catalog_payload_mismatch"]
    assert lab.refresh().ok
    assert dispositions(lab.apply())["query.kb.due"] == "applied"
    assert lab.objects.read(blob) == DUE
    assert read_applied(lab.uri, lab.settings).graphs


def test_a_bucket_that_cannot_be_listed_changes_nothing(lab, monkeypatch):
    lab.applied()
    before = lab.objects.read(LEDGER)
    genuine = S3Objects.walk

    def refuse(self, path):
        if path.startswith("graphs"):
            raise StorageUnavailable("the store does not answer")
        return genuine(self, path)

    monkeypatch.setattr(S3Objects, "walk", refuse)
    assert codes(lab.refresh(), "error") == ["graph_probe_error"]
    assert lab.objects.read(LEDGER) == before
    assert lab.objects.head(LOCK) is None


def test_a_stopped_holder_can_write_nothing_after_its_lock_was_taken_over(lab, s3):
    lab.applied()
    short = settings_for(s3.endpoint, s3, OMNIGRAPH_CLUSTER_LOCK_SECONDS="1")
    storage = ClusterStorage(lab.uri, short)
    # Without the thread that renews it: as if the process was stopped.
    stopped = ClusterLock(storage, "apply")
    stopped.acquire()
    base = read_ledger(storage)
    other = ClusterLock(storage, "refresh")
    wait_for(lambda: _acquires(other))
    # What it has begun before it was stopped arrives now.
    with pytest.raises(ClusterStop) as refusal:
        write_ledger(storage, base, base.state)
    assert refusal.value.diagnostic.code == "state_cas_mismatch"
    with pytest.raises(ClusterStop) as lost:
        stopped.check()
    assert lost.value.diagnostic.code == "state_lock_lost"
    stopped.release()
    assert json.loads(lab.objects.read(LOCK))["lock_id"] == other.lock_id
    other.release()
    assert lab.objects.head(LOCK) is None
    assert lab.apply().is_converged


def _acquires(lock: ClusterLock) -> bool:
    try:
        lock.acquire()
    except ClusterStop as stop:
        return stop.diagnostic.code != "state_lock_held"
    return True


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.1)


def test_an_apply_of_one_changed_query_makes_as_many_requests_with_200_graphs(s3, s3_root, proxy):
    settings = settings_for(proxy.endpoint, s3)
    counts = []
    for count in (2, 200):
        uri = s3_root(f"many-{count}").uri
        record_as_applied(many_graphs(count), uri, settings)
        bundle = many_graphs(count, DUE + "\n")
        proxy.reset()
        report = apply_cluster(bundle, settings, root=uri)
        assert report.is_converged, report.diagnostics
        counts.append(len(proxy.log))
    assert counts == [REQUESTS, REQUESTS]


REQUESTS = 11
