"""Making sure that what was written survives a power failure, on local disk.

Neither Lance nor the object store does that. A file is safe when its bytes and the directory
entry that leads to it are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path


class Durability(StrEnum):
    """When a write counts as done: on the disk, or handed to the operating system."""

    DISK = "disk"
    OS = "os"


def sync_file(path: Path | str) -> None:
    """Write the bytes of a file to the disk."""
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path | str) -> None:
    """Write the entries of a directory to the disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_tree(files: Iterable[Path | str], top: Path | str, *, missing_ok: bool = False) -> None:
    """Sync files, then every directory between them and ``top``, each once."""
    last = str(top)
    directories: set[str] = set()
    for file in files:
        try:
            sync_file(file)
        except FileNotFoundError:
            if not missing_ok:
                raise
            continue
        folder = os.path.dirname(file)
        while folder not in directories:
            directories.add(folder)
            if folder in (last, "/"):
                break
            folder = os.path.dirname(folder)
    for folder in sorted(directories, key=len, reverse=True):
        sync_directory(folder)


def _sync(path: Path | str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
