"""Indexes: which a type gets, what is pending, and that they never change a result."""

from __future__ import annotations

import datetime as dt
import threading

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import KeyConflict, OmniGraphError
from omnigraph.maintain.optimize.indexes import declared_indexes
from omnigraph.storage.tables.types import IndexKind
from tests.commit.world import at

pytestmark = pytest.mark.rotates(3)

SCHEMA = """\
node Doc {
  slug: String @key
  title: String? @index
  kind: enum(note, paper)? @index
  year: I32? @index
  size: U64? @index
  score: F64? @index
  ok: Bool? @index
  day: Date? @index
  moment: DateTime? @index
  plain: String?
  words: [String]?
  cosine: Vector(2)? @index
  euclid: Vector(2)? @index @vector("l2")
  body: Blob?
  @index(year, score)
}
node Pair { first: String  second: I32  @key(first, second) }
edge Cites: Doc -> Doc { weight: F64? @index }
"""
EQUALITY, TEXT, VECTOR = IndexKind.EQUALITY, IndexKind.TEXT, IndexKind.VECTOR


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        yield graph


def docs(*slugs, **columns):
    return {"Doc": pa.table({"slug": pa.array(slugs, pa.string()), **columns})}


def cites(*pairs):
    return {"Cites": pa.table({"src": [p[0] for p in pairs], "dst": [p[1] for p in pairs]})}


def on_disk(graph, table_key, branch="main"):
    """The indexes that plain Lance sees, as (column, type)."""
    pin = (
        graph._handle.store.manifest(None if branch == "main" else branch).current().pins[table_key]
    )
    dataset = lance.dataset(f"{graph.uri}/{pin.ref.path}", version=pin.version)
    return sorted((index.field_names[0], index.index_type) for index in dataset.describe_indices())


def versions(graph, branch="main"):
    return {key: table["version"] for key, table in graph.snapshot(branch).tables.items()}


# -- which ------------------------------------------------------------------------------------


def test_the_type_of_a_column_chooses_its_index(graph):
    """A free String gets one for equality and one for text."""
    wanted = {
        (spec.column, spec.kind, spec.metric if spec.kind is VECTOR else None)
        for spec in declared_indexes(graph.catalog.node("Doc"))
    }
    scalars = ("kind", "year", "size", "score", "ok", "day", "moment")
    assert wanted == {
        ("id", EQUALITY, None),
        ("slug", EQUALITY, None),
        ("slug", TEXT, None),
        ("title", EQUALITY, None),
        ("title", TEXT, None),
        *((column, EQUALITY, None) for column in scalars),
        ("cosine", VECTOR, "cosine"),
        ("euclid", VECTOR, "l2"),
    }


def test_lists_blobs_composite_keys_and_edge_properties_get_none(graph):
    """Nor does a column without an annotation."""
    assert [(s.column, s.kind) for s in declared_indexes(graph.catalog.node("Pair"))] == [
        ("id", EQUALITY)
    ]
    assert [(s.column, s.kind) for s in declared_indexes(graph.catalog.edge("Cites"))] == [
        ("id", EQUALITY),
        ("src", EQUALITY),
        ("dst", EQUALITY),
    ]


@pytest.fixture
def filled(graph):
    """Three documents with a value in every column, and two edges."""
    graph.append(
        docs(
            "a",
            "b",
            "c",
            title=["red fox", "blue fox", "red whale"],
            kind=["note", "paper", "note"],
            year=pa.array([1, 2, 3], pa.int32()),
            size=pa.array([1, 2, 3], pa.uint64()),
            score=[0.1, 0.2, 0.3],
            ok=[True, False, True],
            day=[dt.date(2024, 5, day) for day in (1, 2, 3)],
            moment=pa.array([dt.datetime(2024, 5, day, 10) for day in (1, 2, 3)]),
            plain=["x", "y", "z"],
            words=[["x"], ["y"], ["z"]],
            cosine=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
            euclid=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
        )
        | cites(("a", "b"), ("b", "c"))
    )
    return graph


def test_ensure_builds_everything_in_one_commit(filled):
    """Edge tables have id, src and dst."""
    before = versions(filled)
    report = filled.indexes.ensure(actor="ann")
    after = versions(filled)
    assert on_disk(filled, "edge:Cites") == [("dst", "BTree"), ("id", "BTree"), ("src", "BTree")]
    kinds = {"BTree": EQUALITY, "Inverted": TEXT}
    assert {(name, kinds.get(kind, VECTOR)) for name, kind in on_disk(filled, "node:Doc")} == {
        (spec.column, spec.kind) for spec in declared_indexes(filled.catalog.node("Doc"))
    }
    assert after == {**before, "node:Doc": before["node:Doc"] + 1, "edge:Cites": 3}
    head = filled.commits()[0]
    assert (head.commit_id, head.actor) == (report.commit_id, "ann")
    assert len(report.built) == 17
    assert all(
        state.coverage.complete for state in report.indexes if state.table_key != "node:Pair"
    )
    assert [(s.table_key, s.column, s.reason) for s in report.pending] == [
        ("node:Pair", "id", "the table is empty")
    ]


def test_a_second_ensure_does_nothing(filled):
    """No version, no commit, no sidecar."""
    filled.indexes.ensure()
    before = versions(filled), filled.snapshot().version
    passed = []
    with at(Failpoint.WRITE_AFTER_SIDECAR, lambda: passed.append(1)):
        report = filled.indexes.ensure()
    assert (report.built, report.commit_id, passed) == ((), None, [])
    assert (versions(filled), filled.snapshot().version) == before


def test_an_empty_graph_needs_no_index(graph):
    report = graph.indexes.ensure()
    assert (report.built, report.commit_id) == ((), None)
    assert graph.snapshot().version == 1
    assert {state.reason for state in report.pending} == {"the table is empty"}
    assert report.pending == report.indexes == graph.indexes.status().pending


def test_a_vector_column_without_vectors_is_pending_and_fails_nothing(graph):
    """It is built when there is something to build."""
    graph.append(docs("a", "b"))
    report = graph.indexes.ensure()
    assert [
        (s.table_key, s.column, s.reason) for s in report.pending if s.table_key == "node:Doc"
    ] == [
        ("node:Doc", "cosine", "no row has a vector"),
        ("node:Doc", "euclid", "no row has a vector"),
    ]
    assert ("slug", "BTree") in on_disk(graph, "node:Doc")
    graph.append(docs("c", cosine=[[1.0, 0.0]]))
    report = graph.indexes.ensure()
    assert report.built == (("node:Doc", "cosine", VECTOR),)
    pending = [state.column for state in report.pending if state.table_key == "node:Doc"]
    assert pending == ["euclid"]


def test_null_vectors_among_others_do_not_abort(graph):
    vectors = pa.array([None, [1.0, 0.0], None, [0.0, 1.0]], pa.list_(pa.float32(), 2))
    graph.append(docs("a", "b", "c", "d", cosine=vectors))
    graph.indexes.ensure()
    assert not [s for s in graph.indexes.status().pending if s.column == "cosine"]
    assert graph.snapshot().read("Doc").num_rows == 4


def test_nulls_in_every_scalar_column_do_not_abort(graph):
    graph.append(docs("a"))
    graph.indexes.ensure()
    columns = {name for name, _ in on_disk(graph, "node:Doc")}
    assert {"kind", "year", "title", "day", "moment", "ok"} <= columns


# -- coverage ---------------------------------------------------------------------------------


def coverage(graph, column, kind=EQUALITY):
    (state,) = [
        state
        for state in graph.indexes.status().indexes
        if (state.table_key, state.column, state.kind) == ("node:Doc", column, kind)
    ]
    return state.coverage


def test_rows_that_come_later_are_outside_and_found_all_the_same(filled):
    """Partial coverage is reported and changes no result."""
    conditions = [
        pc.field("slug") == "d",
        pc.field("year") > 2,
        pc.field("kind") == "note",
        pc.field("id").isin(["a", "d"]),
        pc.field("ok"),
        pc.field("day") >= dt.date(2024, 5, 2),
        pc.field("title") == "red fox",
    ]

    def results():
        actual = [filled.snapshot().read("Doc", ["slug"], where) for where in conditions]
        return [sorted(table["slug"].to_pylist()) for table in actual]

    assert coverage(filled, "slug") is None
    without = results()
    filled.indexes.ensure()
    assert coverage(filled, "slug").complete
    assert results() == without
    filled.append(
        docs("d", title=["red fox"], kind=["note"], year=pa.array([4], pa.int32()), ok=[True])
    )
    assert (coverage(filled, "slug").covered, coverage(filled, "slug").fragments) == (1, 2)
    assert not coverage(filled, "title", TEXT).complete
    assert results() == [
        ["d"],
        ["c", "d"],
        ["a", "c", "d"],
        ["a", "d"],
        ["a", "c", "d"],
        ["b", "c"],
        ["a", "d"],
    ]


def test_a_snapshot_from_before_the_indexes_reads_the_same(filled):
    pinned = filled.snapshot()
    filled.indexes.ensure()
    assert pinned.read("Doc", ["slug"], pc.field("year") == 2)["slug"].to_pylist() == ["b"]


def test_writes_go_on_over_indexed_tables(filled):
    """Strict appends still notice what is there."""
    filled.indexes.ensure()
    filled.append(docs("d") | cites(("d", "a")))
    with pytest.raises(KeyConflict):
        filled.append(docs("a"))
    assert filled.snapshot().count("Doc") == 4


# -- branches ---------------------------------------------------------------------------------


def test_on_a_branch_the_tables_of_main_stay_main_s(filled):
    """They are skipped, not forked."""
    filled.branches.create("b")
    before = filled.snapshot("b").tables
    report = filled.indexes.ensure("b")
    assert (report.built, report.commit_id) == ((), None)
    assert filled.snapshot("b").tables == before
    filled.append(docs("d"), branch="b")
    report = filled.indexes.ensure("b")
    assert {key for key, _, _ in report.built} == {"node:Doc"}
    assert filled.snapshot("b").tables["edge:Cites"]["branch"] == "main"
    assert on_disk(filled, "node:Doc") == []


def test_a_child_takes_over_the_tables_of_its_parent(filled):
    """They are forked first, and the parent does not move."""
    filled.branches.create("b")
    filled.append(docs("d"), branch="b")
    filled.branches.create("c", from_branch="b")
    parent = filled.snapshot("b").tables
    assert filled.snapshot("c").tables["node:Doc"]["branch"] == "b"
    report = filled.indexes.ensure("c")
    assert {key for key, _, _ in report.built} == {"node:Doc"}
    tables = filled.snapshot("c").tables
    assert tables["node:Doc"]["branch"] == "c"
    assert (tables["edge:Cites"]["branch"], tables["node:Doc"]["rows"]) == ("main", 4)
    assert filled.snapshot("b").tables == parent
    assert on_disk(filled, "node:Doc", "b") == []
    assert ("slug", "BTree") in on_disk(filled, "node:Doc", "c")


def test_a_branch_inherits_the_indexes_of_its_pins(filled):
    filled.indexes.ensure()
    filled.branches.create("b")
    assert filled.indexes.status("b").indexes == filled.indexes.status().indexes
    filled.append(docs("d"), branch="b")
    assert filled.indexes.ensure("b").built == ()
    (state,) = [
        s
        for s in filled.indexes.status("b").indexes
        if (s.table_key, s.column) == ("node:Doc", "id")
    ]
    assert (state.coverage.covered, state.coverage.fragments) == (1, 2)


# -- failures ---------------------------------------------------------------------------------


def test_indexes_that_were_not_committed_are_built_next_time(filled):
    """Staging moves nothing, and a failure leaves every table writable."""

    def fail():
        raise OmniGraphError("stop")

    before = versions(filled)
    with at(Failpoint.INDEXES_AFTER_STAGE, fail), pytest.raises(OmniGraphError, match="stop"):
        filled.indexes.ensure()
    assert versions(filled) == before
    assert on_disk(filled, "node:Doc") == []
    filled.append(docs("d"))
    assert filled.indexes.ensure().built
    assert not [
        state for state in filled.indexes.status().pending if state.table_key != "node:Pair"
    ]


def test_an_append_in_between_makes_the_build_start_again(filled):
    """Derived: a build is never the reason that a write is refused."""
    other = Graph.open(filled.uri, durability="os")
    with at(Failpoint.INDEXES_AFTER_STAGE, lambda: other.append(docs("d"))):
        report = filled.indexes.ensure()
    assert report.built
    assert filled.snapshot().count("Doc") == 4
    assert coverage(filled, "slug").complete


def test_an_index_that_cannot_be_built_is_pending_and_the_others_are_built(tmp_path):
    """Vectors so small that they have no direction in 32 bits."""
    schema = "node V { k: String @key  v: Vector(2)? @index  n: I32? @index }"
    with Graph.init(tmp_path / "v.omni", schema, durability="os") as graph:
        graph.load([{"type": "V", "data": {"k": "0", "v": [1e-45, 1e-45], "n": 1}}])
        report = graph.indexes.ensure()
        pending = {state.column: state.reason for state in report.pending}
        assert pending == {"v": "it cannot be built from the existing values"}
        assert ("node:V", "n", EQUALITY) in report.built
        assert graph.indexes.ensure().built == ()


def test_readers_on_the_same_handle_go_on_while_indexes_are_built(tmp_path):
    """A build takes its handle of the table for itself alone."""
    schema = "node P { name: String @key  n: I64? @index  v: Vector(4)? @index }"
    with Graph.init(tmp_path / "p.omni", schema, durability="os") as graph:
        rows = 5_000
        graph.load(
            {
                "P": pa.table(
                    {
                        "name": [f"p{n}" for n in range(rows)],
                        "n": range(rows),
                        "v": pa.array([[n + 1.0, 1, 2, 3] for n in range(rows)]),
                    }
                )
            }
        )
        stop, failed, done = threading.Event(), [], []

        def read():
            while not stop.is_set():
                try:
                    done.append(graph.snapshot().read("P", ["n"]).num_rows)
                except Exception as error:
                    failed.append(error)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        graph.indexes.ensure()
        stop.set()
        for reader in readers:
            reader.join()
        assert failed == []
        assert set(done) == {rows}
