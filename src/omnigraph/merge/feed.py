"""The change feed of a branch: its changes in the order of its commits, from a cursor on.

A cursor consists of the last commit that was read completely, and the offset in the next one. The
graph stores no cursors: a cursor is valid as long as the history is retained.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from omnigraph.commit.commits import Commit
from omnigraph.commit.group_members import commit_before, written_ids
from omnigraph.commit.history import History, commit_of
from omnigraph.commit.metadata import SchemaEvent
from omnigraph.commit.names import branch_label
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.schema.history import recorded_schema
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore, detect_branch_deletion
from omnigraph.errors import CommitNotFound, HistoryGone, InputError, StorageMissing
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.merge.change_filter import ChangeFilter, type_ids_of
from omnigraph.merge.changes import TableChanges
from omnigraph.merge.diff import (
    Change,
    SchemaSnapshot,
    changes_of,
    counts_of,
    events_between,
    recorded_events,
    restricted,
    table_changes,
)
from omnigraph.records import dataclass
from omnigraph.representation import brief
from omnigraph.storage.tables.types import TableVersion

SchemaAt = Callable[[Snapshot], IdentifiedSchema]
"""The schema that a state is read under, with its stable ids."""

CommitSlice = tuple[int, tuple[SchemaEvent, ...], list[Change]]
"""A part of a commit: its offset, its events and its changes."""

NOW, BEGINNING, AFTER = "now", "beginning", "after:"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the feed of a branch."""

    branch: str | None
    commit: str | None
    """The last commit that was read completely; ``None`` before the first."""
    offset: int = 0
    """The number of events and changes of the next commit that were read."""
    filter: str = ""
    """The filter to which the offset applies, with the ids of its types."""

    def text(self) -> str:
        """The encoded form."""
        fields = [_VERSION, self.branch, self.commit, self.offset, self.filter]
        packed = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")

    @staticmethod
    def parse(text: str) -> Cursor:
        try:
            padded = text + "=" * (-len(text) % 4)
            fields = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
            version, branch, commit, offset, filter_text = fields
        except (ValueError, TypeError, binascii.Error):
            raise _invalid_cursor() from None
        is_valid = (
            version == _VERSION
            and isinstance(branch, str | None)
            and isinstance(commit, str | None)
            and isinstance(offset, int)
            and offset >= 0
            and isinstance(filter_text, str)
        )
        if not is_valid:
            raise _invalid_cursor()
        return Cursor(branch, commit, offset, filter_text)


def _invalid_cursor() -> InputError:
    return InputError(
        "invalid cursor of a change feed", hint="pass the cursor of a page, or a start"
    )


@dataclass(frozen=True, slots=True)
class ChangeBlock:
    """The changes of one commit since its predecessor on the branch, or a part of them."""

    commit: Commit
    changes: tuple[Change, ...]
    is_complete: bool = True
    """Whether these are the last changes of the commit."""
    schema_events: tuple[SchemaEvent, ...] = ()
    """The schema changes of the commit, before its changes of rows."""
    cursor: str = ""
    """The position after this block."""

    def to_json(self) -> dict[str, Any]:
        names = ("commit_id", "branch", "version", "created_at", "actor")
        return {
            **{name: getattr(self.commit, name) for name in names},
            "schema_events": [event.to_json() for event in self.schema_events],
            "changes": [change.to_json() for change in self.changes],
            "is_complete": self.is_complete,
        }


@dataclass(frozen=True, slots=True)
class ChangePage:
    """A page of the feed, and the cursor of the next."""

    __repr__ = brief

    blocks: tuple[ChangeBlock, ...]
    cursor: str
    caught_up: bool
    """Whether there were no further changes when the page was read."""

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for block in self.blocks for change in block.changes)

    @property
    def schema_events(self) -> tuple[SchemaEvent, ...]:
        return tuple(event for block in self.blocks for event in block.schema_events)


@dataclass(frozen=True, slots=True)
class _Content:
    """The wanted content of a commit, in order: schema events, then changes by type."""

    events: tuple[SchemaEvent, ...]
    tables: tuple[tuple[EntityType, TableChanges], ...]
    wanted: ChangeFilter

    @property
    def size(self) -> int:
        counts = (counts_of(changes, self.wanted).affected for _, changes in self.tables)
        return len(self.events) + sum(counts)

    def some(self, offset: int, most: int) -> tuple[tuple[SchemaEvent, ...], list[Change]]:
        """At most ``most`` events and changes from an offset on."""
        events = self.events[offset : offset + most]
        offset, most = max(0, offset - len(self.events)), most - len(events)
        changes: list[Change] = []
        for entity_type, rows in self.tables:
            size = counts_of(rows, self.wanted).affected
            if offset < size and len(changes) < most:
                changes += changes_of(entity_type, rows, self.wanted, offset, most - len(changes))
            offset = max(0, offset - size)
        return events, changes


class Feed:
    """The changes of one branch."""

    def __init__(
        self, store: GraphStore, schema: SchemaAt, branch: str | None, wanted: ChangeFilter
    ) -> None:
        self._store = store
        self._schema = schema
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
        return self._end(Cursor(self._branch, commit))

    def page(self, cursor: Cursor, limit: int, until: str | None = None) -> ChangePage:
        """The next events and changes, at most ``limit``; a commit without any is skipped.

        ``until`` is the last commit to read.
        """
        with detect_branch_deletion(self._store, self._branch):
            return self._page(cursor, limit, until)

    def _page(self, cursor: Cursor, limit: int, until: str | None) -> ChangePage:
        if limit < 1:
            raise InputError("a page has at least one change", hint="pass a limit of 1 or more")
        self._check(cursor)
        wanted = self._resolved(cursor)
        blocks: list[ChangeBlock] = []
        # Arrow counts in 64 bits.
        left, position = min(limit, sys.maxsize), cursor
        for row, parent in self._commits_after(cursor):
            if not left:
                return ChangePage(tuple(blocks), position.text(), False)
            content = self._content(row, parent, wanted)
            events, changes = content.some(position.offset, left)
            count = len(events) + len(changes)
            left -= count
            offset = position.offset + count
            done = offset >= content.size
            if done:
                position = self._end(Cursor(self._branch, row.commit_id), wanted)
            else:
                position = Cursor(self._branch, position.commit, offset, wanted.text())
            if count:
                commit = commit_of(row)
                blocks.append(ChangeBlock(commit, tuple(changes), done, events, position.text()))
            if not done:
                return ChangePage(tuple(blocks), position.text(), False)
            if row.commit_id == until:
                break
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
                content = self._content(row, before, self._resolved(end))
                starts = range(0, content.size, most)
                return row, ((start, *content.some(start, most)) for start in starts)
        raise CommitNotFound(f"commit '{end.commit}' not found", details={"commit_id": end.commit})

    # -- commits -------------------------------------------------------------------------

    def _commits_after(self, cursor: Cursor) -> Iterator[tuple[CommitRow, CommitRow | None]]:
        """The commits after a cursor, oldest first, each with its predecessor."""
        chain = self.chain()
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
                self._state(row)
                oldest = Cursor(self._branch, row.commit_id)
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

    def _content(self, row: CommitRow, parent: CommitRow | None, wanted: ChangeFilter) -> _Content:
        events = recorded_events(row)
        if events:
            # The events describe everything that an apply does to rows, even if those were removed.
            return _Content(tuple(filter(wanted.takes_event, events)), (), wanted)
        try:
            before = None if parent is None else self._under_schema(parent)
            after = self._under_schema(row)
            between = events_between(None if before is None else before.schema, after.schema)
            tables = tuple(
                restricted(table_changes(self._store, before, after, wanted), written_ids(row))
            )
        except (HistoryGone, StorageMissing) as error:
            message = f"the changes of commit '{row.commit_id}' were removed by cleanup"
            raise self._gap(message, row.commit_id, self.chain()) from error
        return _Content(tuple(filter(wanted.takes_event, between)), tables, wanted)

    def _under_schema(self, row: CommitRow) -> SchemaSnapshot:
        snapshot = self._state(row)
        return SchemaSnapshot(snapshot, self._schema(snapshot))

    def _state(self, row: CommitRow) -> Snapshot:
        return self._history.snapshot_of(row.commit_id)


def first_parents(store: GraphStore, branch: str | None, commit_id: str | None) -> list[CommitRow]:
    """A commit of a branch and its first parents, oldest first."""
    commits = {row.commit_id: row for row in store.manifest(branch).commits()}
    chain: list[CommitRow] = []
    while commit_id in commits:
        chain.append(commits[commit_id])
        commit_id = chain[-1].parent
    return chain[::-1]


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
