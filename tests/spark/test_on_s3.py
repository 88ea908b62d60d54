"""A graph on S3 through Spark: the same answers, and no secret anywhere that Spark shows."""

from __future__ import annotations

import json
import logging
import traceback
import uuid
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import LoadError, StorageDenied
from omnigraph.spark import SparkConfig, SparkEngine
from tests.s3.fixtures import S3
from tests.spark import cluster_jobs as jobs
from tests.spark.drivers import DriverProcess
from tests.spark.secret_jobs import everything_shown

PEOPLE = 120
QUERY = jobs.QUERIES[1]


@pytest.fixture
def target(s3: S3) -> tuple[str, dict[str, str]]:
    """The address of an empty graph, and how it is reached."""
    uri = f"s3://{s3.bucket}/{uuid.uuid4().hex}/g.omni"
    Graph.init(uri, jobs.SCHEMA, storage_options=s3.options).close()
    return uri, dict(s3.options)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "people.ndjson"
    records: list[dict[str, Any]] = [{"type": "Company", "data": {"name": "acme"}}]
    records += [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(PEOPLE)]
    records += [{"edge": "WorksAt", "from": f"p{n}", "to": "acme"} for n in range(PEOPLE)]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_load_export_and_query(spark: SparkEngine, target, lines, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_engine", spark)
    monkeypatch.setattr(jobs, "SPLIT_BYTES", 4_000)
    counts = {"node:Company": 1, "node:Person": PEOPLE, "edge:WorksAt": PEOPLE}
    assert jobs.load_files(target, lines) == counts
    actual = jobs.ask(target, QUERY)
    assert actual.to_pylist() == [{"c.name": "acme", "n": PEOPLE, "age": (PEOPLE - 1) / 2}]
    assert actual == jobs.ask(target, QUERY, "local")
    assert jobs.export_to(target, tmp_path / "out", "parquet") == sum(counts.values())
    with Graph.init(tmp_path / "g.omni", jobs.SCHEMA) as graph, jobs.opened(target) as remote:
        graph.load(tmp_path / "out")
        assert sorted(graph.snapshot().export()) == sorted(remote.snapshot().export())


def test_a_poisoned_last_share_leaves_nothing(spark: SparkEngine, target, lines, monkeypatch):
    monkeypatch.setattr(jobs, "_engine", spark)
    monkeypatch.setattr(jobs, "SPLIT_BYTES", 4_000)
    with lines.open("a") as file:
        file.write('{"type": "Person", "data": {"name": 7}}\n')
    with pytest.raises(LoadError, match=f"people.ndjson:{2 * PEOPLE + 2}: "):
        jobs.load_files(target, lines)
    with jobs.opened(target) as graph:
        objects = graph._handle.store.objects
        location = graph._handle.store.manifest(None).current().pin("node:Person").location
        assert objects.list(f"{location}/data") == []
        assert objects.list("__recovery") == []
        assert len(graph.commits()) == 1


@pytest.mark.slow
def test_the_data_source_reads_and_writes(spark: SparkEngine, target, lines, s3, monkeypatch):
    monkeypatch.setattr(jobs, "_engine", spark)
    with jobs.opened(target) as graph:
        graph.load(lines)
    other = (f"s3://{s3.bucket}/{uuid.uuid4().hex}/other.omni", target[1])
    Graph.init(other[0], jobs.SCHEMA, storage_options=target[1]).close()
    assert jobs.copy_by_source(target, other, ["Person"]) == {"Person": PEOPLE}
    with jobs.opened(target) as one, jobs.opened(other) as two:
        assert sorted(one.snapshot().export(types=["Person"])) == sorted(two.snapshot().export())


WORK = {
    "load": lambda graph, session, lines, dest: graph.load(lines, engine="spark", spark=session),
    "export": lambda graph, session, lines, dest: graph.snapshot().export(
        dest, engine="spark", spark=session
    ),
    "query": lambda graph, session, lines, dest: graph.query(
        f"query q() {{ {QUERY} }}", engine="spark", spark=session
    ),
}


@pytest.mark.parametrize("what", WORK)
def test_workers_that_are_refused_are_a_typed_error_without_the_key(
    what, spark: SparkEngine, target, lines, tmp_path, caplog
):
    wrong = "hush-wrong-9c1e"
    with jobs.opened(target) as graph:
        graph.load([{"type": "Person", "data": {"name": "a"}}])
        graph._handle.store.datasets.options = {**target[1], "aws_secret_access_key": wrong}
        with caplog.at_level(logging.DEBUG), pytest.raises(StorageDenied) as caught:
            WORK[what](graph, spark.session, lines, tmp_path / "out")
    reported = "".join(traceback.format_exception(caught.value))
    assert wrong not in f"{reported} {caught.value!r} {caught.value.to_json()} {caplog.text}"


@pytest.mark.slow
def test_nothing_that_spark_shows_or_keeps_holds_a_secret(
    spark_config: SparkConfig, target, lines, tmp_path
):
    options = target[1]
    (tmp_path / "events").mkdir()
    settings = {
        **spark_config.settings,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.eventLog.logBlockUpdates.enabled": "true",
    }
    config = SparkConfig(
        "local[2,4]", memory="1g", settings=settings, cache_dir=spark_config.cache_dir
    )
    with DriverProcess(tmp_path / "driver") as driver:
        driver.do(jobs.start, config)
        shown = driver.do(everything_shown, target, lines, tmp_path / "out")
    shown["what was printed"] = driver.said()
    events = [path for path in (tmp_path / "events").rglob("*") if path.is_file()]
    for path in events:
        shown[f"event log {path.name}"] = path.read_text("utf-8", "replace")
    assert any("SparkListenerSQLExecutionStart" in text for text in shown.values())
    secrets = [options["aws_access_key_id"], options["aws_secret_access_key"]]
    assert not [
        (name, secret) for name, text in shown.items() for secret in secrets if secret in text
    ]
