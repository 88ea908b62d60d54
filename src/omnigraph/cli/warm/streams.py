"""The streams of a command, over the descriptors that its process has sent.

They are shared with that process and its shell, so their modes stay as they are. A thread that
waits for one of them must end when the user presses Ctrl-C or when the process is gone; so it
waits for both, and never writes more than a pipe takes at once.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from omnigraph.read.limits import Cancel


class Interruption:
    """Wakes the threads of one command; safe to use from any thread."""

    def __init__(self, cancel: Cancel) -> None:
        self.cancel = cancel
        self.is_gone = False
        """Whether the process of the command has ended: nothing may be written any more."""
        self._receive, self._send = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        self._is_closed = False

    def interrupt(self) -> None:
        """The user has pressed Ctrl-C."""
        self.cancel.set()
        with self._lock:
            if not self._is_closed:
                os.write(self._send, b".")

    def abandon(self) -> None:
        """The process of the command has ended."""
        self.is_gone = True
        self.interrupt()

    def check(self) -> None:
        """Raise if there is nobody left to write to."""
        if self.is_gone:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def wait(self, descriptor: int, event: int) -> None:
        """Wait until a descriptor is ready; an interrupt counts only until it is."""
        poll = select.poll()
        poll.register(descriptor, event)
        poll.register(self._receive, select.POLLIN)
        ready = {number for number, _ in poll.poll()}
        self.check()
        if descriptor not in ready:
            raise KeyboardInterrupt

    def close(self) -> None:
        """The command has ended, and its descriptors are about to be closed."""
        self.is_gone = True
        with self._lock:
            self._is_closed = True
            os.close(self._receive)
            os.close(self._send)


class _Descriptor(io.RawIOBase):
    """A descriptor of another process's stream."""

    def __init__(
        self, number: int, name: str, interruption: Interruption, on_use: Callable[[], None]
    ) -> None:
        self.name = name
        self._number = number
        self._interruption = interruption
        self._on_use = on_use
        self._is_file = stat.S_ISREG(os.fstat(number).st_mode)

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)


class _Input(_Descriptor):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._interruption.check()
        self._on_use()
        if not self._is_file:
            self._interruption.wait(self._number, select.POLLIN)
        if self._interruption.cancel.is_set:
            raise KeyboardInterrupt
        data = os.read(self._number, len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Output(_Descriptor):
    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._interruption.check()
        self._on_use()
        if self._is_file:
            return os.write(self._number, data)
        self._interruption.wait(self._number, select.POLLOUT)
        # As much as a pipe that is ready takes without blocking.
        return os.write(self._number, memoryview(data)[: select.PIPE_BUF])


def open_streams(
    numbers: list[int], interruption: Interruption, on_use: Callable[[], None]
) -> tuple[TextIO, TextIO, TextIO]:
    """Text streams like those that the interpreter opens at its start."""
    first, second, third = numbers
    stdin = io.TextIOWrapper(
        io.BufferedReader(_Input(first, "<stdin>", interruption, on_use)), "utf-8"
    )
    output = _Output(second, "<stdout>", interruption, on_use)
    stdout = io.TextIOWrapper(
        io.BufferedWriter(output), "utf-8", "backslashreplace", line_buffering=output.isatty()
    )
    stderr = io.TextIOWrapper(
        io.BufferedWriter(_Output(third, "<stderr>", interruption, on_use)),
        "utf-8",
        "backslashreplace",
        line_buffering=True,
    )
    return stdin, stdout, stderr


def silent_streams() -> tuple[TextIO, TextIO, TextIO]:
    """Streams of a command that is only looked at."""
    return io.StringIO(), io.StringIO(), io.StringIO()
