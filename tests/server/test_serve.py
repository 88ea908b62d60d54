"""Graphs behind real server processes: healing, deaths, reloads, start and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from tests.cluster.ledgers import ClusterFiles
from tests.commit.deaths import leave_sidecar, left, move, pin
from tests.crash import operations
from tests.crash.harness import Harness
from tests.sampling import rotating
from tests.server.processes import Answer, ServerUnderTest, until

pytestmark = [pytest.mark.rotates(6), pytest.mark.xdist_group("served graph")]

PROGRAMS = Path(sys.executable).parent
ADD = "query add($name: String) { insert Person { name: $name } }"
PEOPLE = "query people() { match { $p: Person } return { $p.name } order { $p.name } }"
TOKENS = {"ana": "ana-secret-1", "bo": "bo-secret-2"}


def make_graph(folder: Path) -> Path:
    root = folder / "g.omni"
    with Graph.init(root, operations.SCHEMA, durability="os") as graph:
        graph.append(operations.several("Ada", "Acme"))
    return root


def serve(root: Path, log: Path, *options: str, **environ: str) -> ServerUnderTest:
    command = [str(PROGRAMS / "omnigraph"), "serve", "--store", str(root), *options]
    return ServerUnderTest([*command, "--bind", "127.0.0.1:0"], log, environ)


def add(server: ServerUnderTest, name: str, **headers: str) -> Answer:
    body = {"query": ADD, "params": {"name": name}}
    return server.ask("POST", "/graphs/g/mutate", body, headers)


def people(server: ServerUnderTest, **headers: str) -> list[str]:
    answer = server.ask("POST", "/graphs/g/query", {"query": PEOPLE}, headers)
    assert answer.status == 200, answer.body
    return [row["p.name"] for row in answer.json["rows"]]


def token(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[actor]}"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_graph(tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[ServerUnderTest]:
    """An open server with two readers and a writer."""
    log = root.parent / "server.log"
    with serve(root, log, "--workers", "2", "--unauthenticated") as started:
        yield started.await_listening()


# -- a served graph -------------------------------------------------------------------------------


def test_every_reader_sees_a_write_when_it_is_acknowledged(server):
    for number in range(5):
        name = f"reader {number}"
        answer = add(server, name)
        assert answer.status == 200, answer.body
        commit = {"Omnigraph-Commit": answer.headers["omnigraph-commit"]}
        with ThreadPoolExecutor(8) as pool:
            reads = [pool.submit(people, server, **commit) for _ in range(8)]
            assert all(name in read.result() for read in reads)


LOOK_UP = "query one($n: String) { match { $p: Person { name: $n } } return { $p.name } }"


def test_no_reader_shows_less_than_another_has_shown(server):
    """Whichever process answers, in its event loop or in a thread."""
    look_up = {"query": LOOK_UP, "params": {"n": "Ada"}}
    names = [f"later {number}" for number in range(24)]
    connections = [server.connect() for _ in range(8)]
    shown: list[str] = []

    def read(number: int) -> None:
        connection = connections[number % len(connections)]
        body = json.dumps({"query": PEOPLE} if number % 5 == 0 else look_up)
        connection.request("POST", "/graphs/g/query", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        shown.append(answer["graph_commit_id"])

    with ThreadPoolExecutor(4) as pool:
        writes = [pool.submit(add, server, name) for name in names]
        number = 0
        while number < 80 or not all(write.done() for write in writes):
            read(number)
            number += 1
    for connection in connections:
        connection.close()
    assert {write.result().status for write in writes} == {200}
    commits = server.ask("GET", "/graphs/g/commits").json["commits"]
    order = {commit["graph_commit_id"]: commit["created_at"] for commit in commits}
    times = [order[commit] for commit in shown]
    assert times == sorted(times)
    assert len(set(shown)) > 1


def test_a_write_has_one_request_id_in_the_reader_and_the_writer(server):
    answer = add(server, "Cy", **{"Omnigraph-Request-Id": "mine-1"})
    assert answer.status == 200
    assert answer.headers["omnigraph-request-id"] == "mine-1"
    refused = add(server, "", **{"Omnigraph-Request-Id": "mine-2"})
    assert refused.status == 400
    assert refused.json["request_id"] == "mine-2"


STEPS = (
    Failpoint.WRITE_AFTER_LEASES,
    Failpoint.WRITE_AFTER_SIDECAR,
    Failpoint.WRITE_BETWEEN_TABLES,
    Failpoint.WRITE_AFTER_TABLES,
    Failpoint.PUBLISH_AFTER,
    Failpoint.WRITE_AFTER_PUBLISH,
    Failpoint.WRITE_AFTER_SIDECAR_DELETE,
)


@pytest.mark.parametrize("point", rotating(STEPS, 4, "deaths beside a server"))
def test_a_foreign_writer_that_died_needs_no_operator(server, root, crash, point):
    """Between any two steps of its commit: the next write of the server heals the graph."""
    assert dies(crash, root, point)
    name = f"after {point}"
    assert name not in people(server)
    assert add(server, name).status == 200
    assert name in people(server)
    assert left(root) == []


def dies(crash: Harness, root: Path, point: Failpoint) -> bool:
    return crash.kill_at_failpoint(operations.merge_several, root, point).killed


def test_a_write_that_a_foreign_sidecar_blocks_names_it(tmp_path):
    """The reference program's sidecars have no leases: only an open rolls them back."""
    root = make_graph(tmp_path)
    with serve(root, tmp_path / "log", "--workers", "1", "--unauthenticated") as server:
        server.await_listening()
        with Graph.open(root, "r") as graph:
            version = graph.snapshot().tables["node:Person"]["version"]
            other = graph.snapshot().tables["node:Company"]["version"]
        move(root, "node:Person", "half")
        operation = leave_sidecar(
            root, pin(root, "node:Person", version), pin(root, "node:Company", other)
        )
        answer = add(server, "Bo")
        assert answer.status == 409
        assert answer.json["reason"] == "recovery_required"
        assert operation in answer.json["error"]
        assert answer.json["details"]["sidecar"] == operation
        assert people(server) == ["Acme", "Ada"]


def test_the_metrics_count_commits_conflicts_storage_and_caches(server):
    add(server, "counted")
    assert "counted" in people(server)
    lines = (
        'omnigraph_commits_total{graph="g"}',
        'omnigraph_storage_operations_total{graph="g",kind="read"}',
        'omnigraph_cache_total{cache="plans",graph="g",outcome="hit"}',
        'omnigraph_recoveries_total{graph="g"}',
        'omnigraph_worker_up{worker="writer"} 1.0',
        'omnigraph_http_request_seconds_bucket{le="0.01",route="/graphs/{graph_id}/query"}',
    )

    def missing() -> list[str]:
        text = server.ask("GET", "/metrics").body.decode()
        return [line for line in lines if line not in text]

    # Processes that are too busy to report in time are left out.
    until(lambda: not missing(), "lines of the metrics")


# -- deaths -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_writer_that_dies_in_a_load_loses_no_acknowledged_write(tmp_path):
    root = make_graph(tmp_path)
    records = "\n".join(
        json.dumps({"type": "Person", "data": {"name": f"loaded {number}"}})
        for number in range(20_000)
    )
    with (
        serve(root, tmp_path / "log", "--workers", "2", "--unauthenticated") as server,
        ThreadPoolExecutor() as pool,
    ):
        server.await_listening()
        assert add(server, "acknowledged").status == 200
        writer, before = server.children()[0], files_below(root)
        load = pool.submit(server.ask, "POST", "/graphs/g/load", {"data": records})
        until(lambda: files_below(root) > before or load.done())
        os.kill(writer, signal.SIGKILL)
        # Readers answer as if nothing had happened.
        assert "acknowledged" in people(server)
        answer = load.result()
        assert (answer.status, answer.json.get("reason")) in (
            (503, "outcome_pending"),
            (200, None),
        )
        assert add(server, "later").status == 200
        names = people(server)
        assert {"acknowledged", "later"} <= set(names)
        loaded = sum(name.startswith("loaded") for name in names)
        assert loaded in (0, 20_000)
        assert server.stop() == 0
    with Graph.open(root) as graph:
        assert graph.maintenance.verify().is_sound


def files_below(root: Path) -> int:
    return sum(1 for _ in root.rglob("*"))


# -- identity, policy, reload ---------------------------------------------------------------------

POLICY = """
version: 1
groups:
  writers: [ana]
  readers: [ana, bo]
rules:
  - id: read
    allow: { actors: { group: readers }, actions: [read] }
  - id: write
    allow: { actors: { group: writers }, actions: [change], branch_scope: any }
"""


def write_tokens(path: Path, tokens: dict[str, str]) -> None:
    """Replace the file at once, as an operator should."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(tokens))
    new.replace(path)


def test_a_revoked_token_is_refused_everywhere_when_the_reload_returns(tmp_path):
    root, tokens, log = make_graph(tmp_path), tmp_path / "tokens.json", tmp_path / "log"
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    write_tokens(tokens, TOKENS)
    environ = {
        "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(tokens),
        "OMNIGRAPH_LOG_LEVEL": "debug",
        "OMNIGRAPH_SLOW_QUERY_MS": "0",
    }
    with serve(root, log, "--workers", "2", "--policy", str(policy), **environ) as server:
        server.await_listening()
        assert add(server, "by ana", **token("ana")).status == 200
        assert add(server, "by bo", **token("bo")).status == 403
        assert add(server, "by nobody").status == 401
        # A broken file changes nothing, and is said.
        tokens.write_text("{ not json ana-secret-1")
        server.send(signal.SIGHUP)
        until(lambda: server.events("reload failed; the old state stays in force"))
        until(lambda: server.ask("GET", "/readyz").json["status"] == "degraded")
        assert "reload failed" in server.ask("GET", "/readyz").json["warnings"][0]
        assert people(server, **token("bo")) == ["Acme", "Ada", "by ana"]
        # Bo's token is revoked, and Ana may only read.
        policy.write_text(POLICY.replace("writers: [ana]", "writers: [bo]"))
        write_tokens(tokens, {"ana": TOKENS["ana"]})
        server.send(signal.SIGHUP)
        until(lambda: server.ask("GET", "/readyz").json["status"] == "ready")
        with ThreadPoolExecutor(8) as pool:
            work = [
                pool.submit(server.ask, "POST", "/graphs/g/query", {"query": PEOPLE}, token(actor))
                for actor in ("ana", "bo") * 10
            ]
            assert [task.result().status for task in work] == [200, 401] * 10
        assert add(server, "again", **token("ana")).status == 403
        assert server.stop() == 0
    for secret in TOKENS.values():
        assert secret not in log.read_text()
    # The slow log has texts of queries, and no parameters.
    assert PEOPLE in {event.get("query") for event in server.events("slow request")}
    assert "by ana" not in log.read_text()
    denied = [e for e in server.events("policy decision") if not e["allowed"]]
    assert {(e["actor_id"], e["action"]) for e in denied} == {("bo", "change"), ("ana", "change")}


def test_a_cluster_is_served_without_its_damaged_graph_and_follows_its_ledger(tmp_path):
    cluster = ClusterFiles(tmp_path / "cluster")
    graphs = cluster.root / "graphs"
    graphs.mkdir(parents=True)
    for name in ("good", "late"):
        Graph.init(graphs / f"{name}.omni", operations.SCHEMA, durability="os").close()
    cluster.graph("good")
    cluster.graph("gone")
    command = [str(PROGRAMS / "omnigraph-server"), "--cluster", str(cluster.root)]
    command += ["--bind", "127.0.0.1:0", "--unauthenticated", "--workers", "2"]
    with ServerUnderTest(command, tmp_path / "log") as server:
        server.await_listening()
        assert [g["graph_id"] for g in server.ask("GET", "/graphs").json["graphs"]] == ["good"]
        assert server.ask("GET", "/graphs/gone/schema").status == 404
        assert server.events("graph quarantined")[0]["graph_id"] == "gone"
        cluster.graph("late")
        until(lambda: server.ask("GET", "/graphs/late/schema").status == 200)
        assert server.stop(signal.SIGINT) == 0
    command.append("--require-all-graphs")
    with ServerUnderTest(command, tmp_path / "log") as server:
        assert server.process.wait(60) == 1
        assert "graph.gone" in server.log


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_graph_that_cannot_be_opened_for_a_while_is_unavailable_and_comes_back(tmp_path, workers):
    cluster = ClusterFiles(tmp_path / "cluster")
    graphs = cluster.root / "graphs"
    graphs.mkdir(parents=True)
    for name in ("good", "torn"):
        Graph.init(graphs / f"{name}.omni", operations.SCHEMA, durability="os").close()
        cluster.graph(name)
    schema = graphs / "torn.omni" / "_schema.pg"
    whole = schema.read_bytes()
    schema.write_bytes(b"not a schema")
    command = [str(PROGRAMS / "omnigraph-server"), "--cluster", str(cluster.root)]
    command += ["--bind", "127.0.0.1:0", "--unauthenticated", "--workers", workers]
    with ServerUnderTest(command, tmp_path / "log") as server:
        server.await_listening()
        answer = server.ask("GET", "/graphs/torn/schema")
        assert (answer.status, answer.json["reason"]) == (503, "graph_unavailable")
        assert answer.json["retryable"]
        assert answer.headers["retry-after"] == "1"
        assert server.ask("GET", "/graphs/good/schema").status == 200
        ready = server.ask("GET", "/readyz").json
        assert (ready["status"], ready["unserved"]) == ("degraded", 1)
        schema.write_bytes(whole)
        # In every process: readers and the writer try for themselves.
        processes = 1 if workers == "1" else 1 + int(workers)
        until(lambda: len(server.events("graphs are served again")) == processes)
        for _ in range(8):
            assert server.ask("GET", "/graphs/torn/schema").status == 200
        add = {"query": 'query a() { insert Person { name: "Ada" } }'}
        assert server.ask("POST", "/graphs/torn/mutate", add).status == 200


# -- start --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["omnigraph-server"], "boots from a cluster"),
        (["omnigraph-server", "--cluster", "{tmp}/nothing"], "cluster_state_missing"),
        (["omnigraph", "serve", "--store", "{tmp}/nothing.omni"], "--unauthenticated"),
        (
            ["omnigraph", "serve", "--store", "{tmp}/nothing.omni", "--unauthenticated"],
            "graph_not_found",
        ),
        (
            ["omnigraph", "serve", "--store", "{tmp}/nothing.omni", "--bind", "nowhere"],
            "invalid address 'nowhere'",
        ),
    ],
)
def test_a_start_that_is_refused_exits_with_1_and_says_why(tmp_path, command, text):
    program, *rest = command
    arguments: list[Any] = [argument.replace("{tmp}", str(tmp_path)) for argument in rest]
    ended = subprocess.run(
        [PROGRAMS / program, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 1
    assert text in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
