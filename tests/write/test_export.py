"""What an export writes, and that a load of it gives the same graph again."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import math
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.errors import CommitNotFound, InputError, OmniGraphError
from omnigraph.write import export
from tests.write.load.world import SCHEMA, edge, listing, node, people

pytestmark = pytest.mark.rotates(3)

EVERYTHING = [
    *people("Ada", "Bob"),
    node("Person", name="Cyd", age=30, email="cyd@x", born="1969-12-31", status="away"),
    node("Company", name="Acme", founded="0001-01-01"),
    node("Note", id="n2", text="given"),
    node("Note", text="made"),
    node("Seat", row="A,1", number=-1),
    node("Code", value=-(2**63), first="a"),
    node(
        "Thing",
        slug="high",
        i32=2**31 - 1,
        i64=2**63 - 1,
        u32=2**32 - 1,
        u64=2**64 - 1,
        f32=3.4028234663852886e38,
        f64=1.7976931348623157e308,
        ok=True,
        text='\u0000 " \\ \n \u2028 ☃ 𝄞 \u00e9 e\u0301 \ufeff',
        day="9999-12-31",
        moment="9999-12-31T23:59:59.999",
        kind="note",
        words=["", "a", "\n"],
        numbers=[-(2**31), 0],
        bigs=[2**64 - 1, 2**53 + 1],
        floats=[0.1, -0.0, 5e-324],
        flags=[True, False],
        days=["0001-01-01", "1969-12-31", "2024-02-29"],
        moments=["1969-12-31T23:59:59.999", "2024-05-01T10:00:00.001"],
        vector=[0.1, -1e-45, 3e38],
        body="base64:" + base64.b64encode(bytes(range(256))).decode(),
    ),
    node(
        "Thing",
        slug="low",
        i32=-(2**31),
        i64=-(2**63),
        u32=0,
        u64=0,
        f32=1e-45,
        f64=5e-324,
        ok=False,
        text="",
        day="0001-01-01",
        moment="0001-01-01T00:00:00.001",
        words=[],
        vector=[1, 2, 3],
        body="base64:",
    ),
    node("Thing", slug="nulls"),
    edge("Knows", "Ada", "Bob", since="1899-12-31", weight=-0.0),
    edge("Knows", "Ada", "Bob", id="k1"),
    edge("WorksAt", "Cyd", "Acme", title="chief"),
]


def made(location, data=(), **options):
    graph = Graph.init(location, SCHEMA, durability="os")
    if data:
        graph.load(data, **options)
    return graph


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A graph with every type of value."""
    with made(tmp_path_factory.mktemp("full") / "g.omni", EVERYTHING) as graph:
        yield graph


def content(graph, **at):
    """Every row of every type, bit by bit; blobs through their own reader."""
    snapshot, actual = graph.snapshot(**at), {}
    catalog = graph.catalog
    for kind in (*catalog.node_types.values(), *catalog.edge_types.values()):
        names = [n for n in kind.arrow_schema().names if n != "body"]
        for row in snapshot.read(kind.name, names).to_pylist():
            exact = {name: _exact(value) for name, value in row.items()}
            if "body" in kind.arrow_schema().names:
                exact["body"] = snapshot.read_blob(kind.name, row["id"], "body")
            actual[kind.name, row["id"]] = exact
    return actual


def _exact(value):
    if isinstance(value, list):
        return [_exact(item) for item in value]
    return struct.pack("<d", value) if isinstance(value, float) else value


# -- the form ---------------------------------------------------------------------------------


def test_lines_are_in_load_format(full):
    """Engine 10: an id and every property, nulls too; days as integers, moments without zone."""
    lines = [json.loads(line) for line in full.snapshot().export()]
    thing = next(line for line in lines if line.get("data", {}).get("id") == "high")
    assert list(thing) == ["type", "data"]
    assert set(thing["data"]) == {"id", *full.catalog.node("Thing").properties}
    assert thing["data"]["day"] == (dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days
    assert thing["data"]["days"] == [-719162, -1, 19782]
    assert thing["data"]["moment"] == "9999-12-31T23:59:59.999"
    assert thing["data"]["body"].startswith("base64:")
    assert thing["data"]["u64"] == 2**64 - 1
    nulls = next(line for line in lines if line.get("data", {}).get("id") == "nulls")
    assert {value for name, value in nulls["data"].items() if name not in ("id", "slug")} == {None}
    knows = next(line for line in lines if line["data"]["id"] == "k1")
    assert knows == {
        "edge": "Knows",
        "from": "Ada",
        "to": "Bob",
        "data": {"id": "k1", "since": None, "weight": None},
    }


def test_nodes_come_before_edges_and_rows_by_their_ids(full):
    """Decision: so that a load can take them as they come."""
    lines = [json.loads(line) for line in full.snapshot().export()]
    kinds = ["edge" in line for line in lines]
    assert kinds == sorted(kinds)
    order = [(line.get("type") or line["edge"], line["data"]["id"]) for line in lines]
    runs = [name for n, (name, _) in enumerate(order) if n == 0 or order[n - 1][0] != name]
    assert len(runs) == len(set(runs))
    for name in runs:
        ids = [row_id for kind, row_id in order if kind == name]
        assert ids == sorted(ids)


def test_two_exports_of_one_state_are_the_same_bytes(full, tmp_path):
    full.snapshot().export(tmp_path / "a.ndjson")
    full.snapshot().export(tmp_path / "b.ndjson")
    assert (tmp_path / "a.ndjson").read_bytes() == (tmp_path / "b.ndjson").read_bytes()
    assert (tmp_path / "a.ndjson").read_text("utf-8").split("\n") == [*full.snapshot().export(), ""]


def test_an_export_changes_nothing(full, tmp_path):
    before = listing(full)
    full.snapshot().export(tmp_path / "a.ndjson")
    full.snapshot().export(tmp_path / "parquet", "parquet")
    assert listing(full) == before


# -- the round trip ---------------------------------------------------------------------------

FORMS = ["a.ndjson", "a.ndjson.gz", "a.ndjson.zst", "parquet"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["merge", "overwrite"])
def test_an_export_loads_to_the_same_graph(full, tmp_path, form, mode):
    """Every bit of it, ids of nodes without a key too."""
    count = full.snapshot().export(tmp_path / form, "parquet" if form == "parquet" else "ndjson")
    assert count == len(EVERYTHING)
    with made(tmp_path / "g.omni", people("Old") if mode == "merge" else ()) as again:
        again.load(tmp_path / form, mode)
        actual = content(again)
        actual.pop(("Person", "Old"), None)
        assert actual == content(full)
        assert list(again.snapshot().export(types=["Thing"])) == list(
            full.snapshot().export(types=["Thing"])
        )


def test_a_stream_of_lines_loads_without_a_file(full, tmp_path):
    with made(tmp_path / "g.omni") as again:
        again.load(json.loads(line) for line in full.snapshot().export())
        assert content(again) == content(full)


def test_a_graph_that_is_empty(tmp_path):
    with made(tmp_path / "g.omni") as graph:
        assert list(graph.snapshot().export()) == []
        assert graph.snapshot().export(tmp_path / "a.ndjson") == 0
        assert (tmp_path / "a.ndjson").read_bytes() == b""
        assert graph.snapshot().export(tmp_path / "parquet", "parquet") == 0
        assert graph.load(tmp_path / "parquet").commit_id is None
        assert graph.load(tmp_path / "a.ndjson").commit_id is None


FINITE = st.floats(allow_nan=False, allow_infinity=False)
SINGLE = st.floats(allow_nan=False, allow_infinity=False, width=32)
THINGS = st.fixed_dictionaries(
    {},
    optional={
        "i64": st.integers(-(2**63), 2**63 - 1),
        "u64": st.integers(0, 2**64 - 1),
        "f32": SINGLE,
        "f64": FINITE,
        "text": st.text(st.characters(codec="utf-8")),
        "day": st.dates().map(str),
        "moment": st.datetimes().map(lambda m: m.isoformat(timespec="milliseconds")),
        "words": st.lists(st.text(st.characters(codec="utf-8")), max_size=3),
        "floats": st.lists(FINITE, max_size=3),
        "moments": st.lists(st.integers(-62135596800000, 253402300799999), max_size=3),
        "vector": st.lists(SINGLE, min_size=3, max_size=3).filter(any),
        "body": st.binary(max_size=9).map(lambda b: "base64:" + base64.b64encode(b).decode()),
    },
)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(THINGS, min_size=1, max_size=8))
def test_any_values_come_back(tmp_path_factory, things):
    """Through both forms; texts keep every character, floats every bit."""
    location = tmp_path_factory.mktemp("any")
    data = [node("Thing", slug=str(n), **thing) for n, thing in enumerate(things)]
    with made(location / "a.omni", data) as graph, made(location / "b.omni") as again:
        graph.snapshot().export(location / "out", "parquet")
        again.load([json.loads(line) for line in graph.snapshot().export()])
        assert content(again) == content(graph)
        for n, thing in enumerate(things):
            actual = content(graph)["Thing", str(n)]
            if "f64" in thing:
                assert actual["f64"] == struct.pack("<d", thing["f64"])
            assert actual["text"] == thing.get("text")
        again.load(location / "out", "overwrite")
        assert content(again) == content(graph)


# -- which state ------------------------------------------------------------------------------


@pytest.fixture
def changed(tmp_path):
    """Ada on main; then Bob; Cyd on a branch."""
    with made(tmp_path / "g.omni", people("Ada")) as graph:
        graph.tags.create("first")
        graph.load(people("Bob"))
        graph.load(people("Cyd"), branch="review", from_branch="main")
        yield graph


def exported(graph, **at):
    return [json.loads(line)["data"]["name"] for line in graph.snapshot(**at).export()]


def test_a_branch_a_commit_a_tag_a_version(changed):
    assert exported(changed) == ["Ada", "Bob"]
    assert exported(changed, branch="review") == ["Ada", "Bob", "Cyd"]
    assert exported(changed, tag="first") == ["Ada"]
    assert exported(changed, version=2) == ["Ada"]
    assert exported(changed, commit=changed.commits()[0].commit_id) == ["Ada", "Bob"]


def test_a_state_that_is_not_there(changed):
    with pytest.raises(OmniGraphError):
        changed.snapshot("nope").export()
    with pytest.raises(CommitNotFound):
        changed.snapshot(commit="01ARZ3NDEKTSV4RRFFQ69G5FAV").export()
    with pytest.raises(InputError, match="only one of"):
        changed.snapshot(tag="first", version=2).export()


def test_lines_that_are_under_way_do_not_see_later_writes(changed):
    """One snapshot for the whole export."""
    lines = changed.snapshot().export()
    first = next(lines)
    changed.load(people("Dan"))
    assert [json.loads(line)["data"]["name"] for line in (first, *lines)] == ["Ada", "Bob"]


def test_some_types(full, tmp_path):
    names = {
        json.loads(line).get("type")
        for line in full.snapshot().export(types=["Person", "node:Note"])
    }
    assert names == {"Person", "Note"}
    full.snapshot().export(tmp_path / "out", "parquet", types=["Knows"])
    written = [str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.parquet")]
    assert written == ["edges/Knows.parquet"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"types": ["Robot"]}, "no type 'Robot'"),
        ({"types": ["edge:Person"]}, "no type 'edge:Person'"),
        ({"types": "Person"}, "list of names"),
        ({"types": ["Person", 7]}, "types must be a list of names, not of int"),
        ({"types": [None]}, "types must be a list of names, not of NoneType"),
        ({"format": "csv"}, "invalid format 'csv'; expected 'ndjson' or 'parquet'"),
        ({"format": "parquet"}, "needs a directory"),
    ],
    ids=["type", "table", "text", "number", "none", "format", "directory"],
)
def test_options_that_are_wrong(full, options, says):
    with pytest.raises(InputError, match=says):
        full.snapshot().export(**options)


# -- where it goes ----------------------------------------------------------------------------


def test_a_file_appears_when_it_is_whole(full, tmp_path, monkeypatch):
    """A failure leaves what stood there, and nothing beside it."""
    (tmp_path / "a.ndjson").write_text("older")
    monkeypatch.setattr(export.Encoder, "lines", _fails)
    with pytest.raises(RuntimeError):
        full.snapshot().export(tmp_path / "a.ndjson")
    with pytest.raises(RuntimeError):
        full.snapshot().export(tmp_path / "new.ndjson")
    monkeypatch.setattr(export, "_parquet_batch", _fails)
    with pytest.raises(RuntimeError):
        full.snapshot().export(tmp_path / "out", "parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.ndjson"]
    assert (tmp_path / "a.ndjson").read_text() == "older"


def _fails(*given):
    raise RuntimeError


def test_a_file_is_replaced_and_a_directory_is_not(full, tmp_path):
    (tmp_path / "a.ndjson").write_text("older")
    full.snapshot().export(tmp_path / "a.ndjson", types=["Code"])
    assert len((tmp_path / "a.ndjson").read_text().splitlines()) == 1
    (tmp_path / "out").mkdir()
    full.snapshot().export(tmp_path / "out", "parquet")
    with pytest.raises(InputError, match="not an empty directory"):
        full.snapshot().export(tmp_path / "out", "parquet")


@pytest.mark.parametrize("dest", ["no/such/dir/a.ndjson", ".", "a\0b"])
def test_places_that_cannot_be_written(full, tmp_path, dest):
    with pytest.raises(InputError):
        full.snapshot().export(f"{tmp_path}/{dest}")


def test_a_directory_below_a_file_cannot_be_written(full, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError):
        full.snapshot().export(tmp_path / "file" / "out", "parquet")


def test_endings_say_how_a_file_is_compressed(full, tmp_path):
    full.snapshot().export(tmp_path / "a.ndjson.gz")
    text = gzip.decompress((tmp_path / "a.ndjson.gz").read_bytes()).decode()
    assert text.split("\n") == [*full.snapshot().export(), ""]


def test_parquet_is_for_others_too(full, tmp_path):
    """Columns of plain types, moments as timestamps."""
    full.snapshot().export(tmp_path / "out", "parquet")
    table = pq.read_table(tmp_path / "out" / "nodes" / "Thing.parquet")
    assert table.schema.field("moment").type == pa.timestamp("ms")
    assert table.schema.field("day").type == pa.date32()
    assert table.schema.field("body").type == pa.large_binary()
    high = table.to_pylist()[0]
    assert high["moment"] == dt.datetime(9999, 12, 31, 23, 59, 59, 999000)
    assert math.copysign(1, high["floats"][1]) == -1


# -- how it is read ---------------------------------------------------------------------------


def test_rows_are_fetched_in_bounded_pieces(tmp_path):
    """By rows, by bytes and by the bytes of their blobs; each row once."""
    blob = "base64:" + base64.b64encode(bytes(1000)).decode()
    data = [node("Thing", slug=f"t{n:04}", text="x" * 100, body=blob) for n in range(1_000)]
    with made(tmp_path / "g.omni", data) as graph:
        table = graph._handle.store.table(graph.snapshot()._pin("Thing"))
        ids = [f"t{n:04}" for n in range(1_000)]
        for names, rows, size, most in (
            (["id"], 64, 1 << 30, 64),
            (["id"], 4_096, 1 << 30, 512),
            (["id", "text"], 4_096, 20_000, 256),
            (["id", "body"], 4_096, 10_000, 10),
            (["id", "body"], 4_096, 1, 1),
        ):
            batches = list(table.sorted_scan(names, "id", rows, size))
            assert max(batch.num_rows for batch in batches) <= most
            assert [row_id for batch in batches for row_id in batch["id"].to_pylist()] == ids
            if "body" in names:
                assert {b for batch in batches for b in batch["body"].to_pylist()} == {bytes(1000)}


@pytest.mark.parametrize("seed", range(3))
def test_rows_come_in_the_order_of_their_ids_whatever_the_order_of_the_writes(tmp_path, seed):
    """In the order of the ids from the start, in one write, and in several."""
    ids = [f"t{n:03}" for n in range(40)]
    parts = {
        0: [ids],
        1: [ids[::-1]],
        2: [ids[20:], ids[5:20], ids[:5]],
    }[seed]
    with made(tmp_path / "g.omni", []) as graph:
        for part in parts:
            graph.load([node("Thing", slug=slug) for slug in part], "append")
        lines = [json.loads(line) for line in graph.snapshot().export(types=["Thing"])]
    assert [line["data"]["slug"] for line in lines] == ids
