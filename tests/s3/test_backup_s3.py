"""Backups, restores and clones between local disk and S3, in every direction."""

from __future__ import annotations

import shutil

import pytest

from omnigraph import Graph, backup_points, clone, restore
from omnigraph.commit.relocation import misplaced
from omnigraph.errors import AlreadyInitialized, InputError, StorageCorrupt
from omnigraph.storage.checksums import sum_of
from omnigraph.storage.objects.copying import copy_file, write_file
from omnigraph.storage.objects.local import PIECE
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from tests.maintain.copied_graphs import filled, people, story

pytestmark = pytest.mark.rotates(3)


@pytest.mark.slow
def test_a_graph_goes_from_disk_to_s3_and_back(s3, s3_root, tmp_path):
    options = {"storage_options": s3.options}
    backup, there = s3_root("backup").uri, s3_root("there.omni").uri
    with filled(tmp_path / "g.omni") as graph:
        reported = story(graph)
        first = graph.maintenance.backup(backup, **options)
        assert first.copied_files == first.files
        assert graph.maintenance.backup(backup, **options).copied_files == 0
    shutil.rmtree(tmp_path / "g.omni")
    restore(backup, there, **options)
    with Graph.open(there, **options) as graph:
        assert story(graph) == reported
        assert graph.maintenance.verify().problems == ()
        graph.append(people("Niklaus"), branch="team/x")
        now = story(graph)
        graph.maintenance.backup(tmp_path / "b")
    with pytest.raises(AlreadyInitialized):
        restore(backup, there, **options)
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as graph:
        assert story(graph) == now
        assert graph.maintenance.verify().problems == ()
    clone(there, s3_root("other.omni").uri, **options)
    with Graph.open(s3_root("other.omni").uri, **options) as graph:
        assert story(graph) == now
        assert graph.maintenance.verify().problems == ()
        graph.merge("team/x", "dev")


def test_a_small_graph_on_s3_is_kept_restored_and_moved(s3, s3_root):
    options = {"storage_options": s3.options}
    backup, location = s3_root("b"), s3_root("g.omni")
    with Graph.init(location.uri, "node P { name: String @key }", **options) as graph:
        graph.load([{"type": "P", "data": {"name": "a"}}])
        graph.branches.create("dev")
        graph.load([{"type": "P", "data": {"name": "b"}}], branch="dev")
        graph.maintenance.backup(backup.uri, **options)
        shown = list(graph.snapshot("dev").export())
    # Restored, interrupted before its end: what makes it a graph is not there.
    reported: list[int] = []

    def stop(progress):
        reported.append(progress.done)
        if progress.done == progress.total - 3:
            raise KeyboardInterrupt

    target = s3_root("r.omni")
    with pytest.raises(KeyboardInterrupt):
        restore(backup.uri, target.uri, on_progress=stop, **options)
    restore(backup.uri, target.uri, **options)
    assert not [path for path in ObjectStore(target).sizes_below() if "unfinished" in path]
    # Copied by somebody else's tool: the branch names the place it came from.
    copy = s3_root("c.omni")
    for path in ObjectStore(target).sizes_below():
        copy_file(ObjectStore(target), path, ObjectStore(copy), path)
    for root, mode in ((target, "rw"), (copy, "r"), (copy, "rw")):
        with Graph.open(root.uri, mode, **options) as graph:
            assert list(graph.snapshot("dev").export()) == shown
            assert misplaced(graph._handle.store) == (2 * 2 if mode == "r" else 0)


def test_damage_and_foreign_files_on_s3_are_refused(s3, s3_root, tmp_path):
    options = {"storage_options": s3.options}
    backup = s3_root("b")
    with Graph.init(tmp_path / "g.omni", "node P { name: String @key }") as graph:
        graph.load([{"type": "P", "data": {"name": "a"}}])
        graph.maintenance.backup(backup.uri, **options)
    objects = ObjectStore(backup)
    write_file(ObjectStore(s3_root("taken")), "file", b"mine")
    with pytest.raises(InputError):
        restore(backup.uri, s3_root("taken").uri, **options)
    path = next(p for p in objects.sizes_below("files") if "/data/" in p)
    raw = bytearray(objects.read_bytes(path))
    raw[20] ^= 1
    write_file(objects, path, bytes(raw))
    with pytest.raises(StorageCorrupt) as caught:
        restore(backup.uri, tmp_path / "r.omni", **options)
    assert path in caught.value.message
    assert len(backup_points(backup.uri, **options)) == 1


@pytest.mark.parametrize("size", [0, 10, PIECE, 2 * PIECE + 7])
def test_files_of_any_size_arrive_whole(s3_root, tmp_path, size):
    here, there, back = (
        ObjectStore(parse_root(str(tmp_path / "here"))),
        ObjectStore(s3_root("there")),
        ObjectStore(parse_root(str(tmp_path / "back"))),
    )
    data = bytes(range(251)) * (size // 251) + bytes(size % 251)
    write_file(here, "a/b", data)
    assert copy_file(here, "a/b", there, "c/d") == sum_of(data)
    assert copy_file(there, "c/d", there, "e") == sum_of(data)
    assert copy_file(there, "e", back, "f/g") == sum_of(data)
    assert back.read_bytes("f/g") == data
    assert there.sizes_below() == {"c/d": size, "e": size}
