"""Blob values on their way in: bytes, base64 text, or the content of a local file."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from omnigraph.errors import ValueConversionError

_BASE64 = "base64:"
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
    if isinstance(value, str) and value.startswith(_BASE64):
        try:
            return base64.b64decode(value.removeprefix(_BASE64), validate=True)
        except (binascii.Error, ValueError):
            raise ValueConversionError("the text after 'base64:' is not base64") from None
    if isinstance(value, str) and value.startswith(_FILE):
        return _content(Path(unquote(urlsplit(value).path)))
    raise ValueConversionError(
        "a Blob is bytes, or text that starts with 'base64:' or 'file://'",
        hint="links to other places are not stored",
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError):
        raise ValueConversionError(f"the file '{path}' cannot be read") from None
