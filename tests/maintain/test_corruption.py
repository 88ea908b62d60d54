"""Damage on the disk: each kind is found and named, and repaired where it can be.

What stands here is the table "damage, finding, what to run" of the page about maintenance.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import Graph, verify_graph
from omnigraph.errors import OmniGraphError, StorageCorrupt
from omnigraph.maintain.verify import ProblemCode, Weight
from omnigraph.storage.checksums import FOLDER
from tests.faults.aftermath import Ending

pytestmark = pytest.mark.rotates(6)

SCHEMA = """\
node Person { name: String @key  age: I32? @index }
edge Knows: Person -> Person
"""
ALL = "query all() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
AGED = "query aged($a: I32) { match { $p: Person { age: $a } } return { $p.name } }"
PERSON = "node:Person"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Rows of which one is deleted, indexes, and a branch with a copy of its own."""
    location = tmp_path_factory.mktemp("made") / "g.omni"
    with Graph.init(location, SCHEMA, durability="os") as graph:
        names = [f"n{n:03}" for n in range(200)]
        graph.append({"Person": pa.table({"name": names, "age": pa.array(range(200), pa.int32())})})
        graph.load([{"edge": "Knows", "from": "n001", "to": "n002"}])
        graph.mutate('query q() { delete Person where name = "n199" }')
        graph.indexes.ensure()
        graph.branches.create("feat")
        graph.load([{"type": "Person", "data": {"name": "new"}}], branch="feat")
    assert verify_graph(location).problems == ()
    kept = location.with_name("kept")
    shutil.copytree(location, kept)
    return location, kept


@pytest.fixture
def path(made):
    """The graph as it was made, at its place: a branch knows where it was made."""
    location, kept = made
    shutil.rmtree(location)
    shutil.copytree(kept, location)
    return location


# -- damage ---------------------------------------------------------------------------------------


def flip(file: Path, at: float = 0.3) -> None:
    """One byte that is another, somewhere in the first part of a file."""
    data = bytearray(file.read_bytes())
    data[int(len(data) * at)] ^= 0x55
    file.write_bytes(bytes(data))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def location_of(path: Path, key: str = PERSON) -> Path:
    with Graph.open(path, "r") as graph:
        pin = graph._handle.store.manifest(None).current().pin(key)
    return path / pin.location


def newest(folder: Path, pattern: str = "*") -> Path:
    return max(folder.glob(pattern), key=lambda file: file.stat().st_mtime_ns)


def named(path: Path, file: Path) -> str:
    return str(file.relative_to(path))


def problems(path: Path, code: ProblemCode):
    return [problem for problem in verify_graph(path).problems if problem.code is code]


def say_it_in_our_words(path: Path) -> None:
    """Opening and querying work, or end in an error of ours; nothing else is ever shown."""
    for mode in ("r", "rw"):
        try:
            with Graph.open(path, mode) as graph:
                for branch in ("main", "feat"):
                    graph.query(ALL, branch=branch).rows()
                    graph.query(AGED, params={"a": 7}, branch=branch).rows()
        except OmniGraphError as error:
            Ending(error).check_words()


# -- bytes that changed ---------------------------------------------------------------------------


def data_file(path):
    return newest(location_of(path) / "data", "*.lance")


def deletion_file(path):
    return newest(location_of(path) / "_deletions")


def table_manifest(path):
    return newest(location_of(path) / "_versions", "*.manifest")


def index_file(path):
    return newest(location_of(path) / "_indices", "*/page_data.lance")


def manifest_data(path):
    return newest(path / "__manifest/data", "*.lance")


def manifest_manifest(path):
    return newest(path / "__manifest/_versions", "*.manifest")


def branch_data(path):
    return newest(location_of(path) / "tree/feat/data", "*.lance")


FILES = [
    (data_file, PERSON),
    (deletion_file, PERSON),
    (table_manifest, PERSON),
    (index_file, PERSON),
    (manifest_data, "__manifest"),
    (manifest_manifest, "__manifest"),
    (branch_data, PERSON),
]
every_file = pytest.mark.parametrize(
    ("find", "table"), FILES, ids=[find.__name__ for find, _ in FILES]
)


@every_file
@pytest.mark.parametrize("position", [0.05, 0.5, 0.97])
def test_a_flipped_byte_is_found_and_named(find, table, position, path):
    file = find(path)
    flip(file, position)
    report = verify_graph(path)
    (problem,) = [p for p in report.problems if p.code is ProblemCode.CHECKSUM_MISMATCH]
    assert (problem.file, problem.table) == (named(path, file), table)
    assert problem.hint
    assert not report.is_sound
    # A damaged file of deletions may end the process inside Lance: verify does not let it read one.
    if find is not deletion_file:
        say_it_in_our_words(path)


@every_file
def test_a_truncated_file_is_found_and_named(find, table, path):
    file = find(path)
    cut(file)
    (problem,) = problems(path, ProblemCode.CHECKSUM_MISMATCH)
    assert (problem.file, problem.table) == (named(path, file), table)
    say_it_in_our_words(path)


@every_file
def test_a_file_that_is_gone_is_found_and_named(find, table, path):
    file = find(path)
    file.unlink()
    report = verify_graph(path)
    if "/_versions/" in str(file):
        # Without the file that names it a version never was: what is missing shows elsewhere.
        assert not report.is_sound or report.unnamed
    else:
        missing = [p for p in report.problems if p.code is ProblemCode.FILE_MISSING]
        assert (named(path, file), table) in {(p.file, p.table) for p in missing}
        assert not report.is_sound
    say_it_in_our_words(path)


def test_a_manifest_of_a_table_that_is_gone_leaves_a_pin_that_does_not_open(path):
    table_manifest(path).unlink()
    actual = {p.code for p in verify_graph(path).problems if p.table == PERSON}
    assert ProblemCode.TABLE_UNREADABLE in actual


def test_a_graph_whose_manifest_is_cut_does_not_open_but_is_verified(path):
    cut(manifest_manifest(path))
    for mode in ("r", "rw"):
        with pytest.raises(OmniGraphError) as caught:
            Graph.open(path, mode)
        Ending(caught.value).check_words()
        assert caught.value.hint
    report = verify_graph(path)
    actual = {problem.code: problem for problem in report.problems}
    assert actual[ProblemCode.MANIFEST_UNREADABLE].hint == "restore the graph from a backup"
    assert ProblemCode.CHECKSUM_MISMATCH in actual


def test_a_copy_from_before_the_damage_is_sound_again(path, tmp_path):
    """What a backup restores: the same files."""
    shutil.copytree(path, tmp_path / "kept")
    flip(data_file(path))
    assert not verify_graph(path).is_sound
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "kept", path)
    assert verify_graph(path).problems == ()


# -- damage that a command repairs ----------------------------------------------------------------


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_a_damaged_index_is_built_anew(damage, path):
    damage(index_file(path))
    with Graph.open(path) as graph:
        report = graph.maintenance.verify()
        hints = {problem.hint for problem in report.problems if problem.table == PERSON}
        (hint,) = {item for item in hints if "indexes.rebuild" in item}
        column = hint.split("'")[3]
        graph.indexes.rebuild(PERSON, column)
        after = graph.maintenance.verify(checksums=False)
        assert {p.branch for p in after.problems} <= {"feat"}
        assert graph.query(AGED, params={"a": 7}).rows() == [{"p.name": "n007"}]
        assert len(graph.query(ALL).rows()) == 199


def test_a_garbage_sidecar_is_named_and_keeps_only_writers_out(path):
    sidecar = path / "__recovery/01H0000000000000000000GARB.json"
    sidecar.parent.mkdir(exist_ok=True)
    sidecar.write_bytes(b"\x00garbage\xff")
    (problem,) = verify_graph(path).problems
    assert (problem.code, problem.file) == (ProblemCode.SIDECAR_DAMAGED, named(path, sidecar))
    assert "remove it" in problem.hint
    with pytest.raises(StorageCorrupt) as caught:
        Graph.open(path)
    assert caught.value.hint
    with Graph.open(path, "r") as graph:
        assert len(graph.query(ALL).rows()) == 199
    # Nothing drifted, so that no table has changes which are not published.
    sidecar.unlink()
    assert verify_graph(path).problems == ()
    Graph.open(path).close()


def test_a_directory_of_a_branch_that_is_not_there_is_named(path):
    home = location_of(path)
    copy = home / "tree/feat"
    shutil.copytree(copy, home / "tree/ghost")
    shutil.copytree(path / "__manifest/tree/feat", path / "__manifest/tree/ghost")
    report = verify_graph(path)
    actual = {(p.code, p.file, p.weight) for p in report.problems}
    assert actual == {
        (ProblemCode.ORPHAN_BRANCH, "__manifest/tree/ghost", Weight.WARNING),
        (ProblemCode.ORPHAN_FORK, named(path, home / "tree/ghost"), Weight.WARNING),
    }
    assert report.is_sound
    with Graph.open(path) as graph:
        assert graph.branches.list() == ["main", "feat"]
        # The next branch of that name begins anew, and clears what was in its way.
        graph.branches.create("ghost")
        graph.load([{"type": "Person", "data": {"name": "boo"}}], branch="ghost")
    assert verify_graph(path).problems == ()


def test_a_reference_without_its_branch_is_named(path):
    shutil.rmtree(path / "__manifest/tree/feat")
    report = verify_graph(path)
    assert {p.branch for p in report.problems if p.code is ProblemCode.MANIFEST_UNREADABLE} == {
        "feat"
    }
    say_it_in_our_words(path)


def test_a_garbage_reference_is_named(path):
    reference = path / "__manifest/_refs/branches/feat.json"
    reference.write_text("garbage")
    actual = {p.code: p for p in verify_graph(path).problems}
    assert actual[ProblemCode.BRANCH_REFERENCE_DAMAGED].file == named(path, reference)
    say_it_in_our_words(path)


def test_an_old_version_that_becomes_unreadable_during_a_verify_is_reported(path):
    """Its bytes were right when they were compared: the references of the version are missing."""
    old = min((location_of(path) / "_versions").glob("*.manifest"), key=lambda f: f.stat().st_mtime)

    def damage(progress):
        if progress.phase == "files" and progress.done == progress.total:
            old.write_bytes(b"garbage")

    report = verify_graph(path, on_progress=damage)
    (problem,) = [p for p in report.problems if p.code is ProblemCode.HISTORY_UNREADABLE]
    assert (problem.table, problem.branch, problem.weight) == (PERSON, "main", Weight.ERROR)
    assert "a version of 'node:Person' cannot be read" in problem.message
    assert "cleanup removes it if it is an old version" in problem.hint
    # Every file of the table may be needed, so none counts as orphaned.
    assert report.unnamed == 0


def test_versions_on_other_branches_are_read_beside_a_garbage_reference_of_a_table(path):
    reference = location_of(path) / "_refs/branches/feat.json"
    reference.write_text("garbage")
    data_file(path).unlink()
    report = verify_graph(path)
    actual = {(p.code, p.table, p.branch) for p in report.problems}
    assert (ProblemCode.HISTORY_UNREADABLE, PERSON, "main") in actual
    assert (ProblemCode.FILE_MISSING, PERSON, None) in actual
    assert report.unnamed == 0


@pytest.mark.parametrize("damage", [flip, cut, lambda file: file.write_bytes(b"\xff")])
def test_a_garbage_record_of_checksums_is_told_as_what_it_is_and_goes_with_optimize(damage, path):
    record = newest(path / FOLDER)
    damage(record)
    report = verify_graph(path)
    (problem,) = report.problems
    assert (problem.code, problem.file) == (
        ProblemCode.CHECKSUM_RECORD_DAMAGED,
        named(path, record),
    )
    assert report.is_sound
    assert report.unverified > 0
    with Graph.open(path) as graph:
        graph.maintenance.optimize()
    assert verify_graph(path).problems == ()


def test_a_table_that_was_written_past_the_graph_is_repaired(path):
    table = lance.dataset(str(location_of(path)))
    table.optimize.compact_files(materialize_deletions_threshold=0.001)
    (problem,) = verify_graph(path).problems
    assert (problem.code, problem.table) == (ProblemCode.TABLE_DRIFTED, PERSON)
    with Graph.open(path) as graph:
        graph.maintenance.repair(confirm=True, force=True)
    assert verify_graph(path).problems == ()


def test_checks_go_on_beside_damage(path):
    """One table that cannot be read keeps nobody from finding what is wrong with another."""
    cut(table_manifest(path))
    flip(newest(location_of(path, "edge:Knows") / "data", "*.lance"))
    report = verify_graph(path)
    tables = {p.table for p in report.problems if p.code is ProblemCode.CHECKSUM_MISMATCH}
    assert tables == {PERSON, "edge:Knows"}
    assert report.checked == report.files
