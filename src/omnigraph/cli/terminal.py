"""How the command speaks: results on stdout, the rest on stderr, and the exit codes.

No command writes to a stream by itself; what is printed here is the contract that scripts
match on.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any, TextIO

from omnigraph.settings import Settings

OK = 0
FAILURE = 1
USAGE = 2
CONFLICT = 3
PRECONDITION = 4
INTERRUPTED = 130

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def speak_utf8() -> None:
    """Write UTF-8 whatever the locale says; what cannot be encoded is shown escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def show(text: str) -> None:
    """One result text, ended by a line end."""
    _write(sys.stdout, f"{text}\n")


def show_raw(text: str) -> None:
    """A result text exactly as it is."""
    _write(sys.stdout, text)


def show_json(document: Any) -> None:
    """One JSON document: two-space indent, keys in the order given."""
    show(json.dumps(document, indent=2, ensure_ascii=False))


def show_either(as_json: bool, document: Any, text: str) -> None:
    """The same result for scripts or for people."""
    if as_json:
        show_json(document)
    else:
        show(text)


def warn(text: str) -> None:
    """A warning on stderr."""
    note(f"warning: {text}")


def note(text: str) -> None:
    """A remark on stderr that is no result and no warning."""
    _write(sys.stderr, f"{text}\n")


def fail(
    text: str, *, hint: str | None = None, code: str | None = None, exit_code: int = FAILURE
) -> int:
    """Say what went wrong, and give the exit code that says so too."""
    lines = [f"{paint('Error:', 'red', stream=sys.stderr)} {text}"]
    if hint:
        lines.append(f"hint: {hint}")
    if code:
        lines.append(f"code: {code}")
    note("\n".join(lines))
    return exit_code


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sits at a stream."""
    return stream is not None and not stream.closed and stream.isatty()


def is_live(stream: TextIO | None = None) -> bool:
    """Whether a stream shows colours and lines that are drawn anew."""
    settings = Settings.from_environ()
    return is_terminal(stream or sys.stdout) and settings.terminal != "dumb"


def paint(text: str, *styles: str, stream: TextIO | None = None) -> str:
    """A text in colours where its stream shows them, and as it is elsewhere."""
    if not styles or Settings.from_environ().no_color or not is_live(stream):
        return text
    codes = ";".join(_STYLES[style] for style in styles)
    return f"\x1b[{codes}m{text}\x1b[0m"


def asked(question: str) -> bool:
    """Ask on stderr; only a clear yes is one."""
    ask(question)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def ask(question: str) -> None:
    """What somebody is to answer on the same line."""
    _write(sys.stderr, question)
    if sys.stderr is not None:
        sys.stderr.flush()


def show_bytes(data: Any) -> None:
    """A piece of a binary result."""
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


def flush() -> None:
    """Write out results now, so that a failure is noticed here and not at exit."""
    if sys.stdout is not None:
        sys.stdout.flush()


def give_up_stdout() -> None:
    """Let nothing more go to an output that failed; Python would complain at exit."""
    try:
        flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _write(stream: TextIO | None, text: str) -> None:
    """Write to a stream, unless the process was started without it."""
    if stream is not None:
        stream.write(text)


def describe_os_error(error: OSError) -> str:
    """One line about a failure of the operating system.

    >>> describe_os_error(FileNotFoundError(2, "No such file or directory", "a.pg"))
    'a.pg: no such file or directory'
    """
    reason = (error.strerror or type(error).__name__).lower()
    return f"{error.filename}: {reason}" if error.filename else reason
