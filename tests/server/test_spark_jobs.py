"""Jobs on Spark, in a process of their own: results, refusals, cancelling, dead processes.

Most of it needs no Spark: a Java that never answers takes the place of a long work.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph, Identity, Policy, connect
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import InputError, PolicyDenied, SparkUnavailable
from omnigraph.server.access import Access, RunState
from omnigraph.server.handlers import maintaining
from omnigraph.server.jobs import in_process
from omnigraph.server.jobs.process_tree import descendants
from omnigraph.server.jobs.process_work import GraphAddress
from omnigraph.server.state import CurrentGate
from tests.server.dying_work import BrokenWork, DyingWork
from tests.server.job_client import ASYNC, NDJSON, ended, people
from tests.server.processes import REPOSITORY, ServerUnderTest, is_alive, until
from tests.server.serving import (
    PEOPLE,
    SCHEMA,
    Client,
    Server,
    ndjson,
    open_served,
    serving,
)
from tests.spark.javas import SLEEPER, make_java
from tests.spark.processes import processes_with

pytestmark = pytest.mark.rotates(3)

RESTRICTED = """
version: 2
groups: {all: [ana], few: [bo]}
rules:
  - {id: r, allow: {actors: {group: all}, actions: [read, change, admin]}}
  - {id: s, allow: {actors: {group: few}, actions: [read, change, admin]}}
rows:
  - {id: a, actors: {group: all}, types: ["*"]}
  - {id: b, actors: {group: few}, types: [Person], where: "age > 36"}
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with open_served(tmp_path_factory.mktemp("spark-jobs") / "g.omni") as graph:
        yield graph


@pytest.fixture(scope="module")
def server(graph: Graph) -> Iterator[Server]:
    with serving({"g": graph}) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Client:
    return server.client(None, "g")


@pytest.fixture
def endless_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Java of the jobs starts, and never answers."""
    home = make_java(tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("OMNIGRAPH_CACHE", str(tmp_path / "cache"))
    return home / SLEEPER


def worker_of(graph_folder: Path, job_id: str) -> int:
    """The process that works for a job, from its record."""

    def look() -> Any:
        record = json.loads((graph_folder / "__jobs" / f"{job_id}.job").read_text())
        return record["worker"] and record["worker"]["pid"]

    pid: int = until(look, "the process of the job")
    return pid


# -- what is refused -------------------------------------------------------------------------------


def test_what_a_load_on_spark_cannot_be_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_SPARK_MASTER", "spark://far:7077")
    with open_served(tmp_path / "g.omni") as graph, serving({"g": graph}) as server:
        client, body = server.client(None, "g"), people("x")
        refused = client.post("/load/ndjson?engine=spark", raw=body, headers=NDJSON)
        assert "respond-async" in refused.fails(400, "is a job")["hint"]
        client.post("/load/ndjson?engine=flink", raw=body, headers=ASYNC).fails(400)
        far = client.post("/load/ndjson?engine=spark", raw=body, headers=ASYNC)
        far.fails(400, "other machines")
        assert client.get("/jobs").ok()["jobs"] == []


def test_without_pyspark_a_job_on_spark_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "pyspark" else find(name)
    )
    for path, options in (("/maintenance/optimize", {}), ("/embeddings/fill", {})):
        refused = client.post(path, {"engine": "spark", **options}).fails(501, "not installed")
        assert (refused["reason"], "pip install" in refused["hint"]) == ("spark_unavailable", True)


def test_without_a_working_java_a_job_fails_with_a_typed_error(
    server: Server, graph: Graph, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "java", "exit 1")))
    monkeypatch.setenv("OMNIGRAPH_CACHE", str(tmp_path / "cache"))
    head = graph.commits()[0].commit_id
    answer = client.post("/load/ndjson?engine=spark", raw=people("never"), headers=ASYNC)
    assert answer.status == 202
    job = ended(client, answer.json["job_id"])
    assert (job["status"], job["commits"]) == ("failed", [])
    assert (job["error"]["status"], job["error"]["reason"]) == (501, "spark_unavailable")
    assert str(tmp_path) not in json.dumps(job)
    assert graph.commits()[0].commit_id == head
    with connect(server.url, graph="g") as remote, pytest.raises(SparkUnavailable):
        remote.jobs.wait(job["job_id"])


def test_a_process_that_cannot_be_started_is_a_typed_error(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process.sys, "executable", "/nowhere/python")
    job = ended(client, client.post("/maintenance/optimize", {"engine": "spark"}).json["job_id"])
    assert (job["error"]["status"], job["error"]["reason"]) == (501, "spark_unavailable")
    assert "cannot be started" in job["error"]["error"]


# -- who acts --------------------------------------------------------------------------------------


def test_the_policy_and_the_actor_go_into_the_process(tmp_path: Path) -> None:
    """Pickled and opened again, a gate decides and hides as it did when the job began."""
    open_served(tmp_path / "g.omni").close()
    policies = [Policy.parse("{version: 1}"), Policy.parse(RESTRICTED)]
    gate = CurrentGate("g", lambda: Access(RunState.POLICY, {"g": policies[-1]}))
    with Graph.open(tmp_path / "g.omni", local_files=False, policy=gate) as graph:
        sent = {
            name: pickle.dumps(GraphAddress.of(graph.for_actor(Identity(name, {"g"}, {"a": [1]}))))
            for name in ("ana", "bo")
        }
    policies.pop()
    with pickle.loads(sent["ana"]).open() as seen:
        assert len(seen.query(PEOPLE).rows()) == 2
        assert seen._handle.identity == Identity("ana", frozenset({"g"}), {"a": [1]})
    with pickle.loads(sent["bo"]).open() as seen:
        assert [row["p.name"] for row in seen.query(PEOPLE).rows()] == ["Grace"]
        with pytest.raises(PolicyDenied):
            seen.maintenance.optimize()


# -- cancelling, and dead processes ----------------------------------------------------------------


def test_a_process_that_does_not_stop_is_ended_with_its_java(
    client: Client, graph: Graph, endless_java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_process, "STOP_SECONDS", 0.5)
    head = graph.commits()[0].commit_id
    answer = client.post("/load/ndjson?engine=spark", raw=people("never"), headers=ASYNC)
    job_id = answer.json["job_id"]
    pid = worker_of(Path(graph.uri), job_id)
    until(lambda: processes_with(str(endless_java)), "Java")
    below = descendants(pid)
    assert is_alive(pid)
    assert below
    assert client.delete(f"/jobs/{job_id}").status == 202
    job = ended(client, job_id)
    assert (job["status"], job["error"]["reason"]) == ("cancelled", "cancelled")
    assert job["commits"] == []
    assert not is_alive(pid)
    until(lambda: not any(map(is_alive, below)), "the end of Java")
    assert not processes_with(str(endless_java))
    assert graph.commits()[0].commit_id == head


def test_a_killed_process_is_an_honest_failure(
    client: Client, graph: Graph, endless_java: Path
) -> None:
    answer = client.post("/load/ndjson?engine=spark", raw=people("never"), headers=ASYNC)
    job_id = answer.json["job_id"]
    pid = worker_of(Path(graph.uri), job_id)
    until(lambda: processes_with(str(endless_java)), "Java")
    below = descendants(pid)
    os.kill(pid, signal.SIGKILL)
    job = ended(client, job_id)
    assert (job["status"], job["landed"]) == ("failed", False)
    assert job["error"]["reason"] == "process_died"
    for process in below:
        if is_alive(process):
            os.kill(process, signal.SIGKILL)
    # The next one is none the worse for it.
    assert ended(client, client.post("/indexes/ensure", {}).json["job_id"])["status"] == "succeeded"


@pytest.fixture
def working(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let jobs that optimize on Spark do something else, in their process."""
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}")

    def install(work: Any) -> None:
        monkeypatch.setattr(maintaining, "OptimizeWork", lambda *_: work)

    return install


@pytest.mark.parametrize(
    ("point", "landed"),
    [
        (None, True),
        pytest.param(Failpoint.WRITE_AFTER_PUBLISH, True, marks=pytest.mark.slow),
        (Failpoint.WRITE_AFTER_TABLES, True),
        pytest.param(Failpoint.WRITE_AFTER_LEASES, False, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_record_of_a_process_that_died_says_whether_its_commit_was_made(
    client: Client, graph: Graph, working: Any, point: Failpoint | None, landed: bool
) -> None:
    """What was interrupted between its tables and its publish is completed, and then it counts."""
    name = f"dead at {point}"
    working(DyingWork(name, point))
    job = ended(client, client.post("/maintenance/optimize", {"engine": "spark"}).json["job_id"])
    assert (job["status"], job["landed"]) == ("failed", landed)
    assert (job["error"]["reason"], job["progress"]["done"]) == ("process_died", 1)
    assert len(job["commits"]) == landed
    assert (name in [row["p.name"] for row in graph.query(PEOPLE).rows()]) is landed


def test_an_unexpected_error_of_the_process_is_logged_and_not_shown(
    client: Client, server: Server, graph: Graph, working: Any
) -> None:
    working(BrokenWork())
    job = ended(client, client.post("/maintenance/optimize", {"engine": "spark"}).json["job_id"])
    assert (job["status"], job["error"]["error"]) == ("failed", "internal error")
    assert graph.uri not in json.dumps(job)


def served(folder: Path, log: str, **environ: str) -> ServerUnderTest:
    command = [sys.executable, "-m", "omnigraph.cli", "serve", str(folder / "kb.omni")]
    options = ["--unauthenticated", "--workers", "2", "--bind", "127.0.0.1:0"]
    return ServerUnderTest([*command, *options], folder / log, environ)


@pytest.mark.slow
def test_the_process_of_a_job_ends_with_a_killed_server_and_the_record_says_so(
    tmp_path: Path, endless_java: Path
) -> None:
    Graph.init(tmp_path / "kb.omni", SCHEMA).close()
    path = "/graphs/kb/load/ndjson?engine=spark"
    with served(tmp_path, "first.log").await_listening() as server:
        job = server.ask("POST", path, people("never"), ASYNC).json
        pid = worker_of(tmp_path / "kb.omni", job["job_id"])
        until(lambda: processes_with(str(endless_java)), "Java")
        processes = [*server.children(), server.process.pid]
        for process in processes:
            os.kill(process, signal.SIGKILL)
        until(lambda: not is_alive(pid), "the end of the process of the job")
        until(lambda: not processes_with(str(endless_java)), "the end of Java")
    with served(tmp_path, "second.log").await_listening() as server:
        kept = server.ask("GET", f"/graphs/kb/jobs/{job['job_id']}").json
        assert (kept["status"], kept["landed"]) == ("failed", False)
        assert kept["error"]["reason"] == "process_died"


@pytest.mark.slow
def test_a_server_that_ends_takes_its_processes_along(tmp_path: Path, endless_java: Path) -> None:
    Graph.init(tmp_path / "kb.omni", SCHEMA).close()
    with served(tmp_path, "first.log").await_listening() as server:
        path = "/graphs/kb/load/ndjson?engine=spark"
        job = server.ask("POST", path, people("never"), ASYNC).json
        pid = worker_of(tmp_path / "kb.omni", job["job_id"])
        until(lambda: processes_with(str(endless_java)), "Java")
        assert server.stop() == 0
        assert not is_alive(pid)
        until(lambda: not processes_with(str(endless_java)), "the end of Java")
    record = json.loads((tmp_path / "kb.omni" / "__jobs" / f"{job['job_id']}.job").read_text())
    assert (record["status"], record["is_cancel_requested"]) == ("cancelled", True)


# -- on Spark --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_invalid_line_is_named_as_in_the_server(tmp_path: Path) -> None:
    Graph.init(tmp_path / "kb.omni", SCHEMA).close()
    path = tmp_path / "people.ndjson"
    path.write_text('{"type": "Person", "data": {"name": 1}}')
    with (
        served(tmp_path, "log", OMNIGRAPH_SPARK_MEMORY="1g").await_listening() as server,
        connect(f"http://{server.address}", graph="kb") as remote,
    ):
        texts = []
        for engine in ("local", "spark"):
            with pytest.raises(InputError, match=r"people\.ndjson") as caught:
                remote.load(path, engine=engine)  # type: ignore[arg-type]
            texts.append((caught.value.message, caught.value.code))
        assert texts[0] == texts[1]


@pytest.mark.slow
def test_work_on_spark_equals_the_same_work_in_the_server(tmp_path: Path) -> None:
    """Two workers and a writer; the load is forwarded, and runs in a process of the writer."""
    schema = 'node Doc { slug: String @key  text: String  v: Vector(8)? @embed("text") }'
    with Graph.init(tmp_path / "kb.omni", schema) as graph:
        graph.load([{"type": "Doc", "data": {"slug": "first", "text": "one"}}])
    rows = [{"type": "Doc", "data": {"slug": f"d{n:04}", "text": f"text {n}"}} for n in range(2000)]
    environ = {"OMNIGRAPH_EMBED_PROVIDER": "mock", "OMNIGRAPH_SPARK_MASTER": "local[2,4]"}
    environ["OMNIGRAPH_SPARK_MEMORY"] = "1g"
    with served(tmp_path, "server.log", **environ).await_listening() as server:
        base = f"http://{server.address}"
        with connect(base, graph="kb") as remote:
            path = tmp_path / "docs.ndjson"
            path.write_text(ndjson(rows))
            seen: list[omnigraph.Progress] = []
            receipt = remote.load(path, engine="spark", on_progress=seen.append)
            assert receipt.affected_nodes == 2000
            assert any(progress.phase == "reading" for progress in seen)
            job = remote.jobs.list(kind="load")[0]
            assert job.commits == (receipt.commit_id,)
            assert remote.commit(receipt.commit_id).actor is None
            # The same lines, in the server: nothing changes.
            assert remote.load(path).tables["node:Doc"].inserted == 0
            filled = remote.embeddings.fill(engine="spark")
            assert filled.filled == 2001
            assert remote.jobs.list()[0].commits == filled.commits
            optimized = remote.maintenance.optimize(engine="spark")
            assert optimized.commit_id in remote.jobs.list()[0].commits
            assert remote.maintenance.optimize().commit_id is None
        assert server.stop() == 0
    with Graph.open(tmp_path / "kb.omni") as graph:
        assert graph.snapshot().count("Doc") == 2001
        assert graph.maintenance.verify().is_sound
