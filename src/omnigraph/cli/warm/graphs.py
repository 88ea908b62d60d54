"""The graphs that the warm process keeps open: for reading, and never with a lease.

A read finds the commits of other processes by the usual probe. A write opens the graph anew, with
everything that opening for writing does, and closes it. A graph that was removed and created again
at its path is another one: the descriptors kept here prevent that its numbers are used again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from omnigraph.api.graph import Graph
from omnigraph.settings import Settings

MOST_GRAPHS = 8
_PARTS = ("", "__manifest")
"""The directories that make a graph the same one."""

_Key = tuple[str, Settings]


class _OpenGraph:
    """One graph, open for reading."""

    def __init__(self, path: str, directories: list[int], graph: Graph) -> None:
        self._path = path
        self._directories = directories
        self.graph = graph
        self.users = 0
        self.used = time.monotonic()
        self.is_stale = False

    def is_same(self) -> bool:
        """Whether its path still leads to the graph that was opened."""
        try:
            return all(
                os.path.samestat(os.stat(os.path.join(self._path, part)), os.fstat(directory))
                for part, directory in zip(_PARTS, self._directories, strict=True)
            )
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        self.graph.close()
        for directory in self._directories:
            os.close(directory)


class OpenGraphs:
    """The open graphs by path and settings. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._graphs: dict[_Key, _OpenGraph] = {}

    def __len__(self) -> int:
        return len(self._graphs)

    @contextmanager
    def opened(self, path: str, mode: Literal["rw", "r"], actor: str | None) -> Iterator[Graph]:
        """A graph for one command."""
        if mode == "rw":
            with Graph.open(path, mode, actor=actor) as graph:
                yield graph
            return
        entry = self._take(path)
        try:
            yield entry.graph if actor is None else entry.graph.for_actor(actor)
        finally:
            self._give_back(entry)

    def _take(self, path: str) -> _OpenGraph:
        key = path, Settings.from_environ()
        with self._lock:
            entry = self._graphs.get(key)
            if entry is not None and entry.is_same():
                entry.users += 1
                return entry
        opened = _open(path)
        opened.users += 1
        with self._lock:
            other = self._graphs.get(key)
            self._graphs[key] = opened
            self._retire(other)
            idle = [key for key, entry in self._graphs.items() if not entry.users]
            idle.sort(key=lambda key: self._graphs[key].used)
            for oldest in idle[: max(len(self._graphs) - MOST_GRAPHS, 0)]:
                self._retire(self._graphs.pop(oldest))
        return opened

    def _give_back(self, entry: _OpenGraph) -> None:
        with self._lock:
            entry.users -= 1
            entry.used = time.monotonic()
            if entry.is_stale:
                self._retire(entry)

    def _retire(self, entry: _OpenGraph | None) -> None:
        """Close a graph that is no longer kept, when its last user has finished."""
        if entry is not None:
            entry.is_stale = True
            if not entry.users:
                entry.close()

    def close_idle(self, seconds: float) -> None:
        """Close the graphs that nobody has used for a while, or that are no longer there."""
        limit = time.monotonic() - seconds
        with self._lock:
            for key, entry in list(self._graphs.items()):
                if not entry.users and (entry.used <= limit or not entry.is_same()):
                    self._retire(self._graphs.pop(key))


def _open(path: str) -> _OpenGraph:
    directories: list[int] = []
    try:
        # Opened first: what is opened then is this graph or a later one, which is noticed.
        for part in _PARTS:
            part_path = os.path.join(path, part)
            if os.path.isdir(part_path):
                directories.append(os.open(part_path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        graph = Graph.open(path, "r")
    except BaseException:
        for directory in directories:
            os.close(directory)
        raise
    return _OpenGraph(path, directories, graph)
