"""The doctor: one page about a graph, true, read-only, with what to run."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import Graph, MaintenancePolicy
from omnigraph.cli.output.doctor_page import render_doctor
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.sidecar import Sidecar, SidecarPin
from omnigraph.commit.staging import write_staging_marker
from omnigraph.commit.ulid import encode_ulid, now_micros, ulid_time
from omnigraph.errors import BranchNotFound
from omnigraph.maintain.doctor import examine as doctor

pytestmark = pytest.mark.rotates(3)

SCHEMA = """
node Person { name: String @key  age: I32? @index  vec: Vector(2)? @index }
node Company { name: String @key }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.append(people(*(f"p{number}" for number in range(20))))
        graph.append({"Knows": pa.table({"src": ["p1"], "dst": ["p2"]})})
        graph.indexes.ensure()
        yield graph


def people(*names):
    ages = pa.array(range(len(names)), pa.int32())
    return {"Person": pa.table({"name": list(names), "age": ages})}


def location(graph, key):
    return Path(graph.uri) / graph._handle.store.manifest(None).current().pins[key].location


def files_of(graph):
    root = Path(graph.uri)
    return {str(p.relative_to(root)): p.stat().st_mtime_ns for p in root.rglob("*") if p.is_file()}


def examined(graph, **options):
    """By a handle that may only read; and nothing of the graph changes."""
    before = files_of(graph)
    with Graph.open(graph.uri, "r") as reader:
        report = reader.maintenance.doctor(**options)
        page = render_doctor(report)
    assert files_of(graph) == before

    for line in page.splitlines():
        assert len(line) <= 100 or "omnigraph " in line
        assert line == line.rstrip()
    assert json.loads(json.dumps(report.to_json()))["healthy"] is report.is_healthy
    assert [line.partition("  # ")[0] for line in str(report).splitlines()[1:]] == [
        advice.command for advice in report.advice
    ]
    return report, page


def commands(report):
    """What is to be run, by the word that follows the name of the program."""
    assert all(item.command.startswith("omnigraph ") for item in report.advice)
    return [item.command.split()[1] for item in report.advice]


def died(graph, table_key, *, seconds, moved=False):
    """A write of so long ago, whose writer is gone, in its first or its last step."""
    store = graph._handle.store
    pin = store.manifest(None).current().pins[table_key]
    moment = (now_micros() // 1000 - seconds * 1000) << 80
    operation = encode_ulid(moment)
    assert now_micros() // 1000 - ulid_time(operation) >= seconds * 1000
    path = store.root.path(pin.location)
    entry = SidecarPin(table_key, path, pin.version, pin.version + 1)
    store.sidecars.write(
        Sidecar(operation, "0", None, "ann", WriterKind.LOAD, (entry,), leased=True)
    )
    if moved:
        lance.dataset(path).delete("id = 'p1'")
    return operation


# -- a healthy graph --------------------------------------------------------------------------


def test_a_healthy_graph_needs_nothing(graph):
    report, page = examined(graph)
    assert report.is_healthy
    assert "healthy" in page.splitlines()[1]
    assert page.endswith("Nothing to do.")
    person = report.table("node:Person")
    assert (person.fragments, person.rows, person.covered, person.head) == (1, 20, 1.0, None)
    # There are no vectors to index, and that is nobody's fault.
    assert (person.missing_indexes, person.pending_indexes) == ((), 1)
    assert report.branches == ("main",)
    assert report.oldest is None


def test_what_it_says_is_what_lies_there(graph):
    graph.append(people("x"))
    graph.mutate('query m() { delete Person where name = "p3" }')
    report, _ = examined(graph)
    person, path = report.table("node:Person"), location(graph, "node:Person")
    dataset = lance.dataset(str(path))
    assert person.versions == len(list(path.glob("_versions/*.manifest")))
    assert person.fragments == len(dataset.get_fragments())
    assert (person.rows, person.deleted_rows) == (20, 1)
    assert person.size == sum(file.stat().st_size for file in path.glob("data/*.lance"))
    assert person.index_size == sum(
        file.stat().st_size for file in path.glob("_indices/*/*") if file.is_file()
    )
    assert person.uncovered_rows == 1
    versions = list((Path(graph.uri) / "__manifest" / "_versions").glob("*.manifest"))
    assert report.manifests[0].versions == len(versions)
    assert report.manifests[0].fragments == len(graph._handle.store.manifest(None).fragments)


# -- an unhealthy one -------------------------------------------------------------------------


def test_a_worn_table_is_optimized(graph):
    for number in range(12):
        graph.append(people(f"q{number}"))
    graph.mutate("query m() { delete Person where age > 10 }")
    report, page = examined(graph)
    person = report.table("node:Person")
    assert person.small_fragments > 8
    assert person.saved > 0
    assert commands(report) == ["optimize"]
    assert f"omnigraph optimize {graph.uri}" in page
    assert any("small fragments > 8" in line for line in page.splitlines())
    graph.maintenance.optimize(engine="local")
    assert examined(graph)[0].is_healthy


def test_missing_indexes_are_told(graph):
    graph.append({"Company": pa.table({"name": ["Acme"]})})
    report, page = examined(graph)
    assert report.table("node:Company").missing_indexes == (
        "id_equality",
        "name_equality",
        "name_text",
    )
    assert commands(report) == ["optimize"]
    assert "index id_equality is missing" in page


def test_drift_is_found_and_comes_before_upkeep(graph):
    for number in range(12):
        graph.append(people(f"q{number}"))
    lance.dataset(str(location(graph, "edge:Knows"))).delete("src = 'p1'")
    report, page = examined(graph)
    edge = report.table("edge:Knows")
    assert edge.head == edge.version + 1
    assert commands(report) == ["repair", "optimize"]
    assert f"the graph shows version {edge.version}, the table is at {edge.head}" in page


def test_an_interrupted_write_is_told_with_its_age_and_is_no_drift(graph):
    operation = died(graph, "node:Person", seconds=7200, moved=True)
    lance.dataset(str(location(graph, "edge:Knows"))).delete("src = 'p1'")
    report, page = examined(graph)
    (write,) = report.writes
    assert (write.operation, write.kind, write.branch) == (operation, "Load", "main")
    assert write.tables == ("node:Person",)
    assert report.table("node:Person").head is None
    assert report.table("edge:Knows").head is not None
    assert commands(report) == ["repair", "repair"]
    assert f"{operation}: Load on main, 2 h old, 1 table" in page
    assert report.cleanup.why == "an interrupted write has to be recovered first"


def test_a_write_that_is_just_being_made_is_no_reason_to_act(graph):
    died(graph, "node:Person", seconds=0)
    report, page = examined(graph)
    assert report.is_healthy
    assert "Load on main" in page


def test_a_recovery_file_that_cannot_be_read_is_named(graph):
    folder = Path(graph.uri) / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / f"{encode_ulid(1 << 100)}.json").write_text("{")
    report, page = examined(graph)
    assert "not valid JSON" in report.writes[0].error
    assert commands(report) == ["verify"]
    assert "not valid JSON" in page


def test_writes_that_stage_are_told(graph):
    snapshot = graph._handle.store.manifest(None).current()
    operation = write_staging_marker(graph._handle.store, None, snapshot)
    report, page = examined(graph)
    assert [item.operation for item in report.staging] == [operation]
    assert report.is_healthy
    assert operation in page


def test_a_table_that_cannot_be_read_is_told_and_the_rest_too(graph):
    path = location(graph, "node:Person")
    for file in path.glob("_versions/*.manifest"):
        file.write_bytes(b"no manifest")
    report, page = examined(graph)
    assert report.table("node:Person").error
    assert report.table("edge:Knows").error is None
    assert commands(report)[0] == "verify"
    assert "cannot be read" in page


# -- branches, tags, policy -------------------------------------------------------------------


def test_the_oldest_pin_is_told_with_who_holds_it(graph):
    graph.branches.create("old")
    graph.append(people("x"))
    graph.tags.create("v1")
    for name in ("y", "z"):
        graph.append(people(name))
    report, page = examined(graph)
    actual = report.oldest
    assert (actual.kind, actual.name, actual.table_key, actual.behind) == (
        "branch",
        "old",
        "node:Person",
        3,
    )
    assert "3 behind the newest, by branch old" in page
    graph.branches.delete("old")
    actual = examined(graph)[0].oldest
    assert (actual.kind, actual.name, actual.behind) == ("tag", "v1", 2)


def test_a_branch_is_looked_at_on_its_own(graph):
    graph.branches.create("b")
    for number in range(12):
        graph.append(people(f"q{number}"), branch="b")
    report, page = examined(graph, branch="b")
    assert (report.branch, report.table("node:Person").branch) == ("b", "b")
    assert not report.table("edge:Knows").owned
    assert report.table("edge:Knows").reasons == ()
    assert report.advice[0].command == f"omnigraph optimize {graph.uri} --branch b"
    assert "edge:Knows (main)" in page
    assert examined(graph)[0].is_healthy
    with pytest.raises(BranchNotFound):
        graph.maintenance.doctor("gone")


def test_a_policy_of_ones_own_decides_what_is_worth_it(graph):
    for number in range(4):
        graph.append(people(f"q{number}"))
    assert examined(graph)[0].is_healthy
    strict = MaintenancePolicy(small_fragments=2, versions=3)
    report, _ = examined(graph, policy=strict)
    assert commands(report)[0] == "optimize"
    assert report.table("node:Person").reasons == ("5 small fragments > 2",)


def test_cleanup_is_advised_for_many_versions_only_when_it_helps(graph, monkeypatch):
    few = MaintenancePolicy(versions=3, small_fragments=100)
    for number in range(4):
        graph.append(people(f"q{number}"))
    # All of them are young: a cleanup would remove none.
    report, _ = examined(graph, policy=few)
    assert (report.cleanup.versions, commands(report)) == (0, [])
    monkeypatch.setattr(doctor, "MAX_VERSIONS", 3)
    report, page = examined(graph, policy=few)
    assert commands(report) == ["cleanup"]
    assert f"omnigraph cleanup {graph.uri} --keep 10 --confirm" in page
    assert "unknown, because there are" in page


def test_many_tables_stay_on_one_page(tmp_path):
    types = "\n".join(f"node T{number:03} {{ name: String @key }}" for number in range(60))
    with Graph.init(tmp_path / "g.omni", types, durability="os") as graph:
        graph.append({"T059": pa.table({"name": ["a"]})})
        _, page = examined(graph)
    lines = page.splitlines()
    assert len(lines) < 66
    # Those that need something come first.
    assert lines[4].startswith("node:T059")
    assert any(line.startswith("… 20 more") for line in lines)
