"""Changing schemas on a real S3 server: names that come and go, and what is lost for good."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.errors import HistoryGone
from tests.evolve.world import AGES, KNOWS, RENAMED, SCHEMA, changed, fill, friends, values


@pytest.fixture
def graph(s3_root):
    root = s3_root("g.omni")
    with Graph.init(root.uri, SCHEMA, storage_options=root.options) as graph:
        fill(graph)
        yield graph


def test_names_come_and_go(graph):
    first = graph.snapshot().version
    graph.schema.apply(RENAMED)
    assert friends(graph, "Human") == KNOWS
    # The place of the old name is taken: the new table counts on somewhere else.
    both = RENAMED.replace(' @rename_from("Person")', "") + "node Person { name: String @key }\n"
    graph.schema.apply(both)
    graph.load([{"type": "Person", "data": {"name": "Zoe"}}])
    assert list(values(graph, "Person", "name")) == ["Zoe"]
    assert values(graph, "Human", "age") == AGES
    assert values(graph, "Person", "age", version=first) == AGES
    without = both.replace("node Person { name: String @key }\n", "")
    graph.schema.apply(without)
    graph.schema.apply(both)
    assert graph.snapshot().count("Person") == 0


def test_a_hard_drop_takes_the_past_with_it(graph):
    before = graph.snapshot().version
    wider = changed(("age: I32?", "age: I64"))
    graph.schema.apply(wider, values={"Person.age": 0})
    assert values(graph, "Person", "age") == AGES
    done = graph.schema.apply(changed(("  age: I32?", "")), allow_data_loss=True)
    assert done.cleared == ("node:Person",)
    assert friends(graph) == KNOWS
    with pytest.raises(HistoryGone):
        graph.snapshot(version=before).read("Person")
