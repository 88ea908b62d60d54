"""Symbolic links below a graph or a backup lead nowhere, whatever is done."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from omnigraph import Graph, backup_points, clone, prune_backup, restore, verify_graph
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError, StorageCorrupt
from omnigraph.maintain.verify import ProblemCode
from omnigraph.storage.objects.paths import parse_root
from tests.maintain.outside import Outside
from tests.maintain.test_hostile_paths import files, made, reopened, row, top
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(3)

__all__ = ["made", "top"]


def moved_away(path: Path, to: Path) -> None:
    """Put a directory or file elsewhere and a link in its place, as somebody with two disks may."""
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(path, to)
    path.symlink_to(to)


def table_of(top: Path) -> Path:
    return next((top / "g.omni/nodes").iterdir())


LINKED_IN_GRAPH = {
    "nodes": lambda top: top / "g.omni/nodes",
    "table": table_of,
    "data": lambda top: table_of(top) / "data",
    "versions": lambda top: table_of(top) / "_versions",
    "transactions": lambda top: table_of(top) / "_transactions",
    "tree": lambda top: table_of(top) / "tree",
    "branch": lambda top: table_of(top) / "tree/dev",
    "data of branch": lambda top: table_of(top) / "tree/dev/data",
    "data file": lambda top: next((table_of(top) / "data").iterdir()),
    "manifest": lambda top: top / "g.omni/__manifest",
    "branches of manifest": lambda top: top / "g.omni/__manifest/tree",
    "references": lambda top: top / "g.omni/__manifest/_refs",
}


@pytest.mark.parametrize("what", rotating(tuple(LINKED_IN_GRAPH), 4, "links in graphs"))
def test_a_link_inside_a_graph_is_refused(top, what):
    """What was moved lies outside, so nobody may use it: neither copies nor removals."""
    moved_away(LINKED_IN_GRAPH[what](top), top / "outside/moved")
    outside = Outside(top)
    before = files(top / "outside")
    outside.touched()
    for work in (
        lambda graph: graph.maintenance.backup(top / "b2"),
        lambda graph: clone(top / "g.omni", top / "c.omni"),
    ):
        with pytest.raises(StorageCorrupt, match="symbolic link"), reopened(top) as graph:
            work(graph)
    # A file that is a link would be removed itself, and what it leads to would stay.
    if what not in ("manifest", "branches of manifest", "references", "nodes", "data file"):
        with reopened(top) as graph:
            report = graph.maintenance.cleanup(1, min_age=0)
            reported = [item.error for item in report.tables if item.error]
            reported += [item.reason for item in report.skipped]
            assert any("symbolic link" in text for text in reported)
    if what in ("tree", "branch", "data of branch", "branches of manifest"):
        location = "__manifest" if "manifest" in what else f"nodes/{table_of(top).name}"
        store = GraphStore(parse_root(str(top / "g.omni")))
        with pytest.raises(StorageCorrupt, match="symbolic link"):
            store.inline.delete_branch(location, "dev")
    codes = {item.code for item in verify_graph(top / "g.omni").problems}
    assert ProblemCode.LINK_REFUSED in codes
    assert not list((top / "outside").rglob("*.json.lock~"))
    assert files(top / "outside") == before
    assert not (top / "c.omni").exists()
    outside.close()


@pytest.mark.parametrize("what", ["__recovery", "__checksums", "__topology", "__history"])
def test_nothing_is_written_through_a_link(top, what):
    location = top / "g.omni" / what
    outside = Outside(top)
    if location.exists():
        shutil.rmtree(location)
    location.symlink_to(outside.folder)
    try:
        with reopened(top) as graph:
            graph.load(row("x"))
            graph.maintenance.cleanup(1, min_age=0)
            graph.maintenance.optimize()
    except StorageCorrupt:
        pass
    outside.must_be_untouched()
    outside.close()


LINKED_IN_BACKUP = ("files", "files/nodes", "objects", "points", "omnigraph-backup.json", "file")


@pytest.mark.parametrize("what", LINKED_IN_BACKUP)
def test_a_link_inside_a_backup_is_refused(top, what):
    path = top / "b" / what
    if what == "file":
        path = next(item for item in (top / "b/files").rglob("*.lance"))
    moved_away(path, top / "outside/moved")
    outside = Outside(top)
    for call in (
        lambda: restore(top / "b", top / "r.omni"),
        lambda: prune_backup(top / "b", keep=1),
        lambda: reopened(top).maintenance.backup(top / "b"),
    ):
        with pytest.raises(StorageCorrupt, match="symbolic link"):
            call()
    assert not (top / "r.omni").exists()
    outside.must_be_untouched()
    outside.close()


def test_the_place_of_a_new_graph_is_no_link(top):
    outside = Outside(top)
    (top / "empty").mkdir()
    for name, target in (
        ("r.omni", top / "empty"),
        ("r.omni", outside.folder),
        ("r.omni", top / "nowhere"),
        ("r.omni.incomplete", outside.folder),
        ("r.omni.incomplete", top / "nowhere"),
    ):
        (top / name).symlink_to(target)
        for call in (
            lambda: restore(top / "b", top / "r.omni"),
            lambda: clone(top / "g.omni", top / "r.omni"),
        ):
            with pytest.raises(InputError):
                call()
        assert (top / name).is_symlink()
        (top / name).unlink()
    assert os.listdir(top / "empty") == []
    assert not (top / "nowhere").exists()
    outside.must_be_untouched()
    outside.close()


def test_an_interrupted_restore_with_a_link_in_it_is_not_gone_on_with(top):
    outside = Outside(top)

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(top / "b", top / "r.omni", on_progress=stop)
    beside = top / "r.omni.incomplete"
    for name in ("nodes", "other"):
        shutil.rmtree(beside / name, ignore_errors=True)
        (beside / name).symlink_to(outside.folder)
        with pytest.raises(StorageCorrupt, match="symbolic link"):
            restore(top / "b", top / "r.omni")
        (beside / name).unlink()
    outside.must_be_untouched()
    outside.close()
    restore(top / "b", top / "r.omni")


def test_graphs_and_backups_may_be_reached_through_links(top):
    (top / "link").symlink_to(top)
    for name in ("g.omni", "b"):
        (top / f"to-{name}").symlink_to(top / name)
    with Graph.open(top / "to-g.omni", durability="os") as graph:
        graph.load(row("x"))
        graph.maintenance.backup(top / "to-b")
        graph.maintenance.cleanup(1, min_age=0)
        graph.branches.delete("dev")
        assert graph.maintenance.verify().problems == ()
    assert len(backup_points(top / "to-b")) == 3
    restore(top / "link/to-b", top / "link/r.omni")
    assert verify_graph(top / "r.omni").problems == ()
    clone(top / "link/r.omni", top / "link/c.omni")
    assert len(prune_backup(top / "link/b", keep=1).removed) == 2
