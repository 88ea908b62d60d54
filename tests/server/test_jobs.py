"""Jobs over HTTP: states, results, cancelling, dead processes; and maintenance by them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import omnigraph
from omnigraph import Graph, Policy, connect, connect_async
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.errors import Cancelled, InputError, NotFound, NotServed, PolicyDenied
from omnigraph.remote import loads
from omnigraph.server.jobs import records
from omnigraph.server.jobs.executor import MOST_QUEUED, MOST_RUNNING
from omnigraph.server.jobs.owners import JobOwner, this_process
from omnigraph.server.jobs.records import JobRecord, JobRecords, JobStatus
from omnigraph.storage.objects.local import LocalObjects
from tests.server.job_client import ASYNC, NDJSON, ended, people
from tests.server.processes import REPOSITORY, ServerUnderTest, until
from tests.server.serving import (
    PEOPLE,
    SCHEMA,
    Client,
    ListedAccess,
    Server,
    ndjson,
    open_served,
    serving,
)

pytestmark = pytest.mark.rotates(3)

STARTS = [
    ("/maintenance/optimize", {"branch": "main"}),
    ("/maintenance/cleanup", {"keep_versions": 1, "dry_run": True}),
    ("/maintenance/repair", {}),
    ("/maintenance/verify", {"checksums": False}),
    ("/indexes/ensure", {}),
    ("/indexes/rebuild", {"type": "Person", "column": "id"}),
]


@pytest.fixture(scope="module")
def access() -> ListedAccess:
    return ListedAccess()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with open_served(tmp_path_factory.mktemp("jobs") / "g.omni") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph, access: ListedAccess) -> Iterator[Server]:
    tokens = {"tok-ana": "ana", "tok-bo": "bo"}
    with serving({"g": graph}, tokens=tokens, access=access) as server:
        yield server


@pytest.fixture
def ana(server: Server, access: ListedAccess) -> Iterator[Client]:
    access.denied = set()
    yield server.client("tok-ana", "g")
    access.denied = set()


def started(client: Client, path: str, body: Any) -> dict[str, Any]:
    answer = client.post(path, body)
    assert answer.status == 202, answer.body
    job: dict[str, Any] = answer.json
    assert answer.headers["location"] == f"/graphs/g/jobs/{job['job_id']}"
    return job


@pytest.fixture
def stopped_load(ana: Client) -> Iterator[tuple[str, threading.Event]]:
    """A load that has staged its rows and stops before its commit, until the event is set."""
    reached, go_on = threading.Event(), threading.Event()

    def stop(point: Failpoint) -> None:
        is_job = threading.current_thread().name.startswith("omnigraph-job")
        if point is Failpoint.WRITE_AFTER_LEASES and is_job and not reached.is_set():
            reached.set()
            assert go_on.wait(60)

    with hooked(stop):
        answer = ana.post("/load/ndjson", raw=people("stopped"), headers=ASYNC)
        assert answer.status == 202, answer.body
        assert reached.wait(60)
        yield answer.json["job_id"], go_on
        go_on.set()
        if ana.get(f"/jobs/{answer.json['job_id']}").status == 200:
            ended(ana, answer.json["job_id"])


# -- what jobs do -------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "body"), STARTS)
def test_a_job_ends_with_the_report_of_the_library(ana: Client, path: str, body: Any) -> None:
    first = started(ana, path, body)
    assert first["status"] in ("queued", "running")
    job = ended(ana, first["job_id"])
    assert job["status"] == "succeeded", job
    assert job["actor_id"] == "ana"
    assert job["created_at"] <= job["started_at"] <= job["ended_at"]
    assert "error" not in job
    assert "landed" not in job
    commits = job["result"].get("commit_id")
    assert job["commits"] == ([] if commits is None else [commits])
    listed = ana.get("/jobs").ok()["jobs"]
    assert listed[0]["job_id"] == first["job_id"]
    assert "result" not in listed[0]


def test_a_load_that_prefers_it_is_a_job(ana: Client, graph: Graph) -> None:
    answer = ana.post("/load/ndjson?indexes=true", raw=people("j1", "j2"), headers=ASYNC)
    assert answer.status == 202
    assert answer.headers["preference-applied"] == "respond-async"
    job = ended(ana, answer.json["job_id"])
    assert job["kind"] == "load"
    assert job["result"]["total_entities"] == 2
    commit = job["result"]["commit"]["graph_commit_id"]
    assert commit in job["commits"]
    assert graph.commit(commit).actor == "ana"
    waited = ana.post("/load/ndjson", raw=people("j1", "j2"), headers=NDJSON).ok()
    assert waited.keys() | {"indexes_built"} == job["result"].keys()


def test_a_job_may_be_larger_than_a_request(ana: Client) -> None:
    names = (f"c{number:05}{'x' * 1000}" for number in range(34_000))
    lines = ndjson([{"type": "City", "data": {"name": name}} for name in names]).encode()
    assert len(lines) > 32 << 20
    ana.post("/load/ndjson", raw=lines, headers=NDJSON).fails(413)
    answer = ana.post("/load/ndjson", raw=lines, headers=ASYNC)
    job = ended(ana, answer.json["job_id"])
    assert job["result"]["total_entities"] == 34_000
    assert job["progress"]["done"] > 0
    delete = 'query q() { delete City where name > "c" }'
    ana.post("/mutate", {"query": delete}).ok()


def test_an_invalid_load_fails_with_the_error_of_a_request(ana: Client) -> None:
    line = b'{"type": "Person", "data": {"age": 1}}'
    refused = ana.post("/load/ndjson", raw=line, headers=NDJSON)
    job = ended(ana, ana.post("/load/ndjson", raw=line, headers=ASYNC).json["job_id"])
    assert job["status"] == "failed"
    error = job["error"]
    assert error.pop("status") == refused.status == 400
    assert {**error, "request_id": ""} == {**refused.json, "request_id": ""}
    assert job["commits"] == []


def test_what_can_be_refused_at_once_is(ana: Client, access: ListedAccess) -> None:
    ana.post("/maintenance/optimize", {"branch": "no"}).fails(404, "branch 'no'")
    ana.post("/maintenance/verify", {"branch": "no"}).fails(404)
    ana.post("/maintenance/cleanup", {}).fails(400)
    ana.post("/maintenance/cleanup", {"keep_versions": -1}).fails(422)
    ana.post("/maintenance/repair", {"force": True}).fails(400, "confirm")
    ana.post("/load/ndjson", raw=b"", headers={**ASYNC, "Content-Encoding": "gzip"}).fails(415)
    ana.get("/jobs/01NO").fails(404, "job '01NO' not found")
    ana.get("/jobs/..%2Fschema").fails(404)
    before = len(ana.get("/jobs").ok()["jobs"])
    access.denied = {"admin"}
    for path, body in STARTS:
        ana.post(path, body).fails(403)
    for path in ("/indexes", "/embeddings", "/maintenance/doctor"):
        ana.get(path).fails(403)
    access.denied = {"change"}
    ana.post("/embeddings/fill", {}).fails(403)
    access.denied = set()
    assert len(ana.get("/jobs").ok()["jobs"]) == before


def test_the_body_of_a_denied_load_is_kept_in_no_file(
    ana: Client, server: Server, access: ListedAccess
) -> None:
    """The response comes before the body, of which only the length was sent."""
    access.denied = {"change"}
    head = [
        "POST /graphs/g/load/ndjson HTTP/1.1",
        "Host: x",
        "Authorization: Bearer tok-ana",
        "Content-Type: application/x-ndjson",
        "Prefer: respond-async",
        "Content-Length: 1000000000",
        "",
        "",
    ]
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall("\r\n".join(head).encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 403")


def test_reports_that_are_answered_at_once(ana: Client, graph: Graph) -> None:
    indexes = ana.get("/indexes?branch=main").ok()["report"]
    assert msgspec.convert(indexes, omnigraph.IndexReport) == graph.indexes.status()
    assert ana.get("/embeddings").ok()["report"] == []
    doctor = ana.get("/maintenance/doctor").ok()["report"]
    assert doctor["uri"] == "/graphs/g"
    assert graph.uri not in json.dumps(doctor)


def test_jobs_are_counted_by_kind_and_outcome(ana: Client, server: Server, graph: Graph) -> None:
    def counted(name: str, **labels: str) -> float:
        wanted = "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
        lines = server.process.metrics.render().decode().splitlines()
        samples = [line for line in lines if line.startswith(f"{name}{wanted} ")]
        return float(samples[0].split()[-1]) if samples else 0.0

    names = ("omnigraph_jobs_started_total", "omnigraph_job_seconds_count")
    before = [counted(name, kind="load") for name in names]
    failed = counted("omnigraph_jobs_ended_total", kind="load", outcome="failed")
    line = b'{"type": "Person", "data": {"age": 1}}'
    ended(ana, ana.post("/load/ndjson", raw=line, headers=ASYNC).json["job_id"])
    until(lambda: counted("omnigraph_jobs_running", kind="load") == 0)
    assert [counted(name, kind="load") for name in names] == [value + 1 for value in before]
    after = counted("omnigraph_jobs_ended_total", kind="load", outcome="failed")
    assert after == failed + 1
    gone = JobOwner(this_process().machine, 4_000_000, "1")
    record("01DEADONE", graph, owner=gone, status=JobStatus.RUNNING)
    died = counted("omnigraph_jobs_ended_total", kind="optimize", outcome="died")
    ended(ana, started(ana, "/indexes/ensure", {})["job_id"])
    assert counted("omnigraph_jobs_ended_total", kind="optimize", outcome="died") == died + 1
    JobRecords(graph._handle.store.objects).delete("01DEADONE")


# -- whose jobs -----------------------------------------------------------------------------------


def test_jobs_of_others_need_admin(ana: Client, server: Server, access: ListedAccess) -> None:
    bo = server.client("tok-bo", "g")
    job_id = ended(ana, started(ana, "/indexes/ensure", {})["job_id"])["job_id"]
    assert bo.get(f"/jobs/{job_id}").ok()["actor_id"] == "ana"
    access.denied = {("bo", "admin")}
    hidden, absent = bo.get(f"/jobs/{job_id}"), bo.get("/jobs/01J00000000000000000000000")
    assert hidden.status == absent.status == 404
    assert hidden.json["error"].replace(job_id, "?") == absent.json["error"].replace(
        "01J00000000000000000000000", "?"
    )
    assert bo.delete(f"/jobs/{job_id}").status == 404
    assert all(job["actor_id"] == "bo" for job in bo.get("/jobs").ok()["jobs"])
    assert ana.get(f"/jobs/{job_id}").status == 200
    access.denied = {("ana", "admin")}
    assert ana.get(f"/jobs/{job_id}").status == 200
    assert ana.delete(f"/jobs/{job_id}").status == 200
    assert ana.get(f"/jobs/{job_id}").status == 404


def test_a_restricted_actor_starts_no_maintenance(tmp_path: Path) -> None:
    bundle = """
version: 2
groups: {all: [ana]}
rules: [{id: r, allow: {actors: {group: all}, actions: [read, change, admin]}}]
rows: [{id: a, actors: {group: all}, types: [Person], where: "age > 36"}]
"""
    policy = Policy.parse(bundle)
    open_served(tmp_path / "g.omni").close()
    with (
        Graph.open(tmp_path / "g.omni", local_files=False, policy=policy) as graph,
        serving({"g": graph}, tokens={"tok-ana": "ana"}) as server,
    ):
        ana = server.client("tok-ana", "g")
        for path, body in [*STARTS[:3], *STARTS[4:]]:
            ana.post(path, body).fails(403, "policy denied")
        for path in ("/indexes", "/maintenance/doctor"):
            ana.get(path).fails(403)
        verified = started(ana, "/maintenance/verify", {})
        job = ended(ana, verified["job_id"])
        assert (job["status"], job["error"]["reason"]) == ("failed", "policy_denied")


# -- cancelling -----------------------------------------------------------------------------------


def test_a_job_that_waits_is_cancelled_before_it_starts(
    ana: Client, stopped_load: tuple[str, threading.Event], graph: Graph
) -> None:
    blocked, go_on = stopped_load
    running = [blocked]
    while len(running) < MOST_RUNNING:
        # Another job that cannot end: the leases of the first are in its way.
        running.append(ana.post("/load/ndjson", raw=people("second"), headers=ASYNC).json["job_id"])
    until(lambda: ana.get(f"/jobs/{running[-1]}").ok()["status"] == "running")
    waiting = started(ana, "/maintenance/verify", {})
    assert ana.get(f"/jobs/{waiting['job_id']}").ok()["status"] == "queued"
    answer = ana.delete(f"/jobs/{waiting['job_id']}")
    assert (answer.status, answer.json["cancel_requested"]) == (202, True)
    job = ended(ana, waiting["job_id"])
    assert job["status"] == "cancelled"
    assert job["started_at"] is None
    assert job["error"]["reason"] == "cancelled"
    go_on.set()
    for job_id in running:
        assert ended(ana, job_id)["status"] == "succeeded"


def test_a_cancel_that_comes_too_late_says_so(
    ana: Client, stopped_load: tuple[str, threading.Event]
) -> None:
    """Past the last safe point the commit is made, and the record says both."""
    job_id, go_on = stopped_load
    assert ana.delete(f"/jobs/{job_id}").status == 202
    assert ana.get(f"/jobs/{job_id}").ok()["status"] == "running"
    go_on.set()
    job = ended(ana, job_id)
    assert (job["status"], job["cancel_requested"]) == ("succeeded", True)
    assert len(job["commits"]) == 1


def test_a_cancelled_load_leaves_nothing(
    ana: Client, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on = threading.Event(), threading.Event()
    real = Graph.load

    def slow(self: Graph, *args: Any, on_progress: Any = None, **options: Any) -> Any:
        def stop(progress: Any) -> None:
            reached.set()
            assert go_on.wait(60)
            on_progress(progress)

        return real(self, *args, on_progress=stop if on_progress else None, **options)

    monkeypatch.setattr(Graph, "load", slow)
    head = graph.commits()[0].commit_id
    answer = ana.post("/load/ndjson", raw=people("never"), headers=ASYNC)
    assert reached.wait(60)
    assert ana.delete(f"/jobs/{answer.json['job_id']}").status == 202
    go_on.set()
    job = ended(ana, answer.json["job_id"])
    assert (job["status"], job["commits"]) == ("cancelled", [])
    assert graph.commits()[0].commit_id == head


def test_another_server_of_the_graph_can_ask_to_stop(
    ana: Client, graph: Graph, stopped_load: tuple[str, threading.Event]
) -> None:
    job_id, go_on = stopped_load
    with Graph.open(graph.uri, local_files=False) as same, serving({"g": same}) as other:
        answer = other.client(None, "g").delete(f"/jobs/{job_id}")
        assert (answer.status, answer.json["cancel_requested"]) == (202, True)
    until(lambda: ana.get(f"/jobs/{job_id}").ok()["cancel_requested"])
    go_on.set()
    ended(ana, job_id)


# -- records --------------------------------------------------------------------------------------


def record(job_id: str, graph: Graph, **changes: Any) -> JobRecord:
    made = JobRecord(job_id, "optimize", "ana", "main", {}, this_process(), 1, 1)
    return JobRecords(graph._handle.store.objects).write(made.changed(**changes), is_durable=True)


def test_a_dead_process_is_told_from_a_living_one(ana: Client, graph: Graph) -> None:
    own = this_process()
    living = record("01LIVING", graph, status=JobStatus.RUNNING)
    assert ana.get(f"/jobs/{living.id}").ok()["status"] == "running"
    owners = {
        "01REUSED": JobOwner(own.machine, own.pid, "1"),
        "01GONE": JobOwner(own.machine, 4_000_000, "1"),
    }
    for job_id, owner in owners.items():
        record(job_id, graph, owner=owner, status=JobStatus.RUNNING)
        job = ana.get(f"/jobs/{job_id}").ok()
        assert job["status"] == "failed"
        assert job["error"]["reason"] == "process_died"
        assert job["landed"] is False
        assert "made no commit" in job["error"]["error"]
    elsewhere = JobOwner("another machine", 1, "1")
    record("01ELSEWHERE", graph, owner=elsewhere, status=JobStatus.RUNNING)
    assert ana.get("/jobs/01ELSEWHERE").ok()["status"] == "running"
    assert not elsewhere.has_died(2**53)
    assert elsewhere.has_died(0)
    for job_id in (*owners, "01LIVING", "01ELSEWHERE"):
        JobRecords(graph._handle.store.objects).delete(job_id)


def test_old_records_are_forgotten(
    ana: Client, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_RECORDS", 3)
    for number in range(6):
        record(f"01OLD{number}", graph, status=JobStatus.SUCCEEDED, ended_at=2**52)
    record("01ANCIENT", graph, status=JobStatus.SUCCEEDED, ended_at=1)
    job = ended(ana, started(ana, "/indexes/ensure", {})["job_id"])
    left = {job["job_id"] for job in ana.get("/jobs").ok()["jobs"]}
    assert "01ANCIENT" not in left
    assert len(left) <= 4
    assert job["job_id"] in left
    for number in range(6):
        JobRecords(graph._handle.store.objects).delete(f"01OLD{number}")


@pytest.mark.parametrize("job_id", ["none", "x" * 300, "..%2Fx", "%00", "%C3%A9"])
def test_an_id_that_cannot_be_one_is_no_job(ana: Client, job_id: str) -> None:
    ana.get(f"/jobs/{job_id}").fails(404, "not found")
    ana.delete(f"/jobs/{job_id}").fails(404, "not found")


def test_a_damaged_record_is_no_job(ana: Client, graph: Graph) -> None:
    graph._handle.store.objects.write("__jobs/01DAMAGED.job", "{")
    ana.get("/jobs/01DAMAGED").fails(404)
    assert all(job["job_id"] != "01DAMAGED" for job in ana.get("/jobs").ok()["jobs"])
    graph._handle.store.objects.delete("__jobs/01DAMAGED.job")


def test_a_record_that_is_no_text_is_no_job(ana: Client, graph: Graph) -> None:
    graph._handle.store.objects.write_bytes("__jobs/01DAMAGED.job", b"\xff\xfe{")
    ana.get("/jobs/01DAMAGED").fails(404)
    assert all(job["job_id"] != "01DAMAGED" for job in ana.get("/jobs").ok()["jobs"])
    assert ended(ana, started(ana, "/indexes/ensure", {})["job_id"])["status"] == "succeeded"
    graph._handle.store.objects.delete("__jobs/01DAMAGED.job")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_end_that_cannot_be_recorded_is_recorded_later(
    ana: Client, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The work is done; its record says *running* only as long as the disk refuses it."""
    real, refused = LocalObjects.put, []

    def put(self: LocalObjects, path: str, data: bytes, **options: Any) -> None:
        if path.startswith("__jobs/") and b'"succeeded"' in data and len(refused) < 2:
            refused.append(path)
            raise OSError(code, os.strerror(code))
        real(self, path, data, **options)

    monkeypatch.setattr(LocalObjects, "put", put)
    job = ended(ana, started(ana, "/indexes/ensure", {})["job_id"])
    assert (job["status"], len(refused)) == ("succeeded", 2)


@pytest.mark.parametrize(("code", "status"), [(errno.EIO, 503), (errno.ENOSPC, 507)])
def test_a_job_that_cannot_be_recorded_does_not_begin(
    ana: Client, graph: Graph, monkeypatch: pytest.MonkeyPatch, code: int, status: int
) -> None:
    real = LocalObjects.put

    def put(self: LocalObjects, path: str, data: bytes, **options: Any) -> None:
        if path.startswith("__jobs/"):
            raise OSError(code, os.strerror(code))
        real(self, path, data, **options)

    head, before = graph.commits()[0].commit_id, ana.get("/jobs").ok()
    with monkeypatch.context() as disk:
        disk.setattr(LocalObjects, "put", put)
        refused = ana.post("/load/ndjson", raw=people("never"), headers=ASYNC)
        assert refused.fails(status, "storage")["reason"].startswith("storage_")
    assert (graph.commits()[0].commit_id, ana.get("/jobs").ok()) == (head, before)
    assert ended(ana, started(ana, "/indexes/ensure", {})["job_id"])["status"] == "succeeded"


def test_the_number_of_jobs_is_bounded(
    ana: Client, stopped_load: tuple[str, threading.Event]
) -> None:
    made = []
    for _ in range(MOST_RUNNING + MOST_QUEUED + 1):
        answer = ana.post("/load/ndjson", raw=people("many"), headers=ASYNC)
        if answer.status != 202:
            break
        made.append(answer.json["job_id"])
    assert answer.fails(503)["reason"] == "overloaded"
    assert len(made) == MOST_RUNNING + MOST_QUEUED - 1
    for job_id in made:
        ana.delete(f"/jobs/{job_id}")
    stopped_load[1].set()
    for job_id in made:
        assert ended(ana, job_id)["status"] in ("cancelled", "succeeded")


def test_other_parts_of_the_graph_ignore_the_records(ana: Client, graph: Graph) -> None:
    ended(ana, started(ana, "/indexes/ensure", {})["job_id"])
    assert graph.maintenance.verify().is_sound
    graph.maintenance.cleanup(keep_versions=100)
    assert ana.get("/jobs").ok()["jobs"]


# -- the client -----------------------------------------------------------------------------------


def test_the_client_returns_what_the_library_returns(
    server: Server, graph: Graph, access: ListedAccess
) -> None:
    access.denied = set()
    with connect(server.url, graph="g", token="tok-ana") as remote:
        graph.maintenance.optimize()
        assert remote.maintenance.optimize() == graph.maintenance.optimize()
        kept = remote.maintenance.cleanup(keep_versions=1, dry_run=True)
        assert kept == graph.maintenance.cleanup(keep_versions=1, dry_run=True)
        assert remote.maintenance.repair() == graph.maintenance.repair()
        seen: list[omnigraph.Progress] = []
        report = remote.maintenance.verify(checksums=False, on_progress=seen.append)
        assert report == graph.maintenance.verify(checksums=False)
        assert seen
        assert remote.indexes.status() == graph.indexes.status()
        assert remote.indexes.rebuild("Person", "id").built == (
            graph.indexes.rebuild("Person", "id").built
        )
        assert remote.indexes.ensure().built == ()
        assert remote.embeddings.status() == graph.embeddings.status() == []
        assert remote.maintenance.doctor().tables == graph.maintenance.doctor().tables
        with pytest.raises(NotFound):
            remote.maintenance.optimize("no")
        with pytest.raises(InputError):
            remote.maintenance.cleanup()
        with pytest.raises(InputError, match="nope"):
            remote.indexes.rebuild("Person", "nope")
        with pytest.raises(NotServed):
            remote.maintenance.backup("/tmp/x")
        newest = remote.jobs.list(kind="verify")[0]
        assert newest.has_ended
        assert remote.jobs.wait(newest.job_id)["branches"] == ["main"]
        assert remote.jobs.cancel(newest.job_id).status == "succeeded"
        with pytest.raises(NotFound):
            remote.jobs.get(newest.job_id)
        access.denied = {"admin"}
        with pytest.raises(PolicyDenied):
            remote.maintenance.verify()
        access.denied = set()


def test_the_client_loads_large_files_by_a_job(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "LARGEST", 10)
    path = tmp_path / "people.jsonl"
    path.write_bytes(people("large", "larger"))
    with connect(server.url, graph="g", token="tok-ana") as remote:
        receipt = remote.load(path)
        assert receipt.affected_nodes == 2
        assert remote.jobs.list(kind="load")[0].commits == (receipt.commit_id,)
        rows = remote.query(PEOPLE).rows()
        assert {"large", "larger"} <= {row["p.name"] for row in rows}
        path.write_bytes(b'{"type": "Person", "data": {"age": 12345}}')
        with pytest.raises(InputError, match=r"people\.jsonl"):
            remote.load(path)


def test_the_async_client_runs_jobs(server: Server) -> None:
    async def session() -> None:
        async with await connect_async(server.url, graph="g", token="tok-ana") as remote:
            assert (await remote.maintenance.verify(checksums=False)).is_sound
            assert (await remote.maintenance.optimize()).branch == "main"
            assert (await remote.maintenance.repair()).tables
            assert (await remote.maintenance.cleanup(keep_versions=9, dry_run=True)).dry_run
            assert (await remote.maintenance.doctor()).branch == "main"
            assert (await remote.indexes.ensure()).built == ()
            assert (await remote.indexes.rebuild("City")).built
            assert (await remote.indexes.status()).indexes
            assert await remote.embeddings.status() == []
            job = (await remote.jobs.list())[0]
            assert (await remote.jobs.get(job.job_id)).status == "succeeded"
            assert await remote.jobs.wait(job.job_id)
            await remote.jobs.cancel(job.job_id)

    asyncio.run(session())


def test_embeddings_are_filled_by_a_job(tmp_path: Path) -> None:
    schema = 'node Doc { slug: String @key  text: String  v: Vector(8)? @embed("text") }'
    config = omnigraph.EmbeddingConfig("mock")
    with Graph.init(tmp_path / "d.omni", schema, embedding=config) as graph:
        graph.load([{"type": "Doc", "data": {"slug": s, "text": s}} for s in "abc"])
        with serving({"g": graph}) as server, connect(server.url, graph="g") as remote:
            assert [status.missing for status in remote.embeddings.status()] == [3]
            report = remote.embeddings.fill()
            assert (report.filled, len(report.commits)) == (3, 1)
            assert remote.jobs.list()[0].commits == report.commits
            assert remote.embeddings.status()[0].missing == 0
            with pytest.raises(NotServed):
                remote.embeddings.fill(timeout=3)


# -- processes ------------------------------------------------------------------------------------


def served(folder: Path, workers: int, log: str) -> ServerUnderTest:
    command = [sys.executable, "-m", "omnigraph.cli", "serve", str(folder / "kb.omni")]
    options = ["--unauthenticated", "--workers", str(workers), "--bind", "127.0.0.1:0"]
    return ServerUnderTest([*command, *options], folder / log, {"PYTHONPATH": PATHS})


PATHS = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"


def writer_of(server: ServerUnderTest, job: dict[str, Any], folder: Path) -> int:
    """The process that runs a job, from its record."""
    content = json.loads((folder / "kb.omni" / "__jobs" / f"{job['job_id']}.job").read_text())
    pid: int = content["owner"]["pid"]
    assert pid in server.children()
    return pid


@pytest.mark.slow
def test_a_killed_writer_leaves_an_honest_record_and_no_rows(tmp_path: Path) -> None:
    """Two workers and a writer; the writer is killed in the middle of a load, then the server."""
    with Graph.init(tmp_path / "kb.omni", SCHEMA) as graph:
        graph.load([{"type": "Person", "data": {"name": "first"}}])
        head = graph.commits()[0].commit_id
    body = people(*(f"p{number:07}" for number in range(600_000)))
    base = "/graphs/kb"
    with served(tmp_path, 2, "first.log").await_listening() as server:
        answer = server.ask("POST", f"{base}/load/ndjson", body, ASYNC)
        assert answer.status == 202, answer.body
        job = answer.json
        path = f"{base}/jobs/{job['job_id']}"
        until(lambda: server.ask("GET", path).json.get("progress"))
        os.kill(writer_of(server, job, tmp_path), signal.SIGKILL)
        died = until(lambda: _failed(server, path))
        assert died["error"]["reason"] == "process_died"
        assert died["landed"] in (False, None)
        # A new writer takes the next job, and recovers what there is to recover.
        again = until(lambda: _accepted(server, f"{base}/maintenance/repair"))
        repair = f"{base}/jobs/{again['job_id']}"
        until(lambda: server.ask("GET", repair).json["status"] != "queued")
        final = until(lambda: _landed(server, path))
        assert (final["status"], final["landed"]) == ("failed", False)
        count = server.ask("POST", f"{base}/query", {"query": PEOPLE}).json
        assert count["row_count"] == 1
        assert server.stop() == 0
    with served(tmp_path, 1, "second.log").await_listening() as server:
        kept = server.ask("GET", path).json
        assert (kept["status"], kept["landed"]) == ("failed", False)
        assert kept["error"]["reason"] == "process_died"
    with Graph.open(tmp_path / "kb.omni") as graph:
        assert graph.commits()[0].commit_id == head
        assert graph.maintenance.verify().is_sound


def _failed(server: ServerUnderTest, path: str) -> Any:
    answer = server.ask("GET", path)
    return answer.json if answer.status == 200 and answer.json["status"] == "failed" else None


def _landed(server: ServerUnderTest, path: str) -> Any:
    job = server.ask("GET", path).json
    return job if job["landed"] is not None else None


def _accepted(server: ServerUnderTest, path: str) -> Any:
    answer = server.ask("POST", path, {})
    return answer.json if answer.status == 202 else None


@pytest.mark.slow
def test_the_end_of_a_server_cancels_its_jobs(tmp_path: Path) -> None:
    with Graph.init(tmp_path / "kb.omni", SCHEMA) as graph:
        head = graph.commits()[0].commit_id
    body = people(*(f"p{number:07}" for number in range(600_000)))
    with served(tmp_path, 1, "server.log").await_listening() as server:
        job = server.ask("POST", "/graphs/kb/load/ndjson", body, ASYNC).json
        path = f"/graphs/kb/jobs/{job['job_id']}"
        until(lambda: server.ask("GET", path).json.get("progress"))
        assert server.stop() == 0
    with served(tmp_path, 1, "again.log").await_listening() as server:
        kept = server.ask("GET", path).json
        assert (kept["status"], kept["cancel_requested"]) == ("cancelled", True)
        assert kept["commits"] == []
    with Graph.open(tmp_path / "kb.omni") as graph:
        assert graph.commits()[0].commit_id == head


def test_a_dead_job_whose_commit_was_made_says_so(ana: Client, graph: Graph) -> None:
    job = ended(ana, ana.post("/load/ndjson", raw=people("landed"), headers=ASYNC).json["job_id"])
    store = JobRecords(graph._handle.store.objects)
    gone = JobOwner(this_process().machine, 4_000_000, "1")
    store.write(
        store.read(job["job_id"]).changed(status=JobStatus.RUNNING, owner=gone), is_durable=True
    )
    shown = ana.get(f"/jobs/{job['job_id']}").ok()
    assert (shown["status"], shown["landed"]) == ("failed", True)
    assert shown["commits"] == job["commits"]
    assert job["commits"][0] in shown["error"]["error"]
    with (
        connect(f"http://127.0.0.1:{ana._server.port}", graph="g", token="tok-ana") as remote,
        pytest.raises(omnigraph.errors.ServerUnavailable, match="was made") as caught,
    ):
        remote.jobs.wait(job["job_id"])
    assert not caught.value.retryable
    assert not isinstance(caught.value, Cancelled)
