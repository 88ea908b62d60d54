"""Actors × actions × branches × run states over HTTP: what is allowed, denied, hidden, absent."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import ServerNotReady
from omnigraph.identity import Identity
from omnigraph.server.access import RunState
from omnigraph.server.admission import WriteCaps
from omnigraph.server.bodies import BodyTimes
from omnigraph.server.config import ServerConfig, ServerSource
from omnigraph.server.generation import Generation, read_generation
from omnigraph.server.opening import OpenedPlan, open_graphs
from omnigraph.server.routes import ROUTES
from omnigraph.server.state import ServerState
from omnigraph.settings import Settings
from tests.cluster.ledgers import ClusterFiles
from tests.server.serving import ListedAccess, Response, Server

pytestmark = pytest.mark.rotates(3)

SCHEMA = "node Task { name: String @key }"
READ = "query all() { match { $t: Task } return { $t.name } }"
ADD = "query add($name: String) { insert Task { name: $name } }"
BUNDLE = """
version: 1
groups:
  leads: [lead]
  writers: [writer]
  readers: [reader]
  callers: [caller]
  idle: [idle]
protected_branches: [main, release/**]
rules:
  - id: lead
    allow:
      actors: {group: leads}
      actions: [read, export, change, branch_create, branch_delete, branch_merge, schema_apply,
        invoke_query, admin]
  - {id: write, allow: {actors: {group: writers}, actions: [read, change],
      branch_scope: unprotected}}
  - {id: fork, allow: {actors: {group: writers}, actions: [branch_create, branch_delete,
      branch_merge], target_branch_scope: unprotected}}
  - {id: read, allow: {actors: {group: readers}, actions: [read]}}
  - {id: call, allow: {actors: {group: callers}, actions: [invoke_query]}}
  - {id: call-read, allow: {actors: {group: callers}, actions: [read], branch_scope: protected}}
"""
SCOPED = """
version: 2
groups: {leads: [lead], writers: [writer], readers: [reader], callers: [caller], idle: [idle]}
rules:
  - {id: lead, allow: {actors: {group: leads}, actions: [read, export, change, branch_create,
      branch_delete, branch_merge, schema_apply, invoke_query, admin]}}
  - {id: write, allow: {actors: {group: writers}, actions: [read, change], branches: ["draft*"]}}
  - {id: fork, allow: {actors: {group: writers}, actions: [branch_create, branch_delete,
      branch_merge], target_branches: ["release/**"]}}
  - {id: read, allow: {actors: {group: readers}, actions: [read], branches: [main, "release/*"]}}
  - {id: call, allow: {actors: {group: callers}, actions: [invoke_query, read, change],
      queries: [all]}}
rows:
  - {id: everything, actors: {group: leads}, types: ["*"]}
"""
SERVER = """
version: 1
groups: {ops: [lead]}
rules: [{id: ops, allow: {actors: {group: ops}, actions: [graph_list, config_manage, admin]}}]
"""
ACTORS = ("lead", "writer", "reader", "caller", "idle", "stranger")
TOKENS = {actor: f"tk-{actor}-3b9f" for actor in ACTORS}
BRANCHES = ("main", "draft", "release/1")
Question = tuple[str, str | None, str | None]


@dataclass
class Request:
    """A request, and what the policy is asked about it, in this order."""

    method: str
    path: str
    questions: list[Question]
    body: Any = None
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    query: str | None = None
    """The stored query that is invoked; a denial looks as if there were none."""


def requests_of(operation: str, branch: str) -> list[Request]:
    """Requests of an operation that concern a branch.

    They do nothing where they are allowed: queries do not parse, sources of forks do not exist.
    """
    read: list[Question] = [("read", branch, None)]
    change: list[Question] = [("change", branch, None)]
    at = {"branch": branch}
    if_commit = {"Omnigraph-If-Graph-Commit": "01J00000000000000000000000"}
    match operation.removeprefix("cluster_"):
        case "getSnapshot":
            return [Request("GET", f"/snapshot?branch={branch}", read)]
        case "query":
            return [Request("POST", "/query", read, {"query": READ, **at})]
        case "read":
            return [Request("POST", "/read", read, {"query_source": READ, **at})]
        case "export":
            return [Request("POST", "/export", [("export", branch, None)], at)]
        case "list_queries":
            return [Request("GET", "/queries", [("read", "main", None)])]
        case "get_query":
            named: list[Question] = [("invoke_query", None, None)]
            return [Request("GET", f"/queries/{name}", named, query=name) for name in STORED]
        case "mcp":
            message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            accepts = {"Accept": "application/json"}
            return [Request("POST", "/mcp", [("read", None, None)], message, headers=accepts)]
        case "invoke_query":
            invoke: Question = ("invoke_query", None, None)
            return [
                Request("POST", "/queries/all", [invoke, *read], at, query="all"),
                Request("POST", "/queries/add", [invoke, *change], at, query="add"),
            ]
        case "get_query":
            shown: list[Question] = [("invoke_query", None, None)]
            return [Request("GET", "/queries/all", shown, query="all")]
        case "invoke_query_if_graph_commit":
            wanted: list[Question] = [("invoke_query", None, None), *change]
            path = "/queries/add/if-graph-commit"
            return [Request("POST", path, wanted, at, headers=if_commit, query="add")]
        case "getSchema":
            return [Request("GET", "/schema", [("read", None, None)])]
        case "mutate":
            return [Request("POST", "/mutate", change, {"query": "query {", **at})]
        case "mutate_if_graph_commit":
            body = {"query": "query {", **at}
            return [Request("POST", "/mutate/if-graph-commit", change, body, headers=if_commit)]
        case "change":
            return [Request("POST", "/change", change, {"query": "query {", **at})]
        case "load" | "ingest" as name:
            return [Request("POST", f"/{name}", change, {"data": "{", **at})]
        case "load_ndjson":
            kind = {"Content-Type": "application/x-ndjson"}
            path = f"/load/ndjson?branch={branch}"
            return [Request("POST", path, change, raw=b"{", headers=kind)]
        case "applySchema":
            return [Request("POST", "/schema/apply", [("schema_apply", None, "main")], SCHEMA_BODY)]
        case "plan_schema":
            return [Request("POST", "/schema/plan", [("read", None, None)], SCHEMA_BODY)]
        case "listBranches":
            return [Request("GET", "/branches", [("read", None, None)])]
        case "createBranch":
            body = {"name": f"{branch}-new", "from": "nowhere"}
            created = ("branch_create", "nowhere", f"{branch}-new")
            return [Request("POST", "/branches", [created], body)]
        case "deleteBranch":
            name = "main" if branch == "main" else f"{branch}-none"
            path = f"/branches/{name.replace('/', '%2F')}"
            return [Request("DELETE", path, [("branch_delete", None, name)])]
        case "mergeBranches":
            body = {"source": "nowhere", "target": branch}
            return [Request("POST", "/branches/merge", [("branch_merge", "nowhere", branch)], body)]
        case "listCommits":
            return [
                Request("GET", f"/commits?branch={branch}", read),
                Request("GET", "/commits", [("read", None, None)]),
            ]
        case "explain_policy":
            body = {"actor": "somebody", "action": "read", "branch": branch}
            return [Request("POST", "/policy/explain", [("admin", None, None)], body)]
        case "getCommit":
            return [Request("GET", "/commits/none", [("read", None, None)])]
        case "commit_changes":
            return [Request("GET", "/commits/none/changes", [("read", None, None)])]
        case "changes":
            return [Request("GET", f"/changes?branch={branch}", read)]
        case "changes_baseline":
            return [Request("POST", "/changes/baseline", [("export", branch, None)], at)]
        case "diff":
            body = {"from": {"branch": branch}, "to": {"branch": branch}}
            return [Request("POST", "/diff", read, body)]
        case "blame":
            history: list[Question] = [("read_history", branch, None), *read]
            return [Request("GET", f"/blame?type=Task&id=a&branch={branch}", history)]
        case "revert" | "cherry_pick" as name:
            body = {"commit": "none", **at}
            return [Request("POST", f"/{name.replace('_', '-')}", change, body)]
        case "list_tags":
            return [Request("GET", "/tags", [("read", None, None)])]
        case "create_tag":
            body = {"name": f"{branch}-v1", "branch": "nowhere"}
            return [Request("POST", "/tags", [("branch_create", "nowhere", f"{branch}-v1")], body)]
        case "delete_tag":
            path = f"/tags/{branch.replace('/', '%2F')}"
            return [Request("DELETE", path, [("branch_create", None, branch)])]
        case "explain":
            return [Request("POST", "/explain", read, {"query": READ, **at})]
        case "entity" | "neighbours" as name:
            return [Request("GET", f"/{name}?type=Task&id=a&branch={branch}", read)]
        case "optimize" | "repair" as name:
            admin: list[Question] = [("admin", f"{branch}-no", None)]
            return [Request("POST", f"/maintenance/{name}", admin, {"branch": f"{branch}-no"})]
        case "verify":
            admin = [("admin", f"{branch}-no", None)]
            return [Request("POST", "/maintenance/verify", admin, {"branch": f"{branch}-no"})]
        case "cleanup":
            return [Request("POST", "/maintenance/cleanup", [("admin", None, None)], {})]
        case "doctor":
            admin = [("admin", branch, None)]
            return [Request("GET", f"/maintenance/doctor?branch={branch}", admin)]
        case "index_status" | "embedding_status" as name:
            path = {"index_status": "indexes", "embedding_status": "embeddings"}[name]
            return [Request("GET", f"/{path}?branch={branch}", [("admin", branch, None)])]
        case "ensure_indexes" | "rebuild_indexes" as name:
            body = {"type": "Task", "branch": f"{branch}-no"}
            admin = [("admin", f"{branch}-no", None)]
            return [Request("POST", f"/indexes/{name.partition('_')[0]}", admin, body)]
        case "fill_embeddings":
            body = {"branch": f"{branch}-no"}
            both: list[Question] = [
                ("admin", f"{branch}-no", None),
                ("change", f"{branch}-no", None),
            ]
            return [Request("POST", "/embeddings/fill", both, body)]
        case "list_jobs":
            return [Request("GET", "/jobs", [("read", None, None)])]
        case "get_job" | "cancel_job" as name:
            method = "GET" if name == "get_job" else "DELETE"
            return [Request(method, "/jobs/01J", [("read", None, None)])]
        case "get_blob":
            return [Request("GET", f"/blob?{CELL}&branch={branch}", read)]
        case "put_blob":
            return [Request("PUT", f"/blob?{CELL}&branch={branch}", change, raw=b"x")]
        case "delete_blob":
            return [Request("DELETE", f"/blob?{CELL}&branch={branch}", change)]
    raise AssertionError(f"no request for {operation}")


STORED = ("all", "add")
TOOLS: list[Question] = [
    ("read", "main", None),
    ("read", "draft", None),
    ("branch_create", "main", "draft"),
    ("branch_merge", "draft", "main"),
    ("change", "draft", None),
]
"""Whoever may do one of these has a tool."""
CELL = "entity=node&type=Task&id=a&property=name"
SCHEMA_BODY = {"schema_source": SCHEMA}
SERVER_REQUESTS = {
    "listGraphs": Request("GET", "/graphs", [("graph_list", None, None)]),
    "metrics": Request("GET", "/metrics", [("admin", None, None)]),
    "reload": Request("POST", "/reload", [("config_manage", None, None)]),
    "applyCluster": Request(
        "POST", "/cluster/apply", [("config_manage", None, None)], {"files": {"cluster.yaml": ""}}
    ),
    "listDeployments": Request("GET", "/deployments", [("config_manage", None, None)]),
    "getDeployment": Request("GET", "/deployments/x", [("config_manage", None, None)]),
}
GRAPH_OPERATIONS = [route.operation_id for route in ROUTES if route.scope == "graph"]


def make_state(config: ServerConfig, generation: Generation, opened: OpenedPlan) -> ServerState:
    return ServerState(
        config,
        generation.authentication(lambda _: None),
        generation.access(config),
        generation.state.value,
        opened.graphs,
        opened.unserved,
        is_cluster=True,
    )


class Serving:
    """A server of the real parts, in one run state after the other."""

    def __init__(self, folder: Path) -> None:
        self.cluster = ClusterFiles(folder / "lab").graph("kb").graph("wiki")
        for name in ("kb", "wiki"):
            with Graph.init(self.cluster.root / "graphs" / f"{name}.omni", SCHEMA) as graph:
                graph.load([{"type": "Task", "data": {"name": "a"}}])
                graph.branches.create("draft")
                graph.branches.create("release/1")
            self.cluster.query(name, "all", READ)
            self.cluster.query(name, "add", ADD)
        self.tokens = folder / "tokens.json"
        self.tokens.write_text(json.dumps(TOKENS))
        self.seen: list[bytes] = []
        self.lines: list[dict[str, Any]] = []
        generation = self.read()
        self.access: Any = generation.access(self.config)
        self.second: Any = self.access
        """What the graphs themselves ask."""
        opened = open_graphs(generation.plan, "rw", Settings(), lambda: self.second)
        self.graphs = opened.graphs
        self.server = Server(make_state(self.config, generation, opened), BodyTimes(), WriteCaps())
        self.clients: dict[str | None, Any] = {}

    config = ServerConfig(ServerSource("cluster", "lab"), unauthenticated=True)

    def read(self, *, has_tokens: bool = True) -> Generation:
        file = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(self.tokens)}
        settings = Settings.from_environ(file if has_tokens else {})
        source = ServerSource("cluster", str(self.cluster.root))
        config = ServerConfig(source, unauthenticated=True)
        return read_generation(config, settings)

    def become(self, state: RunState) -> None:
        """Bind what makes a run state, and reload as a server does."""
        for name in ("policy.rules", "policy.srv"):
            self.cluster.resources.pop(name, None)
        self.cluster.save()
        if state is RunState.POLICY:
            self.cluster.policy("rules", BUNDLE, ["graph.kb"])
            self.cluster.policy("srv", SERVER, ["cluster"])
        self.reload(self.read(has_tokens=state is not RunState.OPEN))
        assert self.server.process.state.run_state == state.value

    def reload(self, generation: Generation) -> None:
        self.access = self.second = generation.access(self.config)
        opened = open_graphs(generation.plan, "rw", Settings(), lambda: self.second, self.graphs)
        assert [opened.graphs[name].graph for name in opened.graphs] == [
            self.graphs[name].graph for name in opened.graphs
        ]
        self.server.process.swap(make_state(self.config, generation, opened))

    def send(self, actor: str | None, request: Request, prefix: str = "") -> Response:
        if actor not in self.clients:
            self.clients[actor] = self.server.client(None if actor is None else TOKENS[actor])
        headers = {"Omnigraph-Request-Id": "r1", **request.headers}
        response: Response = self.clients[actor].request(
            request.method, prefix + request.path, request.body, raw=request.raw, headers=headers
        )
        self.seen.append(response.body + repr(sorted(response.headers.items())).encode())
        if len(self.seen) % 50 == 0:
            self.collect()
        return response

    def collect(self) -> list[dict[str, Any]]:
        """Everything that was logged; a pipe that nobody reads would be full soon."""
        self.lines += self.server.log_lines()
        return self.lines

    def expected(self, graph: str | None, actor: str | None, request: Request) -> str | None:
        """The denial of the first question that is denied; ``None`` if all are allowed."""
        access, identity = self.access, identity_of(actor)
        for action, branch, target in request.questions:
            query = request.query
            decision = access.decide(graph, identity, action, branch, target, query=query)
            if decision.allowed:
                continue
            if action == "invoke_query":
                return "stored query not found"
            if request.path.startswith("/commits/none"):
                return "commit 'none' not found"
            if request.path in ("/queries", "/mcp") and any(
                access.decide(graph, identity, "invoke_query", query=name).allowed
                for name in STORED
            ):
                continue
            if request.path == "/mcp" and any(
                access.decide(graph, identity, *tool).allowed for tool in TOOLS
            ):
                continue
            for name in (branch, None if action == "branch_create" else target):
                if name is not None and access.hides_branch(graph, identity, name):
                    return f"branch '{name}' not found"
            return str(decision.message)
        return None


def identity_of(actor: str | None) -> Identity | None:
    return None if actor is None else Identity(actor)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    made = Serving(tmp_path_factory.mktemp("truth"))
    made.server.start()
    yield made
    made.server.stop()
    for served in made.graphs.values():
        served.graph.close()


def test_every_route_is_in_the_table():
    for operation in GRAPH_OPERATIONS:
        for request in requests_of(operation, "draft"):
            listed = next(route for route in ROUTES if route.operation_id == operation)
            assert request.method == listed.method
            assert request.questions[0][0] == listed.action
    others = {route.operation_id for route in ROUTES if route.scope == "server"}
    assert set(SERVER_REQUESTS) == others
    assert {route.operation_id for route in ROUTES if route.action is None} == {
        "health",
        "ready",
        "openapi",
    }


def check_cell(serving: Serving, graph: str, actor: str | None, request: Request) -> bool:
    """Compare one answer with the decisions; returns whether it was allowed."""
    response = serving.send(actor, request, f"/graphs/{graph}")
    cell = (graph, actor, request.method, request.path, response.status, response.body)
    if serving.access.hides_graph(graph, identity_of(actor)):
        assert response.status == 404, cell
        assert response.json["error"] == f"graph '{graph}' not found", cell
        return False
    denial = serving.expected(graph, actor, request)
    if denial is None:
        # Whatever the request then meets, it is neither a denial nor one that is masked.
        assert response.status not in (401, 403, 500), cell
        assert b"stored query not found" not in response.body, cell
        return True
    status, code = (404, "not_found") if "not found" in denial else (403, "forbidden")
    assert (response.status, response.json["code"]) == (status, code), cell
    assert response.json["error"] == denial, cell
    return False


@pytest.mark.parametrize("state", RunState)
def test_the_truth_table_over_http(serving, state):
    serving.become(state)
    # The boundary alone: graphs that allow everything.
    serving.second = ListedAccess()
    actors: tuple[str | None, ...] = (None,) if state is RunState.OPEN else ACTORS
    graphs = ("kb", "wiki") if state is RunState.POLICY else ("kb",)
    counts = {True: 0, False: 0}
    for graph, operation, branch, actor in itertools.product(
        graphs, GRAPH_OPERATIONS, BRANCHES, actors
    ):
        # Without a bundle all actors and branches are alike.
        is_plain = graph == "wiki" or state is RunState.DEFAULT_DENY
        if is_plain and (branch != "draft" or actor not in ("lead", "stranger")):
            continue
        for request in requests_of(operation, branch):
            counts[check_cell(serving, graph, actor, request)] += 1
    assert (counts[False] == 0) is (state is RunState.OPEN)
    assert counts[True] > 0
    before = len(serving.graphs["kb"].graph.commits("main"))
    assert before == len(serving.graphs["wiki"].graph.commits("main"))


def test_the_truth_table_of_version_2_over_http(serving):
    """Rules for branches and stored queries."""
    serving.become(RunState.POLICY)
    serving.cluster.policy("rules", SCOPED, ["graph.kb"])
    serving.reload(serving.read())
    serving.second = ListedAccess()
    counts = {True: 0, False: 0}
    for operation, branch, actor in itertools.product(GRAPH_OPERATIONS, BRANCHES, ACTORS):
        for request in requests_of(operation, branch):
            counts[check_cell(serving, "kb", actor, request)] += 1
    assert min(counts.values()) > 100
    # The caller may run one stored query on any branch, and no text of its own.
    cells = {
        request.path: serving.expected("kb", "caller", request)
        for operation in ("cluster_query", "cluster_invoke_query")
        for request in requests_of(operation, "draft")
    }
    assert cells["/queries/all"] is None
    assert cells["/queries/add"] == "stored query not found"
    assert cells["/query"] == "branch 'draft' not found"


@pytest.mark.parametrize("state", RunState)
def test_the_requests_to_the_server_itself(serving, state):
    serving.become(state)
    for request in SERVER_REQUESTS.values():
        for actor in (None,) if state is RunState.OPEN else ACTORS:
            response = serving.send(actor, request)
            # The harness has no supervisor that could reload, and no cluster to change.
            allowed = {200, 501, 409}
            # The harness listens on a loopback address, where metrics are free.
            is_free = state is RunState.OPEN or request.path == "/metrics"
            if is_free or (state is RunState.POLICY and actor == "lead"):
                assert response.status in allowed, response
            else:
                assert response.status == 403, response
            if response.status == 403 and state is RunState.DEFAULT_DENY:
                assert "explicit cluster policy bundle" in response.json["error"]
    listed = serving.send(None if state is RunState.OPEN else "lead", SERVER_REQUESTS["listGraphs"])
    if listed.status == 200:
        assert [graph["graph_id"] for graph in listed.json["graphs"]] == ["kb", "wiki"]


def test_a_token_is_needed_in_every_state_but_open(serving):
    for state in (RunState.DEFAULT_DENY, RunState.POLICY):
        serving.become(state)
        for operation in GRAPH_OPERATIONS:
            for request in requests_of(operation, "draft"):
                response = serving.send(None, request, "/graphs/kb")
                response.fails(401, "missing bearer token", code="unauthorized")


def headers_of(response: Response) -> dict[str, str]:
    """The headers of a response, apart from the time."""
    return {name: value for name, value in response.headers.items() if name != "date"}


def test_hidden_and_absent_are_the_same_bytes(serving):
    """For every operation, to actors without any right and with ids of one length."""
    serving.become(RunState.POLICY)
    for operation, actor in itertools.product(GRAPH_OPERATIONS, ("idle", "stranger")):
        for request in requests_of(operation, "draft"):
            hidden = serving.send(actor, request, "/graphs/kb")
            absent = serving.send(actor, request, "/graphs/zz")
            assert hidden.status == absent.status == 404
            assert hidden.body == absent.body.replace(b"'zz'", b"'kb'")
            assert headers_of(hidden) == headers_of(absent)


def test_head_is_decided_like_get(serving):
    serving.become(RunState.POLICY)
    for operation, actor in itertools.product(GRAPH_OPERATIONS, ("lead", "writer", "idle")):
        for request in requests_of(operation, "main"):
            if request.method == "GET":
                whole = serving.send(actor, request, KB)
                request.method = "HEAD"
                head = serving.send(actor, request, KB)
                assert (head.status, head.body) == (whole.status, b"")
                assert head.headers.get("content-length") == whole.headers.get("content-length")


def test_a_snapshot_is_read_by_the_right_on_its_branch(serving):
    """And who may not list commits cannot tell one that exists from one that does not."""
    serving.become(RunState.POLICY)
    graph = serving.graphs["kb"].graph
    commit = graph.commits("main")[0].commit_id
    unknown = commit[:-4] + ("0000" if commit[-4:] != "0000" else "1111")

    def read(actor: str, snapshot: str) -> Response:
        body = {"query": READ, "snapshot": snapshot}
        return serving.send(actor, Request("POST", "/query", [], body), KB)

    read("reader", commit).ok()
    read("reader", unknown).fails(404, "not found")
    hidden, absent = read("writer", commit), read("writer", unknown)
    assert hidden.status == absent.status == 404
    assert hidden.body == absent.body.replace(unknown.encode(), commit.encode())


def test_a_denial_does_not_depend_on_what_exists(serving):
    serving.become(RunState.POLICY)
    # The writer may know nothing of other protected branches than main, the reader of all.
    for actor, body, status in (("writer", "release/1", 404), ("reader", "draft", 403)):
        there = serving.send(actor, requests_of("cluster_mutate", body)[0], "/graphs/kb")
        other = f"{body[:-1]}9"
        missing = serving.send(actor, requests_of("cluster_mutate", other)[0], "/graphs/kb")
        assert there.status == missing.status == status
        assert there.body == missing.body.replace(other.encode(), body.encode())


def test_a_stored_query_that_is_denied_looks_unknown(serving):
    serving.become(RunState.POLICY)
    unknown = Request("POST", "/queries/nothing", [])
    invoke = Request("POST", "/queries/add", [], {"branch": "draft", "params": {"name": "z"}})
    denied = serving.send("writer", invoke, "/graphs/kb")
    assert denied.status == 404
    assert denied.body == serving.send("writer", unknown, "/graphs/kb").body
    assert denied.body == serving.send("lead", unknown, "/graphs/kb").body
    # With invoke_query and without change, the inner check denies.
    on_release = Request("POST", "/queries/add", [], {**invoke.body, "branch": "release/1"})
    inner = serving.send("caller", on_release, "/graphs/kb")
    inner.fails(403, "policy denied action 'change' on branch 'release/1' for actor 'caller'")
    # Nothing allows the caller to know of unprotected branches.
    serving.send("caller", invoke, "/graphs/kb").fails(404, "branch 'draft' not found")


def test_identities_in_headers_and_bodies_are_ignored(serving):
    serving.become(RunState.POLICY)
    claims = {
        "X-Actor-Id": "lead",
        "X-Omnigraph-Actor": "lead",
        "X-Forwarded-User": "lead",
        "Omnigraph-Actor": "lead",
    }
    body = {
        "query": ADD,
        "params": {"name": "claimed"},
        "actor": "lead",
        "actor_id": "lead",
        "branch": "main",
    }
    denied = serving.send("writer", Request("POST", "/mutate", [], body, headers=claims), KB)
    denied.fails(403, "policy denied action 'change' on branch 'main' for actor 'writer'")
    allowed = {**body, "branch": "draft"}
    answer = serving.send("writer", Request("POST", "/mutate", [], allowed, headers=claims), KB)
    assert answer.ok()["actor_id"] == "writer"
    newest = serving.graphs["kb"].graph.commits("draft")[0]
    assert (newest.actor, answer.headers["omnigraph-commit"]) == ("writer", newest.commit_id)


KB = "/graphs/kb"


@contextmanager
def open_boundary(serving: Serving) -> Iterator[None]:
    """Let the first gate allow everything; the graphs still ask the policy."""
    serving.server.swap(access=ListedAccess())
    yield
    serving.become(RunState.POLICY)


def test_the_graph_denies_what_the_boundary_lets_through(serving):
    serving.become(RunState.POLICY)
    before = {branch: serving.graphs["kb"].graph.commits(branch) for branch in ("main", "draft")}
    with open_boundary(serving):
        for request in (
            Request("POST", "/mutate", [], {"query": ADD, "params": {"name": "q"}}),
            Request("POST", "/load", [], {"data": '{"type": "Task", "data": {"name": "q"}}'}),
            Request("POST", "/branches", [], {"name": "release/2"}),
            Request("DELETE", "/branches/release%2F1", []),
            Request("POST", "/branches/merge", [], {"source": "draft", "target": "main"}),
            Request("POST", "/queries/add", [], {"params": {"name": "q"}}),
        ):
            response = serving.send("writer", request, KB)
            response.fails(403, "policy denied action", code="forbidden")
            assert "for actor 'writer'" in response.json["error"]
    assert before == {
        branch: serving.graphs["kb"].graph.commits(branch) for branch in ("main", "draft")
    }
    assert set(serving.graphs["kb"].graph.branches.list()) == {"main", "draft", "release/1"}


def test_a_load_that_forks_needs_both_rights(serving):
    serving.become(RunState.POLICY)
    row = '{"type": "Task", "data": {"name": "f"}}'
    body = {"branch": "release/new", "from": "main", "data": row}
    refused = serving.send("writer", Request("POST", "/load", [], body), KB)
    refused.fails(403, "policy denied action 'change' on branch 'release/new'")
    made = serving.send("writer", Request("POST", "/load", [], {**body, "branch": "mine"}), KB)
    assert made.ok()["branch_created"]
    serving.send("writer", Request("DELETE", "/branches/mine", []), KB).ok()


def test_a_reload_revokes_tokens_and_rights(serving):
    """In force with the next request."""
    serving.become(RunState.POLICY)
    query = requests_of("cluster_query", "draft")[0]
    serving.send("writer", query, KB).ok()
    serving.cluster.policy("rules", BUNDLE.replace("writers: [writer]", "writers: [x]"), ["kb"])
    serving.reload(serving.read())
    serving.send("writer", query, KB).fails(404, "graph 'kb' not found")
    serving.tokens.write_text(json.dumps({a: t for a, t in TOKENS.items() if a != "writer"}))
    serving.reload(serving.read())
    serving.send("writer", query, KB).fails(401, "invalid bearer token")
    serving.tokens.write_text(json.dumps(TOKENS))
    serving.become(RunState.POLICY)
    serving.send("writer", query, KB).ok()


def test_a_refused_reload_names_no_file(serving):
    serving.become(RunState.POLICY)

    async def refuse() -> None:
        raise ServerNotReady("bearer tokens: cannot read '/etc/tokens.json'")

    serving.server.process.reload = refuse
    try:
        answer = serving.send("lead", SERVER_REQUESTS["reload"])
    finally:
        serving.server.process.reload = None
    answer.fails(409, "the old state stays in force", code="conflict")
    assert b"tokens.json" not in answer.body
    assert answer.json["reason"] == "reload_refused"


def test_every_decision_is_logged_with_its_rule_and_without_data(serving):
    serving.become(RunState.POLICY)
    serving.collect().clear()
    body = {"query": ADD, "params": {"name": "top-secret-name"}, "branch": "main"}
    serving.send("writer", Request("POST", "/mutate", [], body), KB).fails(403)
    serving.send("reader", requests_of("cluster_query", "draft")[0], KB).ok()
    logged = [line for line in serving.collect() if line["event"] == "policy decision"]
    names = ("actor_id", "action", "branch", "target_branch", "allowed", "matched_rule_id")
    assert [tuple(line.get(name) for name in names) for line in logged] == [
        ("writer", "change", "main", None, False, None),
        ("reader", "read", "draft", None, True, "read"),
    ]
    assert {line["request_id"] for line in logged} == {"r1"}
    assert "top-secret-name" not in json.dumps(serving.lines)


def test_no_token_was_in_an_answer_a_log_line_or_a_metric(serving):
    """Runs last, over everything that the tests of this file made the server say."""
    serving.become(RunState.POLICY)
    headers = {"Authorization": "Bearer tk-unknown-3b9f"}
    serving.send(None, Request("GET", "/graphs", [], headers=headers)).fails(401)
    metrics = serving.send("lead", SERVER_REQUESTS["metrics"]).body
    lines = serving.collect()
    said = b"".join(serving.seen) + metrics + json.dumps(lines).encode()
    assert len(said) > 10_000
    assert b"3b9f" not in said
    assert "3b9f" not in repr(vars(serving.server.process.state.tokens))
