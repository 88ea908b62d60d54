"""Schema and query texts, given as text or as a path."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Source

_COMMENTS = ("//", "/*")


def source_of(given: str | PathLike[str], name: str) -> Source:
    """The text with its display name: the file name, or the given one.

    >>> source_of("query q() { match { $p: Person } return { $p.name } }", "<query>").name
    '<query>'
    """
    if isinstance(given, str) and ("{" in given or "\n" in given or _says_nothing(given)):
        return Source(name, given)
    path = Path(given)
    try:
        return Source(fspath(given), path.read_text("utf-8"))
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise InputError(f"cannot read '{path}': {reason}") from None
    except (UnicodeDecodeError, ValueError):
        raise InputError(f"'{path}' is not UTF-8 text") from None


def _says_nothing(given: str) -> bool:
    """Whether one line is blank or a comment, and not the path of a file that looks like one."""
    text = given.strip()
    return not text or (text.startswith(_COMMENTS) and not Path(given).exists())
