"""The handle of a graph: what users hold.

It owns no rule of its own. Every call checks that the handle is open and that the schema files
still agree, and hands over to the room that does the work. Safe to share between threads.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.arguments import public
from omnigraph.commit.branches import refuse_while_schema_changes
from omnigraph.commit.history import Commit, History, Tags
from omnigraph.commit.lifecycle import init_graph, open_contract, settle
from omnigraph.commit.names import normal_branch
from omnigraph.commit.protocol import WriteRequest, commit_write
from omnigraph.commit.receipts import LoadReceipt, Receipt
from omnigraph.commit.recovery import Recovered
from omnigraph.commit.schema_files import Contract
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Closed, InputError, ReadOnly
from omnigraph.facets import GraphBranches, GraphIndexes, GraphTags
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.query.typed import NOW_PARAMETER
from omnigraph.lang.texts import source_of
from omnigraph.plan.bind import bind
from omnigraph.plan.cache import CompiledQueries
from omnigraph.settings import Settings
from omnigraph.snapshots import GraphSnapshot
from omnigraph.storage.durable import Durability
from omnigraph.storage.roots import Root, parse_root
from omnigraph.write.append import Append, Rows
from omnigraph.write.export import Export
from omnigraph.write.load.run import LoadMode, LoadOptions, Progress, load_mode
from omnigraph.write.load.sources import LoadData
from omnigraph.write.load.target import LoadTarget, load_into
from omnigraph.write.mutate import Mutation

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog

Mode = Literal["rw", "r"]


class Graph:
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
        self, store: GraphStore, contract: Contract, mode: Mode, actor: str | None
    ) -> None:
        self._store = store
        self._contract = contract
        self._mode = mode
        self._actor = actor
        self._lock = threading.Lock()
        self._closed = False
        self._plans = CompiledQueries()
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
    ) -> Graph:
        """Create a graph from a schema: a ``.pg`` file, or its text.

        ``force`` starts over where an earlier init was interrupted; a graph with data is never
        overwritten.
        """
        source = source_of(schema, "<schema>").text
        store = GraphStore(_root(uri, storage_options), _durability(durability), create=True)
        return cls(store, init_graph(store, source, force=force), "rw", actor)

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
    ) -> Graph:
        """Open a graph, to read and write or only to read.

        Opening to write first finishes, or takes back, what writers left that died. Opening to
        read changes nothing at all.
        """
        if mode not in ("rw", "r"):
            raise InputError(f"'{mode}' is no mode", hint="use 'rw' or 'r'")
        store = GraphStore(_root(uri, storage_options), _durability(durability))
        contract, recovered = open_contract(store, writable=mode == "rw")
        graph = cls(store, contract, mode, actor)
        graph.recovered = tuple(recovered)
        return graph

    def refresh(self) -> tuple[Recovered, ...]:
        """Drop what is kept warm, and settle what dead writers left.

        Reads see other processes' commits without it. Gives what was recovered.
        """
        self._check_open()
        done = settle(self._store, full=False) if self._mode == "rw" else []
        self._store.manifests.forget()
        self._store.datasets.forget()
        self._checked()
        return tuple(done)

    def close(self) -> None:
        """Let the graph go; a closed handle refuses every call."""
        with self._lock:
            self._closed = True
        self._store.manifests.forget()
        self._store.datasets.forget()

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
        return f"<Graph {self.uri} ({state})>"

    @property
    def uri(self) -> str:
        return self._store.root.uri

    @property
    def catalog(self) -> Catalog:
        """The types of the schema."""
        return self._checked().catalog

    # -- history -------------------------------------------------------------------------

    @property
    def branches(self) -> GraphBranches:
        return GraphBranches(self)

    @property
    def tags(self) -> GraphTags:
        return GraphTags(self)

    @property
    def indexes(self) -> GraphIndexes:
        return GraphIndexes(self)

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
    ) -> GraphSnapshot:
        """The graph at one moment: the newest of a branch, or an earlier one.

        A snapshot stays what it is while the branch moves on.
        """
        contract = self._checked()
        found = self._find(branch, commit, tag, version)
        return GraphSnapshot(self._store, contract.catalog, found)

    def _find(
        self, branch: str, commit: str | None, tag: str | None, version: int | None
    ) -> Snapshot:
        if sum(choice is not None for choice in (commit, tag, version)) > 1:
            raise InputError("name a commit, a tag or a version, not several of them")
        if tag is not None:
            commit = Tags(self._store).get(tag).commit_id
        if commit is not None:
            return History(self._store).snapshot_of(commit)
        manifest = self._store.manifest(normal_branch(branch))
        return manifest.current() if version is None else manifest.at_version(version)

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
    ) -> Receipt:
        """Run a mutation: all of its statements in one commit, or none.

        ``source`` is ``.gq`` text or a path. With ``if_commit`` it only happens on top of that
        commit; with an ``idempotency_key`` it happens once, and a repeat gets the first receipt.
        """
        contract = self._writable()
        plan = self._plans.mutation(contract.catalog, source, name)
        given = convert_params(plan.params, params)
        bound = bind(plan, given)
        mutation = Mutation(self._store, contract.catalog, bound)
        request = WriteRequest(
            WriterKind.MUTATION,
            normal_branch(branch),
            mutation.touches,
            mutation.prepare,
            mutation.is_strict,
            actor or self._actor,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
            fingerprint=_fingerprint(plan.name, given) if idempotency_key else None,
        )
        return commit_write(self._store, request)

    @public
    def load(
        self,
        data: LoadData,
        mode: LoadMode | str = LoadMode.MERGE,
        branch: str = "main",
        from_branch: str | None = None,
        engine: Literal["auto", "local"] = "auto",
        *,
        format: str | None = None,
        types: Mapping[str, str] | None = None,
        rejects: str | PathLike[str] | None = None,
        max_rejects: int | None = None,
        strict_properties: bool = False,
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
        ``dry_run`` only checks.
        """
        if engine not in ("auto", "local"):
            raise InputError(f"'{engine}' is no load engine", hint="use auto or local")
        if max_rejects is not None and max_rejects < 0:
            raise InputError("max_rejects cannot be negative")
        contract = self._writable()
        allowed = max_rejects if max_rejects is not None else (0 if rejects is None else 2**63)
        options = LoadOptions(format, types or {}, rejects, allowed, strict_properties, progress)
        target = LoadTarget(
            branch, from_branch, actor or self._actor, if_commit, idempotency_key, dry_run
        )
        return load_into(self._store, contract.catalog, data, load_mode(mode), options, target)

    @public
    def append(
        self, rows: Mapping[str, Rows], branch: str = "main", actor: str | None = None
    ) -> Receipt:
        """Add typed Arrow rows, by type name, in one commit.

        Strict: an id that is there already, or an edge to a node that is not, refuses all of it.
        """
        contract = self._writable()
        batch = Append(self._store, contract.catalog, rows)
        request = WriteRequest(
            WriterKind.LOAD,
            normal_branch(branch),
            batch.touches,
            batch.prepare,
            actor=actor or self._actor,
        )
        return commit_write(self._store, request)

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
    ) -> Iterator[str] | int:
        """Write the graph out, so that ``load`` gives the same graph again.

        Without ``dest`` the JSON lines are handed out one by one; with it, a file of them or a
        directory of Parquet files is written, and the number of rows returned.
        """
        contract = self._checked()
        found = self._find(branch, commit, tag, version)
        job = Export(self._store, contract.catalog, found, types)
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

    def _writable(self) -> Contract:
        self._check_open()
        if self._mode != "rw":
            raise ReadOnly("this graph is open for reading only", hint="open it with mode='rw'")
        contract = self._checked()
        refuse_while_schema_changes(self._store)
        return contract


def _root(uri: str | PathLike[str], options: Mapping[str, str] | None) -> Root:
    address = fspath(uri)
    if address.startswith("s3://"):
        known = Settings.from_environ().storage_options()
        return parse_root(address, {**known, **(options or {})})
    return parse_root(address, options)


def _fingerprint(name: str, values: Mapping[str, Any]) -> str:
    """What identifies a mutation: its name and its parameters, but for the time of the call."""
    told = sorted((key, repr(value)) for key, value in values.items() if key != NOW_PARAMETER)
    return hashlib.sha256(repr((name, told)).encode()).hexdigest()[:32]


def _durability(value: Durability | str) -> Durability:
    try:
        return Durability(value)
    except ValueError:
        raise InputError(f"'{value}' is no durability", hint="use 'disk' or 'os'") from None
