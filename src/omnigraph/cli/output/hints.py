"""Rewrites errors of the engine for the command line: options instead of Python calls.

The engine names a parameter as Python code does: ``force=True``, ``engine='spark'``. The rules
below convert such code to options and commands; other phrases are listed literally. A test
checks that no hint of the engine reaches the user of a command with Python in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.errors import OmniGraphError

_PHRASES = {
    "pass dest": "pass --out",
    "resolve='ours' or 'theirs', or one for each conflict by its id": "--resolve ours or theirs, "
    "or a file that --conflicts FILE wrote, with a choice for each",
    "pass a side, a mapping, or the path of a file with choices": "pass ours, theirs, or the path "
    "of a file with choices",
    "open it with mode='rw'": "start the shell without --read-only",
    "open the graph once with mode='rw' to update it": "run a command that writes to update it",
    "Graph.init": "`omnigraph init`",
    "Graph.open": "`omnigraph shell`",
    "omnigraph.backup_points": "`omnigraph backup --list`",
    "verify_graph()": "`omnigraph verify`",
    "run it as a mutation": "run it with `omnigraph mutate`",
    "raise max_rows": "raise --max-rows",
    "filter earlier, return less, or raise max_memory": "filter earlier or return less",
    "a larger min_age": "a larger --min-age",
    "keep_versions=10, or older_than=timedelta(days=7)": "--keep 10, or --older-than 7d",
    "pass a timedelta or seconds": "write it as 30m, 12h or 7d",
    "keep=7, or points=[…] with ids": "--keep 7, or --point with ids",
    "pass a datetime for a time": "pass a time with --at",
    "pass an aware datetime": "write it as 2026-01-31T12:00:00Z",
    "types={'-': 'Person'}": "--type -=Person",
    "or read columns by position with to_arrow()": "or write columns by position with "
    "--format arrow",
    "read it as Arrow, with to_arrow()": "write it as Arrow, with --format arrow",
    "cleanup() or repair()": "cleanup() or `omnigraph repair`",
}
_RULES = (
    (r"\bgraph\.maintenance\.(\w+)(?:\(\))?", r"`omnigraph \1`"),
    (r"\bgraph\.indexes\.(\w+)\('([^']*)', '([^']*)'\)", r"`omnigraph index \1 \2 \3`"),
    (r"\bgraph\.indexes\.(\w+)(?:\(\))?", r"`omnigraph index \1`"),
    (r"\b([a-z]+(?:_[a-z]+)*)=True\b", r"--\1"),
    (r"\b([a-z]+(?:_[a-z]+)*)='(\w+)'", r"--\1 \2"),
)


def hint_for_options(hint: str | None) -> str | None:
    """A hint with command-line options instead of Python calls.

    >>> hint_for_options("create one with Graph.init")
    'create one with `omnigraph init`'
    >>> hint_for_options("pass allow_empty=True")
    'pass --allow-empty'
    """
    if hint is None:
        return None
    for python, words in _PHRASES.items():
        hint = hint.replace(python, words)
    for pattern, words in _RULES:
        hint = re.sub(pattern, words, hint)
    return re.sub(r"--[a-z_]+", lambda option: option[0].replace("_", "-"), hint)


def message_for_options(error: OmniGraphError) -> str:
    """The message of an error; an argument that it begins with becomes the option of that name."""
    argument = error.details.get("argument")
    if not isinstance(argument, str) or "_" not in argument:
        return error.message
    return re.sub(rf"^{re.escape(argument)}\b", f"--{argument.replace('_', '-')}", error.message)
