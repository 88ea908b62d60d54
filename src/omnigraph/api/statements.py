"""Prepared statements: a query that is compiled once and run with many parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Generic, TypeVar

import omnigraph
from omnigraph.api.arguments import Actor, Label, Params, public
from omnigraph.api.handle import Handle
from omnigraph.api.queries import resolver, run_mutation
from omnigraph.api.query import run_prepared
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.nodes import MutationPlan
from omnigraph.plan.prepared import PreparedQuery
from omnigraph.plan.view import WHOLE, View
from omnigraph.read.limits import MEMORY, Cancel, Limits
from omnigraph.result.result import Result

_Compiled = TypeVar("_Compiled", PreparedQuery, MutationPlan)


class _Statement(ABC, Generic[_Compiled]):
    """A query of one graph. Safe to share between threads; a new schema compiles it again."""

    def __init__(self, handle: Handle, source: Source, name: str | None) -> None:
        self._handle = handle
        self._source = source
        self._query_name = name
        self._last: tuple[str, frozenset[str], _Compiled] | None = None
        self._compiled(handle.check().catalog)

    @abstractmethod
    def _compile(self, catalog: Catalog, view: View) -> _Compiled:
        """Compile the query under a schema and a view."""

    def _compiled(self, catalog: Catalog, view: View = WHOLE) -> _Compiled:
        """The query under a schema and a view."""
        last = self._last
        if last is None or last[0] != catalog.schema_hash or last[1] != view.restricted:
            compiled = self._compile(catalog, view)
            last = self._last = catalog.schema_hash, view.restricted, compiled
        return last[2]

    @property
    def _newest(self) -> _Compiled:
        return self._compiled(self._handle.check().catalog)


class PreparedRead(_Statement[PreparedQuery]):
    """A query that reads; made by ``Graph.prepare``."""

    def _compile(self, catalog: Catalog, view: View) -> PreparedQuery:
        return self._handle.plans.read(catalog, self._source, self._query_name, view)

    @property
    def name(self) -> str:
        """The name of the query."""
        return self._newest.plan.name

    @property
    def params(self) -> Mapping[str, str]:
        """The parameters with their types, as written in the query."""
        return {name: str(type_) for name, type_ in self._newest.plan.params.items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the returned columns."""
        return tuple(column.name for column in self._newest.plan.columns)

    def __repr__(self) -> str:
        return f"<PreparedRead {self.name}>"

    @public
    def __call__(
        self,
        params: Params | None = None,
        branch: str = "main",
        snapshot: GraphSnapshot | None = None,
        *,
        at: datetime | str | None = None,
        timeout: float | None = None,
        max_rows: int | None = None,
        max_memory: int | None = MEMORY,
        cancel: Cancel | None = None,
    ) -> Result:
        """Run the query in this process; see ``Graph.query`` for the parameters.

        Raises:
            QueryError: the query is invalid under the present schema.
            ParameterError: a parameter is missing or does not fit.
            LimitExceeded: a limit was reached.
            Cancelled: ``cancel`` was set.
            NotFound: the branch, tag or commit does not exist.

        >>> text = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
        >>> age = graph.prepare(text)
        >>> age({"n": "Ada"}).rows()
        [{'p.age': 36}]
        """
        limits = Limits(timeout, max_rows, max_memory, cancel)
        resolve = resolver(self._handle, branch, snapshot, at)
        return run_prepared(self._handle, resolve, self._compiled, params, limits)


class PreparedMutation(_Statement[MutationPlan]):
    """A query that writes; made by ``Graph.prepare_mutation``."""

    def _compile(self, catalog: Catalog, view: View) -> MutationPlan:
        return self._handle.plans.mutation(catalog, self._source, self._query_name)

    @property
    def name(self) -> str:
        """The name of the query."""
        return self._newest.name

    @property
    def params(self) -> Mapping[str, str]:
        """The parameters with their types, as written in the query."""
        return {name: str(type_) for name, type_ in self._newest.params.items()}

    def __repr__(self) -> str:
        return f"<PreparedMutation {self.name}>"

    @public
    def __call__(
        self,
        params: Params | None = None,
        branch: str = "main",
        *,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
        allow_local_files: bool = False,
        actor: Actor | None = None,
    ) -> omnigraph.Receipt:
        """Run the mutation; see ``Graph.mutate`` for the parameters.

        Raises:
            QueryError: the mutation is invalid under the present schema.
            ParameterError: a parameter is missing or does not fit.
            IntegrityError: the changed rows would violate the schema.
            PreconditionFailed: the branch is not at ``if_commit``.
            Conflict: other writers kept changing the same rows.
            ReadOnly: the graph is open for reading.

        >>> text = "query add($n: String) { insert Person { name: $n } }"
        >>> add = graph.prepare_mutation(text)
        >>> add({"n": "Alan"}).affected_nodes
        1
        """
        rules = if_commit, idempotency_key, allow_local_files
        return run_mutation(self._handle, self._compiled, params, branch, actor, *rules)
