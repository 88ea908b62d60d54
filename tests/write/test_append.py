"""Appending typed Arrow rows: what fits, what is refused, and what ids rows get."""

from __future__ import annotations

import datetime as dt
import json

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.write_request import PreparedWrite, WriteRequest
from omnigraph.errors import (
    InputError,
    IntegrityError,
    KeyConflict,
    OmniGraphError,
    OrphanEdge,
    UniqueViolation,
    ValueConversionError,
    ValueViolation,
)
from tests.commit.world import at

pytestmark = pytest.mark.rotates(3)

SCHEMA = """\
node Doc {
  slug: String @key
  i32: I32?  i64: I64?  u32: U32?  u64: U64?
  f32: F32?  f64: F64?
  ok: Bool?
  day: Date?
  moment: DateTime?
  kind: enum(note, paper)?
  words: [String]?
  numbers: [I32]?
  vector: Vector(2)?
  body: Blob?
}
node Strict { name: String @key  must: I32 }
node Free { text: String? }
node Log { moments: [DateTime]? }
node Day { on: Date @key }
node Instant { at: DateTime @key }
node Pair { first: String  second: I32  @key(first, second) }
node Number { n: I64 @key }
edge Cites: Doc -> Doc { weight: F64? }
edge Uses: Doc -> Free
"""
MOMENT = dt.datetime(2024, 5, 1, 10, 11, 12, 345000)
MILLIS = 1714558272345


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        yield graph


def docs(*slugs, **columns):
    return {"Doc": pa.table({"slug": pa.array(slugs, pa.string()), **columns})}


def column(graph, name, type_name="Doc"):
    return graph.snapshot().read(type_name, [name])[name].combine_chunks()


def ids(graph, type_name):
    return graph.snapshot().read(type_name, ["id"])["id"].to_pylist()


def is_untouched(graph):
    """Nothing was published and no table moved."""
    return graph.snapshot().version == 1 and all(
        lance.dataset(f"{graph.uri}/{pin.location}").version == 1
        for pin in graph._handle.store.manifest(None).current().pins.values()
    )


# -- values -----------------------------------------------------------------------------------

FITS = {
    "small integers into wide ones": ("i64", pa.array([1], pa.int8()), [1]),
    "wide integers that are small": ("i32", pa.array([7], pa.int64()), [7]),
    "unsigned": ("u32", pa.array([7], pa.int64()), [7]),
    "the greatest unsigned": ("u64", pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
    "whole floats into integers": ("i32", pa.array([3.0]), [3]),
    "integers into floats": ("f64", pa.array([3]), [3.0]),
    "double into single": ("f32", pa.array([0.5]), [0.5]),
    "bool": ("ok", pa.array([True]), [True]),
    "large strings": ("kind", pa.array(["note"], pa.large_string()), ["note"]),
    "dictionaries": ("kind", pa.array(["note"]).dictionary_encode(), ["note"]),
    "days": ("day", pa.array([dt.date(2024, 5, 1)]), [dt.date(2024, 5, 1)]),
    "whole days in milliseconds": (
        "day",
        pa.array([dt.date(2024, 5, 1)], pa.date64()),
        [dt.date(2024, 5, 1)],
    ),
    "lists": ("words", pa.array([["a", ""], []]).slice(0, 1), [["a", ""]]),
    "lists of wide integers": ("numbers", pa.array([[1, 2]], pa.list_(pa.int64())), [[1, 2]]),
    "vectors": ("vector", pa.array([[1.0, 2.0]]), [[1.0, 2.0]]),
    "nulls of no type": ("day", pa.nulls(1), [None]),
    "nulls of a list": ("numbers", pa.nulls(1), [None]),
}


@pytest.mark.parametrize(("name", "given", "expected"), FITS.values(), ids=list(FITS))
def test_values_that_fit_are_stored_as_their_type(graph, name, given, expected):
    """Without loss, whatever width Arrow had them in."""
    graph.append(docs("a", **{name: given}))
    stored = column(graph, name)
    assert stored.to_pylist() == expected
    assert stored.type == graph.catalog.node("Doc").arrow_schema().field(name).type


MOMENTS = {
    "milliseconds": pa.array([MILLIS], pa.int64()).cast(pa.date64()),
    "timestamps in microseconds": pa.array([MOMENT], pa.timestamp("us")),
    "timestamps in milliseconds": pa.array([MOMENT], pa.timestamp("ms")),
    "timestamps in UTC": pa.array([MOMENT.replace(tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
    "timestamps of another zone": pa.array(
        [MOMENT.replace(tzinfo=dt.UTC)], pa.timestamp("ns", "Europe/Paris")
    ),
}


@pytest.mark.parametrize("given", MOMENTS.values(), ids=list(MOMENTS))
def test_a_moment_keeps_its_time_of_day(graph, given):
    """Arrow's own cast would cut it down to the day."""
    several = pa.array([[given[0]], None], pa.list_(given.type))
    graph.append(docs("a", moment=given) | {"Log": pa.table({"moments": several})})
    assert column(graph, "moment").cast(pa.int64()).to_pylist() == [MILLIS]
    stored = column(graph, "moments", "Log")
    assert stored.flatten().cast(pa.int64()).to_pylist() == [MILLIS]


MISFITS = {
    "a fraction into an integer": ("i32", pa.array([1.5])),
    "an integer that is too great": ("i32", pa.array([2**31])),
    "a negative into an unsigned": ("u32", pa.array([-1])),
    "an integer beyond the exact floats": ("f64", pa.array([2**53 + 1])),
    "text into an integer": ("i32", pa.array(["12"])),
    "an integer into text": ("kind", pa.array([1])),
    "a bool into an integer": ("i32", pa.array([True])),
    "an integer into a bool": ("ok", pa.array([1])),
    "text into a bool": ("ok", pa.array(["true"])),
    "text into a day": ("day", pa.array(["2024-05-01"])),
    "a moment into a day": ("day", pa.array([MOMENT])),
    "a part of a day into a day": ("day", pa.array([MILLIS]).cast(pa.date64())),
    "an integer into a day": ("day", pa.array([1], pa.int32())),
    "text into a moment": ("moment", pa.array(["2024-05-01T10:00:00"])),
    "microseconds that would be lost": (
        "moment",
        pa.array([MOMENT.replace(microsecond=1)], pa.timestamp("us")),
    ),
    "text into bytes": ("body", pa.array(["abc"])),
    "bytes into text": ("kind", pa.array([b"note"])),
    "a scalar into a list": ("words", pa.array(["a"])),
    "a list into a scalar": ("i32", pa.array([[1]])),
    "a list of text into integers": ("numbers", pa.array([["1"]])),
    "a vector that is too long": ("vector", pa.array([[1.0, 2.0, 3.0]])),
    "a vector that is too short": ("vector", pa.array([[1.0]])),
    "a vector of text": ("vector", pa.array([["1", "2"]])),
    "a null in a list": ("words", pa.array([["a", None]])),
    "a null in a vector": ("vector", pa.array([[1.0, None]])),
    "a vector of zeros": ("vector", pa.array([[0.0, 0.0]])),
    "a number that is not finite": ("f64", pa.array([float("inf")])),
    "a day that no calendar shows": ("day", pa.array([2**31 - 1], pa.int32()).view("date32")),
    "a struct": ("i32", pa.array([{"a": 1}])),
}


@pytest.mark.parametrize(("name", "given"), MISFITS.values(), ids=list(MISFITS))
def test_values_that_do_not_fit_are_refused(graph, name, given):
    """No silent coercion, and the error names the table and the property."""
    with pytest.raises(ValueConversionError) as caught:
        graph.append(docs("a", **{name: given}))
    assert caught.value.details == {"table_key": "node:Doc", "property": name}
    assert name in caught.value.message
    assert is_untouched(graph)


SHAPES = {
    "an unknown type": ({"Dok": pa.table({"slug": ["a"]})}, "there is no type 'Dok'"),
    "an edge as a node": ({"node:Cites": pa.table({"src": ["a"]})}, "there is no type"),
    "an unknown property": (
        {"Doc": pa.table({"slug": ["a"], "slugg": [1]})},
        "no property 'slugg'",
    ),
    "an unknown property of no rows": (
        {"Doc": pa.table({"nope": pa.array([], pa.string())})},
        "no property 'nope'",
    ),
    "no key": ({"Doc": pa.table({"i32": [1]})}, "'slug' is missing"),
    "no value that is required": ({"Strict": pa.table({"name": ["a"]})}, "'must' is missing"),
    "a null that is required": (
        {"Strict": pa.table({"name": ["a"], "must": pa.array([None], pa.int32())})},
        "'must' has null values",
    ),
    "a null key": ({"Doc": pa.table({"slug": pa.nulls(1, pa.string())})}, "'slug' has null values"),
    "no source": ({"Cites": pa.table({"dst": ["a"]})}, "'src' is missing"),
    "no target": ({"Cites": pa.table({"src": ["a"]})}, "'dst' is missing"),
    "another id than the key": (
        {"Doc": pa.table({"id": ["b"], "slug": ["a"]})},
        "the id of a row is its key slug",
    ),
    "a type by two names": (
        {"Doc": pa.table({"slug": ["a"]}), "node:Doc": pa.table({"slug": ["b"]})},
        "node:Doc is given twice",
    ),
    "a column twice": (
        {"Doc": pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["slug", "slug"])},
        "'slug' is given twice",
    ),
    "no Arrow": ({"Doc": [{"slug": "a"}]}, "rows of 'Doc' are not an Arrow table"),
}


@pytest.mark.parametrize(("rows", "text"), SHAPES.values(), ids=list(SHAPES))
def test_rows_of_another_shape_are_refused(graph, rows, text):
    """Before anything is written."""
    with pytest.raises(InputError) as caught:
        graph.append(rows)
    assert text in caught.value.message
    assert is_untouched(graph)


def test_a_misspelt_name_gets_a_hint(graph):
    for rows, meant in (
        ({"Dco": pa.table({"slug": ["a"]})}, "Doc"),
        ({"Doc": pa.table({"slgu": ["a"]})}, "slug"),
    ):
        with pytest.raises(InputError) as caught:
            graph.append(rows)
        assert caught.value.hint == f"did you mean '{meant}'?"


def test_rows_may_come_as_a_batch_in_any_order_of_columns(graph):
    batch = pa.record_batch({"i32": pa.array([1, 2], pa.int32()), "slug": ["a", "b"]})
    graph.append({"node:Doc": batch})
    assert sorted(graph.snapshot().read("Doc", ["slug", "i32"]).to_pylist(), key=str) == [
        {"slug": "a", "i32": 1},
        {"slug": "b", "i32": 2},
    ]


def test_rows_in_several_chunks_are_all_added(graph):
    chunks = pa.chunked_array([["a"], ["b", "c"], []], pa.string())
    assert graph.append({"Doc": pa.table({"slug": chunks})}).affected_nodes == 3
    assert sorted(ids(graph, "Doc")) == ["a", "b", "c"]


# -- ids --------------------------------------------------------------------------------------


def test_the_id_of_a_keyed_node_is_its_key(graph):
    """Also when it is given as well."""
    graph.append(docs("a", "b"))
    graph.append({"Doc": pa.table({"id": ["c"], "slug": ["c"]})})
    assert sorted(ids(graph, "Doc")) == ["a", "b", "c"]


KEYS = {
    "integers": ({"Number": pa.table({"n": [-5, 2**62]})}, "Number", ["-5", str(2**62)]),
    "days": ({"Day": pa.table({"on": [dt.date(2024, 5, 1)]})}, "Day", ["2024-05-01"]),
    "moments": (
        {"Instant": pa.table({"at": pa.array([MOMENT], pa.timestamp("us"))})},
        "Instant",
        ["2024-05-01T10:11:12.345Z"],
    ),
    "moments of a zone": (
        {"Instant": pa.table({"at": pa.array([MOMENT], pa.timestamp("ms", "Europe/Paris"))})},
        "Instant",
        ["2024-05-01T10:11:12.345Z"],
    ),
    "pairs": (
        {"Pair": pa.table({"first": ["a,b", "a"], "second": pa.array([1, 2], pa.int32())})},
        "Pair",
        ['["a,b","1"]', '["a","2"]'],
    ),
}


@pytest.mark.parametrize(("rows", "name", "expected"), KEYS.values(), ids=list(KEYS))
def test_keys_of_every_kind_are_spelled_canonically(graph, rows, name, expected):
    graph.append(rows)
    assert sorted(ids(graph, name)) == sorted(expected)
    with pytest.raises(KeyConflict):
        graph.append(rows)


def test_two_moments_of_one_day_are_two_rows(graph):
    moments = pa.array([MOMENT, MOMENT + dt.timedelta(milliseconds=1)], pa.timestamp("ms"))
    graph.append({"Instant": pa.table({"at": moments})})
    assert graph.snapshot().count("Instant") == 2


def test_tuples_that_look_alike_when_joined_stay_apart(graph):
    firsts, seconds = ["a", 'a","1', "a,1"], [1, 1, 1]
    graph.append({"Pair": pa.table({"first": firsts, "second": pa.array(seconds, pa.int32())})})
    assert len(set(ids(graph, "Pair"))) == 3
    assert all(len(json.loads(actual)) == 2 for actual in ids(graph, "Pair"))


def test_rows_without_a_key_get_new_ids_or_keep_theirs(graph):
    graph.append({"Free": pa.table({"text": ["x"] * 50})})
    made = ids(graph, "Free")
    assert len(set(made)) == 50
    assert all(len(actual) == 26 for actual in made)
    graph.append({"Free": pa.table({"id": ["mine"], "text": ["y"]})})
    assert "mine" in ids(graph, "Free")


def test_edges_get_ids_of_their_own_and_may_be_parallel(graph):
    graph.append(docs("a", "b"))
    graph.append({"Cites": pa.table({"src": ["a", "a"], "dst": ["b", "b"], "weight": [1.0, 2.0]})})
    rows = graph.snapshot().read("Cites").to_pylist()
    assert [(row["src"], row["dst"]) for row in rows] == [("a", "b"), ("a", "b")]
    assert len({row["id"] for row in rows}) == 2


# -- strictness -------------------------------------------------------------------------------


def test_an_id_that_is_there_refuses_the_whole_write(graph):
    """Also the other tables of it."""
    graph.append(docs("a"))
    with pytest.raises(KeyConflict) as caught:
        graph.append(docs("b", "a") | {"Free": pa.table({"text": ["x"]})})
    assert caught.value.details["table_key"] == "node:Doc"
    assert "'a'" in caught.value.message
    assert graph.snapshot().version == 2
    assert (ids(graph, "Doc"), ids(graph, "Free")) == (["a"], [])
    graph.append(docs("b"))


def test_an_edge_id_that_is_there_is_refused(graph):
    edge = {"Cites": pa.table({"id": ["e"], "src": ["a"], "dst": ["a"]})}
    graph.append(docs("a") | edge)
    with pytest.raises(KeyConflict):
        graph.append(edge)
    assert graph.snapshot().count("Cites") == 1


@pytest.mark.parametrize("count", [10, 3_000])
def test_a_known_id_is_found_among_few_and_many(graph, count):
    slugs = [f"d{number}" for number in range(count)]
    graph.append(docs(*slugs))
    with pytest.raises(KeyConflict):
        graph.append(docs(*[f"e{number}" for number in range(count - 1)], f"d{count - 1}"))
    graph.append(docs(*[f"e{number}" for number in range(count)]))
    assert graph.snapshot().count("Doc") == 2 * count


def test_an_id_that_is_twice_in_the_input_is_refused(graph):
    with pytest.raises(IntegrityError) as caught:
        graph.append(docs("a", "b", "a"))
    assert isinstance(caught.value, UniqueViolation)
    assert is_untouched(graph)


@pytest.mark.parametrize(("src", "dst"), [("a", "ghost"), ("ghost", "a"), ("ghost", "ghost")])
def test_an_edge_to_nowhere_refuses_the_whole_write(graph, src, dst):
    graph.append(docs("a"))
    with pytest.raises(OrphanEdge) as caught:
        graph.append(docs("b") | {"Cites": pa.table({"src": ["a", src], "dst": ["a", dst]})})
    assert "'ghost'" in caught.value.message
    assert caught.value.details["table_key"] == "edge:Cites"
    assert graph.snapshot().version == 2
    assert ids(graph, "Doc") == ["a"]


def test_an_edge_to_a_node_of_another_type_is_an_edge_to_nowhere(graph):
    graph.append(docs("a") | {"Free": pa.table({"id": ["f"]})})
    graph.append({"Uses": pa.table({"src": ["a"], "dst": ["f"]})})
    with pytest.raises(OrphanEdge):
        graph.append({"Uses": pa.table({"src": ["a"], "dst": ["a"]})})


def test_an_edge_may_lead_to_nodes_of_the_same_write(graph):
    """To new and to old ones, in whatever order they are given."""
    graph.append(docs("old"))
    edges = pa.table({"src": ["new", "old", "new"], "dst": ["old", "new", "new"]})
    receipt = graph.append({"Cites": edges} | docs("new"))
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 3)
    assert graph.snapshot().version == 3


EMPTY = {
    "nothing": {},
    "a table without rows": {"Doc": pa.table({"slug": pa.array([], pa.string())})},
    "a table without columns": {"Doc": pa.table({})},
    "several tables without rows": {
        "Doc": pa.table({"slug": pa.array([], pa.string())}),
        "Cites": pa.table({"src": pa.array([], pa.string()), "dst": pa.array([], pa.string())}),
    },
}


@pytest.mark.parametrize("rows", EMPTY.values(), ids=list(EMPTY))
def test_an_empty_append_makes_no_commit(graph, rows):
    """Decisions: no commit, no version, no sidecar."""
    receipt = graph.append(rows)
    assert receipt is None or (receipt.commit_id, receipt.affected_nodes) == (None, 0)
    assert is_untouched(graph)
    assert len(graph.commits()) == 1


def test_an_empty_table_beside_rows_is_left_alone(graph):
    graph.append(docs("a") | {"Free": pa.table({"text": pa.array([], pa.string())})})
    tables = graph.snapshot().tables
    assert (tables["node:Doc"]["version"], tables["node:Free"]["version"]) == (2, 1)


# -- others at the same time ------------------------------------------------------------------


@pytest.fixture
def other(graph):
    with Graph.open(graph.uri, durability="os") as other:
        yield other


def delete(graph, slug):
    """Delete a document as a mutation will."""

    def prepare(view):
        staged = view.stage.stage_delete_keys(view.table("node:Doc"), pa.array([slug]))
        return PreparedWrite({"node:Doc": (staged,)})

    touches = frozenset({"node:Doc"})
    commit_write(graph._handle.store, WriteRequest(WriterKind.MUTATION, None, touches, prepare))


def test_an_append_is_staged_again_on_what_another_handle_wrote(graph, other):
    """A stale view is no obstacle to adding rows."""
    graph.append(docs("a"))
    other.append(docs("b"))
    graph.append(docs("c"))
    assert sorted(ids(other, "Doc")) == ["a", "b", "c"]
    assert [commit.parent for commit in graph.commits()[:-1]] == [
        commit.commit_id for commit in graph.commits()[1:]
    ]


def test_an_edge_is_judged_again_when_a_node_table_moves_under_it(graph, other):
    """Decision 4: an unrelated change of the nodes costs nothing but another look."""
    graph.append(docs("a", "b"))
    edge = {"Cites": pa.table({"src": ["a"], "dst": ["b"]})}
    with at(Failpoint.WRITE_AFTER_TABLES, lambda: other.append(docs("c"))):
        graph.append(edge)
    assert graph.snapshot().count("Cites") == 1
    assert sorted(ids(graph, "Doc")) == ["a", "b", "c"]


def test_an_edge_whose_node_is_deleted_under_it_is_taken_back(graph, other):
    """Decision 4: different tables, so only the fence notices."""
    graph.append(docs("a", "b"))
    edge = {"Cites": pa.table({"src": ["a"], "dst": ["b"]})}
    with at(Failpoint.WRITE_AFTER_TABLES, lambda: delete(other, "b")), pytest.raises(OrphanEdge):
        graph.append(edge)
    for handle in (graph, other, Graph.open(graph.uri, "r")):
        assert handle.snapshot().count("Cites") == 0
        assert handle.snapshot().read("Cites").num_rows == 0
        assert ids(handle, "Doc") == ["a"]
    assert graph._handle.store.sidecars.list() == []
    graph.append({"Cites": pa.table({"src": ["a"], "dst": ["a"]})})
    assert graph.snapshot().count("Cites") == 1


def test_a_write_that_fails_half_way_leaves_nothing(graph):
    """One table of two is committed; the next write works."""
    graph.append(docs("a"))

    def fail():
        raise OmniGraphError("stop")

    rows = docs("b") | {"Free": pa.table({"text": ["x"]})}
    with at(Failpoint.WRITE_BETWEEN_TABLES, fail), pytest.raises(OmniGraphError, match="stop"):
        graph.append(rows)
    assert (ids(graph, "Doc"), ids(graph, "Free")) == (["a"], [])
    graph.append(rows)
    assert (sorted(ids(graph, "Doc")), len(ids(graph, "Free"))) == (["a", "b"], 1)


# -- blobs and large inputs -------------------------------------------------------------------


def test_blobs_come_back_byte_for_byte(graph):
    """Small, large, empty and absent ones."""
    bodies = [b"small", b"x" * 300_000, b"", None]
    graph.append(docs("a", "b", "c", "d", body=pa.array(bodies, pa.binary())))
    location = graph._handle.store.manifest(None).current().pins["node:Doc"].location
    stored = lance.dataset(f"{graph.uri}/{location}").to_table(
        columns=["slug", "body"], blob_handling="all_binary"
    )
    actual = dict(zip(stored["slug"].to_pylist(), stored["body"].to_pylist(), strict=True))
    assert actual == dict(zip("abcd", bodies, strict=True))
    assert graph.snapshot().read("Doc", ["slug", "i32"]).num_rows == 4


def test_many_rows_are_one_commit(graph):
    slugs = [f"d{number:05}" for number in range(20_000)]
    receipt = graph.append(
        docs(*slugs, i32=pa.array(range(20_000), pa.int32()))
        | {"Cites": pa.table({"src": slugs[:-1], "dst": slugs[1:]})}
    )
    assert (receipt.affected_nodes, receipt.affected_edges, receipt.version) == (20_000, 19_999, 2)
    actual = graph.snapshot().read("Doc", ["slug"], pc.field("i32") == 777)
    assert actual["slug"].to_pylist() == ["d00777"]


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ({"Free": pa.table({"id": [""]})}, "Free.id"),
        ({"Doc": pa.table({"slug": [""]})}, "Doc.slug"),
    ],
    ids=["id", "key"],
)
def test_no_id_is_empty(graph, rows, field):
    with pytest.raises(ValueViolation, match=f"{field}: the id of a row is empty"):
        graph.append(rows)
