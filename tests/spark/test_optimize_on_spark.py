"""Optimize by the tasks of a real Spark: the same rows and the same statistics."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import OmniGraphError
from omnigraph.maintain.optimize.run import OptimizeJob
from omnigraph.spark.session.tasks import SEGMENT_ROWS, SparkExecutor
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.tables.segments import segments_of
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
from tests.spark.dying import Dying

SCHEMA = """
node Doc {
  slug: String @key
  title: String? @index
  year: I32? @index
  vec: Vector(4)? @index
  many: Vector(4)? @index @vector("l2", partitions=8)
  body: Blob?
}
edge Cites: Doc -> Doc
"""
QUERIES = """
query all() { match { $d: Doc } return { $d.slug, $d.title, $d.year } order { $d.slug } }
query year($y: I32) { match { $d: Doc { year: $y } } return { $d.slug } }
query word($w: String) { match { $d: Doc search($d.title, $w) } return { $d.slug } }
query near($v: Vector(4)) {
  match { $d: Doc } return { $d.slug } order { nearest($d.vec, $v) } limit 3
}
query near_many($v: Vector(4)) {
  match { $d: Doc } return { $d.slug } order { nearest($d.many, $v) } limit 3
}
query cited() { match { $a: Doc $a cites $b } return { $a.slug, $b.slug } order { $a.slug } }
"""
DOC = "node:Doc"


def docs(numbers, *, blobs=True):
    columns = {
        "slug": [f"d{n}" for n in numbers],
        "title": [f"word{n} common" for n in numbers],
        "year": pa.array(numbers, pa.int32()),
        "vec": pa.array(
            [None if n % 7 == 0 else [float(n), 1, 2, 3] for n in numbers],
            pa.list_(pa.float32(), 4),
        ),
    }
    columns["many"] = columns["vec"]
    if blobs:
        columns["body"] = pa.array([b"%d" % n * 50_000 for n in numbers], pa.large_binary())
    return {"Doc": pa.table(columns)}


@pytest.fixture
def worn(tmp_path):
    """Small parts and a full one, rows that are deleted and changed, an index over some."""
    path = tmp_path / "worn.omni"
    with Graph.init(path, SCHEMA, durability="os") as graph:
        for n in range(4):
            graph.append(docs(range(10 * n, 10 * n + 5)))
        graph.load({**docs(range(1000, 1000 + ROWS_PER_FRAGMENT), blobs=False)})
        graph.indexes.ensure()
        for n in range(4, 8):
            numbers = range(10 * n, 10 * n + 5)
            edge = {"Cites": pa.table({"src": [f"d{10 * n}"], "dst": [f"d{10 * n + 1}"]})}
            graph.append(docs(numbers) | edge)
        graph.mutate("query q() { delete Doc where year < 3 }")
        graph.load([{"type": "Doc", "data": {"slug": "d11", "title": "word500", "year": 500}}])
    return path


def copied(worn, name):
    return shutil.copytree(worn, worn.parent / name)


def responses(graph):
    def ask(name, **params):
        return graph.query(QUERIES, name, params).rows()

    numbers = [0, 4, 11, 41, 74, 500, 1000, 31_000]
    return {
        "all": ask("all"),
        "years": [ask("year", y=n) for n in numbers],
        "words": [ask("word", w=f"word{n}") for n in numbers],
        "near": [ask("near", v=[float(n), 1.0, 2.0, 3.0]) for n in (1, 74, 31_000)],
        "near many": [ask("near_many", v=[float(n), 1.0, 2.0, 3.0]) for n in (1, 74, 31_000)],
        "cited": ask("cited"),
        "blobs": [graph.snapshot().read_blob("Doc", f"d{n}", "body") for n in (4, 41, 74)],
    }


def optimized(path, executor, index_rows=None):
    with Graph.open(path, durability="os") as graph:
        before = responses(graph)
        work = OptimizeJob(graph._handle.store, graph.catalog, None)
        report = work.run(work.survey(), executor, index_rows)
        assert responses(graph) == before
        states = graph.indexes.status().indexes
        assert all(state.coverage.complete for state in states)
        again = OptimizeJob(graph._handle.store, graph.catalog, None)
        assert again.survey() == []
        table = graph._handle.store.table(graph._handle.store.manifest(None).current().pins[DOC])
        segments = {name: len(actual) for name, actual in segments_of(table).items()}
        return report.to_json()["tables"], before, segments


def test_an_optimize_on_spark_is_an_optimize(engine, worn):
    """Also when an index is built in several segments, by several tasks."""
    here = optimized(copied(worn, "here"), ThreadExecutor(2))
    there = optimized(copied(worn, "there"), SparkExecutor(engine), 20_000)
    assert there == here
    assert here[0][1]["fragments_removed"] == 9


def test_it_goes_through_the_handle(spark, worn):
    seen = []
    with Graph.open(worn) as graph:
        before = responses(graph)
        report = graph.maintenance.optimize(
            engine="spark", spark=spark.session, on_progress=seen.append, actor="ana"
        )
        assert report.table(DOC).committed
        assert responses(graph) == before
        assert graph.commits()[0].actor == "ana"
        assert {at.phase for at in seen} == {"rewriting", "indexing"}
        # Nothing to do needs no Spark.
        assert graph.maintenance.optimize(engine="spark").commit_id is None


@pytest.mark.parametrize("how", ["killed", "disk full"])
def test_workers_that_die_of_it_change_nothing(how, spark, worn, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()

    class DyingExecutor(SparkExecutor):
        def run(self, function, tasks, label=""):
            return super().run(Dying(function, marks, 2, how), tasks, label)

    with Graph.open(worn, durability="os") as graph:
        before = responses(graph)
        work = OptimizeJob(graph._handle.store, graph.catalog, None)
        report = work.run(work.survey(), DyingExecutor(spark), SEGMENT_ROWS)
        assert len(list(marks.iterdir())) == 2
        assert report.table(DOC).committed
        assert responses(graph) == before


def test_work_that_fails_for_good_leaves_the_graph_as_it_was(spark, worn):
    class FailingExecutor:
        def run(self, function, tasks, label=""):
            raise OmniGraphError("no")

    with Graph.open(worn, durability="os") as graph:
        before, commits = responses(graph), len(graph.commits())
        work = OptimizeJob(graph._handle.store, graph.catalog, None)
        with pytest.raises(OmniGraphError, match="no"):
            work.run(work.survey(), FailingExecutor())
        assert responses(graph) == before
        assert len(graph.commits()) == commits
        assert graph.maintenance.optimize(engine="local").table(DOC).committed
