"""The handle: its modes, its end, and the threads that share it."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph import Graph, LoadReceipt, QueryError
from omnigraph.errors import (
    Closed,
    Conflict,
    GraphNotFound,
    InputError,
    KeyConflict,
    ReadOnly,
    SchemaError,
)
from omnigraph.lang.schema.catalog import Catalog
from tests.commit.world import SCHEMA, knows, listing, names, people


@pytest.fixture
def path(tmp_path):
    return tmp_path / "g.omni"


@pytest.fixture
def graph(path):
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.append(people(ann=1, bo=2) | knows(("ann", "bo")))
        yield graph


WRITES = {
    "append": lambda graph: graph.append(people(cy=3)),
    "create a branch": lambda graph: graph.branches.create("b"),
    "delete a branch": lambda graph: graph.branches.delete("b"),
    "create a tag": lambda graph: graph.tags.create("t"),
    "delete a tag": lambda graph: graph.tags.delete("t"),
    "build indexes": lambda graph: graph.indexes.ensure(),
}
READS = {
    "take a snapshot": lambda graph: graph.snapshot(),
    "list commits": lambda graph: graph.commits(),
    "list branches": lambda graph: graph.branches.list(),
    "list tags": lambda graph: graph.tags.list(),
    "look at indexes": lambda graph: graph.indexes.status(),
    "look at the catalog": lambda graph: graph.catalog,
    "refresh": lambda graph: graph.refresh(),
}


# -- modes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_read_only_handle_refuses_to_write(graph, path, write):
    """Before anything else, and nothing changes."""
    before = listing(path)
    with Graph.open(path, "r") as reader, pytest.raises(ReadOnly) as caught:
        write(reader)
    assert (caught.value.code, caught.value.hint) == ("read_only", "open it with mode='rw'")
    assert listing(path) == before


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_a_read_only_handle_reads_everything(graph, path, read):
    before = listing(path)
    with Graph.open(path, "r") as reader:
        read(reader)
        graph.append(people(cy=3))
        assert names(reader) == ["ann", "bo", "cy"]
    assert {"__manifest/_versions", "_schema.pg"} <= set(before)


@pytest.mark.parametrize("mode", ["w", "", "RW", None])
def test_other_modes_are_refused(graph, path, mode):
    with pytest.raises(InputError, match="'rw' or 'r'"):
        Graph.open(path, mode)


@pytest.mark.parametrize("call", [Graph.open, lambda *a, **k: Graph.init(*a, SCHEMA, **k)])
def test_an_unknown_durability_is_refused_before_anything_happens(tmp_path, call):
    with pytest.raises(InputError, match="invalid durability"):
        call(tmp_path / "g", durability="memory")
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_both_durabilities_write_the_same_graph(tmp_path, durability):
    with Graph.init(tmp_path / "g", SCHEMA, durability=durability) as graph:
        graph.branches.create("b")
        graph.append(people(ann=1), branch="b")
        graph.append(people(bo=2))
    with Graph.open(tmp_path / "g") as graph:
        assert (names(graph), names(graph, "b")) == (["bo"], ["ann"])


@pytest.mark.parametrize("address", ["", "ftp://host/g", "s3://"])
def test_addresses_that_name_no_place_are_refused(address):
    with pytest.raises(InputError):
        Graph.open(address)


@pytest.mark.parametrize(
    "address",
    [
        "file://",
        "file://data/g",
        "file:///g#2",
        "file:///g?2",
        "s3://bucket/g#2",
        "s3://bucket/g?2",
    ],
)
def test_an_address_of_which_a_part_would_count_for_nothing_is_refused(address):
    with pytest.raises(InputError, match="invalid address"):
        Graph.open(address)


def test_a_graph_is_found_by_path_text_and_address(graph, path):
    for address in (path, str(path), f"{path}/", f"file://{path}"):
        with Graph.open(address, "r") as again:
            assert again.uri == str(path)
            assert names(again) == ["ann", "bo"]


# -- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [*WRITES.values(), *READS.values()], ids=[*WRITES, *READS])
def test_a_closed_handle_refuses_every_call(graph, path, call):
    """Whether it could write or not."""
    for handle in (Graph.open(path), Graph.open(path, "r")):
        handle.close()
        with pytest.raises(Closed) as caught:
            call(handle)
        assert (caught.value.code, caught.value.hint) == ("closed", "open it again with Graph.open")


def test_closing_twice_is_fine_and_others_go_on(graph, path):
    with Graph.open(path) as other:
        other.close()
    assert "(closed)" in repr(other)
    assert other.uri == str(path)
    assert "(rw)" in repr(graph)
    assert names(graph) == ["ann", "bo"]


def test_a_handle_closes_when_its_block_fails(path, graph):
    with pytest.raises(KeyError), Graph.open(path) as other:
        raise KeyError("x")
    with pytest.raises(Closed):
        other.snapshot()


# -- what it shows ----------------------------------------------------------------------------


def test_the_catalog_is_that_of_the_schema(graph):
    assert isinstance(graph.catalog, Catalog)
    assert sorted(graph.catalog.node_types) == ["Company", "Person"]


def test_a_snapshot_reads_types_by_name_or_key(graph):
    snapshot = graph.snapshot()
    assert snapshot.count("Person") == snapshot.count("node:Person") == 2
    assert snapshot.read("Knows", ["src", "dst"]).to_pylist() == [{"src": "ann", "dst": "bo"}]
    assert sum(batch.num_rows for batch in snapshot.scan("edge:Knows")) == 1
    assert repr(snapshot) == "<GraphSnapshot manifest:main:v2>"
    for name in ("Persn", "edge:Person", "", "__manifest"):
        with pytest.raises(InputError, match="there is no type"):
            snapshot.read(name)


def test_a_snapshot_filters_and_chooses_columns(graph):
    actual = graph.snapshot().read("Person", ["age"], pc.field("name") == "bo")
    assert actual.to_pylist() == [{"age": 2}]


def test_a_filter_on_a_blob_that_is_not_read_is_refused(tmp_path):
    with Graph.init(tmp_path / "b.omni", "node N { name: String @key  pic: Blob? }") as graph:
        graph.load([{"type": "N", "data": {"name": "a", "pic": "base64:aGk="}}])
        graph.load([{"type": "N", "data": {"name": "b"}}])
        snapshot, without = graph.snapshot(), pc.field("pic").is_null()
        with pytest.raises(InputError, match="uses a Blob of N that is not read"):
            snapshot.read("N", ["name"], without)
        assert snapshot.read("N", ["name", "pic"], without)["name"].to_pylist() == ["b"]


def test_a_snapshot_outlives_a_refresh(graph):
    pinned = graph.snapshot()
    graph.append(people(cy=3))
    assert graph.refresh() == ()
    assert pinned.read("Person").num_rows == 2
    assert names(graph) == ["ann", "bo", "cy"]


def test_a_receipt_tells_what_a_write_did(graph):
    receipt = graph.append(people(cy=3, dee=4) | knows(("cy", "ann")), actor="ann")
    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 1)
    assert (receipt.version, receipt.branch, receipt.actor) == (3, "main", "ann")
    assert receipt.commit_id == graph.snapshot().commit_id
    said = receipt.to_json()
    assert {key: counts["inserted"] for key, counts in said["tables"].items()} == {
        "edge:Knows": 1,
        "node:Person": 2,
    }
    assert list(said)[:4] == ["commit_id", "version", "branch", "actor"]


# -- threads ----------------------------------------------------------------------------------


def test_threads_that_share_a_handle_all_write_and_see_each_other(graph):
    """One chain, nothing lost, each sees its own write at once."""
    start = threading.Barrier(4)

    def work(number):
        start.wait()
        for step in range(4):
            name = f"p{number}_{step}"
            graph.append(people(**{name: step}))
            assert name in names(graph)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(names(graph)) == 18
    commits = graph.commits()
    assert [commit.parent for commit in commits[:-1]] == [c.commit_id for c in commits[1:]]
    assert len(commits) == 18


def test_threads_write_to_branches_of_their_own(graph):
    start = threading.Barrier(3)

    def work(name):
        start.wait()
        graph.branches.create(name)
        for step in range(3):
            graph.append(people(**{f"{name}{step}": step}), branch=name)
        return names(graph, name)

    with ThreadPoolExecutor(3) as pool:
        actual = list(pool.map(work, ["x", "y", "z"]))
    assert actual == [["ann", "bo", f"{n}0", f"{n}1", f"{n}2"] for n in "xyz"]
    assert graph.branches.list() == ["main", "x", "y", "z"]
    assert names(graph) == ["ann", "bo"]


def test_of_threads_that_append_one_key_exactly_one_succeeds(graph):
    """The others get the typed refusal, whichever way they lost."""
    start = threading.Barrier(4)

    def work(age):
        start.wait()
        try:
            graph.append(people(cy=age))
        except (KeyConflict, Conflict):
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 1
    assert names(graph) == ["ann", "bo", "cy"]


def test_a_handle_can_be_closed_while_others_use_it(graph, path):
    """Whoever is in the middle finishes or is refused; nothing else happens."""
    handle = Graph.open(path, "r")
    reading = threading.Event()

    def read():
        try:
            while True:
                assert names(handle) == ["ann", "bo"]
                reading.set()
        except Closed:
            return "closed"

    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(read) for _ in range(2)]
        assert reading.wait(60)
        handle.close()
        assert [result.result(60) for result in results] == ["closed", "closed"]


# -- where a graph can be -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ü b", "a#b", "a%20b", "a[b]{c}~", "a*b"])
def test_a_path_with_odd_letters_is_used_as_it_is(tmp_path, name):
    """Nothing is made beside it, also where Lance spells a path as an address."""
    with Graph.init(tmp_path / name / "g.omni", "node P { name: String @key }") as graph:
        graph.branches.create("x")
        graph.append({"P": pa.table({"name": ["a"]})}, branch="x")
        assert graph.snapshot("x").count("P") == 1
        graph.branches.delete("x")
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a?b", "a\nb"])
def test_a_path_that_lance_cannot_take_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="control characters"):
        Graph.init(tmp_path / name / "g.omni", "node P { name: String @key }")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "deeper/g.omni"])
def test_a_file_is_no_place_for_a_graph(tmp_path, below):
    (tmp_path / "file").write_text("mine")
    for call in (lambda p: Graph.init(p, "node P { name: String @key }"), Graph.open):
        with pytest.raises((InputError, GraphNotFound)):
            call(tmp_path / "file" / below)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_schema_that_is_wrong_leaves_nothing_behind(tmp_path):
    with pytest.raises(SchemaError):
        Graph.init(tmp_path / "g.omni", "node P {")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_texts_survive_a_process_boundary(tmp_path):
    with Graph.init(tmp_path / "pickled.omni", "node P { k: String @key }") as graph:
        with pytest.raises(QueryError) as caught:
            graph.query("query q() {")
        copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.to_json()) == (QueryError, caught.value.to_json())
    assert copy.render() == caught.value.render()


def test_the_receipt_of_a_load_comes_back_from_json(tmp_path):
    with Graph.init(tmp_path / "receipt.omni", "node P { k: String @key }") as graph:
        receipt = graph.load([{"type": "P", "data": {"k": "a", "other": 1}}])
    assert LoadReceipt.from_json(receipt.to_json()) == receipt
    assert receipt.ignored
