"""Backups and restores on a disk of which a call fails: the same call goes on, or it was done."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

import pytest

from omnigraph import Graph, backup_points, clone, restore
from omnigraph.errors import StorageUnavailable, StorageUnknown
from omnigraph.maintain.backup import restore as backup_restore
from omnigraph.storage.objects import local as objects

SCHEMA = "node Person { name: String @key }\n"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.load([{"type": "Person", "data": {"name": "Ada"}}])
        yield graph


@contextmanager
def failing(module, name, times, matches=lambda *args: True):
    """A function of a module that fails a few times, as a disk does."""
    original, left = getattr(module, name), [times]

    def call(*args, **options):
        if left[0] and matches(*args):
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return original(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, call)
        yield
    assert left == [0]


@pytest.mark.parametrize("how", ["restore", "clone"])
def test_a_new_graph_that_could_not_be_moved_to_its_place_is_gone_on_with(graph, tmp_path, how):
    graph.maintenance.backup(tmp_path / "backup")
    target = tmp_path / "new.omni"

    def copy():
        if how == "restore":
            return restore(tmp_path / "backup", target)
        return clone(tmp_path / "g.omni", target)

    def is_the_move(_, to):
        return to == str(target)

    with failing(backup_restore.os, "rename", 1, is_the_move), pytest.raises(StorageUnavailable):
        copy()
    assert not target.exists()
    copy()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "g.omni", "new.omni"]
    with Graph.open(target, "r") as actual:
        assert actual.snapshot().count("Person") == 1
    assert not list((target / "__recovery").glob("*"))


def test_a_new_graph_whose_place_is_synced_at_the_second_try_is_done(graph, tmp_path):
    graph.maintenance.backup(tmp_path / "backup")
    with failing(backup_restore, "sync_directory", 1):
        restore(tmp_path / "backup", tmp_path / "new.omni")


def test_a_new_graph_whose_place_cannot_be_synced_may_be_there(graph, tmp_path):
    graph.maintenance.backup(tmp_path / "backup")
    with failing(backup_restore, "sync_directory", 2), pytest.raises(StorageUnknown):
        restore(tmp_path / "backup", tmp_path / "new.omni")
    Graph.open(tmp_path / "new.omni", "r").close()


@pytest.mark.parametrize("times", [1, 2])
def test_a_point_is_on_the_disk_or_is_none(tmp_path, times):
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.maintenance.backup(tmp_path / "backup")
        graph.load([{"type": "Person", "data": {"name": "Ada"}}])

        def is_of_points(path):
            return str(path).endswith("/points")

        with failing(objects, "sync_directory", times, is_of_points):
            if times == 1:
                graph.maintenance.backup(tmp_path / "backup")
            else:
                with pytest.raises(StorageUnavailable):
                    graph.maintenance.backup(tmp_path / "backup")
    assert len(backup_points(tmp_path / "backup")) == (2 if times == 1 else 1)
