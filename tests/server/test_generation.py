"""A generation: read from a store or a cluster, exchanged, opened, and opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import pytest

from omnigraph import Graph
from omnigraph.errors import PolicyDenied, ServerNotReady
from omnigraph.identity import Identity
from omnigraph.server.access import RunState
from omnigraph.server.boot import BootPlan, GraphSpec, QueryPayload, check_served
from omnigraph.server.config import ServerConfig, ServerSource
from omnigraph.server.generation import Generation, GenerationSource, read_generation
from omnigraph.server.opening import OpenedPlan, open_graphs
from omnigraph.server.tokens import TokenTable
from omnigraph.settings import Settings
from tests.cluster.ledgers import ClusterFiles

SCHEMA = "node Task { name: String @key  due: Date? }"
DUE = "query due() { match { $t: Task } return { $t.name, $t.due } }"
ADD = 'query add() { insert Task { name: "a" } }'
BUNDLE = """
version: 1
groups: {staff: [ana]}
rules: [{id: write, allow: {actors: {group: staff}, actions: [read, change]}}]
"""


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.json"
    file.write_text('{"ana": "secret-1", "bo": "secret-2"}')
    return file


@pytest.fixture
def settings(tokens: Path) -> Settings:
    return Settings.from_environ({"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(tokens)})


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterFiles:
    files = ClusterFiles(tmp_path / "lab").graph("kb").graph("wiki")
    for name in ("kb", "wiki"):
        Graph.init(tmp_path / "lab" / "graphs" / f"{name}.omni", SCHEMA, durability="os").close()
    files.query("kb", "due", DUE)
    files.policy("rules", BUNDLE, ["graph.kb"])
    return files


def config_of(cluster: ClusterFiles) -> ServerConfig:
    return ServerConfig(ServerSource("cluster", str(cluster.root)))


def test_a_generation_travels_without_tokens(cluster, settings, tokens):
    generation = read_generation(config_of(cluster), settings)
    sent = generation.encode()
    assert b"secret" not in sent
    received = Generation.decode(sent)
    assert received == generation
    assert received.state is RunState.POLICY
    tokens = TokenTable.from_digests(received.tokens)
    assert tokens.actor_of("secret-2") == "bo"
    assert tokens.actor_of("secret-3") is None
    access = received.access(config_of(cluster))
    assert access.decide("kb", Identity("ana"), "change", "main").allowed
    assert not access.decide("wiki", Identity("ana"), "change", "main").allowed
    assert b"secret" not in repr(received).encode()


def test_an_unsafe_cell_refuses_the_start(cluster):
    with pytest.raises(ServerNotReady, match="there are no bearer tokens"):
        read_generation(config_of(cluster), Settings())
    store = ServerConfig(ServerSource("store", "kb.omni"))
    with pytest.raises(ServerNotReady, match="--unauthenticated"):
        read_generation(store, Settings())
    opened = ServerConfig(ServerSource("store", "kb.omni"), unauthenticated=True)
    assert read_generation(opened, Settings()).state is RunState.OPEN


def test_a_change_of_any_source_is_noticed(cluster, settings, tokens):
    source = GenerationSource(config_of(cluster), settings)
    seen = [source.signature()]
    assert source.signature() == seen[0]
    tokens.write_text('{"ana": "secret-9"}')
    seen.append(source.signature())
    cluster.graph("third")
    seen.append(source.signature())
    assert len(set(seen)) == 3
    assert [actor for actor, _ in Generation.decode(source.read()).tokens] == ["ana"]


@pytest.fixture
def opened(cluster: ClusterFiles, settings: Settings) -> Iterator[tuple[Generation, OpenedPlan]]:
    generation = read_generation(config_of(cluster), settings)
    access = generation.access(config_of(cluster))
    opened = open_graphs(generation.plan, "rw", settings, lambda: access)
    yield generation, opened
    for served in opened.graphs.values():
        served.graph.close()


def test_the_graphs_of_a_plan_are_opened_with_their_queries_and_the_second_gate(opened):
    _, plan = opened
    assert list(plan.graphs) == ["kb", "wiki"]
    assert (list(plan.graphs["kb"].queries), list(plan.graphs["wiki"].queries)) == (["due"], [])
    assert plan.unserved == {}
    plan.graphs["kb"].graph.mutate(ADD, actor="ana")
    for graph, actor in (("kb", "bo"), ("kb", None), ("wiki", "ana")):
        with pytest.raises(PolicyDenied):
            plan.graphs[graph].graph.mutate(ADD, actor=actor)


def test_a_graph_stays_open_when_only_its_queries_or_policy_change(opened, cluster, settings):
    generation, first = opened
    cluster.query("kb", "all", DUE.replace("due()", "all()"))
    cluster.policy("rules", BUNDLE.replace("[ana]", "[ana, bo]"), ["graph.kb"])
    again = read_generation(config_of(cluster), settings)
    access = again.access(config_of(cluster))
    second = open_graphs(again.plan, "rw", settings, lambda: access, first.graphs)
    assert second.graphs["kb"].graph is first.graphs["kb"].graph
    assert list(second.graphs["kb"].queries) == ["all", "due"]
    assert again.plan.digest != generation.plan.digest


def test_what_does_not_open_is_set_aside(opened, cluster, settings):
    cluster.graph("gone")
    cluster.query("wiki", "broken", "query broken() { match { $x: Nothing } return { $x.y } }")
    cluster.query("kb", "other", "query another() { match { $t: Task } return { $t.name } }")
    again = read_generation(config_of(cluster), settings)
    access = again.access(config_of(cluster))
    plan = open_graphs(again.plan, "r", settings, lambda: access)
    assert {name: why.code for name, why in plan.unserved.items()} == {
        "gone": "graph_not_found",
        "kb": "stored_query_invalid",
    }
    assert "other" in plan.unserved["kb"].message
    wiki = plan.graphs["wiki"]
    assert list(wiki.queries.breakages(wiki.graph.catalog)) == ["broken"]
    wiki.graph.close()
    check_served(again.plan, plan.unserved.values(), require_all_graphs=False)
    with pytest.raises(ServerNotReady, match="graph_not_found"):
        check_served(again.plan, plan.unserved.values(), require_all_graphs=True)


def test_a_graph_of_another_format_is_set_aside_with_the_recipe(tmp_path, settings):
    uri = tmp_path / "old.omni"
    Graph.init(uri, SCHEMA, durability="os").close()
    make_older(uri)
    plan = BootPlan("s", False, (GraphSpec("old", str(uri), (QueryPayload("due", DUE),)),), "d")
    why = open_graphs(plan, "r", settings, lambda: None).unserved["old"]  # type: ignore[arg-type,return-value]
    assert why.code == "format_refused"
    assert "omnigraph export" in why.message
    assert "load" in why.message


def make_older(uri: Path) -> None:
    """Give a graph the stamp of an earlier format."""
    dataset = lance.dataset(str(uri / "__manifest"))
    dataset.update_schema_metadata({"omnigraph:internal_schema_version": "3"})
