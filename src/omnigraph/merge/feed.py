"""The changes of a branch in the order of its commits, to be followed from a place on.

A cursor names the last commit that was told completely, and how far into the next one. It does
not depend on anything that is kept here: who has it can go on as long as the history is there.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.commit.history import Commit, History
from omnigraph.commit.names import branch_label
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import CommitNotFound, HistoryGone, InputError, StorageMissing
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.merge.changes import TableChanges
from omnigraph.merge.diff import Change, ChangeFilter, State, changes_of, count_of, table_changes
from omnigraph.write.delta import Kind

SchemaAt = Callable[[Snapshot], Catalog]
"""The schema that a state is read under."""

NOW, BEGINNING, AFTER = "now", "beginning", "after:"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the feed of a branch."""

    branch: str | None
    commit: str | None
    """The last that was told completely; none before the first."""
    offset: int = 0
    """How many changes of the next one were told."""
    filter: str = ""
    """What the offset counts."""

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

    def to_json(self) -> dict[str, Any]:
        return {
            "commit_id": self.commit.commit_id,
            "branch": self.commit.branch,
            "version": self.commit.version,
            "created_at": self.commit.created_at,
            "actor": self.commit.actor,
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


class Feed:
    """The changes of one branch."""

    def __init__(
        self, store: GraphStore, schema: SchemaAt, branch: str | None, wanted: ChangeFilter
    ) -> None:
        self._store = store
        self._schema = schema
        self._branch = branch
        self._wanted = wanted.within(store.manifest(branch).current())
        self._history = History(store)

    def start(self, where: str) -> Cursor:
        """A cursor at ``beginning``, ``now`` or ``after:<commit>``."""
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
        """The next changes, at most so many; a commit without any that is wanted is passed over.

        ``until`` is the last commit that is told.
        """
        if limit < 1:
            raise InputError("a page has at least one change", hint="pass a limit of 1 or more")
        self._check(cursor)
        blocks: list[ChangeBlock] = []
        left, place = limit, cursor
        for row, parent in self._behind(cursor):
            if not left:
                return ChangePage(tuple(blocks), place.text(), False)
            found = self._changes(row, parent)
            total = sum(count_of(each, self._wanted) for _, each in found)
            told = self._some(found, place.offset, left)
            left -= len(told)
            done = place.offset + len(told) >= total
            if told:
                blocks.append(ChangeBlock(Commit.of(row), tuple(told), done))
            if not done:
                offset = place.offset + len(told)
                place = Cursor(self._branch, place.commit, offset, self._wanted.text())
                return ChangePage(tuple(blocks), place.text(), False)
            place = Cursor(self._branch, row.commit_id)
            if row.commit_id == until:
                break
        return ChangePage(tuple(blocks), place.text(), True)

    def _check(self, cursor: Cursor) -> None:
        if cursor.branch != self._branch:
            raise InputError(
                f"the cursor is one of branch '{branch_label(cursor.branch)}'",
                hint="ask for that branch, or start anew",
            )
        if cursor.offset and cursor.filter != self._wanted.text():
            raise InputError(
                "the cursor stands inside a commit that was told by another filter",
                hint="read that commit to its end with the same filter first",
            )

    def behind(self, cursor: Cursor) -> list[CommitRow]:
        """The commits behind a cursor, oldest first."""
        self._check(cursor)
        return [row for row, _ in self._behind(cursor)]

    def told(self, commit_id: str, most: int) -> tuple[CommitRow, Iterator[list[Change]]]:
        """All changes of one commit of the branch, in pieces of at most so many."""
        parent: CommitRow | None = None
        for row in self.chain():
            if row.commit_id == commit_id:
                return row, self._pieces(self._changes(row, parent), most)
            parent = row
        raise CommitNotFound(f"commit '{commit_id}' not found", details={"commit_id": commit_id})

    def _pieces(self, found: list[tuple[Kind, TableChanges]], most: int) -> Iterator[list[Change]]:
        for kind, each in found:
            for start in range(0, count_of(each, self._wanted), most):
                yield changes_of(kind, each, self._wanted, start, most)

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
        for row in reversed(chain):
            try:
                self._state(row)
            except (HistoryGone, StorageMissing, CommitNotFound):
                break
            oldest = Cursor(self._branch, row.commit_id)
        else:
            oldest = Cursor(self._branch, None)
        return None if oldest is None else oldest.text()

    # -- changes -------------------------------------------------------------------------

    def _changes(self, row: CommitRow, parent: CommitRow | None) -> list[tuple[Kind, TableChanges]]:
        try:
            before = None if parent is None else self._under_schema(parent)
            after = self._under_schema(row)
            return list(table_changes(self._store, before, after, self._wanted))
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

    def _under_schema(self, row: CommitRow) -> State:
        found = self._state(row)
        return State(found, self._schema(found))

    def _state(self, row: CommitRow) -> Snapshot:
        return self._history.snapshot_of(row.commit_id)

    def _some(self, found: list[tuple[Kind, TableChanges]], offset: int, most: int) -> list[Change]:
        told: list[Change] = []
        for kind, each in found:
            size = count_of(each, self._wanted)
            if offset < size and len(told) < most:
                told += changes_of(kind, each, self._wanted, offset, most - len(told))
            offset = max(0, offset - size)
        return told


def baseline_record(commit_id: str | None, cursor: str) -> Mapping[str, Any]:
    """The last line of a baseline: without it, a copy is not whole."""
    return {"baseline": {"snapshot_commit_id": commit_id, "resume_cursor": cursor}}
