"""A program that loads or exports much and says how much memory that took, in megabytes.

Called by the tests of memory: ``python memory.py <graph> <what> <path>``.
"""

from __future__ import annotations

import io
import resource
import sys
from itertools import chain, repeat
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import LoadError
from omnigraph.write.load import limits


def peak() -> float:
    """Of this program alone: what the system counts for a process includes its parent's peak."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


class OneLine(io.RawIOBase):
    """A CSV text of one line of data, made when it is read."""

    def __init__(self, size: int) -> None:
        self._pieces = chain([b"slug,text\n"], repeat(b"x" * (1 << 16), size >> 16))

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return next(self._pieces, b"")


def load_one_line(graph: Graph, size: int) -> None:
    limits.LONGEST_RECORD = 8 << 20
    with pytest.raises(LoadError, match=":2: the record is too long"):
        graph.load(OneLine(size), format="csv", types={"-": "Doc"})


def main(uri: str, what: str, path: str) -> None:
    with Graph.open(uri, durability="os") as graph:
        # What every process needs that ever wrote or read is not counted.
        graph.load([{"type": "Note", "data": {"text": "", "body": "base64:aGk="}}])
        list(graph.snapshot().export(types=["Note"]))
        before = peak()
        if what == "load":
            graph.load(path, allow_local_files=True)
        elif what == "one csv line":
            load_one_line(graph, int(path))
        else:
            graph.snapshot().export(path, what)
        print(peak() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
