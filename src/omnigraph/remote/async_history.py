"""The namespaces of the async client for the history of a graph: the change feed and the tags."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection
from typing import Any

import omnigraph
from omnigraph.api.arguments import Label, public
from omnigraph.commit.commits import Tag
from omnigraph.merge.feed import BEGINNING, NOW
from omnigraph.remote import history_documents as history
from omnigraph.remote import history_requests as asking
from omnigraph.remote.async_namespaces import AsyncRemoteCalls
from omnigraph.remote.documents import decoding
from omnigraph.remote.events import FeedEvents


class AsyncRemoteChanges:
    """The changes of a remote graph, as ``graph.changes``."""

    def __init__(self, calls: AsyncRemoteCalls) -> None:
        self._calls = calls

    @public
    async def poll(
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
            page = await self._calls.send(request, history.change_page)
            if page.blocks or (page.caught_up and time.monotonic() >= deadline):
                return page
            cursor = page.cursor

    @public
    async def follow(
        self,
        branch: str = "main",
        cursor: str | None = None,
        *,
        start: str = BEGINNING,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> AsyncIterator[omnigraph.ChangeBlock]:
        """The changes of a branch as they come, by a stream of events; see ``RemoteChanges``.

        Raises:
            NotFound: the branch does not exist.
            HistoryGone: cleanup has removed the changes at the cursor.
            ServerUnavailable: the connection broke.
        """
        wanted = {"kinds": kinds, "types": types, "ops": ops}
        request = asking.changes(branch, cursor, start, 1, 0.0, wanted)
        first = await self._calls.send(request, history.change_page)
        if cursor is None and start == NOW:
            cursor = first.cursor
        return self._blocks(branch, FeedEvents(cursor), start, wanted)

    async def _blocks(
        self, branch: str, feed: FeedEvents, start: str, wanted: dict[str, Any]
    ) -> AsyncIterator[omnigraph.ChangeBlock]:
        connection = self._calls.connection
        while True:
            self._calls.check_open()
            request = asking.events(branch, feed.cursor, start, wanted)
            feed.restart()
            async with connection.open(request) as answer:
                async for piece in connection.pieces(answer, request):
                    with decoding(connection.base):
                        blocks = list(feed.blocks(piece))
                    for block in blocks:
                        yield block

    @public
    async def of_commit(
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
            HistoryGone: cleanup has removed the state before the commit.
        """
        wanted = {"kinds": kinds, "types": types, "ops": ops}
        request = asking.commit_changes(commit, cursor, limit, wanted)
        return await self._calls.send(request, lambda page: history.commit_page(page, cursor))

    @public
    async def baseline(self, branch: str = "main") -> AsyncIterator[str]:
        """The lines of a baseline: all rows, and in the last line the cursor of later changes.

        Raises:
            NotFound: the branch does not exist.
            PolicyDenied: the token does not allow to export the branch.
        """
        return self._calls.lines(asking.baseline(branch, rows=True))

    @public
    async def blame(self, type_name: str, entity_id: str, branch: str = "main") -> omnigraph.Blame:
        """The commit, and so the actor, that last changed a node or an edge.

        Raises:
            InputError: the type does not exist.
            NotFound: the node or edge does not exist.
        """
        return await self._calls.send(asking.blame(type_name, entity_id, branch), history.blame)


class AsyncRemoteTags:
    """The tags of a remote graph, as ``graph.tags``."""

    def __init__(self, calls: AsyncRemoteCalls) -> None:
        self._calls = calls

    async def list(self) -> list[Tag]:
        """All tags in alphabetical order."""
        return await self._calls.send(asking.list_tags(), history.tags)

    @public
    async def create(
        self,
        name: str,
        commit: str | None = None,
        *,
        branch: str = "main",
        move: bool = False,
        idempotency_key: Label | None = None,
    ) -> Tag:
        """Tag a commit, by default the newest of a branch.

        Raises:
            AlreadyExists: the tag exists and ``move`` is not set.
            NotFound: the commit or branch does not exist.
        """
        request = asking.create_tag(
            name, commit, branch, move=move, idempotency_key=idempotency_key
        )
        return await self._calls.send(request, history.tag)

    @public
    async def delete(self, name: str) -> None:
        """Delete a tag; its commit is kept.

        Raises:
            NotFound: the tag does not exist.
        """
        await self._calls.send(asking.delete_tag(name), lambda _: None)
