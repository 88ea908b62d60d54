"""Loads by the tasks of a real Spark: the same load, also when workers die of it."""

from __future__ import annotations

import json
from random import Random

import pytest

from omnigraph import Graph
from omnigraph.errors import LoadError, OmniGraphError, StorageFull
from omnigraph.spark.load.run import split_reader
from omnigraph.spark.session.tasks import SparkExecutor
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.run import load_into
from tests.faults.disks import small_disk
from tests.spark.dying import Dying
from tests.spark.inputs import SCHEMA, content, load, make_files

PEOPLE = 300


def people(path, *more):
    lines = [json.dumps({"type": "P", "data": {"name": f"p{n}"}}) for n in range(PEOPLE)]
    lines += [
        json.dumps({"edge": "K", "from": f"p{n}", "to": f"p{n + 1}"}) for n in range(PEOPLE - 1)
    ]
    path.write_text("\n".join([*lines, *more]) + "\n")
    return path


def files_of(graph):
    return {path for path in graph.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seed", [8, pytest.param(3, marks=pytest.mark.slow)])
def test_a_load_on_spark_is_a_load(seed, engine, tmp_path):
    random = Random(seed)
    files = make_files(random, tmp_path)
    state, said = random.getstate(), []
    for name, reader in (("one", None), ("many", split_reader(SparkExecutor(engine), 500))):
        random.setstate(state)
        rejects = tmp_path / f"{name}.rejects"
        with Graph.init(tmp_path / f"{name}.omni", SCHEMA, durability="os") as graph:
            reported = load(graph, files, random, reader, rejects)
            kept = rejects.read_text() if rejects.exists() else None
            said.append((reported, kept, content(graph)))
    assert said[0] == said[1]


def test_files_go_through_the_handle(spark, tmp_path):
    path = people(tmp_path / "people.ndjson")
    seen = []
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        receipt = graph.load(
            path, engine="spark", spark=spark.session, on_progress=seen.append, idempotency_key="a"
        )
        assert (receipt.records, receipt.rejected) == (2 * PEOPLE - 1, 0)
        assert seen[-1].phase == "writing"
        again = graph.load(path, engine="spark", spark=spark.session, idempotency_key="a")
        assert again.commit_id == receipt.commit_id
        # The other engine sees that it is the same load.
        assert graph.load(path, idempotency_key="a").commit_id == receipt.commit_id
        assert len(graph.commits()) == 2
        people(path, '{"type": "P", "data": {"name": "another"}}')
        with pytest.raises(OmniGraphError, match="idempotency"):
            graph.load(path, engine="spark", spark=spark.session, idempotency_key="a")


@pytest.mark.parametrize(
    ("how", "deaths"),
    [("killed", 1), pytest.param("killed", 2, marks=pytest.mark.slow), ("disk full", 2)],
)
def test_workers_that_die_of_a_share_change_nothing(how, deaths, spark, tmp_path):
    path = people(tmp_path / "people.ndjson")
    marks = tmp_path / "marks"
    marks.mkdir()

    class DyingExecutor(SparkExecutor):
        def run(self, function, tasks, label=""):
            return super().run(Dying(function, marks, deaths, how), tasks, label)

    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        job, destination = LoadJob([str(path)], LoadMode.APPEND), LoadDestination("main")
        reader = split_reader(DyingExecutor(spark), 4_000)
        receipt = load_into(graph._handle.store, graph.catalog, job, destination, reader)
        assert len(list(marks.iterdir())) == deaths
        counts = {key: item.inserted for key, item in receipt.tables.items()}
        assert counts == {"node:P": PEOPLE, "edge:K": PEOPLE - 1}
        assert graph.snapshot().count("P") == PEOPLE
        assert graph.snapshot().count("K") == PEOPLE - 1
        assert len(graph.commits()) == 2


def test_a_poisoned_last_share_refuses_everything(spark, tmp_path):
    path = people(tmp_path / "people.ndjson", '{"type": "P", "data": {"name": 7}}')
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        before = files_of(tmp_path / "g.omni")
        with pytest.raises(LoadError, match=f"people.ndjson:{2 * PEOPLE}: ") as caught:
            load_into(
                graph._handle.store,
                graph.catalog,
                LoadJob([str(path)], LoadMode.MERGE),
                LoadDestination("main"),
                split_reader(SparkExecutor(spark), 4_000),
            )
        assert caught.value.details["line"] == 2 * PEOPLE
        assert files_of(tmp_path / "g.omni") == before
        assert len(graph.commits()) == 1


def test_a_disk_that_is_full_refuses_everything(spark, tmp_path):
    path = people(tmp_path / "people.ndjson")
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk") as disk:
        location = disk.top / "g.omni"
        with Graph.init(location, SCHEMA) as graph:
            job, destination = LoadJob([str(path)], LoadMode.APPEND), LoadDestination("main")
            data = (graph._handle.store, graph.catalog, job, destination)
            before = files_of(location)
            # Enough for the marker and the first shares.
            with disk.only(pages=6), pytest.raises(StorageFull):
                load_into(*data, split_reader(SparkExecutor(spark), 4_000))
            assert files_of(location) == before
            assert len(graph.commits()) == 1
            load_into(*data, split_reader(SparkExecutor(spark), 4_000))
            assert graph.snapshot().count("P") == PEOPLE


def test_a_progress_callback_may_not_write(spark, tmp_path):
    path = people(tmp_path / "people.ndjson")
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:

        def write(_):
            graph.load([{"type": "Q", "data": {}}])

        with pytest.raises(OmniGraphError, match="progress"):
            graph.load(path, engine="spark", spark=spark.session, on_progress=write)
        assert len(graph.commits()) == 1
