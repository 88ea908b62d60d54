"""Operations in processes of their own, to be killed, stopped, or given a disk that fails.

A child comes from the zygote of the crash tests and waits at its gate; see ``crash.harness``.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator

from omnigraph.commit.failpoints import Failpoint, install
from omnigraph.storage.objects.paths import Root
from tests.crash.harness import Harness
from tests.faults.aftermath import Ending, ending_of
from tests.faults.scenarios import SCENARIOS
from tests.s3.proxy import Fault

Child = Callable[[Root], Iterator[None]]


def scenario(number: int, root: Root) -> Iterator[None]:
    """One of the scenarios; tells how it ended."""
    _, run = SCENARIOS[number].start(root)
    yield
    report_ending(ending_of(run))


def paused(number: int, point: Failpoint, root: Root) -> Iterator[None]:
    """A scenario that stops its process at a boundary, once, and tells how it ended."""
    waiting = [point]

    def stop(boundary: Failpoint) -> None:
        if waiting == [boundary]:
            waiting.clear()
            os.kill(os.getpid(), signal.SIGSTOP)

    _, run = SCENARIOS[number].start(root)
    yield
    install(stop)
    report_ending(ending_of(run))


def report_ending(ending: Ending) -> None:
    """Hand an ending to the parent, without what caused it: no library must be needed there."""
    if ending.error is not None:
        ending.error.__cause__ = ending.error.__context__ = None
    report(ending)


def report(actual: object) -> None:
    """Hand something to the parent: the last line of what is written."""
    sys.stderr.flush()
    print(f"\n{b64encode(pickle.dumps(actual)).decode()}", flush=True)


class Children(Harness):
    """Runs such operations."""

    def at_gate(self, child: Child, root: Root) -> int:
        """Start a child and bring it to its gate; gives its process id."""
        self._order(child, root, None, 1)  # type: ignore[arg-type]
        pid = int(self._line())
        assert self._next_stop_or_end() is None, self.output
        return pid

    def kill_or_end(self, pid: int, fault: Fault) -> bool:
        """Kill a child when its request is held up by a fault; whether that ever happened."""
        os.kill(pid, signal.SIGCONT)
        while not fault.reached.wait(0.005):
            if select.select([self._channel], [], [], 0)[0]:
                assert self._end() == 0, self.output
                return False
        os.kill(pid, signal.SIGKILL)
        self._end()
        return True

    def kill_at(self, pid: int, fault: Fault) -> Ending | None:
        """Kill a child when its request is held up by a fault; how it ended if it never was."""
        os.kill(pid, signal.SIGCONT)
        while not fault.reached.wait(0.005):
            if select.select([self._channel], [], [], 0)[0]:
                return self._ended()
        os.kill(pid, signal.SIGKILL)
        self._end()
        return None

    def stop_at_boundary(self, pid: int) -> bool:
        """Let a child go until it stops itself; whether it did before it ended."""
        os.kill(pid, signal.SIGCONT)
        return self._next_stop_or_end() is None

    def ending(self, pid: int) -> Ending:
        """Let a stopped child go on to its end."""
        os.kill(pid, signal.SIGCONT)
        return self._ended()

    def _ended(self) -> Ending:
        code = self._end()
        assert code == 0, self.output
        actual = self.reported()
        assert isinstance(actual, Ending)
        return actual

    def proceed(self, pid: int, serve: Callable[[socket.socket], None] | None = None) -> int | None:
        """Let a stopped child go to its next stop (``None``) or its end (the exit code).

        ``serve`` does meanwhile what the child needs, until there is something to read.
        """
        os.kill(pid, signal.SIGCONT)
        if serve is not None:
            serve(self._channel)
        return self._next_stop_or_end()

    def reported(self) -> object:
        """What the last child reported last; nothing if it never did."""
        lines = self.output.split()
        return pickle.loads(b64decode(lines[-1])) if lines else None

    @property
    def output(self) -> str:
        """All that the last child has written."""
        return self._said()

    def drop(self, pid: int) -> None:
        """Kill a child that a failed test leaves behind."""
        os.kill(pid, signal.SIGKILL)
        self._end()
