"""Text files named on the command line: read as UTF-8, replaced atomically.

Every failure is reported in one line that names the file.
"""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path, PosixPath
from typing import BinaryIO

from omnigraph.cli.command_context import current, stdin
from omnigraph.cli.output import terminal
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Source

STDIN = "-"
STDIN_NAME = "<stdin>"


def read_source(path: str) -> Source:
    """Read a file, under the name the user gave."""
    try:
        data = input_file(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(_unreadable(path, error)) from error
    return Source(path, _decode(path, data))


def read_text(path: str) -> Source:
    """Read a file, or stdin for ``-``."""
    if path == STDIN:
        return Source(STDIN_NAME, _decode(STDIN_NAME, stdin_stream().read()))
    return read_source(path)


def read_bytes(path: str) -> bytes:
    """Read the bytes of a file, or of stdin for ``-``."""
    if path == STDIN:
        return stdin_stream().read()
    try:
        return input_file(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(_unreadable(path, error)) from error


def text_or_path(path: str) -> str | Path:
    """A schema or query for the engine: a path, or the text of stdin or of a pipe.

    A pipe, such as ``<(...)`` in a shell, can be read only once.
    """
    if path == STDIN or input_file(path).is_fifo():
        # The newline marks it as a text, whatever it looks like.
        return f"{read_text(path).text}\n"
    return input_file(path)


def input_file(path: str) -> Path:
    """A file to read; a command that runs for another process has opened it there."""
    context = current()
    return Path(path) if context is None else context.inputs[str(Path(path))]


def load_data(path: str) -> str | BinaryIO:
    """Data for a load: the path, or the file that the process of the command has opened."""
    context = current()
    return path if context is None else context.inputs[str(Path(path))].stream(path)


class InputFile(PosixPath):
    """A regular file that the process of the command has opened; its path is only its name."""

    descriptor: int

    @classmethod
    def of(cls, path: str, descriptor: int) -> InputFile:
        file = cls(path)
        file.descriptor = descriptor
        return file

    def is_fifo(self) -> bool:
        return False

    def read_bytes(self) -> bytes:
        with open(self.descriptor, "rb", closefd=False) as stream:
            stream.seek(0)
            return stream.read()

    def read_text(self, encoding: str | None = None, *_: object, **__: object) -> str:
        return self.read_bytes().decode(encoding or "utf-8")

    def stream(self, name: str) -> BinaryIO:
        """The bytes of the file, under the name that the user gave."""
        raw = io.FileIO(self.descriptor, "rb", closefd=False)
        raw.name = name
        raw.seek(0)
        return io.BufferedReader(raw)


def stdin_stream() -> BinaryIO:
    stream = stdin()
    if stream is None:
        raise InputError(f"{STDIN_NAME}: closed")
    return stream.buffer


def replace_text(path: str, text: str) -> None:
    """Replace the text of a file atomically.

    A symbolic link is kept (its target is replaced), and so are the permissions.
    """
    target = Path(path).resolve()
    try:
        replace_bytes(target, text.encode("utf-8"), target.stat().st_mode & 0o7777)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(f"{path}: cannot be written: {reason}") from error


def replace_bytes(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file durably and atomically; until it has its mode, only its owner can read it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _decode(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}: not UTF-8 text (byte 0x{data[error.start]:02x} at offset {error.start})",
            hint="save the file as UTF-8",
        ) from error


def _unreadable(path: str, error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        error.filename = path
        return terminal.describe_os_error(error)
    return f"{path!r}: not a file name"
