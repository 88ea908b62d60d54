"""A worker process, started by ``worker_start``.

Its standard input is the control channel. It ignores the signals of a terminal and of service
managers: the supervisor decides when it ends. If the supervisor dies, the channel closes, and the
worker finishes what is in flight and ends by itself.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Literal

import uvloop
from starlette.types import ASGIApp

from omnigraph.errors import OmniGraphError
from omnigraph.server.control import (
    Activate,
    Answer,
    Ask,
    Channel,
    ChannelClosed,
    Collect,
    Collected,
    Configure,
    Done,
    Drain,
    KeptGraph,
    LoadApplication,
    Notice,
    Order,
    Prepare,
    Refused,
    Serve,
)
from omnigraph.server.forwarding import Forwarder
from omnigraph.server.lifecycle import (
    CLEAN,
    CUT_OFF,
    FAILED,
    Application,
    CannotServe,
    ProcessParts,
    keep_objects,
)
from omnigraph.server.listener import Listener
from omnigraph.server.metrics import Metrics
from omnigraph.server.processors import OwnProcessor
from omnigraph.server.request_log import ERROR, RequestLog, follow_engine

_CONTROL = 0
"""The descriptor of the control channel."""
_LAST_SECONDS = 5.0
"""The time to end after everything is drained, or should be."""


class Worker:
    """One worker process, seen from inside."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count(1)
        self._questions: dict[int, asyncio.Future[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._metrics = Metrics()
        self._forwarder: Forwarder | None = None
        self._listener: Listener | None = None
        self._drain_seconds = 0.0
        self._processor: int | None = None

    # -- what the application may ask for ----------------------------------------------------

    @property
    def forwarder(self) -> ASGIApp | None:
        return self._forwarder

    async def reload(self) -> None:
        await self._ask("reload")

    async def gather_metrics(self) -> bytes:
        return await self._ask("metrics")

    async def _ask(self, what: Literal["metrics", "reload"]) -> bytes:
        number = next(self._numbers)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._questions[number] = future
        self._channel.send(Ask(number, what))
        try:
            return await future
        finally:
            self._questions.pop(number, None)

    # -- life --------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until the supervisor orders the end, or is gone; returns the exit code."""
        try:
            configure = await self._configuration()
            application = await self._open(configure)
        except ChannelClosed:
            return FAILED
        if application is None:
            return FAILED
        try:
            while not isinstance(order := await self._channel.order(), Drain):
                self._obey(order, application)
        except ChannelClosed:
            _end_after(self._drain_seconds + _LAST_SECONDS, CUT_OFF)
        await self._drain(application)
        return CLEAN

    async def _configuration(self) -> Configure:
        while True:
            order = await self._channel.order()
            if isinstance(order, LoadApplication):
                # Threads that are started from here on do the same.
                _give_way(order.niceness)
                # Takes most of the time of a start; graphs may be opened by another process first.
                with suppress(Exception):  # reported when it is created
                    importlib.import_module(order.application.partition(":")[0])
            elif isinstance(order, Configure):
                return order

    async def _open(self, order: Configure) -> Application | None:
        log = RequestLog(order.config.log, order.name)
        follow_engine(log)
        self._drain_seconds = order.config.drain_seconds
        self._processor = order.processor
        self._metrics.counts_requests = order.role == "reader"
        if order.role == "reader":
            self._forwarder = Forwarder(order.writer_path, self._metrics.forwarded)
        module, _, name = order.application.partition(":")
        parts = ProcessParts(
            order.role, order.config, log, self._metrics, self, order.announcements
        )
        try:
            application: Application = getattr(importlib.import_module(module), name)(parts)
            opened = await application.open(order.generation)
        except OmniGraphError as error:
            self._channel.send(Refused(error.message))
            await self._channel.flush()
            return None
        except Exception as error:
            log.event(
                "worker failed to start", level=ERROR, error=f"{type(error).__name__}: {error}"
            )
            self._channel.send(Refused(f"internal error ({type(error).__name__})"))
            await self._channel.flush()
            return None
        self._listener = Listener(application.asgi, [socket.socket(fileno=order.listening)])
        keep_objects()
        self._channel.send(opened)
        return application

    def _obey(self, order: Order, application: Application) -> None:
        match order:
            case Serve():
                assert self._listener is not None
                self._listener.start()
                if self._processor is not None:
                    OwnProcessor(self._processor).take(asyncio.get_running_loop())
            case Prepare():
                self._spawn(self._prepare(order, application))
            case Activate():
                application.activate(is_kept=order.is_kept)
                self._channel.send(Done(order.number))
            case Collect():
                self._channel.send(Collected(order.number, self._metrics.snapshot()))
            case Answer():
                self._answered(order)
            case Notice():
                if self._forwarder is not None:
                    self._forwarder.set_writer(is_up=order.writer_is_up)
                application.notice(order.reload_failure)
            case Configure() | Drain() | LoadApplication():
                pass

    async def _prepare(self, order: Prepare, application: Application) -> None:
        error: str | None = None
        kept: tuple[KeptGraph, ...] = ()
        try:
            kept = tuple(await application.prepare(order.generation))
        except OmniGraphError as failure:
            error = failure.message
        except Exception as failure:
            error = f"internal error ({type(failure).__name__})"
        self._channel.send(Done(order.number, error, kept))

    def _answered(self, order: Answer) -> None:
        future = self._questions.get(order.number)
        if future is None or future.done():
            return
        if order.error is None:
            future.set_result(order.body)
        else:
            future.set_exception(CannotServe(order.error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drain(self, application: Application) -> None:
        """Finish what is in flight. Requests may still ask the supervisor meanwhile."""
        application.begin_drain()
        following = asyncio.ensure_future(self._follow_orders())
        if self._listener is not None:
            await self._listener.drain()
        await application.drain()
        following.cancel()
        if self._forwarder is not None:
            self._forwarder.close()
        # Everything in flight is finished: nothing is cut off by what hangs from here on.
        _end_after(_LAST_SECONDS, CLEAN)
        await application.close()

    async def _follow_orders(self) -> None:
        try:
            while True:
                order = await self._channel.order()
                if isinstance(order, Answer):
                    self._answered(order)
                elif isinstance(order, Prepare | Activate):
                    self._channel.send(Done(order.number, "the process is ending"))
        except ChannelClosed:
            for future in self._questions.values():
                if not future.done():
                    future.set_exception(CannotServe("the supervisor is gone"))


def _give_way(niceness: int) -> None:
    """Let processes that are less nice run first, if the processors do not suffice for all."""
    os.nice(niceness)
    if niceness and hasattr(os, "SCHED_BATCH"):
        # A thread of this process that wakes up does not interrupt a reader in its request. Where
        # that is not permitted, niceness alone has to do.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _end_after(seconds: float, code: int) -> None:
    """End the process even if something hangs."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


async def _main() -> int:
    return await Worker(await Channel.over(socket.socket(fileno=os.dup(_CONTROL)))).run()


def main() -> int:
    """Run one worker; returns its exit code."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        return loop.run(_main())
