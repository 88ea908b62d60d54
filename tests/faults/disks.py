"""Disks that fill up: a small one of one's own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PAGE = 4096
PLENTY = 64 << 20


class SmallDisk:
    """A file system in memory. Used up it fails with ENOSPC, as any other does."""

    def __init__(self, top: Path) -> None:
        self.top = top

    @property
    def pages(self) -> int:
        """How many pages are in use."""
        actual = os.statvfs(self.top)
        return (actual.f_blocks - actual.f_bfree) * actual.f_frsize // PAGE

    @property
    def entries(self) -> int:
        """How many files and directories there are."""
        actual = os.statvfs(self.top)
        return actual.f_files - actual.f_ffree

    @contextmanager
    def only(self, *, pages: int | None = None, entries: int | None = None) -> Iterator[None]:
        """Leave so much room and no more."""
        size = PLENTY if pages is None else (self.pages + pages) * PAGE
        most = 0 if entries is None else self.entries + entries
        self._remount(f"size={size},nr_inodes={most or PLENTY // PAGE}")
        try:
            yield
        finally:
            self._remount(f"size={PLENTY},nr_inodes={PLENTY // PAGE}")

    @contextmanager
    def read_only(self) -> Iterator[None]:
        self._remount("ro")
        try:
            yield
        finally:
            self._remount("rw")

    def _remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.top)], check=True)


@contextmanager
def small_disk(top: Path) -> Iterator[SmallDisk]:
    """Mount one; only the superuser may, so a test of anybody else is skipped."""
    options = f"size={PLENTY},nr_inodes={PLENTY // PAGE}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(top)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a disk that can be filled cannot be mounted: {done.stderr.strip()}")
    try:
        yield SmallDisk(top)
    finally:
        subprocess.run(["umount", "-l", str(top)], check=True)
