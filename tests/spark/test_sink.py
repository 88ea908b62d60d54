"""Streams into a graph: every micro-batch is one commit, however often it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import InputError, LoadError
from omnigraph.spark import SparkEngine, register
from omnigraph.spark.session.failures import translated
from omnigraph.spark.source.datasource import batch_key, source_class
from tests.spark.test_frames import SCHEMA, files_of, people

pytestmark = pytest.mark.rotates(3)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA, durability="os")


class Stream:
    """Files that are streamed into the persons of a graph."""

    def __init__(self, session: Any, graph: Graph, folder: Path) -> None:
        self._session = session
        self._graph = graph
        self._input = folder / "input"
        self._input.mkdir()
        self.checkpoint = folder / "checkpoint"

    def give(self, name: str, *rows: dict[str, Any]) -> None:
        waiting = self._input / f"_{name}"
        waiting.write_text("".join(json.dumps(row) + "\n" for row in rows))
        waiting.rename(self._input / f"{name}.json")

    def run(self, **options: str) -> Any:
        """Write what is there, one file a batch, and end."""
        rows = (
            self._session.readStream.schema("name string, age int")
            .option("maxFilesPerTrigger", 1)
            .json(str(self._input))
        )
        query = (
            rows.writeStream.format("omnigraph")
            .option("checkpointLocation", str(self.checkpoint))
            .options(type="Person", **options)
            .trigger(availableNow=True)
            .start(self._graph.uri)
        )
        query.awaitTermination()
        return query

    def forget_last_batch(self) -> None:
        """As a driver that dies after its commit and before it noted so."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def test_every_batch_is_one_commit_and_a_replay_none(
    spark: SparkEngine, graph: Graph, tmp_path: Path
):
    register(spark.session)
    stream = Stream(spark.session, graph, tmp_path)
    before = len(graph.commits())
    stream.give("a", {"name": "Ada", "age": 36}, {"name": "Bob"})
    stream.give("b", {"name": "Cyd"})
    first = stream.run(actor="stream")
    assert len(graph.commits()) == before + 2
    assert {commit.actor for commit in graph.commits()[:2]} == {"stream"}
    assert graph.snapshot().count("Person") == 3

    stream.forget_last_batch()
    files = files_of(graph)
    again = stream.run(actor="stream")
    assert (again.id, again.runId == first.runId) == (first.id, False)
    assert len(graph.commits()) == before + 2
    assert graph.snapshot().count("Person") == 3
    assert files_of(graph) == files

    stream.give("c", {"name": "Dot"})
    stream.run(actor="stream")
    assert len(graph.commits()) == before + 3
    assert graph.snapshot().count("Person") == 4


def test_a_bad_row_stops_the_stream_at_its_batch(spark: SparkEngine, graph: Graph, tmp_path: Path):
    register(spark.session)
    stream = Stream(spark.session, graph, tmp_path)
    stream.give("a", {"name": "Ada"})
    stream.run()
    stream.give("b", {"name": "Bob"}, {"name": "Cyd", "age": 900})
    files, commits = files_of(graph), len(graph.commits())
    with pytest.raises(Exception, match="omnigraph") as caught:
        stream.run()
    error = translated(caught.value, "streaming")
    assert "<Person>:2: " in error.message
    assert files_of(graph) == files
    assert len(graph.commits()) == commits
    stream.run(max_rejects="1")
    assert graph.snapshot().count("Person") == 2


# -- without Spark, as its processes call it ------------------------------------------------------


def sink(graph: Graph, **options: str) -> Any:
    source = source_class()({"path": graph.uri, "type": "Person", **options})
    return source.streamWriter(None, False)  # type: ignore[arg-type]


def written(graph: Graph, batch: int, count: int, query: str | None = "q", **options: str) -> None:
    writer = sink(graph, **options)
    table = people(count)
    messages = [writer.write(iter(table.slice(n, 2).to_batches())) for n in range(0, count, 2)]
    for message in messages:
        message.query = query
    sink(graph, **options).commit(messages, batch)


def test_a_batch_that_comes_again_is_passed_over(graph: Graph):
    before = len(graph.commits())
    written(graph, 0, 5)
    files = files_of(graph)
    # Also when it comes with other rows: its number says what it is.
    for count in (5, 7):
        written(graph, 0, count)
    assert len(graph.commits()) == before + 1
    assert graph.snapshot().count("Person") == 5
    assert files_of(graph) == files


def test_batches_of_other_queries_and_branches_are_others(graph: Graph):
    written(graph, 0, 5, mode="merge")
    before = len(graph.commits())
    written(graph, 0, 6, query="other", mode="merge")
    assert len(graph.commits()) == before + 1
    written(graph, 0, 7, branch="b", from_branch="main", mode="merge")
    written(graph, 0, 8, branch="b", from_branch="main", mode="merge")
    assert graph.snapshot("b").count("Person") == 7
    assert graph.snapshot().count("Person") == 6


def test_a_batch_without_rows_is_no_commit(graph: Graph):
    before = len(graph.commits())
    sink(graph).commit([], 0)
    writer = sink(graph)
    message = writer.write(iter(()))
    message.query = "q"
    writer.commit([message], 1)
    assert len(graph.commits()) == before


def test_a_batch_of_no_query_is_refused(graph: Graph):
    with pytest.raises(InputError, match="is unknown"):
        batch_key(None, 3)


def test_slips_in_options_are_found_and_those_of_spark_are_not(graph: Graph):
    sink(graph, checkpointLocation="x", queryName="y")
    with pytest.raises(InputError, match="unknown option 'brnch'"):
        sink(graph, brnch="b")


def test_a_refused_batch_leaves_no_row(graph: Graph):
    written(graph, 0, 4)
    files = files_of(graph)
    with pytest.raises((LoadError, Exception), match="<Person>:"):
        written(graph, 1, 6, mode="append")
    assert files_of(graph) == files
    assert graph.snapshot().count("Person") == 4
