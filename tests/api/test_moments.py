"""A state of the graph is named in one way, and a snapshot has everything that reads."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from omnigraph import Graph, InputError, NotFound
from omnigraph.errors import Closed, ReadOnly

SCHEMA = "node Person { name: String @key  age: I32? }"
NAMES = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.append({"Person": pa.table({"name": ["ann"]})})
        graph.tags.create("v1")
        graph.moment = datetime.now(UTC)
        graph.append({"Person": pa.table({"name": ["bob"]})})
        yield graph


def names(result):
    return [row["p.name"] for row in result]


def test_at_is_a_time_a_tag_or_a_commit(graph):
    commit = graph.snapshot(tag="v1").commit_id
    for at in (graph.moment, "v1", commit):
        assert names(graph.query(NAMES, at=at)) == ["ann"]
        assert names(graph.snapshot(at=at).query(NAMES)) == ["ann"]
    assert graph.query(NAMES, at="v1").target == {"snapshot": "v1"}


def test_a_result_says_which_state_was_read(graph):
    snapshot = graph.snapshot(tag="v1")
    commit = {"snapshot": snapshot.commit_id}
    assert graph.query(NAMES, at=graph.moment).target == commit
    assert graph.snapshot(at=graph.moment).query(NAMES).target == commit
    assert graph.snapshot(version=snapshot.version).query(NAMES).target == commit
    assert graph.snapshot(commit=snapshot.commit_id).query(NAMES).target == commit
    assert snapshot.query(NAMES).target == {"snapshot": "v1"}
    assert graph.query(NAMES).target == {"branch": "main"}


def test_a_tag_goes_before_a_commit_of_the_same_name(graph):
    first, newest = (graph.commits()[n].commit_id for n in (-1, 0))
    graph.tags.create(first, newest)
    assert graph.snapshot(at=first).commit_id == newest
    assert graph.snapshot(commit=first).commit_id == first


def test_an_unknown_name_is_not_found(graph):
    with pytest.raises(NotFound, match="no tag or commit 'v9'"):
        graph.query(NAMES, at="v9")


def test_one_name_for_one_state(graph):
    with pytest.raises(InputError, match="only one of"):
        graph.snapshot(tag="v1", at="v1")
    with pytest.raises(InputError, match="only one of"):
        graph.query(NAMES, snapshot=graph.snapshot(), at="v1")
    with pytest.raises(InputError, match="only one of"):
        graph.query(NAMES, branch="other", snapshot=graph.snapshot())


def test_a_commit_or_tag_needs_no_branch(graph):
    graph.branches.create("other")
    commit = graph.commits()[0].commit_id
    for given in ({"at": "v1"}, {"tag": "v1"}, {"commit": commit}, {"at": commit}):
        with pytest.raises(InputError, match="branch cannot be combined"):
            graph.snapshot("other", **given)
    with pytest.raises(InputError, match="branch cannot be combined"):
        graph.query(NAMES, branch="nope", at="v1")
    assert names(graph.query(NAMES, branch="other", at=datetime.now(UTC))) == ["ann", "bob"]


def test_a_time_as_text_gets_a_hint(graph):
    with pytest.raises(NotFound, match="no tag or commit") as caught:
        graph.snapshot(at="2026-01-01T00:00Z")
    assert caught.value.hint == "pass a datetime for a time"


def test_a_snapshot_of_another_graph_is_refused(graph, tmp_path):
    with Graph.init(tmp_path / "other.omni", SCHEMA, durability="os") as other:
        for call in (
            lambda: graph.query(NAMES, snapshot=other.snapshot()),
            lambda: graph.snapshot().diff(other.snapshot()),
        ):
            with pytest.raises(InputError, match="belongs to another graph"):
                call()


def test_a_mutation_is_explained_and_does_not_run(graph):
    plan = graph.snapshot().explain('query q() { insert Person { name: "x" } }')
    assert plan.to_json()["name"] == "q"
    assert graph.snapshot().count("Person") == 2


def test_a_closed_graph_answers_no_query_through_a_snapshot(graph):
    snapshot = graph.snapshot()
    graph.close()
    with pytest.raises(Closed):
        snapshot.query(NAMES)


# -- datasets -------------------------------------------------------------------------------------


def test_a_dataset_is_the_table_at_the_moment_of_its_snapshot(graph):
    assert graph.snapshot(tag="v1").dataset("Person").to_table()["name"].to_pylist() == ["ann"]
    assert graph.snapshot().dataset("Person").count_rows() == 2


def test_other_tools_read_a_dataset(graph):
    dataset = graph.snapshot().dataset("Person")
    polars = pytest.importorskip("polars")
    assert polars.scan_pyarrow_dataset(dataset).select("name").collect().height == 2
    duckdb = pytest.importorskip("duckdb")
    assert duckdb.sql("select count(*) from dataset").fetchall() == [(2,)]


@pytest.mark.parametrize(
    "write",
    [
        lambda dataset: dataset.delete("true"),
        lambda dataset: dataset.insert(pa.table({"name": ["x"]})),
        lambda dataset: dataset.update({"age": "1"}),
        lambda dataset: dataset.merge_insert("id"),
        lambda dataset: dataset.restore(),
        lambda dataset: dataset.optimize,
        lambda dataset: dataset.tags,
        lambda dataset: dataset.checkout_version(1),
        lambda dataset: dataset.create_scalar_index("age", "BTREE"),
        lambda dataset: dataset.drop_columns(["age"]),
        lambda dataset: dataset.cleanup_old_versions(),
    ],
)
def test_a_dataset_cannot_move_its_table(graph, write):
    before = graph.snapshot().tables
    with pytest.raises(ReadOnly):
        write(graph.snapshot().dataset("Person"))
    assert graph.snapshot().tables == before
    assert graph.maintenance.repair().tables[0].action == "no_op"


# -- showing --------------------------------------------------------------------------------------


def test_what_is_returned_shows_itself_in_one_line(graph):
    before = graph.snapshot(tag="v1")
    graph.branches.create("review")
    graph.append({"Person": pa.table({"name": ["cyd"]})}, branch="review")
    returned = [
        graph,
        before,
        before.explain(NAMES),
        before.diff(graph.snapshot()),
        graph.merge("review", delete_branch=True),
        graph.catalog,
        graph.branches,
        graph.tags,
        graph.changes,
        graph.schema,
        graph.indexes,
        graph.embeddings,
        graph.maintenance,
        graph.changes.poll(),
        graph.changes.baseline(),
        graph.schema.plan(SCHEMA.replace("I32", "I64")),
        graph.schema.apply(SCHEMA.replace("I32", "I64"), dry_run=True),
        graph.indexes.status(),
        graph.maintenance.optimize(),
        graph.maintenance.repair(),
        graph.maintenance.cleanup(3, dry_run=True),
        graph.maintenance.doctor(),
        graph.maintenance.verify(),
    ]
    for value in returned:
        text = repr(value)
        assert type(value).__name__ in text
        assert "\n" not in text
        assert len(text) < 300, text


def test_a_notebook_shows_tables_with_escaped_texts(graph):
    before = graph.snapshot(tag="v1")
    graph.branches.create("review")
    graph.append({"Person": pa.table({"name": ["cyd"]})}, branch="review")
    text = 'query q() { match { $p: Person { name: "a<b" } } return { $p.name } }'
    shown = [graph, before, before.explain(text), before.diff(graph.snapshot())]
    shown.append(graph.merge("review"))
    for value in shown:
        assert value._repr_html_().startswith(("<b>", "<pre>"))
    assert "a&lt;b" in shown[2]._repr_html_()
    graph.close()
    assert "closed" in graph._repr_html_()
