"""``graph.queries``: the stored queries of a graph, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import omnigraph
from omnigraph.api.arguments import Actor, Label, Params, public
from omnigraph.api.handle import Namespace
from omnigraph.api.queries import resolver, run_mutation
from omnigraph.api.query import run_prepared
from omnigraph.api.stored_queries import StoredQuery
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.nodes import MutationPlan
from omnigraph.plan.prepared import PreparedQuery
from omnigraph.plan.view import View
from omnigraph.read.limits import MEMORY, Cancel, Limits
from omnigraph.result.result import Result


class GraphStoredQueries(Namespace):
    """The stored queries of a graph, as ``graph.queries``; ``Graph.open`` takes their directory."""

    def __iter__(self) -> Iterator[StoredQuery]:
        return iter(self.list())

    def list(self) -> list[StoredQuery]:
        """The stored queries by name, as they are under the newest schema.

        >>> [query.name for query in graph.queries.list()]
        ['older']
        """
        checked = self._handle.queries.checked(self._handle.accepted().catalog)
        return [query.describe() for query in checked.values()]

    @public
    def get(self, name: str) -> StoredQuery:
        """One stored query.

        Raises:
            NotFound: there is no such query.

        >>> graph.queries.get("older").params
        {'age': 'I32'}
        """
        self._handle.queries.named(name)
        return self._handle.queries.checked(self._handle.accepted().catalog)[name].describe()

    def check(self) -> Mapping[str, str]:
        """Why stored queries do not fit the newest schema, by their names; empty if all do.

        >>> graph.queries.check()
        {}
        """
        return self._handle.queries.breakages(self._handle.accepted().catalog)

    @public
    def invoke(
        self,
        name: str,
        params: Params | None = None,
        branch: str | None = None,
        *,
        at: datetime | str | None = None,
        timeout: float | None = None,
        max_rows: int | None = None,
        max_memory: int | None = MEMORY,
        cancel: Cancel | None = None,
    ) -> Result:
        """Run a stored query that reads, on the head of a branch or ``at`` a time, tag or commit.

        Raises:
            NotFound: there is no such query, branch, tag or commit.
            InputError: the query is a mutation.
            QueryBroken: the query does not fit the schema.
            ParameterError: a parameter is missing or does not fit.
            LimitExceeded: a limit was reached.
            Cancelled: ``cancel`` was set.

        >>> graph.queries.invoke("older", {"age": 37}).rows()
        [{'p.name': 'Grace'}]
        """
        handle = self._handle
        stored = handle.queries.named(name)
        stored.require("read")

        def compiled(catalog: Catalog, view: View) -> PreparedQuery:
            with stored.refused_if_broken():
                return handle.plans.read(catalog, stored.source, name, view)

        limits = Limits(timeout, max_rows, max_memory, cancel)
        resolve = resolver(handle, branch or "main", None, at)
        return run_prepared(handle, resolve, compiled, params, limits)

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
        """Run a stored mutation; a policy may allow it where it allows no other change.

        Raises:
            NotFound: there is no such query, or no such branch.
            InputError: the query only reads.
            QueryBroken: the query does not fit the schema.
            ParameterError: a parameter is missing or does not fit.
            IntegrityError: the changed rows would violate the schema.
            PreconditionFailed: the branch is not at ``if_commit``.
            Conflict: other writers kept changing the same rows.
            PolicyDenied: the policy does not allow it.
            ReadOnly: the graph is open for reading.

        >>> graph.queries.invoke_mutation("older")
        Traceback (most recent call last):
        ...
        omnigraph.errors.InputError: stored query 'older' is a read
        """
        handle = self._handle
        stored = handle.queries.named(name)
        stored.require("mutation")

        def compiled(catalog: Catalog) -> MutationPlan:
            with stored.refused_if_broken():
                return handle.plans.mutation(catalog, stored.source, name)

        return run_mutation(
            handle, compiled, params, branch, actor, if_commit, idempotency_key, stored=name
        )
