"""The beginning of a graph, opening one, and files that somebody else changed."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from omnigraph import Graph, compile_schema
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import (
    AlreadyInitialized,
    BranchNotFound,
    FormatRefused,
    GraphNotFound,
    InputError,
    SchemaDrift,
    SchemaError,
    StorageUnavailable,
)
from omnigraph.storage.objects.store import ObjectStore
from tests.commit.world import (
    PERSON,
    SCHEMA,
    at,
    companies,
    knows,
    listing,
    manifest_of,
    names,
    people,
    raising,
)

FILES = ("_schema.pg", "_schema.ir.json", "__schema_state.json")
OTHER = "node Robot { serial: I64 @key }\n"


def contents(path):
    return {name: (path / name).read_bytes() for name in FILES if (path / name).exists()}


# -- init -------------------------------------------------------------------------------------


def test_init_leaves_nothing_but_the_graph(graph, path):
    """No directory for recovery, which the first write makes."""
    made = {"__manifest", "nodes", "edges", "__checksums", "__history"}
    assert {entry.name for entry in path.iterdir()} == {*FILES, *made}
    assert graph.snapshot().tables == {
        key: {"path": path, "version": 1, "branch": "main", "rows": 0}
        for key, path in {
            "edge:Knows": "edges/602a25a3bd0b455b",
            "edge:WorksAt": "edges/844eefbe5068b644",
            "node:Company": "nodes/7cb4e55c59663b1c",
            "node:Person": "nodes/40d76f1f51639ec0",
        }.items()
    }
    assert graph.snapshot().version == 1


def test_a_schema_can_be_given_as_a_file(tmp_path):
    """Byte for byte, comments and annotations included."""
    text = '// people\nnode Person @description("a human") { name: String @key }\n'
    (tmp_path / "s.pg").write_text(text)
    graph = Graph.init(tmp_path / "g", tmp_path / "s.pg")
    assert (tmp_path / "g" / "_schema.pg").read_text() == text
    ir = json.loads((tmp_path / "g" / "_schema.ir.json").read_text())
    assert "a human" in json.dumps(ir)
    assert list(graph.catalog.node_types) == ["Person"]
    with pytest.raises(InputError, match="cannot read"):
        Graph.init(tmp_path / "h", tmp_path / "missing.pg")
    assert not (tmp_path / "h").exists()


def test_init_with_a_bad_schema_writes_nothing(path):
    with pytest.raises(SchemaError):
        Graph.init(path, 'node Person { name: String @key @instruction("x") }')
    assert not path.exists() or listing(path) == {}
    Graph.init(path, SCHEMA).append(people(ann=1))


@pytest.mark.parametrize("schema", [SCHEMA, OTHER])
def test_strict_init_on_a_graph_is_refused_and_touches_nothing(graph, path, schema):
    graph.append(people(ann=1))
    before = listing(path)
    with pytest.raises(AlreadyInitialized) as caught:
        Graph.init(path, schema)
    assert caught.value.message == (
        f"graph already initialized at '{path}'; "
        "force=True only replaces what an interrupted init left"
    )
    assert listing(path) == before
    assert names(graph) == ["ann"]


@pytest.mark.parametrize("name", FILES)
def test_strict_init_is_refused_by_any_schema_file(path, name):
    """Each of the three says that somebody was here."""
    path.mkdir()
    (path / name).write_text("left behind")
    before = listing(path)
    with pytest.raises(AlreadyInitialized):
        Graph.init(path, SCHEMA)
    assert listing(path) == before


@pytest.mark.parametrize("names_", [FILES, FILES[:1], FILES[1:]])
def test_force_takes_over_schema_files_that_nobody_owns(path, names_):
    path.mkdir()
    for name in names_:
        (path / name).write_text("left behind")
    (path / "_schema.pg.staging").write_text("left behind too")
    graph = Graph.init(path, SCHEMA, force=True)
    graph.append(people(ann=1))
    assert contents(path)["_schema.pg"] == SCHEMA.encode()
    assert not (path / "_schema.pg.staging").exists()
    assert names(Graph.open(path)) == ["ann"]


@pytest.mark.parametrize("schema", [SCHEMA, OTHER])
def test_force_never_overwrites_a_graph_with_data(graph, path, schema):
    graph.append(people(ann=1))
    (path / "__recovery").rmdir()
    before = listing(path)
    with pytest.raises(AlreadyInitialized, match="there is a graph with data"):
        Graph.init(path, schema, force=True)
    assert listing(path) == before
    assert names(graph) == ["ann"]


def test_force_without_schema_files_still_sees_the_data(graph, path):
    """A graph whose schema files were lost is no empty place."""
    graph.append(people(ann=1))
    kept = contents(path)
    for name in FILES:
        (path / name).unlink()
    for force in (False, True):
        with pytest.raises(AlreadyInitialized):
            Graph.init(path, SCHEMA, force=force)
    for name, content in kept.items():
        (path / name).write_bytes(content)
    assert names(Graph.open(path)) == ["ann"]


PHASES = [Failpoint.INIT_AFTER_CLAIM, Failpoint.INIT_AFTER_CONTRACT, Failpoint.INIT_AFTER_TABLES]


@pytest.mark.parametrize("error", [StorageUnavailable("disk gone"), KeyboardInterrupt()])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("force", [False, True])
def test_a_failed_init_removes_the_schema_files_and_tells_why(path, phase, error, force):
    """A second attempt works."""
    with at(phase, raising(error)), pytest.raises(type(error)) as caught:
        Graph.init(path, SCHEMA, force=force)
    assert caught.value is error
    assert contents(path) == {}
    assert not (path / "__recovery").exists()
    with pytest.raises(GraphNotFound):
        Graph.open(path, "r")
    with Graph.init(path, OTHER, force=force) as graph:
        assert list(graph.catalog.node_types) == ["Robot"]
        assert list(graph.snapshot().tables) == ["node:Robot"]
    with Graph.open(path) as graph:
        graph.append({"Robot": pa.table({"serial": [1]})})
        assert graph.snapshot().count("Robot") == 1


def test_an_init_that_fails_when_the_graph_is_there_leaves_the_graph(path):
    """The manifest made it; taking the schema files away would break it for everybody."""
    error = KeyboardInterrupt()
    with at(Failpoint.INIT_AFTER_MANIFEST, raising(error)), pytest.raises(KeyboardInterrupt):
        Graph.init(path, SCHEMA)
    with Graph.open(path) as graph:
        graph.append(people(ann=1))
        assert names(graph) == ["ann"]


def test_of_several_inits_at_once_exactly_one_wins(path):
    """Its files are the ones that stay."""
    schemas = [f"node T{number} {{ name: String @key }}\n" for number in range(4)]
    barrier = threading.Barrier(len(schemas))

    def run(schema):
        barrier.wait()
        try:
            Graph.init(path, schema, durability="os")
        except AlreadyInitialized:
            return None
        return schema

    with ThreadPoolExecutor(len(schemas)) as pool:
        (winner,) = [schema for schema in pool.map(run, schemas) if schema is not None]
    assert contents(path)["_schema.pg"] == winner.encode()
    graph = Graph.open(path)
    assert (
        graph.catalog.schema_hash
        == json.loads(contents(path)["__schema_state.json"])["schema_ir_hash"]
    )
    assert len(graph.snapshot().tables) == 1


# -- open -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_open_shows_what_was_written(graph, path, mode):
    graph.append(people(ann=1, bo=2) | companies("Acme"))
    graph.append(knows(("ann", "bo")))
    with Graph.open(path, mode) as again:
        assert again.snapshot().tables == graph.snapshot().tables
        assert again.snapshot().version == graph.snapshot().version == 3
        assert again.catalog.schema_hash == graph.catalog.schema_hash
        assert names(again) == ["ann", "bo"]
        assert again.recovered == ()


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_missing_root_is_not_found_and_not_made(tmp_path, mode):
    with pytest.raises(GraphNotFound, match="there is no graph at") as caught:
        Graph.open(tmp_path / "a" / "b", mode)
    assert "Graph.init" in caught.value.hint
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_directory_without_a_graph_stays_as_it_is(tmp_path, mode):
    (tmp_path / "notes.txt").write_text("mine")
    before = listing(tmp_path)
    with pytest.raises(GraphNotFound):
        Graph.open(tmp_path, mode)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_clean_open_creates_nothing(graph, path, mode):
    """In either mode; neither do reads and a refresh."""
    graph.append(people(ann=1, bo=2) | knows(("ann", "bo")))
    graph.branches.create("b")
    graph.append(people(cy=3), branch="b")
    graph.tags.create("t")
    shutil.rmtree(path / "__recovery")
    before = listing(path)
    with Graph.open(path, mode) as again:
        for branch in again.branches.list():
            again.snapshot(branch).read("Person")
            again.commits(branch)
            again.indexes.status(branch)
        again.snapshot(tag="t")
        again.snapshot(version=1)
        again.refresh()
    assert listing(path) == before


def test_a_read_only_open_writes_nothing_whatever_it_finds(graph, path):
    """Staging files and sidecars are left to a handle that may write."""
    graph.append(people(ann=1))
    (path / "_schema.pg.staging").write_text(SCHEMA)
    (path / "__recovery").mkdir(exist_ok=True)
    (path / "__recovery" / "01H0000000000000000000000A.json").write_text("not json")
    before = listing(path)
    with Graph.open(path, "r") as reader:
        assert names(reader) == ["ann"]
        reader.refresh()
        with pytest.raises(BranchNotFound):
            reader.snapshot("b")
    assert listing(path) == before


def test_an_interrupted_init_is_no_graph(path):
    """Until the manifest is there, whatever else is."""

    class Death(BaseException):
        """The process is gone."""

    with pytest.raises(Death), at(Failpoint.INIT_AFTER_TABLES, raising(Death())):
        Graph.init(path, SCHEMA)
    assert (path / PERSON).is_dir()
    for mode in ("r", "rw"):
        with pytest.raises(GraphNotFound):
            Graph.open(path, mode)


# -- graphs from before the state files -------------------------------------------------------

DERIVED = FILES[1:]


@pytest.mark.parametrize("gone", [DERIVED, DERIVED[:1], DERIVED[1:]])
def test_a_legacy_graph_gets_its_state_files_when_it_is_opened_to_write(graph, path, gone):
    graph.append(people(ann=1))
    before = contents(path)
    for name in gone:
        (path / name).unlink()
    with Graph.open(path) as again:
        assert names(again) == ["ann"]
        again.append(people(bo=2))
    assert contents(path) == before


def test_a_legacy_graph_can_be_read_without_writing_anything(graph, path):
    graph.append(people(ann=1))
    for name in DERIVED:
        (path / name).unlink()
    before = listing(path)
    with Graph.open(path, "r") as reader:
        assert names(reader) == ["ann"]
    assert listing(path) == before


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_legacy_graph_with_branches_is_refused(graph, path, mode):
    graph.branches.create("b")
    for name in DERIVED:
        (path / name).unlink()
    before = listing(path)
    with pytest.raises(SchemaDrift, match="missing") as caught:
        Graph.open(path, mode)
    assert caught.value.details["files"] == list(DERIVED)
    assert listing(path) == before


def test_a_graph_without_its_source_is_refused(graph, path):
    (path / "_schema.pg").unlink()
    for mode in ("rw", "r"):
        with pytest.raises(SchemaDrift, match=r"_schema\.pg"):
            Graph.open(path, mode)


# -- drift ------------------------------------------------------------------------------------


def edited_source(path):
    (path / "_schema.pg").write_text(SCHEMA.replace("age: I32?", "age: I64?"))


def broken_source(path):
    (path / "_schema.pg").write_text("node {")


def corrupt_ir(path):
    (path / "_schema.ir.json").write_text("{")


def ir_and_source(path):
    edited_source(path)
    catalog = compile_schema((path / "_schema.pg").read_text())
    (path / "_schema.ir.json").write_text(catalog.ir.pretty())


def missing_state(path):
    (path / "__schema_state.json").unlink()


DRIFT = {
    "the source was edited": (edited_source, ["_schema.pg"]),
    "the source was broken": (broken_source, ["_schema.pg"]),
    "the canonical form is corrupt": (corrupt_ir, ["_schema.ir.json"]),
    "two of the files were edited": (ir_and_source, ["__schema_state.json"]),
    "the state is missing": (missing_state, ["__schema_state.json"]),
}


@pytest.mark.parametrize(("damage", "files"), DRIFT.values(), ids=list(DRIFT))
def test_a_handle_refuses_to_work_while_the_schema_files_disagree(graph, path, damage, files):
    """Every call says so, and once they agree again it goes on."""
    graph.append(people(ann=1))
    pinned = graph.snapshot()
    kept = contents(path)
    damage(path)
    for call in (
        graph.snapshot,
        graph.commits,
        graph.branches.list,
        graph.tags.list,
        graph.refresh,
        graph.indexes.status,
        graph.indexes.ensure,
        lambda: graph.catalog,
        lambda: graph.append(people(bo=2)),
        lambda: graph.branches.create("b"),
        lambda: graph.branches.delete("b"),
        lambda: graph.tags.create("t"),
    ):
        with pytest.raises(SchemaDrift) as caught:
            call()
        assert caught.value.details["files"] == files
        assert "schema apply" in caught.value.hint
        assert not caught.value.retryable
    assert pinned.read("Person").num_rows == 1
    for name, content in kept.items():
        (path / name).write_bytes(content)
    graph.append(people(bo=2))
    assert names(graph) == ["ann", "bo"]
    assert manifest_of(path).version == 3


@pytest.mark.parametrize("mode", ["rw", "r"])
@pytest.mark.parametrize(("damage", "files"), list(DRIFT.values())[:4], ids=list(DRIFT)[:4])
def test_a_graph_whose_schema_files_disagree_cannot_be_opened(graph, path, damage, files, mode):
    damage(path)
    with pytest.raises(SchemaDrift) as caught:
        Graph.open(path, mode)
    assert caught.value.details["files"] == files


def test_a_new_comment_is_no_drift(graph, other, path):
    catalog = graph.catalog
    (path / "_schema.pg").write_text("// a comment\n" + SCHEMA)
    graph.append(people(ann=1))
    assert graph.catalog is catalog
    assert names(other) == ["ann"]
    assert names(Graph.open(path)) == ["ann"]


@pytest.mark.parametrize(
    ("name", "key"), [("__schema_state.json", "format_version"), ("_schema.ir.json", "ir_version")]
)
def test_schema_files_of_a_newer_program_are_refused(graph, path, name, key):
    content = json.loads((path / name).read_text())
    (path / name).write_text(json.dumps({**content, key: 9}))
    for call in (graph.snapshot, lambda: Graph.open(path), lambda: Graph.open(path, "r")):
        with pytest.raises(FormatRefused, match=f"{key} 9"):
            call()


def test_opening_to_write_lists_what_dead_writers_left_once(graph, path, monkeypatch):
    listed = []

    def count(self, folder, original=ObjectStore.list):
        listed.append(folder)
        return original(self, folder)

    monkeypatch.setattr(ObjectStore, "list", count)
    Graph.open(path).close()
    assert listed.count("__recovery") == 1
