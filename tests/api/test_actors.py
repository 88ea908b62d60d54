"""``Graph.for_actor``: one open graph for many actors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph, GraphSnapshot, Identity
from omnigraph.errors import Closed, InputError, PolicyDenied
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.view import ALL, WHOLE, View

SCHEMA = "node Person { name: String @key } node City { name: String @key }"


class Gate:
    """Lets everybody write, and shows each actor one type; ``root`` sees everything."""

    def __init__(self) -> None:
        self.checked: list[Identity | str | None] = []
        self.viewed: list[tuple[str | None, str]] = []

    def check(
        self,
        actor: Identity | str | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> None:
        self.checked.append(actor)
        if actor is None:
            raise PolicyDenied.without_actor(action)

    def view(self, actor: Identity | None, branch: str, catalog: Catalog) -> View:
        self.viewed.append((None if actor is None else actor.id, branch))
        if actor is None:
            return View.of(catalog, {})
        if actor.id == "root":
            return WHOLE
        return View.of(catalog, {f"node:{actor.attributes.get('type', 'Person')}": ALL})


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def graph(tmp_path: Path, gate: Gate) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g.omni", SCHEMA, policy=gate, actor="root") as graph:
        graph.load([{"type": "Person", "data": {"name": "Ada"}}])
        gate.checked.clear()
        yield graph


def view_of(snapshot: GraphSnapshot) -> View:
    return snapshot._context.view


def test_a_graph_of_an_actor_writes_for_it_and_shares_the_data(graph, gate):
    ana = graph.for_actor("ana")
    receipt = ana.mutate('query q() { insert Person { name: "Alan" } }')
    assert receipt.actor == "ana"
    assert gate.checked == ["ana"]
    assert graph.snapshot().count("Person") == 2


def test_the_gate_gets_the_identity_of_the_actor(graph, gate):
    identity = Identity("ana", frozenset({"staff"}), {"level": 3})
    graph.for_actor(identity).mutate('query q() { insert Person { name: "Alan" } }')
    assert gate.checked == [identity]
    assert gate.checked[0].attributes["level"] == 3


def test_a_graph_of_an_actor_cannot_act_for_another(graph):
    ana = graph.for_actor("ana")
    with pytest.raises(InputError, match="acts for 'ana' and cannot act for 'bo'"):
        ana.mutate('query q() { insert Person { name: "Alan" } }', actor="bo")
    with pytest.raises(InputError, match="cannot act for 'bo'"):
        ana.for_actor("bo")
    with pytest.raises(InputError, match="cannot act for 'ana'"):
        ana.for_actor(Identity("ana", frozenset({"staff"})))
    assert ana.for_actor("ana").mutate(
        'query q() { insert Person { name: "Alan" } }', actor="ana"
    ).actor == ("ana")


def test_the_view_is_that_of_the_actor_the_branch_and_the_schema(graph, gate):
    graph.branches.create("draft")
    gate.viewed.clear()
    city = graph.for_actor(Identity("ana", attributes={"type": "City"}))
    assert view_of(graph.snapshot()) is WHOLE
    assert view_of(city.snapshot("draft")).hides("node:Person")
    assert view_of(city.snapshot("draft")).sees_all("node:City")
    assert gate.viewed == [("root", "main"), ("ana", "draft"), ("ana", "draft")]


def test_without_an_actor_the_view_is_that_of_nobody(graph, gate):
    with Graph.open(graph.uri, "r", policy=gate) as reader:
        assert view_of(reader.snapshot()).hides("node:Person")
    with Graph.open(graph.uri, "r") as reader:
        assert view_of(reader.snapshot()) is WHOLE


def test_a_snapshot_that_is_passed_on_shows_what_the_receiver_sees(graph, gate):
    from omnigraph.api.snapshot import context_of

    whole = graph.snapshot()
    ana = graph.for_actor("ana")
    assert context_of(whole, ana._handle).view.hides("node:City")
    assert context_of(ana.snapshot(), graph._handle).view is WHOLE
    assert context_of(whole, graph._handle) is whole._context


def test_closing_the_graph_of_an_actor_leaves_the_shared_one_open(graph):
    ana, bo = graph.for_actor("ana"), graph.for_actor("bo")
    ana.close()
    with pytest.raises(Closed):
        ana.snapshot()
    assert graph.snapshot().count("Person") == bo.snapshot().count("Person") == 1
    graph.close()
    with pytest.raises(Closed):
        bo.snapshot()
    with pytest.raises(Closed):
        graph.for_actor("ana")


def test_a_new_schema_is_seen_by_the_graphs_of_all_actors(graph):
    ana = graph.for_actor("ana")
    graph.schema.apply(SCHEMA + " node Pet { name: String @key }")
    assert "Pet" in ana.catalog.node_types


@pytest.mark.parametrize("value", [None, {"a": 1}, [None], b"x"])
def test_an_attribute_is_a_text_a_number_a_truth_value_or_a_list(value):
    with pytest.raises(InputError, match="attribute 'x' must be a text"):
        Identity("ana", attributes={"x": value})


def test_the_digest_of_an_identity_covers_everything():
    identities = [
        Identity("ana"),
        Identity("bo"),
        Identity("ana", frozenset({"staff"})),
        Identity("ana", attributes={"level": 1}),
        Identity("ana", attributes={"level": True}),
        Identity("ana", attributes={"level": "1"}),
        Identity("ana", attributes={"level": (1,)}),
    ]
    assert len({identity.digest for identity in identities}) == len(identities)
    assert Identity("ana", attributes={"a": 1, "b": 2}) == Identity(
        "ana", attributes={"b": 2, "a": 1}
    )
