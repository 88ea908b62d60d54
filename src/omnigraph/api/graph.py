"""``Graph``: opening a graph, queries, writes, history, and access to the namespaces.

It contains no logic: every call starts at the ``Handle`` and delegates to the package that does the
work. Namespaces such as ``graph.branches`` are imported when they are first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import omnigraph
from omnigraph.api.arguments import (
    Actor,
    Label,
    Location,
    Natural,
    SchemaSource,
    TypesByFile,
    public,
    source_of,
)
from omnigraph.api.engines import Engine, SparkLike
from omnigraph.api.gate import WriteGate
from omnigraph.api.handle import Handle, HandleOptions, Mode, parse_location
from omnigraph.api.merging import GraphMerging
from omnigraph.api.queries import GraphQueries
from omnigraph.api.row_access import refuse_wider_branch, row_security
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.commit.commits import Commit
from omnigraph.commit.history import History, SnapshotRef
from omnigraph.commit.names import normal_branch
from omnigraph.commit.opening import open_contract
from omnigraph.commit.store import GraphStore
from omnigraph.embed import EmbeddingConfig
from omnigraph.escaping import escape
from omnigraph.identity import Identity
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.progress import OnProgress
from omnigraph.representation import html_table
from omnigraph.settings import Settings
from omnigraph.storage.durable import Durability

if TYPE_CHECKING:
    from omnigraph.api.stored_queries import StoredQueries


class Graph(GraphQueries, GraphMerging):
    """An open graph. Use it as a context manager, or call ``close``.

    >>> import tempfile, pyarrow as pa
    >>> directory = tempfile.TemporaryDirectory()
    >>> graph = Graph.init(directory.name + "/g.omni", "node Person { name: String @key }")
    >>> graph.append({"Person": pa.table({"name": ["Ada", "Grace"]})}).affected_nodes
    2
    >>> graph.snapshot().count("Person")
    2
    >>> graph.close(); directory.cleanup()
    """

    def __init__(self, handle: Handle, recovered: tuple[omnigraph.Recovered, ...] = ()) -> None:
        self._handle = handle
        self.recovered = recovered
        """The interrupted writes that opening this graph completed or rolled back."""

    # -- opening and closing -------------------------------------------------------------

    @classmethod
    @public
    def init(
        cls,
        uri: Location,
        schema: SchemaSource,
        *,
        force: bool = False,
        actor: Actor | None = None,
        durability: Durability | Literal["disk", "os"] = Durability.DISK,
        storage_options: Mapping[str, str] | None = None,
        embedding: EmbeddingConfig | None = None,
        auto_compact: bool = False,
        local_files: bool = True,
        policy: WriteGate | None = None,
        queries: Location | None = None,
    ) -> Graph:
        """Create a graph from a schema: a ``.pg`` file, or its text.

        ``force`` starts over where an earlier init was interrupted; a graph with data is never
        overwritten. For ``auto_compact``, ``local_files``, ``policy`` and ``queries`` see ``open``;
        with a policy the actor must be allowed to apply a schema to ``main``.

        Raises:
            AlreadyExists: there is a graph at ``uri``.
            PolicyDenied: the policy does not allow it.
            SchemaError: the schema is invalid.

        >>> with Graph.init(folder / "new.omni", "node City { name: String @key }") as new_graph:
        ...     list(new_graph.catalog.node_types)
        ['City']
        """
        from omnigraph.commit.lifecycle import init_graph

        if policy is not None:
            policy.check(actor, "schema_apply", None, "main")
        stored = _stored_queries(queries)
        source = source_of(schema, "<schema>", local_files=local_files)
        # Before anything is created: an invalid schema leaves nothing behind.
        compile_schema(source, is_new=True)
        settings = Settings.from_environ()
        root = parse_location(uri, storage_options, settings)
        store = GraphStore(root, Durability(durability), create=True)
        contract = init_graph(store, source.text, force=force)
        options = HandleOptions(auto_compact, local_files, policy, stored)
        return cls(Handle(store, contract, settings, "rw", actor, embedding, options))

    @classmethod
    @public
    def open(
        cls,
        uri: Location,
        mode: Mode = "rw",
        *,
        actor: Actor | None = None,
        durability: Durability | Literal["disk", "os"] = Durability.DISK,
        storage_options: Mapping[str, str] | None = None,
        embedding: EmbeddingConfig | None = None,
        auto_compact: bool = False,
        local_files: bool = True,
        policy: WriteGate | None = None,
        queries: Location | None = None,
    ) -> Graph:
        """Open a graph for reading and writing, or only for reading.

        Opening for writing first completes or rolls back the writes of processes that died. Opening
        for reading changes nothing.

        ``auto_compact`` merges the small fragments that commits of this handle leave, in a thread
        beside them and without a commit, so that commits do not become slower.

        ``local_files=False`` is for arguments that come from elsewhere, for example over a network:
        a string is a text and never a path, and a call that would read or write a file that its
        arguments or the data name is refused.

        ``policy``, for example a ``Policy``, decides about each write before it begins. The actor
        is that of the call or of the handle; without one, a ``Policy`` refuses every write. A
        policy with rules for rows also decides what the actor of the handle sees; without an actor
        nothing is visible.

        ``queries`` is a directory of ``.gq`` files: the queries that they declare are the stored
        queries of this graph, ``graph.queries``.

        Raises:
            NotFound: there is no graph at ``uri``.
            StorageError: the storage does not answer, or is damaged.
            LanguageError: a text of ``queries`` is wrong.

        >>> with Graph.open(graph.uri, "r") as reader:
        ...     reader.snapshot().count("Person")
        2
        """
        stored = _stored_queries(queries)
        settings = Settings.from_environ()
        root = parse_location(uri, storage_options, settings)
        store = GraphStore(root, Durability(durability))
        contract, recovered = open_contract(store, writable=mode == "rw")
        options = HandleOptions(auto_compact, local_files, policy, stored)
        handle = Handle(store, contract, settings, mode, actor, embedding, options)
        return cls(handle, tuple(recovered))

    @public
    def for_actor(self, actor: Actor | Identity) -> Graph:
        """The same open graph for one actor: it sees and does what the policy allows to the actor.

        It shares everything with this graph, so it costs a few microseconds; a server makes one
        for each request. It cannot name another actor in a call. Closing it does not close this
        graph; closing this graph closes it too. An ``Identity`` brings groups and attributes
        along, for example from a token.

        Raises:
            InputError: this graph is already one of another actor.

        >>> graph.for_actor("ana").mutate('query q() { insert Person { name: "Alan" } }').actor
        'ana'
        """
        return Graph(self._handle.for_actor(actor))

    def refresh(self) -> tuple[omnigraph.Recovered, ...]:
        """Drop all caches, and complete or roll back the writes of processes that died.

        Reads see the commits of other processes without it. Returns the recovered writes.

        Raises:
            Closed: the graph is closed.

        >>> graph.refresh()
        ()
        """
        from omnigraph.commit.lifecycle import recover

        self._handle.check_open()
        recovered = recover(self._handle.store, full=False) if self._handle.mode == "rw" else []
        self._handle.drop_caches()
        self._handle.check()
        return tuple(recovered)

    def close(self) -> None:
        """Release the caches and the Spark session; every further call raises ``Closed``.

        >>> graph.close()
        >>> graph
        <Graph ... (closed)>
        """
        self._handle.close()

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle.is_closed else self._handle.mode
        return f"<Graph {escape(self.uri)} ({state})>"

    def _repr_html_(self) -> str:
        if self._handle.is_closed:
            return html_table(f"{self.uri} (closed)", (), ())
        rows = [(name,) for name in self.branches.list()]
        return html_table(f"{self.uri} ({self._handle.mode})", ("branch",), rows)

    # -- properties and namespaces -------------------------------------------------------

    @property
    def uri(self) -> str:
        """The directory or S3 prefix of the graph."""
        return self._handle.uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The storage options, including secrets, to open the graph in another process."""
        return dict(self._handle.store.root.options)

    @property
    def catalog(self) -> Catalog:
        """The types of the newest schema.

        >>> list(graph.catalog.edge_types)
        ['Knows']
        """
        return self._handle.accepted().catalog

    @property
    def branches(self) -> omnigraph.GraphBranches:
        """Create, list and delete branches."""
        return omnigraph.GraphBranches(self._handle)

    @property
    def tags(self) -> omnigraph.GraphTags:
        """Create, list and delete tags: names for commits."""
        return omnigraph.GraphTags(self._handle)

    @property
    def blobs(self) -> omnigraph.GraphBlobs:
        """Set single Blobs."""
        return omnigraph.GraphBlobs(self._handle)

    @property
    def indexes(self) -> omnigraph.GraphIndexes:
        """Build indexes and show their state."""
        return omnigraph.GraphIndexes(self._handle)

    @property
    def changes(self) -> omnigraph.GraphChanges:
        """The change feed of a branch, and the last change of a row."""
        return omnigraph.GraphChanges(self._handle)

    @property
    def queries(self) -> omnigraph.GraphStoredQueries:
        """The stored queries: list, check and invoke them by name."""
        return omnigraph.GraphStoredQueries(self._handle)

    @property
    def schema(self) -> omnigraph.GraphSchema:
        """The text of the schema; plan and apply schema changes."""
        return omnigraph.GraphSchema(self._handle)

    @property
    def embeddings(self) -> omnigraph.GraphEmbeddings:
        """The vectors of ``@embed`` properties."""
        return omnigraph.GraphEmbeddings(self._handle)

    @property
    def maintenance(self) -> omnigraph.GraphMaintenance:
        """Optimize, cleanup, verify, repair, doctor and backup."""
        return omnigraph.GraphMaintenance(self._handle)

    # -- history -------------------------------------------------------------------------

    @public
    def commits(self, branch: str = "main") -> list[Commit]:
        """The commits of a branch, including inherited ones, newest first.

        Without leave of the policy for ``read_history`` they have no ``actor``.

        Raises:
            NotFound: the branch does not exist.

        >>> [commit.kind for commit in graph.commits()]
        ['load', 'init']
        """
        self._handle.check()
        commits = History(self._handle.store).commits(normal_branch(branch))
        if self._handle.view_at is None:
            return commits
        from omnigraph.api.authors import Authors

        return Authors(self._handle).of_commits(commits)

    @public
    def commit(self, commit_id: str) -> Commit:
        """One commit of any branch; for an interrupted commit, the recovery that completed it.

        Raises:
            NotFound: the commit does not exist.

        >>> newest = graph.commits()[0]
        >>> graph.commit(newest.commit_id) == newest
        True
        """
        self._handle.check()
        commit = History(self._handle.store).commit(commit_id)
        if self._handle.view_at is None:
            return commit
        from omnigraph.api.authors import Authors

        return Authors(self._handle).of_commit(commit)

    @public
    def snapshot(
        self,
        branch: str = "main",
        *,
        commit: str | None = None,
        tag: str | None = None,
        version: int | None = None,
        at: datetime | str | None = None,
    ) -> GraphSnapshot:
        """The graph at one point in time: the newest state of a branch, or an earlier one.

        ``at`` is a ``datetime``, a tag or a commit id. A snapshot does not change while
        the branch moves on.

        Raises:
            NotFound: the branch, tag or commit does not exist.
            InputError: the version does not exist, or more than one state was given.
            HistoryGone: cleanup has removed that state.

        >>> graph.snapshot().count("Person"), graph.snapshot(at="v1").count("Person")
        (2, 2)
        """
        ref = SnapshotRef(branch, commit, tag, version, at)
        return GraphSnapshot(self._handle, self._handle.read(ref))

    # -- writing -------------------------------------------------------------------------

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
        """Load files, streams, tables or records in one commit.

        ``data`` is a path (NDJSON, CSV, Parquet, also ``.gz`` and ``.zst``, or the directory of an
        export), several of them, an open binary file, Arrow tables or frames by type name, or
        records as dicts. ``types`` has the type of each CSV or Parquet file that is not named after
        it. ``mode`` is merge, append or overwrite. A missing branch is created from ``from_branch``
        once the data has been validated. An invalid record refuses the load, unless ``max_rejects``
        allows some, or ``rejects``, a file to write them to, allows any number.
        A Blob that refers to a local file is invalid unless ``allow_local_files`` is set.
        ``dry_run`` only validates.

        ``engine`` is ``local`` (this process), ``spark``, or ``auto``: Spark from 1 GiB of files
        on, or if ``spark``, a session or a configuration to start one, is passed.

        Raises:
            InputError: the data cannot be read, or a record is invalid.
            IntegrityError: the rows would violate the schema.
            PreconditionFailed: the branch is not at ``if_commit``.
            ReadOnly: the graph is open for reading.

        >>> receipt = graph.load([{"type": "Person", "data": {"name": "Alan", "age": 41}}])
        >>> receipt.tables["node:Person"].inserted
        1
        """
        from omnigraph.api.load import run_load
        from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode

        if max_rejects is None:
            max_rejects = 0 if rejects is None else 2**63
        handle = self._handle
        author = handle.authorize(actor, "change", branch)
        handle.check_local_file("rejects", rejects)
        handle.check_local_file("allow_local_files", allow_local_files or None)
        contract = handle.write(normal_branch(branch))
        security = row_security(handle, author, "change", branch, contract.catalog)
        job = LoadJob(
            data,
            LoadMode(mode),
            format,
            types or {},
            rejects,
            max_rejects,
            strict_properties,
            on_progress,
            allow_local_files,
            handle.local_files,
            security,
        )

        def before_fork() -> None:
            assert from_branch is not None
            handle.authorize(author, "branch_create", from_branch, branch)
            refuse_wider_branch(handle, author, from_branch, branch)

        destination = LoadDestination(
            branch,
            from_branch,
            author,
            if_commit,
            idempotency_key,
            dry_run,
            before_fork,
        )
        return run_load(handle, contract.catalog, job, destination, engine, spark)

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
            ReadOnly: the graph is open for reading.

        >>> import pyarrow as pa
        >>> graph.append({"Person": pa.table({"name": ["Alan"]})}).affected_nodes
        1
        """
        from omnigraph.write.append import append

        author = self._handle.authorize(actor, "change", branch)
        target = normal_branch(branch)
        handle, contract = self._handle, self._handle.write(target)
        security = row_security(handle, author, "change", branch, contract.catalog)
        return append(handle.store, contract, rows, target, author, security)


def _stored_queries(directory: Location | None) -> StoredQueries | None:
    """The stored queries of a directory; none without one."""
    if directory is None:
        return None
    from omnigraph.api.stored_queries import StoredQueries

    return StoredQueries.from_directory(directory)
