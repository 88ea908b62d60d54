"""Operations in processes of their own, to be killed, stopped, or given a disk that fails.

A child comes from the zygote of the crash tests and waits at its gate; see ``crash.harness``.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator

from omnigraph.commit.failpoints import Failpoint, install
from omnigraph.storage.roots import Root
from tests.crash.harness import Harness
from tests.faults.aftermath import NEXT, Ending, ending_of, go_on
from tests.faults.place import open_graph
from tests.faults.scenarios import BOTH, SCENARIOS
from tests.s3.proxy import Fault

Child = Callable[[Root], Iterator[None]]


def scenario(number: int, root: Root) -> Iterator[None]:
    """One of the scenarios."""
    chosen = SCENARIOS[number]
    graph = chosen.prepare(root)
    yield
    chosen.run(root, graph)


def paused(number: int, point: Failpoint, root: Root) -> Iterator[None]:
    """A scenario that stops its process at a boundary, once, and tells how it ended."""
    waiting = [point]

    def stop(crossed: Failpoint) -> None:
        if waiting == [crossed]:
            waiting.clear()
            os.kill(os.getpid(), signal.SIGSTOP)

    chosen = SCENARIOS[number]
    graph = chosen.prepare(root)
    yield
    install(stop)
    tell(ending_of(lambda: chosen.run(root, graph)))


def twice(number: int, root: Root) -> Iterator[None]:
    """A scenario that may fail, and after a stop a write by the same process that must not."""
    graph = open_graph(root)
    yield
    ending = ending_of(lambda: SCENARIOS[number].run(root, graph))
    os.kill(os.getpid(), signal.SIGSTOP)
    go_on(graph, BOTH, f"{NEXT} by a veteran")
    tell(ending)


def tell(ending: Ending) -> None:
    """Hand an ending to the parent, without what caused it: no library must be needed there."""
    if ending.error is not None:
        ending.error.__cause__ = ending.error.__context__ = None
    print(b64encode(pickle.dumps(ending)).decode())


class Children(Harness):
    """Runs such operations."""

    def at_gate(self, child: Child, root: Root) -> int:
        """Start a child and bring it to its gate; gives its process id."""
        self._order(child, root, None, 1)  # type: ignore[arg-type]
        pid = int(self._line())
        assert self._next_stop_or_end() is None, self._said()
        return pid

    def kill_at(self, pid: int, fault: Fault) -> bool:
        """Let a child go until its request is held up by a fault; whether it came to that."""
        os.kill(pid, signal.SIGCONT)
        while not fault.reached.wait(0.005):
            if select.select([self._channel], [], [], 0)[0]:
                code = self._end()
                assert code == 0, self._said()
                return False
        os.kill(pid, signal.SIGKILL)
        self._end()
        return True

    def stop_at_boundary(self, pid: int) -> bool:
        """Let a child go until it stops itself; whether it did before it ended."""
        os.kill(pid, signal.SIGCONT)
        return self._next_stop_or_end() is None

    def ending(self, pid: int) -> Ending:
        """Let a stopped child go on to its end."""
        os.kill(pid, signal.SIGCONT)
        code = self._end()
        said = self._said()
        assert code == 0, said
        found = pickle.loads(b64decode(said.split()[-1]))
        assert isinstance(found, Ending)
        return found

    def drop(self, pid: int) -> None:
        """Kill a child that a failed test leaves behind."""
        os.kill(pid, signal.SIGKILL)
        self._end()
