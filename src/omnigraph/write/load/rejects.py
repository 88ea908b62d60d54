"""Rejected records: their source lines, the reasons, and how many are allowed.

Which record ends a load must not depend on the order of checks. Rejects are therefore deferred
until all records before them are checked, and then handled in the order of files and lines. The
caller may name a file for them, one JSON object per line; it is written after the load has ended,
because only then is it certain that the file is not itself loaded.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import PathLike
from typing import IO, Any, BinaryIO, NoReturn

from omnigraph.errors import InputError, LoadError, OmniGraphError
from omnigraph.lang.values.spelling import show
from omnigraph.records import dataclass
from omnigraph.write.validate.rules import Violation

_LINE_BITS = 40
_LINES = (1 << _LINE_BITS) - 1
# The limit of deferred rejects.
_MAX_DEFERRED = 10_000
_ENDS = {"src": "from", "dst": "to"}
_IN_MEMORY = 1 << 20


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
        """Whether too many are deferred, so that the records before them should be checked now."""
        return self.count > self._allowed or len(self._deferred) >= _MAX_DEFERRED

    def defer(self, source_line: int, reject: Reject) -> None:
        """Add a reject while records before it may not have been checked."""
        self._deferred.append((source_line, reject))

    def flush(self) -> None:
        """Handle the deferred rejects in order; all records before them have been checked."""
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
        """End the load regardless of the allowed number of rejects."""
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
        """Ends the load regardless of the allowed number; not in ``collected``."""
        super().__init__(allowed, self.collected.append)

    def add(self, reject: Reject) -> None:
        if not self.has_room:
            self.collected.append(reject)
            raise TooManyRejects
        super().add(reject)

    def end(self, reject: Reject) -> NoReturn:
        self.fatal = reject
        raise TooManyRejects


class RejectsFile:
    """One file for rejected records; used inside ``open_rejects``."""

    def __init__(self, path: str | PathLike[str], waiting: IO[bytes]) -> None:
        self._path = os.fspath(path)
        self._waiting = waiting
        self._is_source = False

    def keep(self, reject: Reject) -> None:
        """Add a record; it is written when the load has ended."""
        line = json.dumps(reject.to_json(), ensure_ascii=False) + "\n"
        try:
            self._waiting.write(line.encode())
        except OSError as error:
            raise self._unwritable(error) from None

    def refuse_source(self, source: Any) -> None:
        """Refuse a path, or an open file by its number, that is this file or contains it."""
        if self._is(source) or self._lies_in(source):
            self._is_source = True
            shown = show(self._path)
            raise InputError(
                f"the rejected records would be written over '{shown}', which is loaded",
                hint="name another file for them",
                details={"file": shown},
            )

    def _is(self, source: Any) -> bool:
        with suppress(OSError, ValueError, TypeError):
            mine, theirs = os.stat(self._path), os.stat(source)
            # A terminal or a pipe may be read and written.
            return stat.S_ISREG(mine.st_mode) and os.path.samestat(mine, theirs)
        with suppress(OSError, ValueError, TypeError):
            return not isinstance(source, int) and _real(self._path) == _real(source)
        return False

    def _lies_in(self, source: Any) -> bool:
        with suppress(OSError, ValueError, TypeError):
            if not isinstance(source, int) and os.path.isdir(source):
                top = _real(source)
                return os.path.commonpath([top, _real(self._path)]) == top
        return False

    def open(self, data: Any) -> BinaryIO:
        """Open the file without emptying it; errors are raised before anything is read."""
        for source in data if isinstance(data, list | tuple | set | frozenset) else [data]:
            if isinstance(source, str | PathLike):
                self.refuse_source(os.fspath(source))
            elif (number := file_number(source)) is not None:
                self.refuse_source(number)
        try:
            return open(self._path, "ab")
        except (OSError, ValueError) as error:
            raise self._unwritable(error) from None

    def write(self, file: BinaryIO) -> None:
        """Replace the content of the file by the rejected records."""
        if self._is_source:
            return
        try:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.truncate(0)
            self._waiting.seek(0)
            shutil.copyfileobj(self._waiting, file)
            file.flush()
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: Exception) -> InputError:
        reason = (getattr(error, "strerror", None) or "it cannot be written").lower()
        shown = show(self._path)
        return InputError(f"cannot write '{shown}': {reason}", details={"file": shown})


@contextmanager
def open_rejects(path: str | PathLike[str] | None, data: Any) -> Iterator[RejectsFile | None]:
    """The file for the rejected records of a load, if the caller named one."""
    if path is None:
        yield None
        return
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as waiting:
        rejects = RejectsFile(path, waiting)
        file = rejects.open(data)
        try:
            yield rejects
        except BaseException:
            # The first error is the one to report.
            with suppress(InputError):
                rejects.write(file)
            raise
        else:
            rejects.write(file)
        finally:
            # Closing tries again to write what failed.
            with suppress(OSError):
                file.close()


def file_number(source: Any) -> int | None:
    """The descriptor of an open file; none for an object that only has ``read``."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return int(source.fileno())
    return None


def _real(path: Any) -> str:
    return str(os.path.realpath(os.fspath(path)))
