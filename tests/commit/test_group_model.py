"""Random writes in groups, with failures and deaths, are the same as those writes alone."""

from __future__ import annotations

import random

import pytest

from omnigraph.commit.failpoints import hooked
from omnigraph.commit.group_members import group_of
from tests.commit.deaths import Died
from tests.commit.group_model import (
    POINTS,
    check_outcomes,
    check_reverts,
    check_same,
    history,
    made_alone,
    new_graph,
    random_rounds,
    run_round,
)
from tests.rotation import rotation

pytestmark = pytest.mark.rotates(3)


def dying(chance):
    """Now and then a leader ends at a boundary, as its process would."""

    def hook(reached):
        if reached in POINTS and chance.random() < 0.03:
            raise Died

    return hook


def compared(tmp_path, seed, rounds, reverts, hook=None, blamed=None):
    chance = random.Random(f"reverts {seed}")
    plan = random_rounds(seed, rounds)
    outcomes = []
    with new_graph(tmp_path / "groups") as graph:
        for writes in plan:
            with hooked(hook or (lambda _: None)):
                outcomes += run_round(graph, writes)
            graph.refresh()
        # In few rounds it may happen that no writes meet.
        assert rounds < 3 or any(group_of(row) for row in history(graph))
        with made_alone(tmp_path / "alone", graph, plan) as alone:
            check_outcomes(graph, alone, plan, outcomes)
            check_same(graph, alone, blamed)
            check_reverts(graph, alone, chance, reverts)
            if blamed is None:
                check_same(graph, alone)
        assert not graph.maintenance.verify().problems


def test_writes_in_groups_are_what_they_are_alone(tmp_path):
    compared(tmp_path, rotation(), 2, 1, blamed=2)


def test_writes_in_groups_whose_leaders_die_are_all_there_or_not_at_all(tmp_path):
    seed = rotation()
    compared(tmp_path, seed, 2, 1, dying(random.Random(f"deaths {seed}")), blamed=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_writes_in_groups_are_what_they_are_alone(tmp_path, seed):
    compared(tmp_path, 1_000 * rotation() + seed, 12, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_many_writes_in_groups_with_deaths_are_all_there_or_not_at_all(tmp_path, seed):
    number = 1_000 * rotation() + seed
    compared(tmp_path, number, 12, 4, dying(random.Random(f"deaths {number}")))
