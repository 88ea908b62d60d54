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

OK = 0
FAILURE = 1
USAGE = 2
INTERRUPTED = 130


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


def warn(text: str) -> None:
    """A warning on stderr."""
    note(f"warning: {text}")


def note(text: str) -> None:
    """A remark on stderr that is no result and no warning."""
    _write(sys.stderr, f"{text}\n")


def fail(text: str, *, hint: str | None = None, exit_code: int = FAILURE) -> int:
    """Say what went wrong, and give the exit code that says so too."""
    lines = [f"Error: {text}"]
    if hint:
        lines.append(f"hint: {hint}")
    note("\n".join(lines))
    return exit_code


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
