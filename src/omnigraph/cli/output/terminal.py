"""How the command speaks: results on stdout, the rest on stderr, and the exit codes.

No command writes to a stream by itself; what is printed here is the contract that scripts
match on. Everything for people passes through ``visible``, line by line: no control character of
a value or a name reaches a terminal, and none can forge a line. What programs read is exact.

A result that cannot be written is a failure (``OutputFailed``); a remark that cannot be written is
dropped, since there is nobody to tell.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn, TextIO

from omnigraph.escaping import escape, escape_json
from omnigraph.settings import Settings

OK = 0
FAILURE = 1
USAGE = 2
CONFLICT = 3
PRECONDITION = 4
INTERRUPTED = 130
READER_GONE = 141
"""What a shell reports for a program that wrote into a closed pipe."""

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

# A colour travels through texts under this mark until it is written. A value cannot forge it.
_MARK = f"\x1b{os.urandom(8).hex()}:"
_MARKED = re.compile(re.escape(_MARK) + r"([0-9;]+)m")


class OutputFailed(Exception):
    """A result could not be written to stdout."""


class ReaderGone(Exception):
    """Whoever read the output has closed it before its end."""


def speak_utf8() -> None:
    """Write UTF-8 whatever the locale says; what cannot be encoded is shown escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


# -- results --------------------------------------------------------------------------------------


def show(line: str) -> None:
    """One line of a result for people."""
    show_raw(f"{visible(line)}\n")


def show_lines(lines: Iterable[str]) -> None:
    """Several lines of a result for people."""
    for line in lines:
        show(line)


def show_fields(*fields: str) -> None:
    """One line of fields with tabs between them."""
    show_raw("\t".join(map(visible, fields)) + "\n")


def show_source(text: str) -> None:
    """A text of the schema or query language: exact for programs, safe on a terminal."""
    show_raw(escape(text, keep="\n\t") if is_terminal(sys.stdout) else text)


def show_json(document: Any) -> None:
    """One JSON document: two-space indent, keys in the order given."""
    show_json_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def show_json_text(text: str) -> None:
    """JSON, or lines of JSON: exact; on a terminal the same document in visible characters."""
    show_raw(escape_json(text) if is_terminal(sys.stdout) else text)


def show_either(as_json: bool, document: Any, text: str) -> None:
    """The same result for scripts or, in one line, for people."""
    if as_json:
        show_json(document)
    else:
        show(text)


def show_raw(text: str) -> None:
    """What a program reads, exactly as it is."""
    stream = _output()
    try:
        stream.write(text)
    except OSError as error:
        output_failed(error)


def show_bytes(data: Any) -> None:
    """A piece of a binary result."""
    stream = _output()
    try:
        stream.flush()
        stream.buffer.write(data)
    except OSError as error:
        output_failed(error)


def flush() -> None:
    """Write out results now, so that a failure is noticed here and not at exit."""
    if sys.stdout is None or sys.stdout.closed:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        output_failed(error)


def _output() -> TextIO:
    if sys.stdout is None or sys.stdout.closed:
        raise OutputFailed("it is closed")
    return sys.stdout


def output_failed(error: OSError) -> NoReturn:
    """Let nothing more go to an output that failed; Python would complain at exit."""
    _discard(sys.stdout)
    if isinstance(error, BrokenPipeError):
        raise ReaderGone from error
    raise OutputFailed(describe_os_error(error)) from error


def _discard(stream: TextIO) -> None:
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


# -- remarks --------------------------------------------------------------------------------------


def warn(text: str) -> None:
    """A warning on stderr."""
    note(f"warning: {text}")


def note(line: str) -> None:
    """One line on stderr that is no result."""
    _remark(f"{visible(line)}\n")


def note_lines(lines: Iterable[str]) -> None:
    """Several lines on stderr."""
    _remark("".join(f"{visible(line)}\n" for line in lines))


def fail(
    text: str | Iterable[str],
    *,
    hint: str | None = None,
    code: str | None = None,
    exit_code: int = FAILURE,
) -> int:
    """Say in a line, or several, what went wrong, and give the exit code that says so too."""
    first, *more = [text] if isinstance(text, str) else text
    lines = [f"{paint('Error:', 'red', stream=sys.stderr)} {first}", *more]
    if hint:
        lines.append(f"hint: {hint}")
    if code:
        lines.append(f"code: {code}")
    note_lines(lines)
    return exit_code


def asked(question: str) -> bool:
    """Ask on stderr; only a clear yes is one."""
    ask(question)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def ask(question: str) -> None:
    """What somebody is to answer on the same line."""
    _remark(visible(question))


def redraw(line: str) -> None:
    """Put a line in the place of the one that was drawn last, on stderr."""
    _remark(f"\r\x1b[2K{visible(line)}")


def _remark(text: str) -> None:
    if sys.stderr is None or sys.stderr.closed:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


# -- how it looks ---------------------------------------------------------------------------------


def visible(line: str) -> str:
    """A line as it may be written: our colours, and every other control character spelled out."""
    if _MARK not in line:
        return escape(line)
    pieces = _MARKED.split(line)
    return "".join(f"\x1b[{piece}m" if at % 2 else escape(piece) for at, piece in enumerate(pieces))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sits at a stream."""
    return stream is not None and not stream.closed and stream.isatty()


def is_live(stream: TextIO | None = None) -> bool:
    """Whether a stream shows colours and lines that are drawn anew."""
    settings = Settings.from_environ()
    return is_terminal(stream or sys.stdout) and settings.terminal != "dumb"


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """A text in colours where its stream shows them, and as it is elsewhere.

    The colours are marks until ``visible`` makes them what a terminal understands.
    """
    if not styles or Settings.from_environ().no_color or not is_live(stream):
        return text
    codes = ";".join(_STYLES[style] for style in styles)
    return f"{_MARK}{codes}m{text}{_MARK}0m"


def describe_os_error(error: OSError) -> str:
    """One line about a failure of the operating system.

    >>> describe_os_error(FileNotFoundError(2, "No such file or directory", "a.pg"))
    'a.pg: no such file or directory'
    """
    reason = (error.strerror or type(error).__name__).lower()
    return f"{error.filename}: {reason}" if error.filename else reason
