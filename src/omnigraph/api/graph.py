"""The handle of a graph: what users hold.

It owns no rule of its own. Every call checks that the handle is open and that the schema files
still agree, and hands over to the room that does the work. Safe to share between threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.api.addresses import durability_of, root_of
from omnigraph.api.arguments import public
from omnigraph.api.graph_parts import GraphParts
from omnigraph.api.query import (
    BoundQuery,
    Explanation,
    WarmSpark,
    check_engine,
    explain_plan,
    profile_plan,
    run_query,
    traversal_settings,
)
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.commit.history import Commit, History, Tags
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.opening import open_contract
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.schema.history import contract_at, schema_at
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.embed import Embedders, EmbeddingConfig
from omnigraph.errors import Closed, InputError, ReadOnly
from omnigraph.escaping import escape
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.texts import source_of
from omnigraph.plan.cache import CompiledQueries
from omnigraph.read.context import QueryContext
from omnigraph.read.gate import GATE
from omnigraph.read.limits import MEMORY, Cancel, Limits
from omnigraph.result.result import Result
from omnigraph.settings import Settings
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.derived import DerivedFiles
from omnigraph.topology.persisted import Persisted
from omnigraph.topology.store import Topology
from omnigraph.write.reentrancy import reject_reentrant_write

if TYPE_CHECKING:
    from omnigraph.commit.receipts import LoadReceipt, Receipt
    from omnigraph.commit.recovery import Recovered
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.spark.session.resolve import SparkLike
    from omnigraph.write.append import Rows
    from omnigraph.write.load.job import LoadData, LoadMode, Progress

Mode = Literal["rw", "r"]


class Graph(GraphParts):
    """A graph that is open. Use it as a context manager, or call ``close``.

    >>> import tempfile, pyarrow as pa
    >>> place = tempfile.TemporaryDirectory()
    >>> graph = Graph.init(place.name + "/g.omni", "node Person { name: String @key }")
    >>> graph.append({"Person": pa.table({"name": ["Ada", "Grace"]})}).affected_nodes
    2
    >>> graph.snapshot().count("Person")
    2
    >>> graph.close(); place.cleanup()
    """

    def __init__(
        self,
        store: GraphStore,
        contract: Contract,
        mode: Mode,
        actor: str | None,
        embedding: EmbeddingConfig | None = None,
    ) -> None:
        self._store = store
        self._contract = contract
        self._mode = mode
        self._actor = actor
        self._lock = threading.Lock()
        self._closed = False
        self._plans = CompiledQueries()
        settings = Settings.from_environ()
        self._traversal = traversal_settings(settings)
        configured = EmbeddingConfig.from_options(settings.embedding_options())
        self._embedders = Embedders(embedding or configured)
        derived = Persisted(DerivedFiles(store.objects), writable=mode == "rw")
        self._topology = Topology(derived)
        self._spark = WarmSpark()
        self.recovered: tuple[Recovered, ...] = ()
        """What opening this handle finished or took back for writers that had died."""

    # -- opening and closing -------------------------------------------------------------

    @classmethod
    @public
    def init(
        cls,
        uri: str | PathLike[str],
        schema: str | PathLike[str],
        *,
        force: bool = False,
        actor: str | None = None,
        durability: Durability | str = Durability.DISK,
        storage_options: Mapping[str, str] | None = None,
        embedding: EmbeddingConfig | None = None,
    ) -> Graph:
        """Create a graph from a schema: a ``.pg`` file, or its text.

        ``force`` starts over where an earlier init was interrupted; a graph with data is never
        overwritten.
        """
        from omnigraph.commit.lifecycle import init_graph

        source = source_of(schema, "<schema>")
        # Before anything is made: a schema that is wrong leaves nothing behind.
        compile_schema(source, is_new=True)
        store = GraphStore(root_of(uri, storage_options), durability_of(durability), create=True)
        return cls(store, init_graph(store, source.text, force=force), "rw", actor, embedding)

    @classmethod
    @public
    def open(
        cls,
        uri: str | PathLike[str],
        mode: Mode = "rw",
        *,
        actor: str | None = None,
        durability: Durability | str = Durability.DISK,
        storage_options: Mapping[str, str] | None = None,
        embedding: EmbeddingConfig | None = None,
    ) -> Graph:
        """Open a graph, to read and write or only to read.

        Opening to write first finishes, or takes back, what writers left that died. Opening to
        read changes nothing at all.
        """
        if mode not in ("rw", "r"):
            raise InputError(f"'{mode}' is no mode", hint="use 'rw' or 'r'")
        store = GraphStore(root_of(uri, storage_options), durability_of(durability))
        contract, recovered = open_contract(store, writable=mode == "rw")
        graph = cls(store, contract, mode, actor, embedding)
        graph.recovered = tuple(recovered)
        return graph

    def refresh(self) -> tuple[Recovered, ...]:
        """Drop what is kept warm, and settle what dead writers left.

        Reads see other processes' commits without it. Gives what was recovered.
        """
        from omnigraph.commit.lifecycle import recover

        self._check_open()
        done = recover(self._store, full=False) if self._mode == "rw" else []
        self._store.manifests.forget()
        self._store.datasets.forget()
        self._topology.forget()
        self._checked()
        return tuple(done)

    def close(self) -> None:
        """Let the graph go; a closed handle refuses every call."""
        with self._lock:
            self._closed = True
        self._store.datasets.checksums.record(now=True)
        self._store.manifests.forget()
        self._store.datasets.forget()
        self._topology.forget()
        self._spark.close()

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._mode
        return f"<Graph {escape(self.uri)} ({state})>"

    @property
    def uri(self) -> str:
        return self._store.root.uri

    @property
    def catalog(self) -> Catalog:
        """The types of the schema."""
        return self._accepted().catalog

    # -- history -------------------------------------------------------------------------

    @public
    def commits(self, branch: str = "main") -> list[Commit]:
        """The commits that a branch shows, inherited ones too, newest first."""
        self._checked()
        return History(self._store).commits(normal_branch(branch))

    @public
    def commit(self, commit_id: str) -> Commit:
        """One commit, on whatever branch; also one that a recovery finished for its writer."""
        self._checked()
        return History(self._store).commit(commit_id)

    @public
    def snapshot(
        self,
        branch: str = "main",
        *,
        commit: str | None = None,
        tag: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> GraphSnapshot:
        """The graph at one moment: the newest of a branch, or an earlier one.

        A snapshot stays what it is while the branch moves on.
        """
        contract = self._checked()
        found = self._find(branch, commit, tag, version, at)
        return GraphSnapshot(self._store, schema_at(self._store, contract, found), found)

    def _find(
        self,
        branch: str,
        commit: str | None,
        tag: str | None,
        version: int | None,
        at: datetime | None = None,
    ) -> Snapshot:
        if sum(choice is not None for choice in (commit, tag, version, at)) > 1:
            raise InputError("name a commit, a tag, a version or a moment, not several of them")
        if at is not None:
            return History(self._store).snapshot_at(normal_branch(branch), at)
        if tag is not None:
            commit = Tags(self._store).get(tag).commit_id
        if commit is not None:
            return History(self._store).snapshot_of(commit)
        manifest = self._store.manifest(normal_branch(branch))
        return manifest.current() if version is None else manifest.at_version(version)

    # -- reading -------------------------------------------------------------------------

    @public
    def query(
        self,
        source: str | PathLike[str],
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = "main",
        snapshot: GraphSnapshot | None = None,
        engine: Literal["auto", "local", "spark"] = "auto",
        *,
        spark: SparkLike = None,
        commit: str | None = None,
        tag: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
        timeout: float | None = None,
        max_rows: int | None = None,
        max_memory: int | None = MEMORY,
        cancel: Cancel | None = None,
    ) -> Result:
        """Run a query that reads, on one snapshot.

        ``source`` is ``.gq`` text or a path. Without more it reads the newest state of a branch;
        ``snapshot``, ``commit``, ``tag``, ``version`` and ``at`` (a moment) choose an earlier
        one. ``timeout`` (seconds), ``max_rows``, ``max_memory`` (bytes of intermediate rows) and
        ``cancel`` bound it, each with an error of its own.

        ``engine`` is ``local`` (this process, as is ``auto``) or ``spark``: the same rows, for
        graphs beyond one machine. ``spark`` is a session to use, or how to start one.
        """
        check_engine(engine)
        limits = Limits(timeout, max_rows, max_memory, cancel)
        # Nothing that waits for a network, or for Spark, happens in turn.
        is_near = self._store.root.is_local and engine != "spark"
        with GATE if is_near else nullcontext():
            context, query = self._reading(
                source, name, params, branch, snapshot, commit, tag, version, at
            )
            target = _target(context.snapshot, branch, commit, tag)
            started = self._spark.open(spark) if engine == "spark" else None
            return run_query(context, query, limits, target, started)

    @public
    def explain(
        self,
        source: str | PathLike[str],
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = "main",
        *,
        profile: bool = False,
        timeout: float | None = None,
        cancel: Cancel | None = None,
    ) -> Explanation:
        """How a query would run; with ``profile`` it does, and every step says what it took."""
        if not profile:
            contract = self._checked()
            snapshot = self._store.manifest(normal_branch(branch)).current()
            catalog = schema_at(self._store, contract, snapshot)
            return explain_plan(
                self._context(catalog, snapshot), self._plans.any(catalog, source, name)
            )
        context, query = self._reading(source, name, params, branch, None, None, None, None, None)
        return profile_plan(context, query, Limits(timeout, cancel=cancel))

    def _reading(
        self,
        source: str | PathLike[str],
        name: str | None,
        params: Mapping[str, Any] | None,
        branch: str,
        snapshot: GraphSnapshot | None,
        commit: str | None,
        tag: str | None,
        version: int | None,
        at: datetime | None,
    ) -> tuple[QueryContext, BoundQuery]:
        contract = self._checked()
        if snapshot is not None:
            if (commit, tag, version, at) != (None, None, None, None):
                raise InputError("pass a snapshot, or say which one, not both")
            found = self._own(snapshot)
        else:
            found = self._find(branch, commit, tag, version, at)
        catalog = schema_at(self._store, contract, found)
        prepared = self._plans.read(catalog, source, name)
        query = BoundQuery(prepared, convert_params(prepared.plan.params, params))
        return self._context(catalog, found), query

    def _own(self, snapshot: GraphSnapshot) -> Snapshot:
        if not isinstance(snapshot, GraphSnapshot):
            raise InputError(f"snapshot must be a GraphSnapshot, not {type(snapshot).__name__}")
        if snapshot._store.root.uri != self.uri:
            raise InputError("the snapshot is one of another graph")
        return snapshot._snapshot

    def _context(self, catalog: Catalog, snapshot: Snapshot) -> QueryContext:
        return QueryContext(
            self._store, catalog, snapshot, self._topology, self._traversal, self._embedders
        )

    @public
    def entity_at(
        self,
        type_name: str,
        entity_id: str,
        branch: str = "main",
        *,
        commit: str | None = None,
        tag: str | None = None,
        version: int | None = None,
        at: datetime | None = None,
    ) -> dict[str, Any] | None:
        """One node or edge with all of its columns, as it was; none when it was not there."""
        contract = self._checked()
        found = self._find(branch, commit, tag, version, at)
        catalog = schema_at(self._store, contract, found)
        return GraphSnapshot(self._store, catalog, found).entity(type_name, entity_id)

    # -- writing -------------------------------------------------------------------------

    @public
    def mutate(
        self,
        source: str | PathLike[str],
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = "main",
        actor: str | None = None,
        *,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        allow_local_files: bool = False,
    ) -> Receipt:
        """Run a mutation: all of its statements in one commit, or none.

        ``source`` is ``.gq`` text or a path. With ``if_commit`` it only happens on top of that
        commit; with an ``idempotency_key`` it happens once, and a repeat gets the first receipt.
        A Blob that names a local file is refused unless ``allow_local_files`` is set.
        """
        from omnigraph.write.mutation import mutate

        contract = self._writable()
        plan = self._plans.mutation(contract.catalog, source, name)
        return mutate(
            self._store,
            contract,
            plan,
            convert_params(plan.params, params),
            normal_branch(branch),
            actor or self._actor,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
            allow_local_files=allow_local_files,
        )

    @public
    def load(
        self,
        data: LoadData,
        mode: LoadMode | str = "merge",
        branch: str = "main",
        from_branch: str | None = None,
        engine: Literal["auto", "local", "spark"] = "auto",
        *,
        spark: SparkLike = None,
        format: str | None = None,
        types: Mapping[str, str] | None = None,
        rejects: str | PathLike[str] | None = None,
        max_rejects: int | None = None,
        strict_properties: bool = False,
        allow_local_files: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
        actor: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
    ) -> LoadReceipt:
        """Load files, streams, tables or records in one commit.

        ``data`` is a path (NDJSON, CSV, Parquet, also ``.gz`` and ``.zst``; a directory that an
        export wrote), several of them, an open binary file, Arrow tables or frames by type name,
        or records as dicts. ``types`` says which type a CSV or Parquet file holds where its name
        does not. ``mode`` is merge, append or overwrite. A missing branch is made from
        ``from_branch`` once the data is found good. Bad records refuse the load, unless
        ``max_rejects`` allows some: they are set aside and written to the file ``rejects``.
        A Blob that names a local file is such a record unless ``allow_local_files`` is set.
        ``dry_run`` only checks.

        ``engine`` is ``local`` (this process), ``spark``, or ``auto``: Spark from 1 GiB of files
        on. ``spark`` is a session to use, or how to start one.
        """
        from omnigraph.api.load import run_load
        from omnigraph.write.load.job import LoadDestination, LoadJob, load_mode

        if max_rejects is None:
            max_rejects = 0 if rejects is None else 2**63
        elif max_rejects < 0:
            raise InputError("max_rejects cannot be negative")
        contract = self._writable()
        job = LoadJob(
            data,
            load_mode(mode),
            format,
            types or {},
            rejects,
            max_rejects,
            strict_properties,
            progress,
            allow_local_files,
        )
        destination = LoadDestination(
            branch, from_branch, actor or self._actor, if_commit, idempotency_key, dry_run
        )
        return run_load(self._store, contract.catalog, job, destination, engine, spark)

    @public
    def append(
        self, rows: Mapping[str, Rows], branch: str = "main", actor: str | None = None
    ) -> Receipt:
        """Add typed Arrow rows, by type name, in one commit.

        Strict: an id that is there already, or an edge to a node that is not, refuses all of it.
        """
        from omnigraph.write.append import append

        contract = self._writable()
        return append(self._store, contract, rows, normal_branch(branch), actor or self._actor)

    # -- writing out ---------------------------------------------------------------------

    @public
    def export(
        self,
        dest: str | PathLike[str] | None = None,
        format: Literal["ndjson", "parquet"] = "ndjson",
        branch: str = "main",
        types: Sequence[str] | None = None,
        *,
        commit: str | None = None,
        tag: str | None = None,
        version: int | None = None,
        engine: Literal["local", "spark"] = "local",
        spark: SparkLike = None,
    ) -> Iterator[str] | int:
        """Write the graph out, so that ``load`` gives the same graph again.

        Without ``dest`` the JSON lines are handed out one by one; with it, a file of them or a
        directory of Parquet files is written, and the number of rows returned.

        With ``engine="spark"`` a directory is written in either format, several files for each
        type, by many processes at once.
        """
        from omnigraph.api.load import run_export
        from omnigraph.write.export import Export

        contract = self._checked()
        found = self._find(branch, commit, tag, version)
        catalog = schema_at(self._store, contract, found)
        job = Export(self._store, catalog, found, types)
        if engine == "spark":
            return run_export(job, catalog, dest, format, spark)
        if engine != "local":
            raise InputError(f"'{engine}' is no export engine", hint="use local or spark")
        if format == "parquet":
            if dest is None:
                raise InputError("Parquet needs a directory to go to", hint="pass dest")
            return job.write_parquet(Path(dest))
        if format != "ndjson":
            raise InputError(f"'{format}' is no export format", hint="use ndjson or parquet")
        return job.lines() if dest is None else job.write_lines(Path(dest))

    @public
    def read_blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        offset: int = 0,
        length: int | None = None,
        *,
        branch: str = "main",
    ) -> bytes | None:
        """The bytes of a Blob, or a piece of it; at most 4 MiB when no length is given."""
        return self.snapshot(branch).read_blob(type_name, entity_id, property_name, offset, length)

    # -- checks --------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this graph is closed", hint="open it again with Graph.open")

    def _checked(self) -> Contract:
        """The schema as the files have it now, looked at once for each operation."""
        self._check_open()
        found = self._store.schema_files.check(self._contract)
        self._contract = found
        return found

    def _accepted(self) -> Contract:
        """The schema of the newest state; the files of an apply that died may lag behind it."""
        contract = self._checked()
        return contract_at(self._store, contract, self._store.manifest(None).current())

    def _writable(self) -> Contract:
        self._check_open()
        if self._mode != "rw":
            raise ReadOnly("this graph is open for reading only", hint="open it with mode='rw'")
        from omnigraph.commit.lifecycle import ensure_no_schema_apply

        reject_reentrant_write(self.uri)
        ensure_no_schema_apply(self._store)
        return self._checked()


def _target(snapshot: Snapshot, branch: str, commit: str | None, tag: str | None) -> dict[str, str]:
    """What was read, as the result says it."""
    if commit is not None or tag is not None:
        return {"snapshot": str(commit or tag)}
    return {"branch": branch_label(snapshot.branch)}
