"""A snapshot of an actor who does not see all rows: a hidden row is a missing row, everywhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph, GraphSnapshot, Policy
from omnigraph.errors import EntityNotFound, PolicyDenied, RestrictedView

SCHEMA = """
node Person { name: String @key  team: String?  age: I32?  photo: Blob? }
node Place { name: String @key }
node Secret { name: String @key }
edge Knows: Person -> Person { note: Blob? }
edge At: Person -> Place { level: U32? }
edge Of: Secret -> Place
"""
POLICY = """
version: 2
groups: {root: [root], staff: [ana]}
rules:
  - id: root-all
    allow: {actors: {group: root}, actions: [read, read_history, export, change, schema_apply]}
  - id: staff-read
    allow: {actors: {group: staff}, actions: [read, export]}
rows:
  - {id: root, actors: {group: root}, types: ["*"]}
  - {id: red, actors: {group: staff}, types: [Person], where: team = "red"}
  - {id: links, actors: {group: staff}, types: [Knows, Place, Of]}
  - {id: levels, actors: {group: staff}, types: [At], where: level < 5}
"""


def blob(data: bytes) -> str:
    return "base64:" + base64.b64encode(data).decode()


def person(name: str, team: str | None, age: int = 1) -> dict:
    data = {"name": name, "team": team, "age": age, "photo": blob(name.encode())}
    return {"type": "Person", "data": data}


def edge(kind: str, name: str, source: str, target: str, **data) -> dict:
    return {"edge": kind, "from": source, "to": target, "data": {"id": name, **data}}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Iterator[Graph]:
    folder = tmp_path_factory.mktemp("graph")
    policy = Policy.parse(POLICY)
    with Graph.init(folder / "g.omni", SCHEMA, policy=policy, actor="root") as graph:
        rows = [person("Ada", "red", 36), person("Bob", "blue", 0), person("Cy", "red", 7)]
        rows += [person("Dan", None, 9)]
        rows += [{"type": "Place", "data": {"name": "Rome"}}]
        rows += [{"type": "Secret", "data": {"name": "S"}}]
        note = {"note": blob(b"note")}
        rows += [
            edge("Knows", "ac", "Ada", "Cy", **note),
            edge("Knows", "ab", "Ada", "Bob", **note),
        ]
        rows += [edge("At", "a1", "Ada", "Rome", level=1), edge("At", "a9", "Ada", "Rome", level=9)]
        rows += [edge("At", "b1", "Bob", "Rome", level=1), edge("Of", "s", "S", "Rome")]
        graph.load(rows)
        yield graph


@pytest.fixture
def ana(root: Graph) -> GraphSnapshot:
    return root.for_actor("ana").snapshot()


VISIBLE = {
    "node:Person": ["Ada", "Cy"],
    "node:Place": ["Rome"],
    "node:Secret": [],
    "edge:Knows": ["ac"],
    "edge:At": ["a1"],
    "edge:Of": [],
}
HIDDEN = [("Person", "Bob"), ("Person", "Dan"), ("Knows", "ab"), ("At", "a9"), ("At", "b1")]
HIDDEN += [("Of", "s"), ("Secret", "S")]


@pytest.mark.parametrize("key", VISIBLE)
def test_counts_and_rows_are_those_that_are_visible(ana, key):
    name = key.partition(":")[2]
    assert ana.count(name) == ana.tables[key]["rows"] == len(VISIBLE[key])
    assert sorted(ana.read(name)["id"].to_pylist()) == VISIBLE[key]
    assert sorted(ana.read(name, ["id"]).column("id").to_pylist()) == VISIBLE[key]
    batches = list(ana.scan(name))
    assert sorted(row for batch in batches for row in batch["id"].to_pylist()) == VISIBLE[key]


def test_a_table_of_visible_rows_has_the_columns_of_all_rows(root, ana):
    for key in VISIBLE:
        name = key.partition(":")[2]
        assert ana.read(name).schema == root.snapshot().read(name).schema
    assert ana.read("Person", ["age", "name"]).column_names == ["age", "name"]


def test_a_notebook_shows_the_visible_counts(root, ana):
    assert "<td>4</td>" in root.snapshot()._repr_html_()
    assert "<td>4</td>" not in ana._repr_html_()


def test_a_filter_keeps_visible_rows_only(ana):
    assert ana.read("Person", ["id"], pc.field("age") < 10)["id"].to_pylist() == ["Cy"]
    rows = ana.scan("At", ["id"], pc.field("level") == 1)
    assert [row for batch in rows for row in batch["id"].to_pylist()] == ["a1"]


def test_a_filter_is_never_evaluated_on_hidden_rows(root, ana):
    """Only Bob's age is 0: an error would tell that there is such a row."""
    one_by = pc.divide(pc.scalar(pa.scalar(72, pa.int32())), pc.field("age"))
    with pytest.raises(pa.ArrowInvalid):
        root.snapshot().read("Person", ["id"]).append_column(
            "age", root.snapshot().read("Person", ["age"])["age"]
        ).filter(one_by == 2)
    assert ana.read("Person", ["id"], one_by == 2)["id"].to_pylist() == ["Ada"]


@pytest.mark.parametrize(("kind", "name"), HIDDEN)
def test_a_hidden_row_is_a_missing_one(ana, kind, name):
    assert ana.entity(kind, name) is None
    assert ana.entity(kind, "nothing") is None


def test_visible_rows_are_whole(root, ana):
    for kind, name in (("Person", "Ada"), ("Knows", "ac"), ("At", "a1"), ("Place", "Rome")):
        assert ana.entity(kind, name) == root.snapshot().entity(kind, name) != None  # noqa: E711


@pytest.mark.parametrize(
    ("kind", "name", "column"), [("Person", "Bob", "photo"), ("Knows", "ab", "note")]
)
def test_the_blob_of_a_hidden_row_is_that_of_a_missing_one(ana, kind, name, column):
    for call in (ana.read_blob, ana.blob_info):
        with pytest.raises(EntityNotFound) as hidden:
            call(kind, name, column)
        with pytest.raises(EntityNotFound) as missing:
            call(kind, "nothing", column)
        assert str(hidden.value) == str(missing.value).replace("nothing", name)
        assert hidden.value.to_json().keys() == missing.value.to_json().keys()
        assert hidden.value.details == missing.value.details


def test_the_blob_of_a_visible_row_is_read(ana):
    assert ana.read_blob("Person", "Ada", "photo") == b"Ada"
    assert ana.blob_info("Knows", "ac", "note").size == 4


def test_the_place_of_a_blob_does_not_add_up_the_sizes_of_hidden_ones(root, ana):
    """Cy is stored after Bob, who is hidden."""
    table = ana.read("Person", ["name", "photo"])
    blobs = {row["name"]: row["photo"] for row in table.to_pylist()}
    assert {name: (one["position"], one["size"]) for name, one in blobs.items()} == {
        "Ada": (0, 3),
        "Cy": (0, 2),
    }
    assert [batch.to_pylist() for batch in ana.scan("Person", ["name", "photo"])] == [
        table.to_pylist()
    ]
    assert table.schema == root.snapshot().read("Person", ["name", "photo"]).schema


def test_the_dataset_of_a_table_with_hidden_rows_is_refused(ana):
    for name in ("Person", "Knows", "At", "Of", "Secret"):
        with pytest.raises(RestrictedView) as refused:
            ana.dataset(name)
        assert isinstance(refused.value, PolicyDenied)
        assert "read or scan" in refused.value.hint
    assert ana.dataset("Place").count_rows() == 1


# -- exports --------------------------------------------------------------------------------------


def ids(lines: list[str]) -> list[str]:
    return [json.loads(line)["data"]["id"] for line in lines]


def test_exports_have_the_visible_rows(root, ana, tmp_path):
    every = [row for rows in VISIBLE.values() for row in rows]
    lines = list(ana.export())
    assert sorted(ids(lines)) == sorted(every)
    assert set(lines) <= set(root.snapshot().export())
    assert ana.export(tmp_path / "all.ndjson") == len(every)
    assert (tmp_path / "all.ndjson").read_text().splitlines() == lines
    assert ids(list(ana.export(types=["Knows", "Secret"]))) == ["ac"]
    assert ana.export(tmp_path / "files", "parquet") == len(every)
    for key, rows in VISIBLE.items():
        kind, _, name = key.partition(":")
        table = pq.read_table(tmp_path / "files" / f"{kind}s" / f"{name}.parquet")
        assert sorted(table["id"].to_pylist()) == rows


def test_a_baseline_has_the_visible_rows(root, tmp_path):
    baseline = root.for_actor("ana").changes.baseline(dest=tmp_path / "base.ndjson")
    *lines, last = (tmp_path / "base.ndjson").read_text().splitlines()
    assert baseline.records == len(lines) == 5
    assert sorted(ids(lines)) == sorted(row for rows in VISIBLE.values() for row in rows)
    assert json.loads(last)["baseline"]["resume_cursor"] == baseline.cursor
    assert baseline.snapshot.count("Person") == 2


def test_an_export_on_spark_is_refused_before_spark_starts(ana, tmp_path):
    with pytest.raises(RestrictedView, match="not visible") as refused:
        ana.export(tmp_path / "out", engine="spark")
    assert "engine='local'" in refused.value.hint
    assert not (tmp_path / "out").exists()


# -- nobody, and everybody ------------------------------------------------------------------------


def test_without_an_actor_nothing_is_visible(root, tmp_path: Path):
    with Graph.open(root.uri, "r", policy=Policy.parse(POLICY)) as graph:
        snapshot = graph.snapshot()
        assert [snapshot.count(key.partition(":")[2]) for key in VISIBLE] == [0] * len(VISIBLE)
        assert list(snapshot.export()) == []
        assert snapshot.entity("Person", "Ada") is None
        assert graph.changes.poll().changes == ()
        assert {commit.actor for commit in graph.commits()} == {None}
        with pytest.raises(PolicyDenied):
            graph.changes.blame("Person", "Ada")


def test_a_policy_without_rules_for_rows_changes_no_reading(root):
    text = "{version: 1, groups: {staff: [ana]}, rules: []}"
    with Graph.open(root.uri, "r", policy=Policy.parse(text)) as graph:
        assert list(graph.snapshot().export()) == list(root.snapshot().export())
        assert graph.commits() == root.commits()
        assert graph.snapshot().dataset("Person").count_rows() == 4
        assert graph.changes.blame("Person", "Ada").commit == root.commits()[0]
