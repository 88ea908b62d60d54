"""The state of an open graph, shared by ``Graph``, its snapshots and its namespaces.

It has the store, the current schema, the settings, the actor, and everything that is cached
between calls. Every call starts with ``read`` or ``write``, which check that the handle is open and
that the schema files still agree. Safe to share between threads.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal, TypeAlias

from omnigraph.api.arguments import no_local_files, source_of
from omnigraph.api.engines import WarmSpark
from omnigraph.api.gate import DigestGate, ViewGate, WriteGate
from omnigraph.commit.history import SnapshotRef
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.schema.history import contract_at
from omnigraph.commit.snapshot import Snapshot, SnapshotLease
from omnigraph.commit.store import GraphStore
from omnigraph.embed import Embedders, EmbeddingConfig
from omnigraph.errors import Closed, InputError, ReadOnly
from omnigraph.escaping import escape
from omnigraph.identity import Identity
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.prepared import CompiledQueries
from omnigraph.plan.view import WHOLE, View
from omnigraph.read.context import QueryContext
from omnigraph.read.traversal_cost import TraversalMode, TraversalSettings
from omnigraph.records import dataclass
from omnigraph.settings import Settings
from omnigraph.storage.objects.derived import DerivedFiles
from omnigraph.storage.objects.paths import Root, parse_root
from omnigraph.topology.persisted import Persisted
from omnigraph.topology.store import Topology

if TYPE_CHECKING:
    from omnigraph.api.page_cache import PageCache
    from omnigraph.api.stored_queries import StoredQueries
    from omnigraph.maintain.background import BackgroundCompaction

Mode: TypeAlias = Literal["rw", "r"]

# Seconds between comparisons of the schema files on S3 while no other writer publishes.
_COMPARED_SECONDS = 10.0
_UNCHANGED_SECONDS = 1.0


def parse_location(
    uri: str | PathLike[str], options: Mapping[str, str] | None, settings: Settings
) -> Root:
    """The root at an address; S3 settings come from the options, then from the environment."""
    address = fspath(uri)
    if address.startswith("s3://"):
        return parse_root(address, {**settings.storage_options(), **(options or {})})
    return parse_root(address, options)


@dataclass(frozen=True, slots=True)
class SnapshotContext:
    """One state of the graph with its schema; cleanup keeps it while this object is referenced."""

    catalog: Catalog
    snapshot: Snapshot
    target: Mapping[str, str]
    lease: SnapshotLease
    view: View
    """What the actor of the handle sees of it."""


@dataclass(frozen=True, slots=True)
class HandleOptions:
    """How a graph is opened: see ``Graph.open``."""

    auto_compact: bool = False
    local_files: bool = True
    policy: WriteGate | None = None
    queries: StoredQueries | None = None


class _SharedState:
    """What changes while a graph is open; shared with the handles of single actors."""

    __slots__ = ("compared", "contract", "is_closed", "lock", "pages", "seen_unchanged")

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        # The time of the last comparison of the schema files, and the publish count of others then.
        self.compared = (-math.inf, -1)
        self.seen_unchanged = -math.inf
        """When the schema files were last seen to be those of the contract."""
        self.is_closed = False
        self.lock = threading.Lock()
        self.pages: PageCache | None = None


class Handle:
    """The state of an open graph, shared by all parts of the public API."""

    def __init__(
        self,
        store: GraphStore,
        contract: Contract,
        settings: Settings,
        mode: Mode = "rw",
        actor: str | None = None,
        embedding: EmbeddingConfig | None = None,
        options: HandleOptions | None = None,
    ) -> None:
        options = options or HandleOptions()
        self.store = store
        self.local_files = options.local_files
        self.policy = options.policy
        self._queries = options.queries
        gate: object = options.policy
        self._views = gate if isinstance(gate, ViewGate) else None
        self.settings = settings
        self.mode: Mode = mode
        self.actor = actor
        """The name of the actor of this handle."""
        self.identity = None if actor is None else Identity(actor)
        self._acting: Identity | str | None = actor
        self._is_bound = self._is_released = False
        self.plans = CompiledQueries()
        self.embedders = Embedders(
            embedding or EmbeddingConfig.from_options(settings.embedding_options())
        )
        derived = DerivedFiles(store.objects)
        self.topology = Topology(Persisted(derived, writable=mode == "rw"))
        self.spark = WarmSpark(settings.spark_options())
        self._compaction = (
            self._start_compaction() if options.auto_compact and mode == "rw" else None
        )
        self._state = _SharedState(contract)
        wanted = settings.traversal_mode
        self._traversal = TraversalSettings(
            None if wanted == "auto" else TraversalMode(wanted),
            settings.indexed_max_hops,
            settings.indexed_max_frontier,
        )

    @property
    def uri(self) -> str:
        return self.store.root.uri

    # -- arguments -----------------------------------------------------------------------

    def source(self, given: str | PathLike[str], name: str) -> Source:
        """The text of a schema or query argument."""
        return source_of(given, name, local_files=self.local_files)

    def check_local_file(self, argument: str, value: object) -> None:
        """Refuse an argument that names a local file, if the graph is open without them."""
        if value is not None and not self.local_files:
            raise no_local_files(argument)

    # -- start of a call -----------------------------------------------------------------

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("this graph is closed", hint="open it again with Graph.open")

    def check(self) -> Contract:
        """The schema of the files as of now, compared once per call.

        On S3, where that takes a request, they are compared only if another writer has published
        since, and every few seconds: an apply publishes first and then replaces the files.
        """
        self.check_open()
        now, changes = time.monotonic(), self.store.manifests.changes
        state = self._state
        compared, last_changes = state.compared
        if (
            self.store.root.is_local
            or changes != last_changes
            or now - compared > _COMPARED_SECONDS
        ):
            state.contract = self.store.schema_files.check(state.contract)
            state.compared = now, changes
        return state.contract

    def accepted(self) -> Contract:
        """The schema of the newest state; after an interrupted apply the files may be older."""
        return contract_at(self.store, self.check(), self.store.manifest(None).current())

    def read(self, ref: SnapshotRef) -> SnapshotContext:
        """A state of the graph with its schema."""
        contract = self.check()
        changes = self.store.manifests.changes
        snapshot = ref.resolve(self.store)
        if self.store.manifests.changes != changes and not self.store.root.is_local:
            contract = self.check()
        catalog = contract_at(self.store, contract, snapshot).catalog
        return self._context(catalog, snapshot, ref.target(snapshot))

    def read_in_memory(self, branch: str) -> SnapshotContext | None:
        """The newest state of a branch; ``None`` if anything would have to be read or waited for.

        Whether there is a newer one is looked up as by ``read``.
        """
        self.check_open()
        if not self.store.root.is_local:
            return None
        contract = self._state.contract
        manifest = self.store.manifests.loaded(normal_branch(branch))
        if manifest is None or not self._has_newest_schema(contract):
            return None
        snapshot = manifest.current_in_memory()
        if snapshot is None or snapshot.schema is None:
            return None
        if snapshot.schema.schema_hash != contract.schema_hash:
            return None
        return self._context(contract.catalog, snapshot, {"branch": branch_label(snapshot.branch)})

    def schema_hash_in_memory(self) -> str | None:
        """The hash of the newest schema; ``None`` if anything would have to be read."""
        self.check_open()
        manifest = self.store.manifests.loaded(None) if self.store.root.is_local else None
        snapshot = None if manifest is None else manifest.current_in_memory()
        schema = None if snapshot is None else snapshot.schema
        contract = self._state.contract
        if schema is None or schema.schema_hash != contract.schema_hash:
            return None
        return contract.schema_hash if self._has_newest_schema(contract) else None

    def _has_newest_schema(self, contract: Contract) -> bool:
        """Whether the schema files are as they were, now or a moment ago.

        Every apply of this program publishes the schema too; another may replace the files only.
        """
        state, now = self._state, time.monotonic()
        if now - state.seen_unchanged > _UNCHANGED_SECONDS:
            if not self.store.schema_files.are_unchanged(contract):
                return False
            state.seen_unchanged = now
        return True

    def _context(
        self, catalog: Catalog, snapshot: Snapshot, target: Mapping[str, str]
    ) -> SnapshotContext:
        return SnapshotContext(
            catalog,
            snapshot,
            target,
            SnapshotLease(self.uri, snapshot),
            WHOLE if self._views is None else self.view(snapshot.branch, catalog),
        )

    def authorize(
        self,
        actor: str | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> str | None:
        """Ask the policy, if there is one; the start of every call that writes.

        ``query`` is the stored query that writes. Returns the actor of the write: that of the
        call, else that of the handle.
        """
        self.check_open()
        acting: Identity | str | None = actor
        if actor is None or actor == self.actor:
            actor, acting = self.actor, self._acting
        else:
            self._refuse_other(actor)
        if self.policy is not None:
            self.policy.check(acting, action, branch, target, query=query)
        return actor

    @property
    def policy_digest(self) -> str:
        """The digest of the policy in force; empty if there is none."""
        gate: object = self.policy
        return gate.digest if isinstance(gate, DigestGate) else ""

    # -- actors --------------------------------------------------------------------------

    def for_actor(self, actor: Identity | str) -> Handle:
        """A handle of one actor, which shares everything else with this one.

        It sees what the policy lets the actor see, and cannot act for another. Closing it does not
        close this handle; closing this handle closes it too.
        """
        self.check_open()
        identity = actor if isinstance(actor, Identity) else Identity(actor)
        if identity.id != self.actor or identity != self.identity:
            self._refuse_other(identity.id)
        handle = Handle.__new__(Handle)
        handle.__dict__.update(self.__dict__)
        handle.actor, handle.identity, handle._acting = identity.id, identity, actor
        handle._is_bound = True
        return handle

    def view(self, branch: str | None, catalog: Catalog, actor: str | None = None) -> View:
        """What an actor sees of a branch under a schema: that of the call, else of the handle.

        A branch that is to be created may be named too: only its name matters.
        """
        if self._views is None:
            return WHOLE
        identity = self.identity
        if actor is not None and actor != self.actor:
            self._refuse_other(actor)
            identity = Identity(actor)
        return self._views.view(identity, branch_label(branch), catalog)

    @property
    def view_at(self) -> Callable[[str | None, Catalog], View] | None:
        """``view``, if there is somebody to ask; without, everything is visible."""
        return None if self._views is None else self.view

    def _refuse_other(self, actor: str) -> None:
        if self._is_bound:
            raise InputError(
                f"this graph acts for '{self.actor}' and cannot act for '{actor}'",
                hint="leave actor out",
            )

    def write(self, branch: str | None = None) -> Contract:
        """The schema for a write; raises if the graph is open for reading only.

        ``branch`` is the one that is about to be written, if it exists.
        """
        self.check_open()
        if self.mode != "rw":
            raise ReadOnly("this graph is open for reading only", hint="open it with mode='rw'")
        # Here readers and writers part: what only writers need is imported from here on.
        from omnigraph.commit.schema.lock import ensure_no_schema_apply
        from omnigraph.write.reentrancy import reject_reentrant_write

        reject_reentrant_write(self.store.root.uri)
        self.store.look_ahead(branch)
        ensure_no_schema_apply(self.store)
        return self.check()

    # -- queries -------------------------------------------------------------------------

    @property
    def queries(self) -> StoredQueries:
        """The stored queries of this handle."""
        from omnigraph.api.stored_queries import StoredQueries

        return StoredQueries() if self._queries is None else self._queries

    def with_queries(self, queries: StoredQueries) -> Handle:
        """A handle with other stored queries, which shares everything else with this one."""
        handle = Handle.__new__(Handle)
        handle.__dict__.update(self.__dict__)
        handle._queries = queries
        return handle

    def query_context(self, context: SnapshotContext) -> QueryContext:
        """The context for running a query on a state."""
        return QueryContext(
            self.store,
            context.catalog,
            context.snapshot,
            self.topology,
            context.view,
            self._traversal,
            self.embedders,
        )

    @property
    def pages(self) -> PageCache:
        """Rows ahead of the pages that are being read; of all actors."""
        pages = self._state.pages
        if pages is None:
            from omnigraph.api.page_cache import PageCache

            # Of two that are made at the same time, one is forgotten with its rows.
            pages = self._state.pages = PageCache()
        return pages

    # -- closing -------------------------------------------------------------------------

    def _start_compaction(self) -> BackgroundCompaction:
        from omnigraph.maintain.background import BackgroundCompaction

        compaction = BackgroundCompaction(self.store)
        self.store.on_commit = compaction.note_commit
        return compaction

    def drop_caches(self) -> None:
        self.store.manifests.forget()
        self.store.datasets.forget()
        self.topology.forget()
        self._state.pages = None

    @property
    def is_closed(self) -> bool:
        return self._state.is_closed or self._is_released

    def close(self) -> None:
        """Release everything; a handle of one actor only itself."""
        if self._is_bound:
            self._is_released = True
            return
        with self._state.lock:
            self._state.is_closed = True
        self.store.close()
        if self._compaction is not None:
            self._compaction.close()
        self.store.datasets.checksums.record(now=True)
        self.drop_caches()
        self.spark.close()


class Namespace:
    """A part of the public API of a graph, such as ``graph.branches``."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {escape(self._handle.uri)}>"
