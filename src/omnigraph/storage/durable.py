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


def sync_file(path: Path) -> None:
    """Write the bytes of a file to the disk."""
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    """Write the entries of a directory to the disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_tree(files: Iterable[Path], top: Path, *, missing_ok: bool = False) -> None:
    """Sync files, then every directory between them and ``top``, each once."""
    directories: dict[Path, None] = {}
    for file in files:
        try:
            sync_file(file)
        except FileNotFoundError:
            if not missing_ok:
                raise
            continue
        for parent in file.parents:
            directories[parent] = None
            if parent == top:
                break
    for directory in sorted(directories, key=lambda path: len(path.parts), reverse=True):
        sync_directory(directory)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
