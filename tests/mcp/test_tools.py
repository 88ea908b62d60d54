"""The tools of a graph, without the protocol."""

from __future__ import annotations

import json

import jsonschema
import pytest

from omnigraph.api.stored_queries import StoredQueries
from omnigraph.errors import InputError, PolicyDenied
from omnigraph.mcp.toolbox import Toolbox
from omnigraph.mcp.tools import UnknownTool

PEOPLE = "query people() { match { $p: Person } return { $p.name } order { $p.name } }"
ADD = "query add($n: String) { insert Person { name: $n } }"


@pytest.fixture
def toolbox(context_of):
    return Toolbox(context_of())


def data_of(result):
    assert not result.is_error, result.text
    return json.loads(result.text)


def error_of(result):
    assert result.is_error
    return json.loads(result.text)


class Granted:
    """Allows some actions, on some branches, and some stored queries."""

    def __init__(self, *actions, branches=None, queries=None):
        self._actions, self._branches, self._queries = actions, branches, queries

    def may(self, action, branch=None, target=None, query=None):
        where = target or branch
        is_there = self._branches is None or where is None or where in self._branches
        is_granted = query is None or self._queries is None or query in self._queries
        return action in self._actions and is_there and is_granted

    def require(self, action, branch=None, target=None, query=None):
        if not self.may(action, branch, target, query):
            raise PolicyDenied(f"policy denied action '{action}'")


# -- reading ----------------------------------------------------------------------------------


def test_the_schema_lists_types_with_their_properties(toolbox):
    schema = data_of(toolbox.call("graph_schema", {}))
    assert schema["node_types"]["Person"]["key"] == ["name"]
    assert schema["edge_types"]["LivesIn"] == {"from": "Person", "to": "City", "properties": {}}
    assert "edge Knows: Person -> Person" in schema["schema"]


def test_a_search_finds_texts_of_all_types_best_first(toolbox):
    hits = data_of(toolbox.call("graph_search", {"text": "compiler program"}))["hits"]
    assert {(hit["type"], hit["id"], hit["property"]) for hit in hits} == {
        ("Person", "Grace", "bio"),
        ("Person", "Ada", "bio"),
    }
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)


def test_a_search_in_a_type_without_an_index_uses_its_texts(toolbox):
    answer = data_of(toolbox.call("graph_search", {"text": "london", "type": "City"}))
    assert [hit["id"] for hit in answer["hits"]] == ["London"]


def test_neighbours_have_the_edge_and_the_node(toolbox):
    answer = data_of(toolbox.call("graph_neighbours", {"type": "Person", "id": "Ada"}))
    assert [(n["edge_type"], n["direction"], n["node"]["name"]) for n in answer["neighbours"]] == [
        ("Knows", "out", "Grace"),
        ("LivesIn", "out", "London"),
    ]
    assert answer["neighbours"][0]["edge"]["since"] == "1950-01-02"
    back = data_of(
        toolbox.call("graph_neighbours", {"type": "Person", "id": "Grace", "direction": "in"})
    )
    assert [n["node"]["name"] for n in back["neighbours"]] == ["Ada"]


def test_the_pages_of_neighbours_are_those_of_the_library_in_one_order(context_of, graph):
    people = [f"p{n * 7 % 23:02}" for n in range(23)]
    graph.load([{"type": "Person", "data": {"name": name}} for name in people])
    for name in people:
        graph.load([{"edge": "Knows", "from": "Ada", "to": name}], "append")
    graph.load([{"edge": "Knows", "from": name, "to": "Ada"} for name in people[:4]], "append")
    whole = graph.snapshot().neighbours("Person", "Ada", limit=1_000)
    # Out before in, then by the other node.
    expected = [("out", name) for name in sorted([*people, "Grace"])]
    expected += [("in", name) for name in sorted(people[:4])]
    assert [(n.direction, n.node["name"]) for n in whole[:-1]] == expected
    for limit in (1, 5, 24, 26, 28, 29):
        assert graph.snapshot().neighbours("Person", "Ada", limit=limit) == whole[:limit]
    toolbox, given = Toolbox(context_of()), {"type": "Person", "id": "Ada", "limit": 4}
    pages = [data_of(toolbox.call("graph_neighbours", given))]
    graph.load([{"edge": "Knows", "from": "Ada", "to": "Ada"}], "append")
    while "cursor" in pages[-1]:
        sent = given | {"cursor": pages[-1]["cursor"]}
        pages.append(data_of(toolbox.call("graph_neighbours", sent)))
    read = [row for page in pages for row in page["neighbours"]]
    assert [row["edge"]["id"] for row in read] == [row.edge["id"] for row in whole]
    assert [len(page["neighbours"]) for page in pages] == [4] * 7 + [1]


def test_integers_beyond_two_to_the_53_are_texts(toolbox):
    entity = data_of(toolbox.call("graph_entity", {"type": "Person", "id": "Grace"}))["entity"]
    assert entity["age"] == "9007199254740993"
    rows = data_of(toolbox.call("older", {"min": "9007199254740993"}))["rows"]
    assert rows == [{"p.name": "Grace", "p.age": "9007199254740993"}]


def test_a_mistake_in_a_query_has_its_place_and_a_correction(toolbox):
    wrong = {"query": "query q() { match { $p: Person } return { $p.nam } }"}
    error = error_of(toolbox.call("graph_query", wrong))
    assert error["code"] == "query_invalid"
    assert error["hint"] == "did you mean `name`?"
    assert "^^^" in error["shown"]


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("graph_entity", {"type": "Persn", "id": "Ada"}, "there is no type 'Persn'"),
        ("graph_entity", {"type": "Person", "id": "Zoe"}, "there is no Person 'Zoe'"),
        ("graph_entity", {"id": "Ada"}, "tool `graph_entity` needs the argument `type`"),
        ("graph_entity", {"type": 3, "id": "Ada"}, "argument `type` must be string"),
        ("graph_query", {"query": PEOPLE, "limt": 3}, "tool `graph_query` has no argument `limt`"),
        ("graph_query", {"query": PEOPLE, "limit": True}, "argument `limit` must be integer"),
        ("graph_query", {"query": PEOPLE, "limit": 0}, "limit must be at least 1"),
        ("graph_query", {"query": PEOPLE, "cursor": "x"}, "the cursor is invalid, or too old"),
        ("graph_query", {"query": PEOPLE, "branch": "none"}, "branch 'none' not found"),
        ("older", {"min": "many"}, "param 'min': expected integer or decimal string, got string"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(toolbox, tool, arguments, message):
    assert error_of(toolbox.call(tool, arguments))["error"].startswith(message)


def test_an_unknown_tool_is_not_a_result(toolbox):
    with pytest.raises(UnknownTool):
        toolbox.call("nothing", {})


# -- pages ------------------------------------------------------------------------------------


def test_pages_are_those_of_one_state_whatever_is_written_between(graph, context_of):
    graph.load([{"type": "Person", "data": {"name": f"p{n:03}"}} for n in range(100)])
    toolbox = Toolbox(context_of(max_rows=30))
    names, arguments = [], {"query": PEOPLE}
    while True:
        page = data_of(toolbox.call("graph_query", arguments))
        names += [row["p.name"] for row in page["rows"]]
        if not page["truncated"]:
            break
        arguments = {"query": PEOPLE, "cursor": page["cursor"]}
        graph.load([{"type": "Person", "data": {"name": f"o{len(names):03}"}}])
    assert names == ["Ada", "Grace", *(f"p{n:03}" for n in range(100))]


def test_a_result_is_cut_by_bytes_too_and_says_how_to_go_on(graph, context_of):
    graph.load([{"type": "Person", "data": {"name": f"{n}", "bio": "x" * 900}} for n in range(50)])
    toolbox = Toolbox(context_of(max_bytes=10_000))
    text = "query q() { match { $p: Person } return { $p.name, $p.bio } }"
    result = toolbox.call("graph_query", {"query": text})
    assert len(result.text) < 11_000
    assert data_of(result)["cursor"] in result.text
    assert "cursor" in data_of(result)["note"]


def test_a_row_that_is_too_long_is_said_and_not_returned(graph, context_of):
    graph.load([{"type": "Person", "data": {"name": "Long", "bio": "x" * 9_000}}])
    toolbox = Toolbox(context_of(max_bytes=5_000))
    text = 'query q() { match { $p: Person { name: "Long" } } return { $p.bio } }'
    page = data_of(toolbox.call("graph_query", {"query": text}))
    assert (page["rows"], page["truncated"]) == ([], True)
    assert "fewer columns" in page["note"]


def test_a_cursor_is_for_its_query_and_parameters_only(context_of):
    toolbox = Toolbox(context_of(max_rows=1))
    page = data_of(toolbox.call("older", {"min": 1}))
    error = error_of(toolbox.call("older", {"min": 2, "cursor": page["cursor"]}))
    assert error["error"].startswith("the cursor belongs to another query, to other parameters")


# -- writing ----------------------------------------------------------------------------------


def test_an_agent_enriches_a_branch_and_another_reviews_and_merges_it(graph, toolbox):
    data_of(toolbox.call("branch_create", {"name": "agents/one"}))
    arguments = {"query": ADD, "params": {"n": "Alan"}, "branch": "agents/one"}
    receipt = data_of(toolbox.call("graph_mutate", arguments))
    assert receipt["affected_nodes"] == 1
    review = data_of(toolbox.call("branch_diff", {"branch": "agents/one"}))
    assert [(change["op"], change["id"]) for change in review["changes"]] == [("insert", "Alan")]
    preview = data_of(toolbox.call("branch_merge_preview", {"source": "agents/one"}))
    assert (preview["outcome"], preview["conflict_count"]) == ("fast_forward", 0)
    assert graph.snapshot().count("Person") == 2
    merged = data_of(toolbox.call("branch_merge", {"source": "agents/one", "delete_branch": True}))
    assert merged["branch_deleted"] is True
    assert graph.snapshot().count("Person") == 3
    blame = data_of(toolbox.call("graph_blame", {"type": "Person", "id": "Alan"}))
    assert blame["commit"]["commit_id"] == merged["commit_id"]


def test_the_diff_of_a_branch_leaves_out_what_happened_on_main(graph, toolbox):
    toolbox.call("branch_create", {"name": "b"})
    graph.mutate(ADD, params={"n": "OnMain"})
    graph.mutate(ADD, params={"n": "OnBranch"}, branch="b")
    ids = [c["id"] for c in data_of(toolbox.call("branch_diff", {"branch": "b"}))["changes"]]
    assert ids == ["OnBranch"]
    states = data_of(toolbox.call("branch_diff", {"branch": "b", "against": "main"}))["changes"]
    assert {(c["op"], c["id"]) for c in states} == {("insert", "OnBranch"), ("delete", "OnMain")}


def test_conflicts_are_shown_with_both_sides_and_decided_by_their_ids(graph, toolbox):
    graph.branches.create("b")
    change = 'query q($a: I64) { update Person set { age: $a } where name = "Ada" }'
    graph.mutate(change, params={"a": 1})
    graph.mutate(change, params={"a": 2}, branch="b")
    preview = data_of(toolbox.call("branch_merge_preview", {"source": "b"}))
    (conflict,) = preview["conflicts"]
    assert (conflict["ours"]["age"], conflict["theirs"]["age"]) == (1, 2)
    refused = error_of(toolbox.call("branch_merge", {"source": "b"}))
    assert refused["code"] == "merge_conflicts"
    resolve = {conflict["conflict_id"]: "theirs"}
    data_of(toolbox.call("branch_merge", {"source": "b", "resolve": resolve}))
    assert graph.snapshot().entity("Person", "Ada")["age"] == 2


def test_a_repeated_write_with_its_key_writes_once(graph, toolbox):
    arguments = {"name": "Alan", "_branch": "main", "idempotency_key": "k1"}
    first, second = (data_of(toolbox.call("add_person", arguments)) for _ in range(2))
    assert first["commit_id"] == second["commit_id"]
    assert graph.snapshot().count("Person") == 3


def test_an_option_gives_way_to_a_parameter_of_its_name(graph, toolbox):
    schema = toolbox.get("add_person").input_schema
    assert {"name", "branch", "_branch"} <= schema["properties"].keys()
    assert schema["required"] == ["name", "_branch"]
    data_of(toolbox.call("add_person", {"name": "A", "branch": "a bio", "_branch": "main"}))
    assert graph.snapshot().entity("Person", "A")["bio"] == "a bio"


def test_agents_write_only_below_their_prefix(graph, context_of):
    toolbox = Toolbox(context_of(branch_prefix="agents/ana/"))
    for tool, arguments in (
        ("branch_create", {"name": "other"}),
        ("graph_mutate", {"query": ADD, "params": {"n": "X"}, "branch": "main"}),
        ("add_person", {"name": "X", "_branch": "main"}),
        ("branch_merge", {"source": "agents/ana/x"}),
    ):
        error = error_of(toolbox.call(tool, arguments))
        assert error["code"] == "policy_denied"
        assert "agents/ana/draft" in error["hint"]
    data_of(toolbox.call("branch_create", {"name": "agents/ana/x"}))
    assert graph.branches.list() == ["main", "agents/ana/x"]
    assert graph.snapshot().count("Person") == 2


# -- who may do what --------------------------------------------------------------------------


def names(toolbox):
    return {tool.name for tool in toolbox.tools()}


def test_read_only_has_no_tool_that_writes(context_of):
    toolbox = Toolbox(context_of(read_only=True))
    assert not [tool.name for tool in toolbox.tools() if tool.writes]
    assert "older" in names(toolbox)
    with pytest.raises(UnknownTool):
        toolbox.call("graph_mutate", {})


def test_stored_only_has_no_queries_of_an_agents_own(context_of):
    toolbox = Toolbox(context_of(free_text=False))
    assert not names(toolbox) & {"graph_query", "graph_mutate"}
    assert {"older", "add_person"} <= names(toolbox)


def test_a_tool_that_is_not_granted_is_an_unknown_tool(context_of):
    grants = Granted("read", "invoke_query", queries={"older"})
    toolbox = Toolbox(context_of(grants))
    assert "older" in names(toolbox)
    assert not names(toolbox) & {"add_person", "graph_mutate", "branch_create", "branch_merge"}
    for name in ("add_person", "graph_mutate", "nonsense"):
        with pytest.raises(UnknownTool, match=f"unknown tool: {name}"):
            toolbox.call(name, {})


def test_branches_that_may_not_be_read_are_refused(graph, context_of):
    graph.branches.create("secret")
    toolbox = Toolbox(context_of(Granted("read", branches={"main"})))
    for arguments in (
        {"branch": "secret"},
        {"at": graph.mutate(ADD, params={"n": "S"}, branch="secret").commit_id},
    ):
        error = error_of(toolbox.call("graph_query", {"query": PEOPLE, **arguments}))
        assert error["code"] == "policy_denied"


# -- stored queries ---------------------------------------------------------------------------


def test_a_stored_query_is_described_by_its_parameters_and_columns(toolbox):
    tool = toolbox.get("older")
    assert tool.description.startswith("People of at least an age Pass the age in years.")
    jsonschema.Draft202012Validator.check_schema(tool.input_schema)
    jsonschema.Draft202012Validator.check_schema(tool.output_schema)
    jsonschema.validate({"min": 3}, tool.input_schema)
    jsonschema.validate(data_of(toolbox.call("older", {"min": 3})), tool.output_schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"min": 3.5}, tool.input_schema)


def test_every_schema_of_a_tool_is_valid(toolbox):
    for tool in toolbox.tools():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.description.endswith((".", "}"))


def test_a_stored_query_with_the_name_of_a_tool_gets_a_prefix(context_of):
    class Text:
        name = "graph_query"
        text = "query graph_query() { match { $c: City } return { $c.name } }"

    toolbox = Toolbox(context_of(queries_of=StoredQueries.read([Text])))
    assert data_of(toolbox.call("stored_graph_query", {}))["rows"] == [{"c.name": "London"}]


def test_a_query_that_the_schema_broke_is_no_tool_any_more(graph, context_of):
    context = context_of()
    assert "older" in names(Toolbox(context))
    schema = graph.schema.text().replace("age: I64?", 'years: I64? @rename_from("age")')
    graph.schema.apply(schema)
    assert "older" not in names(Toolbox(context))


def test_two_files_cannot_declare_one_query(queries):
    (queries / "again.gq").write_text("query older() { match { $c: City } return { $c.name } }")
    with pytest.raises(InputError, match="stored query 'older' is declared twice"):
        StoredQueries.from_directory(queries)
