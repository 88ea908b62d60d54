"""Records that a load does not take: where they stood, what is wrong, and how many may be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, TextIO

from omnigraph.errors import InputError, LoadError, OmniGraphError
from omnigraph.write.validate.violations import Violation

_LINE_BITS = 40
_LINES = (1 << _LINE_BITS) - 1


def place(file: int, line: int) -> int:
    """File and line in one number, as it stands beside each row."""
    return file << _LINE_BITS | line


def file_and_line(number: int) -> tuple[int, int]:
    """The inverse of ``place``.

    >>> file_and_line(place(3, 17))
    (3, 17)
    """
    return number >> _LINE_BITS, number & _LINES


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that was not taken, and why."""

    file: str
    line: int
    reason: str
    field: str | None = None
    value: str | None = None

    def error(self) -> LoadError:
        return LoadError(f"{self.file}:{self.line}: {self.reason}", details=self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "file": self.file,
            "line": self.line,
            "field": self.field,
            "value": self.value,
            "reason": self.reason,
        }


_ENDS = {"src": "from", "dst": "to"}


def blamed(violation: Violation) -> tuple[str | None, str | None]:
    """The field of a record that breaks a rule, and what stands there."""
    known = violation.details
    if "missing" in known:
        return _ENDS[known["end"]], known["missing"]
    if "source" in known:
        return "from", known["source"]
    return known.get("property"), known.get("value")


def placed(violation: Violation, reject: Reject) -> OmniGraphError:
    """The error of a violation, with the place of its record."""
    error = violation.error()
    error.message = f"{reject.file}:{reject.line}: {error.message}"
    error.args = (error.message,)
    error.details.update(reject.to_json())
    return error


class Rejects:
    """What was refused so far. Beyond ``allowed`` the load ends with the one that was too much."""

    def __init__(self, allowed: int = 0, keep: Callable[[Reject], None] | None = None) -> None:
        self._allowed = allowed
        self._keep = keep
        self.count = 0

    @property
    def goes_on(self) -> bool:
        """Whether one more would be set aside instead of ending the load."""
        return self.count < self._allowed

    def add(self, reject: Reject, error: Callable[[], Exception] | None = None) -> None:
        """Set a record aside, or raise: ``error`` where it says better what is wrong."""
        if not self.goes_on:
            raise reject.error() if error is None else error()
        self.count += 1
        if self._keep is not None:
            self._keep(reject)


@contextmanager
def kept_in(path: str | PathLike[str] | None) -> Iterator[Callable[[Reject], None] | None]:
    """The file that rejected records are written to, one JSON object a line."""
    if path is None:
        yield None
        return
    try:
        file = open(path, "w", encoding="utf-8")  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None
    with file:
        yield lambda reject: _write(file, path, reject)


def _write(file: TextIO, path: str | PathLike[str], reject: Reject) -> None:
    try:
        file.write(json.dumps(reject.to_json(), ensure_ascii=False) + "\n")
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: str | PathLike[str], error: Exception) -> InputError:
    reason = (getattr(error, "strerror", None) or "it cannot be written").lower()
    return InputError(f"cannot write '{path}': {reason}", details={"file": str(path)})
