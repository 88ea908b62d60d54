"""The change feed of a branch: its changes in the order of its commits, from a cursor on.

The graph stores no cursors: a cursor is valid as long as the history is retained, and as long as
its reader sees the same rows. Each commit is seen as its own branch shows it to the reader.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from omnigraph.commit.group_members import commit_before, group_members, group_of, written_ids
from omnigraph.commit.history import History, commit_of, first_parents, recent_first_parents
from omnigraph.commit.names import branch_label
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.schema.history import recorded_schema
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore, detect_branch_deletion
from omnigraph.errors import CommitNotFound, HistoryGone, InputError, StorageMissing, ViewChanged
from omnigraph.lang.schema.catalog import Catalog, EntityType
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.merge.change_filter import ChangeFilter, type_ids_of
from omnigraph.merge.changes import TableChanges
from omnigraph.merge.cursor import Cursor, view_mark
from omnigraph.merge.diff import events_between, recorded_events, restricted, table_changes
from omnigraph.merge.pages import ChangeBlock, ChangePage, CommitContent, CommitSlice
from omnigraph.merge.states import SchemaSnapshot, is_seen_whole
from omnigraph.merge.visible_changes import VisibleChanges
from omnigraph.plan.view import WHOLE, View
from omnigraph.records import dataclass
from omnigraph.storage.tables.types import TableVersion

SchemaAt = Callable[[Snapshot], IdentifiedSchema]
"""The schema that a state is read under, with its stable ids."""

ViewAt = Callable[[str | None, Catalog], View]
"""What the reader of a feed sees of a branch under a schema."""

NOW, BEGINNING, AFTER = "now", "beginning", "after:"
# How many commits before a cursor are looked at: more than a group has members.
_EARLIER = 32


@dataclass(frozen=True, slots=True)
class _Step:
    """A commit and the one that it is compared with."""

    row: CommitRow
    parent: CommitRow | None
    states: tuple[SchemaSnapshot | None, SchemaSnapshot] | None = None
    """Before and after, as the reader sees them; looked up only if the reader may not see all."""

    @property
    def is_whole(self) -> bool:
        return self.states is None or is_seen_whole(*self.states)

    def mark(self, *, is_done: bool) -> str:
        """The mark of a cursor after this commit, or inside of it."""
        if self.states is None:
            return ""
        before, after = (None if state is None else state.view for state in self.states)
        if is_done:
            return view_mark(after)
        return "" if self.is_whole else f"{view_mark(before)}.{view_mark(after)}"


class Feed:
    """The changes of one branch, as a reader sees them."""

    def __init__(
        self,
        store: GraphStore,
        schema: SchemaAt,
        branch: str | None,
        wanted: ChangeFilter,
        view_at: ViewAt | None = None,
        knows: Callable[[str | None], bool] | None = None,
    ) -> None:
        """Without ``view_at`` the reader sees everything.

        ``knows`` says of which branches the reader may know the commits. One that it may not know
        is skipped: the next is compared with the last that it knows.
        """
        self._store = store
        self._schema = schema
        self._view_at = view_at
        self._knows = knows
        self._branch = branch
        self._history = History(store)
        self._wanted = wanted
        # A type that never existed is an error, wherever the feed starts.
        wanted.resolve(self._schemas(None))

    def start(self, where: str) -> Cursor:
        """A cursor at ``beginning``, ``now`` or ``after:<commit>``."""
        commit: str | None = None
        if where == NOW:
            head = self._store.manifest(self._branch).current().head
            commit = None if head is None else head.commit_id
        elif where.startswith(AFTER):
            commit = self._history.commit(where.removeprefix(AFTER)).commit_id
        elif where != BEGINNING:
            raise InputError(
                f"invalid start '{where}' of a change feed",
                hint="expected beginning, now or after:<commit>",
            )
        return self._end(Cursor(self._branch, commit, view=None))

    def page(
        self,
        cursor: Cursor,
        limit: int,
        until: str | None = None,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> ChangePage:
        """The next events and changes, at most ``limit``; a commit without any is skipped.

        ``until`` is the last commit to read. A page also ends after a commit at which ``is_enough``
        returns true; it has not caught up then.
        """
        with detect_branch_deletion(self._store, self._branch):
            return self._page(cursor, limit, until, is_enough)

    def _page(
        self, cursor: Cursor, limit: int, until: str | None, is_enough: Callable[[], bool]
    ) -> ChangePage:
        if limit < 1:
            raise InputError("a page has at least one change", hint="pass a limit of 1 or more")
        self._check(cursor)
        wanted = self._resolved(cursor)
        blocks: list[ChangeBlock] = []
        # Arrow counts in 64 bits.
        left, position = min(limit, sys.maxsize), cursor
        for row, parent in self._commits_after(cursor):
            if not left or (position is not cursor and is_enough()):
                return ChangePage(tuple(blocks), position.text(), False)
            step, content = self._read(row, parent, position, wanted)
            events, changes = content.some(position.offset, left)
            count = len(events) + len(changes)
            left -= count
            offset = position.offset + count
            done = offset >= content.size
            mark = step.mark(is_done=done)
            if done:
                position = self._end(Cursor(self._branch, row.commit_id, view=mark), wanted)
            else:
                position = Cursor(self._branch, position.commit, offset, wanted.text(), mark)
            if count:
                commit = commit_of(row)
                blocks.append(ChangeBlock(commit, tuple(changes), done, events, position.text()))
            if not done:
                return ChangePage(tuple(blocks), position.text(), False)
            if row.commit_id == until:
                break
        if position is cursor:
            position = self._at_end(cursor)
        return ChangePage(tuple(blocks), position.text(), True)

    def _end(self, cursor: Cursor, wanted: ChangeFilter | None = None) -> Cursor:
        """A position between commits; keeps the type ids of a filter by types."""
        if self._wanted.types is None:
            return cursor
        return replace(cursor, filter=(wanted or self._resolved(cursor)).text())

    def _check(self, cursor: Cursor) -> None:
        if cursor.branch != self._branch:
            raise InputError(
                f"the cursor belongs to branch '{branch_label(cursor.branch)}'",
                hint="read that branch, or start without a cursor",
            )
        if cursor.offset and not self._resolved(cursor).wants_same(cursor.filter):
            raise InputError(
                "cursor was created with a different filter",
                hint="read to the end of its commit with the same filter first",
            )

        if self._view_at is None and cursor.view:
            raise _view_changed()

    # -- views -------------------------------------------------------------------------

    def _step(self, row: CommitRow, parent: CommitRow | None, position: Cursor) -> _Step:
        """A commit as the reader sees it who has read up to a position.

        The state before the first commit of a branch is that of another branch. The reader has seen
        it as either of the two shows it.
        """
        if self._view_at is None:
            return _Step(row, parent)
        after = self._under_schema(row, row.branch)
        befores: list[SchemaSnapshot | None] = [None]
        if parent is not None:
            branches = dict.fromkeys([row.branch, parent.branch])
            befores = [self._under_schema(parent, branch) for branch in branches]
        for before in befores:
            step = _Step(row, parent, (before, after))
            view = None if before is None else before.view
            mark = step.mark(is_done=False) if position.offset else view_mark(view)
            if position.view in (None, mark):
                return step
        raise _view_changed()

    def _at_end(self, cursor: Cursor) -> Cursor:
        """A cursor after the newest commit, with the mark of its view."""
        if self._view_at is None:
            return replace(cursor, view="")
        chain = self.chain()
        if not chain or cursor.commit is None:
            return replace(cursor, view="")
        branches = dict.fromkeys([self._branch, chain[-1].branch])
        states = [self._under_schema(chain[-1], branch) for branch in branches]
        marks = [view_mark(state.view) for state in states]
        if cursor.view is None:
            return replace(cursor, view=marks[0])
        if cursor.view not in marks:
            raise _view_changed()
        return cursor

    # -- types of the filter -----------------------------------------------------------

    def _resolved(self, cursor: Cursor) -> ChangeFilter:
        """The filter with the ids of its types at a position.

        A name refers to the type that had it when the cursor was created; else to the type with
        that name at the position, now, or most recently.
        """
        return self._wanted.resolve(self._schemas(cursor), type_ids_of(cursor.filter))

    def _schemas(self, cursor: Cursor | None) -> Iterator[IdentifiedSchema]:
        manifest = self._store.manifest(self._branch)
        if cursor is not None and cursor.commit is not None:
            # The commit may have been removed, which is reported elsewhere.
            with suppress(CommitNotFound, HistoryGone, StorageMissing):
                yield self._schema(self._history.snapshot_of(cursor.commit))
        newest = manifest.current()
        yield self._schema(newest)
        rows = manifest.with_state(lambda state, _: dict(state.schemas))
        for version in sorted(rows, reverse=True):
            yield recorded_schema(rows[version])

    # -- reading by commit ----------------------------------------------

    def after(self, cursor: Cursor) -> list[Cursor]:
        """The positions after each commit that follows a cursor, oldest first."""
        self._check(cursor)
        wanted = self._resolved(cursor)
        ends = [Cursor(self._branch, row.commit_id) for row, _ in self._commits_after(cursor)]
        return [self._end(end, wanted) for end in ends]

    def slices(self, end: Cursor, most: int) -> tuple[CommitRow, Iterator[CommitSlice]]:
        """The commit before a position of ``after``, in slices of at most ``most``."""
        chain = self.chain()
        for position, row in enumerate(chain):
            if row.commit_id == end.commit:
                before = commit_before(chain, position)
                position_before = Cursor(self._branch, None, view=None)
                _, content = self._read(row, before, position_before, self._resolved(end))
                starts = range(0, content.size, most)
                return row, ((start, *content.some(start, most)) for start in starts)
        raise CommitNotFound(f"commit '{end.commit}' not found", details={"commit_id": end.commit})

    # -- commits -------------------------------------------------------------------------

    def _commits_after(self, cursor: Cursor) -> Iterator[tuple[CommitRow, CommitRow | None]]:
        """The commits after a cursor, oldest first, each with its predecessor."""
        # A state that the reader has is the state of a commit, whether it knows that one or not.
        chain = self._visible_chain_from(cursor.commit)
        start = 0
        if cursor.commit is not None:
            ids = [row.commit_id for row in chain]
            if cursor.commit not in ids:
                label = branch_label(self._branch)
                message = f"commit '{cursor.commit}' is not in the history of branch '{label}'"
                raise self._gap(message, cursor.commit, chain)
            start = ids.index(cursor.commit) + 1
        for position in range(start, len(chain)):
            yield chain[position], commit_before(chain, position)

    def chain(self) -> list[CommitRow]:
        head = self._store.manifest(self._branch).current().head
        return first_parents(self._store, self._branch, None if head is None else head.commit_id)

    def visible_chain(self, also: str | None = None) -> list[CommitRow]:
        """The commits of the branch that the reader may know, oldest first; and ``also``."""
        return self._visible_of(self.chain(), also)

    def _visible_of(self, chain: list[CommitRow], also: str | None) -> list[CommitRow]:
        knows = self._knows
        if knows is None:
            return chain
        return [row for row in chain if knows(row.branch) or row.commit_id == also]

    def _chain_from(self, commit_id: str) -> list[CommitRow]:
        """The commits of the branch; if that one is new, without most of those before it."""
        chain = recent_first_parents(self._store, self._branch, commit_id, _EARLIER)
        return self.chain() if chain is None else chain

    def _visible_chain_from(self, commit_id: str | None) -> list[CommitRow]:
        """The visible chain; if that commit is new, without most of those before it."""
        if commit_id is not None:
            recent = recent_first_parents(self._store, self._branch, commit_id, _EARLIER)
            # If none is hidden, the commit before the group of any later one is among them.
            if recent is not None and self._visible_of(recent, commit_id) == recent:
                return recent
        return self.visible_chain(commit_id)

    def _gap(self, message: str, commit_id: str, chain: list[CommitRow]) -> HistoryGone:
        return HistoryGone(
            message,
            hint="start from the oldest cursor, or from a new baseline",
            details={"commit_id": commit_id, "oldest_cursor": self._oldest(chain)},
        )

    def _oldest(self, chain: list[CommitRow]) -> str | None:
        """The first position from which every commit can still be read."""
        oldest: Cursor | None = None
        for position in range(len(chain) - 1, -1, -1):
            row, parent = chain[position], commit_before(chain, position)
            try:
                mark = view_mark(self._under_schema(row, row.branch).view)
                oldest = Cursor(self._branch, row.commit_id, view=mark)
                if not self._is_readable(row, parent):
                    break
            except (HistoryGone, StorageMissing, CommitNotFound):
                break
        else:
            oldest = Cursor(self._branch, None)
        return None if oldest is None else oldest.text()

    def _is_readable(self, row: CommitRow, parent: CommitRow | None) -> bool:
        """Whether the tables that a commit changed still exist before and after it.

        A hard drop removes them, whatever their age.
        """
        if recorded_events(row):
            step = self._step(row, parent, Cursor(self._branch, None, view=None))
            if not step.is_whole:
                self._content(step, ChangeFilter())
            return True
        after = self._state(row)
        before = None if parent is None else self._state(parent)
        moved: set[TableVersion | None] = set()
        for key in after.pins:
            was = None if before is None else before.table_version(key)
            if was != after.table_version(key):
                moved |= {was, after.table_version(key)}
        datasets = self._store.datasets
        return all(v is None or datasets.info(v.ref, v.version) is not None for v in moved)

    # -- changes -------------------------------------------------------------------------

    def _read(
        self, row: CommitRow, parent: CommitRow | None, position: Cursor, wanted: ChangeFilter
    ) -> tuple[_Step, CommitContent]:
        """A commit after a position, and its wanted content."""
        try:
            step = self._step(row, parent, position)
            return step, self._content(step, wanted)
        except ViewChanged:
            raise
        except (HistoryGone, StorageMissing) as error:
            message = f"the changes of commit '{row.commit_id}' were removed by cleanup"
            raise self._gap(message, row.commit_id, self.visible_chain()) from error

    def _content(self, step: _Step, wanted: ChangeFilter) -> CommitContent:
        events = recorded_events(step.row)
        tables: Iterable[tuple[EntityType, TableChanges]] = ()
        if not events:
            before, after = step.states or self._states(step)
            events = tuple(events_between(None if before is None else before.schema, after.schema))
            if step.is_whole:
                changes = table_changes(self._store, before, after, wanted)
                tables = restricted(changes, written_ids(step.row))
            else:
                tables = self._visible(step.row, VisibleChanges(self._store, before, after), wanted)
        elif step.states is not None and not step.is_whole:
            # The events describe everything that an apply does to rows, even if those were removed;
            # but it may also change which rows are visible.
            tables = VisibleChanges(self._store, *step.states, events).tables(wanted)
        return CommitContent(tuple(filter(wanted.takes_event, events)), tuple(tables), wanted)

    def _visible(
        self, row: CommitRow, changes: VisibleChanges, wanted: ChangeFilter
    ) -> Iterator[tuple[EntityType, TableChanges]]:
        """The visible changes of a commit; of a group, those of the member."""
        group = group_of(row)
        if group is None:
            return changes.tables(wanted)
        chain = self._chain_from(row.commit_id)
        position = [other.commit_id for other in chain].index(row.commit_id)
        members = group_members(chain, position)
        ids = [written_ids(member) or {} for member in members]
        return changes.tables_of_member(wanted, ids, members.index(row))

    def _states(self, step: _Step) -> tuple[SchemaSnapshot | None, SchemaSnapshot]:
        parent = step.parent
        before = None if parent is None else self._under_schema(parent, parent.branch)
        return before, self._under_schema(step.row, step.row.branch)

    def _under_schema(self, row: CommitRow, branch: str | None) -> SchemaSnapshot:
        """The state of a commit, as a branch that has it shows it to the reader."""
        snapshot = self._state(row)
        schema = self._schema(snapshot)
        view = WHOLE if self._view_at is None else self._view_at(branch, schema.catalog)
        return SchemaSnapshot(snapshot, schema, view)

    def _state(self, row: CommitRow) -> Snapshot:
        return self._history.snapshot_of(row.commit_id)


def _view_changed() -> ViewChanged:
    return ViewChanged(
        "the cursor was made under another view of the graph",
        hint="the policy or the actor has changed; start again from a new baseline",
    )


def baseline_record(
    commit_id: str | None, cursor: str, schema: IdentifiedSchema
) -> Mapping[str, Any]:
    """The last line of a baseline; a copy without it is incomplete."""
    return {
        "baseline": {
            "snapshot_commit_id": commit_id,
            "resume_cursor": cursor,
            "schema": schema.to_json(),
        }
    }
