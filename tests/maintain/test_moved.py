"""A graph whose directory was moved or copied reads and writes its own files, on every branch."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lance
import pytest

from omnigraph import Graph
from omnigraph.commit.relocation import misplaced
from omnigraph.errors import RecoveryRequired, StorageCorrupt
from omnigraph.storage.lance_format.addresses import GraphAddresses
from omnigraph.storage.lance_format.manifests import base_addresses, replace_addresses
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.tables.fragments import locate_table
from tests.fork_server import fork_context
from tests.maintain.copied_graphs import filled, people, story

pytestmark = pytest.mark.rotates(3)


@pytest.fixture
def original(tmp_path):
    """The place of a graph, and what can be read of it."""
    location = tmp_path / "original.omni"
    with filled(location) as graph:
        return location, story(graph)


def version_files(directory: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(directory): path.read_bytes() for path in directory.rglob("*.manifest")
    }


def test_a_moved_graph_is_the_same_graph(original, tmp_path):
    location, reported = original
    for name in ("a much longer name for the same graph.omni", "ü#%41 g"):
        moved = tmp_path / "else where" / name
        moved.parent.mkdir(exist_ok=True)
        location.rename(moved)
        for mode in ("r", "rw"):
            with Graph.open(moved, mode) as graph:
                assert story(graph) == reported
        location = moved
    with Graph.open(location) as graph:
        assert graph.maintenance.verify().problems == ()


def test_a_copy_does_not_read_the_original(original, tmp_path):
    location, reported = original
    copy = tmp_path / "copy.omni"
    shutil.copytree(location, copy)
    # Whatever is read there from now on is wrong.
    for path in location.rglob("data/*.lance"):
        path.write_bytes(b"spoilt")
    for mode in ("r", "rw"):
        with Graph.open(copy, mode) as graph:
            assert story(graph) == reported


def test_a_copy_and_its_original_go_separate_ways(original, tmp_path):
    location, reported = original
    copy = tmp_path / "copy.omni"
    shutil.copytree(location, copy)
    with Graph.open(copy) as graph:
        for branch in ("dev", "team/x", "same", "main"):
            graph.append(people("Niklaus"), branch=branch)
        graph.merge("team/x", "dev")
        graph.branches.create("new", from_branch="team/x")
        graph.maintenance.optimize("dev")
        graph.branches.delete("done")
        now = story(graph)
    with Graph.open(location) as graph:
        assert story(graph) == reported
    shutil.rmtree(location)
    for mode in ("r", "rw"):
        with Graph.open(copy, mode) as graph:
            assert story(graph) == now


def test_reading_only_changes_nothing(original, tmp_path):
    location, reported = original
    moved = tmp_path / "moved.omni"
    location.rename(moved)
    before = version_files(moved)
    with Graph.open(moved, "r") as graph:
        assert story(graph) == reported
    assert version_files(moved) == before


def test_other_processes_are_not_sent_to_the_original(original, tmp_path):
    location, _ = original
    moved = tmp_path / "moved.omni"
    location.rename(moved)
    for mode, is_right in (("r", False), ("rw", True)):
        with Graph.open(moved, mode) as graph:
            store = graph._handle.store
            table = store.table(store.manifest("dev").current().pins["node:Person"])
            if is_right:
                assert locate_table(store.datasets, table).uri.startswith(str(moved))
                continue
            with pytest.raises(RecoveryRequired) as caught:
                locate_table(store.datasets, table)
            assert "rw" in caught.value.hint


def test_a_reader_follows_a_writer_that_puts_it_right(original, tmp_path):
    location, _ = original
    moved = tmp_path / "moved.omni"
    location.rename(moved)
    with Graph.open(moved, "r") as reader:
        assert reader.snapshot("team/x").count("Person") == 4
        with Graph.open(moved) as writer:
            writer.append(people("Niklaus"), branch="team/x")
        assert reader.snapshot("team/x").count("Person") == 5
        assert reader.snapshot("dev").count("Person") == 3


def test_all_versions_are_put_right_once_and_only_what_they_name_changes(original, tmp_path):
    location, _ = original
    moved = tmp_path / "moved.omni"
    location.rename(moved)
    before = version_files(moved)
    with Graph.open(moved) as graph:
        assert misplaced(graph._handle.store) == 0
    after = version_files(moved)
    old, new = str(location), str(moved)
    assert before.keys() == after.keys()
    for path, raw in after.items():
        named = base_addresses(raw, str(path))
        assert all(one.startswith(f"{new}/") for one in named)
        back = replace_addresses(raw, str(path), lambda one: one.replace(new, old))
        assert back == before[path]
        assert (raw != before[path]) == bool(named)
    stamps = {path: os.stat(moved / path).st_mtime_ns for path in after}
    with Graph.open(moved):
        pass
    assert {path: os.stat(moved / path).st_mtime_ns for path in after} == stamps


def test_another_name_of_the_same_place_is_no_move(original, tmp_path, monkeypatch):
    location, _ = original
    before = version_files(location)
    (tmp_path / "link.omni").symlink_to(location)
    (tmp_path / "above").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    forms = [
        location.name,
        f"{location}/",
        f"file://{location}",
        str(tmp_path / "link.omni"),
        str(tmp_path / "above" / location.name),
    ]
    for number, address in enumerate(forms):
        with Graph.open(address) as graph:
            graph.append(people(f"P{number}"), branch="dev")
    with Graph.open(location) as graph:
        assert graph.snapshot("dev").count("Person") == 3 + len(forms)
    after = version_files(location)
    assert {path: after[path] for path in before} == before


def test_a_name_that_is_gone_is_a_move(original, tmp_path):
    location, _ = original
    link = tmp_path / "link.omni"
    link.symlink_to(location)
    with Graph.open(link) as graph:
        graph.branches.create("linked")
        graph.append(people("Niklaus"), branch="linked")
        reported = story(graph)
    link.unlink()
    for mode in ("r", "rw"):
        with Graph.open(location, mode) as graph:
            assert story(graph) == reported


def test_what_a_crash_interrupted_is_gone_on_with(original, tmp_path):
    location, reported = original
    moved = tmp_path / "moved.omni"
    location.rename(moved)
    before = version_files(moved)
    with Graph.open(moved):
        pass
    changed = sorted(p for p, raw in version_files(moved).items() if raw != before[p])
    last = moved / "__manifest/tree/team/x/_versions"
    # The file that tells whether there is something to do is the last: the others may be anything.
    for number, path in enumerate(changed):
        if number % 2:
            (moved / path).write_bytes(before[path])
    reported_by = max(last.iterdir(), key=lambda path: (path.suffix == ".manifest", path.name))
    reported_by.write_bytes(before[reported_by.relative_to(moved)])
    with Graph.open(moved) as graph:
        assert misplaced(graph._handle.store) == 0
        assert story(graph) == reported


def test_repair_finds_and_settles_what_opening_did_not_see(original, tmp_path):
    location, reported = original
    moved = tmp_path / "moved.omni"
    location.rename(moved)
    old = version_files(moved)
    with Graph.open(moved) as graph:
        changed = [p for p, raw in version_files(moved).items() if raw != old[p]]
        for path in changed:
            if path.parts[0] == "nodes":
                (moved / path).write_bytes(old[path])
        many = sum(path.parts[0] == "nodes" for path in changed)
        assert graph.maintenance.repair().misplaced == many
        assert misplaced(graph._handle.store) == many
        assert graph.maintenance.repair(confirm=True).misplaced == many
        assert graph.maintenance.repair().misplaced == 0
        assert story(graph) == reported


def _open(directory, ready, go, results):
    ready.put(True)
    go.wait()
    with Graph.open(directory) as graph:
        graph.append(people(f"P{os.getpid()}"), branch="dev")
        results.put(graph.snapshot("team/x").count("Person"))


def test_two_processes_may_open_a_moved_graph_at_once(original, tmp_path):
    location, _ = original
    moved = tmp_path / "moved.omni"
    location.rename(moved)
    context = fork_context()
    ready, results, go = context.Queue(), context.Queue(), context.Event()
    processes = [context.Process(target=_open, args=(moved, ready, go, results)) for _ in range(2)]
    for process in processes:
        process.start()
    for _ in processes:
        ready.get(timeout=60)
    go.set()
    assert [results.get(timeout=60) for _ in processes] == [4, 4]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    with Graph.open(moved) as graph:
        assert misplaced(graph._handle.store) == 0
        assert graph.snapshot("dev").count("Person") == 5


def test_a_graph_without_branches_is_not_looked_at(tmp_path):
    with Graph.init(tmp_path / "g.omni", "node P { name: String @key }", durability="os"):
        pass
    (tmp_path / "g.omni").rename(tmp_path / "h.omni")
    with Graph.open(tmp_path / "h.omni") as graph:
        before = graph._handle.store.objects.traffic.reads
        graph.snapshot().count("P")
        assert graph._handle.store.objects.traffic.reads - before < 10


def test_addresses_are_taken_apart_by_the_table_they_belong_to():
    home = GraphAddresses(parse_root("/new/g"))
    for address, location, expected in [
        ("/old/nodes/ab", "nodes/ab", "/new/g/nodes/ab"),
        ("file:///old/nodes/ab", "nodes/ab", "/new/g/nodes/ab"),
        ("/old/nodes/ab/tree/a/b", "nodes/ab", "/new/g/nodes/ab/tree/a/b"),
        ("/old/nodes/g/nodes/ab", "nodes/cd", "/new/g/nodes/ab"),
        ("s3://bucket/p/__manifest/tree/x", "__manifest", "/new/g/__manifest/tree/x"),
        ("/new/g/nodes/ab", "nodes/ab", "/new/g/nodes/ab"),
        ("/new/g/x/../nodes/ab", "nodes/ab", "/new/g/nodes/ab"),
    ]:
        assert home.localize(address, location) == expected
    for address in ("memory://nodes/ab", "/etc", "/new/g/nodes/ab/tree/a~b", "nodes"):
        with pytest.raises(StorageCorrupt):
            home.localize(address, "nodes/ab")
    away = GraphAddresses(parse_root("s3://bucket/copy"))
    assert away.localize("s3://bucket/old/edges/1", "edges/1") == "s3://bucket/copy/edges/1"
    assert away.localize("s3://bucket/copy/edges/1", "edges/1") == "s3://bucket/copy/edges/1"


@pytest.mark.parametrize("raw", [b"", b"LANC", b"\0" * 40, b"\xff" * 12 + b"LANC"])
def test_what_is_no_version_file_is_refused_by_its_name(raw):
    with pytest.raises(StorageCorrupt) as caught:
        base_addresses(raw, "nodes/ab/_versions/1.manifest")
    assert "nodes/ab/_versions/1.manifest" in caught.value.message


def test_other_programs_find_the_branches_of_a_moved_graph_once_it_was_opened_to_write(
    original, tmp_path
):
    """As the pages say: what is written in the files counts for them."""
    location, _ = original
    table = next((location / "nodes").iterdir()).name
    rows = lance.dataset(location / f"nodes/{table}/tree/dev").count_rows(filter="name != ''")
    moved = tmp_path / "moved.omni"
    location.rename(moved)
    branch = moved / f"nodes/{table}/tree/dev"
    Graph.open(moved, "r").close()
    with pytest.raises((OSError, ValueError), match="Not found"):
        lance.dataset(branch).to_table()
    assert lance.dataset(moved / f"nodes/{table}").to_table().num_rows
    Graph.open(moved).close()
    assert lance.dataset(branch).to_table().num_rows == rows
