"""What ``indexes.status`` tells: how much is covered, how large, when built, and how."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph

SCHEMA = """
node Doc { slug: String @key  year: I32? @index  vec: Vector(2)? @index }
edge Cites: Doc -> Doc
"""


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        yield graph


def docs(*slugs, vectors=True):
    columns = {"slug": list(slugs), "year": pa.array(range(len(slugs)), pa.int32())}
    if vectors:
        columns["vec"] = [[1.0, float(number)] for number in range(len(slugs))]
    return {"Doc": pa.table(columns)}


def states(graph, **options):
    actual = graph.indexes.status(**options).indexes
    return {(s.column, s.kind.name.lower()): s for s in actual if s.table_key == "node:Doc"}


def test_rows_are_counted_that_an_index_knows_and_does_not(graph):
    graph.append(docs("a", "b", "c"))
    before = states(graph)["slug", "text"]
    assert (before.is_pending, before.rows, before.rows_outside) == (True, 0, 3)
    graph.indexes.ensure()
    for state in states(graph).values():
        assert (state.is_pending, state.rows, state.rows_outside) == (False, 3, 0)
    graph.append(docs("d", "e"))
    for state in states(graph).values():
        assert (state.rows, state.rows_outside, state.segments) == (3, 2, 1)
    graph.mutate('query m() { delete Doc where slug = "a" }')
    assert states(graph)["slug", "text"].rows == 2
    graph.maintenance.optimize(engine="local")
    for state in states(graph).values():
        assert (state.rows, state.rows_outside) == (4, 0)


def test_size_and_time_of_an_index_are_those_of_its_files(graph):
    graph.append(docs("a", "b"))
    started = datetime.now(UTC) - timedelta(seconds=1)
    graph.indexes.ensure()
    actual = states(graph)
    path = Path(graph.uri) / graph._handle.store.manifest(None).current().pins["node:Doc"].location
    files = [file for file in path.glob("_indices/*/*") if file.is_file()]
    assert sum(state.size for state in actual.values()) == sum(f.stat().st_size for f in files)
    for state in actual.values():
        assert started <= state.created_at <= datetime.now(UTC) + timedelta(seconds=1)


def test_kind_and_parameters_are_told_with_the_reason(graph):
    graph.append(docs("a", "b"))
    vec = states(graph)["vec", "vector"]
    assert (vec.is_pending, vec.method) == (True, "IVF_FLAT")
    assert vec.parameters == {"metric": "cosine", "partitions": 1, "exact": True}
    graph.indexes.ensure()
    built = states(graph)["vec", "vector"]
    assert (built.method, built.parameters) == (vec.method, vec.parameters)
    assert built.why == "exact; the vectors fit in one partition"
    assert states(graph)["slug", "text"].method == "INVERTED"
    assert states(graph)["year", "equality"].method == "BTREE"


def test_recall_is_told_when_asked_for_and_only_of_vectors(graph):
    graph.append(docs("a", "b", "c"))
    graph.indexes.ensure()
    assert states(graph)["vec", "vector"].recall is None
    actual = states(graph, measure_recall=True)
    assert actual["vec", "vector"].recall == 1.0
    assert actual["slug", "text"].recall is None


def test_what_cannot_be_built_yet_says_why(graph):
    graph.append(docs("a", vectors=False))
    graph.indexes.ensure()
    vec = states(graph)["vec", "vector"]
    assert (vec.reason, vec.rows_outside) == ("no row has a vector", 1)
    assert graph.indexes.status().pending[0] == vec


def test_the_report_is_plain_data(graph):
    graph.append(docs("a", "b"))
    graph.indexes.ensure()
    reported = json.loads(json.dumps(graph.indexes.status(measure_recall=True).to_json()))
    assert list(reported) == ["commit_id", "seconds", "built", "indexes"]
    (vec,) = [item for item in reported["indexes"] if item["column"] == "vec"]
    assert list(vec) == [
        "table_key",
        "column",
        "kind",
        "method",
        "built",
        "reason",
        "rows",
        "rows_outside",
        "bytes",
        "segments",
        "created_at",
        "parameters",
        "why",
        "rebuild",
        "recall",
    ]
    assert (vec["kind"], vec["rows"], vec["recall"]) == ("vector", 2, 1.0)
    edges = [item for item in reported["indexes"] if item["table_key"] == "edge:Cites"]
    assert {item["reason"] for item in edges} == {"the table is empty"}


def test_a_handle_for_reading_tells_it_too(graph):
    graph.append(docs("a", "b"))
    graph.indexes.ensure()
    with Graph.open(graph.uri, "r") as reader:
        assert reader.indexes.status(measure_recall=True).to_json() == (
            graph.indexes.status(measure_recall=True).to_json()
        )
