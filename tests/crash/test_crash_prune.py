"""A prune that dies somewhere: every point that is listed is whole, and the next one ends it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph, backup_points, prune_backup, restore
from tests.crash import operations
from tests.crash.harness import Harness, Prepared
from tests.rotation import sample

SCHEMA = "node P { name: String @key }"
Reported = dict[str, list[str]]


@pytest.fixture(scope="module")
def backup(arena: Path) -> tuple[Prepared, Reported]:
    """Three points of which each has files that the others have not, and what each shows."""
    top = arena / "pruned"
    reported = {}
    with Graph.init(top / "graph", SCHEMA, durability="os") as graph:
        for name in ("a", "b", "c"):
            graph.load([{"type": "P", "data": {"name": name}}], mode="overwrite")
            graph.maintenance.cleanup(1, min_age=0)
            point = graph.maintenance.backup(top / "backup").point
            reported[point] = list(graph.snapshot().export())
    return Prepared.of(top, arena / "as-it-was-pruned"), reported


def stored(location: Path) -> set[str]:
    return {
        str(path.relative_to(location))
        for top in ("files", "objects")
        for path in (location / top).rglob("*")
        if path.is_file()
    }


def must_be_sound(root: Path, reported: Reported) -> list[str]:
    """Restore every point that is listed; gives them."""
    points = [backup_point.point for backup_point in backup_points(root / "backup")]
    for point in points:
        new = root / "restored"
        restore(root / "backup", new, point=point, durability="os")
        with Graph.open(new, "r") as graph:
            assert reported.get(point, list(graph.snapshot().export())) == list(
                graph.snapshot().export()
            )
        shutil.rmtree(new)
    return points


def must_be_tidy(root: Path) -> None:
    needed = {file.stored for point in backup_points(root / "backup") for file in point.files}
    assert stored(root / "backup") == needed
    assert not (root / "backup/__recovery/prune.unfinished").exists()


def must_converge(root: Path, reported: Reported) -> None:
    newest = list(reported)[-1]
    assert must_be_sound(root, reported)[-1] == newest
    prune_backup(root / "backup", keep=1)
    assert must_be_sound(root, reported) == [newest]
    must_be_tidy(root)


def kills(crash: Harness, operation, prepared: Prepared, counts) -> Iterator[Path]:
    for count in counts:
        crash.kill_after(operation, prepared.put_back(), count)
        yield prepared.root


def steps(crash: Harness, operation, prepared: Prepared) -> int:
    actual = crash.durable_steps(operation, prepared.put_back())
    return sum(not step.syncs for step in actual)


def test_a_prune_that_dies_at_some_steps_leaves_whole_points(crash: Harness, backup):
    prepared, reported = backup
    many = steps(crash, operations.prune_to_one, prepared)
    # Its mark, two points with their files, the mark again.
    assert many > 10
    for root in kills(crash, operations.prune_to_one, prepared, sample(range(1, many), 3, "prune")):
        must_converge(root, reported)


@pytest.mark.slow
def test_a_prune_that_dies_at_any_step_leaves_whole_points(crash: Harness, backup):
    prepared, reported = backup
    for _ in crash.walk_steps(operations.prune_to_one, prepared):
        must_converge(prepared.root, reported)


@pytest.fixture(scope="module")
def half_pruned(crash: Harness, backup, arena: Path) -> Prepared:
    """The points are gone and most of their files are not."""
    prepared, _ = backup
    for count in range(1, 100):
        crash.kill_after(operations.prune_to_one, prepared.put_back(), count)
        if len(backup_points(prepared.root / "backup")) == 1:
            break
    assert (prepared.root / "backup/__recovery/prune.unfinished").exists()
    top = arena / "half-pruned"
    shutil.copytree(prepared.root, top)
    return Prepared.of(top, arena / "as-it-was-half-pruned")


def must_have_gone_on(root: Path, reported: Reported) -> None:
    """A backup that finishes a prune loses nothing either; the one after it has the new point."""
    newest = list(reported)[-1]
    assert must_be_sound(root, reported)[0] == newest
    with Graph.open(root / "graph", durability="os") as graph:
        point = graph.maintenance.backup(root / "backup").point
    assert must_be_sound(root, reported)[-1] == point
    assert not (root / "backup/__recovery/prune.unfinished").exists()


def test_a_backup_that_dies_while_it_finishes_a_prune_loses_nothing(
    crash: Harness, backup, half_pruned: Prepared
):
    _, reported = backup
    many = steps(crash, operations.back_up, half_pruned)
    must_be_tidy(half_pruned.root)
    for root in kills(crash, operations.back_up, half_pruned, sample(range(1, many), 2, "back up")):
        must_have_gone_on(root, reported)


@pytest.mark.slow
def test_a_backup_that_dies_at_any_step_of_a_prune_loses_nothing(
    crash: Harness, backup, half_pruned: Prepared
):
    _, reported = backup
    for _ in crash.walk_steps(operations.back_up, half_pruned):
        must_have_gone_on(half_pruned.root, reported)
