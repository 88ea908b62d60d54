"""One connection of the warm process: a command, or a question about the process.

Until the other side says go, nothing has been executed, and it may run the command itself. While
the command runs, a second thread listens: for Ctrl-C, and for the end of the other process.
"""

from __future__ import annotations

import _socket
import json
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Literal, Protocol

from omnigraph.api.graph import Graph
from omnigraph.cli.command_context import absolute, enter
from omnigraph.cli.files import InputFile
from omnigraph.cli.output import terminal
from omnigraph.cli.program import run_program
from omnigraph.cli.warm.address import STREAMS, Broken, check_peer, installation, receive, send
from omnigraph.cli.warm.admission import (
    AdmittedCommand,
    NotAdmitted,
    admit,
    close_inputs,
    shared_variables,
    take_inputs,
)
from omnigraph.cli.warm.graphs import OpenGraphs
from omnigraph.cli.warm.peer import ProcessTraits, traits_of
from omnigraph.cli.warm.streams import Interruption, open_streams, silent_streams
from omnigraph.commit.intents import ON_INTENT
from omnigraph.read.limits import Cancel
from omnigraph.records import dataclass
from omnigraph.settings import environment_of

_PATIENCE = 10.0
"""Seconds in which the other side must answer before its command has begun."""


class RequestHost(Protocol):
    """What a request needs of the process."""

    graphs: OpenGraphs
    traits: ProcessTraits
    variables: Mapping[str, str]

    def is_current(self) -> bool:
        """Whether the program is still the one on disk, and the process goes on."""

    def status(self) -> dict[str, object]: ...

    def executing(self) -> AbstractContextManager[None]:
        """Count a command while it runs."""

    def end(self, waiting: _socket.socket | None = None) -> None:
        """End soon; a connection that waits for it stays open until then."""


@dataclass(frozen=True, slots=True)
class _Command:
    """A command as its process describes it."""

    directory: str
    arguments: list[str]
    environ: dict[str, str]


class Request:
    """One connection."""

    def __init__(self, host: RequestHost, connection: _socket.socket) -> None:
        self._host = host
        self._connection = connection
        self._sending = threading.Lock()

    def serve(self) -> bool:
        """Handle the connection and close it; returns whether a command was run."""
        is_run = False
        with suppress(OSError, Broken, ValueError):
            pid = check_peer(self._connection)
            self._connection.settimeout(_PATIENCE)
            kind, data, numbers = receive(self._connection)
            try:
                if kind == b"R":
                    is_run = self._run(pid, data, numbers)
                elif kind == b"S":
                    self._host.is_current()
                    send(self._connection, b"S", json.dumps(self._host.status()).encode("utf-8"))
                elif kind == b"T":
                    self._host.end(self._connection)
                    return is_run
            finally:
                for number in numbers:
                    os.close(number)
        self._connection.close()
        return is_run

    def _run(self, pid: int, data: bytes, numbers: list[int]) -> bool:
        try:
            command = self._read(pid, data, numbers)
            admission = _look_at(command, os.isatty(numbers[1]))
            inputs = take_inputs(admission, self._open_file)
        except NotAdmitted:
            send(self._connection, b"N")
            return False
        try:
            send(self._connection, b"w" if admission.is_write else b"r")
            kind, _, _ = receive(self._connection)
            if kind != b"G":
                return False
            self._connection.settimeout(None)
            with self._host.executing():
                code = self._execute(command, numbers, inputs)
            self._send(b"X", str(code).encode("ascii"))
            return True
        finally:
            close_inputs(inputs)
            # Wakes the thread that listens.
            with suppress(OSError):
                self._connection.shutdown(_socket.SHUT_RDWR)

    def _read(self, pid: int, data: bytes, numbers: list[int]) -> _Command:
        """The command, from a process with the rights and the program of this one."""
        own = installation()
        texts = [os.fsdecode(text) for text in data.split(b"\0")]
        if texts[: len(own)] != own or len(numbers) != STREAMS:
            raise NotAdmitted
        directory, count, *rest = texts[len(own) :]
        arguments, variables = rest[: int(count)], rest[int(count) :]
        environ = dict(variable.split("=", 1) for variable in variables if "=" in variable)
        if shared_variables(environ) != self._host.variables or not self._host.is_current():
            raise NotAdmitted
        try:
            if traits_of(pid) != self._host.traits:
                raise NotAdmitted
        except OSError as error:
            raise NotAdmitted from error
        return _Command(directory, arguments, environ)

    def _open_file(self, path: str) -> int | None:
        """Have the other side open a file; ``None`` if it is not a regular one."""
        send(self._connection, b"F", os.fsencode(path))
        kind, _, numbers = receive(self._connection)
        if kind == b"D" and len(numbers) == 1:
            return numbers[0]
        for number in numbers:
            os.close(number)
        return None

    def _execute(
        self,
        command: _Command,
        numbers: list[int],
        inputs: dict[str, InputFile],
    ) -> int:
        interruption = Interruption(Cancel())
        context = _Context(self._host.graphs, command.directory, interruption.cancel, inputs)
        streams = open_streams(numbers, interruption, self._once(b"U"))
        context.stdin, context.stdout, context.stderr = streams
        listener = threading.Thread(target=self._listen, args=(interruption,), daemon=True)
        enter(context)

        def on_intent(commit_id: str) -> None:
            context.is_committing = True
            self._send(b"C", commit_id.encode("ascii"))

        ON_INTENT.set(on_intent)
        try:
            # Without it nobody would notice Ctrl-C: then nothing is executed.
            listener.start()
            with environment_of(command.environ):
                return run_program(command.arguments)
        except BaseException as error:
            return terminal.fail(f"internal error ({type(error).__name__})")
        finally:
            enter(None)
            ON_INTENT.set(None)
            interruption.close()
            for stream in streams:
                # What could not be written before is dropped.
                with suppress(OSError, ValueError):
                    stream.close()

    def _once(self, kind: bytes) -> _Signal:
        return _Signal(lambda: self._send(kind))

    def _listen(self, interruption: Interruption) -> None:
        with suppress(OSError, Broken):
            while receive(self._connection)[0] == b"I":
                interruption.interrupt()
        interruption.abandon()

    def _send(self, kind: bytes, data: bytes = b"") -> None:
        """Send to the other side, unless it is gone."""
        with self._sending, suppress(OSError):
            send(self._connection, kind, data)


class _Signal:
    """Calls a function the first time."""

    def __init__(self, function: object) -> None:
        self._function = function

    def __call__(self) -> None:
        function, self._function = self._function, None
        if callable(function):
            function()


def _look_at(command: _Command, is_terminal: bool) -> AdmittedCommand:
    """Decide about a command, in its environment and without output."""
    context = _Context(None, command.directory, Cancel(), {})
    enter(context)
    try:
        with environment_of(command.environ):
            return admit(command.arguments, is_terminal=is_terminal)
    finally:
        enter(None)


class _Context:
    """The context of one command: see ``CommandContext``."""

    def __init__(
        self,
        graphs: OpenGraphs | None,
        directory: str,
        cancel: Cancel,
        inputs: Mapping[str, InputFile],
    ) -> None:
        self._graphs = graphs
        self.directory = directory
        self.cancel = cancel
        self.inputs = inputs
        self.is_committing = False
        self.stdin, self.stdout, self.stderr = silent_streams()

    def open_graph(
        self, uri: str, mode: Literal["rw", "r"], actor: str | None
    ) -> AbstractContextManager[Graph]:
        assert self._graphs is not None
        return self._graphs.opened(absolute(uri), mode, actor)
