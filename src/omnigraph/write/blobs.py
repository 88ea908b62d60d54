"""Blob values on their way in: bytes, base64 text, or the content of a local file."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from omnigraph.errors import ValueConversionError

BASE64 = "base64:"
_FILE = "file://"


def blob_bytes(value: Any) -> bytes | None:
    """The bytes that a value stands for.

    Bytes stand for themselves, text that starts with ``base64:`` for what it encodes, a path or
    text that starts with ``file://`` for the content of that file.

    >>> blob_bytes("base64:aGk=")
    b'hi'
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Path):
        return _content(value)
    if isinstance(value, str) and value.startswith(BASE64):
        try:
            return base64.b64decode(value.removeprefix(BASE64), validate=True)
        except (binascii.Error, ValueError):
            raise ValueConversionError("the text after 'base64:' is not base64") from None
    if isinstance(value, str) and value.startswith(_FILE):
        return _content(_path(value))
    raise ValueConversionError(
        "a Blob is bytes, or text that starts with 'base64:' or 'file://'",
        hint="links to other places are not stored",
    )


def blob_size(value: Any) -> int:
    """About how many bytes a value will take, without reading them; 0 when that is not known."""
    if isinstance(value, str) and not value.startswith(_FILE):
        return len(value)
    try:
        if isinstance(value, str | Path):
            return _path(value).stat().st_size
        return memoryview(value).nbytes
    except (OSError, ValueError, TypeError, ValueConversionError):
        return 0


def _path(value: str | Path) -> Path:
    if isinstance(value, Path):
        return value
    host, _, path = value.removeprefix(_FILE).partition("/")
    if host not in ("", "localhost"):
        raise ValueConversionError("a file of another machine cannot be read")
    return Path("/" + unquote(path))


def _content(path: Path) -> bytes:
    try:
        # Anything else might never end.
        if path.is_file():
            return path.read_bytes()
    except (OSError, ValueError):
        pass
    raise ValueConversionError(f"the file '{_shown(path)}' cannot be read")


def _shown(path: Path) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")
