"""strace at a living process: it stops after every call of interest, and the trace says which.

Measured with strace 6.1: an injected SIGSTOP does not keep the call from taking effect; the line
of a call is in the trace before the stop is reported to the parent of the process; and the stop
comes when no thread is inside a call any more.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.crash.steps import WRITES_BETWEEN_FILES, Step, Trace


class Tracer:
    """Attached to one process, stopped or not, until that process ends."""

    def __init__(self, pid: int, root: Path, calls: Iterable[str], file: Path) -> None:
        chosen, copies = _chosen(calls), _chosen(WRITES_BETWEEN_FILES)
        stopping = _chosen(frozenset(calls) - WRITES_BETWEEN_FILES)
        file.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [
                *("strace", "-f", "-y", "-s", "0", "-o", str(file)),
                *("-e", "signal=none", "-e", f"trace={chosen}"),
                # A copy inside the kernel starts over for every signal and never ends; without
                # it, copying is done by writes.
                *("-e", f"inject={copies}:error=ENOSYS"),
                *("-e", f"inject={stopping}:signal=SIGSTOP", "-p", str(pid)),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        if "attached" not in said:
            said += self._process.communicate()[1]
            raise AssertionError(f"strace could not attach: {said}")
        self._lines = file.open()
        self._trace = Trace(str(root))

    @property
    def steps(self) -> list[Step]:
        """Every step until now."""
        return self._trace.steps

    def read(self) -> list[Step]:
        """The steps since the last reading."""
        return self._trace.feed(self._lines.read())

    def close(self) -> None:
        """Wait for the end, which must be near, and read what is left."""
        self._process.communicate()
        self.read()
        self._lines.close()


def _chosen(calls: Iterable[str]) -> str:
    """System calls as strace wants them; ? is for "if this machine has it"."""
    return ",".join(sorted(f"?{call}" for call in calls))
