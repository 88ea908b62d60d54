"""The processes below a process, such as Java and the workers of Spark, and their end."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The children of a process, their children, and so on; none where ``/proc`` is missing."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end while it is looked at.
        with suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    below: list[int] = []
    new = [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, ())]
        below += new
    return below


def kill_descendants(pid: int) -> None:
    """End the processes below a process at once; a Java that still starts would outlive it."""
    for process in descendants(pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
