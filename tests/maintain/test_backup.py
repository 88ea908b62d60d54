"""Backups hold a graph at one moment, whole, and a restored graph is that graph."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import lance
import pytest

from omnigraph import Graph, backup_points, clone, restore
from omnigraph.commit.audit import AuditRow, RecoveryKind
from omnigraph.errors import (
    AlreadyInitialized,
    InputError,
    NotFound,
    OmniGraphError,
    ReadOnly,
    StorageCorrupt,
    StorageMissing,
)
from tests.fork_server import fork_context
from tests.maintain.copied_graphs import SCHEMA, filled, knows, people, story

pytestmark = pytest.mark.rotates(6)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A backup of a graph that is gone, and what could be read of it."""
    top = tmp_path_factory.mktemp("kept")
    with filled(top / "g.omni") as graph:
        reported = story(graph)
        graph.maintenance.backup(top / "backup")
    shutil.rmtree(top / "g.omni")
    return top / "backup", reported


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.append(people("Ada", "Grace"))
        yield graph


def files(location: Path) -> dict[str, int]:
    return {
        str(path.relative_to(location)): path.stat().st_mtime_ns
        for path in location.rglob("*")
        if path.is_file()
    }


def test_a_restored_graph_is_the_graph_that_was_kept(kept, tmp_path):
    backup, reported = kept
    report = restore(backup, tmp_path / "r.omni")
    assert report.point == backup_points(backup)[0].point
    with Graph.open(tmp_path / "r.omni") as graph:
        assert story(graph) == reported
        assert graph.maintenance.verify().problems == ()
        assert graph.maintenance.repair().misplaced == 0


def test_writing_goes_on_where_it_stopped(kept, tmp_path):
    backup, _ = kept
    restore(backup, tmp_path / "r.omni", durability="os")
    with Graph.open(tmp_path / "r.omni", durability="os") as graph:
        for branch in graph.branches.list():
            before = graph.snapshot(branch).count("Person")
            graph.append(people("Niklaus"), branch=branch)
            assert graph.snapshot(branch).count("Person") == before + 1
        graph.merge("team/x", "dev")
        graph.branches.create("new", from_branch="team/x")
        graph.branches.delete("done")
        assert graph.snapshot("dev").count("Person") == graph.snapshot("team/x").count("Person")
        assert graph.maintenance.verify().problems == ()


def test_what_was_asked_of_the_original_is_answered_the_same(tmp_path):
    with filled(tmp_path / "g.omni") as graph:
        graph.indexes.ensure("dev")
        first, last = graph.commits("dev")[-1].commit_id, graph.commits("dev")[0].commit_id
        graph.load(
            [{"type": "Person", "data": {"name": "Ada", "note": "a loom"}}],
            branch="dev",
            idempotency_key="once",
        )
        requested = _requested(graph, first, last)
        clone(tmp_path / "g.omni", tmp_path / "c.omni")
    shutil.rmtree(tmp_path / "g.omni")
    with Graph.open(tmp_path / "c.omni") as copy:
        assert _requested(copy, first, last) == requested
        again = copy.load(
            [{"type": "Person", "data": {"name": "Ada", "note": "a loom"}}],
            branch="dev",
            idempotency_key="once",
        )
        assert again.commit_id == requested["head"]


def _requested(graph, first, last):
    word = 'query w() { match { $p: Person search($p.note, "loom") } return { $p.name } }'
    friends = "query k() { match { $a: Person $a knows $b } return { $a.name, $b.name } }"
    page = graph.changes.poll(branch="dev")
    return {
        "words": graph.query(word, branch="dev").rows(),
        "friends": graph.query(friends, branch="dev").rows(),
        "head": graph.commits("dev")[0].commit_id,
        "diff": graph.snapshot().diff(graph.snapshot("dev")).to_arrow(),
        "feed": page,
        "ages": graph.query(
            "query a() { match { $p: Person { age: 1 } } return { $p.name } order { $p.name } }",
            branch="team/x",
        ).rows(),
    }


def test_a_further_backup_copies_only_what_is_new(graph, tmp_path):
    first = graph.maintenance.backup(tmp_path / "b")
    assert first.copied_files == first.files > 0
    reported = story(graph)
    before = files(tmp_path / "b")
    assert graph.maintenance.backup(tmp_path / "b").copied_files == 0
    graph.append(people("Alan"))
    third = graph.maintenance.backup(tmp_path / "b")
    assert 0 < third.copied_files < 10
    assert third.copied_bytes < third.bytes
    after = files(tmp_path / "b")
    assert {path: after.get(path) for path in before} == before
    points = [backup_point.point for backup_point in backup_points(tmp_path / "b")]
    assert points == sorted(points)
    assert points[0] == first.point
    restore(tmp_path / "b", tmp_path / "old.omni", point=points[0])
    restore(tmp_path / "b", tmp_path / "new.omni")
    with Graph.open(tmp_path / "old.omni") as old, Graph.open(tmp_path / "new.omni") as new:
        assert story(old) == reported
        assert story(new) == story(graph)


def test_a_branch_of_the_same_name_is_another_branch_in_every_point(graph, tmp_path):
    reported = []
    for name in ("Alan", "Tony"):
        graph.branches.create("dev")
        graph.append(people(name), branch="dev")
        reported.append(story(graph))
        graph.maintenance.backup(tmp_path / "b")
        graph.branches.delete("dev")
    for number, point in enumerate(backup_points(tmp_path / "b")):
        restore(tmp_path / "b", tmp_path / f"{number}.omni", point=point.point)
        with Graph.open(tmp_path / f"{number}.omni") as restored:
            assert story(restored) == reported[number]


def test_what_is_not_published_is_no_part_of_it(graph, tmp_path):
    graph.branches.create("dev")
    graph.append(people("Alan"), branch="dev")
    for branch in (None, "dev"):
        pin = graph._handle.store.manifest(branch).current().pin("node:Person")
        table = lance.dataset(graph._handle.store.root.path(pin.ref.path))
        table.delete("name = 'Ada'")
    table.create_branch("nobody")
    (tmp_path / "g.omni/__recovery").mkdir(exist_ok=True)
    (tmp_path / "g.omni/__recovery/01H.staging").write_text("{}")
    graph.maintenance.backup(tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as restored:
        for branch in ("main", "dev"):
            assert list(restored.snapshot(branch).export()) == list(graph.snapshot(branch).export())
            report = restored.maintenance.repair(branch)
            assert {item.lance_head_version - item.manifest_version for item in report.tables} == {
                0
            }
        restored.append(people("Tony"), branch="dev")
    assert not list((tmp_path / "r.omni").rglob("*nobody*"))
    assert not list((tmp_path / "r.omni").rglob("*.staging"))


def test_earlier_schemas_and_dropped_types_come_along(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.append(people("Ada", "Grace"))
        graph.schema.apply(SCHEMA + "node Place { name: String @key }")
        graph.load([{"type": "Place", "data": {"name": "Rome"}}])
        placed = graph.commits()[0].commit_id
        graph.schema.apply(SCHEMA)
        graph.schema.apply(SCHEMA + "node Place { name: String @key  size: I32? }")
        graph.load([{"type": "Place", "data": {"name": "Oslo", "size": 3}}])
        reported, then = story(graph), list(graph.snapshot(commit=placed).export())
        graph.maintenance.backup(tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as restored:
        assert story(restored) == reported
        assert list(restored.snapshot(commit=placed).export()) == then
        restored.schema.apply(SCHEMA)
        restored.append(people("Alan"))


def test_what_recoveries_did_comes_along(graph, tmp_path):
    done = AuditRow("c", RecoveryKind.ROLLED_FORWARD, None, "o", "Mutation", (), 1)
    assert graph._handle.store.audit.record_once(done)
    graph.maintenance.backup(tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as restored:
        assert restored._handle.store.audit.rows() == [done]


def test_a_hard_drop_leaves_a_graph_that_can_be_kept(graph, tmp_path):
    graph.schema.apply(SCHEMA + "node Place { name: String @key }")
    graph.load([{"type": "Place", "data": {"name": "Rome"}}])
    graph.schema.apply(SCHEMA, allow_data_loss=True)
    graph.maintenance.backup(tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as restored:
        assert list(restored.snapshot().export()) == list(graph.snapshot().export())
        restored.schema.apply(SCHEMA + "node Place { name: String @key }")
        restored.load([{"type": "Place", "data": {"name": "Oslo"}}])


def once(work):
    """A progress callback that does something at the first call."""
    done = []

    def notify(_):
        if not done:
            done.append(True)
            work()

    return notify


def test_commits_beside_a_backup_are_in_the_next_one(graph, tmp_path):
    reported = story(graph)
    graph.maintenance.backup(tmp_path / "b", on_progress=once(lambda: graph.append(people("Alan"))))
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as restored:
        assert story(restored) == reported
    assert graph.snapshot().count("Person") == 3


def test_a_schema_that_is_applied_beside_a_backup_is_in_the_next_one(graph, tmp_path):
    reported = story(graph)
    change = once(lambda: graph.schema.apply(SCHEMA + "node Place { name: String @key }"))
    graph.maintenance.backup(tmp_path / "b", on_progress=change)
    graph.maintenance.backup(tmp_path / "b")
    first, second = backup_points(tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "r.omni", point=first.point)
    restore(tmp_path / "b", tmp_path / "s.omni", point=second.point)
    with Graph.open(tmp_path / "r.omni") as restored:
        assert story(restored) == reported
        assert "Place" not in restored.catalog.node_types
    with Graph.open(tmp_path / "s.omni") as restored:
        assert "Place" in restored.catalog.node_types


def test_a_branch_that_goes_beside_a_backup_is_not_in_it(graph, tmp_path):
    graph.branches.create("dev")
    graph.append(people("Alan"), branch="dev")
    graph.maintenance.backup(tmp_path / "b", on_progress=once(lambda: graph.branches.delete("dev")))
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as restored:
        assert story(restored) == story(graph)
        assert restored.branches.list() == ["main"]


def test_a_branch_that_is_made_again_beside_a_backup_is_the_new_one(graph, tmp_path):
    graph.branches.create("dev")
    graph.append(people("Alan"), branch="dev")

    def again():
        graph.branches.delete("dev")
        graph.branches.create("dev")
        graph.append(people("Tony"), branch="dev")

    graph.maintenance.backup(tmp_path / "b", on_progress=once(again))
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as restored:
        assert story(restored) == story(graph)


def test_history_that_is_cleaned_up_beside_a_backup_is_not_in_it(graph, tmp_path):
    graph.branches.create("dev")
    for name in ("Alan", "Tony", "Edsger"):
        graph.append(people(name), branch="dev")
        graph.append(people(name))
    tidy = once(lambda: graph.maintenance.cleanup(keep_versions=1, min_age=0))
    graph.maintenance.backup(tmp_path / "b", on_progress=tidy)
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as restored:
        for branch in ("main", "dev"):
            assert list(restored.snapshot(branch).export()) == list(graph.snapshot(branch).export())
            assert restored.commits(branch) == graph.commits(branch)
        assert restored.maintenance.verify().problems == ()


def test_a_clone_goes_its_own_way(tmp_path):
    with filled(tmp_path / "g.omni") as graph:
        reported = story(graph)
        report = clone(tmp_path / "g.omni", tmp_path / "c.omni", durability="os")
        assert report.point is None
        assert report.files > 0
        with Graph.open(tmp_path / "c.omni", durability="os") as copy:
            assert story(copy) == reported
            copy.append(people("Niklaus"), branch="team/x")
            copy.merge("team/x", "dev")
            now = story(copy)
        assert story(graph) == reported
    clone(tmp_path / "c.omni", tmp_path / "d.omni", durability="os")
    shutil.rmtree(tmp_path / "c.omni")
    with Graph.open(tmp_path / "d.omni") as copy:
        assert story(copy) == now


# -- what is refused ------------------------------------------------------------------------------


def test_a_place_that_is_taken_is_refused_and_left_alone(kept, graph, tmp_path):
    backup, _ = kept
    before = files(tmp_path / "g.omni")
    for copy in (
        lambda to: restore(backup, to),
        lambda to: clone(tmp_path / "g.omni", to),
    ):
        with pytest.raises((AlreadyInitialized, InputError)):
            copy(tmp_path / "g.omni")
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other/file").write_text("mine")
        with pytest.raises(InputError):
            copy(tmp_path / "other")
        with pytest.raises(InputError):
            copy(tmp_path / "other/file")
    assert files(tmp_path / "g.omni") == before
    assert os.listdir(tmp_path / "other") == ["file"]
    (tmp_path / "empty").mkdir()
    restore(backup, tmp_path / "empty")
    assert sorted(os.listdir(tmp_path)) == ["empty", "g.omni", "other"]


def test_places_that_make_no_sense_are_refused(graph, tmp_path):
    for location in (tmp_path / "g.omni", tmp_path / "g.omni/inside", tmp_path):
        with pytest.raises(InputError):
            graph.maintenance.backup(location)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError):
        graph.maintenance.backup(tmp_path / "file")
    graph.maintenance.backup(tmp_path / "b")
    with (
        Graph.init(tmp_path / "h.omni", SCHEMA, durability="os") as other,
        pytest.raises(InputError) as caught,
    ):
        other.maintenance.backup(tmp_path / "b")
    assert "another graph" in caught.value.message
    with Graph.open(tmp_path / "g.omni", "r") as reader, pytest.raises(ReadOnly):
        reader.maintenance.backup(tmp_path / "b")


def test_what_is_no_backup_cannot_be_restored(kept, tmp_path):
    backup, _ = kept
    for location, point in ((tmp_path / "nothing", None), (tmp_path, None), (backup, "01H")):
        with pytest.raises(NotFound):
            restore(location, tmp_path / "r.omni", point=point)
    assert os.listdir(tmp_path) == []


def _flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize(
    ("pattern", "damage", "error"),
    [
        ("files/**/data/*.lance", _flip, StorageCorrupt),
        ("files/**/data/*.lance", Path.unlink, StorageMissing),
        ("files/**/data/*.lance", lambda path: os.truncate(path, 10), StorageCorrupt),
        ("files/**/_transactions/*.txn", _flip, StorageCorrupt),
        ("objects/*", _flip, StorageCorrupt),
        ("objects/*", Path.unlink, StorageMissing),
        ("points/*", _flip, StorageCorrupt),
        ("points/*", lambda path: os.truncate(path, 100), StorageCorrupt),
    ],
)
def test_damage_is_named_and_no_graph_comes_of_it(kept, tmp_path, pattern, damage, error):
    backup = tmp_path / "b"
    shutil.copytree(kept[0], backup)
    path = sorted(backup.glob(pattern))[-1]
    damage(path)
    with pytest.raises(error) as caught:
        restore(backup, tmp_path / "r.omni", durability="os")
    assert str(path.relative_to(backup)) in caught.value.message
    assert not (tmp_path / "r.omni").exists()


def test_a_graph_that_is_damaged_is_not_kept(graph, tmp_path):
    path = next((tmp_path / "g.omni/nodes").rglob("data/*.lance"))
    _flip(path)
    for copy in (
        lambda: graph.maintenance.backup(tmp_path / "b"),
        lambda: clone(tmp_path / "g.omni", tmp_path / "c.omni"),
    ):
        with pytest.raises(StorageCorrupt) as caught:
            copy()
        assert path.name in caught.value.message
    assert not (tmp_path / "c.omni").exists()
    with pytest.raises(NotFound):
        restore(tmp_path / "b", tmp_path / "r.omni")


# -- dying and going on ---------------------------------------------------------------------------


def _die_at(files):
    def notify(progress):
        if progress.done == files:
            os._exit(9)

    return notify


def _backup_and_die(graph, location, files):
    with Graph.open(graph, durability="os") as opened:
        opened.maintenance.backup(location, on_progress=_die_at(files))


def _restore_and_die(backup, location, files):
    restore(backup, location, durability="os", on_progress=_die_at(files))


def _clone_and_die(graph, location, files):
    clone(graph, location, durability="os", on_progress=_die_at(files))


def _killed(work, *args):
    process = fork_context().Process(target=work, args=args)
    process.start()
    process.join(60)
    assert process.exitcode == 9


def test_a_backup_that_was_killed_goes_on_where_it_stopped(tmp_path):
    with filled(tmp_path / "g.omni") as graph:
        reported = story(graph)
        _killed(_backup_and_die, tmp_path / "g.omni", tmp_path / "b", 40)
        assert backup_points(tmp_path / "b") == []
        with pytest.raises(NotFound) as caught:
            restore(tmp_path / "b", tmp_path / "r.omni")
        assert "incomplete" in caught.value.message
        report = graph.maintenance.backup(tmp_path / "b")
        assert report.copied_files <= report.files - 40
    assert [backup_point.point for backup_point in backup_points(tmp_path / "b")] == [report.point]
    restore(tmp_path / "b", tmp_path / "r.omni")
    with Graph.open(tmp_path / "r.omni") as restored:
        assert story(restored) == reported
        assert restored.maintenance.verify().problems == ()


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(1, marks=pytest.mark.slow),
        60,
        pytest.param(1_000, marks=pytest.mark.slow),
    ],
)
def test_a_restore_that_was_killed_is_gone_on_with(kept, tmp_path, files):
    backup, reported = kept
    total = len(backup_points(backup)[0].files)
    _killed(_restore_and_die, backup, tmp_path / "r.omni", min(files, total))
    assert not (tmp_path / "r.omni").exists()
    restore(backup, tmp_path / "r.omni", durability="os")
    with Graph.open(tmp_path / "r.omni") as restored:
        assert story(restored) == reported
    assert os.listdir(tmp_path) == ["r.omni"]


@pytest.mark.slow
def test_a_clone_that_was_killed_becomes_one_of_the_graph_as_it_is_now(tmp_path):
    with filled(tmp_path / "g.omni") as graph:
        _killed(_clone_and_die, tmp_path / "g.omni", tmp_path / "c.omni", 60)
        graph.branches.delete("team/x")
        graph.append(people("Niklaus"), branch="dev")
        clone(tmp_path / "g.omni", tmp_path / "c.omni", durability="os")
        reported = story(graph)
    with Graph.open(tmp_path / "c.omni") as copy:
        assert story(copy) == reported
        assert copy.maintenance.verify().problems == ()


def _write(location, ready, stop):
    """Pairs of people that know each other, on a branch that main takes over again and again."""
    with Graph.open(location, durability="os") as graph:
        number = 0
        while not stop.is_set():
            number += 1
            a, b = f"a{number}", f"b{number}"
            pair = [{"type": "Person", "data": {"name": item}} for item in (a, b)]
            graph.load([*pair, *knows(a, b)], branch="dev")
            graph.merge("dev")
            ready.set()


def test_backups_beside_a_writer_are_moments_of_its_graph(graph, tmp_path):
    graph.branches.create("dev")
    ready, stop = fork_context().Event(), fork_context().Event()
    writer = fork_context().Process(target=_write, args=(tmp_path / "g.omni", ready, stop))
    writer.start()
    try:
        assert ready.wait(60)
        for _ in range(3):
            graph.maintenance.backup(tmp_path / "b")
    finally:
        stop.set()
        writer.join(60)
    assert writer.exitcode == 0
    assert set(graph.branches.list()) == {"main", "dev"}
    for number, point in enumerate(backup_points(tmp_path / "b")):
        restore(tmp_path / "b", tmp_path / f"{number}.omni", point=point.point, durability="os")
        with Graph.open(tmp_path / f"{number}.omni") as restored:
            for branch in ("main", "dev"):
                shown = restored.snapshot(branch)
                assert shown.count("Person") == 2 * shown.count("Knows") + 2
                head = restored.commits(branch)[0].commit_id
                assert list(restored.snapshot(branch).export()) == list(
                    graph.snapshot(commit=head).export()
                )
            ids = {item.commit_id for b in ("main", "dev") for item in restored.commits(b)}
            merged = {item.merged_parent for item in restored.commits()} - {None}
            assert merged <= ids
            assert restored.maintenance.verify().problems == ()
            restored.append(people("Niklaus"), branch="dev")
            restored.merge("dev")


def test_errors_are_ours(tmp_path):
    with pytest.raises(OmniGraphError):
        clone(tmp_path / "nothing.omni", tmp_path / "c.omni")
    assert os.listdir(tmp_path) == []
