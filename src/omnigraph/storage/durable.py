"""Durability on local disk: syncing files and directories.

Neither Lance nor the object store syncs what it writes. A file survives a power failure once its
bytes and its directory entry are synced.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path


class Durability(StrEnum):
    """When a write counts as done: on disk, or in the page cache of the operating system."""

    DISK = "disk"
    OS = "os"


def exists(path: Path | str) -> bool:
    """Whether a file exists; raises if that cannot be seen, unlike ``os.path.exists``."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def sync_file(path: Path | str) -> None:
    """Sync the bytes of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path | str) -> None:
    """Sync the entries of a directory."""
    sync_file(path)


def sync_visible_directory(path: Path | str) -> None:
    """Sync the entries of a directory, a second time if that fails: others can see them already."""
    try:
        sync_directory(path)
    except OSError:
        sync_directory(path)


def sync_tree(
    files: Iterable[Path | str],
    top: Path | str,
    *,
    missing_ok: bool = False,
    visible: bool = False,
    synced: set[str] | None = None,
) -> None:
    """Sync files, then every directory between them and ``top``, each once.

    Files that others can see already cannot be abandoned when a sync fails: with ``visible`` they
    are rewritten. ``synced`` are directories whose own entry is on the disk already; those that are
    synced here are added.
    """
    last = str(top)
    existing = set() if synced is None else synced
    directories: set[str] = set()
    for file in files:
        try:
            sync_file(file)
        except FileNotFoundError:
            if not missing_ok:
                raise
            continue
        except OSError:
            if not visible:
                raise
            write_again(Path(file))
        folder = os.path.dirname(file)
        while folder not in directories:
            directories.add(folder)
            if folder in (last, "/") or folder in existing:
                break
            folder = os.path.dirname(folder)
    sync = sync_visible_directory if visible else sync_directory
    for folder in sorted(directories, key=len, reverse=True):
        sync(folder)
    existing.update(directories)


def write_again(target: Path) -> None:
    """Replace a file whose sync failed with a synced copy of the same bytes.

    The kernel reports a failed write-back once and then marks the pages clean: a second sync of the
    same file would prove nothing.
    """
    temporary = target.with_name(f".tmp{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(target.read_bytes())
        sync_file(temporary)
        os.replace(temporary, target)
        sync_file(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
