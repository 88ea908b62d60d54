"""The changes of a branch in the order of its commits, to be followed from a place on.

A cursor names the last commit that was told completely, and how far into the next one. It does
not depend on anything that is kept here: who has it can go on as long as the history is there.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.commit.history import Commit, History
from omnigraph.commit.metadata import SchemaEvent
from omnigraph.commit.names import branch_label
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.schema.history import recorded_schema
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import CommitNotFound, HistoryGone, InputError, StorageMissing
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.merge.change_filter import ChangeFilter, known_types
from omnigraph.merge.changes import TableChanges
from omnigraph.merge.diff import Change, State, changes_of, count_of, table_changes
from omnigraph.merge.events import events_between, recorded_events
from omnigraph.write.delta import Kind

SchemaAt = Callable[[Snapshot], IdentifiedSchema]
"""The schema that a state is read under, with its stable ids."""

Told = tuple[int, tuple[SchemaEvent, ...], list[Change]]
"""A part of a commit: where it begins, its events and its changes."""

NOW, BEGINNING, AFTER = "now", "beginning", "after:"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the feed of a branch."""

    branch: str | None
    commit: str | None
    """The last that was told completely; none before the first."""
    offset: int = 0
    """How many events and changes of the next one were told."""
    filter: str = ""
    """What the offset counts, and which types the names of the filter stand for."""

    def text(self) -> str:
        """The form in which it is handed out."""
        told = [_VERSION, self.branch, self.commit, self.offset, self.filter]
        packed = json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
        return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")

    @staticmethod
    def parse(text: str) -> Cursor:
        try:
            padded = text + "=" * (-len(text) % 4)
            told = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
            version, branch, commit, offset, filter_text = told
        except (ValueError, TypeError, binascii.Error):
            raise _no_cursor() from None
        known = (
            version == _VERSION
            and isinstance(branch, str | None)
            and isinstance(commit, str | None)
            and isinstance(offset, int)
            and offset >= 0
            and isinstance(filter_text, str)
        )
        if not known:
            raise _no_cursor()
        return Cursor(branch, commit, offset, filter_text)


def _no_cursor() -> InputError:
    return InputError(
        "this is no cursor of a change feed", hint="pass one that a page gave, or a start"
    )


@dataclass(frozen=True, slots=True)
class ChangeBlock:
    """The changes of one commit against the one before it on the branch, or a part of them."""

    commit: Commit
    changes: tuple[Change, ...]
    is_complete: bool = True
    """Whether these are the last changes of the commit."""
    schema_events: tuple[SchemaEvent, ...] = ()
    """What the commit did to types and properties, before its changes of rows."""
    cursor: str = ""
    """Where to go on behind this block."""

    def to_json(self) -> dict[str, Any]:
        return {
            "commit_id": self.commit.commit_id,
            "branch": self.commit.branch,
            "version": self.commit.version,
            "created_at": self.commit.created_at,
            "actor": self.commit.actor,
            "schema_events": [event.to_json() for event in self.schema_events],
            "changes": [change.to_json() for change in self.changes],
            "is_complete": self.is_complete,
        }


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Some of the feed, and where to go on."""

    blocks: tuple[ChangeBlock, ...]
    cursor: str
    caught_up: bool
    """Whether there was nothing more when the page was made."""

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for block in self.blocks for change in block.changes)

    @property
    def schema_events(self) -> tuple[SchemaEvent, ...]:
        return tuple(event for block in self.blocks for event in block.schema_events)


@dataclass(frozen=True, slots=True)
class _Content:
    """All that is wanted of a commit, in order: events of the schema, then changes by type."""

    events: tuple[SchemaEvent, ...]
    tables: tuple[tuple[Kind, TableChanges], ...]
    wanted: ChangeFilter

    @property
    def size(self) -> int:
        return len(self.events) + sum(count_of(each, self.wanted) for _, each in self.tables)

    def some(self, offset: int, most: int) -> tuple[tuple[SchemaEvent, ...], list[Change]]:
        """At most so many of them, after those that were told."""
        events = self.events[offset : offset + most]
        offset, most = max(0, offset - len(self.events)), most - len(events)
        changes: list[Change] = []
        for kind, each in self.tables:
            size = count_of(each, self.wanted)
            if offset < size and len(changes) < most:
                changes += changes_of(kind, each, self.wanted, offset, most - len(changes))
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
        # A type that no schema ever had is a slip of the pen, wherever the feed is read from.
        wanted.resolve(self._schemas(None))

    def start(self, where: str) -> Cursor:
        """A cursor at ``beginning``, ``now`` or ``after:<commit>``."""
        return self._end(self._start(where))

    def _start(self, where: str) -> Cursor:
        if where == BEGINNING:
            return Cursor(self._branch, None)
        if where == NOW:
            head = self._store.manifest(self._branch).current().head
            return Cursor(self._branch, None if head is None else head.commit_id)
        if where.startswith(AFTER):
            commit = self._history.commit(where.removeprefix(AFTER)).commit_id
            return Cursor(self._branch, commit)
        raise InputError(
            f"'{where}' is no start of a change feed",
            hint="use beginning, now or after:<commit>",
        )

    def page(self, cursor: Cursor, limit: int, until: str | None = None) -> ChangePage:
        """The next events and changes, at most so many; a commit without any is passed over.

        ``until`` is the last commit that is told.
        """
        if limit < 1:
            raise InputError("a page has at least one change", hint="pass a limit of 1 or more")
        self._check(cursor)
        wanted = self._resolved(cursor)
        blocks: list[ChangeBlock] = []
        left, place = limit, cursor
        for row, parent in self._behind(cursor):
            if not left:
                return ChangePage(tuple(blocks), place.text(), False)
            content = self._content(row, parent, wanted)
            events, changes = content.some(place.offset, left)
            told = len(events) + len(changes)
            left -= told
            offset = place.offset + told
            done = offset >= content.size
            if done:
                place = self._end(Cursor(self._branch, row.commit_id), wanted)
            else:
                place = Cursor(self._branch, place.commit, offset, wanted.text())
            if told:
                commit = Commit.of(row)
                blocks.append(ChangeBlock(commit, tuple(changes), done, events, place.text()))
            if not done:
                return ChangePage(tuple(blocks), place.text(), False)
            if row.commit_id == until:
                break
        return ChangePage(tuple(blocks), place.text(), True)

    def _end(self, cursor: Cursor, wanted: ChangeFilter | None = None) -> Cursor:
        """A place between commits; a filter by types is kept with the types that it means."""
        if self._wanted.types is None:
            return cursor
        return replace(cursor, filter=(wanted or self._resolved(cursor)).text())

    def _check(self, cursor: Cursor) -> None:
        if cursor.branch != self._branch:
            raise InputError(
                f"the cursor is one of branch '{branch_label(cursor.branch)}'",
                hint="ask for that branch, or start anew",
            )
        if cursor.offset and not self._resolved(cursor).wants_same(cursor.filter):
            raise InputError(
                "the cursor stands inside a commit that was told by another filter",
                hint="read that commit to its end with the same filter first",
            )

    # -- which types are meant -----------------------------------------------------------

    def _resolved(self, cursor: Cursor) -> ChangeFilter:
        """The filter with the types that it means at a place.

        A name stands for the type that it stood for when the cursor was made; else for the one
        that has it there, that has it now, or that had it last.
        """
        return self._wanted.resolve(self._schemas(cursor), known_types(cursor.filter))

    def _schemas(self, cursor: Cursor | None) -> Iterator[IdentifiedSchema]:
        manifest = self._store.manifest(self._branch)
        if cursor is not None and cursor.commit is not None:
            # The commit may be gone, which is for others to say.
            with suppress(CommitNotFound, HistoryGone, StorageMissing):
                yield self._schema(self._history.snapshot_of(cursor.commit))
        newest = manifest.current()
        yield self._schema(newest)
        rows = manifest.with_state(lambda state, _: dict(state.schemas))
        for version in sorted(rows, reverse=True):
            yield recorded_schema(rows[version])

    # -- for whoever reads commit by commit ----------------------------------------------

    def behind(self, cursor: Cursor) -> list[Cursor]:
        """The places behind each commit after a cursor, oldest first."""
        self._check(cursor)
        wanted = self._resolved(cursor)
        places = [Cursor(self._branch, row.commit_id) for row, _ in self._behind(cursor)]
        return [self._end(place, wanted) for place in places]

    def told(self, end: Cursor, most: int) -> tuple[CommitRow, Iterator[Told]]:
        """All of the commit before a place that ``behind`` gave, in pieces of at most so many."""
        parent: CommitRow | None = None
        for row in self.chain():
            if row.commit_id == end.commit:
                content = self._content(row, parent, self._resolved(end))
                starts = range(0, content.size, most)
                return row, ((start, *content.some(start, most)) for start in starts)
            parent = row
        raise CommitNotFound(f"commit '{end.commit}' not found", details={"commit_id": end.commit})

    # -- commits -------------------------------------------------------------------------

    def _behind(self, cursor: Cursor) -> Iterator[tuple[CommitRow, CommitRow | None]]:
        """The commits behind a cursor, each with the one before it, oldest first."""
        chain = self.chain()
        start = 0
        if cursor.commit is not None:
            ids = [row.commit_id for row in chain]
            if cursor.commit not in ids:
                raise self._gap(chain, cursor)
            start = ids.index(cursor.commit) + 1
        for position in range(start, len(chain)):
            yield chain[position], chain[position - 1] if position else None

    def chain(self) -> list[CommitRow]:
        """The commits of the branch along their first parents, oldest first."""
        manifest = self._store.manifest(self._branch)
        known = {row.commit_id: row for row in manifest.commits()}
        head = manifest.current().head
        found: list[CommitRow] = []
        here = None if head is None else known.get(head.commit_id, head)
        while here is not None:
            found.append(here)
            here = known.get(here.parent) if here.parent else None
        return found[::-1]

    def _gap(self, chain: list[CommitRow], cursor: Cursor) -> HistoryGone:
        return HistoryGone(
            f"commit '{cursor.commit}' is not in the history of "
            f"branch '{branch_label(self._branch)}'",
            hint="start from the oldest cursor, or from a new baseline",
            details={"commit_id": cursor.commit, "oldest_cursor": self._oldest(chain)},
        )

    def _oldest(self, chain: list[CommitRow]) -> str | None:
        """The first place from which every commit can still be told."""
        oldest: Cursor | None = None
        for position in range(len(chain) - 1, -1, -1):
            row, parent = chain[position], chain[position - 1] if position else None
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
        """Whether the tables that a commit changed are there as it left and as it found them.

        An apply that dropped data for good removed them, however young they were.
        """
        if recorded_events(row):
            return True
        after = self._state(row).pins
        before = {} if parent is None else self._state(parent).pins
        moved = [key for key, pin in after.items() if _version(before.get(key)) != _version(pin)]
        pins = [pins[key] for pins in (before, after) for key in moved if key in pins]
        return all(self._store.tables.info(pin.ref, pin.version) is not None for pin in pins)

    # -- changes -------------------------------------------------------------------------

    def _content(self, row: CommitRow, parent: CommitRow | None, wanted: ChangeFilter) -> _Content:
        events = recorded_events(row)
        if events:
            # They say everything that an apply does to rows, also where those are gone.
            return _Content(tuple(filter(wanted.takes_event, events)), (), wanted)
        try:
            before = None if parent is None else self._under_schema(parent)
            after = self._under_schema(row)
            events = events_between(None if before is None else before.schema, after.schema)
            tables = tuple(table_changes(self._store, before, after, wanted))
        except (HistoryGone, StorageMissing) as error:
            raise HistoryGone(
                f"the changes of commit '{row.commit_id}' are not there any more",
                hint="they were removed by cleanup: start from the oldest cursor, "
                "or from a new baseline",
                details={
                    "commit_id": row.commit_id,
                    "oldest_cursor": self._oldest(self.chain()),
                },
            ) from error
        return _Content(tuple(filter(wanted.takes_event, events)), tables, wanted)

    def _under_schema(self, row: CommitRow) -> State:
        found = self._state(row)
        return State(found, self._schema(found))

    def _state(self, row: CommitRow) -> Snapshot:
        return self._history.snapshot_of(row.commit_id)


def _version(pin: Pin | None) -> tuple[str, str | None, int] | None:
    return None if pin is None else (pin.location, pin.branch, pin.version)


def baseline_record(
    commit_id: str | None, cursor: str, schema: IdentifiedSchema
) -> Mapping[str, Any]:
    """The last line of a baseline: without it, a copy is not whole."""
    return {
        "baseline": {
            "snapshot_commit_id": commit_id,
            "resume_cursor": cursor,
            "schema": schema.to_json(),
        }
    }
