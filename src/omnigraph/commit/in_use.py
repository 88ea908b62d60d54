"""What this process still reads from, so that nobody removes it meanwhile.

Whoever reads a snapshot keeps a ``Use`` of it for as long; what other processes read is not known
here.
"""

from __future__ import annotations

import threading
import weakref

from omnigraph.commit.snapshot import Snapshot

_LOCK = threading.Lock()
_USES: dict[str, weakref.WeakSet[Use]] = {}


class Use:
    """A reader of a snapshot; it ends when nobody has it any more."""

    __slots__ = ("__weakref__", "snapshot")

    def __init__(self, uri: str, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        with _LOCK:
            _USES.setdefault(uri, weakref.WeakSet()).add(self)


def in_use(uri: str) -> list[Snapshot]:
    """The snapshots of a graph that are read from in this process."""
    with _LOCK:
        return [use.snapshot for use in _USES.get(uri, ())]
