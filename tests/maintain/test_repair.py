"""Tables that somebody wrote to past the graph are found, judged, and taken over when confirmed."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import Conflict, InputError
from omnigraph.maintain.repair import Action, Drift

SCHEMA = "node P { name: String @key  age: I32? }\nnode Q { name: String @key }"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        for name in "abc":
            graph.load(
                [{"type": "P", "data": {"name": name}}, {"type": "Q", "data": {"name": "q"}}]
            )
        yield graph


def table(graph, key="node:P"):
    """The dataset of a table, opened past the graph."""
    pin = graph._handle.store.manifest(None).current().pin(key)
    return lance.dataset(graph._handle.store.root.path(pin.location))


def actual(graph, **options):
    report = graph.maintenance.repair(**options)
    return {item.table_key: (item.classification, item.action) for item in report.tables}, report


def test_without_drift_nothing_happens(graph):
    states, report = actual(graph, confirm=True)
    assert set(states.values()) == {(Drift.NONE, Action.NO_OP)}
    assert report.manifest_version is None


def test_upkeep_is_previewed_and_healed_when_confirmed(graph):
    table(graph).optimize.compact_files()
    before = graph.commits()
    states, report = actual(graph)
    assert states["node:P"] == (Drift.MAINTENANCE, Action.PREVIEW)
    assert "Rewrite" in report.tables[0].operations
    assert graph.commits() == before
    with pytest.raises(Conflict) as caught:
        graph.load([{"type": "P", "data": {"name": "z"}}])
    assert "repair" in caught.value.hint
    states, report = actual(graph, confirm=True)
    assert states["node:P"] == (Drift.MAINTENANCE, Action.HEALED)
    assert graph.commits()[0].actor == "omnigraph:repair"
    assert report.commit_id == graph.commits()[0].commit_id
    graph.load([{"type": "P", "data": {"name": "z"}}])
    assert graph.snapshot().count("P") == 4


def test_changed_rows_are_taken_only_by_force(graph):
    table(graph).delete("name = 'a'")
    states, report = actual(graph, confirm=True)
    assert states["node:P"] == (Drift.SUSPICIOUS, Action.REFUSED)
    assert (report.refused, report.manifest_version) == (("node:P",), None)
    assert graph.snapshot().count("P") == 3
    states, report = actual(graph, confirm=True, force=True)
    assert states["node:P"] == (Drift.SUSPICIOUS, Action.FORCED)
    assert graph.snapshot().count("P") == 2
    assert graph.commits()[0].actor == "omnigraph:repair:force"
    assert states["node:Q"] == (Drift.NONE, Action.NO_OP)


def test_upkeep_is_healed_beside_what_is_refused(graph):
    table(graph).optimize.compact_files()
    rows = pa.table({"id": ["x"], "name": ["x"]}, schema=table(graph, "node:Q").schema)
    lance.write_dataset(rows, table(graph, "node:Q").uri, mode="append")
    states, _ = actual(graph, confirm=True)
    assert states == {
        "node:P": (Drift.MAINTENANCE, Action.HEALED),
        "node:Q": (Drift.SUSPICIOUS, Action.REFUSED),
    }


def test_force_needs_to_be_confirmed(graph):
    with pytest.raises(InputError, match="confirm"):
        graph.maintenance.repair(force=True)
