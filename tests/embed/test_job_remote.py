"""The embedding job with a provider that fails, refuses, limits, and a job that is killed."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from omnigraph import Batching, Cancel, Graph, RateLimit
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import Cancelled, EmbeddingError, StorageCorrupt
from tests.embed.graphs import KEY, doc, docs, new_graph, remote, vectors
from tests.embed.server import Hang, gemini_batch, openai, provider, refusing

pytestmark = pytest.mark.rotates(6)

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def _context(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "cache"))


def letters(text, size):
    return [float(len(text) + ord(text[-1]) + position**2) for position in range(size)]


def unit(text):
    values = np.array(letters(text, 4), np.float32)
    return values / np.linalg.norm(values)


def good(graph, count):
    actual = vectors(graph)
    return len(actual) == count and all(
        actual[f"d{n:04}"] is not None and np.allclose(actual[f"d{n:04}"], unit(f"text {n}"))
        for n in range(count)
    )


GOOD = openai(letters)


# -- batches --------------------------------------------------------------------------------------


def test_texts_go_in_batches_by_count_and_the_report_says_what_it_took(tmp_path):
    with (
        provider(GOOD) as server,
        new_graph(tmp_path / "g.omni", docs(25), remote(server.url)) as graph,
    ):
        report = graph.embeddings.fill(batching=Batching(texts=10))
        assert good(graph, 25)
    assert sorted(len(body["input"]) for _, _, body in server.requests) == [5, 10, 10]
    assert (report.requests, report.embedded) == (3, 25)
    assert report.tokens == sum(map(len, server.texts))


def test_texts_go_in_batches_by_their_characters(tmp_path):
    records = [doc(f"d{n}", "x" * 40 + str(n)) for n in range(6)] + [doc("long", "y" * 500)]
    with (
        provider(GOOD) as server,
        new_graph(tmp_path / "g.omni", records, remote(server.url)) as graph,
    ):
        assert graph.embeddings.fill(batching=Batching(characters=100)).filled == 7
    sizes = [sum(map(len, body["input"])) for _, _, body in server.requests]
    assert all(
        size <= 100 or len(b["input"]) == 1
        for size, (_, _, b) in zip(sizes, server.requests, strict=True)
    )
    assert len(sizes) == 4


def test_no_request_has_more_texts_than_the_provider_allows(tmp_path):
    def at_most_100(body):
        return gemini_batch(letters)(body) if len(body["requests"]) <= 100 else (400, {})

    with (
        provider(at_most_100) as server,
        new_graph(tmp_path / "g.omni", docs(300), remote(server.url, provider="gemini")) as graph,
    ):
        report = graph.embeddings.fill()
        assert good(graph, 300)
    assert [len(body["requests"]) for _, _, body in server.requests] == [100, 100, 100]
    assert (report.requests, report.embedded, report.failures) == (3, 300, ())


def test_requests_run_side_by_side(tmp_path):
    together = threading.Barrier(3)

    def answer(body):
        together.wait(20)
        return GOOD(body)

    with provider(answer) as server:
        server.lock = threading.Semaphore(3)
        with new_graph(tmp_path / "g.omni", docs(6), remote(server.url)) as graph:
            graph.embeddings.fill(threads=3, batching=Batching(texts=2))
            assert good(graph, 6)


# -- failures that pass ---------------------------------------------------------------------------


def test_a_provider_that_is_busy_is_asked_again_when_it_says(tmp_path):
    busy = (429, {}, {"Retry-After": "0"})
    with (
        provider(busy, (503, {}), busy, GOOD) as server,
        new_graph(tmp_path / "g.omni", docs(3), remote(server.url)) as graph,
    ):
        report = graph.embeddings.fill(
            rate=RateLimit(requests_per_minute=100_000, tokens_per_minute=10**9)
        )
        assert good(graph, 3)
    assert report.requests == len(server.requests) == 4


# -- failures that stay ---------------------------------------------------------------------------


def test_a_provider_that_fails_for_good_ends_the_job_and_what_was_paid_is_kept(tmp_path):
    with provider(GOOD, GOOD, (401, {})) as server:
        with new_graph(tmp_path / "g.omni", docs(30), remote(server.url)) as graph:
            before = graph.commits()
            with pytest.raises(EmbeddingError, match="HTTP status 401") as caught:
                graph.embeddings.fill(threads=1, batching=Batching(texts=5))
            assert graph.commits() == before
            assert set(vectors(graph).values()) == {None}
        assert KEY not in repr(caught.value.to_json())
        paid = server.texts[:10]
        server.responses = [GOOD]
        server.requests.clear()
        with Graph.open(tmp_path / "g.omni", embedding=remote(server.url)) as graph:
            report = graph.embeddings.fill()
            assert good(graph, 30)
        assert (report.reused, report.embedded) == (10, 20)
        assert not set(paid) & set(server.texts)


def test_a_failure_ends_those_that_wait_for_their_turn(tmp_path):
    with (
        provider((401, {})) as server,
        new_graph(tmp_path / "g.omni", docs(20), remote(server.url)) as graph,
        pytest.raises(EmbeddingError, match="HTTP status 401"),
    ):
        graph.embeddings.fill(rate=RateLimit(requests_per_minute=0.01), batching=Batching(texts=2))
    assert len(server.requests) == 1


def test_without_a_key_nothing_is_asked(tmp_path):
    with (
        new_graph(tmp_path / "g.omni", docs(1), remote("http://127.0.0.1:9", api_key="")) as graph,
        pytest.raises(EmbeddingError, match="no key for") as caught,
    ):
        graph.embeddings.fill()
    assert "OPENROUTER_API_KEY" in caught.value.hint


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_text_that_is_refused_is_found_and_named(tmp_path, status):
    records = [*docs(40), doc("bad", "poison")]
    with (
        provider(refusing("poison", GOOD, status)) as server,
        new_graph(tmp_path / "g.omni", records, remote(server.url)) as graph,
    ):
        with pytest.raises(EmbeddingError, match="Doc 'bad', vec: the provider refuses it") as why:
            graph.embeddings.fill()
        assert "poison" not in repr(why.value.to_json())
        assert set(vectors(graph).values()) == {None}
        server.requests.clear()
        report = graph.embeddings.fill(max_failures=1)
        actual = vectors(graph)
    assert actual.pop("bad") is None
    assert None not in actual.values()
    (failure,) = report.failures
    assert (failure.type_name, failure.id, failure.property) == ("Doc", "bad", "vec")
    assert (report.rows, report.filled, report.changed) == (41, 40, 0)
    assert len(server.requests) < 2 * 41


def test_only_so_many_texts_may_be_refused(tmp_path):
    records = [*docs(20), *(doc(f"bad{n}", f"poison {n}") for n in range(3))]
    with (
        provider(refusing("poison", GOOD)) as server,
        new_graph(tmp_path / "g.omni", records, remote(server.url)) as graph,
    ):
        with pytest.raises(EmbeddingError) as caught:
            graph.embeddings.fill(max_failures=2, threads=1)
        assert len(caught.value.details["failures"]) == 3
        report = graph.embeddings.fill(max_failures=3)
    assert {failure.id for failure in report.failures} == {"bad0", "bad1", "bad2"}
    assert report.filled == 20


def test_a_provider_that_refuses_everything_is_not_asked_for_every_text(tmp_path):
    with (
        provider((400, {})) as server,
        new_graph(tmp_path / "g.omni", docs(100), remote(server.url)) as graph,
        pytest.raises(EmbeddingError, match="refuses it"),
    ):
        graph.embeddings.fill(threads=1)
    assert len(server.requests) <= 8


def test_a_text_without_direction_counts_as_refused(tmp_path):
    def vector(text, size):
        return [0.0] * size if text == "empty" else letters(text, size)

    with (
        provider(openai(vector)) as server,
        new_graph(tmp_path / "g.omni", [*docs(3), doc("z", "empty")], remote(server.url)) as graph,
    ):
        with pytest.raises(EmbeddingError, match="Doc 'z', vec: its embedding is zero"):
            graph.embeddings.fill()
        report = graph.embeddings.fill(max_failures=1)
    assert (report.filled, report.embedded, report.reused) == (3, 0, 3)


def test_a_damaged_file_of_kept_vectors_is_never_written_to_the_graph(tmp_path):
    kept = tmp_path / "kept"
    with (
        provider(GOOD) as server,
        new_graph(tmp_path / "g.omni", docs(3), remote(server.url)) as graph,
    ):
        graph.branches.create("work")
        graph.embeddings.fill(branch="work", resume=kept)
        (file,) = kept.glob("*.arrow")
        content = bytearray(file.read_bytes())
        content[content.find(unit("text 0").tobytes())] ^= 1
        file.write_bytes(content)
        with pytest.raises(StorageCorrupt):
            graph.embeddings.fill(resume=kept)
        assert set(vectors(graph).values()) == {None}
        file.unlink()
        graph.embeddings.fill(resume=kept)
        assert good(graph, 3)


# -- resumption -----------------------------------------------------------------------------------


def test_a_run_with_the_same_folder_pays_only_for_what_is_missing(tmp_path):
    kept = tmp_path / "kept"
    with (
        provider(GOOD) as server,
        new_graph(tmp_path / "g.omni", docs(10), remote(server.url)) as graph,
    ):
        graph.branches.create("work")
        graph.embeddings.fill(branch="work", resume=kept)
        graph.load([doc("d0010", "text 10")])
        server.requests.clear()
        report = graph.embeddings.fill(resume=kept)
        assert good(graph, 11)
    assert server.texts == ["text 10"]
    assert (report.embedded, report.reused) == (1, 10)


def started(path, url, kept, commit_rows=0, boundary="none"):
    """A process that does the job."""
    arguments = [str(path), url, str(kept), str(commit_rows), boundary]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.embed.filling", *arguments],
        cwd=ROOT,
        env={**os.environ, "no_proxy": "127.0.0.1"},
    )


@pytest.mark.parametrize(
    "boundary",
    [
        Failpoint.WRITE_AFTER_LEASES,
        Failpoint.WRITE_AFTER_SIDECAR,
        Failpoint.WRITE_AFTER_TABLES,
        Failpoint.WRITE_AFTER_PUBLISH,
    ],
)
def test_a_job_that_dies_in_its_commit_has_written_all_or_nothing(tmp_path, boundary):
    path, kept = tmp_path / "g.omni", tmp_path / "kept"
    with provider(GOOD) as server:
        with new_graph(path, docs(10), remote(server.url)) as graph:
            graph.load(docs(10, start=10))
        assert started(path, server.url, kept, 0, boundary).wait(60) == -signal.SIGKILL
        requested = len(server.requests)
        with Graph.open(path, embedding=remote(server.url)) as graph:
            actual = set(map(str, vectors(graph).values()))
            assert actual == {"None"} or "None" not in actual
            report = graph.embeddings.fill(resume=kept)
            assert good(graph, 20)
        assert len(server.requests) == requested
    assert (report.embedded, report.filled) == (0, 20 if actual == {"None"} else 0)


@pytest.mark.parametrize("commit_rows", [0, 5], ids=["one commit", "a commit for 5 rows"])
def test_a_job_that_was_killed_goes_on_where_it_was(tmp_path, commit_rows):
    path, kept = tmp_path / "g.omni", tmp_path / "kept"
    with provider(GOOD, GOOD, GOOD, Hang()) as server:
        with new_graph(path, docs(30), remote(server.url)) as graph:
            commits = len(graph.commits())
        child = started(path, server.url, kept, commit_rows)
        try:
            until = time.monotonic() + 60
            while len(server.requests) < 4 and child.poll() is None:
                assert time.monotonic() < until, "the job asked for too little"
                time.sleep(0.02)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert child.returncode == -signal.SIGKILL
        paid = server.texts[:15]
        assert len(set(paid)) == 15
        server.responses = [GOOD]
        server.requests.clear()
        with Graph.open(path, embedding=remote(server.url)) as graph:
            assert len(graph.commits()) == commits + (3 if commit_rows else 0)
            report = graph.embeddings.fill(resume=kept)
            assert good(graph, 30)
    assert sorted(server.texts) == sorted({f"text {n}" for n in range(30)} - set(paid))
    assert report.reused == (0 if commit_rows else 15)
    assert report.embedded == 15


def test_a_job_is_cancelled_while_it_waits_for_its_turn(tmp_path):
    cancel = Cancel()

    def answer(body):
        cancel.set()
        return GOOD(body)

    with (
        provider(answer) as server,
        new_graph(tmp_path / "g.omni", docs(10), remote(server.url)) as graph,
        pytest.raises(Cancelled),
    ):
        graph.embeddings.fill(
            cancel=cancel, rate=RateLimit(requests_per_minute=0.01), batching=Batching(texts=2)
        )
    assert len(server.requests) == 1


# -- secrets --------------------------------------------------------------------------------------


def test_the_key_shows_nowhere(tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    kept = tmp_path / "kept"
    shown = []
    with (
        provider(GOOD, (400, {"error": KEY})) as server,
        new_graph(tmp_path / "g.omni", docs(10), remote(server.url)) as graph,
    ):
        with pytest.raises(EmbeddingError) as caught:
            graph.embeddings.fill(
                resume=kept, on_progress=shown.append, threads=1, batching=Batching(texts=5)
            )
        shown += [caught.value.to_json(), repr(caught.value), caught.value.__cause__]
        server.responses = [GOOD]
        shown.append(graph.embeddings.fill(resume=kept))
        shown += [graph.embeddings.status(), graph.embeddings]
    said = capfd.readouterr()
    assert KEY not in f"{shown} {caplog.text} {said.out} {said.err}"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not any(KEY.encode() in path.read_bytes() for path in files)
