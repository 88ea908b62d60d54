"""Every call of an operation that changes a file fails once, and what comes of it is judged.

The outcome has to be all of the operation, acknowledged, or nothing, with an error that says so;
in both cases everything can be read by processes that come after, and writing goes on.
"""

from __future__ import annotations

import errno
import functools
import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.schema.lock import MARK
from omnigraph.commit.sidecar import FOLDER
from omnigraph.errors import (
    BranchNotFound,
    GraphNotFound,
    HistoryGone,
    OmniGraphError,
    OutcomePending,
    SchemaDrift,
    StorageCorrupt,
    StorageDenied,
    StorageError,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
)
from omnigraph.storage.removed_versions import FOLDER as HISTORY
from tests.crash.harness import Prepared
from tests.crash.scenarios import Scenario
from tests.crash.steps import Step
from tests.crash.survival import State
from tests.faults import victims
from tests.faults.aftermath import Ending
from tests.faults.alike import Disk, disk_of
from tests.faults.children import Child, Children
from tests.faults.copies import COPIES, Copying
from tests.faults.failing_calls import Died, WatchedChild, WatchedServant
from tests.faults.victims import GRAPH, Looks, Suffering, Testimony
from tests.faults.writers import SCENARIOS as WRITERS

_MEMORY = "/dev/shm"
SCENARIOS = (*WRITERS, *COPIES)
CODES = (errno.EIO, errno.ENOSPC)
CASES_OF_A_PROCESS = 40
"""So many cases a victim or a writer takes, one after the other, ..."""
AUDITED = 32
"""... and one of so many disks that are like another is looked at all the same."""
_RIGHT = {
    errno.EIO: (StorageError, StorageFull, StorageUnavailable),
    errno.ENOSPC: (StorageFull, StorageUnavailable),
    errno.EDQUOT: (StorageFull, StorageUnavailable),
    errno.EROFS: (StorageDenied, StorageUnavailable),
    errno.EACCES: (StorageDenied, StorageUnavailable),
    errno.EMFILE: (StorageError, StorageUnavailable),
    errno.ENOMEM: (StorageError, StorageUnavailable),
    errno.ENOENT: (
        StorageMissing,
        StorageCorrupt,
        StorageUnavailable,
        GraphNotFound,
        BranchNotFound,
        HistoryGone,
        SchemaDrift,
    ),
}
"""By what fails: the errors that say so. A damaged file does not tell what damaged it."""
LOOKS = {
    "openat": (errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOENT),
    "mmap": (errno.ENOMEM,),
    **dict.fromkeys(("stat", "lstat", "newfstatat", "statx"), (errno.EIO, errno.EACCES)),
}
"""By the call that only looks: the errors that it may give, where that is not EIO alone."""


class Outcome(StrEnum):
    """What came of an operation of which a call failed, the good ones first."""

    BEFORE = "before, with a typed error"
    AFTER = "after, acknowledged"
    NOT_REACHED = "not reached"
    PENDING = "pending"
    WRONG_ERROR = "wrong error"
    APPLIED = "applied in spite of an error"
    LOST = "acknowledged, but not there"
    HALF = "half of it is there"
    UNREADABLE = "unreadable"
    NO_RETRY = "the same handle cannot go on"
    NO_NEWCOMER = "a new handle cannot go on"
    UNSYNCED = "acknowledged, but not safe on the disk"
    UNSOUND = "unsound"
    DIED = "the process died"


GOOD = frozenset({Outcome.BEFORE, Outcome.AFTER, Outcome.NOT_REACHED, Outcome.PENDING})


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case: which call failed, how the operation answered, and what is wrong with that."""

    step: Step
    code: int
    ending: Ending
    faults: tuple[tuple[Outcome, str], ...]
    outcome: Outcome

    @property
    def answer(self) -> str:
        return "ok" if self.ending.error is None else self.ending.error.code

    def __str__(self) -> str:
        text = f"{errno.errorcode[self.code]} at {self.step}: {self.outcome} ({self.answer})"
        return "; ".join([text, *(f"{fault}: {why}" for fault, why in self.faults)])


@dataclass(frozen=True, slots=True)
class Enumerated:
    """A scenario with its graph built, its states known, and its calls recorded."""

    scenario: Scenario
    prepared: Prepared
    before: State | None
    after: State | None
    steps: tuple[Step, ...]
    reading: bool = False
    """Whether the calls are those that only look."""
    testimonies: dict[tuple[str, Disk], Testimony] = field(default_factory=dict)
    """What witnesses saw, by kind, on disks that are alike."""


class Enumeration:
    """Runs the cases: one process is the victim, others are witnesses.

    A victim takes case after case, so that not each begins with a process that has never used
    Lance. Each case gets its own look of the same handle, and of a new one where it comes before;
    witnesses look closely at one of all disks that are alike.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._families: dict[str, Children] = {}
        self._victim: tuple[tuple[str, bool], WatchedServant] | None = None
        self._writer: int | None = None
        self._written = 0
        self._hits = 0

    def close(self) -> None:
        for family in self._families.values():
            family.close()

    def ready(self, scenario: Scenario, *, reading: bool = False) -> Enumerated:
        """Build the graph and see what the operation does when nothing fails."""
        name = f"{scenario.name.replace(' ', '-')}{'-reads' if reading else ''}-"
        folder = Path(tempfile.mkdtemp(prefix=name, dir=self._folder))
        root = folder / "graph"
        self._end_victim()
        scenario.build(root, self._family("victims"))
        prepared = Prepared.of(root, folder / "as-it-was")
        before = self._state(scenario, root)
        victim = self._victim_of(scenario, reading, root)
        victim.prepare(Suffering(scenario.operation, scenario.touched, False), None, 0)
        ending = ending_of(victim)
        assert ending.error is None, self.said
        after = self._state(scenario, root)
        steps = tuple(victim.calls.steps)
        self._end_victim()
        return Enumerated(scenario, prepared, before, after, steps, reading)

    @property
    def said(self) -> str:
        """What the last of each kind of process wrote, tracebacks included."""
        return "\n".join(family.output for family in self._families.values())

    def _state(self, scenario: Scenario, root: Path) -> State | None:
        actual = self._witness(functools.partial(victims.reader, looks_of(scenario)), root)
        assert actual.error is None, actual.error
        return actual.state

    def judge(self, actual: Enumerated, step: Step, code: int, *, retries: bool) -> Verdict:
        """Let one call fail; ``retries`` lets the same handle go on before a new one comes."""
        try:
            verdict = self._judged(actual, step, code, retries)
        except Died as died:
            verdict = Verdict(step, code, Ending(), ((Outcome.DIED, str(died)),), Outcome.DIED)
        if verdict.outcome not in GOOD:
            # What is wrong with this case must not be held against the next.
            self._end_victim()
            self._end_writer()
        return verdict

    def _judged(self, actual: Enumerated, step: Step, code: int, retries: bool) -> Verdict:
        scenario, root = actual.scenario, actual.prepared.put_back().resolve()
        faults: list[tuple[Outcome, str]] = []
        run = self._victim_of(scenario, actual.reading, root)
        run.prepare(Suffering(scenario.operation, scenario.touched, retries), step, code)
        ending = ending_of(run)
        reached = run.calls.failed is not None
        looks = looks_of(scenario)
        disk = disk_of(root, actual.prepared.entries, run.pid)
        seen = self._look(actual, "reader", disk, functools.partial(victims.reader, looks))
        faults += judge_answer(actual, code, ending, seen)
        unsynced = run.calls.unsynced()
        is_safe = unsynced is None or may_come_back(root, unsynced, run.calls.changed)
        if ending.error is None and not is_safe:
            faults.append((Outcome.UNSYNCED, f"{unsynced} was not synced"))
        run.calls.ignore()
        if retries:
            faults += judge_veteran(run)
            disk = disk_of(root, actual.prepared.entries, run.pid)
        now = self._newcomer(actual, ending, disk, writes=not retries)
        faults += judge_newcomer(actual, ending, seen, retries, now)
        if not retries:
            faults += judge_veteran(run)
        run.finish()
        outcome = faults[0][0] if faults else _good(ending, reached)
        return Verdict(step, code, ending, tuple(faults), outcome)

    # -- victims ---------------------------------------------------------------------------

    def _family(self, name: str) -> Children:
        """The processes of one kind; only one of them lives at a time."""
        if name not in self._families:
            folder = self._folder / name
            folder.mkdir()
            self._families[name] = Children(folder)
        return self._families[name]

    def _victim_of(self, scenario: Scenario, reading: bool, root: Path) -> WatchedServant:
        """A process for the cases of one scenario; after some of them another."""
        key = (scenario.name, reading)
        if self._victim is not None:
            existing, victim = self._victim
            if existing == key and victim.obeyed < CASES_OF_A_PROCESS:
                return victim
            self._end_victim()
        orders = self._folder / "orders of a victim"
        child = functools.partial(victims.victim, orders, reading)
        victim = WatchedServant(self._family("victims"), child, root.resolve(), orders)
        self._victim = (key, victim)
        return victim

    def _end_victim(self) -> None:
        if self._victim is not None:
            self._victim[1].end()
            self._victim = None

    # -- witnesses -------------------------------------------------------------------------

    def _newcomer(
        self, actual: Enumerated, ending: Ending, disk: Disk, *, writes: bool
    ) -> Testimony:
        """What a new handle finds; it has written when ``writes`` is set."""
        scenario, looks = actual.scenario, looks_of(actual.scenario)
        pending = ending.error if isinstance(ending.error, OutcomePending) else None
        comes = functools.partial(victims.newcomer, looks, scenario.touched, pending)
        if pending is not None or (writes and looks.write is None):
            return self._witness(comes, actual.prepared.root)
        existing = actual.testimonies.get(("newcomer", disk))
        if writes and existing is not None and not self._is_audited():
            wrote = self._write(actual)
            return existing if wrote.error is None else wrote
        return self._look(actual, "newcomer", disk, comes, anew=writes)

    def _look(
        self, actual: Enumerated, kind: str, disk: Disk, child: Child, *, anew: bool = False
    ) -> Testimony:
        """What a process sees that has just been started; of disks that are alike, one is seen.

        From time to time another one is looked at, which has to be seen as the first was.
        """
        existing = actual.testimonies.get((kind, disk))
        if existing is not None and not anew and not self._is_audited():
            return existing
        testimony = self._witness(child, actual.prepared.root)
        if existing is not None and testimony != existing:
            return replace(testimony, error=f"not what was seen before: {testimony} {existing}")
        actual.testimonies[kind, disk] = testimony
        return testimony

    def _is_audited(self) -> bool:
        self._hits += 1
        return self._hits % AUDITED == 0

    def _witness(self, child: Child, root: Path) -> Testimony:
        """What a process sees that has just been started."""
        family = self._family("witnesses")
        pid = family.at_gate(child, root.resolve())
        try:
            code = family.proceed(pid)
        except AssertionError as hanging:
            family.drop(pid)
            return Testimony(error=str(hanging))
        return self._testimony(family, code)

    def _write(self, actual: Enumerated) -> Testimony:
        """Let a new handle write, in a process that has done so before."""
        family, root = self._family("writers"), actual.prepared.root.resolve()
        orders = self._folder / "orders of a writer"
        write = looks_of(actual.scenario).write
        assert write is not None
        orders.write_bytes(pickle.dumps(functools.partial(write, root, actual.scenario.touched)))
        if self._writer is not None and self._written >= CASES_OF_A_PROCESS:
            self._end_writer()
        if self._writer is None:
            child = functools.partial(victims.writer, orders)
            self._writer = family.at_gate(child, root)
            self._written = 0
        self._written += 1
        try:
            code = family.proceed(self._writer)
        except AssertionError as hanging:
            self._end_writer()
            return Testimony(error=str(hanging))
        if code is not None:
            self._writer = None
            return self._testimony(family, code or 1)
        return self._testimony(family, None)

    def _end_writer(self) -> None:
        if self._writer is not None:
            self._family("writers").drop(self._writer)
            self._writer = None

    @staticmethod
    def _testimony(family: Children, code: int | None) -> Testimony:
        if code:
            return Testimony(error=f"the process died: {code} {family.output[-300:]}")
        actual = family.reported()
        assert isinstance(actual, Testimony)
        return actual


def looks_of(scenario: Scenario) -> Looks:
    return scenario.looks if isinstance(scenario, Copying) else GRAPH


@contextmanager
def enumeration() -> Iterator[Enumeration]:
    """With processes of its own, and graphs in memory: nothing here depends on a real disk."""
    location = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="omnigraph-faults-", dir=location) as top:
        actual = Enumeration(Path(top))
        try:
            yield actual
        finally:
            actual.close()


Faults = Iterator[tuple[Outcome, str]]


def _good(ending: Ending, reached: bool) -> Outcome:
    if not reached:
        return Outcome.NOT_REACHED
    if ending.error is None:
        return Outcome.AFTER
    return Outcome.PENDING if ending.may_be_applied else Outcome.BEFORE


def may_come_back(root: Path, folder: str, changed: set[str]) -> bool:
    """Whether what was removed from a directory does no harm if a crash brings it back.

    Whoever finds a sidecar sees that it is done, and whoever finds the lock of a schema apply with
    its mark, but without a lease, removes it. A record of removed versions only becomes shorter at
    the end of a cleanup. A removal that was announced is finished by the next writer.
    """
    is_removal = bool(changed) and not any((root / n).exists() for n in changed - {HISTORY})
    if is_removal and any((root / FOLDER).glob("*.cleanup")):
        return True
    if folder == f"{MANIFEST}/_refs/branches":
        return (root / MARK).exists()
    return Path(folder).name in (FOLDER, HISTORY)


def is_right(error: OmniGraphError, code: int) -> bool:
    """Whether an error says what failed."""
    return type(error) in _RIGHT[code]


def codes_of(step: Step) -> tuple[int, ...]:
    """The errors that a call which only looks may give."""
    return LOOKS.get(step.call, (errno.EIO,))


def judge_answer(actual: Enumerated, code: int, ending: Ending, seen: Testimony) -> Faults:
    """What the operation said against what a reader sees."""
    error = ending.error
    if error is not None and not ending.may_be_applied and not is_right(error, code):
        yield Outcome.WRONG_ERROR, f"{type(error).__name__}: {error.message}"
    elif error is not None:
        try:
            ending.check_words()
        except AssertionError as shown:
            yield Outcome.WRONG_ERROR, f"words of a library: {shown}"
    if seen.error is not None:
        yield Outcome.UNREADABLE, seen.error
    elif seen.state not in (actual.before, actual.after):
        yield Outcome.HALF, difference(actual, seen.state)
    elif actual.before == actual.after or actual.scenario.recovers:
        return
    elif error is None and seen.state == actual.before:
        yield Outcome.LOST, "a reader sees the state before"
    elif not ending.may_be_applied and seen.state == actual.after:
        yield Outcome.APPLIED, "a reader sees the state after"


def ending_of(run: WatchedChild) -> Ending:
    """How the victim ended what it did until its next stop or its end."""
    actual = run.proceed()
    assert isinstance(actual, Ending)
    return actual


def judge_veteran(run: WatchedChild) -> Faults:
    """The handle that met the fault repeats the operation, or goes on writing."""
    try:
        again = ending_of(run)
    except Died as died:
        yield Outcome.DIED, str(died)
        return
    if again.error is not None:
        yield Outcome.NO_RETRY, f"{type(again.error).__name__}: {again.error.message}"


def judge_newcomer(
    actual: Enumerated, ending: Ending, seen: Testimony, retried: bool, now: Testimony
) -> Faults:
    """A new handle finds what is to be there, sound, and writes."""
    if now.error is not None:
        yield Outcome.NO_NEWCOMER, now.error
        return
    for problem in now.problems:
        yield Outcome.UNSOUND, problem
    is_done = ending.error is None or (retried and not ending.may_be_applied)
    if is_done or actual.scenario.recovers or actual.before is None:
        allowed = [actual.after]
    elif ending.may_be_applied:
        allowed = [actual.before, actual.after]
    else:
        allowed = [actual.before]
    if seen.state == actual.after:
        allowed = [actual.after]
    if now.state not in allowed:
        yield Outcome.HALF, f"a new handle: {difference(actual, now.state)}"
    elif actual.before != actual.after and now.resolved not in (None, now.state == actual.after):
        yield Outcome.UNSOUND, f"the pending commit is {'' if now.resolved else 'not '}known"


def difference(actual: Enumerated, state: State | None) -> str:
    """How a state differs from those before and after, in short."""
    if state is None:
        return "there is no graph"
    parts = []
    for label, other in (("before", actual.before), ("after", actual.after)):
        if other is None:
            parts.append(f"{label}: no graph")
            continue
        names = [
            name
            for name in ("rows", "indexes", "tags", "schema")
            if getattr(state, name) != getattr(other, name)
        ]
        parts.append(f"from {label} in {' and '.join(names) or 'nothing'}")
    return "differs " + ", ".join(parts)
