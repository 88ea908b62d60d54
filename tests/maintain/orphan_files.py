"""All orphaned files of a graph."""

from __future__ import annotations

from omnigraph.commit.branches import Branches
from omnigraph.commit.names import normal_branch
from omnigraph.commit.store import GraphStore
from omnigraph.maintain.cleanup.retention import Orphan, orphans_of
from omnigraph.maintain.running_writes import running_writes


def orphans(store: GraphStore) -> list[Orphan]:
    writes = list(running_writes(store))
    locations = {
        (key, pin.location)
        for branch in Branches(store).list()
        for key, pin in store.manifest(normal_branch(branch)).current().pins.items()
    }
    return [
        orphan
        for key, location in sorted(locations)
        for orphan in orphans_of(store, key, location, writes)
    ]
