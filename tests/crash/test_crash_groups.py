"""Processes killed while they commit groups: acknowledged writes stay, and groups are whole."""

from __future__ import annotations

import functools
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.group_members import group_of
from omnigraph.maintain import background, small_fragments
from tests.commit.group_model import (
    POINTS,
    SmallWrite,
    check_reverts,
    check_same,
    history,
    made_alone,
    new_graph,
    random_rounds,
)
from tests.commit.together import together
from tests.crash.harness import Harness
from tests.crash.survival import check_tidy
from tests.rotation import rotation

pytestmark = pytest.mark.rotates(3)

ROUNDS, QUICK_ROUNDS = 5, 2
SEEDS = 12
"""So many plans of each kind a slow run takes, others each day."""


def rounds_of_writes(seed: int, rounds: int, compacts: bool, root: Path) -> Iterator[None]:
    """Writes in groups; each that is acknowledged is written down by its own thread.

    ``compacts``: every second fragment of a table is merged with the one before, meanwhile.
    """
    if compacts:
        small_fragments.TIER = background.TIER = 2
    graph = Graph.open(root, durability="os", auto_compact=compacts)
    noted, lock = acknowledged_at(root), threading.Lock()
    noted.write_text("")
    yield

    def run(write: SmallWrite) -> None:
        receipt = write.run(graph)
        with lock, noted.open("a") as file:
            file.write(f"{write.actor} {receipt.commit_id}\n")

    for writes in random_rounds(seed, rounds):
        together(graph, *(functools.partial(run, write) for write in writes))  # type: ignore[arg-type]


def acknowledged_at(root: Path) -> Path:
    return root.with_suffix(".acknowledged")


def killed(
    crash: Harness, tmp_path: Path, seed: int, rounds: int = ROUNDS, *, compacts: bool = False
) -> None:
    """Kill at a random boundary, once or twice; look at what is left, and go on."""
    chance = random.Random(f"kills {seed}")
    root = tmp_path / "groups"
    new_graph(root).close()
    operation = functools.partial(rounds_of_writes, seed, rounds, compacts)
    boundaries = chance.randrange(1, (4 if compacts else 2) * rounds)
    crash.kill_at_failpoint(operation, root, chance.choice(POINTS), boundaries)
    if chance.random() < 0.5:
        # Whoever recovers is killed, too.
        point = chance.choice([Failpoint.RECOVERY_BEFORE_PUBLISH, Failpoint.RECOVERY_AFTER_PUBLISH])
        crash.kill_at_failpoint(reopened, root, point)
    plan = random_rounds(seed, rounds)
    with Graph.open(root, durability="os") as graph:
        by_actor = {row.actor: row.commit_id for row in history(graph)}
        assert len(by_actor) == len(history(graph)), "a write was made twice"
        acknowledged = [line.split() for line in acknowledged_at(root).read_text().splitlines()]
        assert {actor: by_actor.get(actor) for actor, _ in acknowledged} == dict(acknowledged)
        groups = [group for row in history(graph) if (group := group_of(row)) is not None]
        counts = Counter(group.id for group in groups)
        assert all(counts[group.id] == group.size for group in groups), "a group is not whole"
        check_tidy(graph, root)
        with made_alone(tmp_path / "alone", graph, plan) as alone:
            check_same(graph, alone, blamed=4)
            check_reverts(graph, alone, chance, 2)
        assert not graph.maintenance.verify().problems


def reopened(root: Path) -> Iterator[None]:
    yield
    Graph.open(root, durability="os").close()


def test_a_process_that_is_killed_leaves_whole_groups(crash: Harness, tmp_path: Path):
    killed(crash, tmp_path, rotation(), QUICK_ROUNDS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_processes_that_are_killed_leave_whole_groups(crash: Harness, tmp_path: Path, seed: int):
    killed(crash, tmp_path, 1_000 * rotation() + seed)


def test_a_process_that_is_killed_while_it_compacts_leaves_whole_groups(
    crash: Harness, tmp_path: Path
):
    killed(crash, tmp_path, rotation(), QUICK_ROUNDS, compacts=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_processes_that_are_killed_while_they_compact_leave_whole_groups(
    crash: Harness, tmp_path: Path, seed: int
):
    killed(crash, tmp_path, 1_000 * rotation() + seed, compacts=True)
