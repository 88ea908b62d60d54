"""What changed in a graph, for its handle: between two states, commit by commit, for one row."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.api.arguments import public
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History, Tags
from omnigraph.commit.names import normal_branch
from omnigraph.commit.removed_snapshots import detect_removal
from omnigraph.commit.schema.history import identified_at
from omnigraph.commit.snapshot import Snapshot
from omnigraph.errors import CommitNotFound, InputError, NotFound
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.merge.blame import Blame, find_blame
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.merge.diff import Diff, State, find_diff
from omnigraph.merge.feed import (
    BEGINNING,
    ChangePage,
    Cursor,
    Feed,
    SchemaAt,
    baseline_record,
)
from omnigraph.write.conform import find_type
from omnigraph.write.export import Export

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph


@dataclass(frozen=True, slots=True)
class Baseline:
    """A state of a branch, and the cursor from which its feed goes on."""

    snapshot: GraphSnapshot
    cursor: str
    schema: Mapping[str, Any]
    """Its types and properties with their stable ids, as the events of the feed name them."""
    records: int = 0
    """How many nodes and edges were written out."""


class GraphChanges:
    """``graph.changes``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @public
    def diff(
        self,
        before: str | GraphSnapshot,
        after: str | GraphSnapshot = "main",
        *,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
        summary: bool = False,
    ) -> Diff:
        """What differs between two states: branches, tags, commits or snapshots.

        The net effect: what became of types and properties, then every row as it was and as it
        is; rows only in numbers with ``summary``. ``kinds`` (node, edge), ``types`` and ``ops``
        (insert, update, delete, schema) leave others out.
        """
        contract = self._graph._checked()
        store = self._graph._store
        one, other = (
            State(found, identified_at(store, contract, found))
            for found in (self._state(before), self._state(after))
        )
        wanted = ChangeFilter.of(kinds, types, ops)
        with detect_removal(store, one.snapshot), detect_removal(store, other.snapshot):
            return find_diff(store, one, other, wanted, summary=summary)

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

        Those of the schema are events that come before the rows of their commit, and count too.
        Without a ``cursor`` it begins at ``start``: ``beginning``, ``now`` or
        ``after:<commit>``. The page says where to go on, and whether there was nothing more.
        """
        feed = self._feed(branch, ChangeFilter.of(kinds, types, ops))
        place = feed.start(start) if cursor is None else Cursor.parse(cursor)
        return feed.page(place, limit)

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
        """The changes of one commit against its first parent, at most ``limit`` of them.

        The page has caught up when these are the last; if not, its cursor leads to the next.
        """
        found = History(self._graph._store).commit(commit)
        feed = self._feed(found.branch, ChangeFilter.of(kinds, types, ops))
        start = Cursor(normal_branch(found.branch), found.parent)
        place = start if cursor is None else Cursor.parse(cursor)
        if (place.branch, place.commit) != (start.branch, start.commit):
            raise InputError("the cursor is one of another commit", hint="start without one")
        return feed.page(place, limit, found.commit_id)

    @public
    def baseline(self, branch: str = "main", dest: str | PathLike[str] | None = None) -> Baseline:
        """The newest state of a branch, and the cursor for what comes after it.

        With ``dest`` it is written out as ``export`` does, with the cursor in a last line: a file
        without that line is not whole.
        """
        contract, store = self._graph._checked(), self._graph._store
        found = store.manifest(normal_branch(branch)).current()
        schema = identified_at(store, contract, found)
        commit = None if found.head is None else found.head.commit_id
        cursor = Cursor(normal_branch(branch), commit).text()
        records = 0
        if dest is not None:
            last = json.dumps(baseline_record(commit, cursor, schema))
            records = Export(store, schema.catalog, found).write_lines(Path(fspath(dest)), last)
        return Baseline(
            GraphSnapshot(store, schema.catalog, found), cursor, schema.to_json(), records
        )

    @public
    def blame(self, type_name: str, entity_id: str, branch: str = "main") -> Blame:
        """Which commit, and so which actor, changed a node or an edge last."""
        kind = find_type(self._catalog(), type_name)
        chain = self._feed(branch, ChangeFilter()).chain()
        return find_blame(self._graph._store, self._schema(), kind, entity_id, chain)

    # -- parts ---------------------------------------------------------------------------

    def _catalog(self) -> Catalog:
        return self._graph._accepted().catalog

    def _feed(self, branch: str, wanted: ChangeFilter) -> Feed:
        return Feed(self._graph._store, self._schema(), normal_branch(branch), wanted)

    def _schema(self) -> SchemaAt:
        store, contract = self._graph._store, self._graph._checked()
        return lambda state: identified_at(store, contract, state)

    def _state(self, ref: str | GraphSnapshot) -> Snapshot:
        """A state by what it is called: a branch, a tag or a commit, looked for in this order."""
        store = self._graph._store
        if isinstance(ref, GraphSnapshot):
            return self._graph._own(ref)
        if ref in Branches(store).list():
            return store.manifest(normal_branch(ref)).current()
        try:
            return History(store).snapshot_of(Tags(store).get(ref).commit_id)
        except NotFound:
            pass
        try:
            return History(store).snapshot_of(ref)
        except CommitNotFound:
            raise NotFound(
                f"there is no branch, tag or commit '{ref}'", details={"ref": ref}
            ) from None
