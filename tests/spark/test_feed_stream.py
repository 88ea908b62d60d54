"""The change feed of a graph as a stream of Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.spark import SparkEngine, register
from tests.merge.followers import Copy
from tests.merge.random_histories import RandomHistory

SCHEMA = "node P { name: String @key  age: I32? }\nedge K: P -> P"


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "P", "data": {"name": name, **data}}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, durability="os")
    graph.load([person("ana", age=1), person("ben"), {"edge": "K", "from": "ana", "to": "ben"}])
    return graph


def follow(session: Any, graph: Graph, folder: Path, **options: str) -> list[dict[str, Any]]:
    """Read what is new into files, and give all that was read so far."""
    query = (
        session.readStream.format("omnigraph")
        .options(**options)
        .load(graph.uri)
        .writeStream.format("json")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    lines = [
        json.loads(line)
        for path in (folder / "out").glob("*.json")
        for line in path.read_text().splitlines()
    ]
    return sorted(lines, key=lambda line: (line["version"], line["position"]))


def test_a_stream_tells_every_change_once_also_after_a_restart(
    spark: SparkEngine, graph: Graph, tmp_path: Path
):
    register(spark.session)
    first = follow(spark.session, graph, tmp_path, types="P")
    assert [(row.get("id"), row["op"]) for row in first] == [
        (None, "schema"),
        ("ana", "insert"),
        ("ben", "insert"),
    ]
    graph.load([person("ana", age=2)], actor="ada")
    graph.mutate('query q() { delete P where name = "ben" }')
    later = follow(spark.session, graph, tmp_path, types="P")
    assert later[:3] == first
    assert [(row["id"], row["op"], row.get("actor")) for row in later[3:]] == [
        ("ana", "update", "ada"),
        ("ben", "delete", None),
    ]
    assert json.loads(later[3]["before"])["age"] == 1
    assert json.loads(later[3]["after"])["age"] == 2
    assert follow(spark.session, graph, tmp_path, types="P") == later
    reported = [change.id for change in graph.changes.poll(types=["P"]).changes]
    assert sorted(reported) == sorted(row["id"] for row in later if "id" in row)
    # The type gets another name, and another takes the old one.
    renamed = SCHEMA.replace("node P {", 'node Q @rename_from("P") {').replace("P -> P", "Q -> Q")
    graph.schema.apply(renamed)
    graph.schema.apply(f"{renamed}\nnode P {{ name: String @key }}")
    graph.load([person("new"), {"type": "Q", "data": {"name": "cy"}}])
    last = follow(spark.session, graph, tmp_path, types="P")[len(later) :]
    assert [(row["type_name"], row["op"], row.get("id")) for row in last] == [
        ("Q", "schema", None),
        ("Q", "insert", "cy"),
    ]
    assert json.loads(last[0]["schema_event"]) == {
        "kind": "rename_type",
        "type_kind": "node",
        "from": "P",
        "to": "Q",
        "type_id": 1,
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_follows_a_stream_has_what_the_graph_has(
    seed: int, spark: SparkEngine, tmp_path: Path
):
    register(spark.session)
    history = RandomHistory(str(tmp_path), seed, keeps_history=True)
    with history.graph as graph:
        for size in (5, 9):
            for _ in range(size):
                history.step()
            copy = Copy({"types": []})
            for row in follow(spark.session, graph, tmp_path):
                if row["op"] == "schema":
                    copy.apply_events([json.loads(row["schema_event"])])
                    continue
                images = {s: json.loads(row[s]) if s in row else None for s in ("before", "after")}
                copy.apply_changes([{**row, **images}])
            whole = Copy(dict(graph.changes.baseline().schema), graph.snapshot().export())
            assert copy.content() == whole.content()


@pytest.mark.slow
def test_a_stream_over_connect_from_now_on(connect: SparkEngine, graph: Graph, tmp_path: Path):
    register(connect.session)
    start = f"after:{graph.commits()[0].commit_id}"
    graph.load([person("cy")])
    actual = follow(connect.session, graph, tmp_path, start=start, max_commits="1")
    assert [(row["id"], row["op"]) for row in actual] == [("cy", "insert")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type": "P"}, "change feed"),
        ({"typs": "P"}, "did you mean 'types'"),
        ({"types": "Zed", "start": "soon"}, "no type 'Zed'"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    options: dict[str, str], message: str, spark: SparkEngine, graph: Graph, tmp_path: Path
):
    register(spark.session)
    with pytest.raises(Exception, match=message):
        follow(spark.session, graph, tmp_path, **options)
