"""The namespaces of a remote graph for its history: the change feed and the tags."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from os import fspath
from pathlib import Path
from typing import Any

import omnigraph
from omnigraph.api.arguments import Actor, Label, Location, public
from omnigraph.client.http import NoResponse
from omnigraph.client.server import no_response
from omnigraph.commit.commits import Tag
from omnigraph.merge.feed import BEGINNING, NOW
from omnigraph.remote import documents, requests
from omnigraph.remote import history_documents as history
from omnigraph.remote import history_requests as asking
from omnigraph.remote.calls import RemoteCalls
from omnigraph.remote.documents import decoding
from omnigraph.remote.events import FeedEvents
from omnigraph.remote.snapshot import RemoteSnapshot, export_lines, write_lines
from omnigraph.remote.unserved import refuse_arguments


class RemoteChanges:
    """The changes of a remote graph, as ``graph.changes``."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

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
    ) -> omnigraph.ChangePage:
        """The next changes of a branch in the order of its commits; see ``GraphChanges.poll``.

        Raises:
            NotFound: the branch does not exist.
            InputError: the cursor is invalid, or belongs to another filter.
            HistoryGone: cleanup has removed the changes at the cursor.
            ViewChanged: the actor saw other rows when the cursor was made.
        """
        wanted = {"kinds": kinds, "types": types, "ops": ops}
        deadline = time.monotonic() + wait
        while True:
            left = min(max(deadline - time.monotonic(), 0.0), asking.LONGEST_WAIT)
            request = asking.changes(branch, cursor, start, limit, left, wanted)
            page = self._calls.send(request, history.change_page)
            if page.blocks or (page.caught_up and time.monotonic() >= deadline):
                return page
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
    ) -> Iterator[omnigraph.ChangeBlock]:
        """The changes of a branch as they come, by a stream of events.

        If the server ends the stream, another one continues it. A broken connection is an error:
        continue with the cursor of the last block.

        Raises:
            NotFound: the branch does not exist.
            HistoryGone: cleanup has removed the changes at the cursor.
            ServerUnavailable: the connection broke.
        """
        wanted = {"kinds": kinds, "types": types, "ops": ops}
        # What is wrong is said by the call, and it begins where the branch is now.
        first = self._calls.send(
            asking.changes(branch, cursor, start, 1, 0.0, wanted), history.change_page
        )
        if cursor is None and start == NOW:
            cursor = first.cursor
        return self._blocks(branch, FeedEvents(cursor), start, wanted)

    def _blocks(
        self, branch: str, feed: FeedEvents, start: str, wanted: dict[str, Any]
    ) -> Iterator[omnigraph.ChangeBlock]:
        connection = self._calls.connection
        while True:
            self._calls.check_open()
            request = asking.events(branch, feed.cursor, start, wanted)
            feed.restart()
            with connection.open(request) as answer:
                try:
                    for piece in answer:
                        with decoding(connection.base):
                            blocks = list(feed.blocks(piece))
                        yield from blocks
                except NoResponse as error:
                    raise no_response(connection.base, error.failure, request) from None

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
    ) -> omnigraph.ChangePage:
        """The changes of one commit since its first parent, at most ``limit`` of them.

        Raises:
            NotFound: the commit does not exist.
            InputError: the cursor belongs to another commit.
            HistoryGone: cleanup has removed the state before the commit.
        """
        wanted = {"kinds": kinds, "types": types, "ops": ops}
        request = asking.commit_changes(commit, cursor, limit, wanted)
        return self._calls.send(request, lambda page: history.commit_page(page, cursor))

    @public
    def baseline(self, branch: str = "main", dest: Location | None = None) -> omnigraph.Baseline:
        """The newest state of a branch, and the cursor of the changes after it.

        With ``dest`` it is also written to a file here, with the cursor in the last line.

        Raises:
            NotFound: the branch does not exist.
            PolicyDenied: the token does not allow to export the branch.
        """
        from omnigraph.api.changes import Baseline

        calls = self._calls
        request = asking.baseline(branch, rows=dest is not None)
        lines = BaselineLines(export_lines(calls, request), calls.connection.base)
        # The last line is none of the records.
        path = None if dest is None else Path(fspath(dest))
        records = sum(1 for _ in lines) if path is None else write_lines(iter(lines), path)
        record = lines.record()
        commit = calls.send(requests.commit(record.commit_id), documents.commit)
        state: Any = RemoteSnapshot(calls, commit, record.commit_id)
        return Baseline(state, record.cursor, record.schema, records - 1)

    @public
    def blame(self, type_name: str, entity_id: str, branch: str = "main") -> omnigraph.Blame:
        """The commit, and so the actor, that last changed a node or an edge.

        Raises:
            InputError: the type does not exist.
            NotFound: the node or edge does not exist.
            PolicyDenied: the token does not allow to read the history.
        """
        return self._calls.send(asking.blame(type_name, entity_id, branch), history.blame)


class BaselineLines:
    """The lines of a baseline; one without the last line is refused."""

    def __init__(self, lines: Iterator[str], base: str) -> None:
        self._lines = lines
        self._base = base
        self._last = ""

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._last = line
            yield line
        self.record()

    def record(self) -> history.BaselineRecord:
        """What the last line says."""
        with decoding(self._base):
            return history.baseline_record(json.loads(self._last))


class RemoteTags:
    """The tags of a remote graph, as ``graph.tags``."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def list(self) -> list[Tag]:
        """All tags in alphabetical order."""
        return self._calls.send(asking.list_tags(), history.tags)

    @public
    def create(
        self,
        name: str,
        commit: str | None = None,
        *,
        branch: str = "main",
        move: bool = False,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> Tag:
        """Tag a commit, by default the newest of a branch. Cleanup keeps tagged states.

        Raises:
            AlreadyExists: the tag exists and ``move`` is not set.
            NotFound: the commit or branch does not exist.
            InputError: the name is invalid.
        """
        refuse_arguments("tags.create", actor=actor)
        request = asking.create_tag(
            name, commit, branch, move=move, idempotency_key=idempotency_key
        )
        return self._calls.send(request, history.tag)

    @public
    def delete(self, name: str, *, actor: Actor | None = None) -> None:
        """Delete a tag; its commit is kept.

        Raises:
            NotFound: the tag does not exist.
        """
        refuse_arguments("tags.delete", actor=actor)
        self._calls.send(asking.delete_tag(name), lambda _: None)
