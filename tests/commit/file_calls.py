"""Every call about a file below a root that one operation makes, counted by kind of file.

The operations are those of ``tests.crash.harness``; only the part after the ``yield`` is counted.
Calls that fail count too: looking for a file that is not there costs as much as finding it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.crash.harness import Harness, Operation
from tests.crash.steps import shape_of

_CALLS = "%file,getdents64,fsync,fdatasync,flock,ftruncate"
_LINE = re.compile(r"\d+ +(\w+)\((.*)")
_NUMBERED = re.compile(
    r"\d+(?=-\*\.txn)|\d+(?=\.manifest)|(?<=_deletions/)\d+-\d+-\*|(?<=__checksums/)\d+(?=-)"
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What an operation asked of the file system, and what it printed."""

    calls: Counter[str]
    output: str


class CallCounter(Harness):
    """Runs operations in child processes and counts what they ask of the file system."""

    def cost(self, operation: Operation, root: Path) -> Cost:
        """The calls of a run, such as ``{"openat __manifest/data/*.lance": 3}``."""
        root = root.resolve()
        self._crossings.unlink(missing_ok=True)
        self._trace.unlink(missing_ok=True)
        self._order(operation, root, None, 1)
        pid = int(self._line())
        code = self._next_stop_or_end()
        if code is None:
            strace = self._attach(pid)
            os.kill(pid, signal.SIGCONT)
            code = self._end()
            strace.communicate()
        outcome = self._completed(self._outcome(code, []))
        return Cost(_counted(self._trace.read_text(), str(root)), outcome.output)

    def _attach(self, pid: int) -> subprocess.Popen[str]:
        strace = subprocess.Popen(
            [
                *("strace", "-f", "-y", "-s", "4096", "-o", str(self._trace)),
                *("-e", "signal=none", "-e", f"trace={_CALLS}", "-p", str(pid)),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert strace.stderr is not None
        said = strace.stderr.readline()
        if "attached" not in said:
            raise AssertionError(f"strace could not attach: {said}{strace.communicate()[1]}")
        return strace


def _counted(trace: str, root: str) -> Counter[str]:
    below = re.compile(re.escape(root) + r"(?:/([^\">]*))?[\">]")
    calls: Counter[str] = Counter()
    for line in trace.splitlines():
        called = _LINE.match(line)
        path = below.search(called[2]) if called else None
        if called and path:
            calls[f"{called[1]} {_kind(path[1] or '.')}"] += 1
    return calls


def _kind(path: str) -> str:
    """A path without what differs from version to version."""
    return _NUMBERED.sub("*", shape_of(path))
