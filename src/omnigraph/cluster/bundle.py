"""The files of a configuration: read once, so that what is checked is what is applied.

A bundle is a directory, or a set of files in memory, for example those that a client sends. Paths
are relative to the directory of ``cluster.yaml``.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

CONFIG = "cluster.yaml"
LARGEST_FILE = 16 << 20
"""The bytes of a file of a configuration, at most."""


class FileUnreadable(Exception):
    """Why a file of a configuration cannot be read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ConfigBundle(Protocol):
    """The files of a configuration."""

    @property
    def name(self) -> str:
        """The directory as reports name it."""

    def read(self, path: str) -> bytes:
        """The content of a file; the same on every call. Raises ``FileUnreadable``."""

    def is_directory(self, path: str) -> bool: ...

    def listing(self, path: str) -> list[str]:
        """The paths of the files directly in a directory, sorted. Raises ``FileUnreadable``."""


class DirectoryBundle:
    """A configuration in a directory."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._top = Path(directory)
        self._contents: dict[str, bytes] = {}

    @property
    def name(self) -> str:
        return os.path.abspath(self._top)

    @property
    def contents(self) -> Mapping[str, bytes]:
        """The files that were read so far."""
        return self._contents

    @property
    def exists(self) -> bool:
        return self._top.is_dir()

    def read(self, path: str) -> bytes:
        if path not in self._contents:
            try:
                with open(self._top / path, "rb") as file:
                    content = file.read(LARGEST_FILE + 1)
            except (OSError, ValueError) as error:
                raise FileUnreadable(_reason(error)) from None
            if len(content) > LARGEST_FILE:
                raise FileUnreadable(f"it has more than {LARGEST_FILE} bytes")
            self._contents[path] = content
        return self._contents[path]

    def is_directory(self, path: str) -> bool:
        return "\0" not in path and (self._top / path).is_dir()

    def listing(self, path: str) -> list[str]:
        try:
            names = sorted(entry.name for entry in (self._top / path).iterdir() if entry.is_file())
        except OSError as error:
            raise FileUnreadable(_reason(error)) from None
        return [posixpath.join(path, name) for name in names]


class MemoryBundle:
    """A configuration whose files were sent by somebody.

    >>> MemoryBundle("upload", {"queries/a.gq": b"x"}).listing("queries/")
    ['queries/a.gq']
    """

    def __init__(self, name: str, files: Mapping[str, bytes]) -> None:
        self.name = name
        self._files = {posixpath.normpath(path): content for path, content in files.items()}

    @property
    def contents(self) -> Mapping[str, bytes]:
        """All files."""
        return self._files

    def read(self, path: str) -> bytes:
        try:
            return self._files[posixpath.normpath(path)]
        except KeyError:
            raise FileUnreadable("no such file") from None

    def is_directory(self, path: str) -> bool:
        folder = posixpath.normpath(path)
        return any(posixpath.dirname(file) == folder for file in self._files)

    def listing(self, path: str) -> list[str]:
        folder = posixpath.normpath(path)
        return sorted(file for file in self._files if posixpath.dirname(file) == folder)


def _reason(error: OSError | ValueError) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return (strerror or "it cannot be read").lower()
