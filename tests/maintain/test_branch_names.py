"""Branches that are called like the directories of a table: nothing takes one for the other."""

from __future__ import annotations

import os
import shutil

import pytest

from omnigraph import Graph, restore
from omnigraph.maintain.backup.index import is_immutable_file
from omnigraph.storage.tables.types import split_file
from tests.maintain.copied_graphs import SCHEMA, people

pytestmark = pytest.mark.rotates(3)

NAMES = ("data", "team/data", "_indices/x", "x/_versions")


@pytest.fixture(params=NAMES)
def branch(request):
    return request.param


@pytest.fixture
def graph(tmp_path, branch):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.append(people("Ada"))
        graph.branches.create(branch)
        for name in ("Grace", "Barbara"):
            graph.append(people(name), branch=branch)
        yield graph


def names(graph, branch):
    return sorted(graph.snapshot(branch).read("Person", ["name"])["name"].to_pylist())


def test_cleanup_takes_nothing_of_the_branch(graph, branch):
    for dry_run in (True, False):
        report = graph.maintenance.cleanup(1, min_age=0, dry_run=dry_run)
        assert (report.files.count, report.forks.count) == (0, 0)
        assert [table.error for table in report.tables] == [None, None]
    with Graph.open(graph.uri) as again:
        assert names(again, branch) == ["Ada", "Barbara", "Grace"]
        assert again.maintenance.verify().problems == ()


def test_a_backup_after_the_branch_was_made_anew_holds_the_new_one(graph, branch, tmp_path):
    graph.maintenance.backup(tmp_path / "backup")
    graph.branches.delete(branch)
    graph.branches.create(branch)
    for name in ("Alan--", "Niklaus"):
        graph.append(people(name), branch=branch)
    graph.maintenance.backup(tmp_path / "backup")
    graph.close()
    shutil.rmtree(tmp_path / "g.omni")
    restore(tmp_path / "backup", tmp_path / "r.omni", durability="os")
    with Graph.open(tmp_path / "r.omni", durability="os") as restored:
        assert names(restored, branch) == ["Ada", "Alan--", "Niklaus"]
        assert restored.maintenance.verify().problems == ()
        assert restored.maintenance.repair().misplaced == 0


def test_a_moved_graph_has_the_branch(graph, branch, tmp_path):
    graph.close()
    os.rename(tmp_path / "g.omni", tmp_path / "moved.omni")
    with Graph.open(tmp_path / "moved.omni", durability="os") as moved:
        moved.append(people("Alan"), branch=branch)
        assert names(moved, branch) == ["Ada", "Alan", "Barbara", "Grace"]
        assert moved.maintenance.verify().problems == ()


def test_a_file_is_known_by_the_last_directory_of_a_table():
    assert split_file("data/a.lance") == ("", "data/a.lance")
    assert split_file("data/a/b.blob") == ("", "data/a/b.blob")
    assert split_file("tree/data/data/a.lance") == ("tree/data", "data/a.lance")
    assert split_file("tree/data") is None
    assert not is_immutable_file("nodes/1/tree/data/_versions/7.manifest")
    assert is_immutable_file("nodes/1/tree/_versions/data/a.lance")
