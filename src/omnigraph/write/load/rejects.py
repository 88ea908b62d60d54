"""Rejected records: their source lines, the reasons, and how many are allowed.

Which record ends a load must not depend on when it was checked. Rejects are therefore deferred
until all records before them were checked, and then handled in the order of files and lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from omnigraph.errors import LoadError, OmniGraphError
from omnigraph.write.validate.violations import Violation

_LINE_BITS = 40
_LINES = (1 << _LINE_BITS) - 1
# At most so many are deferred at a time.
_MAX_DEFERRED = 10_000


def source_line(file: int, line: int) -> int:
    """File and line in one number, kept with each row."""
    return file << _LINE_BITS | line


def file_and_line(number: int) -> tuple[int, int]:
    """The inverse of ``source_line``.

    >>> file_and_line(source_line(3, 17))
    (3, 17)
    """
    return number >> _LINE_BITS, number & _LINES


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejected record and the reason. Can be pickled."""

    file: str
    line: int
    message: str
    field: str | None = None
    value: str | None = None
    counted: tuple[str, int] | None = None
    """A prefix of ``message``, and the number of the record in its file."""
    violation: Violation | None = None
    """The rule that a readable record breaks."""
    hint: str | None = None

    @property
    def reason(self) -> str:
        """The message with its prefix.

        >>> Reject("a.ndjson", 7, "no", counted=("record", 3)).shifted("a.ndjson", 10, 8).reason
        'record 11: no'
        """
        if self.counted is None:
            return self.message
        lead, number = self.counted
        return f"{lead} {number}: {self.message}"

    def shifted(self, file: str, lines: int, records: int) -> Reject:
        """The same record, counted from the start of its file instead of a split."""
        counted = self.counted and (self.counted[0], self.counted[1] + records)
        return replace(self, file=file, line=self.line + lines, counted=counted)

    def error(self) -> OmniGraphError:
        """The error of a load that ends with this record; its class is that of the rule."""
        where = f"{self.file}:{self.line}"
        if self.violation is None:
            details = self.to_json()
            return LoadError(f"{where}: {self.reason}", hint=self.hint, details=details)
        error = self.violation.error()
        error.message = f"{where}: {error.message}"
        error.args = (error.message,)
        error.details.update(self.to_json())
        return error

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


def violation_reject(file: str, line: int, violation: Violation) -> Reject:
    """A record that breaks a rule of the schema."""
    details = violation.details
    blamed: tuple[str | None, str | None]
    if "missing" in details:
        blamed = (_ENDS[details["end"]], details["missing"])
    elif "source" in details:
        blamed = ("from", details["source"])
    else:
        blamed = (details.get("property"), details.get("value"))
    return Reject(file, line, violation.message, *blamed, violation=violation)


class Rejects:
    """The rejects so far; the first one beyond ``allowed`` ends the load."""

    def __init__(self, allowed: int = 0, keep: Callable[[Reject], None] | None = None) -> None:
        self._allowed = allowed
        self._keep = keep
        self._handled = 0
        self._deferred: list[tuple[int, Reject]] = []

    @property
    def count(self) -> int:
        return self._handled + len(self._deferred)

    @property
    def has_room(self) -> bool:
        """Whether one more record may be rejected without ending the load."""
        return self.count < self._allowed

    @property
    def needs_flush(self) -> bool:
        """Whether so many are deferred that the records before them should be checked now."""
        return self.count > self._allowed or len(self._deferred) >= _MAX_DEFERRED

    def defer(self, source_line: int, reject: Reject) -> None:
        """Add a reject while records before it may not have been checked."""
        self._deferred.append((source_line, reject))

    def flush(self) -> None:
        """Handle the deferred rejects in order; every record before them was checked."""
        # Records on the same line are ordered by their reasons.
        self._deferred.sort(key=_order)
        deferred, self._deferred = self._deferred, []
        for _, reject in deferred:
            self.add(reject)

    def add(self, reject: Reject) -> None:
        """Reject a record, or end the load with it."""
        if not self.has_room:
            self.end(reject)
        self._handled += 1
        if self._keep is not None:
            self._keep(reject)

    def end(self, reject: Reject) -> NoReturn:
        """End the load, however many records may be rejected."""
        raise reject.error()


def _order(item: tuple[int, Reject]) -> tuple[int, str, str, str]:
    line, reject = item
    return line, reject.message, reject.field or "", reject.value or ""


class TooManyRejects(Exception):
    """A split has more rejects than the whole load may have."""


class CollectedRejects(Rejects):
    """Rejects of a split, for the driver that combines the splits.

    ``collected`` has all of them in order, and at most one more than is allowed: that one ends
    the split with ``TooManyRejects``.
    """

    def __init__(self, allowed: int = 0) -> None:
        self.collected: list[Reject] = []
        self.fatal: Reject | None = None
        """Ends the load, however many records may be rejected; not in ``collected``."""
        super().__init__(allowed, self.collected.append)

    def add(self, reject: Reject) -> None:
        if not self.has_room:
            self.collected.append(reject)
            raise TooManyRejects
        super().add(reject)

    def end(self, reject: Reject) -> NoReturn:
        self.fatal = reject
        raise TooManyRejects
