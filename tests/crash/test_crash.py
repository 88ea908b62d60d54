"""Every kind of writer, killed at every boundary and every step: all of it is there, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from omnigraph.commit.failpoints import Failpoint
from tests.crash import operations
from tests.crash.harness import Harness, Prepared
from tests.crash.scenarios import RECOVERIES, SCENARIOS, WRITERS, Ready, Scenario, plain
from tests.crash.survival import State
from tests.crash.test_crash_init import INITS
from tests.rotation import in_turn, rotation, sample
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(6)

Get = Callable[[Scenario], Ready]
BOUNDARIES = 3
"""At the boundaries of so many scenarios a quick run dies, ..."""
STEPS = 2
"""... and at some steps of so many: others each day."""
STRIDE = 61
"""The bounded run dies at each step of so many, ..."""
SLOW_STRIDE = 7
"""... the slow one at each of so many: in as many days at every step."""
REPAIR_DAYS = 4
"""In so many days whoever repairs a crash has died at each of its boundaries, after each crash."""

every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=str)


def must_not_go_back(ready: Ready, states: Iterable[State]) -> int:
    """What a crash has made visible, a later crash does not hide; gives how many there were."""
    applied = [state == ready.survival.after for state in states]
    assert applied == sorted(applied)
    return len(applied)


def walked(crash: Harness, ready: Ready, start: int = 1, stride: int = 1) -> int:
    """Die after steps of an operation and check; gives how often."""
    operation = ready.scenario.operation
    states = [
        ready.survival.check(ready.prepared.root)
        for _ in crash.walk_steps(operation, ready.prepared, start=start, stride=stride)
    ]
    assert states[-1] == ready.survival.after
    return must_not_go_back(ready, states) - 1


@pytest.mark.parametrize("scenario", rotating(SCENARIOS, BOUNDARIES, "boundaries"), ids=str)
def test_whoever_dies_at_a_boundary_leaves_all_or_nothing(
    crash: Harness, ready: Get, scenario: Scenario
):
    actual = ready(scenario)
    kills = must_not_go_back(
        actual,
        [
            actual.survival.check(actual.prepared.root)
            for _ in crash.walk_failpoints(scenario.operation, actual.prepared)
        ],
    )
    assert kills == len(actual.reached) > 0


@pytest.mark.parametrize("scenario", sample(SCENARIOS, STEPS, "steps"), ids=str)
def test_whoever_dies_at_one_of_some_steps_leaves_all_or_nothing(
    crash: Harness, ready: Get, scenario: Scenario
):
    # Another offset for each and each day, so that together they meet many kinds of steps.
    start = 1 + (SCENARIOS.index(scenario) + rotation()) % STRIDE
    walked(crash, ready(scenario), start, STRIDE)


@pytest.mark.slow
@every_scenario
def test_whoever_dies_at_any_step_leaves_all_or_nothing(
    crash: Harness, ready: Get, scenario: Scenario
):
    actual = ready(scenario)
    kills = walked(crash, actual, 1 + rotation() % SLOW_STRIDE, SLOW_STRIDE)
    print(f"{scenario}: {kills} steps")


# -- again, while the first crash is being repaired ------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("scenario", WRITERS, ids=str)
def test_whoever_repairs_a_crash_may_die_too(
    crash: Harness, ready: Get, scenario: Scenario, tmp_path: Path
):
    actual = ready(scenario)
    kills = 0
    chosen = in_turn(range(len(actual.reached)), REPAIR_DAYS)
    for number, (point, occurrence) in enumerate(
        crash.walk_failpoints(scenario.operation, actual.prepared)
    ):
        if number not in chosen:
            continue
        crashed = Prepared.of(actual.prepared.root, tmp_path / str(number))
        for _ in crash.walk_failpoints(operations.reopen, crashed):
            actual.survival.check(crashed.root)
            kills += 1
        print(f"{scenario}: {point} #{occurrence}, {kills} deaths in its repair until now")


# -- what is covered ------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_failpoint_is_crossed_by_a_scenario(crash: Harness, ready: Get, tmp_path: Path):
    reached: dict[Failpoint, list[str]] = {point: [] for point in Failpoint}
    for scenario in SCENARIOS:
        for point in dict.fromkeys(ready(scenario).reached):
            reached[point].append(scenario.name)
    for number, operation in enumerate(INITS):
        for point in crash.crossings(operation, tmp_path / str(number)):
            reached[point].append(operation.__name__)
    plain(tmp_path / "plain", crash)
    for point in crash.crossings(operations.load_on_new_branch, tmp_path / "plain"):
        reached[point].append(operations.load_on_new_branch.__name__)
    for point, names in reached.items():
        print(f"{point}: {', '.join(names)}")
    missed = [str(point) for point, names in reached.items() if not names]
    # Those of clusters are crossed in `test_crash_cluster`.
    assert [point for point in missed if not point.startswith("cluster.")] == []


def test_every_way_to_recover_is_among_the_scenarios(ready: Get):
    outcomes = {scenario.name: ready(scenario).survival for scenario in RECOVERIES}
    forward = {name for name, actual in outcomes.items() if actual.before != actual.after}
    assert forward == {
        "roll forward",
        "roll forward on a branch",
        "roll forward a group",
        "finish a schema apply",
        "promote staged schema files",
    }
