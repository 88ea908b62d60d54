"""The process that runs a job, and whether it still does.

A process of the same machine is looked up by its id and the time it started, so a killed one is
noticed at once and a reused id does not count. Of a process elsewhere only its silence is known.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

import msgspec

SILENT_SECONDS = 60.0
"""A job elsewhere whose record was not written for so long has lost its process."""


class JobOwner(msgspec.Struct, frozen=True):
    """A process: its machine (this start of it, and its space of process ids), id and start."""

    machine: str
    pid: int
    started: str

    def has_died(self, last_written: int) -> bool:
        """Whether the process is gone; ``last_written`` is in microseconds since 1970."""
        if self.machine == _machine():
            return _started(self.pid) != self.started
        return time.time() - last_written / 1e6 > SILENT_SECONDS


def this_process() -> JobOwner:
    """The process that asks."""
    return process_of(os.getpid())


def process_of(pid: int) -> JobOwner:
    """A process of this machine, by its id; one that has ended has died."""
    return JobOwner(_machine(), pid, _started(pid) or "ended")


@cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        # Without these files, every process counts as one elsewhere.
        return f"unknown:{os.urandom(8).hex()}"


def _started(pid: int) -> str | None:
    """When a process started, in ticks of the kernel; ``None`` if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
