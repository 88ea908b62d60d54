"""Long output on a terminal, shown page by page by the program that the user likes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, cast

from omnigraph.cli.output import terminal
from omnigraph.settings import Settings

if TYPE_CHECKING:
    import subprocess

_LESS = "-FRX"
"""Leave at once when it fits on the screen, show colours, leave the text on the screen."""


def show_paged(lines: Iterable[str], *, is_wanted: bool = True) -> None:
    """Show lines through a pager where somebody sits at a terminal, and plainly elsewhere."""
    command = _command(Settings.from_environ().pager) if is_wanted and terminal.is_live() else None
    if command is not None:
        import subprocess

        terminal.flush()
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=sys.stderr)
        except OSError:
            terminal.warn(f"the pager '{command[0]}' cannot be started")
        else:
            _feed(process, lines)
            return
    for line in lines:
        terminal.show(line)


def _command(pager: str) -> list[str] | None:
    """The program and its options, or nothing when there is none.

    >>> _command("less"), _command("more -d")
    (['less', '-FRX'], ['more', '-d'])
    """
    import shlex
    import shutil

    try:
        words = shlex.split(pager)
    except ValueError:
        words = [pager]
    if not words and shutil.which("less") is None:
        return None
    words = words or ["less"]
    return [*words, _LESS] if words == ["less"] else words


def _feed(process: subprocess.Popen[bytes], lines: Iterable[str]) -> None:
    """Write until the end, or until the reader has seen enough."""
    sink = cast("IO[bytes]", process.stdin)
    try:
        # A reader that leaves before the end is no failure.
        with suppress(BrokenPipeError):
            for line in lines:
                sink.write(f"{terminal.visible(line)}\n".encode("utf-8", "backslashreplace"))
    finally:
        with suppress(BrokenPipeError):
            sink.close()
        _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Until the pager is closed: Ctrl-C belongs to it as long as it shows something."""
    while process.poll() is None:
        with suppress(KeyboardInterrupt):
            process.wait()
