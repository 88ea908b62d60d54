"""The table of routes: complete, authorised, limited; and equal to the contract of 0.8.0."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omnigraph.policy.actions import ACTIONS
from omnigraph.server.admission import Draining, GraphUnavailable, Overloaded, TooMany
from omnigraph.server.errors import REASONS
from omnigraph.server.matching import RouteTable
from omnigraph.server.openapi import document, document_text
from omnigraph.server.routes import ROUTES
from tests.server.contract import contract, operations
from tests.server.serving import QUERIES, ListedAccess, open_served, serving
from tools import http_api_page

DOCS = Path(__file__).parents[2] / "docs"
OPEN = {"health", "ready", "openapi"}
BODIES: dict[str, Any] = {
    "cluster_query": {"query": "q"},
    "cluster_read": {"query_source": "q"},
    "cluster_mutate": {"query": "q"},
    "cluster_mutate_if_graph_commit": {"query": "q"},
    "cluster_change": {"query": "q"},
    "cluster_load": {"data": ""},
    "cluster_ingest": {"data": ""},
    "cluster_applySchema": {"schema_source": ""},
    "cluster_plan_schema": {"schema_source": ""},
    "cluster_optimize": {},
    "cluster_cleanup": {},
    "cluster_repair": {},
    "cluster_verify": {},
    "cluster_ensure_indexes": {},
    "cluster_fill_embeddings": {},
    "cluster_rebuild_indexes": {"type": "Person"},
    "cluster_createBranch": {"name": "b"},
    "cluster_mergeBranches": {"source": "b"},
    "cluster_export": {},
    "cluster_explain_policy": {"actor": "bo", "action": "read"},
    "cluster_changes_baseline": {},
    "cluster_diff": {"from": "main", "to": {"branch": "b"}},
    "cluster_revert": {"commit": "c"},
    "cluster_cherry_pick": {"commit": "c"},
    "cluster_create_tag": {"name": "v1"},
    "cluster_explain": {"query": "q"},
    "applyCluster": {"files": {"cluster.yaml": "version: 1"}},
    "cluster_mcp": {"jsonrpc": "2.0", "id": 1, "method": "ping"},
}


def test_every_route_has_an_action_and_a_limit() -> None:
    assert {route.operation_id for route in ROUTES if route.action is None} == OPEN
    assert {route.operation_id for route in ROUTES if route.scope == "open"} == OPEN
    for route in ROUTES:
        assert (route.body_limit > 0) == (route.method in ("POST", "PUT"))
        assert route.request is None or route.body_limit > 0
        assert route.response is not None or route.operation_id in (
            "openapi",
            "metrics",
            "cluster_export",
            "cluster_changes_baseline",
            "cluster_get_blob",
            "cluster_mcp",
        )


def test_names_and_paths_are_distinct() -> None:
    assert len({route.operation_id for route in ROUTES}) == len(ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_the_table_has_every_operation_of_the_contract() -> None:
    ours = {route.operation_id: route for route in ROUTES}
    for listed in operations():
        route = ours[listed["operation_id"]]
        assert (route.method, route.path) == (listed["method"], listed["path"])
        assert route.deprecated == listed["deprecated"]
        assert route.since == "0.8"
        assert route.body_limit == (listed["body_limit_bytes"] or 0)
        if listed["policy"] is not None:
            assert route.action is not None
            assert route.action in listed["policy"]["action"]
        assert (route.lane == "write") == (listed["admission"] is True)
    newer = {route.operation_id for route in ROUTES if route.since != "0.8"}
    assert newer == ours.keys() - {listed["operation_id"] for listed in operations()}


@pytest.mark.parametrize("flavour", ["denied", "hidden"])
def test_no_route_answers_an_actor_who_may_nothing(flavour: str, tmp_path: Path) -> None:
    """Denied actions never reach a handler, and a hidden graph looks like an absent one."""
    access = ListedAccess()
    with open_served(tmp_path / "g.omni") as graph:
        if flavour == "denied":
            access.denied = set(ACTIONS)
        else:
            access.hidden = {("g", "ana")}
            access.denied = {"graph_list", "admin", "config_manage"}
        options = {"tokens": {"t": "ana"}, "access": access, "bind": "0.0.0.0:0"}
        with serving({"g": graph}, queries=QUERIES, **options) as server:
            client = server.client("t")
            for route in ROUTES:
                if route.action is None:
                    continue
                path = route.path.replace("{graph_id}", "g").replace("{name}", "adults")
                path = path.replace("{branch}", "b").replace("{commit_id}", "c")
                path = path.replace("{tag}", "v1").replace("{job_id}", "01J")
                path = path.replace("{deployment_id}", "d")
                if {"type", "id"} <= _names(route.query):
                    path += "?type=Person&id=Ada"
                headers = {"Omnigraph-If-Graph-Commit": "c"}
                if route.operation_id == "cluster_load_ndjson":
                    headers["Content-Type"] = "application/x-ndjson"
                if route.path.endswith("/blob"):
                    path = path.partition("?")[0] + "?type=Person&id=Ada&property=photo"
                body = BODIES.get(route.operation_id)
                answer = client.request(route.method, path, body, headers=headers)
                is_masked = route.action == "invoke_query" or flavour == "hidden"
                # Whoever may not read commits cannot tell a hidden one from an unknown one.
                is_masked |= route.operation_id in ("cluster_getCommit", "cluster_commit_changes")
                expected = 404 if is_masked and route.scope == "graph" else 403
                assert answer.status == expected, (route.operation_id, answer.body)
                if flavour == "hidden" and route.scope == "graph":
                    absent = client.request(
                        route.method, path.replace("/g/", "/absent/"), body, headers=headers
                    )
                    assert _shape(answer.json, "g") == _shape(absent.json, "absent")


def _names(model: type | None) -> set[str]:
    return set() if model is None else {field.name for field in msgspec.structs.fields(model)}


def _shape(body: dict[str, Any], graph_id: str) -> str:
    body = {**body, "request_id": ""}
    return json.dumps(body).replace(f"'{graph_id}'", "'?'")


# -- the document ----------------------------------------------------------------------------


def test_the_checked_in_document_is_the_served_one() -> None:
    """Run `make docs` after a change of the table."""
    assert (DOCS / "openapi.json").read_text("utf-8") == document_text()


def test_the_page_is_made_from_the_table() -> None:
    """Run `make docs` after a change of the table."""
    assert (DOCS / "http-api.md").read_text("utf-8") == http_api_page.page()


def test_every_reason_is_documented() -> None:
    """Whoever refuses a request names a reason of the table."""
    used = set()
    for path in sorted((DOCS.parent / "src/omnigraph/server").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            is_refusal = isinstance(node, ast.Call) and (
                isinstance(node.func, ast.Name) and node.func.id == "RequestRefused"
            )
            if is_refusal and isinstance(node.args[1], ast.Constant):  # type: ignore[attr-defined]
                used.add(node.args[1].value)  # type: ignore[attr-defined]
    assert used <= REASONS.keys()
    codes = {kind.code for kind in (TooMany, Overloaded, Draining, GraphUnavailable)}
    # The listener passes these on to a function of its own.
    codes |= {"bad_http", "head_timeout"}
    assert REASONS.keys() <= used | codes


def test_the_document_lists_exactly_the_routes() -> None:
    listed = {
        (method.upper(), path): operation["operationId"]
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    }
    assert listed == {(route.method, route.path): route.operation_id for route in ROUTES}


def test_the_document_follows_the_contract() -> None:
    made = document()
    assert made["openapi"] == "3.1.0"
    assert made["info"]["title"] == "Omnigraph API"
    assert made["components"]["securitySchemes"] == {
        "bearer_token": {"type": "http", "scheme": "bearer"}
    }
    names = made["components"]["schemas"].keys()
    names_080 = contract()["schemas"].keys() - {"InvokeStoredQueryResponse"}
    assert names_080 <= names, names_080 - names
    for path, methods in made["paths"].items():
        for operation in methods.values():
            has_security = operation.get("security") == [{"bearer_token": []}]
            assert has_security == (operation["operationId"] not in OPEN)
            if "{graph_id}" in path:
                first = operation["parameters"][0]
                assert (first["name"], first["in"], first["required"]) == ("graph_id", "path", True)
    is_open = json.dumps(document(is_open=True))
    assert "bearer_token" not in is_open
    assert '"security"' not in is_open


def test_a_literal_segment_wins_over_a_parameter() -> None:
    table = RouteTable(ROUTES)
    assert table.match(("graphs", "g", "branches", "merge")).allowed == "POST"  # type: ignore[union-attr]
    assert table.match(("graphs", "g", "branches", "")) is None
    assert table.match(("graphs", "", "schema")) is None
    assert table.match(("graphs", "g")) is None
