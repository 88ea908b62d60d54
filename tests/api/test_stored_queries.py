"""Stored queries of an embedded graph: listed, invoked, and checked at schema applies."""

from __future__ import annotations

import jsonschema
import pytest

from omnigraph import Graph, Policy
from omnigraph.errors import (
    InputError,
    ParameterError,
    PolicyDenied,
    QueryBroken,
    QueryError,
    QueryNotFound,
    SchemaChangeRefused,
)

SCHEMA = """
node Person { name: String @key  age: I64?  score: F64?  tags: [String]?  born: Date? }
edge Knows: Person -> Person
"""
QUERIES = {
    "people.gq": """
query older($age: I64, $names: [String]?) @description("People of at least an age")
    @deprecated("use `grown` instead")
{ match { $p: Person  $p.age >= $age } return { $p.name, $p.age } order { $p.name } }
query all() { match { $p: Person } return { $p, $p.score, $p.tags, $p.born, count($p) as n } }
""",
    "writes.gq": "query add($name: String, $age: I64?) "
    "{ insert Person { name: $name, age: $age } }",
}
WITHOUT_AGE = SCHEMA.replace("age: I64?", "")


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "queries"
    directory.mkdir()
    for name, text in QUERIES.items():
        (directory / name).write_text(text)
    return directory


@pytest.fixture
def graph(tmp_path, directory):
    with Graph.init(tmp_path / "g.omni", SCHEMA, queries=directory, durability="os") as graph:
        graph.load([{"type": "Person", "data": {"name": "Ada", "age": 36, "tags": ["x"]}}])
        yield graph


def test_they_are_listed_with_types_texts_and_schemas(graph):
    queries = {query.name: query for query in graph.queries}
    assert list(queries) == ["add", "all", "older"]
    assert queries["older"] == graph.queries.get("older")
    assert queries["older"].params == {"age": "I64", "names": "[String]?"}
    assert queries["older"].deprecated == "use `grown` instead"
    assert (queries["add"].is_mutation, queries["all"].is_mutation) == (True, False)
    assert queries["add"].result_schema["required"] == ["affected_nodes", "affected_edges"]
    with pytest.raises(QueryNotFound, match="stored query 'oldr' not found") as caught:
        graph.queries.get("oldr")
    assert caught.value.hint == "did you mean `older`?"


@pytest.mark.parametrize("form", ["native", "sdk"])
def test_results_fit_their_schema(graph, form):
    graph.load([{"type": "Person", "data": {"name": "Big", "age": 2**53 + 1, "score": 1.5}}])
    for name, params in (("older", {"age": 1}), ("all", None)):
        rows = graph.queries.invoke(name, params).json_rows(form)
        assert rows
        jsonschema.validate(rows, graph.queries.get(name).result_schema)


@pytest.mark.parametrize(
    ("params", "fits"),
    [
        ({"age": 3}, True),
        ({"age": "9007199254740993", "names": None}, True),
        ({"age": 3, "names": ["a"]}, True),
        ({}, False),
        ({"age": "many"}, False),
        ({"age": 3, "names": [1]}, False),
        ({"age": 3, "nams": None}, False),
    ],
)
def test_the_schema_of_the_parameters_accepts_what_the_query_accepts(graph, params, fits):
    schema = graph.queries.get("older").params_schema
    assert jsonschema.Draft202012Validator(schema).is_valid(params) == fits
    if fits:
        graph.queries.invoke("older", params)


def test_a_read_runs_on_a_branch_or_at_a_commit_and_a_mutation_once_per_key(graph):
    before = graph.commits()[0].commit_id
    graph.branches.create("side")
    receipts = [
        graph.queries.invoke_mutation("add", {"name": "Bo"}, "side", idempotency_key="k")
        for _ in range(2)
    ]
    assert receipts[0].commit_id == receipts[1].commit_id
    assert [graph.queries.invoke("all", branch=b).row_count for b in ("main", "side")] == [1, 2]
    assert graph.queries.invoke("all", at=before).row_count == 1


def test_the_wrong_kind_and_wrong_parameters_are_refused(graph):
    with pytest.raises(InputError, match="'add' is a mutation"):
        graph.queries.invoke("add")
    with pytest.raises(InputError, match="'older' is a read"):
        graph.queries.invoke_mutation("older")
    with pytest.raises(ParameterError):
        graph.queries.invoke("older", {"age": "many"})


def test_an_apply_that_breaks_queries_names_them_and_changes_nothing(graph):
    version = graph.snapshot().version
    with pytest.raises(SchemaChangeRefused, match=r"stored queries: 'add'.*'older'") as error:
        graph.schema.apply(WITHOUT_AGE)
    assert error.value.details["queries"] == ["add", "older"]
    assert graph.schema.apply(WITHOUT_AGE, dry_run=True).broken_queries == ("add", "older")
    assert (graph.snapshot().version, graph.queries.check()) == (version, {})


def test_broken_queries_are_refused_until_the_schema_mends_them(graph):
    before = graph.commits()[0].commit_id
    applied = graph.schema.apply(WITHOUT_AGE, allow_broken_queries=True)
    assert applied.broken_queries == ("add", "older")
    assert list(graph.queries.check()) == ["add", "older"]
    assert graph.queries.get("older").result_schema is None
    assert "age" in graph.queries.get("older").broken
    for call in (
        lambda: graph.queries.invoke("older", {"age": 1}),
        lambda: graph.queries.invoke_mutation("add", {"name": "Bo"}),
    ):
        with pytest.raises(QueryBroken, match="does not fit the schema") as error:
            call()
        assert error.value.details["query"] in ("older", "add")
    # Under the schema of an earlier state the query is right.
    assert graph.queries.invoke("older", {"age": 1}, at=before).row_count == 1
    # What is broken already does not stand in the way of other changes.
    graph.schema.apply(WITHOUT_AGE + "node City { name: String @key }")
    graph.schema.apply(SCHEMA + "node City { name: String @key }")
    assert graph.queries.check() == {}
    assert graph.queries.invoke("older", {"age": 1}).row_count == 0


def test_another_handle_sees_the_break_and_a_mended_registry_the_mend(graph, directory):
    with Graph.open(graph.uri, "r", queries=directory) as other:
        assert other.queries.check() == {}
        with Graph.open(graph.uri) as plain:
            # A handle without stored queries has none to break.
            plain.schema.apply(WITHOUT_AGE)
        assert list(other.queries.check()) == ["add", "older"]
    (directory / "writes.gq").write_text("query add($n: String) { insert Person { name: $n } }")
    with Graph.open(graph.uri, "r", queries=directory) as mended:
        assert list(mended.queries.check()) == ["older"]


def test_a_policy_may_allow_a_stored_mutation_where_it_allows_no_other(graph, directory):
    policy = Policy.parse(
        "{version: 2, groups: {bots: [bot]}, rules: [{id: add, allow: {actors: {group: bots}, "
        "actions: [invoke_query, change], queries: [add]}}]}"
    )
    graph.close()
    with Graph.open(graph.uri, policy=policy, actor="bot", queries=directory) as guarded:
        assert guarded.queries.invoke_mutation("add", {"name": "Bo"}).actor == "bot"
        with pytest.raises(PolicyDenied):
            guarded.mutate(QUERIES["writes.gq"], params={"name": "Cy"})
        with pytest.raises(PolicyDenied):
            guarded.queries.invoke_mutation("add", {"name": "Cy"}, actor="ana")


def test_a_graph_without_stored_queries_has_an_empty_registry(tmp_path):
    with Graph.init(tmp_path / "plain.omni", SCHEMA, durability="os") as graph:
        assert (graph.queries.list(), graph.queries.check()) == ([], {})


@pytest.mark.parametrize(
    ("files", "error", "text"),
    [
        ({"a.gq": "query q("}, QueryError, "a.gq"),
        (
            {"a.gq": QUERIES["writes.gq"], "b.gq": QUERIES["writes.gq"]},
            InputError,
            "declared twice",
        ),
        ({"a.gq": b"\xff"}, InputError, "not UTF-8"),
    ],
)
def test_a_wrong_text_is_refused_before_anything_is_opened(tmp_path, files, error, text):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error, match=text):
        Graph.open(tmp_path / "absent.omni", queries=tmp_path)
    with pytest.raises(InputError, match="cannot read"):
        Graph.open(tmp_path / "absent.omni", queries=tmp_path / "none")
