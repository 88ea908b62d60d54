"""Vectors that tasks of Spark ask for: the same graph as in one process, and no key in sight."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Batching, Graph, RateLimit
from omnigraph.embed.job.requests import Setup
from omnigraph.embed.job.splits import EmbedResult, EmbedSplit, embed_remote
from omnigraph.embed.job.spool import open_spool
from omnigraph.embed.job.targets import all_targets
from omnigraph.errors import Cancelled, EmbeddingError, InputError
from omnigraph.read.limits import Cancel
from omnigraph.spark import SparkEngine
from omnigraph.spark.session.tasks import task_frame
from omnigraph.storage.tables.fragments import locate_table
from tests.embed.graphs import KEY, doc, docs, mock_vector, new_graph, remote, vectors
from tests.embed.server import openai, provider, refusing


@pytest.fixture(autouse=True)
def _context(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _small_splits(monkeypatch):
    """Several tasks, though the tables are small."""
    monkeypatch.setattr("omnigraph.embed.job.run._ROWS_IN_SPLIT", 5)


RECORDS = [
    *docs(12),
    doc("null", None),
    doc("has", "x", vec=[0, 0, 0, 1]),
    {"type": "Note", "data": {"name": "a", "text": "one", "small": [1, 0, 0]}},
    {"type": "Note", "data": {"name": "b", "text": "two"}},
]


def filled(path: Path, **how: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """All rows of a graph after its vectors were made, and what the job counted."""
    with new_graph(path, RECORDS) as graph:
        graph.load(docs(8, start=12))
        report = graph.embeddings.fill(**how)
        assert len(report.commits) == 1
        rows = [*graph.snapshot().export()]
        names = ("rows", "embedded", "reused", "skipped", "changed", "filled", "complete")
        return sorted(rows), {name: getattr(report, name) for name in names}


def letters(text: str, size: int) -> list[float]:
    return [float(len(text) + ord(text[-1]) + position**2) for position in range(size)]


def test_spark_gives_the_graph_that_one_process_gives(engine: SparkEngine, tmp_path: Path):
    alone = filled(tmp_path / "alone.omni", engine="local")
    together = filled(tmp_path / "together.omni", engine="spark", spark=engine.session)
    assert together == alone
    assert together[1]["filled"] == 23


def test_a_session_that_is_handed_over_is_used(spark: SparkEngine, tmp_path: Path):
    seen: list[tuple[str, int, int]] = []
    with new_graph(tmp_path / "g.omni", docs(20)) as graph:
        graph.load(docs(20, start=20))
        report = graph.embeddings.fill(
            spark=spark.session, on_progress=lambda at: seen.append((at.phase, at.done, at.total))
        )
        assert report.filled == 40
    assert seen[-1] == ("writing", 2, 2)
    assert ("embedding", 2, 2) in seen
    assert seen == sorted(seen)


def test_commits_for_so_many_rows_and_a_branch(spark: SparkEngine, tmp_path: Path):
    with new_graph(tmp_path / "g.omni", docs(12)) as graph:
        graph.load(docs(12, start=12))
        graph.branches.create("work")
        report = graph.embeddings.fill(
            branch="work", engine="spark", spark=spark.session, commit_rows=8
        )
        assert (len(report.commits), report.filled, report.embedded) == (3, 24, 24)
        expected = {f"d{n:04}": mock_vector(f"text {n}") for n in range(24)}
        assert vectors(graph, branch="work") == expected
        assert set(vectors(graph).values()) == {None}


def test_what_is_kept_is_not_paid_again_by_the_tasks(spark: SparkEngine, tmp_path: Path):
    kept = tmp_path / "kept"
    with (
        provider(openai(letters)) as server,
        new_graph(tmp_path / "g.omni", docs(10), remote(server.url)) as graph,
    ):
        graph.load(docs(10, start=10))
        graph.branches.create("work")
        graph.embeddings.fill(branch="work", resume=kept)
        graph.load([doc("new", "new")])
        server.requests.clear()
        report = graph.embeddings.fill(engine="spark", spark=spark.session, resume=kept)
        assert vectors(graph) == {**vectors(graph, branch="work"), "new": vectors(graph)["new"]}
    assert server.texts == ["new"]
    assert (report.embedded, report.reused, report.filled) == (1, 20, 21)


def test_a_refused_text_is_named_and_what_others_paid_is_kept(spark: SparkEngine, tmp_path: Path):
    kept = tmp_path / "kept"
    with (
        provider(refusing("poison", openai(letters))) as server,
        new_graph(tmp_path / "g.omni", docs(8), remote(server.url)) as graph,
    ):
        graph.load([doc("bad", "poison"), *docs(8, start=8)])
        how: dict[str, Any] = {"engine": "spark", "spark": spark.session, "resume": kept}
        with pytest.raises(EmbeddingError, match="Doc 'bad', vec: the provider refuses it"):
            graph.embeddings.fill(**how)
        assert set(vectors(graph).values()) == {None}
        report = graph.embeddings.fill(**how, max_failures=1)
        assert [failure.id for failure in report.failures] == ["bad"]
        assert report.filled == 16
        assert report.reused >= 8


def test_a_job_on_spark_is_cancelled(spark: SparkEngine, tmp_path: Path):
    cancel = Cancel()

    def answer(body: Any) -> Any:
        cancel.set()
        return openai(letters)(body)

    with (
        provider(answer) as server,
        new_graph(tmp_path / "g.omni", docs(30), remote(server.url)) as graph,
        pytest.raises(Cancelled),
    ):
        graph.embeddings.fill(
            engine="spark",
            spark=spark.session,
            cancel=cancel,
            rate=RateLimit(requests_per_minute=0.01),
            batching=Batching(texts=2),
        )
    assert spark.tasks(len, ["abc"], "counting") == [3]


def test_the_limits_are_divided_among_the_tasks(spark: SparkEngine, tmp_path: Path, monkeypatch):
    setups: list[Setup] = []
    from omnigraph.spark.embedding import SparkEmbedExecutor

    embed = SparkEmbedExecutor.embed

    def noted(self: SparkEmbedExecutor, pieces: Any) -> Any:
        setups.extend(split.setup for split in pieces)
        return embed(self, pieces)

    monkeypatch.setattr(SparkEmbedExecutor, "embed", noted)
    with new_graph(tmp_path / "g.omni", docs(4)) as graph:
        graph.embeddings.fill(
            spark=spark.session, rate=RateLimit(requests_per_minute=6000, tokens_per_minute=10**6)
        )
    assert {setup.rate.requests_per_minute for setup in setups} == {6000 / spark.slots}
    assert {setup.rate.tokens_per_minute for setup in setups} == {10**6 / spark.slots}


def test_a_folder_that_workers_do_not_see_is_said(tmp_path: Path):
    with new_graph(tmp_path / "g.omni", docs(1)) as graph:
        split = split_of(graph, str(tmp_path / "elsewhere"))
        with pytest.raises(InputError, match="a worker cannot access the directory") as caught:
            embed_remote(split)
    assert caught.value.hint is not None
    assert "resume" in caught.value.hint


def split_of(graph: Graph, folder: str, url: str = "http://127.0.0.1:9") -> EmbedSplit:
    (target, *_) = all_targets(graph.catalog)
    pin = graph._handle.store.manifest(None).current().pin(target.table_key)
    assert pin is not None
    location = locate_table(graph._handle.store.datasets, graph._handle.store.table(pin))
    return EmbedSplit(Setup(remote(url), folder), location, target, (0,))


def test_no_plan_no_log_and_no_error_shows_the_key(engine: SparkEngine, spark, tmp_path, capfd):
    with (
        provider((401, {"error": KEY})) as server,
        new_graph(tmp_path / "g.omni", docs(3), remote(server.url)) as graph,
    ):
        with pytest.raises(EmbeddingError, match="HTTP status 401") as caught:
            graph.embeddings.fill(engine="spark", spark=engine.session)
        split = split_of(graph, str(tmp_path), server.url)
        task_frame(engine.session, embed_remote, [split], "embedding").explain(extended=True)
    assert server.requests[0][1]["Authorization"] == f"Bearer {KEY}"
    shown = capfd.readouterr()
    assert "MapInArrow" in shown.out
    log = (spark.jvm.scratch / "spark.log").read_text("utf-8")
    error = f"{caught.value.to_json()} {caught.value!r} {caught.value.__cause__}"
    assert KEY not in f"{shown.out} {shown.err} {log} {error} {split!r}"


def embed_and_die(trial: tuple[EmbedSplit, str]) -> EmbedResult:
    """The first attempt is killed when its work is done and nobody knows of it."""
    split, mark = trial
    actual = embed_remote(split)
    if not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return actual


def test_a_task_that_died_is_done_again_and_pays_nothing(spark: SparkEngine, tmp_path: Path):
    with (
        provider(openai(letters)) as server,
        new_graph(tmp_path / "g.omni", docs(6), remote(server.url)) as graph,
        open_spool(tmp_path / "kept", is_ours=False) as kept,
    ):
        split = split_of(graph, str(kept), server.url)
        (actual,) = spark.tasks(embed_and_die, [(split, str(tmp_path / "died"))], "embedding")
    assert (tmp_path / "died").exists()
    assert sorted(server.texts) == [f"text {n}" for n in range(6)]
    assert (actual.ready, actual.embedded, actual.requests) == (6, 0, 0)
