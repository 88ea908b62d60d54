"""Which commit changed a node or an edge last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from omnigraph.commit.history import Commit, History
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import CommitNotFound, EntityNotFound, HistoryGone
from omnigraph.storage.tables import KEY
from omnigraph.write.delta import Kind

_STAMP = "_row_last_updated_at_version"


@dataclass(frozen=True, slots=True)
class Blame:
    """The last change of one row."""

    commit: Commit
    op: str
    """``write``, or ``delete`` when it is not there any more."""
    origin: Commit | None = None
    """Where a commit that merged it took it from, if that can still be seen."""


def find_blame(store: GraphStore, kind: Kind, row_id: str, chain: Sequence[CommitRow]) -> Blame:
    """Along the commits of a branch, oldest first."""
    seen = _Seen(store, kind)
    pin = seen.pin(chain[-1])
    stamp = None if pin is None else seen.stamp(pin, row_id)
    if stamp is None:
        return Blame(Commit.of(_deletion(seen, row_id, chain)), "delete")
    found = _first_with(seen, stamp, chain)
    return Blame(Commit.of(found), "write", _origin(store, seen, found, row_id))


class _Seen:
    """States of one table."""

    def __init__(self, store: GraphStore, kind: Kind) -> None:
        self._store = store
        self._kind = kind
        self._history = History(store)
        self._location: str | None = None

    @property
    def what(self) -> str:
        return self._kind.name

    def pin(self, row: CommitRow) -> Pin | None:
        return self.pin_in(self.state(row.commit_id))

    def pin_in(self, state: Snapshot) -> Pin | None:
        """The table in a state, whatever the type was called then; the newest is asked first."""
        pin = state.pin(self._kind.table_key)
        if self._location is None:
            self._location = None if pin is None else pin.location
            return pin
        return next((p for p in state.pins.values() if p.location == self._location), None)

    def state(self, commit_id: str) -> Snapshot:
        return self._history.snapshot_of(commit_id)

    def stamp(self, pin: Pin, row_id: str) -> int | None:
        """The version of the table that changed a row last; none when there is no row."""
        table = self._store.table(pin)
        rows = table.read([_STAMP], pc.field(KEY) == row_id)
        return int(rows[_STAMP][0].as_py()) if rows.num_rows else None


def _first_with(seen: _Seen, stamp: int, chain: Sequence[CommitRow]) -> CommitRow:
    """The commit by which the table got to a version: versions only grow along a branch."""
    low, high = 0, len(chain) - 1
    while low < high:
        middle = (low + high) // 2
        try:
            pin = seen.pin(chain[middle])
        except (HistoryGone, CommitNotFound):
            low = middle + 1
            continue
        if pin is not None and pin.version >= stamp:
            high = middle
        else:
            low = middle + 1
    return chain[low]


def _deletion(seen: _Seen, row_id: str, chain: Sequence[CommitRow]) -> CommitRow:
    """The commit after which a row was not there any more."""
    later = chain[-1]
    was: Pin | None = seen.pin(later)
    for row in reversed(chain[:-1]):
        try:
            pin = seen.pin(row)
        except (HistoryGone, CommitNotFound):
            break
        if pin is not None and pin != was and seen.stamp(pin, row_id) is not None:
            return later
        later, was = row, pin
    raise EntityNotFound(
        f"there is no {seen.what} '{row_id}', and the history that is kept knows of none",
        details={"id": row_id},
    )


def _origin(store: GraphStore, seen: _Seen, found: CommitRow, row_id: str) -> Commit | None:
    """The commit on the merged branch that changed the row, where a merge brought it."""
    if found.merged_parent is None:
        return None
    try:
        pin = seen.pin_in(seen.state(found.merged_parent))
        stamp = None if pin is None else seen.stamp(pin, row_id)
        if stamp is None:
            return None
        chain = _chain(store, seen, found.merged_parent)
        return Commit.of(_first_with(seen, stamp, chain))
    except (HistoryGone, CommitNotFound):
        return None


def _chain(store: GraphStore, seen: _Seen, commit_id: str) -> list[CommitRow]:
    branch = seen.state(commit_id).branch
    known = {row.commit_id: row for row in store.manifest(branch).commits()}
    found: list[CommitRow] = []
    here = known.get(commit_id)
    while here is not None:
        found.append(here)
        here = known.get(here.parent) if here.parent else None
    return found[::-1]
