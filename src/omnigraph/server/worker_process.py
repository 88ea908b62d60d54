"""A worker process, seen by its supervisor: its process id, its channel, its answers."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from omnigraph.server.control import (
    Ask,
    Channel,
    ChannelClosed,
    Collected,
    Done,
    KeptGraph,
    OpenedGraphs,
    Order,
    Refused,
)
from omnigraph.server.lifecycle import CannotServe
from omnigraph.server.metrics import Family

MODULE = "omnigraph.server.worker_start"

OnAsk: TypeAlias = "Callable[[WorkerProcess, Ask], Awaitable[None]]"


class WorkerEnded(Exception):
    """The process ended before it answered."""


class WorkerProcess:
    """One process. Its reports are read by a task of its own until it ends."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, channel: Channel, on_ask: OnAsk
    ) -> None:
        self.name = name
        self.last_families: list[Family] = []
        """The metrics that it reported last."""
        self._process = process
        self._channel = channel
        self._on_ask = on_ask
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[tuple[KeptGraph, ...]]] = {}
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[OpenedGraphs] = loop.create_future()
        # Nobody waits for a process that ends later.
        self._opened.add_done_callback(lambda future: future.exception())
        self._tasks: set[asyncio.Future[None]] = {loop.create_task(self._follow())}
        self._has_ended = False

    @classmethod
    async def start(
        cls, name: str, executable: str, inherited: set[int], on_ask: OnAsk
    ) -> WorkerProcess:
        """Start a new interpreter that inherits some descriptors."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                # Without the current directory on its path: a server may be started anywhere.
                *(executable, "-P", "-m", MODULE),
                stdin=theirs.fileno(),
                pass_fds=sorted(inherited - {0, 1, 2}),
            )
        return cls(name, process, await Channel.over(ours), on_ask)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_open(self) -> bool:
        """Whether it has opened its graphs and not ended."""
        return (
            not self._has_ended
            and self._opened.done()
            and not self._opened.cancelled()
            and self._opened.exception() is None
        )

    # -- talking to it -----------------------------------------------------------------------

    def send(self, order: Order) -> None:
        self._channel.send(order)

    async def opened(self) -> OpenedGraphs:
        """Wait until it has opened its graphs; ``CannotServe`` if it does not."""
        return await asyncio.shield(self._opened)

    async def order(self, create: Callable[[int], Order]) -> tuple[KeptGraph, ...]:
        """Send an order and wait for its outcome; ``WorkerEnded`` if the process ends.

        Returns the graphs that stay as they are in a prepared generation.
        """
        if self._has_ended:
            raise WorkerEnded
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[KeptGraph, ...]] = loop.create_future()
        self._waiting[number] = future
        self._channel.send(create(number))
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    async def ended(self) -> int:
        """Wait for its end; returns its exit code."""
        code = await self._process.wait()
        self._end()
        return code

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            if self._process.returncode is None:
                self._process.kill()

    # -- listening to it -----------------------------------------------------------------------

    async def _follow(self) -> None:
        try:
            while True:
                report = await self._channel.report()
                match report:
                    case OpenedGraphs():
                        self._set_opened(report)
                    case Refused():
                        self._set_opened(CannotServe(report.message))
                    case Done():
                        self._answer(report.number, report.error, report.kept)
                    case Collected():
                        self.last_families = report.families
                        self._answer(report.number, None)
                    case Ask():
                        self._spawn(self._on_ask(self, report))
        except ChannelClosed:
            self._end()

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_opened(self, outcome: OpenedGraphs | CannotServe) -> None:
        if self._opened.done():
            return
        if isinstance(outcome, OpenedGraphs):
            self._opened.set_result(outcome)
        else:
            self._opened.set_exception(outcome)

    def _answer(self, number: int, error: str | None, kept: tuple[KeptGraph, ...] = ()) -> None:
        future = self._waiting.get(number)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(kept)
        else:
            future.set_exception(CannotServe(error))

    def _end(self) -> None:
        self._has_ended = True
        self._set_opened(CannotServe(f"the process {self.name} ended while it started"))
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(WorkerEnded())
        self._channel.close()
