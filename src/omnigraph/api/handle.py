"""An open graph behind ``Graph``, its snapshots and its namespaces.

The store, the schema in force, the settings, the actor, and everything that is cached between
calls. ``read`` and ``write`` are where every call begins: they check that the handle is open and
that the schema files still agree. Safe to share between threads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from omnigraph.commit.history import SnapshotRef
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.schema.history import contract_at
from omnigraph.commit.schema.lock import ensure_no_schema_apply
from omnigraph.commit.snapshot import Snapshot, SnapshotLease
from omnigraph.commit.store import GraphStore
from omnigraph.embed import Embedders, EmbeddingConfig
from omnigraph.errors import Closed, ReadOnly
from omnigraph.escaping import escape
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.logs import logger
from omnigraph.plan.prepared import CompiledQueries
from omnigraph.read.context import QueryContext, TraversalMode, TraversalSettings
from omnigraph.read.limits import GATE
from omnigraph.settings import Settings
from omnigraph.storage.objects.derived import DerivedFiles
from omnigraph.storage.objects.paths import Root, parse_root
from omnigraph.topology.persisted import Persisted
from omnigraph.topology.store import Topology
from omnigraph.write.reentrancy import reject_reentrant_write

if TYPE_CHECKING:
    from omnigraph.spark.session.engine import SparkEngine
    from omnigraph.spark.session.engine import SparkLike as SparkLike
else:
    # PySpark is an extra: annotations resolve without it.
    SparkLike = Any

Mode: TypeAlias = Literal["rw", "r"]
Engine: TypeAlias = Literal["auto", "local", "spark"]

LOAD_BYTES = 1 << 30
"""From so many bytes of files on, ``auto`` loads on Spark."""
OPTIMIZE_BYTES = 4 << 30
"""From so many bytes of tables on, ``auto`` optimizes on Spark."""

_LOG = logger("omnigraph")


def parse_location(
    uri: str | PathLike[str], options: Mapping[str, str] | None, settings: Settings
) -> Root:
    """The root at an address; how to reach S3 comes from the options, then from the environment."""
    address = fspath(uri)
    if address.startswith("s3://"):
        return parse_root(address, {**settings.storage_options(), **(options or {})})
    return parse_root(address, options)


@dataclass(frozen=True, slots=True)
class SnapshotContext:
    """One state of the graph with its schema; cleanup spares it while this object lives."""

    catalog: Catalog
    snapshot: Snapshot
    target: Mapping[str, str]
    lease: SnapshotLease


class Handle:
    """What a graph that is open has in common for all its public faces."""

    def __init__(
        self,
        store: GraphStore,
        contract: Contract,
        settings: Settings,
        mode: Mode = "rw",
        actor: str | None = None,
        embedding: EmbeddingConfig | None = None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.mode: Mode = mode
        self.actor = actor
        self.is_closed = False
        self.plans = CompiledQueries()
        self.embedders = Embedders(
            embedding or EmbeddingConfig.from_options(settings.embedding_options())
        )
        derived = DerivedFiles(store.objects)
        self.topology = Topology(Persisted(derived, writable=mode == "rw"))
        self.spark = WarmSpark(settings.spark_options())
        self._contract = contract
        self._lock = threading.Lock()
        wanted = settings.traversal_mode
        self._traversal = TraversalSettings(
            None if wanted == "auto" else TraversalMode(wanted),
            settings.indexed_max_hops,
            settings.indexed_max_frontier,
        )

    @property
    def uri(self) -> str:
        return self.store.root.uri

    # -- beginning a call ----------------------------------------------------------------

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("this graph is closed", hint="open it again with Graph.open")

    def check(self) -> Contract:
        """The schema as the files have it now, checked once for each call."""
        self.check_open()
        self._contract = self.store.schema_files.check(self._contract)
        return self._contract

    def accepted(self) -> Contract:
        """The schema of the newest state; the files of an apply that died may lag behind it."""
        return contract_at(self.store, self.check(), self.store.manifest(None).current())

    def read(self, ref: SnapshotRef) -> SnapshotContext:
        """A state of the graph with the schema that it has."""
        contract = self.check()
        snapshot = ref.resolve(self.store)
        return SnapshotContext(
            contract_at(self.store, contract, snapshot).catalog,
            snapshot,
            ref.target(snapshot),
            SnapshotLease(self.uri, snapshot),
        )

    def write(self) -> Contract:
        """The schema to write under; a graph that is open for reading refuses."""
        self.check_open()
        if self.mode != "rw":
            raise ReadOnly("this graph is open for reading only", hint="open it with mode='rw'")
        reject_reentrant_write(self.store.root.uri)
        ensure_no_schema_apply(self.store)
        return self.check()

    def writer(self, actor: str | None) -> str | None:
        """Who writes: the actor of the call, or of the handle."""
        return actor or self.actor

    # -- queries -------------------------------------------------------------------------

    def query_context(self, context: SnapshotContext) -> QueryContext:
        """What a query needs beside its plan."""
        return QueryContext(
            self.store,
            context.catalog,
            context.snapshot,
            self.topology,
            self._traversal,
            self.embedders,
        )

    def turn(self, *, on_spark: bool) -> AbstractContextManager[None]:
        """A turn among small queries; none for work that waits for a network or for Spark."""
        return GATE if self.store.root.is_local and not on_spark else nullcontext()

    # -- the end -------------------------------------------------------------------------

    def drop_caches(self) -> None:
        self.store.manifests.forget()
        self.store.datasets.forget()
        self.topology.forget()

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
        self.store.datasets.checksums.record(now=True)
        self.drop_caches()
        self.spark.close()


# -- where work runs: in this process or on Spark ---------------------------------------------


def runs_on_spark(
    engine: Engine,
    spark: SparkLike,
    size: int | None = None,
    threshold: int = 0,
    content: str = "data",
) -> bool:
    """Whether Spark does the work: where ``spark`` is passed, or by size, which is logged."""
    if engine != "auto":
        return engine == "spark"
    if spark is not None:
        return True
    if size is None or size < threshold:
        return False
    from omnigraph.maintain.units import format_bytes
    from omnigraph.spark.session.engine import is_installed

    if not is_installed():
        _LOG.warning(
            f"{format_bytes(size)} of {content}; Spark is not installed, "
            "so one process does the work"
        )
        return False
    _LOG.warning(
        f"{format_bytes(size)} of {content}, so Spark does the work "
        f"(from {format_bytes(threshold)} on)"
    )
    return True


class Namespace:
    """A part of the public surface of a graph, such as ``graph.branches``."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {escape(self._handle.uri)}>"


class WarmSpark:
    """The Spark of a handle. A session that it started stays until the handle is closed."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._engine: SparkEngine | None = None

    def start(self, spark: SparkLike) -> SparkEngine:
        """An engine for one call, to be closed by the caller; nothing stays behind."""
        from omnigraph.spark.session.engine import resolve_spark

        return resolve_spark(spark, self._options)

    def open(self, spark: SparkLike) -> SparkEngine:
        """An engine for one query; the session stays for the next one."""
        with self._lock:
            if self._engine is not None and not self._engine.is_alive:
                self._engine.close()
                self._engine = None
            engine = self.start(spark)
            if self._engine is None and engine.owns:
                self._engine = self.start(spark)
            return engine

    def close(self) -> None:
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
