"""Records that a load does not take: where they stood, what is wrong, and how many may be.

Which record ends a load must not depend on when something was found out about it. What is wrong
with records themselves therefore waits until all that stand before them were looked at, and is
then taken in the order of files and lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from omnigraph.errors import LoadError, OmniGraphError
from omnigraph.write.validate.violations import Violation

_LINE_BITS = 40
_LINES = (1 << _LINE_BITS) - 1
# So many may wait at a time, however many are allowed.
_WAITING = 10_000


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
    """A record that was not taken, and why. Plain data: it may be pickled."""

    file: str
    line: int
    said: str
    field: str | None = None
    value: str | None = None
    counted: tuple[str, int] | None = None
    """What stands before ``said``, and the number of the record in its file that follows it."""
    violation: Violation | None = None
    """The rule that the record breaks, where it can be read."""
    hint: str | None = None
    """What to do about it."""

    @property
    def reason(self) -> str:
        """What is wrong.

        >>> Reject("a.ndjson", 7, "no", counted=("record", 3)).moved("a.ndjson", 10, 8).reason
        'record 11: no'
        """
        if self.counted is None:
            return self.said
        lead, number = self.counted
        return f"{lead} {number}: {self.said}"

    def moved(self, file: str, lines: int, records: int) -> Reject:
        """The same when so many lines and records of the file came before what was read."""
        counted = self.counted and (self.counted[0], self.counted[1] + records)
        return replace(self, file=file, line=self.line + lines, counted=counted)

    def error(self) -> OmniGraphError:
        """What a load that ends with this record raises: programs tell the rules apart."""
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


def broken(file: str, line: int, violation: Violation) -> Reject:
    """A record that breaks a rule of the schema."""
    known = violation.details
    blamed: tuple[str | None, str | None]
    if "missing" in known:
        blamed = (_ENDS[known["end"]], known["missing"])
    elif "source" in known:
        blamed = ("from", known["source"])
    else:
        blamed = (known.get("property"), known.get("value"))
    return Reject(file, line, violation.message, *blamed, violation=violation)


class Rejects:
    """What was refused so far. Beyond ``allowed`` the load ends with the one that was too much."""

    def __init__(self, allowed: int = 0, keep: Callable[[Reject], None] | None = None) -> None:
        self._allowed = allowed
        self._keep = keep
        self._settled = 0
        self._waiting: list[tuple[int, Reject]] = []

    @property
    def count(self) -> int:
        return self._settled + len(self._waiting)

    @property
    def has_room(self) -> bool:
        """Whether one more would be set aside instead of ending the load."""
        return self.count < self._allowed

    @property
    def needs_flush(self) -> bool:
        """Whether too many wait: what stands before them should be looked at, to settle them."""
        return self.count > self._allowed or len(self._waiting) >= _WAITING

    def wait(self, place: int, reject: Reject) -> None:
        """A record that was found while others before it may not have been looked at."""
        self._waiting.append((place, reject))

    def settle(self) -> None:
        """Take what waits in its order; nothing that comes later may stand before it."""
        # Of several records on a line nobody knows which is which: their reasons decide.
        self._waiting.sort(key=_order)
        waiting, self._waiting = self._waiting, []
        for _, reject in waiting:
            self.add(reject)

    def add(self, reject: Reject) -> None:
        """Set a record aside, or end the load with it."""
        if not self.has_room:
            self.end(reject)
        self._settled += 1
        if self._keep is not None:
            self._keep(reject)

    def end(self, reject: Reject) -> NoReturn:
        """End the load, however many records may be set aside."""
        raise reject.error()


def _order(found: tuple[int, Reject]) -> tuple[int, str, str, str]:
    place, reject = found
    return place, reject.said, reject.field or "", reject.value or ""


class TooManyRejects(Exception):
    """A part of a load that has more wrong in it than the whole may have."""


class CollectedRejects(Rejects):
    """Rejects of a part of a load, for whoever puts the parts together.

    ``found`` has all of them in their order, and at most one more than is allowed: with that the
    reading ends by ``TooManyRejects``.
    """

    def __init__(self, allowed: int = 0) -> None:
        self.found: list[Reject] = []
        self.last: Reject | None = None
        """What ends the load however many records may be set aside; it is not in ``found``."""
        super().__init__(allowed, self.found.append)

    def add(self, reject: Reject) -> None:
        if not self.has_room:
            self.found.append(reject)
            raise TooManyRejects
        super().add(reject)

    def end(self, reject: Reject) -> NoReturn:
        self.last = reject
        raise TooManyRejects
