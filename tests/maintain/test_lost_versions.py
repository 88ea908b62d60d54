"""Version files that are lost: verify names them, and takes no removed version for a lost one."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import lance
import pytest

from omnigraph import Graph, clone, restore, verify_graph
from omnigraph.commit.failpoints import Failpoint, hooked
from omnigraph.maintain.verify import ProblemCode, Weight
from omnigraph.storage.checksums import FOLDER as CHECKSUMS
from omnigraph.storage.checksums import fold_checksums
from omnigraph.storage.objects.paths import version_file
from omnigraph.storage.read_back import set_aside
from omnigraph.storage.removed_versions import PATH
from omnigraph.storage.tables.datasets import HINT
from omnigraph.storage.tables.types import TableRef
from tests.commit.deaths import Died

pytestmark = pytest.mark.rotates(6)

SCHEMA = """\
node Person { name: String @key  age: I32? @index }
node Place { name: String @key }
edge Knows: Person -> Person
"""
PERSON, MANIFEST = "node:Person", "__manifest"


def write(graph: Graph, *names: str, branch: str = "main") -> None:
    for name in names:
        graph.load([{"type": "Person", "data": {"name": name}}], branch=branch)


def person(graph: Graph, branch: str | None = None) -> str:
    """The directory of the copy of a table that a branch shows."""
    return graph._handle.store.manifest(branch).current().pins[PERSON].ref.path


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path, dict[str, str]]:
    """Versions of everything, a branch with a copy of its own, a tag in the middle."""
    location = tmp_path_factory.mktemp("made") / "g.omni"
    with Graph.init(location, SCHEMA, durability="os") as graph:
        write(graph, "a", "b", "c")
        graph.tags.create("middle")
        write(graph, "d")
        graph.branches.create("feat")
        write(graph, "e", "f")
        write(graph, "g", "h", "i", branch="feat")
        folders = {
            "main": MANIFEST,
            "branch": f"{MANIFEST}/tree/feat",
            "table": person(graph),
            "fork": person(graph, "feat"),
        }
    kept = location.with_name("kept")
    shutil.copytree(location, kept)
    return location, kept, folders


@pytest.fixture
def path(made) -> Path:
    """The graph as it was made, at its place: a branch knows where it was made."""
    location, kept, _ = made
    shutil.rmtree(location)
    shutil.copytree(kept, location)
    return location


@pytest.fixture
def folders(made) -> dict[str, str]:
    return made[2]


def versions(path: Path, folder: str) -> list[int]:
    names = (path / folder / "_versions").glob("*.manifest")
    return sorted(2**64 - 1 - int(name.stem) for name in names)


def lose(path: Path, folder: str, version: int) -> str:
    """Remove the file of a version; gives its path as verify names it."""
    file = f"{folder}/{version_file(version)}"
    (path / file).unlink()
    return file


def missing(path: Path, **options) -> list[str | None]:
    actual = verify_graph(path, **options).problems
    return [item.file for item in actual if item.code is ProblemCode.VERSION_MISSING]


def errors(path: Path) -> list[str]:
    return [
        problem.message for problem in verify_graph(path).problems if problem.weight is Weight.ERROR
    ]


# -- lost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["main", "branch", "table", "fork"])
def test_a_lost_version_in_the_middle_is_named(path, folders, which):
    existing = versions(path, folders[which])
    file = lose(path, folders[which], existing[len(existing) // 2])
    assert missing(path) == [file]


@pytest.mark.parametrize("which", ["main", "branch", "table", "fork"])
def test_a_lost_newest_version_is_named_and_is_no_drift(path, folders, which):
    file = lose(path, folders[which], versions(path, folders[which])[-1])
    report = verify_graph(path)
    actual = [item for item in report.problems if item.code is ProblemCode.VERSION_MISSING]
    assert [item.file for item in actual] == [file]
    assert actual[0].hint == "restore the graph from a backup"
    assert ProblemCode.TABLE_DRIFTED not in {item.code for item in report.problems}
    assert ProblemCode.ORPHAN_FORK not in {item.code for item in report.problems}


@pytest.mark.parametrize("which", ["main", "branch"])
def test_the_newest_is_known_without_the_hint_of_lance(path, folders, which):
    for hint in path.rglob(HINT):
        hint.unlink()
    assert errors(path) == []
    file = lose(path, folders[which], versions(path, folders[which])[-1])
    assert missing(path) == [file]


@pytest.mark.parametrize("which", ["main", "branch"])
def test_the_oldest_is_known_by_what_it_left(path, folders, which):
    file = lose(path, folders[which], versions(path, folders[which])[0])
    assert missing(path) == [file]


def test_versions_are_looked_for_without_checksums_too(path, folders):
    existing = versions(path, MANIFEST)
    files = [lose(path, MANIFEST, existing[3]), lose(path, MANIFEST, existing[-1])]
    assert sorted(missing(path, checksums=False)) == sorted(files)


def test_several_lost_versions_in_a_row_are_one_problem(path, folders):
    existing = versions(path, MANIFEST)
    lose(path, MANIFEST, existing[2])
    file = lose(path, MANIFEST, existing[3])
    assert missing(path) == [file]
    problem = next(p for p in verify_graph(path).problems if p.file == file)
    assert (
        f"versions {existing[2]} to {existing[3]} of '{MANIFEST}' on branch 'main'"
        in problem.message
    )
    assert (problem.table, problem.branch) == (MANIFEST, "main")


def test_folded_checksums_still_know_the_newest(path, folders):
    for hint in path.rglob(HINT):
        hint.unlink()
    file = lose(path, MANIFEST, versions(path, MANIFEST)[-1])
    with Graph.open(path, "r") as graph:
        fold_checksums(graph._handle.store.objects)
    assert missing(path) == [file]


def test_a_branch_of_its_own_is_looked_at_alone(path, folders):
    existing = versions(path, folders["branch"])
    file = lose(path, folders["branch"], existing[len(existing) // 2])
    assert missing(path, branch="main") == []
    assert missing(path, branch="feat") == [file]


# -- removed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 3])
def test_what_a_cleanup_removed_is_not_missing(path, folders, keep):
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.cleanup(keep, min_age=0)
        assert len(versions(path, MANIFEST)) < versions(path, MANIFEST)[-1]
        write(graph, "j", "k", "l")
        graph.maintenance.cleanup(keep, min_age=0)
        assert graph.snapshot(tag="middle").count("Person") == 3
    assert errors(path) == []


def test_what_is_lost_after_a_cleanup_is_named(path, folders):
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.cleanup(1, min_age=0)
        write(graph, "j", "k", "l")
    assert errors(path) == []
    files = [
        lose(path, folder, versions(path, folder)[-2]) for folder in (MANIFEST, person_of(path))
    ]
    assert sorted(missing(path)) == sorted(files)


def person_of(path: Path) -> str:
    with Graph.open(path, "r") as graph:
        return person(graph)


def test_what_is_lost_right_above_the_removed_is_named(path, folders):
    with Graph.open(path, durability="os") as graph:
        graph.tags.delete("middle")
        graph.branches.delete("feat")
        graph.maintenance.cleanup(3, min_age=0)
    file = lose(path, folders["table"], versions(path, folders["table"])[0])
    assert missing(path) == [file]


def test_a_lost_version_stays_lost_when_a_cleanup_follows(path, folders):
    existing = versions(path, folders["table"])
    file = lose(path, folders["table"], existing[-2])
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.cleanup(3, min_age=0)
    assert missing(path) == [file]


def test_a_hard_drop_is_no_loss(path):
    with Graph.open(path, durability="os") as graph:
        graph.branches.delete("feat")
        graph.tags.delete("middle")
        graph.schema.apply(SCHEMA.replace("  age: I32? @index", ""), allow_data_loss=True)
        assert errors(path) == []
        graph.schema.apply(
            SCHEMA.replace("  age: I32? @index", "").replace(
                "node Place { name: String @key }", ""
            ),
            allow_data_loss=True,
        )
    assert errors(path) == []


def test_a_branch_that_was_made_again_owes_nothing_of_its_former_life(path):
    with Graph.open(path, durability="os") as graph:
        graph.branches.delete("feat")
        graph.branches.create("feat")
        write(graph, "m", branch="feat")
    assert errors(path) == []


def test_what_was_removed_from_a_former_life_is_asked_for_in_the_next(path, folders):
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.cleanup(1, min_age=0)
        graph.branches.delete("feat")
        graph.branches.create("feat")
        write(graph, "m", "n", "o", "p", branch="feat")
    file = lose(path, folders["branch"], versions(path, folders["branch"])[-2])
    assert missing(path) == [file]


@pytest.mark.parametrize(
    "point", [Failpoint.REMOVAL_AFTER_INTENT, Failpoint.REMOVAL_AFTER_VERSIONS]
)
@pytest.mark.parametrize("crossing", [1, 3])
def test_a_cleanup_that_stopped_half_way_is_unfinished_and_nothing_worse(
    path, point, crossing, monkeypatch
):
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "1")
    waiting = [None] * crossing

    def die(passed: Failpoint) -> None:
        if passed is point:
            waiting.pop()
            if not waiting:
                raise Died

    graph = Graph.open(path, durability="os")
    with pytest.raises(Died), hooked(die):
        graph.maintenance.cleanup(1, min_age=0)
    report = verify_graph(path)
    assert [problem.code for problem in report.problems] == [ProblemCode.CLEANUP_UNFINISHED]
    assert report.is_sound
    assert "read-write" in (report.problems[0].hint or "")
    Graph.open(path).close()
    assert verify_graph(path).problems == ()


def test_a_version_that_was_set_aside_is_not_missing(path):
    """Its writer died before it mended the hint of Lance."""
    newest = versions(path, MANIFEST)[-1]
    hint = path / MANIFEST / "_versions" / HINT
    with Graph.open(path, "r") as graph:
        (path / MANIFEST / version_file(newest + 1)).write_bytes(b"")
        set_aside(graph._handle.store.datasets, TableRef(MANIFEST), newest + 1)
    hint.write_text(f'{{"version":{newest + 1}}}')
    assert errors(path) == []


def test_the_lock_of_an_interrupted_schema_apply_is_no_damage(path):
    """It comes back under its name, and whoever died did not record what it is."""
    graph = Graph.open(path, durability="os")
    graph.branches.delete("feat")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  size: I32?"))

    def die(passed: Failpoint) -> None:
        if passed is Failpoint.SCHEMA_BEFORE_STAGING:
            raise Died

    with pytest.raises(Died), hooked(die):
        graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  size: I32?  mood: I32?"))
    assert errors(path) == []
    Graph.open(path).close()
    assert errors(path) == []


# -- copies ---------------------------------------------------------------------------------------


def test_backups_restores_and_clones_know_what_was_removed(path, folders, tmp_path):
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.cleanup(2, min_age=0)
        graph.maintenance.backup(tmp_path / "backup")
        clone(path, tmp_path / "clone")
    restore(tmp_path / "backup", tmp_path / "restored")
    for copy in (tmp_path / "restored", tmp_path / "clone"):
        assert (copy / PATH).exists()
        assert errors(copy) == []
        with Graph.open(copy, durability="os") as graph:
            write(graph, "j", "k", "l")
        assert errors(copy) == []
        file = lose(copy, MANIFEST, versions(copy, MANIFEST)[-2])
        assert missing(copy) == [file]


def test_a_moved_graph_is_sound(path, tmp_path):
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.cleanup(2, min_age=0)
    moved = tmp_path / "moved.omni"
    shutil.copytree(path, moved)
    assert errors(moved) == []
    with Graph.open(moved, durability="os") as graph:
        write(graph, "j", branch="feat")
        graph.maintenance.cleanup(1, min_age=0)
    assert errors(moved) == []


# -- other programs -------------------------------------------------------------------------------


def test_versions_that_another_program_removed_are_not_missing(path, folders):
    for folder in (MANIFEST, folders["table"]):
        dataset = lance.dataset(str(path / folder))
        dataset.cleanup_old_versions(older_than=timedelta(0), retain_versions=2)
    assert missing(path) == []


def test_gaps_of_a_graph_without_a_record_are_not_judged_until_a_cleanup(path, folders):
    (path / PATH).unlink()
    table = str(path / folders["table"])
    lance.dataset(table).cleanup_old_versions(versions=[3], error_if_tagged_old_versions=False)
    assert missing(path) == []
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.cleanup(100)
    assert missing(path) == []
    file = lose(path, folders["main"], versions(path, folders["main"])[4])
    shutil.rmtree(path / CHECKSUMS)
    assert missing(path) == [file]


def test_a_loss_in_a_graph_without_a_record_is_known_by_the_transaction(path, folders):
    (path / PATH).unlink()
    file = lose(path, MANIFEST, versions(path, MANIFEST)[4])
    assert missing(path) == [file]


@pytest.mark.parametrize("damage", [b"{}", b"\xff\xfe"])
def test_a_damaged_record_is_named_and_written_anew_by_cleanup(path, damage):
    (path / PATH).write_bytes(damage)
    actual = verify_graph(path)
    assert [problem.code for problem in actual.problems] == [ProblemCode.HISTORY_RECORD_DAMAGED]
    assert actual.is_sound
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.cleanup(100)
    assert verify_graph(path).problems == ()
