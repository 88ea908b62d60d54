"""The supervisor: starts the writer and the readers, restarts them, reloads and ends them.

It opens no graph and answers no request. Workers are new interpreters, never forks of this process;
they inherit the listening sockets and get everything else over their control channel.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from omnigraph.commit.announcements import create_memory
from omnigraph.errors import OmniGraphError
from omnigraph.server.config import ServerConfig
from omnigraph.server.control import (
    Activate,
    Answer,
    Ask,
    Collect,
    Configure,
    Drain,
    KeptGraph,
    LoadApplication,
    Notice,
    OpenedGraphs,
    Prepare,
    Serve,
)
from omnigraph.server.lifecycle import (
    CLEAN,
    CUT_OFF,
    BootSource,
    CannotServe,
    OnListening,
    Reloads,
    Signals,
    announce,
    bind,
    listen,
    prepare_newest,
)
from omnigraph.server.listener import BACKLOG
from omnigraph.server.metrics import Family, counter, counters_only, gauge, merge, render
from omnigraph.server.processors import processor_of
from omnigraph.server.request_log import ERROR, WARNING, RequestLog
from omnigraph.server.worker_process import WorkerEnded, WorkerProcess

_FIRST_DELAY = 0.1
"""Seconds before the second restart of a worker in a row; the first is immediate."""
_LONGEST_DELAY = 5.0
_HEALTHY_SECONDS = 30.0
"""A worker that has lived so long is restarted at once again."""
_COLLECT_SECONDS = 2.0
WRITER = "writer"
_WRITER_NICENESS = 10
"""A commit takes a hundred times as long as most reads: it must not make them wait."""
_LONGEST_PATH = 103
"""The longest path of a Unix socket on every system, in bytes."""
_SHORT_FOLDER = "/tmp"


class Supervisor:
    """A server of several processes."""

    def __init__(
        self, config: ServerConfig, source: BootSource, log: RequestLog, application: str
    ) -> None:
        self._config = config
        self._source = source
        self._log = log
        self._application = application
        self._reloads = Reloads(log)
        self._generation = b""
        self._lock = asyncio.Lock()
        """Held while a worker is configured and while a generation changes."""
        self._workers: dict[str, WorkerProcess] = {}
        self._retired: list[Family] = []
        self._restarts = 0
        self._is_ending = False
        self._opened: OpenedGraphs | None = None
        self._bound: socket.socket | None = None
        self._writer_socket: socket.socket | None = None
        self._folder = ""
        self._keepers: list[asyncio.Task[None]] = []

    @property
    def _names(self) -> list[str]:
        return [WRITER, *(f"reader-{number}" for number in range(1, self._config.workers + 1))]

    # -- life ------------------------------------------------------------------------------

    async def run(self, on_listening: OnListening) -> int:
        """Serve until a signal; returns the exit code."""
        signals = Signals(self._log, self.reload)
        signals.install()
        try:
            self._bound = bind(self._config)
            self._listen_for_readers()
            # Taken first: what changes while it is read is read again.
            signature = await asyncio.to_thread(self._source.signature)
            self._generation = await asyncio.to_thread(self._source.read)
            await self._start_all()
            address = listen(self._bound)
            for worker in self._workers.values():
                worker.send(Serve())
            self._keepers = [
                asyncio.create_task(self._keep(worker)) for worker in self._workers.values()
            ]
            assert self._opened is not None
            announce(self._log, self._config, address, self._opened)
            on_listening(address)
            signals.spawn(signals.follow_files(self._source, signature))
            await signals.stop.wait()
            code = await self._drain(signals)
            self._log.event("stopped", code=code)
            return code
        finally:
            self._is_ending = True
            for worker in self._workers.values():
                worker.kill()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _listen_for_readers(self) -> None:
        """What the writer shares with readers, in a directory that only this user can enter."""
        self._folder = _new_folder()
        try:
            create_memory(Path(self._announcements))
        except OSError as error:
            raise CannotServe(
                f"the directory for temporary files cannot be written: {error.strerror or error}",
                hint="free space there, or set TMPDIR to another directory",
            ) from error
        self._writer_socket = socket.socket(socket.AF_UNIX)
        self._writer_socket.bind(self._writer_path)
        self._writer_socket.listen(BACKLOG)

    @property
    def _writer_path(self) -> str:
        return str(Path(self._folder) / WRITER)

    @property
    def _announcements(self) -> str:
        return str(Path(self._folder) / "announcements")

    # -- start -----------------------------------------------------------------------------

    async def _start_all(self) -> None:
        """Start all processes, and wait until each has opened its graphs.

        The writer opens first: it recovers what dead writers have left.
        """
        for name in self._names:
            self._workers[name] = await self._spawn(name)
        async with self._lock:
            self._opened = await self._configure(self._workers[WRITER])
            readers = [worker for worker in self._workers.values() if worker.name != WRITER]
            await asyncio.gather(*(self._configure(worker) for worker in readers))

    async def _spawn(self, name: str) -> WorkerProcess:
        assert self._bound is not None
        assert self._writer_socket is not None
        listening = self._writer_socket if name == WRITER else self._bound
        inherited = {listening.fileno(), self._config.log.descriptor}
        worker = await WorkerProcess.start(name, sys.executable, inherited, self._on_ask)
        niceness = _WRITER_NICENESS if name == WRITER else 0
        worker.send(LoadApplication(self._application, niceness))
        return worker

    async def _configure(self, worker: WorkerProcess) -> OpenedGraphs:
        """Let a worker open its graphs; raises ``CannotServe`` if it does not."""
        assert self._bound is not None
        assert self._writer_socket is not None
        is_writer = worker.name == WRITER
        listening = self._writer_socket if is_writer else self._bound
        worker.send(
            Configure(
                role="writer" if is_writer else "reader",
                name=worker.name,
                config=self._config,
                generation=self._generation,
                application=self._application,
                listening=listening.fileno(),
                writer_path=self._writer_path,
                announcements=self._announcements,
                processor=None if is_writer else self._processor_of(worker.name),
            )
        )
        return await worker.opened()

    def _processor_of(self, reader: str) -> int | None:
        names = self._names[1:]
        return processor_of(names.index(reader), len(names))

    # -- restarts --------------------------------------------------------------------------

    async def _keep(self, worker: WorkerProcess) -> None:
        """Replace a worker whenever it ends."""
        name, delay = worker.name, 0.0
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            code = await worker.ended()
            self._retire(worker)
            if self._is_ending:
                return
            self._log.event("worker ended; it is restarted", level=WARNING, worker=name, code=code)
            if name == WRITER:
                self._notice(writer_is_up=False)
            if loop.time() - started > _HEALTHY_SECONDS:
                delay = 0.0
            await asyncio.sleep(delay)
            delay = min(max(2 * delay, _FIRST_DELAY), _LONGEST_DELAY)
            worker = await self._replace(name)

    async def _replace(self, name: str) -> WorkerProcess:
        self._restarts += 1
        worker = await self._spawn(name)
        self._workers[name] = worker
        if self._is_ending:
            worker.kill()
            return worker
        async with self._lock:
            try:
                await self._configure(worker)
            except CannotServe as error:
                self._log.event(
                    "worker did not start", level=ERROR, worker=name, error=error.message
                )
                worker.kill()
                return worker
            worker.send(Serve())
            self._notice(writer_is_up=self._has_writer)
        self._log.event("worker is back", worker=name, pid=worker.pid)
        return worker

    @property
    def _has_writer(self) -> bool:
        return self._workers[WRITER].is_open

    def _notice(self, *, writer_is_up: bool) -> None:
        for worker in self._open_workers():
            worker.send(Notice(writer_is_up, self._reloads.failure))

    def _retire(self, worker: WorkerProcess) -> None:
        """Keep the counts of a process that has ended, as far as they are known."""
        self._retired = merge([self._retired, counters_only(worker.last_families)])

    def _open_workers(self) -> Sequence[WorkerProcess]:
        return [worker for worker in self._workers.values() if worker.is_open]

    # -- what workers ask for ----------------------------------------------------------------

    async def _on_ask(self, worker: WorkerProcess, ask: Ask) -> None:
        body, error = b"", None
        try:
            if ask.what == "reload":
                await self.reload()
            else:
                body = await self.gather_metrics()
        except OmniGraphError as failure:
            error = failure.message
        worker.send(Answer(ask.number, body, error))

    async def reload(self) -> None:
        """Put changed files in force in all processes; the old state stays if one refuses."""
        async with self._lock:
            try:
                generation = await self._exchange()
            except OmniGraphError as error:
                failure = self._reloads.fail(error)
                self._notice(writer_is_up=self._has_writer)
                raise failure from error
            self._generation = generation
            self._reloads.succeed()
            self._notice(writer_is_up=self._has_writer)

    async def _exchange(self) -> bytes:
        """Prepare everywhere, then put in force everywhere; a worker that ends starts with it."""
        if self._is_ending:
            raise CannotServe("the server is ending")
        workers = self._open_workers()
        is_prepared = False
        try:
            generation = await prepare_newest(
                self._source, self._generation, partial(self._prepare, workers)
            )
            is_prepared = True
        finally:
            await asyncio.gather(
                *(worker.order(lambda n: Activate(n, is_prepared)) for worker in workers),
                return_exceptions=True,
            )
        return generation

    async def _prepare(
        self, workers: Sequence[WorkerProcess], generation: bytes
    ) -> Sequence[KeptGraph]:
        """Prepare in some workers; the graphs that stay as they are in any of them."""
        outcomes = await asyncio.gather(
            *(worker.order(lambda number: Prepare(number, generation)) for worker in workers),
            return_exceptions=True,
        )
        kept: dict[str, KeptGraph] = {}
        for outcome in outcomes:
            if isinstance(outcome, CannotServe):
                raise outcome
            if not isinstance(outcome, BaseException):
                kept |= {graph.graph_id: graph for graph in outcome}
        return list(kept.values())

    async def gather_metrics(self) -> bytes:
        """The metrics of all processes."""
        workers = self._open_workers()

        async def collect(worker: WorkerProcess) -> None:
            with suppress(WorkerEnded, TimeoutError):
                async with asyncio.timeout(_COLLECT_SECONDS):
                    await worker.order(Collect)

        await asyncio.gather(*(collect(worker) for worker in workers))
        families = merge([self._retired, *(worker.last_families for worker in workers)])
        return render([*families, *self._own_families()])

    def _own_families(self) -> list[Family]:
        return [
            gauge(
                "omnigraph_worker_up",
                "1 if a worker process serves.",
                (
                    ({"worker": name}, float(worker.is_open))
                    for name, worker in self._workers.items()
                ),
            ),
            counter("omnigraph_worker_restarts", "Restarts of worker processes.", self._restarts),
            *self._reloads.families(),
        ]

    # -- the end -----------------------------------------------------------------------------

    async def _drain(self, signals: Signals) -> int:
        """End the readers, then the writer that they forward to; cut off what takes too long."""
        self._is_ending = True
        assert self._bound is not None
        self._bound.close()
        work = asyncio.ensure_future(self._drain_in_order())
        cut = asyncio.ensure_future(signals.cut.wait())
        done, _ = await asyncio.wait(
            {work, cut},
            timeout=self._config.drain_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        cut.cancel()
        if work in done and work.result():
            return CLEAN
        work.cancel()
        self._log.event("requests in flight are cut off", level=WARNING)
        return CUT_OFF

    async def _drain_in_order(self) -> bool:
        """Whether every process that served ended by itself."""
        is_clean = True
        for is_writer in (False, True):
            group = [w for name, w in self._workers.items() if (name == WRITER) == is_writer]
            # One that is being started, or has just died, has no requests to finish.
            serving = [worker for worker in group if worker.is_open]
            for worker in group:
                worker.send(Drain()) if worker in serving else worker.kill()
            for worker, code in zip(
                serving, await asyncio.gather(*(w.ended() for w in serving)), strict=True
            ):
                if code != os.EX_OK:
                    is_clean = False
                    self._log.event(
                        "worker did not end in order", level=WARNING, worker=worker.name, code=code
                    )
        return is_clean


def _new_folder() -> str:
    """A new directory that only this user can enter, whose path is short enough for a socket."""
    folder = tempfile.mkdtemp(prefix="omnigraph-")
    if len(os.fsencode(Path(folder) / WRITER)) <= _LONGEST_PATH:
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="omnigraph-", dir=_SHORT_FOLDER)
