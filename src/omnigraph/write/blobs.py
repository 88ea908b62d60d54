"""Blob values of a write: bytes, base64 text, or the content of a local file.

A file is read only if the caller allows it: foreign data could otherwise store any file that this
process can read.
"""

from __future__ import annotations

import os
import stat
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from omnigraph.errors import ValueConversionError
from omnigraph.lang.values.spelling import FILE_SCHEME, decode_blob, names_file

_KERNEL = ("/proc/", "/sys/")


class LocalFiles(Enum):
    """How a Blob value that names a local file is handled."""

    NEVER = "never"
    """It is refused, whatever the caller passes."""
    REFUSED = "refused"
    """It is refused, and the hint names the flag."""
    READ = "read"
    """Its content is stored."""


def blob_bytes(value: Any, files: LocalFiles = LocalFiles.NEVER) -> bytes | None:
    """The bytes of a Blob value; a path or ``file://`` address is read where that is allowed.

    >>> blob_bytes("base64:aGk=")
    b'hi'
    """
    if value is None:
        return None
    if files is LocalFiles.NEVER or not names_file(value):
        return decode_blob(value)
    if files is LocalFiles.READ:
        return _content(_path(value))
    raise ValueConversionError(
        "a Blob that names a local file is not read",
        hint="pass allow_local_files=True to store the content of files that the data names",
    )


def blob_size(value: Any, files: LocalFiles = LocalFiles.NEVER) -> int:
    """The approximate size of a value in bytes, without reading it; 0 if unknown."""
    is_file = names_file(value)
    if isinstance(value, str) and not is_file:
        return len(value)
    try:
        if is_file:
            return _path(value).stat().st_size if files is LocalFiles.READ else 0
        return memoryview(value).nbytes
    except (OSError, ValueError, TypeError, ValueConversionError):
        return 0


def _path(value: str | Path) -> Path:
    if isinstance(value, Path):
        return value
    host, _, path = value[len(FILE_SCHEME) :].partition("/")
    if host not in ("", "localhost"):
        raise ValueConversionError("a file of another machine cannot be read")
    return Path("/" + unquote(path))


def _content(path: Path) -> bytes:
    """The content of a regular file; reading anything else might block or never end."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if stat.S_ISREG(about.st_mode) and not os.path.realpath(path).startswith(_KERNEL):
                # A file that grows meanwhile is refused.
                data = file.read(about.st_size + 1)
                if len(data) == about.st_size:
                    return data
    except (OSError, ValueError, MemoryError, OverflowError):
        pass
    shown = str(path).encode("utf-8", "backslashreplace").decode("utf-8")
    raise ValueConversionError(f"the file '{shown}' cannot be read")
