"""Every list of files that is read from storage, with paths in it that lead elsewhere.

Beside the graph lies a directory that nothing may read, change or remove, see ``Outside``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import Graph, backup_points, clone, prune_backup, restore, verify_graph
from omnigraph.commit.publisher import Publication
from omnigraph.commit.rows import SCHEMA as ROWS
from omnigraph.commit.rows import TableRow, VersionRow, from_arrow, to_arrow
from omnigraph.commit.sidecar import Sidecar
from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import BranchNotFound, InputError, NotFound, OmniGraphError, StorageCorrupt
from omnigraph.maintain.verify import ProblemCode
from omnigraph.storage.lance_format.manifests import replace_addresses
from omnigraph.storage.removed_versions import CopyRemovals, RemovedVersions
from tests.maintain.outside import HOSTILE_PATHS, Outside

pytestmark = pytest.mark.rotates(6)

SCHEMA = "node P { name: String @key }"
HOSTILE_BRANCHES = (
    "",
    "..",
    "../..",
    "../../../outside",
    "a/../../../../outside",
    "/outside",
    "a//b",
    "..\\outside",
    "a\0b",
    "a\nb",
    "~root",
    "..%2Fx",
    "\u2025/x",
    "a" * 300,
)


def row(name):
    return [{"type": "P", "data": {"name": name}}]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A graph with a branch, and a backup of it with two points."""
    top = tmp_path_factory.mktemp("made")
    with Graph.init(top / "g.omni", SCHEMA, durability="os") as graph:
        graph.load(row("a"))
        graph.branches.create("dev")
        graph.load(row("b"), branch="dev")
        graph.maintenance.backup(top / "b")
        graph.load(row("c"))
        graph.maintenance.backup(top / "b")
    return top


@pytest.fixture
def top(made, tmp_path):
    """The same under another path, once for each test. Its branches are put right by an opening."""
    for name in ("g.omni", "b"):
        shutil.copytree(made / name, tmp_path / name)
    Graph.open(tmp_path / "g.omni", durability="os").close()
    return tmp_path


@pytest.fixture
def outside(top):
    actual = Outside(top)
    yield actual
    actual.close()


@pytest.fixture
def table(top):
    return next((top / "g.omni/nodes").iterdir()).name


def files(position: Path) -> dict[str, bytes]:
    actual = (path for path in sorted(position.rglob("*")) if path.is_file())
    return {str(path.relative_to(position)): path.read_bytes() for path in actual}


def reopened(top: Path, mode: str = "rw") -> Graph:
    return Graph.open(top / "g.omni", mode, durability="os")


# -- backups --------------------------------------------------------------------------------------


def forge(path: Path, change) -> dict:
    """Change a point so that its checksum is right."""
    reported = json.loads(path.read_text())
    reported.pop("sum")
    change(reported)
    reported["sum"] = hashlib.sha256(json.dumps(reported, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(reported))
    return reported


def newest_point(top: Path) -> Path:
    return sorted((top / "b/points").iterdir())[-1]


def test_a_point_with_a_path_that_leads_out_makes_no_graph(top, outside, table):
    point = newest_point(top)
    good = point.read_text()
    earlier = min((top / "b/points").iterdir()).stem
    forms = [*HOSTILE_PATHS, "__recovery/01H.cleanup", "__checksums/x.json", "__topology/x.arrow"]
    for form in forms:
        hostile = outside.path(form, table)
        for position in (0, 1):

            def change(reported, position=position, hostile=hostile):
                reported["files"][0][position] = hostile

            point.write_text(good)
            forge(point, change)
            before = files(top / "b")
            for call in (
                lambda: restore(top / "b", top / "r.omni"),
                lambda: backup_points(top / "b"),
                lambda: prune_backup(top / "b", points=[earlier]),
            ):
                with pytest.raises(StorageCorrupt) as caught:
                    call()
                assert caught.value.message.isascii()
                assert caught.value.hint
            assert files(top / "b") == before
            assert not (top / "r.omni").exists()
            assert not (top / "r.omni.incomplete").exists()
    outside.must_be_untouched()
    assert restore(top / "b", top / "r.omni", point=earlier).files


@pytest.mark.parametrize(
    "change",
    [
        lambda reported: reported.update(point=new_ulid()),
        lambda reported: reported["files"].append(reported["files"][0]),
        lambda reported: reported["files"][0].__setitem__(2, -1),
        lambda reported: reported["files"][0].__setitem__(2, "7"),
        lambda reported: reported["files"][0].__setitem__(3, "../../outside/canary"),
        lambda reported: reported["files"][0].append("more"),
        lambda reported: reported["branches"].update({"../../outside": 1}),
        lambda reported: reported.update(branches=["main"]),
        lambda reported: reported.update(files={"a": 1}),
        lambda reported: reported.update(taken_at=1e300),
        lambda reported: reported.update(branches={"main": "x"}),
    ],
)
def test_a_point_that_is_not_what_a_backup_writes_is_damaged(top, outside, change):
    forge(newest_point(top), change)
    with pytest.raises(StorageCorrupt):
        restore(top / "b", top / "r.omni")
    outside.must_be_untouched()


def test_a_file_that_should_be_another_is_not_restored_in_its_place(top, outside):
    """Both paths are fine by themselves."""

    def change(reported):
        reported["files"][0][1] = reported["files"][1][1]

    forge(newest_point(top), change)
    with pytest.raises(StorageCorrupt):
        restore(top / "b", top / "r.omni")


def test_a_further_backup_does_not_believe_a_forged_point(top, outside, table):
    hostile = f"nodes/{table}/../../../outside/canary"
    forge(newest_point(top), lambda reported: reported["files"][0].__setitem__(0, hostile))
    with reopened(top) as graph:
        graph.maintenance.backup(top / "b")
    outside.must_be_untouched()
    restore(top / "b", top / "r.omni")
    assert verify_graph(top / "r.omni").problems == ()


def test_a_point_is_only_what_has_the_name_of_one(top, outside):
    for name in ("..json", "x.json", "01H.json", "0" * 27 + ".json"):
        (top / "b/points" / name).write_text("{}")
    assert len(backup_points(top / "b")) == 2
    for point in ("../x", "x", "..", ""):
        with pytest.raises(NotFound):
            restore(top / "b", top / "r.omni", point=point)
    restore(top / "b", top / "r.omni")


# -- sidecars -------------------------------------------------------------------------------------


def sidecar(**keys) -> dict:
    return {
        "schema_version": 2,
        "operation_id": new_ulid(),
        "started_at": "1",
        "branch": None,
        "actor_id": None,
        "writer_kind": "SchemaApply",
        "tables": [],
        **keys,
    }


def test_a_sidecar_with_a_path_that_leads_out_is_damaged(table, tmp_path):
    for form in HOSTILE_PATHS:
        path = form.replace("{t}", table).replace("{outside}", str(tmp_path))
        registration = {"table_key": "node:X", "table_path": path}
        if path != f"nodes/{table}":
            with pytest.raises(StorageCorrupt):
                Sidecar.from_json(json.dumps(sidecar(additional_registrations=[registration])), "x")
    pin = {"table_key": "node:P", "table_path": "/g", "expected_version": 1, "post_commit_pin": 2}
    location = {"table_key": "node:X", "table_path": "nodes/1"}
    for branch in HOSTILE_BRANCHES:
        for keys in (
            {"branch": branch},
            {"tables": [{**pin, "table_branch": branch}]},
            {"additional_registrations": [{**location, "table_branch": branch}]},
        ):
            with pytest.raises(StorageCorrupt):
                Sidecar.from_json(json.dumps(sidecar(**keys)), "x")


@pytest.mark.parametrize(
    "keys",
    [
        {"branch": "../../../outside"},
        {"additional_registrations": [{"table_key": "node:X", "table_path": "../outside"}]},
        {
            "hard_drops": [
                {"table_key": "node:P", "table_path": "../../outside", "through_version": 1}
            ]
        },
        {
            "tables": [
                {
                    "table_key": "node:P",
                    "table_path": "/g",
                    "expected_version": 1,
                    "post_commit_pin": 2,
                    "table_branch": "../../../../outside",
                }
            ]
        },
    ],
)
def test_nobody_recovers_by_a_sidecar_that_leads_out(top, outside, keys):
    content = sidecar(leased=True, **keys)
    file = top / "g.omni/__recovery" / f"{content['operation_id']}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content))
    before = files(top / "g.omni")
    with pytest.raises(StorageCorrupt):
        reopened(top)
    assert files(top / "g.omni") == before
    assert ProblemCode.SIDECAR_DAMAGED in {
        problem.code for problem in verify_graph(top / "g.omni").problems
    }
    with reopened(top, "r") as graph:
        assert graph.snapshot().count("P") == 2
    outside.must_be_untouched()


@pytest.mark.parametrize("branch", HOSTILE_BRANCHES)
def test_a_claim_on_a_branch_with_a_hostile_name_is_ignored(top, outside, branch):
    """The claim of a dead load leads to the removal of a branch."""
    before = files(top / "g.omni/__manifest")
    operation = new_ulid()
    content = {
        "operation_id": operation,
        "started_at": 0,
        "branch": branch,
        "base_branch": "main",
        "base_version": 1,
        "branch_identity": None,
    }
    (top / "g.omni/__recovery").mkdir(exist_ok=True)
    (top / f"g.omni/__recovery/{operation}.branch").write_text(json.dumps(content))
    with reopened(top) as graph:
        graph.refresh()
        assert graph.branches.list() == ["main", "dev"]
    assert files(top / "g.omni/__manifest") == before
    outside.must_be_untouched()


# -- cleanup intents, removed versions, checksums -------------------------------------------------


def intent(top: Path, table: str, **keys) -> Path:
    file = top / "g.omni/__recovery" / f"{new_ulid()}.cleanup"
    file.parent.mkdir(exist_ok=True)
    content = {
        "operation_id": file.stem,
        "started_at": 1,
        "purpose": "cleanup",
        "table": "node:P",
        "location": f"nodes/{table}",
        "branch": "main",
        "life": None,
        "versions": [],
        "files": [],
        **keys,
    }
    file.write_text(json.dumps(content))
    return file


def test_a_cleanup_intent_that_leads_out_removes_nothing(top, outside, table):
    forms = [
        *HOSTILE_PATHS,
        f"nodes/{table}/_versions/1.manifest",
        f"nodes/{table}/_refs/branches/dev.json",
        f"nodes/{table}/tree/dev/data/x.lance",
        "edges/other/data/x.lance",
        "_schema.pg",
        "__manifest/data/x.lance",
    ]
    kept = [intent(top, table, files=[outside.path(form, table)]) for form in forms]
    kept += [
        intent(top, table, location=outside.path(form, table))
        for form in HOSTILE_PATHS
        if form != "nodes/{t}"
    ]
    kept += [intent(top, table, branch=branch, purpose="drop") for branch in HOSTILE_BRANCHES]
    kept += [intent(top, table, versions=item) for item in ([[1, 10**15]], [[5, 1]], [[-3, 2]])]
    before = files(top / "g.omni")
    with reopened(top) as graph:
        graph.maintenance.cleanup(1, min_age=0)
        graph.maintenance.repair()
        problems = graph.maintenance.verify().problems
    assert all(path.exists() for path in kept)
    assert {item.code for item in problems} == {ProblemCode.MARKER_DAMAGED}
    assert len(problems) == len(kept)
    assert {path for path in before if "_versions" not in path} - set(files(top / "g.omni")) <= {
        path for path in before if "/data/" in path or "_transactions" in path
    }
    outside.must_be_untouched()


def test_a_cleanup_intent_of_ours_is_still_finished(top, outside, table):
    (top / f"g.omni/nodes/{table}/data/gone.lance").write_bytes(b"x")
    left = intent(top, table, files=[f"nodes/{table}/data/gone.lance"])
    reopened(top).close()
    assert not left.exists()
    assert not (top / f"g.omni/nodes/{table}/data/gone.lance").exists()


def test_a_record_of_removed_versions_that_leads_out_is_damaged(top, outside, table):
    for form in (*HOSTILE_PATHS, "nodes/{t}/tree/../../../../outside"):
        path = outside.path(form, table)
        if path == f"nodes/{table}":
            continue
        text = RemovedVersions({path: CopyRemovals("life", ((1, 2),))}).to_text()
        with pytest.raises(StorageCorrupt):
            RemovedVersions.from_text(text)
    (top / "g.omni/__history/removed.json").write_text(text)
    with reopened(top) as graph:
        codes = {problem.code for problem in graph.maintenance.verify().problems}
        assert ProblemCode.HISTORY_RECORD_DAMAGED in codes
        graph.maintenance.cleanup(1, min_age=0)
        assert graph.maintenance.verify().problems == ()
    outside.must_be_untouched()


def record_name() -> str:
    return f"{time.time_ns():020d}-{uuid.uuid4()}.json"


def test_a_record_of_checksums_that_leads_out_is_damaged(top, outside, table):
    names = []
    for form in HOSTILE_PATHS:
        listed = {outside.path(form, table): [4, "sha256:" + "0" * 64]}
        digest = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
        names.append(record_name())
        path = top / "g.omni/__checksums" / names[-1]
        path.write_text(json.dumps({"version": 1, "sum": digest, "files": listed}))
    with reopened(top) as graph:
        graph.snapshot("dev").read("P")
        problems = graph.maintenance.verify().problems
        assert {problem.code for problem in problems} == {ProblemCode.CHECKSUM_RECORD_DAMAGED}
        assert len(problems) == len(names)
        graph.maintenance.backup(top / "b2")
        graph.maintenance.optimize()
        assert graph.maintenance.verify().problems == ()
    outside.must_be_untouched()


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"version": 1, "sum": "", "files": []}', "[]", "1", '{"files": 1}']
)
def test_a_record_of_checksums_of_another_shape_is_damaged(top, text):
    (top / "g.omni/__checksums" / record_name()).write_text(text)
    codes = {problem.code for problem in verify_graph(top / "g.omni").problems}
    assert codes == {ProblemCode.CHECKSUM_RECORD_DAMAGED}


# -- the manifest ---------------------------------------------------------------------------------


def test_a_manifest_row_with_a_path_that_leads_out_is_refused(table, tmp_path):
    for form in HOSTILE_PATHS:
        path = form.replace("{t}", table).replace("{outside}", str(tmp_path))
        if path in ("", f"nodes/{table}") or "\ud800" in path:
            continue
        with pytest.raises(StorageCorrupt) as caught:
            list(from_arrow(to_arrow([TableRow("node:P", path)])))
        assert caught.value.message.isascii()
    for branch in HOSTILE_BRANCHES:
        with pytest.raises(StorageCorrupt):
            list(from_arrow(to_arrow([VersionRow("node:P", 1, branch, 0)])))
    assert set(ROWS.names) >= {"location", "table_branch"}


@pytest.mark.parametrize(
    ("location", "branch"),
    [
        ("../outside/t", None),
        ("nodes/../../outside/t", None),
        ("{outside}", None),
        ("nodes/1", "../../../../outside"),
    ],
)
def test_nothing_is_done_by_a_manifest_that_leads_out(top, outside, location, branch):
    lance.write_dataset(pa.table({"id": ["x"], "name": ["x"]}), top / "outside/t")
    with reopened(top) as graph:
        graph._handle.store.publisher.publish(
            graph._handle.store.manifest(None),
            Publication(
                {},
                [VersionRow("node:Q", 1, branch, 1)],
                [TableRow("node:Q", location.replace("{outside}", str(outside.folder / "t")))],
            ),
        )
    outside = Outside(top)
    before = files(top / "g.omni")
    for work in (
        lambda: reopened(top),
        lambda: reopened(top, "r").snapshot().count("P"),
        lambda: clone(top / "g.omni", top / "c.omni"),
    ):
        with pytest.raises(StorageCorrupt):
            work()
    assert not verify_graph(top / "g.omni").is_sound
    assert files(top / "g.omni") == before
    outside.must_be_untouched()
    outside.close()


# -- what Lance names -----------------------------------------------------------------------------


def versions_of_dev(top: Path, table: str) -> list[Path]:
    return sorted((top / f"g.omni/nodes/{table}/tree/dev/_versions").glob("*.manifest"))


@pytest.mark.parametrize(
    "form", ["{outside}", "{outside}/../outside", "file://{outside}", "s3://b/x"]
)
def test_a_version_file_that_names_another_place_is_not_followed(top, outside, table, form):
    for path in versions_of_dev(top, table):
        raw = replace_addresses(path.read_bytes(), str(path), lambda _: outside.path(form, table))
        path.write_bytes(raw)
    shutil.rmtree(top / "g.omni/__checksums")
    for work in (
        lambda graph: graph.snapshot("dev").read("P"),
        lambda graph: graph.maintenance.backup(top / "b2"),
        lambda graph: graph.maintenance.repair(confirm=True),
        lambda graph: clone(top / "g.omni", top / "c.omni"),
    ):
        with reopened(top) as graph, pytest.raises(StorageCorrupt):
            work(graph)
    with reopened(top) as graph:
        # What cannot be looked at is left alone, and told.
        assert any(item.error for item in graph.maintenance.cleanup(1, min_age=0).tables)
        assert not graph.maintenance.verify().is_sound
    assert not (top / "c.omni").exists()
    outside.must_be_untouched()


def test_a_table_without_branches_names_no_other_place_either(top, outside, table):
    """Lance may have the files of any table elsewhere; a graph has not."""
    dataset = lance.dataset(top / f"g.omni/nodes/{table}")
    dataset.add_bases([lance.DatasetBasePath(str(outside.folder))])
    outside.touched()
    with reopened(top, "r") as graph:
        version = lance.dataset(top / f"g.omni/nodes/{table}").version
        pin = graph._handle.store.manifest(None).current().pins["node:P"]
        with pytest.raises(StorageCorrupt):
            graph._handle.store.datasets.open(pin.ref, version)
    outside.must_be_untouched()


@pytest.mark.parametrize("name", ["..%2F..%2F..%2F..%2Foutside.json", "a%2F..%2F..%2Fb.json"])
@pytest.mark.parametrize("where", ["__manifest", "nodes"])
def test_a_branch_whose_name_decodes_to_another_directory_is_refused(
    top, outside, table, name, where
):
    folder = top / "g.omni" / (where if where == "__manifest" else f"nodes/{table}")
    shutil.copy(folder / "_refs/branches/dev.json", folder / "_refs/branches" / name)
    try:
        with reopened(top) as graph:
            graph.maintenance.cleanup(1, min_age=0)
            graph.branches.delete("dev")
            graph.maintenance.backup(top / "b2")
    except OmniGraphError:
        pass
    codes = {problem.code for problem in verify_graph(top / "g.omni").problems}
    assert ProblemCode.BRANCH_REFERENCE_DAMAGED in codes
    outside.must_be_untouched()


def test_a_branch_made_from_another_directory_is_refused(top, outside, table):
    for path in (top / "g.omni").rglob("dev.json"):
        reported = json.loads(path.read_text())
        path.write_text(json.dumps({**reported, "parentBranch": "../../../outside"}))
    with pytest.raises(StorageCorrupt), reopened(top) as graph:
        graph.maintenance.backup(top / "b2")
    assert not verify_graph(top / "g.omni").is_sound
    outside.must_be_untouched()


@pytest.mark.parametrize("branch", [one for one in HOSTILE_BRANCHES if one and "\0" not in one])
def test_a_branch_that_a_user_names_leads_nowhere(top, outside, branch):
    with reopened(top) as graph:
        for call in (
            lambda: graph.snapshot(branch),
            lambda: graph.load(row("x"), branch=branch),
            lambda: graph.branches.delete(branch),
            lambda: graph.branches.create("new", from_branch=branch),
            lambda: graph.merge(branch),
        ):
            with pytest.raises((BranchNotFound, InputError)):
                call()
    outside.must_be_untouched()


def test_lists_without_end_are_damaged(top, outside):
    """Brackets in brackets, and more versions than any table has."""
    deep = "[" * 100_000
    with pytest.raises(StorageCorrupt):
        RemovedVersions.from_text(deep)
    many = RemovedVersions({"__manifest": CopyRemovals(None, ((1, 10**15),))}).to_text()
    with pytest.raises(StorageCorrupt):
        RemovedVersions.from_text(many)
    newest_point(top).write_text(deep)
    with pytest.raises(StorageCorrupt):
        restore(top / "b", top / "r.omni")
    (top / "b/omnigraph-backup.json").write_text(deep)
    with pytest.raises(StorageCorrupt):
        backup_points(top / "b")
    recovery = top / "g.omni/__recovery"
    recovery.mkdir(exist_ok=True)
    (recovery / "01H.cleanup").write_text(deep)
    (recovery / "01H.staging").write_text(deep)
    codes = {problem.code for problem in verify_graph(top / "g.omni").problems}
    assert codes == {ProblemCode.MARKER_DAMAGED}
