"""Points of a backup are removed with what only they need; the others stay whole."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph import Graph, backup_points, prune_backup, restore, verify_graph
from omnigraph.commit.store import Timeouts
from omnigraph.errors import Conflict, InputError, NotFound, StorageCorrupt
from omnigraph.maintain.backup import prune as backup_prune
from omnigraph.maintain.backup.prune import _MARK, lock_backup
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from tests.maintain.test_hostile_paths import files, forge

pytestmark = pytest.mark.rotates(3)

SCHEMA = "node P { name: String @key  photo: Blob? }"
NAMES = ("a", "b", "c", "d")


def row(name):
    photo = "base64:" + "eHh4" * 30_000
    return [{"type": "P", "data": {"name": name, "photo": photo}}]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A backup of four points. Between them rows come, are replaced and are cleaned up."""
    top = tmp_path_factory.mktemp("made")
    reported = {}
    with Graph.init(top / "g.omni", SCHEMA, durability="os") as graph:
        for number, name in enumerate(NAMES):
            graph.load(row(name), mode="overwrite" if number == 2 else "merge")
            if number == 1:
                graph.branches.create("dev")
                graph.load(row("dev"), branch="dev")
            if number == 3:
                graph.branches.delete("dev")
                graph.maintenance.cleanup(1, min_age=0)
            point = graph.maintenance.backup(top / "b").point
            reported[point] = {
                branch: list(graph.snapshot(branch).export()) for branch in branches(graph)
            }
    return top, reported


def branches(graph):
    return graph.branches.list()


@pytest.fixture
def location(made, tmp_path):
    shutil.copytree(made[0] / "b", tmp_path / "b")
    return tmp_path / "b"


@pytest.fixture
def reported(made):
    return made[1]


def must_be_sound(location: Path, reported: dict, expected: list[str] | None = None) -> None:
    """Every point that is listed can be restored, and is what it was."""
    points = [backup_point.point for backup_point in backup_points(location)]
    assert expected is None or points == expected
    for point in points:
        new = location.parent / f"{point}.omni"
        restore(location, new, point=point, durability="os")
        with Graph.open(new, "r") as graph:
            assert {
                branch: list(graph.snapshot(branch).export()) for branch in branches(graph)
            } == (reported[point])
        shutil.rmtree(new)


def stored(location: Path) -> set[str]:
    return {path for path in files(location) if path.startswith(("files/", "objects/"))}


def needed(location: Path) -> set[str]:
    return {file.stored for point in backup_points(location) for file in point.files}


@pytest.mark.parametrize("going", [[0], [3], [1, 2], [0, 2, 3]])
def test_points_go_by_their_ids_with_what_only_they_need(location, reported, going):
    points = list(reported)
    before = sum(len(raw) for path, raw in files(location).items() if not path.startswith("points"))
    report = prune_backup(location, points=[points[item] for item in reversed(going)])
    left = [point for number, point in enumerate(points) if number not in going]
    assert report.removed == tuple(points[item] for item in going)
    assert report.kept == tuple(left)
    assert not report.dry_run
    assert stored(location) == needed(location)
    after = sum(len(raw) for path, raw in files(location).items() if not path.startswith("points"))
    assert before - after == report.bytes
    must_be_sound(location, reported, left)
    assert {path.split("/")[0] for path in files(location)} == {
        "files",
        "objects",
        "points",
        "omnigraph-backup.json",
    }
    assert not [
        path
        for path in (location / "files").rglob("*")
        if not any(path.rglob("*")) and path.is_dir()
    ]


def test_the_newest_points_stay(location, reported):
    points = list(reported)
    assert prune_backup(location, keep=3).removed == (points[0],)
    assert prune_backup(location, keep=3).removed == ()
    assert prune_backup(location, keep=1).kept == (points[3],)
    must_be_sound(location, reported, points[3:])


def test_points_of_an_age_go_but_for_the_last(location, reported):
    points = list(reported)
    assert prune_backup(location, older_than=3600).removed == ()
    assert prune_backup(location, older_than=timedelta(0)).removed == tuple(points[:3])
    must_be_sound(location, reported, points[3:])


def test_with_both_limits_a_point_is_behind_both(location, reported):
    points = list(reported)
    assert prune_backup(location, keep=1, older_than=3600).removed == ()
    age(location, points[0])
    age(location, points[1])
    assert prune_backup(location, keep=3, older_than=3600).removed == (points[0],)
    assert prune_backup(location, keep=1, older_than=3600).removed == (points[1],)
    must_be_sound(location, reported, points[2:])


def age(location: Path, point: str) -> None:
    """Let a point have been taken two hours earlier."""
    path = location / f"points/{point}.json"
    forge(path, lambda content: content.update(taken_at=content["taken_at"] - 7_200_000_000))


def test_a_dry_run_says_what_would_go_and_changes_nothing(location, reported):
    before = files(location)
    dry = prune_backup(location, keep=1, dry_run=True)
    assert files(location) == before
    assert dry.dry_run
    wet = prune_backup(location, keep=1)
    assert (wet.removed, wet.kept, wet.files, wet.bytes) == (
        dry.removed,
        dry.kept,
        dry.files,
        dry.bytes,
    )
    assert dry.files > 0
    assert set(dry.to_json()) == {"uri", "removed", "kept", "files", "bytes", "dry_run"}


def test_the_last_point_goes_only_when_that_is_asked_for(location, reported):
    points = list(reported)
    before = files(location)
    with pytest.raises(InputError, match="every point"):
        prune_backup(location, points=points)
    with pytest.raises(InputError, match="newest point is always kept"):
        prune_backup(location, keep=0)
    with pytest.raises(InputError, match="keep must be at least 0"):
        prune_backup(location, keep=-1)
    assert files(location) == before
    report = prune_backup(location, points=points, allow_empty=True)
    assert report.kept == ()
    assert list(files(location)) == ["omnigraph-backup.json"]
    with pytest.raises(NotFound, match="has no point"):
        restore(location, location.parent / "r.omni")


def test_all_points_can_go_by_a_limit_that_is_asked_for(location):
    assert len(prune_backup(location, keep=0, allow_empty=True).removed) == 4


def test_what_makes_no_sense_is_refused_before_anything_goes(location, reported, tmp_path):
    before = files(location)
    for wrong in (
        {},
        {"points": [next(iter(reported))], "keep": 1},
        {"points": "01H"},
        {"keep": True},
        {"keep": "3"},
        {"older_than": -1},
        {"older_than": "7d"},
        {"older_than": float("nan")},
    ):
        with pytest.raises(InputError):
            prune_backup(location, **wrong)
    for point in ("../x", "nobody", "", "\n"):
        with pytest.raises(NotFound):
            prune_backup(location, points=[point])
    for nothing in (tmp_path / "none", tmp_path):
        with pytest.raises(NotFound):
            prune_backup(nothing, keep=1)
    assert not (tmp_path / "none").exists()
    assert files(location) == before


def test_a_damaged_point_that_stays_keeps_everything(location, reported):
    points = list(reported)
    (location / f"points/{points[1]}.json").write_text("{}")
    before = files(location)
    with pytest.raises(StorageCorrupt, match="nothing was removed") as caught:
        prune_backup(location, points=[points[0]])
    assert points[1] in (caught.value.hint or "")
    assert files(location) == before
    prune_backup(location, points=[points[1]])
    must_be_sound(location, reported, [points[0], *points[2:]])


def test_files_of_others_in_a_backup_stay(location, reported):
    for name in ("files/notes.txt", "objects/README", "files/nodes/x/other/y", "mine/a"):
        (location / name).parent.mkdir(parents=True, exist_ok=True)
        (location / name).write_text("mine")
    prune_backup(location, points=list(reported), allow_empty=True)
    assert [path for path, raw in files(location).items() if raw == b"mine"] == [
        "files/nodes/x/other/y",
        "files/notes.txt",
        "mine/a",
        "objects/README",
    ]


def test_what_an_interrupted_backup_left_goes_with_the_next_prune(location, reported):
    extra = location / f"objects/{'0' * 64}"
    extra.write_text("left")
    assert prune_backup(location, keep=4).files == 1
    assert not extra.exists()
    must_be_sound(location, reported, list(reported))


# -- beside others --------------------------------------------------------------------------------


def test_a_backup_beside_a_prune_waits_and_loses_nothing(
    made, location, reported, tmp_path, monkeypatch
):
    """The prune has decided what goes when the backup comes, which needs some of it."""
    shutil.copytree(made[0] / "g.omni", tmp_path / "g.omni")
    decided, failures = threading.Event(), []
    carry_out = backup_prune._execute

    def slowly(backup, plan, guard):
        decided.set()
        # Until somebody waits behind this one for the lease.
        queues = lambda: list((location / "__recovery").glob("*.queue/*"))  # noqa: E731
        waiting.wait(10)
        for _ in range(10_000):
            if queues():
                break
            threading.Event().wait(0.001)
        else:
            failures.append("nobody came")
        carry_out(backup, plan, guard)

    waiting = threading.Event()
    monkeypatch.setattr(backup_prune, "_execute", slowly)
    pruning = threading.Thread(target=lambda: prune_backup(location, points=[list(reported)[3]]))
    pruning.start()
    assert decided.wait(10)
    with Graph.open(tmp_path / "g.omni", durability="os") as graph:
        waiting.set()
        point = graph.maintenance.backup(location).point
        now = {branch: list(graph.snapshot(branch).export()) for branch in branches(graph)}
    pruning.join()
    assert failures == []
    must_be_sound(location, {**reported, point: now}, [*list(reported)[:3], point])


def test_only_one_changes_a_backup_at_a_time(location, made, tmp_path):
    shutil.copytree(made[0] / "g.omni", tmp_path / "g.omni")
    objects = ObjectStore(parse_root(str(location)))
    before = files(location)
    with (
        Graph.open(tmp_path / "g.omni", durability="os") as graph,
        lock_backup(objects, Timeouts()),
    ):
        with (
            pytest.raises(Conflict, match="another backup"),
            lock_backup(objects, Timeouts(lease=0.0)),
        ):
            raise AssertionError("both had it")
        assert len(backup_points(location)) == 4
        assert prune_backup(location, keep=1, dry_run=True).files > 0
        restore(location, tmp_path / "r.omni")
        graph._handle.store.timeouts = Timeouts(lease=0.0)
        with pytest.raises(Conflict):
            graph.maintenance.backup(location)
    assert files(location) == before


# -- interrupted ----------------------------------------------------------------------------------


def interrupted(location: Path, monkeypatch, **selection) -> None:
    """Let a prune die when its points are gone and their files are not."""

    def die(self, paths):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "delete_all", die)
        with pytest.raises(KeyboardInterrupt):
            prune_backup(location, **selection)


def test_an_interrupted_prune_is_finished_by_the_next(location, reported, monkeypatch):
    interrupted(location, monkeypatch, keep=1)
    assert stored(location) > needed(location)
    must_be_sound(location, reported, list(reported)[3:])
    report = prune_backup(location, keep=1)
    assert report.removed == ()
    assert report.files > 0
    assert stored(location) == needed(location)
    assert not (location / _MARK).exists()


def test_an_interrupted_prune_is_finished_by_the_next_backup(
    made, location, reported, tmp_path, monkeypatch
):
    shutil.copytree(made[0] / "g.omni", tmp_path / "g.omni")
    interrupted(location, monkeypatch, keep=1)
    with Graph.open(tmp_path / "g.omni", durability="os") as graph:
        graph.maintenance.backup(location)
    assert stored(location) == needed(location)
    assert not (location / "__recovery").exists()


def test_a_backup_does_not_finish_a_prune_when_a_point_is_damaged(
    made, location, reported, tmp_path, monkeypatch
):
    shutil.copytree(made[0] / "g.omni", tmp_path / "g.omni")
    interrupted(location, monkeypatch, keep=1)
    (location / f"points/{list(reported)[3]}.json").write_text("{}")
    before = stored(location)
    with Graph.open(tmp_path / "g.omni", durability="os") as graph:
        graph.maintenance.backup(location)
    assert stored(location) >= before
    assert (location / _MARK).exists()
    prune_backup(location, points=[list(reported)[3]])
    assert stored(location) == needed(location)


def test_a_mark_of_somebody_else_removes_no_point(location, reported, made, tmp_path):
    """Whatever it says: only files that no point needs go."""
    shutil.copytree(made[0] / "g.omni", tmp_path / "g.omni")
    (location / _MARK).parent.mkdir(exist_ok=True)
    (location / _MARK).write_text(json.dumps({"points": list(reported), "files": ["../../x"]}))
    with Graph.open(tmp_path / "g.omni", durability="os") as graph:
        graph.maintenance.backup(location)
    assert [backup_point.point for backup_point in backup_points(location)][:4] == list(reported)
    assert verify_graph(tmp_path / "g.omni").problems == ()
