"""The file that a caller names for rejected records, one JSON object a line.

What is rejected waits elsewhere until the load has ended: only then is it certain that the file is
none of those that are loaded, which may come one by one.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from typing import IO, Any, BinaryIO

from omnigraph.errors import InputError
from omnigraph.lang.values.spelling import show
from omnigraph.write.load.rejects import Reject

_IN_MEMORY = 1 << 20


class RejectsFile:
    """One file for rejected records; used inside ``open_rejects``."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._waiting: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        self._is_source = False

    def __enter__(self) -> RejectsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.close()

    def keep(self, reject: Reject) -> None:
        """Take a record in; it is written when the load has ended."""
        line = json.dumps(reject.to_json(), ensure_ascii=False) + "\n"
        try:
            self._waiting.write(line.encode())
        except OSError as error:
            raise self._unwritable(error) from None

    def _refuse_sources(self, data: Any) -> None:
        """Refuse data that is loaded from this file, as far as that can be seen before it is."""
        for source in data if isinstance(data, list | tuple | set | frozenset) else [data]:
            if isinstance(source, str | PathLike):
                self.refuse_source(os.fspath(source))
            elif (number := file_number(source)) is not None:
                self.refuse_source(number)

    def refuse_source(self, source: Any) -> None:
        """Refuse a path, or an open file by its number, that is this file or holds it."""
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
        """The file, not emptied yet; it fails here, before anything is read, if it must."""
        self._refuse_sources(data)
        try:
            return open(self._path, "ab")
        except (OSError, ValueError) as error:
            raise self._unwritable(error) from None

    def write(self, file: BinaryIO) -> None:
        """What was rejected, in the place of what the file held before."""
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
    """The file for the rejected records of a load, none where nobody named one."""
    if path is None:
        yield None
        return
    rejects = RejectsFile(path)
    with rejects, _closing(rejects.open(data)) as file:
        try:
            yield rejects
        except BaseException:
            # The first error is the one to tell.
            with suppress(InputError):
                rejects.write(file)
            raise
        rejects.write(file)


@contextmanager
def _closing(file: BinaryIO) -> Iterator[BinaryIO]:
    """A file whose end is silent: to close it tries once more what could not be written."""
    try:
        yield file
    finally:
        with suppress(OSError):
            file.close()


def file_number(source: Any) -> int | None:
    """The number of an open file; none for what only reads like one."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return int(source.fileno())
    return None


def _real(path: Any) -> str:
    return str(os.path.realpath(os.fspath(path)))
