"""What users may pass, checked once by the name of the argument.

Everything that a user can call on a graph is marked ``public``; a wrong kind of value is then an
``InputError`` that names the argument, instead of whatever the depths make of it.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from omnigraph.commit.names import check_actor
from omnigraph.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")
_LONGEST = 1_000

ENGINES = ("auto", "local", "spark")
"""Where work may run."""


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Check the arguments of a call by their names before it starts.

    None is fine where it is the default.
    """
    parameters = inspect.signature(function).parameters
    checked = {
        name: (check, parameter.default is None)
        for name, parameter in parameters.items()
        if (check := _CHECKS.get(f"{function.__name__}.{name}", _CHECKS.get(name))) is not None
    }
    names = tuple(parameters)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # Too many or unknown arguments are for Python to refuse, in the call itself.
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in checked:
                check, may_be_none = checked[name]
                if value is not None or not may_be_none:
                    check(name, value)
        return function(*args, **kwargs)

    return call


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    if "\0" in value:
        raise InputError(f"{name} holds a NUL character")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{name} is not valid Unicode") from None


def _label(name: str, value: Any) -> None:
    _text(name, value)
    if not value.strip() or len(value) > _LONGEST:
        raise InputError(f"{name} must have 1 to {_LONGEST} characters")


def _actor(name: str, value: Any) -> None:
    _label(name, value)
    check_actor(value)


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, value, "a whole number")


def _whole_or_none(name: str, value: Any) -> None:
    if value is not None:
        _whole(name, value)


def _number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(name, value, "a number")


def _moment(name: str, value: Any) -> None:
    if not isinstance(value, datetime):
        raise _wrong(name, value, "a datetime")


def _path(name: str, value: Any) -> None:
    _spelled(name, value, "a path")
    _not_blank(name, value)


def _schema(name: str, value: Any) -> None:
    _source(name, value)
    _not_blank(name, value)


def _source(name: str, value: Any) -> None:
    """What a text of queries lacks, its reader says."""
    _spelled(name, value, "text or a path")


def _spelled(name: str, value: Any, wanted: str) -> None:
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise _wrong(name, value, wanted)
    _text(name, os.fspath(value))


def _not_blank(name: str, value: Any) -> None:
    if not os.fspath(value).strip():
        raise InputError(f"{name} is empty")


def _mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(name, value, "a dict")
    for key in value:
        _text(f"a key of {name}", key)


def _names(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise _wrong(name, value, "a list of names")


def _types_of_files(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _wrong(name, value, "a dict of types by file name")
    for file in value:
        _path(f"a key of {name}", file)


def _function(name: str, value: Any) -> None:
    if not callable(value):
        raise _wrong(name, value, "a function")


def _wrong(name: str, value: Any, wanted: str) -> InputError:
    return InputError(f"{name} must be {wanted}, not {type(value).__name__}")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "uri": _path,
    "schema": _schema,
    "source": _source,
    "rejects": _path,
    "dest": _path,
    "branch": _text,
    "from_branch": _text,
    "name": _text,
    "commit": _text,
    "commit_id": _text,
    "if_commit": _text,
    "tag": _text,
    "type_name": _text,
    "entity_id": _text,
    "property_name": _text,
    "actor": _actor,
    "idempotency_key": _label,
    "version": _whole,
    "max_rejects": _whole,
    "max_rows": _whole,
    "max_memory": _whole_or_none,
    "timeout": _number,
    "at": _moment,
    "offset": _whole,
    "length": _whole,
    "rows": _mapping,
    "storage_options": _mapping,
    "values": _mapping,
    "types": _names,
    "load.types": _types_of_files,
    "columns": _names,
    "properties": _names,
    "resume": _path,
    "requests_per_minute": _number,
    "tokens_per_minute": _number,
    "progress": _function,
    "points": _names,
    "keep": _whole,
}
