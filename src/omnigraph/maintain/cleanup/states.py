"""Every state of a graph that can still be read, and which versions of tables it shows.

The manifest of a branch is gone through once, oldest version first, and of each only the parts are
read that the one before did not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import ManifestState, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.storage.tables.cleaning import versions_of
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.types import TableRef, TableVersion


@dataclass(frozen=True, slots=True)
class GraphState:
    """A version of the manifest of a branch."""

    branch: str | None
    version: int
    made: datetime
    commit: CommitRow | None
    places: frozenset[TableVersion]


def places_of(snapshot: Snapshot) -> frozenset[TableVersion]:
    """The versions of tables that a snapshot shows."""
    return frozenset(pin.table_version for pin in snapshot.pins.values())


def states_of(store: GraphStore, branch: str | None) -> list[GraphState]:
    """The states of a branch that are there, oldest first."""
    ref = TableRef(MANIFEST, branch)
    found: list[GraphState] = []
    state, known = ManifestState(), frozenset[int]()
    for stamp in versions_of(store.datasets, ref):
        ledger = Ledger.open(store.datasets, ref, stamp.version)
        parts = ledger.fragments
        if not parts & known:
            # The first, or it was compacted.
            state, known = ManifestState(), frozenset()
        state.add_arrow(ledger.read(fragments=parts - known))
        known = parts
        snapshot = state.snapshot(stamp.version, branch)
        places = places_of(snapshot)
        if found and found[-1].places == places:
            places = found[-1].places
        found.append(GraphState(branch, stamp.version, stamp.made, snapshot.head, places))
    return found
