"""The queries of ``RemoteGraph``: all rows as a result, in pages, or one by one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

import omnigraph
from omnigraph.api.arguments import Params, QuerySource, public
from omnigraph.api.engines import Engine, SparkLike
from omnigraph.client.server import ServerRequest
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Source
from omnigraph.remote import requests
from omnigraph.remote.calls import RemoteCalls
from omnigraph.remote.states import StateRef
from omnigraph.remote.unserved import refuse_engine


class RemoteReads:
    """The methods of a remote graph that run queries that read."""

    calls: RemoteCalls

    @public
    def query(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        snapshot: omnigraph.RemoteSnapshot | None = None,
        *,
        at: datetime | str | None = None,
        engine: Engine = "auto",
        spark: SparkLike = None,
        timeout: float | None = None,
        max_rows: int | None = None,
        cancel: omnigraph.Cancel | None = None,
    ) -> omnigraph.Result:
        """Run a query that reads, on one snapshot; see ``Graph.query``.

        ``timeout`` (seconds) limits the time of the whole response. The limits of the server apply
        as well.

        Raises:
            QueryError: the query is invalid, or changes the graph.
            ParameterError: a parameter is missing or does not fit.
            LimitExceeded: a limit was reached, here or in the server.
            NotFound: the query, branch or commit does not exist.
            PolicyDenied: the token does not allow it.
        """
        refuse_engine("query", engine, spark)
        if snapshot is not None:
            if at is not None or branch != "main":
                raise InputError("pass only one of branch, snapshot and at")
            return snapshot.query(
                source, name, params, timeout=timeout, max_rows=max_rows, cancel=cancel
            )
        from omnigraph.remote.snapshot import run_read

        commit = self.calls.find_commit(StateRef.of(branch, None, None, None, at))
        request = requests.read_query(
            requests.query_source(source),
            name,
            params,
            branch if commit is None else None,
            commit,
            accept=requests.ARROW_STREAM,
            timeout=timeout,
        )
        return run_read(self.calls, request, timeout, max_rows, cancel)

    @public
    def pages(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        snapshot: omnigraph.RemoteSnapshot | None = None,
        *,
        page_size: int = 1_000,
        cursor: str | None = None,
        at: datetime | str | None = None,
        timeout: float | None = None,
        cancel: omnigraph.Cancel | None = None,
    ) -> Iterator[omnigraph.ResultPage]:
        """Run a query that reads, and return its rows in pages; see ``Graph.pages``.

        The server signs the cursors: they are of use only for this actor, query and parameters.

        Raises:
            InvalidCursor: the cursor is too old, or belongs to another query or other parameters.
            ForeignCursor: the cursor was issued to another actor.
            ViewChanged: the policy has changed since the first page was read.
            HistoryGone: the state of the cursor was removed by cleanup.
        """
        text, commit, target = self._read_arguments(source, branch, snapshot, at)

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

        from omnigraph.read.limits import Limits
        from omnigraph.remote.streams import read_pages

        limits = partial(Limits, timeout, None, None, cancel)
        return read_pages(self.calls, request, cursor, limits, target)

    @public
    def stream(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        snapshot: omnigraph.RemoteSnapshot | None = None,
        *,
        at: datetime | str | None = None,
        timeout: float | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Run a query that reads, and return its rows one by one, as JSON values.

        The rows are read from the server as they are asked for, and nothing is kept. If it fails in
        the middle, its error is raised there.

        Raises:
            QueryError: the query is invalid, or changes the graph.
            LimitExceeded: a limit of the server was reached.
        """
        from omnigraph.remote.streams import stream_rows

        text, commit, _ = self._read_arguments(source, branch, snapshot, at)
        request = requests.read_query(
            text,
            name,
            params,
            branch if commit is None else None,
            commit,
            accept=requests.NDJSON,
            timeout=timeout,
        )
        return stream_rows(self.calls, request)

    def _read_arguments(
        self,
        source: QuerySource,
        branch: str,
        snapshot: omnigraph.RemoteSnapshot | None,
        at: datetime | str | None,
    ) -> tuple[Source, str | None, dict[str, str] | None]:
        """The text of a query, the commit to read if one is named, and what a result calls it."""
        text = requests.query_source(source)
        if snapshot is None:
            return text, self.calls.find_commit(StateRef.of(branch, None, None, None, at)), None
        if at is not None or branch != "main":
            raise InputError("pass only one of branch, snapshot and at")
        return text, snapshot.commit_id, snapshot._target
