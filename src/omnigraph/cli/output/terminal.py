"""Output streams and exit codes: results on stdout, messages on stderr.

Commands write only through this module, to the streams of ``command_context``. All text for people
passes through ``visible``, line by line: no control character of a value or a name reaches a
terminal or forges a line. Output for programs is exact.

A result that cannot be written is a failure (``OutputFailed``); a message that cannot be written is
dropped.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn, TextIO

from omnigraph.cli.command_context import check_interrupt, stderr, stdin, stdout
from omnigraph.escaping import escape, escape_json
from omnigraph.settings import Settings

OK = 0
FAILURE = 1
USAGE = 2
CONFLICT = 3
PRECONDITION = 4
INTERRUPTED = 130
READER_GONE = 141
"""The exit code a shell reports for a program that wrote into a closed pipe."""

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

# Marks a colour in a text until it is written. The random part makes it unforgeable.
_MARK = f"\x1b{os.urandom(8).hex()}:"
_MARKED = re.compile(re.escape(_MARK) + r"([0-9;]+)m")


class OutputFailed(Exception):
    """A result could not be written to stdout."""


class ReaderGone(Exception):
    """The reader of the output closed it early."""


def use_utf8() -> None:
    """Write UTF-8 whatever the locale; escape what cannot be encoded."""
    for stream in (stdout(), stderr()):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


# -- results --------------------------------------------------------------------------------------


def show(line: str) -> None:
    """Print one line of a result."""
    show_raw(f"{visible(line)}\n")


def show_lines(lines: Iterable[str]) -> None:
    """Print several lines of a result."""
    for line in lines:
        show(line)


def show_fields(*fields: str) -> None:
    """Print one line of fields separated by tabs."""
    show_raw("\t".join(map(visible, fields)) + "\n")


def show_source(text: str) -> None:
    """Print schema or query text: exact for programs, escaped on a terminal."""
    show_raw(escape(text, keep="\n\t") if is_terminal(stdout()) else text)


def show_json(document: Any) -> None:
    """Print one JSON document: two-space indent, keys in the given order."""
    show_json_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def show_json_text(text: str) -> None:
    """Print JSON text: exact for programs, with escapes on a terminal."""
    show_raw(escape_json(text) if is_terminal(stdout()) else text)


def show_raw(text: str) -> None:
    """Print text verbatim."""
    stream = _output()
    try:
        stream.write(text)
    except OSError as error:
        output_failed(error)


def show_bytes(data: Any) -> None:
    """Print a chunk of a binary result."""
    stream = _output()
    try:
        stream.flush()
        stream.buffer.write(data)
    except OSError as error:
        output_failed(error)


def flush() -> None:
    """Flush stdout, so that a failure is noticed here and not at exit."""
    stream = stdout()
    if stream is None or stream.closed:
        return
    try:
        stream.flush()
    except OSError as error:
        output_failed(error)


def _output() -> TextIO:
    check_interrupt()
    stream = stdout()
    if stream is None or stream.closed:
        raise OutputFailed("it is closed")
    return stream


def output_failed(error: OSError) -> NoReturn:
    """Discard further output to a failed stdout, and raise."""
    _discard(stdout())
    if isinstance(error, BrokenPipeError):
        raise ReaderGone from error
    raise OutputFailed(describe_os_error(error)) from error


def _discard(stream: TextIO | None) -> None:
    if stream is None:
        return
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


# -- messages -------------------------------------------------------------------------------------


def warn(text: str) -> None:
    """Print a warning on stderr."""
    note(f"warning: {text}")


def note(line: str) -> None:
    """Print one line on stderr."""
    _write_stderr(f"{visible(line)}\n")


def note_lines(lines: Iterable[str]) -> None:
    """Print several lines on stderr."""
    _write_stderr("".join(f"{visible(line)}\n" for line in lines))


def fail(
    text: str | Iterable[str],
    *,
    hint: str | None = None,
    code: str | None = None,
    exit_code: int = FAILURE,
) -> int:
    """Print an error on stderr and return the exit code."""
    first, *more = [text] if isinstance(text, str) else text
    lines = [f"{paint('Error:', 'red', stream=stderr())} {first}", *more]
    if hint:
        lines.append(f"hint: {hint}")
    if code:
        lines.append(f"code: {code}")
    note_lines(lines)
    return exit_code


def confirm(question: str) -> bool:
    """Ask on stderr; only ``y`` and ``yes`` confirm."""
    prompt(question)
    stream = stdin()
    return stream is not None and stream.readline().strip().lower() in ("y", "yes")


def prompt(text: str) -> None:
    """Print a prompt on stderr, without a newline."""
    _write_stderr(visible(text))


def redraw(line: str) -> None:
    """Replace the last line on stderr."""
    _write_stderr(f"\r\x1b[2K{visible(line)}")


def _write_stderr(text: str) -> None:
    stream = stderr()
    if stream is None or stream.closed:
        return
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        _discard(stream)


# -- appearance -----------------------------------------------------------------------------------


def visible(line: str) -> str:
    """A line with our colours, and every other control character escaped."""
    if _MARK not in line:
        return escape(line)
    pieces = _MARKED.split(line)
    return "".join(f"\x1b[{piece}m" if at % 2 else escape(piece) for at, piece in enumerate(pieces))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is an open terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def is_live(stream: TextIO | None = None) -> bool:
    """Whether a stream supports colours and redrawn lines."""
    settings = Settings.from_environ()
    return is_terminal(stream or stdout()) and settings.terminal != "dumb"


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """Colour a text if its stream supports it. ``visible`` turns the marks into escapes."""
    if not styles or Settings.from_environ().no_color or not is_live(stream):
        return text
    codes = ";".join(_STYLES[style] for style in styles)
    return f"{_MARK}{codes}m{text}{_MARK}0m"


def describe_os_error(error: OSError) -> str:
    """An operating system error as one line.

    >>> describe_os_error(FileNotFoundError(2, "No such file or directory", "a.pg"))
    'a.pg: no such file or directory'
    """
    reason = (error.strerror or type(error).__name__).lower()
    return f"{error.filename}: {reason}" if error.filename else reason
