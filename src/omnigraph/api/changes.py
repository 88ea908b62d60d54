"""``graph.changes``: the change feed of a branch, and the last change of a row."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from os import fspath
from pathlib import Path
from typing import Any

from omnigraph.api.arguments import Location, public
from omnigraph.api.authors import Authors
from omnigraph.api.handle import Namespace
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.commit.history import History, SnapshotRef
from omnigraph.commit.names import normal_branch
from omnigraph.commit.schema.history import identified, identified_at
from omnigraph.errors import InputError
from omnigraph.merge.blame import Blame, find_blame
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.merge.cursor import Cursor, view_mark
from omnigraph.merge.feed import BEGINNING, Feed, SchemaAt, baseline_record
from omnigraph.merge.pages import ChangePage
from omnigraph.records import dataclass
from omnigraph.representation import brief
from omnigraph.write.conform import find_type
from omnigraph.write.export import Export


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
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> ChangePage:
        """The next changes of a branch in the order of its commits, at most ``limit``.

        Schema changes come before the rows of their commit, and count as changes. Without a
        ``cursor`` the feed begins at ``start``: ``beginning``, ``now`` or ``after:<commit>``. The
        page has the cursor of the next page, and whether it has caught up with the branch.

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
        feed = self._feed(branch, ChangeFilter.of(kinds, types, ops))
        position = feed.start(start) if cursor is None else Cursor.parse(cursor)
        return Authors(self._handle).of_page(feed.page(position, limit))

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
        row = History(self._handle.store).commit(commit)
        feed = self._feed(row.branch, ChangeFilter.of(kinds, types, ops))
        start = Cursor(normal_branch(row.branch), row.parent, view=None)
        position = start if cursor is None else Cursor.parse(cursor)
        if (position.branch, position.commit) != (start.branch, start.commit):
            raise InputError("the cursor belongs to another commit", hint="start without one")
        return Authors(self._handle).of_page(feed.page(position, limit, row.commit_id))

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
        Authors(self._handle).require(branch)
        entity_type = find_type(self._handle.accepted().catalog, type_name)
        chain = self._feed(branch, ChangeFilter()).chain()
        schema, view_at = self._schema(), self._handle.view_at
        return find_blame(self._handle.store, schema, entity_type, entity_id, chain, view_at)

    # -- inside --------------------------------------------------------------------------

    def _feed(self, branch: str, wanted: ChangeFilter) -> Feed:
        handle = self._handle
        branch_name = normal_branch(branch)
        return Feed(handle.store, self._schema(), branch_name, wanted, handle.view_at)

    def _schema(self) -> SchemaAt:
        store, contract = self._handle.store, self._handle.check()
        return lambda state: identified_at(store, contract, state)
