"""A command that the warm process runs: it sends what it has, and waits for the exit code.

First the process says whether it runs the command; nothing has happened until this side says go. So
every failure before that means: run it here. Afterwards a read that has touched no stream runs here
too. A write is never repeated: if the process dies, its outcome is unknown, and that is said.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # its public twin imports enum
import os
import sys

from omnigraph.cli.warm.address import Broken, connect, installation, receive, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from types import FrameType

_PATIENCE = 5.0
"""Seconds until a process that does not answer is ignored."""
_REGULAR = 0o100000
_TYPE = 0o170000


def run_warm(arguments: list[str], streams: tuple[int, int, int] = (0, 1, 2)) -> int | None:
    """The exit code of a command that the warm process has run; ``None`` to run it here."""
    environ = os.environ
    if arguments[:1] == ["warm"]:
        return None
    if sys.platform != "linux" or environ.get("OMNIGRAPH_WARM", "").strip().lower() == "off":
        return None
    if None in (sys.stdin, sys.stdout, sys.stderr) or sys.getfilesystemencoding() != "utf-8":
        return None
    try:
        connection = connect(environ.get("XDG_RUNTIME_DIR", "").strip(), _PATIENCE)
    except (OSError, ValueError):
        return None
    try:
        is_write = _request(connection, arguments, streams)
        if is_write is None:
            return None
    except (OSError, Broken, ValueError):
        return None
    connection.settimeout(None)
    return _Waiting(connection, is_write).exit_code()


def _request(
    connection: _socket.socket, arguments: list[str], streams: tuple[int, int, int]
) -> bool | None:
    """Ask to run a command; whether it is a write, or ``None`` if it is refused."""
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    texts = [*installation(), os.getcwd(), str(len(arguments)), *arguments, *variables]
    send(connection, b"R", b"\0".join(map(os.fsencode, texts)), streams)
    while True:
        kind, data, _ = receive(connection)
        if kind == b"F":
            _send_file(connection, data)
        else:
            return {b"r": False, b"w": True}.get(kind)


def _send_file(connection: _socket.socket, path: bytes) -> None:
    """Open a file that the arguments name, if it is a regular one: a pipe is read only once."""
    try:
        if os.stat(path).st_mode & _TYPE != _REGULAR:
            raise OSError
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        send(connection, b"N")
        return
    try:
        send(connection, b"D", b"", (number,))
    finally:
        os.close(number)


class _Waiting:
    """A command that has begun in the warm process."""

    def __init__(self, connection: _socket.socket, is_write: bool) -> None:
        self._connection = connection
        self._is_write = is_write
        self._commit = ""
        self._interrupts = 0

    def exit_code(self) -> int | None:
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, self._interrupt)
        try:
            send(self._connection, b"G")
        except OSError:
            # It has not received it.
            return None
        is_used = False
        try:
            while True:
                kind, data, _ = receive(self._connection)
                if kind == b"X":
                    return int(data)
                if kind == b"C":
                    self._commit = self._commit or data.decode("ascii")
                is_used = is_used or kind == b"U"
        except (OSError, Broken):
            pass
        except KeyboardInterrupt:
            return self._fail("interrupted", 130)
        finally:
            if self._interrupts == 0 and _signal.getsignal(_signal.SIGINT) == self._interrupt:
                _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        if self._interrupts:
            return self._fail("interrupted", 130)
        if not self._is_write and not is_used:
            return None
        return self._fail("the warm process ended before the command did", 1)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """The first Ctrl-C is passed on, and the command ends as it can; the second ends this."""
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt
        try:
            send(self._connection, b"I")
        except OSError:
            raise KeyboardInterrupt from None

    def _fail(self, reason: str, code: int) -> int:
        lines = [f"Error: {reason}"]
        if self._is_write:
            named = f"show {self._commit}" if self._commit else "list"
            lines += [
                "hint: the write may have been made; do not repeat it before "
                f"`omnigraph commit {named}` shows that it was not",
                "code: outcome_pending",
            ]
        try:
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()
        except OSError:
            pass
        return code
