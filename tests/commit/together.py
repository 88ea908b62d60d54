"""Writes that become one group: they wait in their order, then the first of them leads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from omnigraph import Graph, Receipt
from omnigraph.commit.group_members import group_of
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.write_queue import QueuedWrite, WriteQueue

PATIENCE = 60.0
Call = Callable[[], Receipt]

SCHEMA = """\
node Person { name: String @key  age: I32?  email: String? @unique }
node Company { name: String @key }
edge Knows: Person -> Person
edge WorksAt: Person -> Company @card(0..1)
"""


class Waiting:
    """Calls in threads of their own, and what came of each: a receipt or an error."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.outcomes: list[Any] = [None] * len(calls)
        self.threads = [
            threading.Thread(target=self._run, args=(number, call), daemon=True)
            for number, call in enumerate(calls)
        ]

    def _run(self, number: int, call: Call) -> None:
        try:
            self.outcomes[number] = call()
        except BaseException as error:
            self.outcomes[number] = error

    def start(self, queue: WriteQueue) -> None:
        """Start all; each waits behind the one before."""
        for thread in self.threads:
            waiting = len(queue)
            thread.start()
            until(lambda t=thread, n=waiting: len(queue) > n or not t.is_alive())

    def join(self) -> list[Any]:
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a write hangs"
        return self.outcomes


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never holds"
        time.sleep(0.001)


@contextmanager
def kept(graph: Graph, branch: str | None = None) -> Iterator[WriteQueue]:
    """Somebody commits on a branch, so that writes wait until the block ends."""
    queue = graph._handle.store.queues.of(branch)
    holder = QueuedWrite(None, thread=0)  # type: ignore[arg-type]
    until(lambda: queue.enter(holder) if not queue.is_led else False)
    try:
        yield queue
    finally:
        queue.leave(holder)


def together(graph: Graph, *calls: Call, branch: str | None = None) -> list[Any]:
    """Run calls as one group, as far as they may be members of one."""
    waiting = Waiting(calls)
    with kept(graph, branch) as queue:
        waiting.start(queue)
    return waiting.join()


def rows_of(graph: Graph, branch: str | None = None) -> list[CommitRow]:
    """The commits of a branch, oldest first."""
    return graph._handle.store.manifest(branch).commits()


def sizes(graph: Graph, branch: str | None = None) -> list[tuple[int, int]]:
    """The position of each commit in its group, and the size of that."""
    groups = [group_of(row) for row in rows_of(graph, branch)]
    return [(0, 1) if group is None else (group.index, group.size) for group in groups]
