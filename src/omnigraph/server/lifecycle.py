"""The life of a server: what it is started from, what ends it, what it reloads.

Two shapes share it: one process that does everything (``SingleProcess``), and a supervisor with
worker processes. Both open all graphs before anything listens, reload as a whole or not at all, and
end in order: exit code 0 if everything in flight was finished, 2 if something was cut off.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias

import uvloop
from starlette.types import ASGIApp

from omnigraph.errors import OmniGraphError, ServerNotReady
from omnigraph.records import dataclass
from omnigraph.server.config import ServerConfig
from omnigraph.server.control import KeptGraph, OpenedGraphs, ReloadFailure
from omnigraph.server.listener import BACKLOG, Listener
from omnigraph.server.metrics import Family, Metrics, counter, gauge, render
from omnigraph.server.request_log import ERROR, RequestLog

CLEAN, FAILED, CUT_OFF = 0, 1, 2
"""Exit codes: everything was finished; the server did not start; something was cut off."""
LISTEN_VARIABLE = "OMNIGRAPH_LISTEN_ADDR"
_COLLECTED_AFTER = 20_000
"""New objects between two collections."""
_LOOK_SECONDS = 1.0
"""How often changed files are looked for."""

OnListening: TypeAlias = Callable[[str], None]
"""Called with ``host:port`` once the server listens."""


class CannotServe(ServerNotReady):
    """The server does not start, or does not take over a change."""


class BootSource(Protocol):
    """What to serve, read again by every reload."""

    def read(self, previous: bytes = b"") -> bytes:
        """The description of a generation; raises ``OmniGraphError`` if it is invalid.

        What is broken of it, but is served by the previous one, stays as it is there.
        """
        ...

    def keep(self, generation: bytes, previous: bytes, kept: Sequence[KeptGraph]) -> bytes:
        """The generation with some graphs as they are in the previous one."""
        ...

    def signature(self) -> object:
        """Changes if a file that ``read`` reads has changed."""
        ...


class Host(Protocol):
    """What a process offers to the application in it."""

    async def reload(self) -> None:
        """Reload in all processes; raises ``CannotServe`` if the old state stays."""
        ...

    async def gather_metrics(self) -> bytes:
        """The metrics of all processes."""
        ...

    @property
    def forwarder(self) -> ASGIApp | None:
        """Where a reader sends its writes."""
        ...


@dataclass(frozen=True, slots=True)
class ProcessParts:
    """What an application gets from its process."""

    role: str
    config: ServerConfig
    log: RequestLog
    metrics: Metrics
    host: Host
    announcements: str | None = None
    """The memory in which the writer announces what it publishes; none in a single process."""


class Application(Protocol):
    """What a process serves. Created with ``ProcessParts``, in the event loop."""

    async def open(self, generation: bytes) -> OpenedGraphs:
        """Open the graphs of the first generation; raises if none can be served."""
        ...

    async def prepare(self, generation: bytes) -> Sequence[KeptGraph]:
        """Build a generation beside the one in force; raises if it cannot be served.

        Returns the graphs that are served now, and cannot be served as the generation wants.
        """
        ...

    def activate(self, *, is_kept: bool) -> None:
        """Put the prepared generation in force, or forget it."""
        ...

    def notice(self, reload_failure: ReloadFailure | None) -> None:
        """The outcome of the last reload, for ``/readyz``."""
        ...

    @property
    def asgi(self) -> ASGIApp: ...

    def begin_drain(self) -> None:
        """The process ends soon."""
        ...

    async def drain(self) -> None:
        """Wait until no owned write runs."""
        ...

    async def close(self) -> None:
        """Close the graphs."""
        ...


# -- sockets ---------------------------------------------------------------------------------


def bind(config: ServerConfig) -> socket.socket:
    """A socket bound to the address of the server; it does not listen yet."""
    host, port = config.address
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise CannotServe(
            f"cannot bind {config.bind}: {error.strerror or error}",
            hint="choose another address with --bind; port 0 chooses a free port",
        ) from error
    return bound


def listen(bound: socket.socket) -> str:
    """Listen from now on; returns ``host:port``."""
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        raise CannotServe(f"cannot listen: {error.strerror or error}") from error
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# -- signals ---------------------------------------------------------------------------------


class Signals:
    """The signals of a server: SIGTERM and SIGINT end it, SIGHUP reloads."""

    def __init__(self, log: RequestLog, reload: Callable[[], Awaitable[None]]) -> None:
        self._log = log
        self._reload = reload
        self._tasks: set[asyncio.Task[None]] = set()
        self.stop = asyncio.Event()
        """Set by the first signal that ends the server."""
        self.cut = asyncio.Event()
        """Set by the second one."""

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)

    def _end(self, number: signal.Signals) -> None:
        self._log.event("shutdown signal received", signal=signal.Signals(number).name)
        (self.cut if self.stop.is_set() else self.stop).set()

    def _hang_up(self) -> None:
        self._log.event("reload signal received", signal="SIGHUP")
        self.spawn(self._quietly())

    async def _quietly(self) -> None:
        try:
            await self._reload()
        except OmniGraphError:
            # Logged by the reload itself.
            return

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the server."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def follow_files(self, source: BootSource, last: object) -> None:
        """Reload whenever a file of the source has changed; ``last`` is its signature."""
        while not self.stop.is_set():
            await asyncio.sleep(_LOOK_SECONDS)
            current = await asyncio.to_thread(source.signature)
            if current != last:
                last = current
                self._log.event("changed files are reloaded")
                await self._quietly()


# -- reloads ---------------------------------------------------------------------------------


class Reloads:
    """The outcome of reloads, and what it looks like in the log and the metrics."""

    def __init__(self, log: RequestLog) -> None:
        self._log = log
        self.succeeded = 0
        self.failed = 0
        self.failure: ReloadFailure | None = None

    def succeed(self) -> None:
        self.succeeded += 1
        self.failure = None
        self._log.event("reloaded")

    def fail(self, error: OmniGraphError) -> CannotServe:
        self.failed += 1
        self.failure = ReloadFailure(error.message, time.time(), _codes_of(error))
        self._log.event(
            "reload failed; the old state stays in force", level=ERROR, error=error.message
        )
        return CannotServe(f"the old state stays in force: {error.message}", hint=error.hint)

    def families(self) -> list[Family]:
        return [
            counter("omnigraph_reloads", "Reloads that came into force.", self.succeeded),
            counter("omnigraph_reload_failures", "Reloads that did not.", self.failed),
            gauge(
                "omnigraph_reload_failed",
                "1 if the last reload failed and the old state is in force.",
                [({}, float(self.failure is not None))],
            ),
        ]


def _codes_of(error: OmniGraphError) -> tuple[str, ...]:
    """The codes of the problems of an error, or its own."""
    problems = error.details.get("diagnostics")
    codes = {problem["code"] for problem in problems} if isinstance(problems, list) else set()
    return tuple(sorted(codes)) or (error.code,)


async def prepare_newest(
    source: BootSource,
    previous: bytes,
    prepare: Callable[[bytes], Awaitable[Sequence[KeptGraph]]],
) -> bytes:
    """Prepare the newest generation in all processes, and return it.

    A graph that one process cannot serve as it should be stays as it is in all of them; the others
    are not delayed.
    """
    generation = await asyncio.to_thread(source.read, previous)
    while kept := await prepare(generation):
        generation = source.keep(generation, previous, kept)
    return generation


# -- one process -----------------------------------------------------------------------------


class SingleProcess:
    """A server of one process, without a socket between reads and writes."""

    def __init__(
        self,
        config: ServerConfig,
        source: BootSource,
        log: RequestLog,
        create: Callable[[ProcessParts], Application],
    ) -> None:
        self._config = config
        self._source = source
        self._log = log
        self._metrics = Metrics()
        self._reloads = Reloads(log)
        self._lock = asyncio.Lock()
        self._generation = b""
        self._application = create(ProcessParts("all", config, log, self._metrics, self))
        self.forwarder: ASGIApp | None = None

    async def run(self, on_listening: OnListening) -> int:
        """Serve until a signal; returns the exit code."""
        bound = bind(self._config)
        application = self._application
        signals = Signals(self._log, self.reload)
        signals.install()
        signature = await asyncio.to_thread(self._source.signature)
        self._generation = await asyncio.to_thread(self._source.read)
        opened = await application.open(self._generation)
        address = listen(bound)
        listener = Listener(application.asgi, [bound])
        keep_objects()
        listener.start()
        announce(self._log, self._config, address, opened)
        on_listening(address)
        signals.spawn(signals.follow_files(self._source, signature))
        await signals.stop.wait()
        application.begin_drain()
        code = await self._drain(listener, signals)
        if code == CLEAN:
            await application.close()
        self._log.event("stopped", code=code)
        return code

    async def _drain(self, listener: Listener, signals: Signals) -> int:
        async def drain() -> None:
            await listener.drain()
            await self._application.drain()

        work = asyncio.ensure_future(drain())
        cut = asyncio.ensure_future(signals.cut.wait())
        done, _ = await asyncio.wait(
            {work, cut},
            timeout=self._config.drain_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        cut.cancel()
        return CLEAN if work in done else CUT_OFF

    async def reload(self) -> None:
        async with self._lock:
            try:
                generation = await prepare_newest(
                    self._source, self._generation, self._application.prepare
                )
            except OmniGraphError as error:
                self._application.activate(is_kept=False)
                failure = self._reloads.fail(error)
                self._application.notice(self._reloads.failure)
                raise failure from error
            self._application.activate(is_kept=True)
            self._generation = generation
            self._reloads.succeed()
            self._application.notice(None)

    async def gather_metrics(self) -> bytes:
        return render([*self._metrics.snapshot(), *self._reloads.families()])


def keep_objects() -> None:
    """What was imported and opened lives as long as the process: no collection looks at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)


def run_to_end(serve: Coroutine[Any, Any, int]) -> int:
    """Run a server in this thread; returns its exit code.

    A process that cuts work off ends here: nobody waits for the threads that still run.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        code = loop.run(serve)
        if code == CUT_OFF:
            os._exit(code)
        return code


def announce(log: RequestLog, config: ServerConfig, address: str, opened: OpenedGraphs) -> None:
    """Log that the server serves."""
    log.event(
        "serving",
        bind=address,
        mode=config.source.kind,
        graph_count=len(opened.served),
        quarantined_count=len(opened.unserved),
        config=config.source.location,
        workers=config.workers,
    )
