"""Kill a real process at every durable step of an operation.

An *operation* is a module-level generator function (or a ``functools.partial`` of one) that takes
the root directory and yields once::

    def append(root: Path) -> Iterator[None]:
        dataset = lance.dataset(root)           # preparation: not traced, never killed
        yield
        ...                                     # the one operation under test

It runs in a child process of its own; see ``zygote`` for how a child is born in milliseconds.

There are two kinds of places to die at. A *failpoint* is a boundary that our code names; the
child kills itself there. A *step* is a system call that makes something durable or visible below
the root; most of them happen inside Lance, on whichever of its threads is free.

How a process is killed at a step. ``strace --inject=CALLS:signal=KILL:when=N`` is not enough: it
skips the call (measured: the process dies before the call takes effect) but counts the calls of
each thread apart, and Lance hops between threads from call to call, so no N reaches every step.
Instead strace injects ``SIGSTOP`` into every call of interest. Such a call takes effect, then the
whole process stands still; the trace shows which call it was, and the harness decides to continue
the process or to kill it. Counting is done here, over all threads.

So a process always dies *after* a step. That leaves nothing out: only steps change files, hence
dying before step k + 1 leaves the files that dying after step k does, and dying before the first
step leaves them as they were. A walk over all steps copies the files at each stop instead of
killing a process for each. Two threads inside calls at once stop together, after both; a walk
then tries again to find them apart. Which of the two comes first is theirs to choose, and not
enumerated.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Self

from omnigraph.commit.failpoints import Failpoint
from tests.crash.steps import CALLS, SYNCS, Step
from tests.crash.tracer import Tracer
from tests.crash.zygote import ENVIRONMENT, STOPPED

Operation = Callable[[Path], Iterator[None]]

PATIENCE = 60.0
"""Seconds that a child may be silent before it counts as hung; far more than any run takes."""

MOST_STEPS = 5_000
"""A walk that has not ended by then never will."""

TRIES = 5
"""How often a walk runs again because two threads stopped together, past the step it wanted."""

_REPOSITORY = Path(__file__).parents[2]

Entries = Mapping[str, tuple[int, ...]]
"""By path, relative to a root: size and time of a file."""
DIRECTORY = (-1,)


class Ending(Enum):
    """How a run ended."""

    KILLED = "killed"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is left to tell of a run: its end, what it said, what it passed until then."""

    ending: Ending
    output: str
    reached: tuple[Failpoint, ...]
    steps: tuple[Step, ...]

    @property
    def killed(self) -> bool:
        return self.ending is Ending.KILLED

    @property
    def completed(self) -> bool:
        return self.ending is Ending.COMPLETED

    def must_not_fail(self) -> Self:
        """Itself; an operation that failed by itself is an error of the test."""
        if self.ending is Ending.FAILED:
            raise AssertionError(f"the operation failed by itself:\n{self.output}")
        return self


@dataclass(frozen=True, slots=True)
class Prepared:
    """A directory as it was at one moment, to be put back before every run.

    It comes back under the same path: branches of Lance remember where they were made. A file that
    still has its size and time is left where it is.
    """

    root: Path
    copy: Path
    entries: Entries

    @classmethod
    def of(cls, root: Path, copy: Path) -> Self:
        """Remember ``root`` in ``copy``, which must not exist."""
        shutil.copytree(root, copy, symlinks=True)
        return cls(root, copy, entries_of(copy))

    def put_back(self) -> Path:
        """Make the root what it was; returns it."""
        self.root.mkdir(exist_ok=True)
        changed = {
            name: entry
            for name, entry in entries_of(self.root).items()
            if self.entries.get(name) != entry
        }
        for name in sorted(changed, reverse=True):  # what lies in a directory, before it
            path = self.root / name
            if changed[name] == DIRECTORY:
                path.rmdir()
            else:
                path.unlink()
        for name, entry in self.entries.items():  # a directory, before what lies in it
            path = self.root / name
            if entry == DIRECTORY:
                path.mkdir(exist_ok=True)
            elif name in changed or not os.path.lexists(path):
                shutil.copy2(self.copy / name, path, follow_symlinks=False)
        return self.root


def entries_of(root: Path) -> Entries:
    """All that lies below a root; a directory comes before what lies in it."""
    entries: dict[str, tuple[int, ...]] = {}

    def add(folder: str, above: str) -> None:
        with os.scandir(folder) as existing:
            for entry in existing:
                name = f"{above}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    entries[name] = DIRECTORY
                    add(entry.path, f"{name}/")
                else:
                    status = entry.stat(follow_symlinks=False)
                    entries[name] = (status.st_size, status.st_mtime_ns)

    add(str(root), "")
    return entries


class StepCopies:
    """Copies of a root after steps of an operation, taken while its process stands still."""

    def __init__(self, folder: Path, start: int, stride: int) -> None:
        self._folder = folder
        self._start = start
        self._stride = stride
        self._taken: dict[int, tuple[Path, tuple[Step, ...]]] = {}
        self._last = folder / "last"

    def of(self, root: Path) -> StepCopier:
        return StepCopier(self, root)

    def take(self, root: Path, steps: list[Step]) -> None:
        """Copy the root if that is wanted after so many steps, and not there yet."""
        count = len(steps)
        if count in self._taken or (count - self._start) % self._stride or count < self._start:
            return
        copy = self._folder / str(count)
        shutil.copytree(root, copy, symlinks=True)
        self._taken[count] = (copy, tuple(steps))

    def has_all(self, total: int) -> bool:
        """Whether no step was missed because two threads stopped together."""
        return all(count in self._taken for count in range(self._start, total + 1, self._stride))

    def in_order(self, total: int) -> list[tuple[Step, ...]]:
        return [self._taken[count][1] for count in sorted(self._taken) if count <= total]

    def put(self, steps: tuple[Step, ...], root: Path) -> None:
        """Make the root what it was after some steps."""
        self._replace(root, self._taken[len(steps)][0])

    def keep_last(self, root: Path) -> None:
        root.rename(self._last)

    def put_last(self, root: Path) -> None:
        self._replace(root, self._last)

    @staticmethod
    def _replace(root: Path, copy: Path) -> None:
        if root.exists():
            shutil.rmtree(root)
        copy.rename(root)


@dataclass(frozen=True, slots=True)
class StepCopier:
    """What is done at each stop of one run."""

    copies: StepCopies
    root: Path

    def stop(self, steps: list[Step]) -> bool:
        """Never the end of the run."""
        self.copies.take(self.root, steps)
        return False


class Harness:
    """Runs operations in child processes and kills them where it is told to."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        self._crossings = folder / "crossings"
        self._trace = folder / "trace"
        ours, theirs = socket.socketpair()
        with theirs:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.zygote", str(theirs.fileno())],
                cwd=_REPOSITORY,
                env=os.environ
                | ENVIRONMENT
                | {"PYTHONPATH": f"{_REPOSITORY}{os.pathsep}{_REPOSITORY / 'src'}"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.settimeout(PATIENCE)
        self._channel = ours
        self._received = b""

    def close(self) -> None:
        """End the zygote and, should one be left, its child."""
        self._channel.close()
        os.killpg(self._zygote.pid, signal.SIGKILL)
        self._zygote.wait()

    def run(self, operation: Operation, root: Path) -> Outcome:
        """Run an operation and let it be; it may fail by itself."""
        return self._run(operation, root)

    # -- failpoints ------------------------------------------------------------------------

    def crossings(self, operation: Operation, root: Path) -> tuple[Failpoint, ...]:
        """Which failpoints a complete run crosses, in order."""
        return self._completed(self._run(operation, root)).reached

    def kill_at_failpoint(
        self, operation: Operation, root: Path, point: Failpoint, occurrence: int = 1
    ) -> Outcome:
        """Run until the n-th crossing of a failpoint; complete when it is not crossed so often."""
        return self._run(operation, root, point=point, occurrence=occurrence).must_not_fail()

    def walk_failpoints(
        self, operation: Operation, prepared: Prepared
    ) -> Iterator[tuple[Failpoint, int]]:
        """The root as a kill at each crossing leaves it; the caller looks at it after each.

        The files are copied at every stop of one run, as a walk over steps does.
        """
        with tempfile.TemporaryDirectory(dir=prepared.root.parent) as folder:
            copies: list[Path] = []
            root = prepared.put_back()

            def take() -> None:
                copies.append(Path(folder, str(len(copies))))
                shutil.copytree(root, copies[-1], symlinks=True)

            reached = self._completed(self._run(operation, root, at_failpoints=take)).reached
            for index, (point, copy) in enumerate(zip(reached, copies, strict=True)):
                shutil.rmtree(root)
                copy.rename(root)
                yield point, reached[: index + 1].count(point)

    # -- durable steps ---------------------------------------------------------------------

    def durable_steps(self, operation: Operation, root: Path) -> tuple[Step, ...]:
        """Every step of a complete run, in order."""
        return self._completed(self._run(operation, root, wanted=lambda steps: False)).steps

    def kill_at_step(self, operation: Operation, root: Path, step: Step) -> Outcome:
        """Run until a step has taken effect; complete when it never comes."""
        return self._run(operation, root, wanted=lambda steps: step in steps).must_not_fail()

    def kill_after(self, operation: Operation, root: Path, count: int) -> Outcome:
        """Run until so many steps that change files have taken effect."""

        def enough(steps: list[Step]) -> bool:
            return sum(not step.syncs for step in steps) >= count

        return self._run(operation, root, wanted=enough, calls=CALLS - SYNCS).must_not_fail()

    def walk_steps(
        self, operation: Operation, prepared: Prepared, *, start: int = 1, stride: int = 1
    ) -> Iterator[Outcome]:
        """The root as a kill after each step that changes files leaves it; the completed run last.

        Nobody is killed: a process that stands still after a step leaves the same files as one
        that died there, so they are copied at every stop of one run, and put in the place of the
        root one after the other when that run has ended. The caller looks at the root each time.
        Steps that only sync are left out: they change nothing that a killed process leaves behind.
        A stride makes a sample of the walk.
        """
        with tempfile.TemporaryDirectory(dir=prepared.root.parent) as folder:
            copies = StepCopies(Path(folder), start, stride)
            for _ in range(TRIES):
                run = copies.of(prepared.put_back())
                outcome = self._run(operation, run.root, wanted=run.stop, calls=CALLS - SYNCS)
                self._completed(outcome)
                total = len(outcome.steps)
                if total >= MOST_STEPS:
                    raise AssertionError(f"still running after {MOST_STEPS} steps")
                if copies.has_all(total):
                    break
            copies.keep_last(prepared.root)
            for steps in copies.in_order(total):
                copies.put(steps, prepared.root)
                yield replace(outcome, ending=Ending.KILLED, steps=steps)
            copies.put_last(prepared.root)
            yield outcome

    # -- one run ---------------------------------------------------------------------------

    def _run(
        self,
        operation: Operation,
        root: Path,
        *,
        point: Failpoint | None = None,
        occurrence: int = 1,
        wanted: Callable[[list[Step]], bool] | None = None,
        calls: frozenset[str] = CALLS,
        at_failpoints: Callable[[], None] | None = None,
    ) -> Outcome:
        """Bring a child to the gate, watch it when steps are wanted, and see it to its end."""
        root = root.resolve()
        tracer = None
        self._crossings.unlink(missing_ok=True)
        self._order(operation, root, point, occurrence, stops=at_failpoints is not None)
        pid = int(self._line())
        try:
            code = self._next_stop_or_end()
            if code is None and at_failpoints is not None:
                code = self._call_at_stops(pid, at_failpoints)
            elif code is None and wanted is not None:
                tracer = Tracer(pid, root, calls, self._trace)
                code = self._observe(pid, tracer, wanted)
            elif code is None:
                os.kill(pid, signal.SIGCONT)
                code = self._end()
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            self._end()
            raise
        finally:
            if tracer is not None:
                tracer.close()
        return self._outcome(code, tracer.steps if tracer else [])

    def _observe(self, pid: int, tracer: Tracer, wanted: Callable[[list[Step]], bool]) -> int:
        """Let a child go on from stop to stop, until it ends or has done what is wanted."""
        while True:
            os.kill(pid, signal.SIGCONT)
            code = self._next_stop_or_end()
            if code is not None:
                return code
            if tracer.read() and wanted(tracer.steps):
                os.kill(pid, signal.SIGKILL)
                return self._end()

    def _call_at_stops(self, pid: int, call: Callable[[], None]) -> int:
        """Let a child go on from stop to stop until it ends."""
        while True:
            os.kill(pid, signal.SIGCONT)
            code = self._next_stop_or_end()
            if code is not None:
                return code
            call()

    def _order(
        self,
        operation: Operation,
        root: Path,
        point: Failpoint | None,
        occurrence: int,
        *,
        stops: bool = False,
    ) -> None:
        order = {
            "operation": b64encode(pickle.dumps((operation, root))).decode(),
            "output": str(self._output),
            "crossings": str(self._crossings),
            "point": point,
            "occurrence": occurrence,
            "stops": stops,
        }
        self._channel.sendall(json.dumps(order).encode() + b"\n")

    def _line(self) -> bytes:
        """The next line from the zygote."""
        while b"\n" not in self._received:
            try:
                received = self._channel.recv(4096)
            except TimeoutError:
                raise AssertionError(f"the child hangs; it said:\n{self._said()}") from None
            if not received:
                raise AssertionError("the zygote is gone; what it said stands above")
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _next_stop_or_end(self) -> int | None:
        """``None`` when the child has stopped, else its exit code."""
        line = self._line()
        return None if line == STOPPED else int(line)

    def _end(self) -> int:
        """The exit code of a child that goes on or was killed, past any stop still reported."""
        while True:
            code = self._next_stop_or_end()
            if code is not None:
                return code

    def _said(self) -> str:
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def _outcome(self, code: int, steps: list[Step]) -> Outcome:
        ending = {0: Ending.COMPLETED, -signal.SIGKILL: Ending.KILLED}.get(code, Ending.FAILED)
        reached = self._crossings.read_text().split() if self._crossings.exists() else []
        return Outcome(
            ending,
            self._said(),
            tuple(Failpoint(name) for name in reached),
            tuple(steps),
        )

    def _completed(self, outcome: Outcome) -> Outcome:
        if not outcome.must_not_fail().completed:
            raise AssertionError(f"the operation was killed by somebody:\n{outcome.output}")
        return outcome
