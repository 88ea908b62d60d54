"""``AsyncRemoteSnapshot``: a graph behind a server at one commit, for async code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import omnigraph
from omnigraph.api.arguments import Natural, Params, QuerySource, public
from omnigraph.commit.commits import Commit
from omnigraph.errors import EntityNotFound, OmniGraphError
from omnigraph.remote import documents, history_documents, history_requests, requests, unserved
from omnigraph.remote.async_namespaces import AsyncRemoteCalls
from omnigraph.remote.blobs import (
    BlobState,
    RemoteCell,
    cut,
    refused_bytes,
    refused_state,
    state_of,
)
from omnigraph.remote.documents import BranchTables
from omnigraph.remote.unserved import not_served


class AsyncRemoteSnapshot:
    """The graph at one commit, from ``AsyncRemoteGraph.snapshot``. It never changes."""

    def __init__(
        self,
        calls: AsyncRemoteCalls,
        state: BranchTables | Commit,
        commit_id: str,
        name: str | None = None,
    ) -> None:
        self._calls = calls
        self._state = state
        self._name = name
        self.commit_id = commit_id
        self.branch = state.branch
        self.version = state.version

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The path, version, owning branch and row count of each table.

        Raises:
            NotServed: the snapshot is not of the head of a branch.
        """
        if isinstance(self._state, Commit):
            raise not_served("snapshot.tables", "the tables of an earlier commit")
        return {key: dict(table) for key, table in self._state.tables.items()}

    @public
    async def query(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        *,
        timeout: float | None = None,
        max_rows: int | None = None,
    ) -> omnigraph.Result:
        """Run a query that reads, and fetch all of its rows.

        Raises:
            QueryError: the query is invalid, or changes the graph.
        """
        request = requests.read_query(
            requests.query_source(source),
            name,
            params,
            None,
            self.commit_id,
            accept=requests.ARROW_STREAM,
            timeout=timeout,
        )
        target = None if self._name is None else {"snapshot": self._name}
        if not isinstance(self._state, Commit):
            target = {"branch": self.branch}
        return await self._calls.read(request, max_rows, target)

    @public
    async def explain(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        *,
        profile: bool = False,
        timeout: float | None = None,
    ) -> omnigraph.Explanation:
        """The plan of a query or a mutation, which is not run.

        Raises:
            QueryError: the query is invalid.
        """
        request = history_requests.explain(
            requests.query_source(source), name, params, self.commit_id, profile, timeout
        )
        return await self._calls.send(request, history_documents.explanation)

    @public
    async def diff(
        self,
        other: AsyncRemoteSnapshot,
        *,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
        summary: bool = False,
    ) -> omnigraph.Diff:
        """The net changes from this snapshot to another one of the same graph.

        Raises:
            InputError: the filter names an unknown type.
            HistoryGone: cleanup has removed one of the states.
        """
        wanted = {"kinds": kinds, "types": types, "ops": ops}
        request = history_requests.diff(self.commit_id, other.commit_id, wanted, summary)
        difference = await self._calls.send(request, history_documents.diff)
        return replace(
            difference, from_version=self.version, to_version=other.version, branch=other.branch
        )

    @public
    async def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge with all its columns; ``None`` if it does not exist. Blobs are null.

        Raises:
            InputError: the type does not exist.
        """
        request = history_requests.entity(type_name, entity_id, self.commit_id)
        try:
            return await self._calls.send(request, history_documents.entity)
        except EntityNotFound:
            return None

    @public
    async def neighbours(
        self,
        type_name: str,
        entity_id: str,
        *,
        edge: str | None = None,
        direction: Literal["out", "in", "both"] = "both",
        limit: Natural = 100,
    ) -> list[omnigraph.Neighbour]:
        """The edges of a node and the nodes at their other ends, at most ``limit``.

        Raises:
            NotFound: the node does not exist.
        """
        request = history_requests.neighbours(
            type_name, entity_id, edge, direction, limit, self.commit_id
        )
        return await self._calls.send(request, history_documents.neighbours)

    @public
    async def export(self, *, types: Sequence[str] | None = None) -> AsyncIterator[str]:
        """All rows as lines of JSON, without line ends.

        Raises:
            InputError: a type does not exist.
        """
        keys = [name for name in types or () if ":" in name]
        names = [name for name in types or () if ":" not in name]
        return self._calls.lines(requests.export(None, self.commit_id, names, keys))

    @public
    async def read_blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        offset: Natural = 0,
        length: Natural | None = None,
    ) -> bytes | None:
        """The bytes of a Blob from an offset on; at most 4 MiB if no length is given.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob.
        """
        cell = RemoteCell(type_name, entity_id, property_name, self.commit_id)
        request = cell.read(offset, length)
        connection = self._calls.connection
        self._calls.check_open()
        try:
            async with connection.open(request) as answer:
                content = await connection.read(answer, request)
                return cut(content, answer.status_code, offset, length)
        except OmniGraphError as error:
            return refused_bytes(error)

    @public
    async def blob_info(
        self, type_name: str, entity_id: str, property_name: str
    ) -> omnigraph.BlobInfo | None:
        """The size and the address of a Blob; ``None`` if it is null.

        Raises:
            NotFound: the node or edge does not exist.
        """
        state = await self._blob_state(type_name, entity_id, property_name)
        return None if state is None else state.info

    @public
    async def blob_digest(self, type_name: str, entity_id: str, property_name: str) -> str | None:
        """A digest of the bytes of a Blob, which changes only if they do; ``None`` if it is null.

        Raises:
            NotFound: the node or edge does not exist.
        """
        state = await self._blob_state(type_name, entity_id, property_name)
        return None if state is None else state.digest

    async def _blob_state(self, *cell: str) -> BlobState | None:
        type_name, entity_id, property_name = cell
        request = RemoteCell(type_name, entity_id, property_name, self.commit_id).stat()
        self._calls.check_open()
        try:
            async with self._calls.connection.open(request) as answer:
                with documents.decoding(self._calls.connection.base):
                    return state_of(answer.headers)
        except OmniGraphError as error:
            return refused_state(error)

    def __repr__(self) -> str:
        return f"<AsyncRemoteSnapshot {self.branch}:{self.commit_id}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in unserved.SNAPSHOT:
                raise not_served(f"snapshot.{name}", unserved.SNAPSHOT[name])
            raise AttributeError(f"'AsyncRemoteSnapshot' object has no attribute {name!r}")
