"""A server whose graphs are in a bucket: its jobs, its change feed and its deployments."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.cluster.deployments import Deployments
from omnigraph.cluster.diagnostics import DiagnosticLog
from omnigraph.cluster.sent_bundle import files_to_send, received_bundle
from omnigraph.cluster.storage import ClusterStorage
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.server.config import LogOptions
from omnigraph.server.deploying import Deployer
from omnigraph.server.jobs.owners import JobOwner, this_process
from omnigraph.server.jobs.records import JobRecords, JobStatus
from omnigraph.server.request_log import RequestLog
from omnigraph.storage.objects.store import ObjectStore
from tests.s3.test_cluster_apply_s3 import BucketLab, settings_for
from tests.server.job_client import ASYNC, ended, people
from tests.server.processes import ServerUnderTest, until
from tests.server.serving import ADD, SCHEMA, Client, Server, serving
from tests.server.test_feed import Stream

pytestmark = [pytest.mark.rotates(3), pytest.mark.xdist_group("served bucket")]


@contextmanager
def opened(root: Any) -> Iterator[Graph]:
    with Graph.open(root.uri, storage_options=root.options, local_files=False) as graph:
        yield graph


@pytest.fixture
def root(s3_root: Callable[..., Any]) -> Any:
    address = s3_root("g.omni")
    Graph.init(address.uri, SCHEMA, storage_options=address.options).close()
    return address


@pytest.fixture
def graph(root: Any) -> Iterator[Graph]:
    with opened(root) as graph:
        yield graph


@pytest.fixture
def server(graph: Graph) -> Iterator[Server]:
    with serving({"g": graph}, tokens={"t-ana": "ana"}) as server:
        yield server


@pytest.fixture
def ana(server: Server) -> Client:
    return server.client("t-ana", "g")


# -- jobs ------------------------------------------------------------------------------------------


def test_jobs_are_recorded_in_the_bucket_and_told_alive_from_dead(
    root: Any, graph: Graph, ana: Client
) -> None:
    job = ended(ana, ana.post("/load/ndjson", raw=people("a", "b"), headers=ASYNC).json["job_id"])
    assert (job["status"], job["result"]["total_entities"]) == ("succeeded", 2)
    assert job["commits"] == [graph.commits()[0].commit_id]
    records = JobRecords(ObjectStore(root))
    gone = JobOwner(this_process().machine, 4_000_000, "1")
    kept = records.read(job["job_id"])
    records.write(kept.changed(status=JobStatus.RUNNING, owner=gone), is_durable=True)
    records.write(kept.changed(id="01NEVER", status=JobStatus.RUNNING, owner=gone), is_durable=True)
    # A server that comes later, with a handle of its own.
    with opened(root) as same, serving({"g": same}, tokens={"t-ana": "ana"}) as other:
        client = other.client("t-ana", "g")
        died = client.get(f"/jobs/{job['job_id']}").ok()
        assert (died["status"], died["landed"], died["commits"]) == ("failed", True, job["commits"])
        never = client.get("/jobs/01NEVER").ok()
        assert (never["landed"], never["error"]["reason"]) == (False, "process_died")
        assert {item["job_id"] for item in client.get("/jobs").ok()["jobs"]} == {
            job["job_id"],
            "01NEVER",
        }
        assert client.delete("/jobs/01NEVER").status == 200
        assert client.get("/jobs/01NEVER").status == 404


@pytest.mark.slow
def test_another_server_of_the_bucket_stops_a_job(root: Any, graph: Graph, ana: Client) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def stop(point: Failpoint) -> None:
        is_job = threading.current_thread().name.startswith("omnigraph-job")
        if point is Failpoint.WRITE_AFTER_LEASES and is_job and not reached.is_set():
            reached.set()
            assert go_on.wait(120)

    with hooked(stop):
        job_id = ana.post("/load/ndjson", raw=people("late"), headers=ASYNC).json["job_id"]
        assert reached.wait(120)
        with opened(root) as same, serving({"g": same}) as other:
            answer = other.client(None, "g").delete(f"/jobs/{job_id}")
            assert (answer.status, answer.json["cancel_requested"]) == (202, True)
        until(lambda: ana.get(f"/jobs/{job_id}").ok()["cancel_requested"])
        go_on.set()
        job = ended(ana, job_id)
    # It was past its last safe point.
    assert (job["status"], job["cancel_requested"], len(job["commits"])) == ("succeeded", True, 1)


# -- the change feed -------------------------------------------------------------------------------


def test_a_long_poll_and_a_stream_see_the_commit_of_another_process(
    root: Any, ana: Client, server: Server
) -> None:
    page = ana.get("/changes?start=now").ok()
    pages: list[Any] = []

    def poll() -> None:
        pages.append(ana.get(f"/changes?cursor={page['cursor']}&wait=25s").ok())

    waiting = threading.Thread(target=poll)
    with Stream(server, f"/changes?cursor={page['cursor']}") as stream:
        waiting.start()
        until(lambda: server.process.commit_news.waiting >= 2, "two requests that wait")
        with opened(root) as other:
            receipt = other.mutate(ADD, params={"name": "new"})
        block = stream.block()
        waiting.join(60)
    assert block["cause"]["graph_commit_id"] == receipt.commit_id
    assert [b["cause"]["graph_commit_id"] for b in pages[0]["blocks"]] == [receipt.commit_id]
    assert pages[0]["blocks"][0]["cursor"] == block["cursor"]


# -- deployments -----------------------------------------------------------------------------------


def test_deployments_are_recorded_in_the_bucket(s3: Any, s3_root: Any, tmp_path: Path) -> None:
    lab = BucketLab(tmp_path / "lab", s3_root("lab"), settings_for(s3.endpoint, s3))
    assert lab.import_().ok

    def state() -> Any:
        return SimpleNamespace(revision=lab.state["state_revision"], kept={})

    reloads: list[None] = []
    descriptor = os.open(os.devnull, os.O_WRONLY)
    log = RequestLog(LogOptions(level="error", descriptor=descriptor))
    deployer = Deployer(lab.uri, lab.settings, log, lambda: reloads.append(None), state)
    files = files_to_send(lab.bundle, str(lab.directory), DiagnosticLog())
    deployment = deployer.apply(received_bundle("sent", files), "ana", None)
    assert (deployment.outcome, deployment.in_force, len(reloads)) == ("converged", True, 1)
    # As another server of the bucket reads it.
    records = Deployments(ClusterStorage(lab.uri, lab.settings))
    assert records.read(deployment.id) == deployment
    assert [record.id for record in records.newest(10)] == [deployment.id]
    records.write(
        type(deployment)(
            **{
                name: getattr(deployment, name)
                for name in deployment.__struct_fields__
                if name not in ("id", "outcome", "pid", "process_start")
            },
            id="01ARZ3NDEKTSV4RRFFQ69G5FAV",
            outcome="running",
            pid=4_000_000,
        )
    )
    lost = records.read("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert lost is not None
    assert lost.outcome == "lost"
    os.close(descriptor)


# -- processes -------------------------------------------------------------------------------------


def environ_of(s3: Any) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": s3.options["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": s3.options["aws_secret_access_key"],
        "AWS_REGION": s3.options["aws_region"],
        "AWS_ENDPOINT_URL_S3": s3.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_FORCE_PATH_STYLE": "yes",
    }


@pytest.mark.slow
def test_a_killed_writer_leaves_an_honest_record_in_the_bucket(
    s3: Any, root: Any, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "omnigraph.cli", "serve", root.uri, "--unauthenticated"]
    command += ["--workers", "2", "--bind", "127.0.0.1:0"]
    body = people(*(f"p{number:07}" for number in range(400_000)))
    with ServerUnderTest(command, tmp_path / "log", environ_of(s3)).await_listening() as server:
        job = server.ask("POST", "/graphs/g/load/ndjson", body, ASYNC).json
        path = f"/graphs/g/jobs/{job['job_id']}"
        until(lambda: server.ask("GET", path).json.get("progress"), "progress")
        text = ObjectStore(root).read(f"__jobs/{job['job_id']}.job")
        os.kill(json.loads(text)["owner"]["pid"], signal.SIGKILL)
        died = until(lambda: _failed(server, path), "the end of the job")
        assert died["error"]["reason"] == "process_died"
        assert died["landed"] in (False, None)
    with opened(root) as graph:
        assert graph.snapshot().count("Person") == 0


def _failed(server: ServerUnderTest, path: str) -> Any:
    answer = server.ask("GET", path)
    return answer.json if answer.status == 200 and answer.json["status"] == "failed" else None
