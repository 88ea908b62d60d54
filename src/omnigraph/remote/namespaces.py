"""The namespaces of a remote graph: its branches, its schema and the stored queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import omnigraph
from omnigraph.api.arguments import Actor, Label, Params, SchemaSource, public
from omnigraph.client.server import ServerRequest
from omnigraph.remote import documents, requests
from omnigraph.remote.calls import RemoteCalls
from omnigraph.remote.unserved import refuse_arguments


class RemoteBranches:
    """The branches of a remote graph, as ``graph.branches``."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def list(self) -> list[str]:
        """``main`` first, then the others in alphabetical order."""
        return self._calls.send(requests.list_branches(), documents.branches)

    @public
    def create(self, name: str, from_branch: str = "main", *, actor: Actor | None = None) -> None:
        """Create a branch from the newest state of another; nothing is copied.

        Raises:
            AlreadyExists: the branch exists.
            NotFound: there is no branch ``from_branch``.
            InputError: the name is invalid.
        """
        refuse_arguments("branches.create", actor=actor)
        self._calls.send(requests.create_branch(name, from_branch), lambda _: None)

    @public
    def delete(self, name: str, *, actor: Actor | None = None) -> None:
        """Delete a branch that no other branch depends on.

        Raises:
            NotFound: the branch does not exist.
            InputError: the branch is ``main``.
            Conflict: another branch depends on it.
        """
        refuse_arguments("branches.delete", actor=actor)
        self._calls.send(requests.delete_branch(name), lambda _: None)


class RemoteSchema:
    """The schema of a remote graph, as ``graph.schema``."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def text(self) -> str:
        """The text of the newest schema."""
        return self._calls.send(requests.schema_text(), documents.schema_source)

    @public
    def plan(
        self,
        schema: SchemaSource,
        *,
        allow_data_loss: bool = False,
        values: Mapping[str, Any] | None = None,
    ) -> omnigraph.MigrationPlan:
        """The steps to another schema; the data is not examined. See ``GraphSchema.plan``.

        Raises:
            SchemaError: the schema is invalid.
        """
        source = requests.schema_source(schema)
        request = requests.plan_schema(source, allow_data_loss, values)
        return self._calls.send(request, documents.migration_plan)

    @public
    def apply(
        self,
        schema: SchemaSource,
        *,
        allow_data_loss: bool = False,
        values: Mapping[str, Any] | None = None,
        allow_broken_queries: bool = False,
        dry_run: bool = False,
        actor: Actor | None = None,
    ) -> omnigraph.SchemaApplied:
        """Change the schema in one commit; see ``graph.schema.apply``.

        The schema of a graph of a cluster is changed with ``omnigraph cluster apply`` instead.

        Raises:
            SchemaError: the schema is invalid.
            SchemaChangeRefused: the data, stored queries or other branches do not allow it.
            Conflict: the graph belongs to a cluster.
        """
        refuse_arguments("schema.apply", actor=actor)
        source = requests.schema_source(schema)
        flags = allow_data_loss, allow_broken_queries
        request = requests.apply_schema(source, *flags, values, dry_run=dry_run)
        return self._calls.send(request, documents.schema_applied)


class RemoteQueries:
    """The stored queries of a server, as ``graph.queries``."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

    def __iter__(self) -> Iterator[omnigraph.StoredQuery]:
        return iter(self.list())

    def list(self) -> list[omnigraph.StoredQuery]:
        """The stored queries that the token allows to invoke, by name."""
        return self._calls.send(requests.list_queries(), documents.stored_queries)

    @public
    def get(self, name: str) -> omnigraph.StoredQuery:
        """One stored query.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
        """
        return self._calls.send(requests.get_query(name), documents.stored_query)

    def check(self) -> Mapping[str, str]:
        """Why stored queries do not fit the newest schema, by their names; empty if all do."""
        return {query.name: query.broken for query in self.list() if query.broken is not None}

    @public
    def invoke(
        self,
        name: str,
        params: Params | None = None,
        branch: str | None = None,
        *,
        at: str | None = None,
        timeout: float | None = None,
        max_rows: int | None = None,
        cancel: omnigraph.Cancel | None = None,
    ) -> omnigraph.Result:
        """Run a stored query that reads, on the head of a branch or ``at`` a commit.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
            InputError: the query is a mutation.
            QueryBroken: the query does not fit the schema.
            ParameterError: a parameter is missing or does not fit.
        """
        from omnigraph.remote.snapshot import run_read

        request = requests.stored_query(
            name,
            params,
            branch,
            at,
            mutates=False,
            accept=requests.ARROW_STREAM,
            timeout=timeout,
        )
        return run_read(self._calls, request, timeout, max_rows, cancel)

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
        cancel: omnigraph.Cancel | None = None,
    ) -> Iterator[omnigraph.ResultPage]:
        """Run a stored query that reads, and return its rows in pages; see ``RemoteGraph.pages``.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
            InvalidCursor: the cursor is too old, or belongs to another query or other parameters.
        """
        from omnigraph.read.limits import Limits
        from omnigraph.remote.streams import read_pages

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

        limits = partial(Limits, timeout, None, None, cancel)
        return read_pages(self._calls, request, cursor, limits)

    @public
    def stream(
        self,
        name: str,
        params: Params | None = None,
        branch: str | None = None,
        *,
        at: str | None = None,
        timeout: float | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Run a stored query that reads, and return its rows one by one, as JSON values.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
        """
        from omnigraph.remote.streams import stream_rows

        request = requests.stored_query(
            name, params, branch, at, mutates=False, accept=requests.NDJSON, timeout=timeout
        )
        return stream_rows(self._calls, request)

    @public
    def invoke_mutation(
        self,
        name: str,
        params: Params | None = None,
        branch: str = "main",
        *,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.Receipt:
        """Run a stored mutation.

        Raises:
            NotFound: there is no such query, or the token does not allow to invoke it.
            InputError: the query only reads.
            QueryBroken: the query does not fit the schema.
            ParameterError: a parameter is missing or does not fit.
        """
        refuse_arguments("queries.invoke_mutation", actor=actor)
        headers = requests.conditions(if_commit, idempotency_key)
        request = requests.stored_query(name, params, branch, mutates=True, headers=headers)
        return self._calls.send(request, documents.receipt)
