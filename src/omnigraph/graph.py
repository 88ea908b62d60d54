"""The handle of a graph: what users hold.

It owns no rule of its own. Every call checks that the handle is open and that the schema files
still agree, and hands over to the room that does the work. Safe to share between threads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.commit.branches import Branches, refuse_while_schema_changes
from omnigraph.commit.history import Commit, History, Tag, Tags
from omnigraph.commit.lifecycle import init_graph, open_contract, settle
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.receipts import Receipt
from omnigraph.commit.recovery import Recovered
from omnigraph.commit.schema_files import Contract
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Closed, InputError, ReadOnly
from omnigraph.maintain.indexes import IndexReport, ensure_indexes, index_report
from omnigraph.settings import Settings
from omnigraph.storage.durable import Durability
from omnigraph.storage.roots import Root, parse_root
from omnigraph.write.append import Rows, append_rows
from omnigraph.write.conform import find_type

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

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
        self.recovered: tuple[Recovered, ...] = ()
        """What opening this handle finished or took back for writers that had died."""

    # -- opening and closing -------------------------------------------------------------

    @classmethod
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
        source = _schema_text(schema)
        store = GraphStore(_root(uri, storage_options), _durability(durability), create=True)
        return cls(store, init_graph(store, source, force=force), "rw", actor)

    @classmethod
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

    def commits(self, branch: str = "main") -> list[Commit]:
        """The commits that a branch shows, inherited ones too, newest first."""
        self._checked()
        return History(self._store).commits(normal_branch(branch))

    def commit(self, commit_id: str) -> Commit:
        """One commit, on whatever branch; also one that a recovery finished for its writer."""
        self._checked()
        return History(self._store).commit(commit_id)

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
        if sum(choice is not None for choice in (commit, tag, version)) > 1:
            raise InputError("name a commit, a tag or a version, not several of them")
        if tag is not None:
            commit = Tags(self._store).get(tag).commit_id
        if commit is not None:
            found = History(self._store).snapshot_of(commit)
        elif version is not None:
            found = self._store.manifest(normal_branch(branch)).at_version(version)
        else:
            found = self._store.manifest(normal_branch(branch)).current()
        return GraphSnapshot(self._store, contract.catalog, found)

    # -- writing -------------------------------------------------------------------------

    def append(
        self, rows: Mapping[str, Rows], branch: str = "main", actor: str | None = None
    ) -> Receipt | None:
        """Add typed Arrow rows, by type name, in one commit; ``None`` when there are none.

        Strict: an id that is there already, or an edge to a node that is not, refuses all of it.
        """
        contract = self._writable()
        return append_rows(
            self._store,
            contract.catalog,
            rows,
            branch=normal_branch(branch),
            actor=actor or self._actor,
        )

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


class GraphBranches:
    """``graph.branches``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def list(self) -> Sequence[str]:
        """``main`` first, then the others in alphabetical order."""
        self._graph._checked()
        return Branches(self._graph._store).list()

    def create(self, name: str, from_branch: str = "main") -> None:
        """Fork a branch from the newest state of another; nothing is copied."""
        self._graph._writable()
        Branches(self._graph._store).create(name, from_branch)

    def delete(self, name: str) -> None:
        """Remove a branch that no other depends on."""
        self._graph._writable()
        settle(self._graph._store, full=False)
        Branches(self._graph._store).delete(name)


class GraphTags:
    """``graph.tags``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def list(self) -> Sequence[Tag]:
        self._graph._checked()
        return Tags(self._graph._store).list()

    def create(
        self,
        name: str,
        commit: str | None = None,
        *,
        branch: str = "main",
        move: bool = False,
        actor: str | None = None,
    ) -> Tag:
        """Name a commit, by default the newest of a branch. Cleanup spares what a tag names."""
        self._graph._writable()
        store = self._graph._store
        if commit is None:
            head = store.manifest(normal_branch(branch)).current().head
            commit = head.commit_id if head else ""
        return Tags(store).create(name, commit, actor or self._graph._actor, move=move)

    def delete(self, name: str) -> None:
        self._graph._writable()
        Tags(self._graph._store).delete(name)


class GraphIndexes:
    """``graph.indexes``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def status(self, branch: str = "main") -> IndexReport:
        """Which indexes there are, how much they cover, and which are still to be built."""
        contract = self._graph._checked()
        store = self._graph._store
        snapshot = store.manifest(normal_branch(branch)).current()
        return index_report(store, contract.catalog, snapshot)

    def ensure(self, branch: str = "main", actor: str | None = None) -> IndexReport:
        """Build what the schema asks for and is missing; nothing happens when nothing is."""
        contract = self._graph._writable()
        return ensure_indexes(
            self._graph._store,
            contract.catalog,
            normal_branch(branch),
            actor or self._graph._actor,
        )


class GraphSnapshot:
    """The graph at one moment. Reading it never sees anything newer."""

    def __init__(self, store: GraphStore, catalog: Catalog, snapshot: Snapshot) -> None:
        self._store = store
        self._catalog = catalog
        self._snapshot = snapshot

    @property
    def branch(self) -> str:
        return branch_label(self._snapshot.branch)

    @property
    def version(self) -> int:
        return self._snapshot.manifest_version

    @property
    def commit_id(self) -> str | None:
        head = self._snapshot.head
        return None if head is None else head.commit_id

    @property
    def snapshot_id(self) -> str:
        """A name for exactly this state of this life of the branch."""
        tag = f":etag:{self._snapshot.e_tag}" if self._snapshot.e_tag else ""
        return f"manifest:{self.branch}:v{self.version}{tag}"

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """For each table its version, the branch that owns that version, and its rows."""
        return {
            key: {
                "version": pin.version,
                "branch": branch_label(pin.branch),
                "rows": pin.row_count,
            }
            for key, pin in self._snapshot.pins.items()
        }

    def count(self, type_name: str) -> int:
        """How many nodes or edges of a type there are."""
        return self._pin(type_name).row_count

    def read(
        self,
        type_name: str,
        columns: Sequence[str] | None = None,
        condition: pc.Expression | None = None,
    ) -> pa.Table:
        """The rows of a type as an Arrow table, in no promised order."""
        return self._store.table(self._pin(type_name)).read(columns, condition)

    def scan(
        self,
        type_name: str,
        columns: Sequence[str] | None = None,
        condition: pc.Expression | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """As ``read``, batch by batch."""
        return self._store.table(self._pin(type_name)).scan(columns, condition)

    def _pin(self, type_name: str) -> Pin:
        kind = find_type(self._catalog, type_name)
        pin = self._snapshot.pin(kind.table_key)
        if pin is None:
            raise InputError(f"'{type_name}' did not exist at version {self.version}")
        return pin

    def __repr__(self) -> str:
        return f"<GraphSnapshot {self.snapshot_id}>"


def _root(uri: str | PathLike[str], options: Mapping[str, str] | None) -> Root:
    address = fspath(uri)
    if address.startswith("s3://"):
        known = Settings.from_environ().storage_options()
        return parse_root(address, {**known, **(options or {})})
    return parse_root(address, options)


def _durability(value: Durability | str) -> Durability:
    try:
        return Durability(value)
    except ValueError:
        raise InputError(f"'{value}' is no durability", hint="use 'disk' or 'os'") from None


def _schema_text(schema: str | PathLike[str]) -> str:
    """The text of a schema that is given as a file or as itself."""
    if isinstance(schema, str) and ("{" in schema or "\n" in schema):
        return schema
    path = Path(schema)
    try:
        return path.read_text("utf-8")
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise InputError(f"cannot read the schema '{path}': {reason.lower()}") from None
    except UnicodeDecodeError:
        raise InputError(f"the schema '{path}' is not UTF-8 text") from None
