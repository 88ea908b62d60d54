"""Every operation of 0.8.0 answers with bodies that are valid against its contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.contract import contract, operation, operations, schema_of, violations
from tests.server.generated_client import ApiError, generate, model
from tests.server.serving import (
    ADD,
    PEOPLE,
    QUERIES,
    ROWS,
    SCHEMA,
    Client,
    Response,
    Server,
    ndjson,
    open_served,
    serving,
)

TOKENS = {"secret-ana": "ana", "secret-bo": "bo"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with (
        open_served(tmp_path_factory.mktemp("contract") / "g.omni") as graph,
        serving({"g": graph}, queries=QUERIES, tokens=TOKENS) as server,
    ):
        yield server


@pytest.fixture
def ana(server: Server) -> Client:
    return server.client("secret-ana", "g")


def check(operation_id: str, response: Response, status: int = 200) -> Any:
    """The body of a response, which must fit the contract."""
    assert response.status == status, (response.status, response.body)
    assert response.headers["omnigraph-request-id"]
    listed = operation(operation_id)
    if status == 200:
        for name, value in listed["success_headers"].items():
            assert response.headers[name] == value
    else:
        assert "deprecation" not in response.headers
    assert list(violations(response.json, schema_of(operation_id, status))) == []
    return response.json


def call(client: Client, operation_id: str, body: Any = None, **path: str) -> Response:
    """Call an operation by its row in the contract."""
    listed = operation(operation_id)
    where = listed["path"].removeprefix("/graphs/{graph_id}")
    for name, value in path.items():
        where = where.replace(f"{{{name}}}", value)
    return client.request(listed["method"], where, body)


def test_every_operation_answers_within_its_contract(server: Server, ana: Client) -> None:
    root = server.client("secret-ana")
    check("health", call(root, "health"))
    check("listGraphs", call(root, "listGraphs"))
    check("cluster_getSchema", call(ana, "cluster_getSchema"))
    check("cluster_getSnapshot", call(ana, "cluster_getSnapshot"))
    check("cluster_query", call(ana, "cluster_query", {"query": PEOPLE}))
    check("cluster_read", call(ana, "cluster_read", {"query_source": PEOPLE}))
    for name in ("cluster_mutate", "cluster_change"):
        body = {"query": ADD, "params": {"name": f"from {name}"}, "branch": None}
        check(name, call(ana, name, body))
    for name in ("cluster_load", "cluster_ingest"):
        check(name, call(ana, name, {"data": ndjson(ROWS), "mode": "merge"}))
    check("cluster_list_queries", call(ana, "cluster_list_queries"))
    params = {"params": {"age": 1}}
    check("cluster_invoke_query", call(ana, "cluster_invoke_query", params, name="adults"))
    params = {"params": {"name": "stored"}}
    check("cluster_invoke_query", call(ana, "cluster_invoke_query", params, name="add_person"))
    check("cluster_createBranch", call(ana, "cluster_createBranch", {"name": "contract"}))
    check("cluster_listBranches", call(ana, "cluster_listBranches"))
    merge = {"source": "contract"}
    check("cluster_mergeBranches", call(ana, "cluster_mergeBranches", merge))
    check("cluster_deleteBranch", call(ana, "cluster_deleteBranch", branch="contract"))
    commits = check("cluster_listCommits", call(ana, "cluster_listCommits"))["commits"]
    newest = commits[0]["graph_commit_id"]
    check("cluster_getCommit", call(ana, "cluster_getCommit", commit_id=newest))
    check("cluster_applySchema", call(ana, "cluster_applySchema", {"schema_source": SCHEMA}))
    exported = call(ana, "cluster_export", {})
    assert exported.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert all(json.loads(line) for line in exported.body.splitlines())


FAILURES = [
    ("listGraphs", "GET", "/graphs", None),
    *(
        (row["operation_id"], row["method"], row["path"], None)
        for row in operations()
        if row["operation_id"] not in ("health", "listGraphs")
    ),
]


@pytest.mark.parametrize(("operation_id", "method", "path", "body"), FAILURES)
def test_errors_are_within_the_contract(
    server: Server, operation_id: str, method: str, path: str, body: Any
) -> None:
    stranger = server.client("unknown")
    path = path.replace("{graph_id}", "g").replace("{branch}", "b").replace("{name}", "adults")
    path = path.replace("{commit_id}", "c")
    body_of_error = check(operation_id, stranger.request(method, path, body), 401)
    assert body_of_error["error"] == "invalid bearer token"
    body_of_error = check(operation_id, server.client().request(method, path, body), 401)
    assert body_of_error["error"] == "missing bearer token"
    if operation_id != "listGraphs":
        ana = server.client("secret-ana")
        absent = ana.request(method, path.replace("/graphs/g", "/graphs/absent"), body)
        assert check(operation_id, absent, 404)["error"] == "graph 'absent' not found"
        invalid = ana.request(method, path.replace("/graphs/g", "/graphs/under_score"), body)
        assert check(operation_id, invalid, 400)["code"] == "bad_request"


def test_members_are_omitted_or_null_as_the_contract_says(server: Server, ana: Client) -> None:
    omitted = {
        name.partition(".")[::2] for name in contract()["serialisation"]["omitted_when_empty"]
    }
    health = server.client().get("/healthz").ok()
    assert ("HealthOutput", "source_version") in omitted
    assert "source_version" not in health
    entries = {entry["name"]: entry for entry in ana.get("/queries").ok()["queries"]}
    assert entries["adults"] == {
        "name": "adults",
        "tool_name": "adults",
        "mutation": False,
        "params": [{"name": "age", "kind": "int", "nullable": False, "type": "I32"}],
        "description": "People of at least an age",
        "instruction": "Pass the age in years",
        "params_schema": {
            "type": "object",
            "properties": {"age": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}},
            "required": ["age"],
            "additionalProperties": False,
        },
        "result_schema": entries["adults"]["result_schema"],
    }
    assert not {"description", "instruction"} & entries["add_person"].keys()
    read = ana.post("/query", {"query": PEOPLE}).ok()
    assert read["target"] == {"branch": "main", "snapshot": None}
    commit = ana.get(f"/commits/{read['graph_commit_id']}").ok()
    assert commit["manifest_branch"] is None
    loaded = ana.post("/load", {"data": ndjson(ROWS)}).ok()
    assert loaded["base_branch"] is None
    tables = ana.get("/snapshot").ok()["tables"]
    assert [table["table_branch"] for table in tables] == [None] * len(tables)


# -- a client of 0.8 -------------------------------------------------------------------------


def test_a_client_of_the_contract_works_unchanged(server: Server) -> None:
    """The walk of the public TypeScript client, in its own words."""
    root, sdk = server.client(), server.client("secret-bo", "g")
    assert root.get("/healthz").ok()["status"] == "ok"
    assert "node Person" in sdk.get("/schema").ok()["schema_source"]
    rows = [{"type": "Person", "data": {"name": f"sdk-{n}", "age": n}} for n in range(3)]
    loaded = sdk.post("/ingest", {"data": ndjson(rows), "mode": "merge"}).ok()
    assert loaded["tables"] == [{"table_key": "node:Person", "rows_loaded": 3}]
    read = {
        "query_source": "query who($name: String) "
        "{ match { $p: Person { name: $name } } return { $p.age } }",
        "query_name": "who",
        "params": {"name": "sdk-2"},
    }
    assert sdk.post("/read", read).ok()["rows"] == [{"p.age": 2}]
    created = sdk.post("/branches", {"name": "feature/sdk"}).ok()
    assert (created["from"], created["name"], created["actor_id"]) == ("main", "feature/sdk", "bo")
    change = {"query_source": ADD, "params": {"name": "sdk-new"}, "branch": "feature/sdk"}
    assert sdk.post("/change", change).ok()["affected_nodes"] == 1
    new = {**read, "params": {"name": "sdk-new"}}
    assert sdk.post("/read", new).ok()["row_count"] == 0
    assert sdk.post("/read", {**new, "branch": "feature/sdk"}).ok()["row_count"] == 1
    merged = sdk.post("/branches/merge", {"source": "feature/sdk"}).ok()
    assert merged["outcome"] == "fast_forward"
    assert merged["actor_id"] == "bo"
    commits = sdk.get("/commits").ok()["commits"]
    assert len(commits) >= 3
    head = commits[0]["graph_commit_id"]
    assert sdk.get(f"/commits/{head}").ok() == commits[0]
    tables = {row["table_key"]: row["row_count"] for row in sdk.get("/snapshot").ok()["tables"]}
    exported = sdk.post("/export", {}).body.splitlines()
    assert len(exported) == sum(tables.values())
    assert sdk.delete("/branches/feature%2Fsdk").ok()["name"] == "feature/sdk"
    refused = sdk.delete("/branches/main").fails(400, "cannot delete branch 'main'")
    assert refused["code"] == "bad_request"
    server.client("wrong", "g").get("/branches").fails(401, code="unauthorized")
    for removed in ("/runs", "/runs/1"):
        sdk.get(removed).fails(404)


def test_a_client_generated_from_the_contract_works_unchanged(server: Server) -> None:
    """Every operation, called and decoded by nothing but what the contract lists."""
    sdk = generate()(server.client("secret-bo"))
    assert sdk.health().status == "ok"
    assert [graph.graph_id for graph in sdk.listGraphs().graphs] == ["g"]
    schema = sdk.cluster_getSchema(graph_id="g").schema_source
    sdk.cluster_applySchema(model("SchemaApplyRequest")(schema_source=schema), graph_id="g")
    rows = [{"type": "Person", "data": {"name": f"generated-{n}", "age": n}} for n in range(3)]
    data = model("IngestRequest")(data=ndjson(rows), mode="merge")
    for load in (sdk.cluster_load, sdk.cluster_ingest):
        (table,) = load(data, graph_id="g").tables
        assert (table.table_key, table.rows_loaded) == ("node:Person", 3)

    branch = "feature/generated"
    created = model("BranchCreateRequest")(name=branch, from_="main")
    assert sdk.cluster_createBranch(created, graph_id="g").from_ == "main"
    assert branch in sdk.cluster_listBranches(graph_id="g").branches
    for number, change in enumerate((sdk.cluster_mutate, sdk.cluster_change)):
        added = {"query": ADD, "params": {"name": f"generated-new-{number}"}, "branch": branch}
        assert change(model("ChangeRequest")(**added), graph_id="g").affected_nodes == 1
    stored = model("InvokeStoredQueryRequest")(params={"age": 2})
    assert sdk.cluster_invoke_query(stored, graph_id="g", name="adults").row_count >= 1
    stored = model("InvokeStoredQueryRequest")(params={"name": "generated-stored"})
    assert sdk.cluster_invoke_query(stored, graph_id="g", name="add_person").affected_nodes == 1
    names = {entry.name for entry in sdk.cluster_list_queries(graph_id="g").queries}
    assert {"adults", "add_person"} <= names

    on_branch = model("QueryRequest")(query=PEOPLE, branch=branch)
    on_main = model("ReadRequest")(query_source=PEOPLE)
    before = sdk.cluster_read(on_main, graph_id="g").row_count
    # Two rows are on the branch only, one on main only.
    assert sdk.cluster_query(on_branch, graph_id="g").row_count == before + 1
    merge = model("BranchMergeRequest")(source=branch)
    assert sdk.cluster_mergeBranches(merge, graph_id="g").outcome == "merged"
    assert sdk.cluster_read(on_main, graph_id="g").row_count == before + 2
    head = sdk.cluster_listCommits(graph_id="g", branch="main").commits[0]
    assert sdk.cluster_getCommit(graph_id="g", commit_id=head.graph_commit_id) == head
    tables = sdk.cluster_getSnapshot(graph_id="g", branch="main").tables
    exported = sdk.cluster_export(model("ExportRequest")(), graph_id="g")
    assert len(exported) == sum(table.row_count for table in tables)
    assert sdk.cluster_deleteBranch(graph_id="g", branch=branch).name == branch
    with pytest.raises(ApiError) as refused:
        sdk.cluster_deleteBranch(graph_id="g", branch="main")
    assert (refused.value.status, refused.value.output.code) == (400, "bad_request")
    assert sdk.called == {row["operation_id"] for row in operations()}


def test_head_has_the_headers_of_get_and_no_body(server: Server, ana: Client) -> None:
    for client, path in (
        (server.client(), "/healthz"),
        (server.client(), "/openapi.json"),
        (server.client("secret-ana"), "/graphs"),
        (ana, "/schema"),
        (ana, "/snapshot"),
        (ana, "/branches"),
        (ana, "/commits"),
        (ana, "/queries"),
    ):
        got, head = client.get(path), client.request("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
        assert head.headers["content-type"] == got.headers["content-type"]
    assert ana.request("HEAD", "/branches/merge").status == 405
