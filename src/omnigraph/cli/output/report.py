"""Prints reports: a JSON document for programs, lines for people, long output in a pager."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, cast

from omnigraph.cli.output import terminal
from omnigraph.settings import Settings

if TYPE_CHECKING:
    import subprocess


def show_report(arguments: argparse.Namespace, document: Any, lines: str | Iterable[str]) -> int:
    """Print the document with ``--json`` and the lines otherwise. Returns exit code 0.

    The lines may be a generator; it is not run when JSON is printed.
    """
    if arguments.json:
        terminal.show_json(document)
    else:
        terminal.show_lines([lines] if isinstance(lines, str) else lines)
    return terminal.OK


def field_lines(fields: Mapping[str, Any], *names: str) -> Iterator[str]:
    """``name: value`` for the named fields, or for all of them; null values are left out.

    >>> list(field_lines({"actor_id": None, "commit_id": "01A"}))
    ['commit_id: 01A']
    """
    for name in names or fields:
        if fields.get(name) is not None:
            yield f"{name}: {fields[name]}"


def yes_no(value: bool) -> str:
    return "yes" if value else "no"


# -- long output ----------------------------------------------------------------------------------

_LESS = "-FRX"
"""Exit if the text fits on the screen, show colours, leave the text on the screen."""


def show_paged(lines: Iterable[str], *, is_wanted: bool = True) -> None:
    """Print lines through a pager on a terminal, and directly otherwise."""
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
    """The pager and its options; ``None`` if there is no pager.

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
    """Write all lines, or until the user quits the pager."""
    sink = cast("IO[bytes]", process.stdin)
    try:
        # Quitting early is not a failure.
        with suppress(BrokenPipeError):
            for line in lines:
                sink.write(f"{terminal.visible(line)}\n".encode("utf-8", "backslashreplace"))
    finally:
        with suppress(BrokenPipeError):
            sink.close()
        _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait until the pager exits; meanwhile Ctrl-C belongs to the pager."""
    while process.poll() is None:
        with suppress(KeyboardInterrupt):
            process.wait()
