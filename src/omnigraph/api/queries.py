"""The queries of ``Graph``: ``query``, ``mutate``, and both prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import omnigraph
from omnigraph.api.arguments import Actor, Label, Params, QuerySource, public
from omnigraph.api.engines import Engine, SparkLike
from omnigraph.api.handle import Handle, SnapshotContext
from omnigraph.api.query import run_query
from omnigraph.api.row_access import row_security
from omnigraph.api.snapshot import GraphSnapshot, context_of
from omnigraph.commit.history import SnapshotRef
from omnigraph.commit.names import normal_branch
from omnigraph.errors import InputError
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.nodes import MutationPlan
from omnigraph.read.limits import MEMORY, Cancel, Limits
from omnigraph.result.result import Result

if TYPE_CHECKING:
    from omnigraph.api.paging import PageRead


class GraphQueries:
    """The methods of a graph that run queries."""

    _handle: Handle

    @public
    def query(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        snapshot: GraphSnapshot | None = None,
        *,
        at: datetime | str | None = None,
        engine: Engine = "auto",
        spark: SparkLike = None,
        timeout: float | None = None,
        max_rows: int | None = None,
        max_memory: int | None = MEMORY,
        cancel: Cancel | None = None,
    ) -> Result:
        """Run a query that reads, on one snapshot.

        ``source`` is ``.gq`` text or a path. It reads the newest state of a branch, a ``snapshot``,
        or the state ``at`` a time, a tag or a commit. ``timeout`` (seconds), ``max_rows``,
        ``max_memory`` (bytes of intermediate rows) and ``cancel`` limit it; ``None`` means no
        limit.

        ``engine`` is ``local`` (this process), ``spark``, or ``auto``: Spark if ``spark``, a
        session or a configuration to start one, is passed. Both return the same rows.

        Raises:
            QueryError: the query is invalid, or changes the graph.
            ParameterError: a parameter is missing or does not fit.
            LimitExceeded: a limit was reached.
            Cancelled: ``cancel`` was set.
            NotFound: the query, branch, tag or commit does not exist.

        >>> text = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
        >>> graph.query(text, params={"n": "Ada"}).rows()
        [{'p.age': 36}]
        """
        limits = Limits(timeout, max_rows, max_memory, cancel)
        resolve = resolver(self._handle, branch, snapshot, at)
        return run_query(self._handle, resolve, source, name, params, limits, engine, spark)

    @public
    def pages(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        snapshot: GraphSnapshot | None = None,
        *,
        page_size: int = 1_000,
        cursor: str | None = None,
        at: datetime | str | None = None,
        timeout: float | None = None,
        max_memory: int | None = MEMORY,
        cancel: Cancel | None = None,
    ) -> Iterator[omnigraph.ResultPage]:
        """Run a query that reads, and return its rows in pages; all pages show one state.

        ``page_size`` is at most 10,000. With the ``cursor`` of a page, and otherwise the same
        arguments, the pages after it are returned, in any process. Rows without an ``order`` are in
        that of the ids of their nodes and edges. The limits are those of each page.

        Raises:
            InvalidCursor: the cursor belongs to another query or other parameters.
            HistoryGone: the state of the cursor was removed by cleanup.
            QueryError: the query is invalid, or changes the graph.
            ParameterError: a parameter is missing or does not fit.
            LimitExceeded: a limit was reached.

        >>> text = "query q() { match { $p: Person } return { $p.name } }"
        >>> [page.result.rows() for page in graph.pages(text, page_size=1)]
        [[{'p.name': 'Ada'}], [{'p.name': 'Grace'}]]
        """
        from omnigraph.api.cursors import UNSIGNED
        from omnigraph.api.paging import PagedRead, iterate_pages, read_page, state_of

        handle = self._handle
        resolve, state = state_of(handle, branch, snapshot, at)
        read = PagedRead(handle.source(source, "<query>"), name, params, resolve, state)

        def page(position: str | None) -> PageRead:
            limits = Limits(timeout, None, max_memory, cancel)
            return read_page(handle, read, page_size, position, UNSIGNED, limits)

        return iterate_pages(page, cursor)

    @public
    def prepare(self, source: QuerySource, name: str | None = None) -> omnigraph.PreparedRead:
        """Compile a query that reads, to run it many times with other parameters.

        Raises:
            QueryError: the query is invalid, or changes the graph.
            NotFound: the query does not exist.

        >>> text = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
        >>> age = graph.prepare(text)
        >>> age.params, [age({"n": name}).rows() for name in ("Ada", "Grace")]
        ({'n': 'String'}, [[{'p.age': 36}], [{'p.age': 37}]])
        """
        from omnigraph.api.statements import PreparedRead

        return PreparedRead(self._handle, self._handle.source(source, "<query>"), name)

    @public
    def prepare_mutation(
        self, source: QuerySource, name: str | None = None
    ) -> omnigraph.PreparedMutation:
        """Compile a query that writes, to run it many times with other parameters.

        Raises:
            QueryError: the query is invalid, or only reads.
            NotFound: the query does not exist.

        >>> add = graph.prepare_mutation("query add($n: String) { insert Person { name: $n } }")
        >>> [add({"n": name}).affected_nodes for name in ("Alan", "Edsger")]
        [1, 1]
        """
        from omnigraph.api.statements import PreparedMutation

        return PreparedMutation(self._handle, self._handle.source(source, "<query>"), name)

    @public
    def mutate(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        branch: str = "main",
        *,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
        allow_local_files: bool = False,
        actor: Actor | None = None,
    ) -> omnigraph.Receipt:
        """Run a mutation: all of its statements in one commit, or none.

        ``source`` is ``.gq`` text or a path. With ``if_commit`` it only runs on top of that commit;
        with an ``idempotency_key`` it runs once, and a repeated call returns the first receipt. A
        Blob that refers to a local file is refused unless ``allow_local_files`` is set.

        Raises:
            QueryError: the mutation is invalid.
            IntegrityError: the changed rows would violate the schema.
            PreconditionFailed: the branch is not at ``if_commit``.
            Conflict: other writers kept changing the same rows.
            OutcomePending: the outcome is not known yet.
            ReadOnly: the graph is open for reading.

        >>> receipt = graph.mutate('query add() { insert Person { name: "Alan" } }')
        >>> receipt.affected_nodes, graph.snapshot().count("Person")
        (1, 3)
        """

        def compiled(catalog: Catalog) -> MutationPlan:
            return self._handle.plans.mutation(
                catalog, self._handle.source(source, "<query>"), name
            )

        rules = if_commit, idempotency_key, allow_local_files
        return run_mutation(self._handle, compiled, params, branch, actor, *rules)


def run_mutation(
    handle: Handle,
    compiled: Callable[[Catalog], MutationPlan],
    params: Params | None,
    branch: str,
    actor: str | None,
    if_commit: str | None,
    idempotency_key: str | None,
    allow_local_files: bool = False,
    stored: str | None = None,
) -> omnigraph.Receipt:
    """Commit a mutation; ``compiled`` is it under a schema, ``stored`` its name if it is stored."""
    from omnigraph.write.mutation import mutate

    author = handle.authorize(actor, "change", branch, query=stored)
    handle.check_local_file("allow_local_files", allow_local_files or None)
    target = normal_branch(branch)
    contract = handle.write(target)
    plan = compiled(contract.catalog)
    security = row_security(handle, author, "change", branch, contract.catalog)
    return mutate(
        handle.store,
        contract,
        plan,
        convert_params(plan.params, params),
        target,
        author,
        if_commit=if_commit,
        idempotency_key=idempotency_key,
        allow_local_files=allow_local_files,
        security=security,
    )


def resolver(
    handle: Handle, branch: str, snapshot: GraphSnapshot | None, at: datetime | str | None
) -> Callable[[], SnapshotContext]:
    """Finds the state to read: of a branch, of a snapshot, or at a moment."""
    if snapshot is None:
        return lambda: handle.read(SnapshotRef(branch, at=at))
    if at is not None or branch != "main":
        raise InputError("pass only one of branch, snapshot and at")
    given = snapshot

    def resolve() -> SnapshotContext:
        handle.check()
        return context_of(given, handle)

    return resolve
