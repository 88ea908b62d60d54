"""The warm process itself: it listens, runs each command in a thread, and ends when it should.

It ends after a time without commands, when it is told to, when its socket was removed, and when the
program on disk is no longer the one that it has loaded.
"""

from __future__ import annotations

import _socket
import fcntl
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module

import omnigraph
from omnigraph.cli.warm.address import directory_path, open_directory, path_in, socket_name
from omnigraph.cli.warm.peer import ProcessTraits, traits_of
from omnigraph.settings import Settings, environment, idle_threads_asleep

READY, RUNNING = b"ready", b"running"
_TICK_SECONDS = 1.0
_GRAPH_SECONDS = 120.0
"""A graph that no command has used for so long is closed."""
_DRAIN_SECONDS = 60.0
"""How long the end waits for commands that run."""
_LOADED = (
    "omnigraph.cli.warm.request",
    *(f"omnigraph.api.{name}" for name in ("branches", "changes", "load", "schema", "snapshot")),
    *(f"omnigraph.cli.commands.{name}" for name in ("blob", "branch", "history", "lint", "load")),
    *(f"omnigraph.cli.commands.{name}" for name in ("log", "maintenance", "query", "schema")),
    *("omnigraph.commit.lifecycle", "omnigraph.commit.protocol", "omnigraph.commit.publisher"),
    *("omnigraph.merge.run", "omnigraph.write.mutation", "omnigraph.write.load.run", "yaml"),
)
"""What commands import; the rest is imported by the first that needs it."""


class ProgramFiles:
    """The files of the program, as they were when it was loaded."""

    def __init__(self) -> None:
        self._stamps = {path: _stamp(path) for path in _program_files()}

    def are_unchanged(self) -> bool:
        return all(_stamp(path) == stamp for path, stamp in self._stamps.items())


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _program_files() -> Iterator[str]:
    for folder, _, names in os.walk(os.path.dirname(os.path.abspath(omnigraph.__file__))):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))
    for library in ("lance", "pyarrow", "numpy"):
        yield str(sys.modules[library].__file__)
    yield os.path.join(sys.prefix, "pyvenv.cfg")


class WarmProcess:
    """The state of the process; ``RequestHost`` of its requests."""

    def __init__(self, traits: ProcessTraits, idle_seconds: float) -> None:
        from omnigraph.cli.warm.admission import shared_variables
        from omnigraph.cli.warm.graphs import OpenGraphs

        self.graphs = OpenGraphs()
        self.traits = traits
        self.variables: Mapping[str, str] = shared_variables(environment())
        self._idle_seconds = idle_seconds
        self._files = ProgramFiles()
        self._started = self._used = time.monotonic()
        self._ending = threading.Event()
        self._changed = threading.Condition()
        self._running = 0
        self._executing = 0
        self._commands = 0
        self._waiting: list[_socket.socket] = []
        """Connections that stay open until the process has ended."""

    def is_current(self) -> bool:
        """Whether the program is unchanged; if not, the process ends."""
        if not self._files.are_unchanged():
            self.end()
        return not self._ending.is_set()

    def status(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "version": omnigraph.__version__,
            "ending": self._ending.is_set(),
            "uptime_seconds": round(time.monotonic() - self._started),
            "idle_limit_seconds": self._idle_seconds,
            "commands_running": self._executing,
            "commands_run": self._commands,
            "open_graphs": len(self.graphs),
        }

    @contextmanager
    def executing(self) -> Iterator[None]:
        """Count a command while it runs."""
        with self._changed:
            self._executing += 1
        try:
            yield
        finally:
            with self._changed:
                self._executing -= 1

    def end(self, waiting: _socket.socket | None = None) -> None:
        """End as soon as the commands that run have finished; accept no more."""
        if waiting is not None:
            self._waiting.append(waiting)
        self._ending.set()

    def serve(self, listening: _socket.socket, directory: int) -> None:
        """Accept connections until it is time to end."""
        own = os.stat(path_in(directory, socket_name()))
        listening.settimeout(_TICK_SECONDS)
        ticked = time.monotonic()
        while not self._ending.is_set():
            if time.monotonic() - ticked > _TICK_SECONDS / 2:
                self._tick(directory, own)
                ticked = time.monotonic()
            try:
                number, _ = listening._accept()  # type: ignore[attr-defined]
            except TimeoutError:
                continue
            except OSError:
                # Too many files are open: the command goes on without this process.
                time.sleep(_TICK_SECONDS / 100)
                continue
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, number)
            with self._changed:
                self._running += 1
            try:
                threading.Thread(target=self._handle, args=(connection,), daemon=True).start()
            except RuntimeError:
                connection.close()
                self._count(False)
        with suppress(OSError):
            if os.path.samestat(os.stat(path_in(directory, socket_name())), own):
                os.unlink(path_in(directory, socket_name()))
        listening.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._running, _DRAIN_SECONDS)

    def _tick(self, directory: int, own: os.stat_result) -> None:
        self.graphs.close_idle(min(_GRAPH_SECONDS, self._idle_seconds))
        with suppress(OSError):
            is_there = os.path.samestat(os.stat(path_in(directory, socket_name())), own)
            is_idle = not self._running and time.monotonic() - self._used > self._idle_seconds
            if is_there and not is_idle:
                return
        self.end()

    def _handle(self, connection: _socket.socket) -> None:
        from omnigraph.cli.warm.request import Request

        is_run = False
        try:
            is_run = Request(self, connection).serve()
        finally:
            self._count(is_run)

    def _count(self, is_run: bool) -> None:
        """A connection has ended; whether it was a command."""
        with self._changed:
            self._running -= 1
            self._commands += is_run
            if is_run:
                self._used = time.monotonic()
            self._changed.notify_all()


def lock(directory: int) -> bool:
    """Become the warm process of this installation; whether there is no other."""
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    number = os.open(path_in(directory, f"{socket_name()}.lock"), flags, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return False
    # The lock lasts as long as the descriptor: until this process ends.
    return True


def listen(directory: int) -> _socket.socket:
    """Listen on the socket; one that a dead process has left is replaced."""
    listening = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    path = path_in(directory, f"{socket_name()}.new")
    with suppress(FileNotFoundError):
        os.unlink(path)
    listening.bind(path)
    os.chmod(path, 0o600)
    listening.listen(128)
    os.rename(path, path_in(directory, socket_name()))
    return listening


def make_directory(settings: Settings) -> int:
    """A descriptor of the directory of this user's sockets, created if it is missing."""
    path = directory_path(settings.user_runtime)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    return open_directory(path)


def main(report: int) -> None:
    """Run as the warm process; ``report`` is a pipe for what became of the start."""
    traits = traits_of("self")
    settings = Settings.from_environ()
    directory = make_directory(settings)
    if not lock(directory):
        os.write(report, RUNNING)
        return
    os.chdir("/")
    with idle_threads_asleep():
        for module in _LOADED:
            import_module(module)
    gc.collect()
    gc.freeze()
    process = WarmProcess(traits, settings.warm_idle_seconds)
    signal.signal(signal.SIGTERM, lambda *_: process.end())
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    listening = listen(directory)
    os.write(report, READY)
    os.close(report)
    process.serve(listening, directory)
    # Threads of commands that did not end are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
