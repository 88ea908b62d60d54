"""The commit that last changed a node or an edge."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from omnigraph.commit.commits import Commit
from omnigraph.commit.group_members import group_members, group_of, written_ids
from omnigraph.commit.history import History, commit_of, first_parents
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import CommitNotFound, EntityNotFound, HistoryGone, StorageMissing
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.lang.schema.steps import AddProperty
from omnigraph.merge.change_filter import type_id
from omnigraph.merge.diff import recorded_events
from omnigraph.merge.feed import SchemaAt, ViewAt
from omnigraph.plan.view import WHOLE
from omnigraph.read.visible_rows import ENDS, VisibleRows
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.write.conform import find_type

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
    view_at: ViewAt | None = None,
) -> Blame:
    """Find the commit in ``chain``: the commits of a branch, oldest first.

    ``entity_type`` is the type in the newest of them. With ``view_at`` a row that the reader does
    not see is a missing one: becoming visible is a write, becoming hidden a delete.
    """
    history = _TableHistory(store, schema, entity_type, chain[-1])
    row = _BlamedRow(history, row_id, view_at)
    is_there = view_at is None or row.is_seen(chain[-1].commit_id)
    write = _last_write(history, row_id, chain) if is_there else None
    is_there = write is not None
    if write is None or not row.sees_all(chain):
        turn = _turn(row, is_there, chain, write)
        if turn is not None:
            return Blame(commit_of(turn), "write" if is_there else "delete")
    if write is None:
        raise missing_row(entity_type, row_id)
    origin = _origin(store, history, write, row_id) if row.is_merged_seen(write) else None
    return Blame(commit_of(write), "write", origin)


def missing_row(entity_type: EntityType, row_id: str) -> EntityNotFound:
    return EntityNotFound(
        f"there is no {entity_type.name} '{row_id}', now or in the kept history",
        details={"id": row_id},
    )


def _last_write(
    history: _TableHistory, row_id: str, chain: Sequence[CommitRow]
) -> CommitRow | None:
    """The commit that gave an existing row its values."""
    pin = history.pin(chain[-1])
    stamp = None if pin is None else history.stamp(pin, row_id)
    if stamp is None:
        return None
    commit = _writer(history, stamp, chain, row_id)
    while not history.is_changed_by(commit, row_id):
        chain = chain[: chain.index(commit)]
        earlier = history.stamp_if_kept(chain[-1], row_id)
        if earlier is None:
            break
        commit = _writer(history, earlier, chain, row_id)
    return commit


def _turn(
    row: _BlamedRow, is_there: bool, chain: Sequence[CommitRow], until: CommitRow | None
) -> CommitRow | None:
    """The newest commit that made a row appear or disappear, after ``until``; if still known."""
    later = chain[-1]
    for earlier in reversed(chain[:-1]):
        if later is until:
            return None
        try:
            was_there = row.is_seen(earlier.commit_id)
        except (HistoryGone, StorageMissing, CommitNotFound):
            return None
        if was_there != is_there:
            # Of a group, the member that wrote the row or one of its ends.
            members = group_members(chain, chain.index(later))
            return next((member for member in members if row.is_written_by(member)), later)
        later = earlier
    return None


class _BlamedRow:
    """One row in all states, as the reader sees it."""

    def __init__(self, history: _TableHistory, row_id: str, view_at: ViewAt | None) -> None:
        self._history = history
        self._id = row_id
        self._view_at = view_at
        self._by_state: dict[object, bool] = {}
        self._ends: set[tuple[str, str]] = set()

    def sees_all(self, chain: Sequence[CommitRow]) -> bool:
        """Whether the reader sees all rows of every branch that the commits are of."""
        if self._view_at is None:
            return True
        catalog = self._history.schema_of(self._history.state(chain[-1].commit_id)).catalog
        branches = {row.branch for row in chain}
        return all(self._view_at(branch, catalog).is_whole for branch in branches)

    def is_seen(self, commit_id: str) -> bool:
        """Whether the row exists in the state of a commit, and the reader sees it."""
        state = self._history.state(commit_id)
        key = self._history.key_in(state)
        if key is None or self._history.pin_in(state) is None:
            return False
        catalog = self._history.schema_of(state).catalog
        view = WHOLE if self._view_at is None else self._view_at(state.branch, catalog)
        ends = view.ends(key)
        identity = (view.digest, *map(state.table_version, (key, *ends)))
        if identity not in self._by_state:
            entity_type = find_type(catalog, key)
            columns = ENDS[: len(ends)]
            rows = VisibleRows(self._history.store, catalog, state, view).find(
                entity_type, self._id, columns
            )
            self._by_state[identity] = rows.num_rows > 0
            for column, end in zip(columns, ends, strict=True):
                self._ends |= {(end, row_id) for row_id in rows[column].to_pylist()}
        return self._by_state[identity]

    def is_written_by(self, row: CommitRow) -> bool:
        """Whether a member of a group wrote the row, or one of its ends."""
        written = written_ids(row) or {}
        key = self._history.key_in(self._history.state(row.commit_id)) or ""
        return any(name in written.get(table, ()) for table, name in {(key, self._id), *self._ends})

    def is_merged_seen(self, merge: CommitRow) -> bool:
        """Whether the reader also sees the row on the branch that was merged."""
        if self._view_at is None or merge.merged_parent is None:
            return True
        try:
            return self.is_seen(merge.merged_parent)
        except (HistoryGone, StorageMissing, CommitNotFound):
            return False


class _TableHistory:
    """States of one table."""

    def __init__(
        self, store: GraphStore, schema: SchemaAt, entity_type: EntityType, newest: CommitRow
    ) -> None:
        self.store = store
        self.schema_of = schema
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
        entry = self.schema_of(state).types.get(self._type_id)
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
            properties_then = self.schema_of(state).types[self._type_id].identity.properties
            names = [name for name, number in properties_then.items() if number in properties]
            rows = self.store.table(pin).read([KEY, *names], pc.field(KEY) == row_id)
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
        table = self.store.table(pin)
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
