"""Agents at a graph with a policy: what they may call, and what they see."""

from __future__ import annotations

import pytest

from omnigraph.mcp.embedded import open_context
from omnigraph.mcp.settings import AgentSettings
from omnigraph.mcp.toolbox import Toolbox
from omnigraph.mcp.tools import UnknownTool

POLICY = """
version: 2
groups: { readers: [ana], services: [bot], writers: [bo] }
actors: { ana: { names: [Ada] } }
protected_branches: [main]
rules:
  - id: readers-read
    allow: { actors: { group: readers }, actions: [read, read_history] }
  - id: services-invoke
    allow:
      actors: { group: services }
      actions: [invoke_query, read, change]
      queries: [older, add_person]
  - id: writers-draft
    allow:
      actors: { group: writers }
      actions: [read, change, branch_create, branch_merge]
rows:
  - { id: own, actors: { group: readers }, types: [Person], where: "name in $actor.names" }
  - { id: links, actors: { group: readers }, types: [Knows] }
  - { id: services, actors: { group: services }, types: ["*"] }
  - { id: writers, actors: { group: writers }, types: ["*"] }
"""


@pytest.fixture
def toolbox_of(graph, queries, tmp_path):
    """The tools of an actor under the policy; closes the graphs it has opened."""
    graph.close()
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    contexts = []

    def make(actor, settings=AgentSettings()):  # noqa: B008 - immutable
        contexts.append(open_context(graph.uri, actor, str(policy), str(queries), settings))
        return Toolbox(contexts[-1])

    yield make
    for context in contexts:
        context.graph.close()


def test_the_list_of_tools_differs_by_actor(toolbox_of):
    reader, service, writer = ({tool.name for tool in toolbox_of(a).tools()} for a in ACTORS)
    assert "graph_query" in reader
    assert not reader & {"older", "add_person", "graph_mutate", "branch_create", "branch_merge"}
    assert service == {"older", "add_person"}
    assert {"graph_mutate", "branch_create", "branch_merge"} <= writer


ACTORS = ("ana", "bot", "bo")
PEOPLE = "query q() { match { $p: Person } return { $p.name } }"


@pytest.mark.parametrize("most", [1, None])
def test_who_may_not_export_pages_up_to_the_cap_of_a_server(toolbox_of, most):
    agent = toolbox_of("bo", AgentSettings(max_rows=1, max_paged_rows=most))
    given = {"query": PEOPLE}
    first = agent.call("graph_query", given).data
    second = agent.call("graph_query", given | {"cursor": first["cursor"]})
    if most is None:
        assert second.data["row_count"] == 1
    else:
        assert (second.is_error, second.data["code"]) == (True, "row_limit_exceeded")


def test_the_cursor_of_an_agent_is_for_one_policy(toolbox_of, tmp_path):
    settings = AgentSettings(max_rows=1)
    calls = (("graph_query", {"query": PEOPLE}), ("branch_list", {}), ("graph_changes", {}))
    agent = toolbox_of("bo", settings)
    agent._context.graph.branches.create("other")
    pages = {tool: agent.call(tool, given).data for tool, given in calls}
    (tmp_path / "policy.yaml").write_text(POLICY.replace("[read, read_history]", "[read]"))
    later = toolbox_of("bo", settings)
    for tool, given in calls:
        answer = later.call(tool, given | {"cursor": pages[tool]["cursor"]})
        # A position in the feed outlives changes of a policy that show its reader the same.
        expected = None if tool == "graph_changes" else "view_changed"
        assert answer.data.get("code") == expected


def test_a_service_reads_and_writes_by_its_stored_queries_only(toolbox_of):
    service = toolbox_of("bot")
    assert service.call("older", {"min": 1}).data["row_count"] == 2
    assert not service.call("add_person", {"name": "Alan", "_branch": "main"}).is_error
    for tool in ("graph_query", "graph_mutate", "graph_schema", "branch_list"):
        with pytest.raises(UnknownTool):
            service.call(tool, {})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("graph_search", {"text": "compiler program"}),
        ("graph_neighbours", {"type": "Person", "id": "Ada"}),
        ("graph_query", {"query": "query q() { match { $p: Person } return { $p.name, $p.bio } }"}),
        ("graph_changes", {}),
        ("graph_entity", {"type": "Person", "id": "Grace"}),
        ("graph_blame", {"type": "Person", "id": "Grace"}),
        ("graph_neighbours", {"type": "Person", "id": "Grace"}),
    ],
)
def test_no_tool_shows_a_row_beyond_the_view(toolbox_of, tool, arguments):
    result = toolbox_of("ana").call(tool, arguments)
    named = "Grace" if arguments.get("id") == "Grace" else ""
    text = result.text.replace(f"'{named}'", "") if named else result.text
    assert "Grace" not in text
    assert "compiler" not in text
    assert result.is_error == bool(named)
