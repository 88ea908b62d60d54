"""Blob values on their way in: bytes, base64 text, or the content of a local file.

A file is read only where the caller said so: data that comes from elsewhere could otherwise store
any file that this process can read.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from omnigraph.errors import ValueConversionError

BASE64 = "base64:"
_KERNEL = ("/proc/", "/sys/")
_FILE = "file://"


class LocalFiles(Enum):
    """What becomes of a Blob value that names a local file."""

    NEVER = "never"
    """It is refused, and nothing that a caller could pass would change that."""
    REFUSED = "refused"
    """It is refused, and the hint names the flag."""
    READ = "read"
    """Its content is stored."""

    @classmethod
    def by_flag(cls, is_allowed: bool) -> LocalFiles:
        """What ``allow_local_files`` of a call means."""
        return cls.READ if is_allowed else cls.REFUSED


def blob_bytes(value: Any, files: LocalFiles = LocalFiles.NEVER) -> bytes | None:
    """The bytes that a value stands for.

    Bytes stand for themselves, text that starts with ``base64:`` for what it encodes, a path or
    text that starts with ``file://`` for the content of that file, where that is allowed.

    >>> blob_bytes("base64:aGk=")
    b'hi'
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str) and value.startswith(BASE64):
        try:
            return base64.b64decode(value.removeprefix(BASE64), validate=True)
        except (binascii.Error, ValueError):
            raise ValueConversionError("the text after 'base64:' is not base64") from None
    if _names_a_file(value):
        if files is not LocalFiles.READ:
            raise _refused(files)
        return _content(_path(value))
    raise ValueConversionError(
        "a Blob is bytes, or text that starts with 'base64:' or 'file://'",
        hint="links to other places are not stored",
    )


def blob_size(value: Any, files: LocalFiles = LocalFiles.NEVER) -> int:
    """About how many bytes a value will take, without reading them; 0 when that is not known."""
    is_file = _names_a_file(value)
    if isinstance(value, str) and not is_file:
        return len(value)
    try:
        if is_file:
            return _path(value).stat().st_size if files is LocalFiles.READ else 0
        return memoryview(value).nbytes
    except (OSError, ValueError, TypeError, ValueConversionError):
        return 0


def _names_a_file(value: Any) -> bool:
    """Whether a value is a path, or the address of a local file; schemes have no case."""
    if isinstance(value, str):
        return value[: len(_FILE)].lower() == _FILE
    return isinstance(value, Path)


def _refused(files: LocalFiles) -> ValueConversionError:
    hint = None
    if files is LocalFiles.REFUSED:
        hint = "pass allow_local_files=True to store the content of files that the data names"
    return ValueConversionError("a Blob that names a local file is not read", hint=hint)


def _path(value: str | Path) -> Path:
    if isinstance(value, Path):
        return value
    host, _, path = value[len(_FILE) :].partition("/")
    if host not in ("", "localhost"):
        raise ValueConversionError("a file of another machine cannot be read")
    return Path("/" + unquote(path))


def _content(path: Path) -> bytes:
    """All of a regular file. Anything else might never end, or wait for somebody to write."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if stat.S_ISREG(about.st_mode) and not os.path.realpath(path).startswith(_KERNEL):
                # A file that grows meanwhile has no content that could be named.
                data = file.read(about.st_size + 1)
                if len(data) == about.st_size:
                    return data
    except (OSError, ValueError, MemoryError, OverflowError):
        pass
    raise ValueConversionError(f"the file '{_shown(path)}' cannot be read")


def _shown(path: Path) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")
