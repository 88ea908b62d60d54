"""Files of a graph that no version of any table names, on no branch: found, and only told.

A task that was tried again, a worker or a driver that died, a refused write that could not tidy up
leave such files. A write that still runs has them too, so each says who may need it: writes that
stage for long have a marker, those that commit a sidecar, and whoever is about to commit has the
lease of the table. A short write has none of them while it stages; only the age of a file tells
that nobody works on it any more.
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
    """A file that no version names."""

    path: str
    """Relative to the root of the graph."""
    size: int
    age: timedelta
    held_by: tuple[str, ...] = ()
    """The ids of writes that may be about to name it."""


Holder = tuple[str, frozenset[str], datetime]
"""A write that is not over: its id, its tables, and since when it writes files."""


def orphans(store: GraphStore) -> list[Orphan]:
    """Every such file of the tables that some branch has, by path."""
    # Who holds files is asked first: a write that ends meanwhile has named them or given them up.
    held = list(holders(store))
    return [
        orphan
        for key, location in sorted(_locations(store))
        for orphan in orphans_of(store, key, location, held)
    ]


def orphans_of(
    store: GraphStore, table_key: str, location: str, held: Sequence[Holder]
) -> list[Orphan]:
    """The files of one table; who may need them was asked for before."""
    now = datetime.now(UTC)
    found = []
    for file in orphaned_files(store.datasets, location):
        by = {
            operation
            for operation, tables, since in held
            if table_key in tables and file.modified >= since
        }
        age = max(now - file.modified, timedelta(0))
        found.append(Orphan(file.path, file.size, age, tuple(sorted(by))))
    return found


def _locations(store: GraphStore) -> set[tuple[str, str]]:
    """The tables of all branches, and where each lies."""
    return {
        (key, pin.location)
        for branch in Branches(store).list()
        for key, pin in store.manifest(normal_branch(branch)).current().pins.items()
    }


def holders(store: GraphStore, besides: Collection[str] = ()) -> Iterator[Holder]:
    """Writes that are not over, but for some markers."""
    for marker in markers(store, besides):
        yield marker.operation, marker.tables, marker.started - _CLOCKS
    for sidecar in store.sidecars.load_all():
        tables = frozenset(pin.table_key for pin in sidecar.tables)
        # What it staged is older than the sidecar itself.
        yield sidecar.operation_id, tables, _EVER
    yield from _lease_holders(store)


def _lease_holders(store: GraphStore) -> Iterator[Holder]:
    """Writers that have the lease of a table, with files that they staged before they took it."""
    present = {f"{LEASE_FOLDER}/{name}" for name in store.objects.list(LEASE_FOLDER)}
    for branch in map(normal_branch, Branches(store).list()):
        try:
            keys = list(store.manifest(branch).current().pins)
        except OmniGraphError:
            # Nobody can write on it.
            continue
        for key in keys:
            name = table_lease(key, branch)
            if lease_path(name) in present and not store.leases.is_free(name):
                yield name, frozenset({key}), _EVER
