"""A local disk of which one call fails: all of the operation or nothing, and all can be read."""

from __future__ import annotations

import errno
import functools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from fnmatch import fnmatch

import pytest

from tests.crash.scenarios import Scenario
from tests.crash.steps import Step
from tests.faults import seccomp
from tests.faults.enumeration import (
    CODES,
    GOOD,
    LOOKS,
    SCENARIOS,
    Enumerated,
    Enumeration,
    Outcome,
    enumeration,
)
from tests.rotation import rotation, sample

pytestmark = pytest.mark.rotates(6)

QUICK_SCENARIOS = 3
QUICK_CASES = 5
# One scenario of every kind of writer. Each call fails with both errors; in the others, which vary
# these, with one of them, and with the other in every second run.
WITH_BOTH_ERRORS = {
    *("mutate", "delete and cascade", "load by append", "load by overwrite", "load that spills"),
    *("write as a group", "three-way merge", "fast-forward", "revert"),
    *("apply a property", "apply a rename", "apply a drop", "apply two steps to one table"),
    *("optimize", "optimize the manifest", "compact a tail"),
    *("build every kind of index", "rebuild every kind of index"),
    *("cleanup", "repair", "create a branch", "delete a branch", "create a tag", "delete a tag"),
    *("roll forward", "roll forward a group", "finish a schema apply", "init"),
    *("first backup", "restore", "clone"),
}
# One process has all cases of a scenario: it knows which disks are alike.
every_scenario = pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, marks=pytest.mark.xdist_group(f"failing-calls {scenario}"))
        for scenario in SCENARIOS
    ],
    ids=str,
)
Get = Callable[[Scenario], Enumerated]


@pytest.fixture(scope="module")
def runs() -> Iterator[Enumeration]:
    reason = seccomp.unusable()
    if reason is not None:
        pytest.skip(reason)
    with enumeration() as actual:
        yield actual


@pytest.fixture(scope="module")
def ready(runs: Enumeration) -> Get:
    """A scenario with its graph built and its calls recorded; each is built once."""
    return functools.cache(runs.ready)


def judged(runs: Enumeration, actual: Enumerated, cases: list[tuple[int, Step, int]]) -> None:
    """Each call fails with its error; every second time the same handle goes on first."""
    verdicts = [
        runs.judge(actual, step, code, retries=(number + CODES.index(code)) % 2 == 0)
        for number, step, code in cases
    ]
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    print(f"{actual.scenario}: {', '.join(f'{outcomes[item]} {item}' for item in outcomes)}")
    pending = [str(verdict) for verdict in verdicts if verdict.outcome is Outcome.PENDING]
    print("\n".join(pending))
    wrong = [str(verdict) for verdict in verdicts if verdict.outcome not in GOOD]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(verdicts)} cases", *wrong])


@pytest.mark.xdist_group("failing-calls")
@pytest.mark.parametrize("scenario", sample(SCENARIOS, QUICK_SCENARIOS, "failing calls"), ids=str)
def test_some_call_fails_and_all_of_it_is_there_or_nothing(
    runs: Enumeration, ready: Get, scenario: Scenario
):
    actual = ready(scenario)
    chance = random.Random(f"{rotation()} {scenario}")
    cases = [(n, step, chance.choice(CODES)) for n, step in enumerate(actual.steps)]
    judged(runs, actual, one_of_all_kinds(cases, chance)[:QUICK_CASES])


def one_of_all_kinds(
    cases: list[tuple[int, Step, int]], chance: random.Random
) -> list[tuple[int, Step, int]]:
    """Cases in a random order, in which no kind of call comes twice before each came once."""
    chance.shuffle(cases)
    seen: Counter[str] = Counter()
    rounds = []
    for case in cases:
        seen[case[1].call] += 1
        rounds.append((seen[case[1].call], case))
    return [case for _, case in sorted(rounds, key=lambda turn: turn[0])]


@pytest.mark.xdist_group("failing-calls")
@pytest.mark.parametrize(
    ("name", "call", "folder"),
    [
        ("create a branch", "fsync", "__manifest/tree/feat/_versions"),
        ("delete a branch", "fsync", "__manifest/_refs/branches"),
        ("mutate", "newfstatat", "__manifest/_transactions"),
        # Lance makes the reference, and then fails to remove its temporary file.
        ("create a branch", "unlink", "__manifest/_refs/branches"),
        # The rows of the load were written before the fork, which must not be made anew.
        ("shares on a branch", "mkdir", "*/tree/feat/_transactions"),
        ("shares on a branch", "write", "*/tree/feat/_versions"),
    ],
)
def test_a_call_fails_that_once_gave_a_wrong_answer(
    runs: Enumeration, name: str, call: str, folder: str
):
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    only_looks = call in LOOKS
    actual = runs.ready(scenario, reading=only_looks)
    cases = [
        (number, step, code)
        for number, step in enumerate(actual.steps)
        if step.call == call and fnmatch(f"{step.paths[0]}/", f"{folder}/*")
        for code in (CODES[:1] if only_looks else CODES)
    ]
    assert cases
    judged(runs, actual, cases)


def test_every_kind_of_writer_and_of_call_is_there():
    assert {scenario.name for scenario in SCENARIOS} >= WITH_BOTH_ERRORS
    calls = {"write", "pwrite64", "fsync", "fdatasync", "rename", "renameat2", "ftruncate", "close"}
    assert seccomp.NUMBERS.keys() >= calls


@pytest.mark.slow
@every_scenario
def test_an_operation_of_which_nothing_fails_is_judged_good(
    runs: Enumeration, ready: Get, scenario: Scenario
):
    never = Step("write", "nowhere", 1)
    for retries in (True, False):
        verdict = runs.judge(ready(scenario), never, errno.EIO, retries=retries)
        assert verdict.outcome is Outcome.NOT_REACHED, str(verdict)


@pytest.mark.slow
@every_scenario
def test_any_call_may_fail_and_all_of_it_is_there_or_nothing(
    runs: Enumeration, ready: Get, scenario: Scenario
):
    actual = ready(scenario)
    cases = [
        (number, step, code)
        for number, step in enumerate(actual.steps)
        for code in (CODES if scenario.name in WITH_BOTH_ERRORS else one_error_of(number))
    ]
    judged(runs, actual, cases)


def one_error_of(number: int) -> tuple[int]:
    """In pairs, so that each error comes before the same handle goes on and before a new one."""
    return (CODES[(number // 2 + rotation()) % 2],)
