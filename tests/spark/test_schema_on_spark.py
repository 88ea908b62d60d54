"""States of a graph are read under their own schema by Spark too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.spark import SparkEngine, register
from tests.evolve.world import AGES, KNOWS, RENAMED, SCHEMA, fill, friends


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, durability="os")
    fill(graph)
    return graph


def test_spark_follows_a_schema_that_changed(spark: SparkEngine, graph: Graph) -> None:
    register(spark.session)
    before = graph.snapshot().version
    graph.schema.apply(RENAMED.replace("age: I32?", 'years: I64? @rename_from("age")'))

    def ages(type_name: str, column: str, **options: Any) -> dict[str, Any]:
        reader = spark.session.read.format("omnigraph").options(type=type_name, **options)
        return {row["name"]: row[column] for row in reader.load(graph.uri).collect()}

    assert ages("Human", "years") == AGES
    assert ages("Person", "age", version=str(before)) == AGES
    assert friends(graph, "Human", engine="spark", spark=spark.session) == KNOWS
    assert friends(graph, engine="spark", spark=spark.session, version=before) == KNOWS
