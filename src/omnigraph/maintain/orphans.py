"""Files of a graph that no version of any table names, on no branch: found, and only told.

A task that was tried again, a worker or a driver that died, a refused write that could not tidy up
leave such files. A write that still runs has them too, so each says who may need it: writes that
stage for long have a marker, those that commit a sidecar. A short write has neither while it
stages; only the age of a file tells that nobody works on it any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from omnigraph.commit.branches import Branches
from omnigraph.commit.names import normal_branch
from omnigraph.commit.staging import markers
from omnigraph.commit.store import GraphStore
from omnigraph.storage.unnamed import unnamed_files

# Clocks of a store and of those who write to it differ.
_CLOCKS = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no version names."""

    path: str
    """Relative to the root of the graph."""
    size: int
    age: timedelta
    held_by: tuple[str, ...] = ()
    """The ids of writes that may be about to name it."""


def orphans(store: GraphStore) -> list[Orphan]:
    """Every such file of the tables that some branch has, by path."""
    now = datetime.now(UTC)
    # Who holds files is asked first: a write that ends meanwhile has named them or given them up.
    held = list(_holders(store))
    found = []
    for key, location in sorted(_locations(store)):
        for file in unnamed_files(store.datasets, location):
            holders = {
                operation
                for operation, tables, since in held
                if key in tables and file.modified >= since
            }
            age = max(now - file.modified, timedelta(0))
            found.append(Orphan(file.path, file.size, age, tuple(sorted(holders))))
    return found


def _locations(store: GraphStore) -> set[tuple[str, str]]:
    """The tables of all branches, and where each lies."""
    return {
        (key, pin.location)
        for branch in Branches(store).list()
        for key, pin in store.manifest(normal_branch(branch)).current().pins.items()
    }


def _holders(store: GraphStore) -> Iterator[tuple[str, frozenset[str], datetime]]:
    """Writes that are not over: their ids, their tables, and since when they write files."""
    for marker in markers(store):
        yield marker.operation, marker.tables, marker.started - _CLOCKS
    for sidecar in store.sidecars.load_all():
        tables = frozenset(pin.table_key for pin in sidecar.tables)
        # What it staged is older than the sidecar itself.
        yield sidecar.operation_id, tables, datetime.min.replace(tzinfo=UTC)
