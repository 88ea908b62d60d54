"""``graph.changes``: the change feed of a branch, and the last change of a row."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from os import fspath
from pathlib import Path
from typing import Any

from omnigraph.api.arguments import Location, public
from omnigraph.api.authors import Authors
from omnigraph.api.branch_rights import BranchRights
from omnigraph.api.handle import Handle, Namespace
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.commit.history import History, SnapshotRef
from omnigraph.commit.names import normal_branch
from omnigraph.commit.schema.history import identified, identified_at
from omnigraph.errors import InputError
from omnigraph.merge.blame import Blame, find_blame, missing_row
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.merge.cursor import Cursor, view_mark
from omnigraph.merge.feed import BEGINNING, Feed, SchemaAt, baseline_record
from omnigraph.merge.pages import ChangeBlock, ChangePage
from omnigraph.records import dataclass
from omnigraph.representation import brief
from omnigraph.write.conform import find_type
from omnigraph.write.export import Export

_PAUSE_SECONDS = 0.05
"""How often a waiting reader looks for a new commit."""
_FOLLOW_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """A state of a branch, and the cursor from which its change feed continues."""

    __repr__ = brief

    snapshot: GraphSnapshot
    cursor: str
    schema: Mapping[str, Any]
    """Its types and properties with their stable ids, as used in the events of the feed."""
    records: int = 0
    """The number of exported nodes and edges."""


class GraphChanges(Namespace):
    """The changes of a graph, as ``graph.changes``."""

    @public
    def poll(
        self,
        branch: str = "main",
        cursor: str | None = None,
        *,
        start: str = BEGINNING,
        limit: int = 1_000,
        wait: float = 0.0,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> ChangePage:
        """The next changes of a branch in the order of its commits, at most ``limit``.

        Schema changes come before the rows of their commit, and count as changes. Without a
        ``cursor`` the feed begins at ``start``: ``beginning``, ``now`` or ``after:<commit>``. The
        page has the cursor of the next page, and whether it has caught up with the branch. If there
        are no changes, the call waits for some, for up to ``wait`` seconds.

        Raises:
            NotFound: the branch does not exist.
            InputError: the cursor is invalid, or belongs to another filter.
            HistoryGone: cleanup has removed the changes at the cursor.
            ViewChanged: the actor saw other rows when the cursor was made.

        >>> page = graph.changes.poll(start="now")
        >>> receipt = graph.mutate('query q() { insert Person { name: "Alan" } }', actor="ana")
        >>> page = graph.changes.poll(cursor=page.cursor)
        >>> [(change.op.value, change.id) for change in page.changes]
        [('insert', 'Alan')]
        """
        handle, wanted = self._handle, ChangeFilter.of(kinds, types, ops)
        deadline = time.monotonic() + wait
        while True:
            seen = head_of(handle, branch)
            page = read_page(handle, branch, cursor, start, limit, wanted)
            if page.blocks or not page.caught_up:
                return page
            while head_of(handle, branch) == seen:
                left = deadline - time.monotonic()
                if left <= 0:
                    return page
                time.sleep(min(left, _PAUSE_SECONDS))
            cursor = page.cursor

    @public
    def follow(
        self,
        branch: str = "main",
        cursor: str | None = None,
        *,
        start: str = BEGINNING,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> Iterator[ChangeBlock]:
        """The changes of a branch, commit by commit, without an end: it waits for more.

        A block has the cursor after it, from which a later call continues.

        Raises:
            NotFound: the branch does not exist.
            HistoryGone: cleanup has removed the changes at the cursor.

        >>> blocks = graph.changes.follow()
        >>> next(blocks).schema_events[0].describe(), len(next(blocks).changes)
        ("add node type 'Person'", 3)
        """
        options: dict[str, Any] = {"kinds": kinds, "types": types, "ops": ops}
        page = self.poll(branch, cursor, start=start, **options)
        return self._later_blocks(branch, page, options)

    def _later_blocks(
        self, branch: str, page: ChangePage, options: dict[str, Any]
    ) -> Iterator[ChangeBlock]:
        while True:
            yield from page.blocks
            page = self.poll(branch, page.cursor, wait=_FOLLOW_SECONDS, **options)

    @public
    def of_commit(
        self,
        commit: str,
        cursor: str | None = None,
        *,
        limit: int = 1_000,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> ChangePage:
        """The changes of one commit since its first parent, at most ``limit`` of them.

        A page that has not caught up has the cursor of the next one.

        Raises:
            NotFound: the commit does not exist.
            InputError: the cursor belongs to another commit.
            HistoryGone: cleanup has removed the state before the commit.

        >>> page = graph.changes.of_commit(graph.commits()[0].commit_id, types=["Knows"])
        >>> [change.op.value for change in page.changes]
        ['insert']
        """
        wanted = ChangeFilter.of(kinds, types, ops)
        return read_commit(self._handle, commit, cursor, limit, wanted)

    @public
    def baseline(self, branch: str = "main", dest: Location | None = None) -> Baseline:
        """The newest state of a branch, and the cursor of the changes after it.

        With ``dest`` it is also exported, with the cursor in the last line: a file without that
        line is incomplete.

        Raises:
            NotFound: the branch does not exist.

        >>> baseline = graph.changes.baseline(dest=folder / "baseline.ndjson")
        >>> baseline.records, len(graph.changes.poll(cursor=baseline.cursor).changes)
        (3, 0)
        """
        self._handle.check_local_file("dest", dest)
        store, context = self._handle.store, self._handle.read(SnapshotRef(branch))
        snapshot = GraphSnapshot(self._handle, context)
        schema = identified(store, context.snapshot, context.catalog)
        mark = view_mark(context.view)
        cursor = Cursor(normal_branch(branch), snapshot.commit_id, view=mark).text()
        records = 0
        if dest is not None:
            last = json.dumps(baseline_record(snapshot.commit_id, cursor, schema))
            export = Export(store, context.catalog, context.snapshot, view=context.view)
            records = export.write_lines(Path(fspath(dest)), last)
        return Baseline(snapshot, cursor, schema.to_json(), records)

    @public
    def blame(self, type_name: str, entity_id: str, branch: str = "main") -> Blame:
        """The commit, and so the actor, that last changed a node or an edge.

        Raises:
            InputError: the type does not exist.
            NotFound: the node or edge does not exist.
            PolicyDenied: the policy does not allow ``read_history``.

        >>> graph.changes.blame("Person", "Ada").commit.commit_id == graph.commits()[0].commit_id
        True
        """
        return read_blame(self._handle, type_name, entity_id, branch)


# -- pages ----------------------------------------------------------------------------------------

Head = tuple[int, str | None]
"""The version of the manifest of a branch, and its newest commit."""


def head_of(handle: Handle, branch: str) -> Head:
    """The head of a branch; two that differ mean that there may be new changes."""
    handle.check_open()
    current = handle.store.manifest(normal_branch(branch)).current()
    return current.manifest_version, None if current.head is None else current.head.commit_id


def read_page(
    handle: Handle,
    branch: str,
    cursor: str | None,
    start: str,
    limit: int,
    wanted: ChangeFilter,
    is_enough: Callable[[], bool] = lambda: False,
    rights: BranchRights | None = None,
) -> ChangePage:
    """A page of the feed of a branch, as the actor of the handle sees it; see ``Feed.page``.

    ``rights`` are those of the actor; without, it may read all branches.
    """
    feed = feed_of(handle, branch, wanted, rights)
    position = feed.start(start) if cursor is None else Cursor.parse(cursor)
    return _shown(handle, feed.page(position, limit, is_enough=is_enough), rights)


def read_commit(
    handle: Handle,
    commit: str,
    cursor: str | None,
    limit: int,
    wanted: ChangeFilter,
    rights: BranchRights | None = None,
) -> ChangePage:
    """A page of the changes of one commit, as the actor of the handle sees them."""
    row = History(handle.store).commit(commit)
    feed = feed_of(handle, row.branch, wanted, rights)
    start = Cursor(normal_branch(row.branch), row.parent, view=None)
    position = start if cursor is None else Cursor.parse(cursor)
    if (position.branch, position.commit) != (start.branch, start.commit):
        raise InputError("the cursor belongs to another commit", hint="start without one")
    return _shown(handle, feed.page(position, limit, row.commit_id), rights)


def _shown(handle: Handle, page: ChangePage, rights: BranchRights | None) -> ChangePage:
    page = Authors(handle).of_page(page)
    return page if rights is None else rights.of_page(page)


def read_blame(
    handle: Handle, type_name: str, entity_id: str, branch: str, rights: BranchRights | None = None
) -> Blame:
    """The last change of a row, without what the actor of the handle may not know.

    Raises ``EntityNotFound`` if the actor may not know any commit that changed it.
    """
    authors = Authors(handle)
    authors.require(branch)
    entity_type = find_type(handle.accepted().catalog, type_name)
    feed = feed_of(handle, branch, ChangeFilter(), rights)
    # The newest state is judged, whoever made it.
    chain = feed.visible_chain(feed.chain()[-1].commit_id)
    views = handle.view_at if rights is None else rights.view_at
    blame = find_blame(handle.store, _schema_at(handle), entity_type, entity_id, chain, views)
    commit, origin = authors.of_commit(blame.commit), blame.origin
    if rights is not None:
        if not rights.knows(commit.branch):
            raise missing_row(entity_type, entity_id)
        commit = rights.shown(commit)
        if origin is not None:
            origin = rights.shown(origin) if rights.knows(origin.branch) else None
    return Blame(commit, blame.op, None if origin is None else authors.of_commit(origin))


def feed_of(
    handle: Handle, branch: str, wanted: ChangeFilter, rights: BranchRights | None = None
) -> Feed:
    views, knows = handle.view_at, None
    if rights is not None:
        views, knows = rights.view_at, rights.knows
    return Feed(handle.store, _schema_at(handle), normal_branch(branch), wanted, views, knows)


def _schema_at(handle: Handle) -> SchemaAt:
    store, contract = handle.store, handle.check()
    return lambda state: identified_at(store, contract, state)
