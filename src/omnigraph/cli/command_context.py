"""What a command has of the process that it belongs to: streams, input files, graphs, Ctrl-C.

A command that runs in its own process has no context: it uses the streams, files and signals of the
process. The warm process runs the commands of other processes, each in a thread with a context.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.cli.files import InputFile
    from omnigraph.read.limits import Cancel


class CommandContext(Protocol):
    """The process of a command that another process runs."""

    @property
    def stdin(self) -> TextIO: ...

    @property
    def stdout(self) -> TextIO: ...

    @property
    def stderr(self) -> TextIO: ...

    @property
    def inputs(self) -> Mapping[str, InputFile]:
        """The files that the arguments name, by path, opened by the process of the command."""

    @property
    def directory(self) -> str:
        """The working directory of the command."""

    @property
    def cancel(self) -> Cancel:
        """Set when the user presses Ctrl-C."""

    @property
    def is_committing(self) -> bool:
        """Whether its commit is being made, or was: from then on it is finished and reported."""

    def open_graph(
        self, uri: str, mode: Literal["rw", "r"], actor: str | None
    ) -> AbstractContextManager[Graph]:
        """A graph for the duration of the command."""


_CURRENT: ContextVar[CommandContext | None] = ContextVar("command", default=None)


def current() -> CommandContext | None:
    """The context of the command of this thread; ``None`` if it has the process to itself."""
    return _CURRENT.get()


def enter(context: CommandContext | None) -> None:
    """Set the context of this thread."""
    _CURRENT.set(context)


def stdin() -> TextIO | None:
    context = current()
    return sys.stdin if context is None else context.stdin


def stdout() -> TextIO | None:
    context = current()
    return sys.stdout if context is None else context.stdout


def stderr() -> TextIO | None:
    context = current()
    return sys.stderr if context is None else context.stderr


def absolute(path: str) -> str:
    """A path of the command for this process; unchanged if it is the process of the command."""
    context = current()
    return path if context is None else os.path.join(context.directory, path)


def query_cancel() -> Cancel | None:
    """What ends a query on Ctrl-C; ``None`` where the signal itself does."""
    context = current()
    return None if context is None else context.cancel


def check_interrupt() -> None:
    """Raise ``KeyboardInterrupt`` if the user has pressed Ctrl-C in another process."""
    context = current()
    if context is not None and context.cancel.is_set and not context.is_committing:
        raise KeyboardInterrupt
