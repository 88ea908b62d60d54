"""A local disk of which one look fails: the right answer or an error, and then the right answer."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from errno import ENOENT, errorcode
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

from tests.crash.scenarios import SCENARIOS as WRITERS
from tests.crash.steps import Step
from tests.faults import readers, seccomp
from tests.faults.aftermath import Ending
from tests.faults.children import Children
from tests.faults.enumeration import GOOD, Enumeration, codes_of, enumeration, is_right
from tests.faults.failing_calls import Died, WatchedChild
from tests.faults.readers import READERS, Answer
from tests.rotation import in_turn, rotation, sample
from tests.sampling import rotating

pytestmark = pytest.mark.rotates(3)

QUICK_CASES = 5
MANY = 500
"""A reader or writer with more cases reads the same kinds of files again and again."""
DAYS = 30
"""It meets each call, error and kind of file in every run, and all its reads in so many days."""
QUICK_WRITES = 4


class Ready(NamedTuple):
    """A reader with its answer when nothing fails, and its calls."""

    name: str
    right: Answer
    steps: tuple[Step, ...]


Case = tuple[Step, int]


@pytest.fixture(scope="module")
def possible() -> None:
    reason = seccomp.unusable()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def root(possible: None, family: Children, tmp_path_factory: pytest.TempPathFactory) -> Path:
    actual = tmp_path_factory.mktemp("read") / "graph.omni"
    readers.build(actual, family)
    return actual.resolve()


def watched(family: Children, name: str, root: Path, step: Step | None, code: int) -> WatchedChild:
    return WatchedChild(family, functools.partial(readers.reader, name), root, step, code)


@pytest.fixture(scope="module")
def ready(family: Children, root: Path) -> Callable[[str], Ready]:
    @functools.cache
    def get(name: str) -> Ready:
        with watched(family, name, root, None, 0) as run:
            right = run.proceed()
            assert isinstance(right, Answer)
            assert right.error is None, family.output
            return Ready(name, right, tuple(run.calls.steps))

    return get


def fault_of(family: Children, root: Path, ready: Ready, case: Case) -> str | None:
    """What is wrong with how a reader took the failure of one call."""
    step, code = case
    try:
        with watched(family, ready.name, root, step, code) as run:
            first, second = run.proceed(), run.proceed()
    except Died as died:
        return f"the process died: {died}"
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    if first.error is not None:
        if not is_right(first.error, code):
            return f"wrong error: {first.error!r}"
        Ending(first.error).check_words()
    elif first != ready.right and not (ready.name == "verify" and first.value == "problems"):
        return f"wrong answer: {first.value!r}"
    # What was gone for a moment may be remembered as gone.
    if second != ready.right and not (code == ENOENT and second.error is not None):
        return f"then: {second.error!r} {second.value!r}"
    return None


def check(family: Children, root: Path, ready: Ready, cases: list[Case]) -> None:
    actual = {case: fault_of(family, root, ready, case) for case in cases}
    wrong = [f"{errorcode[c]} at {step}: {text}" for (step, c), text in actual.items() if text]
    print(f"{ready.name}: {len(cases)} cases, {len(wrong)} wrong")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(cases)} cases", *wrong])


def cases_of(steps: tuple[Step, ...]) -> list[Case]:
    return [(step, code) for step in steps for code in codes_of(step)]


def cases_of_today(steps: tuple[Step, ...]) -> list[Case]:
    """All cases; of many the first of each kind and those of today."""
    cases = cases_of(steps)
    if len(cases) <= MANY:
        return cases
    first = {kind_of(case): case for case in reversed(cases)}
    return list(dict.fromkeys([*first.values(), *in_turn(cases, DAYS)]))


def kind_of(case: Case) -> tuple[object, ...]:
    """The call, the error, and where the file lies: its directory in a graph or in a table."""
    step, code = case
    path = PurePosixPath(step.shape)
    return step.call, code, path.parts[:1], path.parent.name, path.suffix


@pytest.mark.xdist_group("failing-calls")
@pytest.mark.parametrize("name", rotating(list(READERS), 2, "readers"))
def test_some_look_fails_and_the_answer_is_right_or_an_error(
    family: Children, root: Path, ready: Callable[[str], Ready], name: str
):
    actual = ready(name)
    check(family, root, actual, sample(cases_of(actual.steps), QUICK_CASES, f"looks of {name}"))


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_any_look_may_fail_and_the_answer_is_right_or_an_error(
    family: Children, root: Path, ready: Callable[[str], Ready], name: str
):
    actual = ready(name)
    check(family, root, actual, cases_of_today(actual.steps))


# -- writers --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(possible: None) -> Iterator[Enumeration]:
    with enumeration() as actual:
        yield actual


def judged(runs: Enumeration, scenario: str, most: int | None) -> None:
    (chosen,) = [item for item in WRITERS if item.name == scenario]
    actual = runs.ready(chosen, reading=True)
    cases = cases_of_today(actual.steps)
    if most is not None:
        chance = random.Random(f"{rotation()} {scenario}")
        cases = chance.sample(cases, min(most, len(cases)))
    verdicts = [
        runs.judge(actual, step, code, retries=number % 2 == 0)
        for number, (step, code) in enumerate(cases)
    ]
    print(f"{scenario}: {Counter(str(item.outcome) for item in verdicts)}")
    wrong = [str(verdict) for verdict in verdicts if verdict.outcome not in GOOD]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(verdicts)} cases", *wrong])


@pytest.mark.xdist_group("failing-calls")
def test_a_write_of_which_some_look_fails_is_there_or_not(runs: Enumeration):
    judged(runs, "mutate", QUICK_WRITES)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["mutate", "merge several tables", "roll forward"])
def test_a_write_of_which_any_look_fails_is_there_or_not(runs: Enumeration, scenario: str):
    judged(runs, scenario, None)
