"""A command under a memory limit (``ulimit -v``) runs in a child, and its end is looked at.

Some libraries end the process when they get no memory: by ``abort``, by ``exit``, by a signal to
themselves. Nobody inside can turn that into an error. So the process that was started only waits;
when the child ends without having said that it is done, this is reported here. Nothing is loaded
before the fork, and without a limit there is none.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from omnigraph.cli.output import terminal

_ASKED_FOR = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGQUIT)
"""Signals by which somebody ends a program; a lack of memory is none of them."""


def run_in_child(command: Callable[[], int]) -> int:
    """Run a command, and give its exit code, or that of a failure when it was broken off."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        code = command()
        os.write(send, bytes([code]))
        return code
    os.close(send)
    _leave_signals_to(child)
    # There is an end to read when the child has told its code, or is gone.
    told = os.read(receive, 1)
    _, status = os.waitpid(child, 0)
    if told:
        return told[0]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in _ASKED_FOR:
        _end_by(os.WTERMSIG(status))
    return terminal.fail(
        "the process ran out of memory and was broken off",
        hint="raise its limit (ulimit -v), or ask for less; "
        "if it was writing, `omnigraph log` shows whether the commit is there",
        code="memory_exceeded",
    )


def _leave_signals_to(child: int) -> None:
    # A terminal sends Ctrl-C to both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))


def _end_by(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
