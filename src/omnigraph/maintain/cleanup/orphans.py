"""Orphaned files: files that no version of any table references, on any branch.

They are left by repeated tasks, by workers and drivers that died, and by refused writes. A running
write has them too, so each lists the writes that may need it: a long write has a marker while it
stages, a commit has a sidecar, and a writer about to commit holds the lease of the table. A short
write has none of these while it stages; only the age of a file shows that nobody needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from omnigraph.commit.branches import Branches
from omnigraph.commit.names import normal_branch, table_lease
from omnigraph.commit.staging import markers
from omnigraph.commit.store import GraphStore
from omnigraph.errors import OmniGraphError
from omnigraph.storage.leases.local import LEASE_FOLDER, lease_path
from omnigraph.storage.tables.orphaned_files import orphaned_files

# Clocks of a store and of those who write to it differ.
_CLOCKS = timedelta(minutes=15)
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Orphan:
    """An orphaned file."""

    path: str
    """Relative to the root of the graph."""
    size: int
    age: timedelta
    needed_by: tuple[str, ...] = ()
    """The ids of running writes that may need it."""


RunningWrite = tuple[str, frozenset[str], datetime]
"""The id of a write, its tables, and the time of its first file."""


def orphans_of(
    store: GraphStore, table_key: str, location: str, writes: Sequence[RunningWrite]
) -> list[Orphan]:
    """The orphans of one table. ``writes`` were listed before: one that ends meanwhile has
    committed its files or given them up.
    """
    now = datetime.now(UTC)
    orphans = []
    for file in orphaned_files(store.datasets, location):
        by = {
            operation
            for operation, tables, since in writes
            if table_key in tables and file.modified >= since
        }
        age = max(now - file.modified, timedelta(0))
        orphans.append(Orphan(file.path, file.size, age, tuple(sorted(by))))
    return orphans


def running_writes(store: GraphStore, dead_markers: Collection[str] = ()) -> Iterator[RunningWrite]:
    """Writes in progress."""
    for marker in markers(store, dead_markers):
        yield marker.operation, marker.tables, marker.started - _CLOCKS
    for sidecar in store.sidecars.load_all():
        tables = frozenset(pin.table_key for pin in sidecar.tables)
        # Its files are older than the sidecar itself.
        yield sidecar.operation_id, tables, _EVER
    yield from _lease_holders(store)


def _lease_holders(store: GraphStore) -> Iterator[RunningWrite]:
    """Writers with the lease of a table; they staged files before they took it."""
    present = {f"{LEASE_FOLDER}/{name}" for name in store.objects.list(LEASE_FOLDER)}
    for branch in map(normal_branch, Branches(store).list()):
        try:
            keys = list(store.manifest(branch).current().pins)
        except OmniGraphError:
            # Nobody can write to an unreadable branch.
            continue
        for key in keys:
            name = table_lease(key, branch)
            if lease_path(name) in present and not store.leases.is_free(name):
                yield name, frozenset({key}), _EVER
