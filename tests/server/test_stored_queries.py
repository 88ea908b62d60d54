"""Stored queries of a server: the catalogue, deprecation, and queries that a schema breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import NotFound, QueryBroken, SchemaChangeRefused
from tests.server.serving import QUERIES, SCHEMA, ListedAccess, Server, open_served, serving

OLD = """
query old($n: String) @deprecated("use `adults`")
{ match { $p: Person { name: $n } } return { $p.age } }
query secret() { match { $c: City } return { $c.name } }
"""
STORED = {**QUERIES, "old": OLD, "secret": OLD}
TOKENS = {"secret-ana": "ana", "secret-bo": "bo"}
WITHOUT_AGE = SCHEMA.replace("    age: I32?\n", "")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with open_served(tmp_path / "g.omni") as graph:
        yield graph


@pytest.fixture
def server(graph: Graph) -> Iterator[Server]:
    access = ListedAccess(denied={("invoke_query", "query", "secret")})
    with serving({"g": graph}, queries=STORED, tokens=TOKENS, access=access) as server:
        yield server


def test_the_catalogue_has_schemas_that_results_fit(server: Server) -> None:
    ana = server.client("secret-ana", "g")
    entries = {entry["name"]: entry for entry in ana.get("/queries").ok()["queries"]}
    assert list(entries) == ["add_person", "adults", "old"]
    rows = ana.post("/queries/adults", {"params": {"age": 1}}).ok()["rows"]
    assert len(rows) == 2
    jsonschema.validate(rows, entries["adults"]["result_schema"])
    jsonschema.validate({"age": 1}, entries["adults"]["params_schema"])
    added = ana.post("/queries/add_person", {"params": {"name": "Bo"}}).ok()
    jsonschema.validate(added, entries["add_person"]["result_schema"])


def test_a_deprecated_query_says_so_in_the_catalogue_and_in_each_answer(server: Server) -> None:
    ana = server.client("secret-ana", "g")
    shown = ana.get("/queries/old")
    assert shown.ok()["deprecated"] == "use `adults`"
    # Twice: the second look-up is answered from memory.
    replies = [shown, *(ana.post("/queries/old", {"params": {"n": "Ada"}}) for _ in range(3))]
    assert [reply.headers.get("deprecation") for reply in replies] == ["true"] * 4
    assert "deprecation" not in ana.post("/queries/adults", {"params": {"age": 1}}).headers


def test_a_query_is_shown_without_its_neighbours_and_a_denied_one_is_unknown(
    server: Server,
) -> None:
    ana = server.client("secret-ana", "g")
    source = ana.get("/queries/old").ok()["source"]
    assert source.startswith("query old(")
    assert "secret" not in source
    unknown, denied = (ana.get(f"/queries/{name}") for name in ("none", "secret"))
    unknown.fails(404, "stored query not found")
    bodies = [{**reply.json, "request_id": None} for reply in (unknown, denied)]
    assert bodies[0] == bodies[1]


def test_a_forced_apply_breaks_queries_which_are_refused_until_they_fit_again(
    server: Server,
) -> None:
    with omnigraph.connect(server.url, graph="g", token="secret-ana") as remote:
        assert remote.queries.invoke("old", {"n": "Ada"}).rows() == [{"p.age": 36}]
        with pytest.raises(SchemaChangeRefused, match=r"'adults'.*'old'") as refused:
            remote.schema.apply(WITHOUT_AGE)
        assert "allow_broken_queries" in (refused.value.hint or "")
        applied = remote.schema.apply(WITHOUT_AGE, allow_broken_queries=True)
        assert applied.broken_queries == ("adults", "old")
        assert list(remote.queries.check()) == ["adults", "old"]
        assert remote.queries.get("old").result_schema is None
        for name, params in (("adults", {"age": 1}), ("old", {"n": "Ada"})):
            with pytest.raises(QueryBroken, match="does not fit the schema"):
                remote.queries.invoke(name, params)
        answer = server.client("secret-ana", "g").post("/queries/adults", {"params": {"age": 1}})
        assert answer.fails(409, code="conflict")["reason"] == "query_broken"
        # A denied query is unknown, broken or not.
        with pytest.raises(NotFound, match="stored query not found"):
            remote.queries.invoke("secret")
        remote.queries.invoke_mutation("add_person", {"name": "Bo"})
        remote.schema.apply(SCHEMA)
        assert remote.queries.check() == {}
        assert remote.queries.invoke("adults", {"age": 1}).row_count == 0
    events = [line for line in server.log_lines() if line["event"] == "stored query broken"]
    assert [line["query"] for line in events] == ["adults", "old"]


def test_a_schema_that_another_program_changes_breaks_queries_at_once(
    server: Server, graph: Graph
) -> None:
    ana = server.client("secret-ana", "g")
    assert "broken" not in ana.get("/queries/adults").ok()
    ana.get("/queries").ok()
    with Graph.open(graph.uri) as other:
        other.schema.apply(WITHOUT_AGE)
    listed = {entry["name"]: entry for entry in ana.get("/queries").ok()["queries"]}
    assert "age" in listed["adults"]["broken"]
    ana.post("/queries/adults", {"params": {"age": 1}}).fails(409)
