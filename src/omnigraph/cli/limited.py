"""Runs a command in a child process when there is a memory limit (``ulimit -v``).

Some libraries end the process when an allocation fails: by ``abort``, ``exit`` or a signal. That
cannot be turned into an error from inside. So the parent process only waits, and reports a child
that ends without an exit code. Nothing is imported before the fork; without a limit there is no
child.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from omnigraph.cli.output import terminal

_USER_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGQUIT)
"""Signals sent to end a program; a lack of memory does not cause them."""


def run_in_child(command: Callable[[], int]) -> int:
    """Run a command and return its exit code, or that of a failure if it died."""
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        code = command()
        os.write(send, bytes([code]))
        return code
    os.close(send)
    _forward_signals(child)
    # Returns when the child has written its exit code, or has ended.
    received = os.read(receive, 1)
    _, status = os.waitpid(child, 0)
    if received:
        return received[0]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in _USER_SIGNALS:
        _die_by_signal(os.WTERMSIG(status))
    return terminal.fail(
        "the process ran out of memory and was terminated",
        hint="raise its limit (ulimit -v), or process less at once; "
        "if it was writing, `omnigraph log` shows whether the commit exists",
        code="memory_exceeded",
    )


def _forward_signals(child: int) -> None:
    # A terminal sends Ctrl-C to both.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))


def _die_by_signal(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
