"""Records that a load does not take: where they stood, what is wrong, and how many may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import LoadError, OmniGraphError
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
