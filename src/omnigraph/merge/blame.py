"""The commit that last changed a node or an edge."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from omnigraph.commit.commits import Commit
from omnigraph.commit.group_members import group_members, group_of, written_ids
from omnigraph.commit.history import History, commit_of
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import CommitNotFound, EntityNotFound, HistoryGone, StorageMissing
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.lang.schema.steps import AddProperty
from omnigraph.merge.change_filter import type_id
from omnigraph.merge.diff import recorded_events
from omnigraph.merge.feed import SchemaAt, first_parents
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY

_STAMP = "_row_last_updated_at_version"


@dataclass(frozen=True, slots=True)
class Blame:
    """The last change of one row."""

    commit: Commit
    op: str
    """``write``, or ``delete`` if the row was deleted."""
    origin: Commit | None = None
    """The commit on the merged branch, if the change came by a merge and it is still known."""


def find_blame(
    store: GraphStore,
    schema: SchemaAt,
    entity_type: EntityType,
    row_id: str,
    chain: Sequence[CommitRow],
) -> Blame:
    """Find the commit in ``chain``: the commits of a branch, oldest first.

    ``entity_type`` is the type in the newest of them.
    """
    history = _TableHistory(store, schema, entity_type, chain[-1])
    pin = history.pin(chain[-1])
    stamp = None if pin is None else history.stamp(pin, row_id)
    if stamp is None:
        deletion = _deletion(history, row_id, chain)
        if deletion is None:
            raise EntityNotFound(
                f"there is no {entity_type.name} '{row_id}', now or in the kept history",
                details={"id": row_id},
            )
        return Blame(commit_of(deletion), "delete")
    commit = _writer(history, stamp, chain, row_id)
    while not history.is_changed_by(commit, row_id):
        chain = chain[: chain.index(commit)]
        earlier = history.stamp_if_kept(chain[-1], row_id)
        if earlier is None:
            break
        commit = _writer(history, earlier, chain, row_id)
    return Blame(commit_of(commit), "write", _origin(store, history, commit, row_id))


class _TableHistory:
    """States of one table."""

    def __init__(
        self, store: GraphStore, schema: SchemaAt, entity_type: EntityType, newest: CommitRow
    ) -> None:
        self._store = store
        self._schema = schema
        self._history = History(store)
        state = self.state(newest.commit_id)
        self._type_id = type_id(schema(state), entity_type)
        pin = state.pin(entity_type.table_key)
        self._location = None if pin is None else pin.location

    def pin(self, row: CommitRow) -> Pin | None:
        return self.pin_in(self.state(row.commit_id))

    def pin_in(self, state: Snapshot) -> Pin | None:
        """The table in a state, whatever name the type had then."""
        key = self.key_in(state)
        pin = None if key is None else state.pin(key)
        # The reference moves a table that it renames: its versions start again.
        return pin if pin is not None and pin.location == self._location else None

    def key_in(self, state: Snapshot) -> str | None:
        """The key that the table had in a state."""
        entry = self._schema(state).types.get(self._type_id)
        return None if entry is None else f"{entry.type.kind}:{entry.type.name}"

    def state(self, commit_id: str) -> Snapshot:
        return self._history.snapshot_of(commit_id)

    def is_changed_by(self, row: CommitRow, row_id: str) -> bool:
        """Whether a commit that wrote a row changed its values: an apply may only widen them."""
        events = [event for event in recorded_events(row) if event.type_id == self._type_id]
        filled = [event for event in events if "value" in event.step]
        if not events or row.parent is None:
            return True
        if any(event.kind == AddProperty.kind for event in filled):
            return True
        return self._had_null(row.parent, row_id, {event.property_id for event in filled})

    def _had_null(self, commit_id: str, row_id: str, properties: set[int | None]) -> bool:
        """Whether a row had a null in some of the properties; true if unknown."""
        try:
            state = self.state(commit_id)
            pin = self.pin_in(state)
            if pin is None:
                return True
            properties_then = self._schema(state).types[self._type_id].identity.properties
            names = [name for name, number in properties_then.items() if number in properties]
            rows = self._store.table(pin).read([KEY, *names], pc.field(KEY) == row_id)
        except (HistoryGone, StorageMissing, CommitNotFound):
            return True
        return not rows.num_rows or any(rows[name].null_count for name in names)

    def stamp_if_kept(self, row: CommitRow, row_id: str) -> int | None:
        """``stamp`` in the state of a commit; ``None`` if the state was removed."""
        try:
            pin = self.pin(row)
            return None if pin is None else self.stamp(pin, row_id)
        except (HistoryGone, StorageMissing, CommitNotFound):
            return None

    def stamp(self, pin: Pin, row_id: str) -> int | None:
        """The version of the table that last changed a row; ``None`` if there is no such row."""
        table = self._store.table(pin)
        rows = table.read([_STAMP], pc.field(KEY) == row_id)
        return int(rows[_STAMP][0].as_py()) if rows.num_rows else None


def _writer(
    history: _TableHistory, stamp: int, chain: Sequence[CommitRow], row_id: str
) -> CommitRow:
    """The commit that wrote a row in a version of its table; of a group, the member."""
    first = _first_with(history, stamp, chain)
    if group_of(first) is None:
        return first
    key = history.key_in(history.state(first.commit_id)) or ""
    return next(
        (
            member
            for member in group_members(chain, chain.index(first))
            if row_id in (written_ids(member) or {}).get(key, ())
        ),
        first,
    )


def _first_with(history: _TableHistory, stamp: int, chain: Sequence[CommitRow]) -> CommitRow:
    """The first commit with at least this version: versions only grow along a branch."""
    low, high = 0, len(chain) - 1
    while low < high:
        middle = (low + high) // 2
        try:
            pin = history.pin(chain[middle])
        except (HistoryGone, CommitNotFound):
            low = middle + 1
            continue
        if pin is not None and pin.version >= stamp:
            high = middle
        else:
            low = middle + 1
    return chain[low]


def _deletion(history: _TableHistory, row_id: str, chain: Sequence[CommitRow]) -> CommitRow | None:
    """The commit that deleted a row, if it is still known."""
    later = chain[-1]
    was: Pin | None = history.pin(later)
    for row in reversed(chain[:-1]):
        try:
            pin = history.pin(row)
            if pin is not None and pin != was and history.stamp(pin, row_id) is not None:
                return later
        except (HistoryGone, StorageMissing, CommitNotFound):
            break
        later, was = row, pin
    return None


def _origin(
    store: GraphStore, history: _TableHistory, merge: CommitRow, row_id: str
) -> Commit | None:
    """The commit on the merged branch that changed the row, if a merge brought the change."""
    if merge.merged_parent is None:
        return None
    try:
        state = history.state(merge.merged_parent)
        pin = history.pin_in(state)
        stamp = None if pin is None else history.stamp(pin, row_id)
        if stamp is None:
            return None
        chain = first_parents(store, state.branch, merge.merged_parent)
        return commit_of(_writer(history, stamp, chain, row_id))
    except (HistoryGone, CommitNotFound):
        return None
