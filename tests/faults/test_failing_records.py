"""The records of a server on a disk that fails, and after its death: as before, or as after."""

from __future__ import annotations

import errno
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.harness import Prepared
from tests.crash.steps import Step
from tests.faults import seccomp
from tests.faults.aftermath import Ending
from tests.faults.children import Children
from tests.faults.enumeration import CODES, is_right
from tests.faults.failing_calls import WatchedChild
from tests.faults.records import CHANGES, changing, suffering
from tests.rotation import rotation, sample

pytestmark = pytest.mark.rotates(3)

QUICK = 3
"""So many changes a quick run takes, and the next day others."""
every_change = pytest.mark.parametrize("name", CHANGES)


class Room:
    """A directory with what was there before a change, and what a reader sees before and after."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.change = CHANGES[name]
        root = folder / "root"
        root.mkdir(parents=True)
        self.change.before(root)
        self.prepared = Prepared.of(root.resolve(), folder / "copy")
        self.before = self.change.look(root)
        self.change.change(root)
        self.after = self.change.look(root)
        assert self.before != self.after

    def put_back(self) -> Path:
        return self.prepared.put_back()

    def check(self, ending: Ending | None, code: int = 0) -> str:
        """Judge what is there; ``None`` is the ending of a process that was killed."""
        root = self.prepared.root
        seen = self.change.look(root)
        assert seen in (self.before, self.after), seen
        if ending is not None and ending.error is None:
            assert seen == self.after or self.change.may_stay
        elif ending is not None:
            assert ending.error is not None
            assert is_right(ending.error, code), ending.error
        # Whoever repeats it is not disturbed by what is left.
        self.change.change(root)
        assert self.change.look(root) == self.after
        return "after" if seen == self.after else "before"


@pytest.fixture(scope="module")
def possible() -> None:
    reason = seccomp.unusable()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def room(name: str, tmp_path: Path) -> Room:
    return Room(name, tmp_path)


def watched(family: Children, room: Room, step: Step | None, code: int) -> Any:
    child = functools.partial(suffering, room.name)
    with WatchedChild(family, child, room.put_back(), step, code) as running:
        ending = running.proceed()
        assert isinstance(ending, Ending)
        assert step is None or running.calls.failed == step, step
        return ending, tuple(running.calls.steps)


def cases(steps: tuple[Step, ...], codes: tuple[int, ...]) -> Iterator[tuple[Step, int]]:
    for step in steps:
        for code in codes:
            yield step, code


def judged(family: Children, room: Room, codes: tuple[int, ...]) -> None:
    ending, steps = watched(family, room, None, 0)
    assert ending.error is None
    assert {step.call for step in steps} & {"write", "pwrite64"} or "stop" in room.name
    assert {step.call for step in steps} & {"rename", "renameat2", "link", "linkat"}
    outcomes: Counter[str] = Counter()
    for step, code in cases(steps, codes):
        ending, _ = watched(family, room, step, code)
        said = "ok" if ending.error is None else ending.error.code
        outcomes[f"{room.check(ending, code)} ({said})"] += 1
    print(f"{room.name}: {dict(outcomes)}")
    assert sum(outcomes.values()) == len(steps) * len(codes)


@pytest.mark.parametrize("name", sample(tuple(CHANGES), QUICK, "failing records"))
@pytest.mark.xdist_group("failing-records")
def test_a_call_fails_and_the_record_is_as_before_or_as_after(
    possible: None, family: Children, room: Room
) -> None:
    """Each call once, with one of the errors; the next day with the other."""
    judged(family, room, (CODES[rotation() % len(CODES)],))


@every_change
@pytest.mark.slow
@pytest.mark.xdist_group("failing-records")
def test_every_call_fails_with_every_error(possible: None, family: Children, room: Room) -> None:
    judged(family, room, (errno.EIO, errno.ENOSPC, errno.EROFS))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number == rotation() % len(CHANGES) else pytest.mark.slow)
        for number, name in enumerate(CHANGES)
    ],
)
@pytest.mark.xdist_group("failing-records")
def test_a_process_that_is_killed_between_any_two_steps_leaves_a_whole_record(
    family: Children, room: Room
) -> None:
    steps = 0
    for outcome in family.walk_steps(functools.partial(changing, room.name), room.prepared):
        steps += outcome.killed
        room.check(None)
    assert steps
