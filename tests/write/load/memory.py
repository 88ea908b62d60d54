"""A program that loads or exports much and says how much memory that took, in megabytes.

Called by the tests of memory: ``python memory.py <graph> <what> <path>``.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from omnigraph import Graph


def peak() -> float:
    """Of this program alone: what the system counts for a process includes its parent's peak."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def main(uri: str, what: str, path: str) -> None:
    with Graph.open(uri, durability="os") as graph:
        # What every process needs that ever wrote or read is not counted.
        graph.load([{"type": "Note", "data": {"text": "", "body": "base64:aGk="}}])
        list(graph.export(types=["Note"]))
        before = peak()
        if what == "load":
            graph.load(path)
        else:
            graph.export(path, what)
        print(peak() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
