"""Every readable state of a graph, and the table versions it uses.

The versions of a manifest are read once, oldest first, and of each only the fragments that the one
before did not have.
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
    table_versions: frozenset[TableVersion]


def pinned_versions(snapshot: Snapshot) -> frozenset[TableVersion]:
    """The table versions of a snapshot."""
    return frozenset(pin.table_version for pin in snapshot.pins.values())


def read_states(store: GraphStore, branch: str | None) -> list[GraphState]:
    """The existing states of a branch, oldest first."""
    ref = TableRef(MANIFEST, branch)
    states: list[GraphState] = []
    state, done = ManifestState(), frozenset[int]()
    for stamp in versions_of(store.datasets, ref):
        ledger = Ledger.open(store.datasets, ref, stamp.version)
        fragments = ledger.fragments
        if not fragments & done:
            # The first version, or a compacted one.
            state, done = ManifestState(), frozenset()
        state.add_arrow(ledger.read(fragments=fragments - done))
        done = fragments
        snapshot = state.snapshot(stamp.version, branch)
        table_versions = pinned_versions(snapshot)
        if states and states[-1].table_versions == table_versions:
            table_versions = states[-1].table_versions
        states.append(GraphState(branch, stamp.version, stamp.made, snapshot.head, table_versions))
    return states
