"""Disks that fail: a small one of one's own, and system calls that return an error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

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
        found = os.statvfs(self.top)
        return (found.f_blocks - found.f_bfree) * found.f_frsize // PAGE

    @property
    def entries(self) -> int:
        """How many files and directories there are."""
        found = os.statvfs(self.top)
        return found.f_files - found.f_ffree

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


# -- calls that fail ------------------------------------------------------------------------------

_CALL = re.compile(r'\w+\((?:AT_FDCWD<[^>]*>, )?(?:\d+<(?P<open>[^>]*)>|"(?P<name>[^"]*)")')


class Failure(NamedTuple):
    """A call that failed on a file, and whether the same call on that file came again later."""

    file: str
    repeated: bool


class FailingCalls:
    """strace at a process that waits at its gate; one of its system calls fails with EIO.

    strace counts the calls of each thread apart. Ours are made by one thread; of Lance's threads
    each may meet the error once.
    """

    def __init__(self, pid: int, calls: tuple[str, ...], when: int, file: Path) -> None:
        if shutil.which("strace") is None:
            pytest.fail("strace is missing; tools/ensure-strace installs it")
        self._file = file
        chosen = ",".join(f"?{call}" for call in calls)
        self._process = subprocess.Popen(
            [
                *("strace", "-f", "-y", "-o", str(file), "-e", "signal=none"),
                *("-e", f"trace={chosen}", "-e", f"inject={chosen}:error=EIO:when={when}"),
                *("-p", str(pid)),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        assert "attached" in said, said

    def stop(self) -> list[Failure]:
        """Let the process go, which must be stopped; gives what failed."""
        self._process.terminate()
        self._process.communicate()
        calls = []
        for line in self._file.read_text().splitlines():
            found = _CALL.search(line)
            if found is not None:
                calls.append((found["open"] or found["name"], "(INJECTED)" in line))
        return [
            Failure(file, (file, False) in calls[number:])
            for number, (file, failed) in enumerate(calls)
            if failed
        ]
