"""Reads bytes from files, compressed files and objects with a ``read`` method.

Every failure to read is raised here, as an error with the name of the file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.lang.values.spelling import show

_COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
_CHUNK = 1 << 18


def uncompressed(path: str) -> str:
    """A path without its compression suffix.

    >>> uncompressed("people.csv.gz"), uncompressed("people.csv")
    ('people.csv', 'people.csv')
    """
    return path.rsplit(".", 1)[0] if Path(path).suffix.lower() in _COMPRESSED else path


@contextmanager
def opened(path: str, *, decompressed: bool = True) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed by its suffix."""
    try:
        plain = open(path, "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    codec = _COMPRESSED.get(Path(path).suffix.lower()) if decompressed else None
    with plain:
        if codec is None:
            yield as_bytes(plain.read, path)
            return
        damaged = InputError(f"'{path}' is not {codec} data, or damaged", details={"file": path})
        with pa.CompressedInputStream(plain, codec) as stream:
            yield as_bytes(stream.read, path, damaged)


def as_bytes(read: Callable[[int], Any], name: str, damaged: InputError | None = None) -> BinaryIO:
    """A file object over a ``read`` function; closing it does not close the source."""
    return io.BufferedReader(_Raw(read, name, damaged), _CHUNK)


class _Raw(io.RawIOBase):
    """A raw file object over a function that reads bytes or text."""

    def __init__(self, read: Callable[[int], Any], name: str, damaged: InputError | None) -> None:
        self._read = read
        self._name = name
        self._damaged = damaged
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._rest or self._next(len(buffer))
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        self._rest = data[count:]
        return count

    def _next(self, size: int) -> bytes:
        try:
            data = self._read(size)
        except InputError:
            raise
        except UnicodeDecodeError:
            raise InputError(
                f"'{self._name}' is not UTF-8 text",
                hint="open the file in binary mode",
                details={"file": self._name},
            ) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged or _unreadable(self._name, error) from None
        if isinstance(data, str):
            return data.encode("utf-8", "surrogatepass")
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InputError(
                f"'{self._name}' gives {type(data).__name__} instead of bytes",
                details={"file": self._name},
            )
        return bytes(data)


def _unreadable(path: str, error: Exception) -> InputError:
    reason = (getattr(error, "strerror", None) or "it cannot be read").lower()
    shown = show(path)
    return InputError(f"cannot read '{shown}': {reason}", details={"file": shown})
