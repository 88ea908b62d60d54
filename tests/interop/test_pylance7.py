"""A program with an older Lance shares our graphs: it reads and writes them, and we go on."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.file import LanceFileReader

from omnigraph import Graph
from omnigraph.commit.metadata import CommitMetadata, Group
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.rows import TombstoneRow, VoidRow, WriterKind
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import HistoryGone, VersionMismatch

pytestmark = pytest.mark.slow

SCHEMA = """\
node Person { name: String @key  age: I32? @index }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
"""


def people(**ages):
    return {"Person": pa.table({"name": list(ages), "age": pa.array(ages.values(), pa.int32())})}


def knows(*pairs):
    return {"Knows": pa.table({"src": [p[0] for p in pairs], "dst": [p[1] for p in pairs]})}


def names(graph, branch="main"):
    return sorted(graph.snapshot(branch).read("Person", ["name"])["name"].to_pylist())


def delete_people(graph, *ids, branch=None):
    def prepare(view: WriteView) -> PreparedWrite:
        staged = view.stage.stage_delete_keys(view.table("node:Person"), pa.array(ids))
        assert staged is not None
        return PreparedWrite({"node:Person": (staged,)})

    touched = frozenset({"node:Person"})
    commit_write(
        graph._handle.store,
        WriteRequest(WriterKind.MUTATION, branch, touched, prepare, strict=True),
    )


def hide_works_at(graph):
    """What dropping a type leaves in the manifest."""
    store = graph._handle.store
    store.publisher.publish(
        store.manifest(None),
        Publication(
            {"edge:WorksAt": 1},
            tombstones=[TombstoneRow("edge:WorksAt", 1)],
            commit=CommitIntent(new_ulid(), None, now_micros()),
        ),
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A graph with every kind of row, a branch with its own copy, deletions and indexes."""
    path = tmp_path_factory.mktemp("shared") / "g.omni"
    graph = Graph.init(path, SCHEMA)
    graph.append(people(Ada=36, Bob=41, Cy=29) | knows(("Ada", "Bob")))
    graph.append({"Company": pa.table({"name": ["Acme"]})})
    delete_people(graph, "Cy")
    graph.indexes.ensure()
    graph.append(people(Dan=50))
    graph.branches.create("review/x")
    graph.append(people(Eve=33), branch="review/x")
    delete_people(graph, "Dan", branch="review/x")
    hide_works_at(graph)
    graph.tags.create("first")
    yield graph
    graph.close()


def test_it_reads_what_we_wrote(shared, other_program):
    reported = other_program("look", shared.uri)
    assert reported["stamp"] == "4"
    assert set(reported["kinds"]) == {
        "table",
        "table_version",
        "table_tombstone",
        "graph_commit",
        "graph_head",
        "graph_schema",
        "graph_tag",
    }
    commits = shared.commits()
    assert reported["head"] == commits[0].commit_id
    assert set(reported["commits"]) == {commit.commit_id for commit in commits}
    assert {key: table["ids"] for key, table in reported["tables"].items()} == ids_of(shared)
    assert set(reported["tables"]) == {"edge:Knows", "node:Company", "node:Person"}
    assert all(table["stable"] for table in reported["tables"].values())


def test_it_reads_rows_that_a_load_wrote_in_bulk(tmp_path, other_program, monkeypatch):
    """Their ids are compressed, which the other program knows nothing of."""
    monkeypatch.setattr("omnigraph.write.load.spool._DIRECT", 0)
    with Graph.init(tmp_path / "bulk.omni", SCHEMA, durability="os") as graph:
        graph.load(people(**{f"p{number}": number for number in range(5_000)}))
        graph.load({"Knows": pa.table({"from": ["p1"] * 5_000, "to": ["p2"] * 5_000})})
        dataset = graph.snapshot().dataset("Knows")
        (file, *_) = dataset.get_fragments()[0].data_files()
        pages = LanceFileReader(f"{dataset.uri}/data/{file.path}").metadata().columns[0].pages
        assert sum(buffer.size for page in pages for buffer in page.buffers) < 26 * 5_000 / 4
        reported = other_program("look", graph.uri)
        assert {key: table["ids"] for key, table in reported["tables"].items()} == ids_of(graph)


def test_it_reads_a_branch_with_its_own_copies(shared, other_program):
    reported = other_program("look", shared.uri, "review/x")
    assert reported["tables"]["node:Person"]["ids"] == ["Ada", "Bob", "Eve"]
    assert reported["tables"]["edge:Knows"]["ids"] == ids_of(shared)["edge:Knows"]
    assert reported["head"] == shared.commits("review/x")[0].commit_id


def ids_of(graph):
    snapshot = graph.snapshot()
    return {
        key: sorted(snapshot.read(key.split(":")[1], ["id"])["id"].to_pylist())
        for key in snapshot.tables
    }


@pytest.mark.parametrize("branch", ["main", "review/x"])
def test_we_see_its_commit_at_once_and_write_on(shared, other_program, branch):
    before = names(shared, branch)
    parent = shared.commits(branch)[0].commit_id
    theirs, it = f"Fay-{branch[:2]}", new_ulid()
    reported = other_program("write", shared.uri, branch, theirs, it)
    newest = shared.commits(branch)[0]
    assert (newest.commit_id, newest.parent, newest.version) == (it, parent, reported["manifest"])
    assert names(shared, branch) == sorted([*before, theirs])
    assert shared.snapshot(branch).tables["node:Person"]["version"] == reported["table"]
    ours = f"Gus-{branch[:2]}"
    receipt = shared.append(people(**{ours: 44}) | knows((theirs, ours)), branch=branch)
    assert shared.commit(receipt.commit_id).parent == it
    again = other_program("look", shared.uri, branch)
    assert again["head"] == receipt.commit_id
    assert again["tables"]["node:Person"]["ids"] == sorted([*before, theirs, ours])
    with Graph.open(shared.uri, "r") as cold:
        assert names(cold, branch) == sorted([*before, theirs, ours])


# -- what only we write -----------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path):
    """A graph with all that we add: events, a group, a void version, a write taken back."""
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.append(people(Ada=36))
        graph.schema.apply(SCHEMA + "node City { name: String @key }\n")
        lose(graph)
        store = graph._handle.store
        void = VoidRow(None, 2, now_micros(), "data/a.lance is 0 bytes long")
        grouped = CommitMetadata("Mutation", group=Group("01G", 0, 1, {"node:Person": ("Ada",)}))
        intent = CommitIntent(new_ulid(), None, now_micros(), extra=grouped.to_json())
        store.publisher.publish(store.manifest(None), Publication({}, others=[void], commit=intent))
        yield graph


def lose(graph):
    """A write that moves a table and cannot be published."""

    def prepare(view: WriteView) -> PreparedWrite:
        staged = view.stage.stage_delete_keys(view.table("node:Person"), pa.array(["Ada"]))
        assert staged is not None
        return PreparedWrite({"node:Person": (staged,)}, {"edge:Knows": 99})

    request = WriteRequest(WriterKind.MUTATION, None, frozenset({"node:Person"}), prepare)
    with pytest.raises(VersionMismatch):
        commit_write(graph._handle.store, request)


def test_it_reads_a_graph_with_all_that_we_add_and_writes_on(recorded, other_program):
    reported = other_program("look", recorded.uri)
    assert reported["kinds"]["graph_void"] == 1
    commits = [commit.commit_id for commit in recorded.commits()]
    assert (reported["head"], reported["chain"]) == (commits[0], commits)
    assert reported["tables"]["node:Person"]["ids"] == ["Ada"]
    assert {key: table["ids"] for key, table in reported["tables"].items()} == ids_of(recorded)
    it = new_ulid()
    other_program("write", recorded.uri, "main", "Fay", it)
    assert names(recorded) == ["Ada", "Fay"]
    assert recorded.commits()[0].parent == commits[0]


@pytest.mark.parametrize("compacted", [False, True])
def test_what_we_added_is_there_after_it_wrote(recorded, other_program, compacted):
    before = metadata_of(recorded)
    other_program("write", recorded.uri, "main", "Fay", new_ulid())
    if compacted:
        recorded.maintenance.optimize()
    after = metadata_of(recorded)
    assert {key: after[key] for key in before} == before
    assert sum(said.group is not None for said in after.values()) == 1
    assert [event.kind for said in after.values() for event in said.schema_events] == ["add_type"]
    for handle in (recorded, Graph.open(recorded.uri, "r")):
        with pytest.raises(HistoryGone, match="never acknowledged"):
            handle.snapshot(version=2)


def metadata_of(graph):
    rows = graph._handle.store.manifest(None).commits()
    return {row.commit_id: CommitMetadata.of(row) for row in rows}


def test_it_reads_and_writes_after_the_manifest_compacted_itself(shared, other_program):
    for number in range(20):
        shared.append({"Company": pa.table({"name": [f"c{number}"]})})
    it = new_ulid()
    other_program("write", shared.uri, "main", "Hal", it)
    assert shared.commits()[0].commit_id == it
    delete_people(shared, "Hal")
    assert "Hal" not in other_program("look", shared.uri)["tables"]["node:Person"]["ids"]


def test_indexes_that_it_drops_are_built_anew_and_hide_nothing(shared, other_program):
    """It does not know our equality indexes, so a table that it writes loses them."""
    shared.indexes.ensure()
    assert pending(shared) == set()
    other_program("write", shared.uri, "main", "Ida", new_ulid())
    assert pending(shared) == {("id", "BTREE"), ("name", "BTREE"), ("age", "BTREE")}
    actual = shared.snapshot().read("Person", filter=pc.field("name") == "Ida")
    assert actual["age"].to_pylist() == [30]
    shared.indexes.ensure()
    assert pending(shared) == set()


def pending(graph):
    return {
        (state.column, state.kind.value)
        for state in graph.indexes.status().pending
        if state.table_key == "node:Person"
    }


@pytest.mark.parametrize("branch", ["main", "review/x"])
def test_it_reads_and_writes_what_an_optimize_made_and_the_other_way_round(
    shared, other_program, branch
):
    for number in range(3):
        shared.append(people(**{f"o{number}-{branch[:2]}": number}), branch=branch)
    delete_people(shared, f"o1-{branch[:2]}", branch=None if branch == "main" else branch)
    before = names(shared, branch)
    for theirs in ("Jon", "Kim"):
        report = shared.maintenance.optimize(branch)
        assert report.table("node:Person").committed
        assert other_program("look", shared.uri, branch)["tables"]["node:Person"]["ids"] == before
        other_program("write", shared.uri, branch, f"{theirs}-{branch[:2]}", new_ulid())
        before = sorted([*before, f"{theirs}-{branch[:2]}"])
        assert names(shared, branch) == before
    assert shared.maintenance.optimize(branch).table("node:Person").committed
    assert names(shared, branch) == before


def test_we_open_and_write_a_graph_that_it_made(tmp_path, other_program):
    path = tmp_path / "theirs.omni"
    made = other_program("create", path)
    assert made == {"version": 3, "format": "2.1"}
    with Graph.open(path) as graph:
        assert (names(graph), len(graph.commits())) == ([], 1)
        graph.append(people(Ada=36, Bob=41) | knows(("Ada", "Bob")))
        it = new_ulid()
        other_program("write", path, "main", "Cy", it)
        assert (graph.commits()[0].commit_id, names(graph)) == (it, ["Ada", "Bob", "Cy"])
        graph.branches.create("review")
        graph.append(people(Dan=50), branch="review")
        delete_people(graph, "Bob", branch="review")
        graph.maintenance.optimize()
        graph.maintenance.optimize("review")
    theirs = other_program("look", path)["tables"]
    person = theirs["node:Person"]
    assert (person["ids"], person["stable"]) == (["Ada", "Bob", "Cy"], True)
    assert len(theirs["edge:Knows"]["ids"]) == 1
    reported = other_program("look", path, "review")
    assert reported["tables"]["node:Person"]["ids"] == ["Ada", "Cy", "Dan"]
    with Graph.open(path, "r") as graph:
        assert (names(graph), names(graph, "review")) == (
            ["Ada", "Bob", "Cy"],
            ["Ada", "Cy", "Dan"],
        )


def test_it_reads_tables_whose_columns_we_changed(tmp_path, other_program):
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.append(people(Ada=36, Bob=None) | knows(("Ada", "Bob")))
        graph.indexes.ensure()
        changed = SCHEMA.replace("Person", "Human").replace(
            "node Human {", 'node Human @rename_from("Person") {'
        )
        changed = changed.replace("age: I32? @index", 'years: I64 @rename_from("age")  z: F64?')
        graph.schema.apply(changed, values={"Human.years": 7})
        graph.mutate('query m() { insert Human { name: "Cy", years: 3, z: 0.5 } }')
        reported = other_program("look", graph.uri)
        assert sorted(reported["tables"]) == [
            "edge:Knows",
            "edge:WorksAt",
            "node:Company",
            "node:Human",
        ]
        rows = reported["tables"]["node:Human"]["rows"]
        assert [(row["id"], row["years"], row["z"]) for row in rows] == [
            ("Ada", 36, None),
            ("Bob", 7, None),
            ("Cy", 3, 0.5),
        ]
