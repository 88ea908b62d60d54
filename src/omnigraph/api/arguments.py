"""The annotations of the public API: the values that a parameter accepts beyond its type."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from omnigraph.argument_checks import (
    UNCHECKED,
    ArgumentRule,
    Location,
    Natural,
    Positive,
    is_path,
    not_blank,
    public,
)
from omnigraph.commit.names import check_actor
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Source

__all__ = [
    "Actor",
    "Label",
    "Location",
    "Natural",
    "Params",
    "Positive",
    "QuerySource",
    "SchemaSource",
    "TypesByFile",
    "no_local_files",
    "public",
    "source_of",
]

_LONGEST = 1_000


def _label(name: str, value: str) -> None:
    if not value.strip() or len(value) > _LONGEST:
        raise InputError(f"{name} must have 1 to {_LONGEST} characters")


def _actor(name: str, value: str) -> None:
    _label(name, value)
    check_actor(value)


def _path_keys(name: str, value: Mapping[Any, str]) -> None:
    for key in value:
        if not isinstance(key, str) and not is_path(key):
            raise InputError(f"a key of {name} must be a path, not {type(key).__name__}")
        not_blank(f"a key of {name}", key)


Actor = Annotated[str, ArgumentRule(_actor)]
"""The author of a write, as recorded in the commit."""
Label = Annotated[str, ArgumentRule(_label)]
"""A text of 1 to 1,000 characters that is not blank."""
SchemaSource = Annotated[str | os.PathLike[str], ArgumentRule(not_blank, "text or a path")]
"""A schema: its text, or the path of a ``.pg`` file."""
QuerySource = Annotated[str | os.PathLike[str], ArgumentRule(None, "text or a path")]
"""Queries: their text, or the path of a ``.gq`` file."""
Params = Annotated[Mapping[str, Any], UNCHECKED]
"""The parameters of a query by name; an invalid one raises ``ParameterError``."""
TypesByFile = Annotated[Mapping[Any, str], ArgumentRule(_path_keys, "a dict of types by file name")]
"""The type of each file, by its path."""


def source_of(given: str | os.PathLike[str], name: str, *, local_files: bool = True) -> Source:
    """A schema or query text, or the text of a file; ``name`` is the display name of a text.

    Without ``local_files`` a string is a text, whatever it looks like.

    >>> source_of("query q() { match { $p: Person } return { $p.name } }", "<query>").name
    '<query>'
    """
    if not local_files:
        return Source(name, refuse_path(name.strip("<>"), given))
    if isinstance(given, str) and ("{" in given or "\n" in given or _is_blank_line(given)):
        return Source(name, given)
    path = given if isinstance(given, Path) else Path(given)
    try:
        return Source(os.fspath(given), path.read_text("utf-8"))
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise InputError(f"cannot read '{path}': {reason}") from None
    except ValueError:
        raise InputError(f"'{path}' is not UTF-8 text") from None


def refuse_path(argument: str, value: str | os.PathLike[str]) -> str:
    """The text of an argument of a graph that is open without local files."""
    if isinstance(value, str):
        return value
    raise no_local_files(argument)


def no_local_files(argument: str) -> InputError:
    """The error of an argument that names a local file where none may be used."""
    return InputError(
        f"{argument} is refused: this graph is open without local files",
        hint="pass the text or the data itself",
    )


def _is_blank_line(given: str) -> bool:
    """Whether one line is blank or a comment, and not the path of a file that looks like one."""
    text = given.strip()
    return not text or (text.startswith(("//", "/*")) and not Path(given).exists())
