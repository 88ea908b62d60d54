"""``AsyncRemoteGraph``: the async client of a graph behind a server.

The methods, arguments, types and errors are those of ``RemoteGraph``. What is a property there and
needs a request is a method here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import omnigraph
from omnigraph.api.arguments import (
    Label,
    Natural,
    Params,
    QuerySource,
    TypesByFile,
    public,
)
from omnigraph.client.server import ServerRequest
from omnigraph.commit.commits import Commit
from omnigraph.errors import NotFound
from omnigraph.escaping import escape
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.progress import OnProgress
from omnigraph.remote import documents, requests, unserved
from omnigraph.remote.async_blobs import AsyncRemoteBlobs
from omnigraph.remote.async_connection import AsyncConnection
from omnigraph.remote.async_namespaces import (
    AsyncRemoteBranches,
    AsyncRemoteCalls,
    AsyncRemoteQueries,
    AsyncRemoteSchema,
)
from omnigraph.remote.async_snapshot import AsyncRemoteSnapshot
from omnigraph.remote.documents import BranchTables
from omnigraph.remote.load_bodies import LoadBody, counted, started
from omnigraph.remote.opening import graph_connection
from omnigraph.remote.states import StateRef
from omnigraph.remote.unserved import not_served


@public
async def connect_async(
    url: str, *, graph: str | None = None, token: str | None = None
) -> AsyncRemoteGraph:
    """Connect to a graph of a server from async code; see ``connect``.

    Raises:
        InputError: the address or the id is invalid.
        PackageMissing: httpx is not installed (``omnigraph[async]``).

    >>> import asyncio
    >>> asyncio.run(connect_async("https://graphs.example.org", graph="kb", token="secret"))
    <AsyncRemoteGraph https://graphs.example.org/graphs/kb>
    """
    return AsyncRemoteGraph(AsyncConnection(graph_connection(url, graph, token)))


class AsyncRemoteGraph:
    """A graph behind a server, from ``omnigraph.connect_async``."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._calls = AsyncRemoteCalls(connection)

    async def close(self) -> None:
        """Close the connections to the server; every further call raises ``Closed``."""
        self._calls.is_closed = True
        await self._calls.connection.close()

    async def __aenter__(self) -> AsyncRemoteGraph:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = " (closed)" if self._calls.is_closed else ""
        return f"<AsyncRemoteGraph {escape(self.uri)}{state}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in unserved.GRAPH:
                raise not_served(f"graph.{name}", unserved.GRAPH[name])
            raise AttributeError(f"'AsyncRemoteGraph' object has no attribute {name!r}")

    @property
    def uri(self) -> str:
        """The address of the graph on its server."""
        return self._calls.connection.base

    async def catalog(self) -> Catalog:
        """The types of the newest schema."""
        return await self._calls.catalog()

    @property
    def branches(self) -> AsyncRemoteBranches:
        """Create, list and delete branches."""
        return AsyncRemoteBranches(self._calls)

    @property
    def blobs(self) -> AsyncRemoteBlobs:
        """Set single Blobs."""
        return AsyncRemoteBlobs(self._calls)

    @property
    def schema(self) -> AsyncRemoteSchema:
        """The text of the schema; apply schema changes."""
        return AsyncRemoteSchema(self._calls)

    @property
    def tags(self) -> omnigraph.AsyncRemoteTags:
        """Create, list and delete tags: names for commits."""
        return omnigraph.AsyncRemoteTags(self._calls)

    @property
    def changes(self) -> omnigraph.AsyncRemoteChanges:
        """The change feed of a branch, and the last change of a row."""
        return omnigraph.AsyncRemoteChanges(self._calls)

    @property
    def queries(self) -> AsyncRemoteQueries:
        """The stored queries of the server."""
        return AsyncRemoteQueries(self._calls)

    @property
    def indexes(self) -> omnigraph.AsyncRemoteIndexes:
        """Build indexes and show their state."""
        return omnigraph.AsyncRemoteIndexes(self._calls)

    @property
    def embeddings(self) -> omnigraph.AsyncRemoteEmbeddings:
        """The vectors of ``@embed`` properties."""
        return omnigraph.AsyncRemoteEmbeddings(self._calls)

    @property
    def maintenance(self) -> omnigraph.AsyncRemoteMaintenance:
        """Optimize, cleanup, verify, repair and doctor."""
        return omnigraph.AsyncRemoteMaintenance(self._calls)

    @property
    def jobs(self) -> omnigraph.AsyncRemoteJobs:
        """The long work of the server: list, wait for and cancel it."""
        return omnigraph.AsyncRemoteJobs(self._calls)

    @property
    def deployments(self) -> omnigraph.AsyncRemoteDeployments:
        """The applies of configurations by the server; apply one."""
        return omnigraph.AsyncRemoteDeployments(self._calls)

    # -- history -------------------------------------------------------------------------

    @public
    async def commits(self, branch: str = "main") -> list[Commit]:
        """The commits of a branch, including inherited ones, newest first.

        Raises:
            NotFound: the branch does not exist.
        """
        return await self._calls.send(requests.commits(branch), documents.commits)

    @public
    async def commit(self, commit_id: str) -> Commit:
        """One commit of any branch.

        Raises:
            NotFound: the commit does not exist.
        """
        return await self._calls.send(requests.commit(commit_id), documents.commit)

    @public
    async def snapshot(
        self,
        branch: str = "main",
        *,
        commit: str | None = None,
        tag: str | None = None,
        at: datetime | str | None = None,
    ) -> AsyncRemoteSnapshot:
        """The newest state of a branch, or an earlier one; it is pinned to a commit.

        Raises:
            NotFound: the branch, tag or commit does not exist.
        """
        ref = StateRef.of(branch, commit, tag, None, at)
        commit_id = await self._calls.find_commit(ref)
        if commit_id is not None:
            try:
                made = await self.commit(commit_id)
                return AsyncRemoteSnapshot(self._calls, made, commit_id, tag or ref.name)
            except NotFound:
                if ref.name is None:
                    raise
                raise ref.missing() from None
        tables = await self._calls.send(requests.snapshot(branch), documents.branch_tables)
        return AsyncRemoteSnapshot(self._calls, tables, await self._head(tables))

    async def _head(self, tables: BranchTables) -> str:
        if tables.commit_id is not None:
            return tables.commit_id
        request = requests.commits(tables.branch, limit="1")
        return documents.head_of(tables, await self._calls.send(request, documents.commits))

    # -- queries -------------------------------------------------------------------------

    @public
    async def query(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        *,
        at: datetime | str | None = None,
        timeout: float | None = None,
        max_rows: int | None = None,
    ) -> omnigraph.Result:
        """Run a query that reads, and fetch all of its rows; cancel the task to end it.

        Raises:
            QueryError: the query is invalid, or changes the graph.
            ParameterError: a parameter is missing or does not fit.
            LimitExceeded: a limit was reached, here or in the server.
            NotFound: the query, branch or commit does not exist.
            PolicyDenied: the token does not allow it.
        """
        commit = await self._calls.find_commit(StateRef.of(branch, None, None, None, at))
        request = requests.read_query(
            requests.query_source(source),
            name,
            params,
            branch if commit is None else None,
            commit,
            accept=requests.ARROW_STREAM,
            timeout=timeout,
        )
        return await self._calls.read(request, max_rows)

    @public
    def pages(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        *,
        page_size: int = 1_000,
        cursor: str | None = None,
        at: datetime | str | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[omnigraph.ResultPage]:
        """Run a query that reads, and return its rows in pages; see ``RemoteGraph.pages``.

        Raises:
            InvalidCursor: the cursor is too old, or belongs to another query or other parameters.
            ForeignCursor: the cursor was issued to another actor.
            ViewChanged: the policy has changed since the first page was read.
            HistoryGone: the state of the cursor was removed by cleanup.
        """
        text = requests.query_source(source)
        ref = StateRef.of(branch, None, None, None, at)

        async def pages() -> AsyncIterator[omnigraph.ResultPage]:
            commit = await self._calls.find_commit(ref)

            def request(position: str | None) -> ServerRequest:
                return requests.read_query(
                    text,
                    name,
                    params,
                    branch if commit is None else None,
                    commit,
                    accept=requests.ARROW_STREAM,
                    timeout=timeout,
                    page_size=page_size,
                    cursor=position,
                )

            async for page in self._calls.pages(request, cursor):
                yield page

        return pages()

    @public
    def stream(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        *,
        at: datetime | str | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Run a query that reads, and return its rows one by one, as JSON values.

        Raises:
            QueryError: the query is invalid, or changes the graph.
            LimitExceeded: a limit of the server was reached.
        """
        text = requests.query_source(source)
        ref = StateRef.of(branch, None, None, None, at)

        async def rows() -> AsyncIterator[dict[str, Any]]:
            commit = await self._calls.find_commit(ref)
            request = requests.read_query(
                text,
                name,
                params,
                branch if commit is None else None,
                commit,
                accept=requests.NDJSON,
                timeout=timeout,
            )
            async for row in self._calls.stream(request):
                yield row

        return rows()

    @public
    async def mutate(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        *,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
    ) -> omnigraph.Receipt:
        """Run a mutation: all of its statements in one commit, or none.

        Raises:
            QueryError: the mutation is invalid.
            IntegrityError: the changed rows would violate the schema.
            PreconditionFailed: the branch is not at ``if_commit``.
            Conflict: other writers kept changing the same rows.
            OutcomePending: there was no answer, so the outcome is not known.
        """
        text = requests.query_source(source)
        request = requests.mutate(text, name, params, branch, if_commit, idempotency_key)
        return await self._calls.send(request, documents.receipt)

    # -- rows ----------------------------------------------------------------------------

    @public
    async def load(
        self,
        data: omnigraph.LoadData,
        mode: omnigraph.LoadMode | Literal["merge", "append", "overwrite"] = "merge",
        branch: str = "main",
        from_branch: str | None = None,
        *,
        format: str | None = None,
        types: TypesByFile | None = None,
        max_rejects: Natural | None = None,
        strict_properties: bool = False,
        dry_run: bool = False,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
        on_progress: OnProgress | None = None,
    ) -> omnigraph.LoadReceipt:
        """Load files, streams, tables or records in one commit; see ``RemoteGraph.load``.

        Raises:
            InputError: the data cannot be read, or a record is invalid.
            IntegrityError: the rows would violate the schema.
            LimitExceeded: the data is larger than the server accepts.
        """
        from omnigraph.write.load.job import LoadMode

        catalog = await self._calls.catalog()
        body = LoadBody(lambda: catalog, format, types)
        request = requests.load(
            counted(started(body.pieces(data)), body.total(data), on_progress),
            LoadMode(mode).value,
            branch,
            from_branch,
            requests.load_options(dry_run, strict_properties, max_rejects),
            if_commit,
            idempotency_key,
        )
        with body.naming(data):
            return await self._calls.send(request, documents.load_receipt)

    @public
    async def append(
        self, rows: Mapping[str, omnigraph.Rows], branch: str = "main"
    ) -> omnigraph.Receipt:
        """Add typed Arrow rows, by type name, in one commit.

        Raises:
            AlreadyExists: an id exists already.
            IntegrityError: the rows would violate the schema.
        """
        catalog = await self._calls.catalog()
        pieces = started(LoadBody(lambda: catalog).pieces(rows))
        request = requests.load(pieces, "append", branch, None, {}, None, None)
        return (await self._calls.send(request, documents.load_receipt)).plain()

    # -- merging -------------------------------------------------------------------------

    @public
    async def merge(
        self,
        source: str,
        into: str = "main",
        *,
        resolve: omnigraph.Resolve = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        idempotency_key: Label | None = None,
    ) -> omnigraph.MergeReport:
        """Merge the changes of a branch into another, in one commit; a conflict refuses all of it.

        Raises:
            MergeConflicts: both branches changed the same values.
            NotFound: the branch does not exist.
        """
        from omnigraph.remote import history_documents, history_requests

        request = history_requests.merge(
            source,
            into,
            resolve,
            dry_run=dry_run,
            delete_branch=delete_branch,
            idempotency_key=idempotency_key,
        )
        return await self._calls.send(request, history_documents.merge_report)

    @public
    async def revert(
        self,
        commit: str,
        branch: str = "main",
        *,
        resolve: omnigraph.Resolve = None,
        dry_run: bool = False,
        idempotency_key: Label | None = None,
    ) -> omnigraph.MergeReport:
        """Undo the changes of a commit by a new commit; later changes are kept.

        Raises:
            MergeConflicts: a row was changed again since.
            NotFound: the commit or branch does not exist.
        """
        return await self._replay("revert", commit, branch, resolve, dry_run, idempotency_key)

    @public
    async def cherry_pick(
        self,
        commit: str,
        branch: str = "main",
        *,
        resolve: omnigraph.Resolve = None,
        dry_run: bool = False,
        idempotency_key: Label | None = None,
    ) -> omnigraph.MergeReport:
        """Apply the changes of a commit of any branch to a branch, by a new commit.

        Raises:
            MergeConflicts: the branch changed the same values.
            NotFound: the commit or branch does not exist.
        """
        return await self._replay("cherry-pick", commit, branch, resolve, dry_run, idempotency_key)

    async def _replay(
        self,
        operation: str,
        commit: str,
        branch: str,
        resolve: omnigraph.Resolve,
        dry_run: bool,
        key: str | None,
    ) -> omnigraph.MergeReport:
        from omnigraph.remote import history_documents, history_requests

        request = history_requests.replay(
            operation, commit, branch, resolve, dry_run=dry_run, idempotency_key=key
        )
        return await self._calls.send(request, history_documents.merge_report)
