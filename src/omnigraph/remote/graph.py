"""``RemoteGraph``: a graph behind a server, with the interface of ``Graph``.

Every call is one request; the arguments are checked here as those of ``Graph`` are, and the types
that are returned are the same. What a server does not offer is listed in ``remote.unserved``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import omnigraph
from omnigraph.api.arguments import (
    Actor,
    Label,
    Location,
    Natural,
    Params,
    QuerySource,
    TypesByFile,
    public,
)
from omnigraph.api.engines import Engine, SparkLike
from omnigraph.client.server import Connection
from omnigraph.commit.commits import Commit
from omnigraph.errors import NotFound
from omnigraph.escaping import escape
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.progress import OnProgress
from omnigraph.remote import documents, loads, requests, unserved
from omnigraph.remote.blobs import RemoteBlobs
from omnigraph.remote.calls import RemoteCalls
from omnigraph.remote.documents import BranchTables
from omnigraph.remote.load_bodies import LoadBody, started
from omnigraph.remote.namespaces import RemoteBranches, RemoteQueries, RemoteSchema
from omnigraph.remote.reads import RemoteReads
from omnigraph.remote.states import StateRef
from omnigraph.remote.unserved import not_served, refuse_arguments


class RemoteGraph(RemoteReads):
    """A graph behind a server, from ``omnigraph.connect``. Safe to share between threads."""

    def __init__(self, connection: Connection, *, owns_connection: bool = True) -> None:
        self.calls = RemoteCalls(connection)
        """The requests of this graph, for those who need the documents of the server."""
        self._owns_connection = owns_connection

    # -- opening and closing -------------------------------------------------------------

    def close(self) -> None:
        """Close the connections to the server; every further call raises ``Closed``."""
        self.calls.is_closed = True
        if self._owns_connection:
            self.calls.connection.close()

    def __enter__(self) -> RemoteGraph:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " (closed)" if self.calls.is_closed else ""
        return f"<RemoteGraph {escape(self.uri)}{state}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in unserved.GRAPH:
                raise not_served(f"graph.{name}", unserved.GRAPH[name])
            raise AttributeError(f"'RemoteGraph' object has no attribute {name!r}")

    # -- properties and namespaces -------------------------------------------------------

    @property
    def uri(self) -> str:
        """The address of the graph on its server."""
        return self.calls.connection.base

    @property
    def actor(self) -> str | None:
        """The actor of the last write, as the server knows it from the token."""
        return self.calls.actor

    @property
    def catalog(self) -> Catalog:
        """The types of the newest schema; each access is a request."""
        return self.calls.catalog()

    @property
    def branches(self) -> RemoteBranches:
        """Create, list and delete branches."""
        return RemoteBranches(self.calls)

    @property
    def blobs(self) -> RemoteBlobs:
        """Set single Blobs."""
        return RemoteBlobs(self.calls)

    @property
    def schema(self) -> RemoteSchema:
        """The text of the schema; apply schema changes."""
        return RemoteSchema(self.calls)

    @property
    def tags(self) -> omnigraph.RemoteTags:
        """Create, list and delete tags: names for commits."""
        return omnigraph.RemoteTags(self.calls)

    @property
    def changes(self) -> omnigraph.RemoteChanges:
        """The change feed of a branch, and the last change of a row."""
        return omnigraph.RemoteChanges(self.calls)

    @property
    def queries(self) -> RemoteQueries:
        """The stored queries of the server."""
        return RemoteQueries(self.calls)

    @property
    def indexes(self) -> omnigraph.RemoteIndexes:
        """Build indexes and show their state."""
        return omnigraph.RemoteIndexes(self.calls)

    @property
    def embeddings(self) -> omnigraph.RemoteEmbeddings:
        """The vectors of ``@embed`` properties."""
        return omnigraph.RemoteEmbeddings(self.calls)

    @property
    def maintenance(self) -> omnigraph.RemoteMaintenance:
        """Optimize, cleanup, verify, repair and doctor."""
        return omnigraph.RemoteMaintenance(self.calls)

    @property
    def jobs(self) -> omnigraph.RemoteJobs:
        """The long work of the server: list, wait for and cancel it."""
        return omnigraph.RemoteJobs(self.calls)

    @property
    def deployments(self) -> omnigraph.RemoteDeployments:
        """The applies of configurations by the server; apply one."""
        return omnigraph.RemoteDeployments(self.calls)

    # -- history -------------------------------------------------------------------------

    @public
    def commits(self, branch: str = "main") -> list[Commit]:
        """The commits of a branch, including inherited ones, newest first.

        Raises:
            NotFound: the branch does not exist.
        """
        return self.calls.send(requests.commits(branch), documents.commits)

    @public
    def commit(self, commit_id: str) -> Commit:
        """One commit of any branch; for an interrupted commit, the recovery that completed it.

        Raises:
            NotFound: the commit does not exist.
        """
        return self.calls.send(requests.commit(commit_id), documents.commit)

    @public
    def snapshot(
        self,
        branch: str = "main",
        *,
        commit: str | None = None,
        tag: str | None = None,
        version: int | None = None,
        at: datetime | str | None = None,
    ) -> omnigraph.RemoteSnapshot:
        """The graph at one point in time: the newest state of a branch, or an earlier one.

        ``at`` is a ``datetime``, a tag or a commit id. The snapshot is pinned to a commit, and does
        not change while the branch moves on.

        Raises:
            NotFound: the branch, tag or commit does not exist.
            HistoryGone: the branch has no commit from that time.
            NotServed: a version was given.
        """
        from omnigraph.remote.snapshot import RemoteSnapshot

        ref = StateRef.of(branch, commit, tag, version, at)
        commit_id = self.calls.find_commit(ref)
        if commit_id is not None:
            try:
                made = self.commit(commit_id)
                return RemoteSnapshot(self.calls, made, commit_id, tag or ref.name)
            except NotFound:
                if ref.name is None:
                    raise
                raise ref.missing() from None
        tables = self.calls.send(requests.snapshot(branch), documents.branch_tables)
        return RemoteSnapshot(self.calls, tables, self._head(tables))

    def _head(self, tables: BranchTables) -> str:
        if tables.commit_id is not None:
            return tables.commit_id
        newest = self.calls.send(requests.commits(tables.branch, limit="1"), documents.commits)
        return documents.head_of(tables, newest)

    # -- queries -------------------------------------------------------------------------

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
        """Run a mutation: all of its statements in one commit, or none; see ``Graph.mutate``.

        Raises:
            QueryError: the mutation is invalid.
            IntegrityError: the changed rows would violate the schema.
            PreconditionFailed: the branch is not at ``if_commit``.
            Conflict: other writers kept changing the same rows.
            OutcomePending: there was no answer, so the outcome is not known.
            PolicyDenied: the token does not allow it.
        """
        refuse_arguments("mutate", allow_local_files=allow_local_files, actor=actor)
        text = requests.query_source(source)
        request = requests.mutate(text, name, params, branch, if_commit, idempotency_key)
        return self.calls.send(request, documents.receipt)

    # -- rows ----------------------------------------------------------------------------

    @public
    def load(
        self,
        data: omnigraph.LoadData,
        mode: omnigraph.LoadMode | Literal["merge", "append", "overwrite"] = "merge",
        branch: str = "main",
        from_branch: str | None = None,
        *,
        format: str | None = None,
        types: TypesByFile | None = None,
        rejects: Location | None = None,
        max_rejects: Natural | None = None,
        strict_properties: bool = False,
        allow_local_files: bool = False,
        dry_run: bool = False,
        engine: Engine = "auto",
        spark: SparkLike = None,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
        on_progress: OnProgress | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.LoadReceipt:
        """Load files, streams, tables or records in one commit; see ``Graph.load``.

        Files are read here and sent as lines of JSON, piece by piece.

        Raises:
            InputError: the data cannot be read, or a record is invalid.
            IntegrityError: the rows would violate the schema.
            LimitExceeded: the data is larger than the server accepts.
            PreconditionFailed: the branch is not at ``if_commit``.
            OutcomePending: there was no answer, so the outcome is not known.
        """
        return loads.load(
            self.calls,
            data,
            mode,
            branch,
            from_branch,
            indexes=False,
            format=format,
            types=types,
            max_rejects=max_rejects,
            strict_properties=strict_properties,
            dry_run=dry_run,
            engine=engine,
            spark=spark,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
            on_progress=on_progress,
            rejects=rejects,
            allow_local_files=allow_local_files,
            actor=actor,
        ).receipt

    @public
    def append(
        self,
        rows: Mapping[str, omnigraph.Rows],
        branch: str = "main",
        *,
        actor: Actor | None = None,
    ) -> omnigraph.Receipt:
        """Add typed Arrow rows, by type name, in one commit.

        Strict: an existing id, or an edge to a missing node, refuses all rows.

        Raises:
            AlreadyExists: an id exists already.
            IntegrityError: the rows would violate the schema.
        """
        refuse_arguments("append", actor=actor)
        body = LoadBody(self.calls.catalog)
        request = requests.load(started(body.pieces(rows)), "append", branch, None, {}, None, None)
        return self.calls.send(request, documents.load_receipt).plain()

    # -- merging -------------------------------------------------------------------------

    @public
    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        resolve: omnigraph.Resolve = None,
        dry_run: bool = False,
        delete_branch: bool = False,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.MergeReport:
        """Merge the changes of a branch into another, in one commit; a conflict refuses all of it.

        See ``Graph.merge``. A file of choices is read here.

        Raises:
            MergeConflicts: both branches changed the same values.
            NotFound: the branch does not exist.
        """
        from omnigraph.remote import history_documents, history_requests

        refuse_arguments("merge", actor=actor)
        request = history_requests.merge(
            source,
            into,
            resolve,
            dry_run=dry_run,
            delete_branch=delete_branch,
            idempotency_key=idempotency_key,
        )
        return self.calls.send(request, history_documents.merge_report)

    @public
    def revert(
        self,
        commit: str,
        branch: str = "main",
        *,
        resolve: omnigraph.Resolve = None,
        dry_run: bool = False,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.MergeReport:
        """Undo the changes of a commit by a new commit; later changes are kept.

        Raises:
            MergeConflicts: a row was changed again since.
            NotFound: the commit or branch does not exist.
        """
        refuse_arguments("revert", actor=actor)
        return self._replay("revert", commit, branch, resolve, dry_run, idempotency_key)

    @public
    def cherry_pick(
        self,
        commit: str,
        branch: str = "main",
        *,
        resolve: omnigraph.Resolve = None,
        dry_run: bool = False,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.MergeReport:
        """Apply the changes of a commit of any branch to a branch, by a new commit.

        Raises:
            MergeConflicts: the branch changed the same values.
            NotFound: the commit or branch does not exist.
        """
        refuse_arguments("cherry_pick", actor=actor)
        return self._replay("cherry-pick", commit, branch, resolve, dry_run, idempotency_key)

    def _replay(
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
        return self.calls.send(request, history_documents.merge_report)
