"""Verify: a graph is sound and known to the last file, or what is wrong with it is named."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph import Graph, verify_graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.write_request import PreparedWrite, WriteRequest
from omnigraph.errors import BranchNotFound, Closed, GraphNotFound, HistoryGone, InputError
from omnigraph.maintain.verify import ProblemCode, Weight, rows
from omnigraph.spark.load.run import fragment_targets
from omnigraph.storage.checksums import FOLDER, fold_checksums, read_records
from omnigraph.storage.tables import verification as verifying
from omnigraph.storage.tables.fragments import write_staged_fragments
from omnigraph.storage.tables.types import IndexKind, TableRef
from tests.commit.deaths import Died
from tests.commit.world import at, raising

pytestmark = pytest.mark.rotates(6)

SCHEMA = """\
node Person {
  name: String @key
  age: I32? @index
  size: I32? @index
  mail: String? @unique
  photo: Blob?
}
node Place { name: String @key  vec: Vector(4)? @index }
edge Knows: Person -> Person
edge LivesIn: Person -> Place @card(0..1)
"""
WIDER = SCHEMA + "node Thing { name: String @key }\n"
PHOTO = "base64:" + "aGVs" * 50_000


def person(name, **more):
    return {"type": "Person", "data": {"name": name, **more}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "g.omni"


@pytest.fixture
def graph(path):
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.load(
            [
                person("a", age=1, size=2, mail="a@x", photo=PHOTO),
                person("b", age=2, size=3),
                {"type": "Place", "data": {"name": "p", "vec": [1, 2, 3, 4]}},
                {"edge": "Knows", "from": "a", "to": "b"},
                {"edge": "LivesIn", "from": "a", "to": "p"},
            ]
        )
        yield graph


def files_of(root):
    return {
        str(p.relative_to(root)): (p.stat().st_size, p.stat().st_mtime_ns)
        for p in Path(root).rglob("*")
        if p.is_file()
    }


def table_of(graph, key, branch=None):
    """A table, opened past the graph."""
    pin = graph._handle.store.manifest(branch).current().pin(key)
    return lance.dataset(graph._handle.store.root.path(pin.ref.path))


def codes(report):
    return sorted({problem.code for problem in report.problems})


# -- every writer records what it wrote -----------------------------------------------------------


def mutate(graph):
    graph.mutate('query q() { update Person set { age: 5 } where name = "b" }')
    graph.mutate('query q() { delete Person where name = "b" }')


def overwrite(graph):
    graph.load([person("a"), person("b"), person("z")], mode="overwrite")


def branch_and_merge(graph):
    graph.branches.create("review/x")
    graph.load([person("a", age=9), person("c")], branch="review/x")
    graph.load([person("d")])
    graph.merge("review/x")


def a_branch_that_comes_back(graph):
    for age in (3, 4):
        graph.branches.create("again")
        graph.load([person("a", age=age)], branch="again")
        if age == 3:
            graph.branches.delete("again")


def apply_a_schema(graph):
    graph.schema.apply(WIDER.replace("age: I32?", "age: I32?  city: String?"))
    graph.load([{"type": "Thing", "data": {"name": "t"}}])
    graph.schema.apply(SCHEMA, allow_data_loss=True)
    graph.schema.apply(WIDER)


def index_and_optimize(graph):
    graph.indexes.ensure()
    for n in range(3):
        graph.load([person(f"n{n}", age=n)])
    graph.maintenance.optimize()


def rebuild(graph):
    graph.indexes.ensure()
    graph.indexes.rebuild("node:Person", "age")


def publish_until_the_manifest_is_compacted(graph):
    for n in range(18):
        graph.load([person("a", age=n)])


def tag(graph):
    graph.tags.create("v1")
    graph.tags.create("v2")


def load_in_parts(graph):
    """As many processes do, which write their shares and give back what they wrote."""
    store = graph._handle.store
    location = fragment_targets(store, graph.catalog, store.manifest(None).current(), None)[
        "node:Place"
    ]
    schema = graph.catalog.node_types["Place"].arrow_schema()
    batch = pa.record_batch({"id": ["q"], "name": ["q"], "vec": [None]}, schema=schema)
    parts = write_staged_fragments(location, schema, [batch])
    assert [name for part in parts for name, _ in part.sums] == parts[0].files

    def prepare(view):
        staged = view.stage.stage_fragments(view.table("node:Place"), parts, replaces=False)
        return PreparedWrite({"node:Place": (staged,)})

    request = WriteRequest(WriterKind.LOAD, None, frozenset({"node:Place"}), prepare)
    commit_write(store, request)


def repaired_upkeep(graph):
    graph.load([person("c")])
    graph.maintenance.repair(confirm=True)


def refused(graph):
    with pytest.raises(Exception, match="unique"):
        graph.load([person("y", mail="a@x")])
    graph.load([person("y")])


WRITERS = [
    mutate,
    overwrite,
    branch_and_merge,
    a_branch_that_comes_back,
    apply_a_schema,
    index_and_optimize,
    rebuild,
    publish_until_the_manifest_is_compacted,
    tag,
    load_in_parts,
    repaired_upkeep,
    refused,
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_whatever_was_written_is_known_to_the_last_file(write, graph, path):
    write(graph)
    report = verify_graph(path)
    assert report.problems == ()
    assert (report.unverified_files, report.unverified) == ((), 0)
    assert report.checked == report.files > 20
    assert report.to_json() == graph.maintenance.verify().to_json()


POINTS = [
    Failpoint.WRITE_AFTER_SIDECAR,
    Failpoint.WRITE_BETWEEN_TABLES,
    Failpoint.WRITE_AFTER_TABLES,
    Failpoint.PUBLISH_AFTER,
    Failpoint.WRITE_AFTER_PUBLISH,
]


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_what_a_dead_writer_left_is_known_once_it_is_settled(point, graph, path):
    graph.branches.create("feat")
    with at(point, raising(Died())), pytest.raises(Died):
        graph.load(
            [person("x", photo=PHOTO), {"edge": "Knows", "from": "x", "to": "a"}], branch="feat"
        )
    pending = verify_graph(path)
    assert codes(pending) == [ProblemCode.WRITE_INTERRUPTED]
    assert pending.is_sound
    with Graph.open(path) as healed:
        report = healed.maintenance.verify()
    assert set(codes(report)) <= {ProblemCode.ORPHAN_FORK}
    assert (report.is_sound, report.unverified_files) == (True, ())


def test_files_of_other_programs_are_counted_as_unverified(graph, path):
    table = table_of(graph, "node:Place")
    lance.write_dataset(
        pa.table({"id": ["q"], "name": ["q"], "vec": [None]}, schema=table.schema),
        table.uri,
        mode="append",
    )
    drifted = verify_graph(path)
    (problem,) = drifted.problems
    assert (problem.code, problem.table) == (ProblemCode.TABLE_DRIFTED, "node:Place")
    assert "repair" in problem.hint
    assert not drifted.is_sound
    graph.maintenance.repair(confirm=True, force=True)
    report = verify_graph(path)
    assert report.is_sound
    assert report.unverified == 3
    assert {name.split("/")[2] for name in report.unverified_files} == {
        "data",
        "_versions",
        "_transactions",
    }


# -- the call -------------------------------------------------------------------------------------


def test_a_handle_that_only_reads_verifies_and_changes_nothing(graph, path):
    graph.close()
    before = files_of(path)
    phases = []
    with Graph.open(path, "r") as reader:
        report = reader.maintenance.verify(on_progress=lambda at: phases.append(at.phase))
    assert files_of(path) == before
    assert report.is_sound
    assert list(dict.fromkeys(phases)) == ["manifest", "files", "tables"]
    with pytest.raises(Closed):
        reader.maintenance.verify()


def test_one_branch_is_looked_at_when_it_is_named(graph):
    graph.branches.create("feat")
    graph.load([person("c")], branch="feat")
    everything = graph.maintenance.verify()
    report = graph.maintenance.verify("feat")
    assert (report.branches, everything.branches) == (("feat",), ("main", "feat"))
    assert report.tables < everything.tables
    with pytest.raises(BranchNotFound):
        graph.maintenance.verify("nowhere")


def test_writers_beside_it_are_no_problem(graph, path):
    """One on main and one that forks; what is not over is told as what it is."""
    graph.branches.create("feat")

    def write(branch):
        with Graph.open(path, durability="os") as writer:
            for n in range(12):
                writer.load([person(f"{branch}{n}", age=n)], branch=branch)

    seen = set()
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(write, branch) for branch in ("main", "feat")]
        while not all(item.done() for item in running):
            report = verify_graph(path)
            assert report.is_sound, report.problems
            seen.update(codes(report))
        for item in running:
            item.result()
    assert seen <= {ProblemCode.WRITE_INTERRUPTED, ProblemCode.ORPHAN_FORK}
    report = verify_graph(path)
    assert (report.problems, report.unverified) == ((), 0)


def test_without_checksums_no_file_is_read(graph):
    report = graph.maintenance.verify(checksums=False)
    assert (report.files, report.checked, report.tables) == (0, 0, 4)


def test_where_no_graph_is_there_is_nothing_to_verify(tmp_path):
    with pytest.raises(GraphNotFound):
        verify_graph(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(GraphNotFound):
        verify_graph(tmp_path / "empty")


# -- rows -----------------------------------------------------------------------------------------


def spoil(graph):
    """Rows that no write of ours would take, written past the graph and taken over by force."""
    people = table_of(graph, "node:Person")
    new = {field.name: [None, None] for field in people.schema}
    new |= {"id": ["a", "c"], "name": ["a", "c"], "mail": ["new", "a@x"]}
    columns = [n for n in people.schema.names if n != "photo"]
    schema = pa.schema([people.schema.field(name) for name in columns])
    lance.write_dataset(
        pa.table({n: new[n] for n in columns}, schema=schema), people.uri, mode="append"
    )
    for key, rows_ in (
        ("edge:Knows", {"id": ["k"], "src": ["nobody"], "dst": ["b"]}),
        ("edge:LivesIn", {"id": ["l"], "src": ["a"], "dst": ["p"]}),
    ):
        edges = table_of(graph, key)
        lance.write_dataset(pa.table(rows_, schema=edges.schema), edges.uri, mode="append")
    graph.maintenance.repair(confirm=True, force=True)


@pytest.mark.parametrize("at_once", [rows.KEYS_AT_ONCE, 1])
def test_rows_that_break_rules_are_named(at_once, graph, monkeypatch):
    spoil(graph)
    monkeypatch.setattr(rows, "KEYS_AT_ONCE", at_once)
    report = graph.maintenance.verify()
    actual = {(p.code, p.table) for p in report.problems}
    assert actual == {
        (ProblemCode.DUPLICATE_VALUE, "node:Person"),
        (ProblemCode.DANGLING_EDGE, "edge:Knows"),
        (ProblemCode.CARDINALITY_BROKEN, "edge:LivesIn"),
    }
    texts = " ".join(problem.message for problem in report.problems)
    assert all(name in texts for name in ("'a@x'", "'nobody'", "value 'a'"))
    assert all(problem.hint for problem in report.problems)


# -- indexes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("small", [verifying._SMALL, 10])
def test_an_index_that_finds_other_rows_than_a_scan_is_named_and_built_anew(
    small, graph, monkeypatch
):
    """All values are looked up in a small table, some in one that is not."""
    monkeypatch.setattr(verifying, "_SMALL", small)
    size = 600
    numbers = pa.array(range(size), pa.int32())
    columns = {"name": [f"n{n}" for n in range(size)], "age": numbers, "size": pc.add(numbers, 1)}
    graph.append({"Person": pa.table(columns)})
    graph.indexes.ensure()
    table = table_of(graph, "node:Person")
    # The files of the index of another column, in the place of its own.
    homes = {
        i.name: Path(table.uri, "_indices", i.segments[0].uuid) for i in table.describe_indices()
    }
    for file in homes["size_equality"].iterdir():
        (homes["age_equality"] / file.name).write_bytes(file.read_bytes())
    # Otherwise it is told by its bytes.
    shutil.rmtree(Path(graph.uri, "__checksums"))
    report = graph.maintenance.verify(checksums=False)
    assert codes(report) == [ProblemCode.INDEX_DISAGREES]
    assert "graph.indexes.rebuild('node:Person', 'age')" in report.problems[0].hint
    with pytest.raises(InputError, match="no index"):
        graph.indexes.rebuild("node:Person", "photo")
    graph.indexes.rebuild("node:Person", "age")
    assert graph.maintenance.verify(checksums=False).problems == ()


def test_text_and_vector_indexes_are_compared_too(graph):
    graph.indexes.ensure()
    report = graph.maintenance.verify()
    assert report.is_sound
    built = [state for state in graph.indexes.status().indexes if not state.is_pending]
    assert report.indexes == len(built)
    assert {state.kind for state in built} >= {IndexKind.EQUALITY, IndexKind.TEXT}
    assert len({state.kind for state in built}) == 3


# -- around the tables ----------------------------------------------------------------------------


def test_a_tag_whose_commit_is_gone_is_named(graph):
    graph.tags.create("old")
    graph.load([person("c")])
    pin = graph.snapshot(tag="old")._context.snapshot.pin("node:Person")
    os.unlink(Path(graph.uri, pin.ref.version_path(pin.version)))
    actual = codes(graph.maintenance.verify(checksums=False))
    assert actual == [ProblemCode.TAG_UNREADABLE, ProblemCode.VERSION_MISSING]


def test_a_tag_whose_manifest_nobody_of_ours_removed_is_an_error(graph, path):
    """The cleanup of another program knows no tags; no drop has asked for that."""
    graph.tags.create("old")
    version = graph.snapshot(tag="old").version
    graph.load([person("c")])
    (path / "__history/removed.json").unlink()
    (path / TableRef(MANIFEST).version_path(version)).unlink()
    report = verify_graph(path, checksums=False)
    (actual,) = [
        problem for problem in report.problems if problem.code is ProblemCode.TAG_UNREADABLE
    ]
    assert actual.weight is Weight.ERROR
    assert not report.is_sound


def test_a_tag_whose_data_was_dropped_for_good_is_a_warning(graph):
    """The drop was asked for, so the graph is sound; only the tag is of no use any more."""
    graph.tags.create("old")
    graph.schema.apply(SCHEMA.replace("  age: I32? @index\n", ""), allow_data_loss=True)
    for _ in range(2):
        report = graph.maintenance.verify()
        assert report.is_sound
        assert codes(report) == [ProblemCode.TAG_UNREADABLE]
        # A cleanup keeps such a state no longer.
        graph.load([person("c")])
        graph.maintenance.cleanup(1, min_age=0)
    with pytest.raises(HistoryGone):
        graph.snapshot(tag="old")
    graph.tags.delete("old")
    assert not graph.maintenance.verify().problems


def test_schema_files_that_disagree_are_named_also_where_nothing_opens(graph, path):
    (path / "_schema.pg").write_text(SCHEMA.replace("age", "years"))
    report = verify_graph(path)
    assert codes(report) == [ProblemCode.SCHEMA_DISAGREES]
    assert report.rows == 5


@pytest.mark.parametrize(
    ("ending", "text", "code"),
    [
        ("staging", "{}", ProblemCode.MARKER_DAMAGED),
        ("staging", "garbage", ProblemCode.MARKER_DAMAGED),
        ("staging", None, ProblemCode.STAGING_ABANDONED),
        ("branch", "{}", ProblemCode.MARKER_DAMAGED),
        ("branch", "garbage", ProblemCode.MARKER_DAMAGED),
    ],
)
def test_markers_of_dead_writers_are_told_and_do_no_harm(ending, text, code, graph, path):
    began = int((datetime.now(UTC) - timedelta(days=30)).timestamp() * 1_000_000)
    (path / "__recovery").mkdir(exist_ok=True)
    (path / f"__recovery/01H.{ending}").write_text(text or json.dumps({"started_at": began}))
    report = graph.maintenance.verify()
    assert [(p.code, p.weight) for p in report.problems] == [(code, Weight.WARNING)]
    assert report.is_sound


# -- records --------------------------------------------------------------------------------------


def test_records_are_folded_into_one_and_forget_files_that_are_gone(graph, path):
    for n in range(5):
        graph.load([person(f"n{n}")])
    graph.branches.create("gone")
    graph.load([person("x")], branch="gone")
    graph.branches.delete("gone")
    before = read_records(graph._handle.store.objects)
    assert len(before.names) > 5
    assert fold_checksums(graph._handle.store.objects) == len(before.names)
    after = read_records(graph._handle.store.objects)
    assert len(after.names) == 1
    assert {name for name in before.sums if (path / name).exists()} == set(after.sums)
    assert fold_checksums(graph._handle.store.objects) == 0
    report = verify_graph(path)
    assert (report.problems, report.unverified) == ((), 0)


def test_optimize_folds_many_records(graph, path, monkeypatch):
    monkeypatch.setattr("omnigraph.maintain.optimize.run.MOST_RECORDS", 3)
    for n in range(4):
        graph.load([person(f"n{n}")])
    graph.maintenance.optimize()
    assert len(list((path / FOLDER).iterdir())) == 1
    assert verify_graph(path).unverified == 0


def test_a_record_that_is_lost_leaves_files_unverified_and_nothing_else(graph, path):
    for record in (path / FOLDER).iterdir():
        record.unlink()
    report = verify_graph(path)
    assert report.problems == ()
    assert report.unverified == report.files


def test_a_write_succeeds_when_its_checksums_cannot_be_recorded(graph, path):
    for record in (path / FOLDER).iterdir():
        record.unlink()
    (path / FOLDER).rmdir()
    (path / FOLDER).write_text("in the way")
    graph.load([person("c")])
    assert graph.snapshot().count("Person") == 3
    (path / FOLDER).unlink()
    graph.load([person("d")])
    recorded = read_records(graph._handle.store.objects).sums
    assert sum(name.endswith(".lance") for name in recorded) >= 4


# -- the page -------------------------------------------------------------------------------------


def test_every_code_is_explained(request):
    page = (request.config.rootpath / "docs/maintenance.md").read_text()
    assert [code for code in ProblemCode if f"`{code}`" not in page] == []
