"""The snapshots that this process still reads, so that cleanup in this process keeps them.

A reader keeps a ``SnapshotLease`` of its snapshot while it reads. Readers in other processes are
not known here.
"""

from __future__ import annotations

import threading
import weakref

from omnigraph.commit.snapshot import Snapshot

_LOCK = threading.Lock()
_LEASES: dict[str, weakref.WeakSet[SnapshotLease]] = {}


class SnapshotLease:
    """A reader of a snapshot; it ends with the last reference to it."""

    __slots__ = ("__weakref__", "snapshot")

    def __init__(self, uri: str, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        with _LOCK:
            _LEASES.setdefault(uri, weakref.WeakSet()).add(self)


def leased_snapshots(uri: str) -> list[Snapshot]:
    """The snapshots of a graph that this process reads."""
    with _LOCK:
        return [lease.snapshot for lease in _LEASES.get(uri, ())]
