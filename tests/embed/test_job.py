"""The embedding job: which rows get vectors, in which commits, and what stays as it was."""

from __future__ import annotations

import threading

import pytest

from omnigraph import Batching, Cancel, Graph, RateLimit
from omnigraph.embed import EmbeddingConfig
from omnigraph.errors import (
    Cancelled,
    Closed,
    Conflict,
    EmbeddingError,
    InputError,
    LimitExceeded,
    ReadOnly,
)
from tests.embed.graphs import MOCK, doc, docs, mock_vector, new_graph, vectors

pytestmark = pytest.mark.rotates(2)

NOTES = [
    {"type": "Note", "data": {"name": "a", "text": "one"}},
    {"type": "Note", "data": {"name": "b", "text": "two", "small": [1, 0, 0]}},
    {"type": "Note", "data": {"name": "c", "text": "three", "large": [0, 0, 0, 0, 1]}},
    {"type": "Note", "data": {"name": "d"}},
]


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def graph(tmp_path):
    with new_graph(tmp_path / "g.omni", []) as actual:
        yield actual


# -- what is filled -------------------------------------------------------------------------------


def test_rows_with_a_text_and_no_vector_get_one(graph):
    graph.load([*docs(3), doc("has", "text", vec=[0, 0, 0, 1]), doc("null", None), doc("no", "")])
    report = graph.embeddings.fill()
    assert vectors(graph) == {
        **{f"d000{n}": mock_vector(f"text {n}") for n in range(3)},
        "has": [0, 0, 0, 1],
        "null": None,
        "no": None,
    }
    assert (report.rows, report.embedded, report.filled, report.skipped) == (5, 3, 3, 2)
    assert (report.reused, report.changed, report.failures) == (0, 0, ())
    assert report.complete
    assert report.commits == (graph.commits()[0].commit_id,)


def test_nothing_but_the_vectors_changes(graph):
    graph.load(docs(4))
    before = graph.snapshot().read("Doc").drop_columns(["vec"])
    graph.embeddings.fill()
    after = graph.snapshot().read("Doc").drop_columns(["vec"])
    assert after.sort_by("id").equals(before.sort_by("id"))
    assert graph.snapshot().count("Doc") == 4


def test_a_second_run_has_nothing_to_do_and_makes_no_commit(graph):
    graph.load(docs(3))
    graph.embeddings.fill()
    before = graph.commits()
    report = graph.embeddings.fill()
    assert (report.rows, report.requests, report.commits) == (0, 0, ())
    assert graph.commits() == before


def test_several_vectors_of_one_type_come_in_one_commit(graph):
    graph.load([*NOTES, *docs(2)])
    report = graph.embeddings.fill()
    assert len(report.commits) == 1
    assert vectors(graph, "Note", "small") == {
        "a": mock_vector("one", 3),
        "b": [1, 0, 0],
        "c": mock_vector("three", 3),
        "d": None,
    }
    assert vectors(graph, "Note", "large") == {
        "a": mock_vector("one", 5),
        "b": mock_vector("two", 5),
        "c": [0, 0, 0, 0, 1],
        "d": None,
    }
    assert (report.filled, report.changed, report.skipped) == (6, 0, 2)


def test_types_and_properties_are_chosen(graph):
    graph.load([*NOTES, *docs(2)])
    graph.embeddings.fill(properties=["Note.small"])
    assert vectors(graph, "Note", "large")["a"] is None
    assert vectors(graph, "Note", "small")["a"] is not None
    graph.embeddings.fill(types=["Doc"])
    assert None not in vectors(graph).values()
    assert vectors(graph, "Note", "large")["a"] is None


def test_a_type_without_embed_is_named(graph):
    with pytest.raises(InputError, match="'Plain' has no property with @embed") as caught:
        graph.embeddings.fill(types=["Plain"])
    assert "Doc.vec" in caught.value.hint
    with pytest.raises(InputError, match=r"'Doc\.title' is not an @embed property"):
        graph.embeddings.fill(properties=["Doc.title"])


def test_the_same_text_is_embedded_once(graph):
    graph.load([doc(f"s{n}", "same") for n in range(5)] + [doc("other", "other")])
    report = graph.embeddings.fill()
    assert (report.embedded, report.reused, report.filled) == (2, 4, 6)
    assert {tuple(item) for key, item in vectors(graph).items() if key != "other"} == {
        tuple(mock_vector("same"))
    }


def test_again_replaces_what_is_there(graph):
    graph.load([*docs(2), doc("has", "words", vec=[0, 0, 0, 1])])
    report = graph.embeddings.fill(again=True)
    assert vectors(graph)["has"] == mock_vector("words")
    assert report.filled == 3
    assert graph.embeddings.fill(again=True).filled == 3


def test_again_in_several_commits_does_each_row_once(graph):
    graph.load([doc(f"d{n}", f"text {n}", vec=[0, 0, 0, 1]) for n in range(10)])
    report = graph.embeddings.fill(again=True, commit_rows=3)
    assert (report.filled, report.embedded, len(report.commits)) == (10, 10, 4)
    assert vectors(graph) == {f"d{n}": mock_vector(f"text {n}") for n in range(10)}


def test_a_branch_gets_its_own_vectors(graph):
    graph.load(docs(3))
    graph.branches.create("work")
    report = graph.embeddings.fill(branch="work")
    assert report.branch == "work"
    assert vectors(graph, branch="work") == {f"d000{n}": mock_vector(f"text {n}") for n in range(3)}
    assert set(vectors(graph).values()) == {None}
    graph.load(docs(2, start=3), branch="work")
    assert graph.embeddings.fill(branch="work").filled == 2
    assert None not in vectors(graph, branch="work").values()


def test_tables_of_many_fragments_with_deleted_rows_are_filled(graph):
    for start in range(0, 20, 5):
        graph.load(docs(5, start))
    graph.mutate('query gone() { delete Doc where slug = "d0007" }')
    graph.embeddings.fill()
    expected = {f"d{n:04}": mock_vector(f"text {n}") for n in range(20) if n != 7}
    assert vectors(graph) == expected


def test_indexes_stay_right(graph):
    graph.load([*docs(20), doc("has", "x", vec=mock_vector("x"))])
    graph.indexes.ensure()
    graph.embeddings.fill()
    query = """query q() {
        match { $d: Doc } return { $d.slug } order { nearest($d.vec, "text 7") } limit 1
    }"""
    assert graph.query(query).rows() == [{"d.slug": "d0007"}]
    actual = graph.query('query q() { match { $d: Doc { slug: "d0009" } } return { $d.number } }')
    assert actual.rows() == [{"d.number": 9}]
    graph.indexes.ensure()
    assert graph.query(query).rows() == [{"d.slug": "d0007"}]


def test_only_rows_that_got_a_vector_count_as_changed(graph):
    graph.load([*docs(2), doc("has", "x", vec=[0, 0, 0, 1])])
    store = graph._handle.store
    graph.embeddings.fill()
    pin = store.manifest(None).current().pin("node:Doc")
    columns = ["id", "_row_last_updated_at_version", "_row_created_at_version"]
    rows = store.table(pin).dataset.to_table(columns=columns).to_pylist()
    updated = {row["id"] for row in rows if row[columns[1]] == pin.version}
    assert updated == {"d0000", "d0001"}
    assert {row[columns[2]] for row in rows} == {pin.version - 1}


# -- commits --------------------------------------------------------------------------------------


def test_a_commit_is_made_for_every_so_many_rows(graph):
    graph.load(docs(10))
    graph.load(docs(10, start=10))
    report = graph.embeddings.fill(commit_rows=4)
    assert (len(report.commits), report.filled, report.embedded) == (5, 20, 20)
    assert None not in vectors(graph).values()


def test_a_run_may_be_bounded_by_rows(graph):
    graph.load([doc("null", None), *docs(10)])
    report = graph.embeddings.fill(max_rows=4)
    assert (report.embedded, report.filled, report.complete) == (4, 4, False)
    assert graph.embeddings.fill(max_rows=100).filled == 6


def test_rows_with_an_equal_text_are_filled_and_counted_beyond_the_bound(graph):
    texts = ["one", "two", "three", "one", "one", "four"]
    graph.load([doc(f"d{n}", text) for n, text in enumerate(texts)])
    report = graph.embeddings.fill(max_rows=3)
    assert (report.embedded, report.reused, report.filled, report.rows) == (3, 2, 5, 5)
    assert (report.complete, report.changed) == (False, 0)
    rest = graph.embeddings.fill(max_rows=3)
    assert (rest.embedded, rest.filled, rest.rows, rest.complete) == (1, 1, 1, True)


def test_what_others_write_meanwhile_stays_and_no_stale_vector_is_written(graph):
    graph.load(docs(6))
    done = []

    def meanwhile(at):
        if at.phase == "embedding" and not done:
            done.append(at)
            graph.mutate('query a() { update Doc set { title: "changed" } where slug = "d0001" }')
            graph.mutate('query b() { delete Doc where slug = "d0002" }')
            graph.mutate('query c() { update Doc set { number: 99 } where slug = "d0003" }')
            graph.load([doc("new", "new")])

    report = graph.embeddings.fill(on_progress=meanwhile)
    actual = vectors(graph)
    assert actual == {
        **{f"d000{n}": mock_vector(f"text {n}") for n in (0, 3, 4, 5)},
        "d0001": None,
        "new": None,
    }
    assert graph.snapshot().entity("Doc", "d0003")["number"] == 99
    assert (report.filled, report.changed) == (4, 2)
    assert graph.embeddings.fill().filled == 2


def test_again_spares_what_others_changed_meanwhile(graph):
    graph.load([doc(f"d{n}", f"text {n}", vec=[0, 0, 0, 1]) for n in range(3)])
    done = []

    def meanwhile(at):
        if not done:
            done.append(at)
            graph.load([doc("d1", "text 1", vec=[1, 0, 0, 0])])

    report = graph.embeddings.fill(again=True, on_progress=meanwhile)
    assert vectors(graph)["d1"] == [1, 0, 0, 0]
    assert (report.filled, report.changed) == (2, 1)


def test_two_jobs_at_once_lose_nothing(graph):
    graph.load(docs(40))
    reports = []

    def work():
        reports.append(graph.embeddings.fill(commit_rows=7))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert vectors(graph) == {f"d{n:04}": mock_vector(f"text {n}") for n in range(40)}
    assert sum(report.filled for report in reports) == 40


# -- how it ends ----------------------------------------------------------------------------------


def test_progress_is_told_and_ends_with_all_of_it(graph):
    graph.load([*docs(300), doc("null", None)])
    reported = []
    graph.embeddings.fill(on_progress=reported.append, threads=1, batching=Batching(texts=50))
    assert [at.detail["embedded"] for at in reported] == sorted(
        at.detail["embedded"] for at in reported
    )
    assert len(reported) > 3
    last = reported[-1]
    assert (last.phase, last.detail["rows"], last.detail["filled"]) == ("writing", 301, 300)
    assert last.done == last.total


def test_a_cancelled_job_commits_nothing_and_loses_nothing(graph, tmp_path):
    graph.load(docs(100))
    cancel = Cancel()

    def stop(at):
        cancel.set()

    with pytest.raises(Cancelled):
        graph.embeddings.fill(
            on_progress=stop,
            cancel=cancel,
            resume=tmp_path / "kept",
            threads=1,
            batching=Batching(texts=10),
        )
    assert set(vectors(graph).values()) == {None}
    report = graph.embeddings.fill(resume=tmp_path / "kept")
    assert report.reused >= 10
    assert report.reused + report.embedded == 100


def test_a_graph_that_was_closed_meanwhile_is_not_written_to(graph, tmp_path):
    graph.load(docs(3))
    with pytest.raises(Closed):
        graph.embeddings.fill(on_progress=lambda _: graph.close())
    with Graph.open(tmp_path / "g.omni", embedding=MOCK) as again:
        assert set(vectors(again).values()) == {None}
        assert again.embeddings.fill().reused == 3


def test_a_schema_that_was_changed_meanwhile_is_said(graph, tmp_path, monkeypatch):
    graph.load(docs(3))
    monkeypatch.setattr("omnigraph.api.embeddings.all_targets", lambda catalog: [])
    with pytest.raises(Conflict, match=r"the schema of Doc\.vec was changed") as caught:
        graph.embeddings.fill(types=["Doc"])
    assert caught.value.retryable


def test_a_job_may_take_so_long_and_no_longer(graph):
    graph.load(docs(3))
    with pytest.raises(LimitExceeded, match="took longer than 0 seconds"):
        graph.embeddings.fill(timeout=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"commit_rows": 0},
        {"commit_rows": True},
        {"max_rows": 0},
        {"max_failures": -1},
        {"threads": 0},
        {"rate": 5},
        {"batching": 10},
        {"engine": "abacus"},
        {"timeout": -1},
        {"types": "Doc"},
        {"properties": "Doc.vec"},
        {"cancel": 1},
        {"on_progress": 1},
    ],
    ids=repr,
)
def test_what_cannot_be_meant_is_refused(graph, wrong):
    with pytest.raises(InputError):
        graph.embeddings.fill(**wrong)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Batching(texts=0),
        lambda: Batching(characters=1.5),
        lambda: RateLimit(requests_per_minute=0),
        lambda: RateLimit(tokens_per_minute=-1),
        lambda: RateLimit(tokens_per_minute="9"),
    ],
)
def test_limits_and_batches_have_a_size(make):
    with pytest.raises(InputError):
        make()


def test_resume_must_be_a_directory(graph, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="resume must be a directory"):
        graph.embeddings.fill(resume=tmp_path / "file")


def test_a_graph_that_is_open_to_read_is_not_filled(graph, tmp_path):
    with Graph.open(tmp_path / "g.omni", "r", embedding=MOCK) as reader, pytest.raises(ReadOnly):
        reader.embeddings.fill()


def test_a_property_of_another_model_is_refused(tmp_path):
    schema = 'node Doc { slug: String @key\n t: String?\n v: Vector(4)? @embed("t", model="m1") }'
    with Graph.init(tmp_path / "m.omni", schema, embedding=EmbeddingConfig("mock", "m2")) as graph:
        with pytest.raises(EmbeddingError, match="'m1'"):
            graph.embeddings.fill()
        assert graph.embeddings.status()[0].model == "m1"


# -- status ---------------------------------------------------------------------------------------


def test_the_status_counts_what_is_there_and_what_is_not(graph):
    assert [(s.rows, s.filled) for s in graph.embeddings.status()] == [(0, 0)] * 3
    graph.load([*docs(3), doc("has", "x", vec=[0, 0, 0, 1]), doc("null", None), doc("no", "")])
    graph.branches.create("work")
    graph.embeddings.fill(branch="work")
    (status,) = (s for s in graph.embeddings.status() if s.type_name == "Doc")
    assert (status.property, status.source) == ("vec", "title")
    assert (status.rows, status.filled, status.missing, status.blank) == (6, 1, 3, 2)
    (status,) = (s for s in graph.embeddings.status("work") if s.type_name == "Doc")
    assert (status.rows, status.filled, status.missing, status.blank) == (6, 4, 0, 2)


def test_a_vector_that_must_be_there_can_be_replaced(tmp_path):
    schema = 'node Doc { slug: String @key\n t: String?\n v: Vector(4) @embed("t") }'
    with Graph.init(tmp_path / "n.omni", schema, embedding=MOCK) as graph:
        graph.load([{"type": "Doc", "data": {"slug": "a", "t": "x", "v": [1, 0, 0, 0]}}])
        assert graph.embeddings.fill().rows == 0
        graph.embeddings.fill(again=True)
        assert vectors(graph, "Doc", "v") == {"a": mock_vector("x")}


def test_types_with_blobs_keep_them(tmp_path):
    schema = 'node Doc { slug: String @key\n t: String?\n b: Blob?\n v: Vector(4)? @embed("t") }'
    with Graph.init(tmp_path / "b.omni", schema, embedding=MOCK) as graph:
        graph.load([{"type": "Doc", "data": {"slug": "a", "t": "x", "b": "base64:aGVsbG8="}}])
        graph.embeddings.fill()
        assert graph.snapshot().read_blob("Doc", "a", "b") == b"hello"
        assert graph.snapshot().entity("Doc", "a")["v"] == mock_vector("x")
