"""A merge that streams leaves what an ordinary upsert leaves, down to row ids and stamps."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.write.load import intake, spool
from tests.write.load.world import edge, node

pytestmark = pytest.mark.rotates(3)

SCHEMA = """\
node Doc {
  slug: String @key
  code: I64? @index
  words: [String]?
  vector: Vector(2)?
  body: Blob?
}
edge Cites: Doc -> Doc { page: I32? }
"""
STAMPS = ["_row_created_at_version", "_row_last_updated_at_version"]


def doc(number, value):
    return node(
        "Doc",
        slug=f"d{number}",
        code=value,
        words=None if value % 3 == 0 else [f"w{value}", ""],
        vector=None if value % 4 == 0 else [1.0, float(value)],
        body=None if value % 5 == 0 else f"base64:{'aGkh' * (1 + value % 2)}",
    )


def raw(graph, table_key, branch="main"):
    """The dataset of a table as plain Lance opens it."""
    manifest = graph._handle.store.manifest(None if branch == "main" else branch)
    pin = manifest.current().pins[table_key]
    return lance.dataset(str(Path(graph.uri, pin.ref.path)), version=pin.version)


def image(graph, table_key, branch="main"):
    """Every row by its id: its values, its row id, when it was made and last changed."""
    dataset = raw(graph, table_key, branch)
    plain = [name for name in dataset.schema.names if name != "body"]
    rows = dataset.to_table(columns=[*plain, *STAMPS], with_row_id=True).to_pylist()
    actual = {row["id"]: tuple(row.values()) for row in rows}
    assert len(actual) == len(rows) == len({row["_rowid"] for row in rows})
    if table_key == "node:Doc":
        snapshot = graph.snapshot(branch)
        return {key: (*row, snapshot.read_blob("Doc", key, "body")) for key, row in actual.items()}
    return actual


def merged(tmp_path, name, branch, records):
    with Graph.open(tmp_path / name, durability="os") as graph:
        counts = graph.load(records, branch=branch).tables
        images = {key: image(graph, key, branch) for key in ("node:Doc", "edge:Cites")}
        return counts, images, list(graph.snapshot(branch).export())


@pytest.fixture
def streams():
    """Every row goes through a file, in batches of a few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_IN_MEMORY", 0)
        patch.setattr(intake, "_MAX_GATHERED", 0)
        yield


def both(tmp_path, branch, records):
    """The same merge on two copies of a graph, one in the ordinary way and one that streams."""
    shutil.copytree(tmp_path / "g", tmp_path / "ordinary")
    shutil.copytree(tmp_path / "g", tmp_path / "streamed")
    ordinary = merged(tmp_path, "ordinary", branch, records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_IN_MEMORY", 0)
        patch.setattr(intake, "_MAX_GATHERED", 0)
        streamed = merged(tmp_path, "streamed", branch, records)
    return ordinary, streamed


def built(path, *, indexed, branch):
    """Rows from several loads, some changed and some deleted since."""
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.load([doc(n, n) for n in range(30)])
        graph.load([edge("Cites", f"d{n}", f"d{n + 1}", id=f"e{n}") for n in range(20)])
        if indexed:
            graph.indexes.ensure()
        graph.load([doc(n, n + 1) for n in range(20, 50)])
        graph.mutate('query q() { delete Doc where slug = "d3" or slug = "d41" }')
        if branch != "main":
            graph.branches.create(branch)


@pytest.mark.parametrize("branch", ["main", "review/x"])
@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "without indexes"])
def test_a_merge_that_streams_leaves_what_an_ordinary_one_does(tmp_path, indexed, branch):
    built(tmp_path / "g", indexed=indexed, branch=branch)
    records = [doc(n, 7 * n + 1) for n in (60, 3, 10, 45, 0, 61, 25, 11, 62)]
    records += [edge("Cites", "d0", "d10", id=name, page=4) for name in ("e5", "x1", "e9")]
    ordinary, streamed = both(tmp_path, branch, records)
    assert streamed == ordinary
    assert (streamed[0]["node:Doc"].updated, streamed[0]["node:Doc"].inserted) == (5, 4)


rows_of = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 9)), unique_by=lambda row: row[0])


@settings(max_examples=3)
@given(st.lists(rows_of, min_size=1, max_size=3))
def test_any_merges_one_after_the_other(tmp_path_factory, loads):
    folder = tmp_path_factory.mktemp("merges")
    built(folder / "g", indexed=True, branch="main")
    for rows in loads:
        ordinary, streamed = both(folder, "main", [doc(*row) for row in rows])
        assert streamed == ordinary
        shutil.rmtree(folder / "g")
        (folder / "streamed").rename(folder / "g")
        shutil.rmtree(folder / "ordinary")


@pytest.mark.usefixtures("streams")
def test_indexes_answer_rightly_after_a_merge_that_streams(tmp_path):
    """What the index knows of replaced rows is not true any more."""
    built(tmp_path / "g", indexed=True, branch="main")
    with Graph.open(tmp_path / "g", durability="os") as graph:
        graph.load([doc(n, 100 + n) for n in range(0, 60, 2)])
        for condition in (pc.field("code") == 4, pc.field("code") == 104, pc.field("id") == "d4"):
            table = raw(graph, "node:Doc")
            actual = [
                table.to_table(columns=["id"], filter=condition, use_scalar_index=used)
                for used in (True, False)
            ]
            assert actual[0].equals(actual[1])
        codes = graph.snapshot().read("Doc", ["code"], pc.field("id") == "d4")["code"]
        assert codes.to_pylist() == [104]
        graph.indexes.ensure()
        codes = graph.snapshot().read("Doc", ["id"], pc.field("code") == 104)["id"]
        assert codes.to_pylist() == ["d4"]


def test_rows_that_are_all_new_are_appended(tmp_path):
    """An upsert would read the keys that are there again, and rewrite nothing."""
    built(tmp_path / "g", indexed=False, branch="main")
    with Graph.open(tmp_path / "g", durability="os") as graph:
        before = {f.fragment_id for f in raw(graph, "node:Doc").get_fragments()}
        graph.load([doc(n, n) for n in range(70, 75)])
        made = raw(graph, "node:Doc").read_transaction(raw(graph, "node:Doc").version).operation
        assert type(made).__name__ == "Append"
        graph.mutate('query q() { insert Doc { slug: "fresh" } }')
        made = raw(graph, "node:Doc").read_transaction(raw(graph, "node:Doc").version).operation
        assert type(made).__name__ == "Append"
        after = {f.fragment_id for f in raw(graph, "node:Doc").get_fragments()}
        assert before < after


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "without indexes"])
@pytest.mark.parametrize("count", [99, 101, 500, 1_001])
@pytest.mark.parametrize("position", [1, 98])
def test_one_row_among_many_that_is_there_is_replaced(tmp_path, count, position, indexed):
    """However few of the ids were looked up first."""
    with Graph.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        graph.load([doc(n, n) for n in range(40)])
        if indexed:
            graph.indexes.ensure()
        records = [doc(n, 5) for n in range(1_000, 1_000 + count)]
        records[position] = doc(17, 99)
        counts = graph.load(records).tables["node:Doc"]
        assert (counts.inserted, counts.updated) == (count - 1, 1)
        actual = graph.snapshot().read("Doc", ["id", "code"]).to_pylist()
        assert len(actual) == len({row["id"] for row in actual}) == 40 + count - 1
        assert [row["code"] for row in actual if row["id"] == "d17"] == [99]
