"""The namespaces of the async client, and the requests of one graph."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from pyarrow import ArrowException

import omnigraph
from omnigraph.api.arguments import Label, Params, SchemaSource, public
from omnigraph.client.server import ServerRequest
from omnigraph.errors import Closed, OmniGraphError, ServerError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.remote import documents, requests
from omnigraph.remote.async_connection import AsyncConnection
from omnigraph.remote.documents import decoding
from omnigraph.remote.states import StateRef
from omnigraph.remote.streams import CURSOR, SNAPSHOT, RowLines, check_lines

T = TypeVar("T")


class AsyncRemoteCalls:
    """Sends the requests of one graph, and reads the responses."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.is_closed = False

    async def send(self, request: ServerRequest, read: Callable[[Any], T]) -> T:
        """The response of a request in its type."""
        self.check_open()
        document = await self.connection.send(request)
        with decoding(self.connection.base):
            return read(document)

    async def read(
        self, request: ServerRequest, max_rows: int | None, target: Mapping[str, str] | None = None
    ) -> omnigraph.Result:
        """All rows of a query."""
        return (await self._page(request, max_rows, target)).result

    async def _page(
        self, request: ServerRequest, max_rows: int | None, target: Mapping[str, str] | None
    ) -> omnigraph.ResultPage:
        from omnigraph.read.limits import Limits
        from omnigraph.remote.results import check_arrow, within
        from omnigraph.result.page import ResultPage
        from omnigraph.result.wire import result_from

        self.check_open()
        limits = Limits(request.timeout, max_rows, None)
        connection, broken = self.connection, None
        content: list[bytes] = []
        async with connection.open(request) as answer:
            check_arrow(answer.headers.get("Content-Type"), connection.base)
            try:
                async for piece in connection.pieces(answer, request):
                    content.append(piece)
            except OmniGraphError as error:
                # The end of what has arrived may say why.
                broken = error
        try:
            with decoding(connection.base):
                result = result_from(
                    io.BytesIO(b"".join(content)),
                    close=lambda: None,
                    limit=lambda batches: within(batches, limits),
                    failed=lambda error: connection.late_refusal(error, request),
                    target=target,
                )
            # A limit is reported by the call, not by the first use of the rows.
            _ = result.row_count
        except (ArrowException, ServerError) as error:
            raise broken or error from None
        if broken is not None:
            raise broken
        headers = answer.headers
        return ResultPage(result, headers.get(CURSOR), headers.get(SNAPSHOT))

    async def pages(
        self,
        request: Callable[[str | None], ServerRequest],
        cursor: str | None,
        target: Mapping[str, str] | None = None,
    ) -> AsyncIterator[omnigraph.ResultPage]:
        """All pages from a cursor on, or from the beginning."""
        while True:
            page = await self._page(request(cursor), None, target)
            yield page
            cursor = page.cursor
            if cursor is None:
                return

    async def stream(self, request: ServerRequest) -> AsyncIterator[dict[str, Any]]:
        """The rows of a query one by one."""
        self.check_open()
        connection = self.connection
        lines = RowLines(connection.base, lambda error: connection.late_refusal(error, request))
        async with connection.open(request) as answer:
            check_lines(answer.headers.get("Content-Type"), connection.base)
            async for piece in connection.pieces(answer, request):
                for row in lines.rows(piece):
                    yield row
        for row in lines.end():
            yield row

    async def lines(self, request: ServerRequest) -> AsyncIterator[str]:
        """The lines of a response, without line ends."""
        from omnigraph.remote.snapshot import check_state

        rest = b""
        async with self.connection.open(request) as answer:
            check_state(answer.headers.get(requests.STATE), request)
            async for piece in self.connection.pieces(answer, request):
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield line.decode("utf-8")
        if rest:
            yield rest.decode("utf-8")

    async def find_commit(self, ref: StateRef) -> str | None:
        """The commit of a state; ``None`` for the newest state of a branch."""
        if ref.needs_tags:
            from omnigraph.remote import history_documents, history_requests

            tags = await self.send(history_requests.list_tags(), history_documents.tags)
            return ref.by_tags(tags)
        if ref.moment is not None:
            return ref.by_time(await self.send(requests.commits(ref.branch), documents.commits))
        return ref.commit

    async def catalog(self) -> Catalog:
        """The types of the newest schema."""
        from omnigraph.lang.diagnostics import Source
        from omnigraph.lang.schema.compile import compile_schema

        text = await self.send(requests.schema_text(), documents.schema_source)
        return compile_schema(Source("<schema>", text))

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("this graph is closed", hint="connect again with omnigraph.connect_async")


class AsyncRemoteBranches:
    """The branches of a remote graph, as ``graph.branches``."""

    def __init__(self, calls: AsyncRemoteCalls) -> None:
        self._calls = calls

    async def list(self) -> list[str]:
        """``main`` first, then the others in alphabetical order."""
        return await self._calls.send(requests.list_branches(), documents.branches)

    @public
    async def create(self, name: str, from_branch: str = "main") -> None:
        """Create a branch from the newest state of another; nothing is copied.

        Raises:
            AlreadyExists: the branch exists.
        """
        await self._calls.send(requests.create_branch(name, from_branch), lambda _: None)

    @public
    async def delete(self, name: str) -> None:
        """Delete a branch that no other branch depends on.

        Raises:
            NotFound: the branch does not exist.
        """
        await self._calls.send(requests.delete_branch(name), lambda _: None)


class AsyncRemoteSchema:
    """The schema of a remote graph, as ``graph.schema``."""

    def __init__(self, calls: AsyncRemoteCalls) -> None:
        self._calls = calls

    async def text(self) -> str:
        """The text of the newest schema."""
        return await self._calls.send(requests.schema_text(), documents.schema_source)

    @public
    async def apply(
        self,
        schema: SchemaSource,
        *,
        allow_data_loss: bool = False,
        allow_broken_queries: bool = False,
        values: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> omnigraph.SchemaApplied:
        """Change the schema in one commit; see ``GraphSchema.apply``.

        Raises:
            SchemaError: the schema is invalid.
            SchemaChangeRefused: the data or stored queries do not allow the change.
        """
        source = requests.schema_source(schema)
        flags = allow_data_loss, allow_broken_queries
        request = requests.apply_schema(source, *flags, values, dry_run=dry_run)
        return await self._calls.send(request, documents.schema_applied)

    @public
    async def plan(
        self,
        schema: SchemaSource,
        *,
        allow_data_loss: bool = False,
        values: Mapping[str, Any] | None = None,
    ) -> omnigraph.MigrationPlan:
        """The steps to another schema; the data is not examined.

        Raises:
            SchemaError: the schema is invalid.
        """
        source = requests.schema_source(schema)
        request = requests.plan_schema(source, allow_data_loss, values)
        return await self._calls.send(request, documents.migration_plan)


class AsyncRemoteQueries:
    """The stored queries of a server, as ``graph.queries``."""

    def __init__(self, calls: AsyncRemoteCalls) -> None:
        self._calls = calls

    async def list(self) -> list[omnigraph.StoredQuery]:
        """The stored queries that the token allows to invoke, by name."""
        return await self._calls.send(requests.list_queries(), documents.stored_queries)

    @public
    async def get(self, name: str) -> omnigraph.StoredQuery:
        """One stored query.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
        """
        return await self._calls.send(requests.get_query(name), documents.stored_query)

    async def check(self) -> dict[str, str]:
        """Why stored queries do not fit the newest schema, by their names; empty if all do."""
        listed = await self.list()
        return {query.name: query.broken for query in listed if query.broken is not None}

    @public
    async def invoke(
        self,
        name: str,
        params: Params | None = None,
        branch: str | None = None,
        *,
        at: str | None = None,
        timeout: float | None = None,
        max_rows: int | None = None,
    ) -> omnigraph.Result:
        """Run a stored query that reads, and fetch all of its rows.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
        """
        request = requests.stored_query(
            name,
            params,
            branch,
            at,
            mutates=False,
            accept=requests.ARROW_STREAM,
            timeout=timeout,
        )
        return await self._calls.read(request, max_rows)

    @public
    def pages(
        self,
        name: str,
        params: Params | None = None,
        branch: str | None = None,
        *,
        page_size: int = 1_000,
        cursor: str | None = None,
        at: str | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[omnigraph.ResultPage]:
        """Run a stored query that reads, and return its rows in pages.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
        """

        def request(position: str | None) -> ServerRequest:
            return requests.stored_query(
                name,
                params,
                branch,
                at,
                mutates=False,
                accept=requests.ARROW_STREAM,
                timeout=timeout,
                page_size=page_size,
                cursor=position,
            )

        return self._calls.pages(request, cursor)

    @public
    def stream(
        self,
        name: str,
        params: Params | None = None,
        branch: str | None = None,
        *,
        at: str | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Run a stored query that reads, and return its rows one by one, as JSON values.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
        """
        request = requests.stored_query(
            name, params, branch, at, mutates=False, accept=requests.NDJSON, timeout=timeout
        )
        return self._calls.stream(request)

    @public
    async def invoke_mutation(
        self,
        name: str,
        params: Params | None = None,
        branch: str = "main",
        *,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
    ) -> omnigraph.Receipt:
        """Run a stored mutation.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
        """
        headers = requests.conditions(if_commit, idempotency_key)
        request = requests.stored_query(name, params, branch, mutates=True, headers=headers)
        return await self._calls.send(request, documents.receipt)
