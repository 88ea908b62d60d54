"""Indexes as the schema asks for them: which there should be, which there are, building the rest.

They are derived: a missing one costs time, never a row. A column that cannot be indexed yet, such
as a vector column without a vector, is reported as pending and fails nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.protocol import Prepared, WriteRequest, WriteView, commit_write
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType, Property
from omnigraph.lang.types import Scalar
from omnigraph.storage.table import Table
from omnigraph.storage.table_types import Coverage, IndexKind, IndexSpec, StagedTable
from omnigraph.storage.tables import KEY

_VECTOR_ANNOTATION = "vector"
UNFIT = "it cannot be built from the values that are there"


@dataclass(frozen=True, slots=True)
class IndexState:
    """One index that the schema asks for. ``coverage`` is none while it is not built."""

    table_key: str
    column: str
    kind: IndexKind
    coverage: Coverage | None
    reason: str | None = None
    """Why it cannot be built yet."""

    @property
    def is_pending(self) -> bool:
        return self.coverage is None


@dataclass(frozen=True, slots=True)
class IndexReport:
    """All indexes of a graph at one version, by table key and column.

    ``built`` are those that this call made.
    """

    indexes: tuple[IndexState, ...]
    built: tuple[tuple[str, str, IndexKind], ...] = ()
    commit_id: str | None = None

    @property
    def pending(self) -> tuple[IndexState, ...]:
        return tuple(state for state in self.indexes if state.is_pending)


def wanted_indexes(kind: NodeType | EdgeType) -> tuple[IndexSpec, ...]:
    """The indexes of a type. A free String gets one for equality and one for text."""
    specs = [IndexSpec(KEY, IndexKind.EQUALITY)]
    if isinstance(kind, EdgeType):
        specs += [IndexSpec("src", IndexKind.EQUALITY), IndexSpec("dst", IndexKind.EQUALITY)]
        return tuple(specs)
    for columns in kind.indexes:
        if len(columns) == 1:
            specs.extend(_property_indexes(kind.properties[columns[0]]))
    return tuple(dict.fromkeys(specs))


def _property_indexes(prop: Property) -> Iterator[IndexSpec]:
    scalar = prop.type.scalar
    if prop.type.is_list or scalar is Scalar.BLOB:
        return
    if scalar is Scalar.VECTOR:
        yield IndexSpec(prop.name, IndexKind.VECTOR, metric=_metric(prop))
        return
    yield IndexSpec(prop.name, IndexKind.EQUALITY)
    if scalar is Scalar.STRING and not prop.type.enum_values:
        yield IndexSpec(prop.name, IndexKind.TEXT)


def _metric(prop: Property) -> str:
    found = prop.annotation(_VECTOR_ANNOTATION)
    return str(found.value) if found is not None and found.value else "cosine"


def index_report(store: GraphStore, catalog: Catalog, snapshot: Snapshot) -> IndexReport:
    """What the schema asks for, and how far it is there."""
    states: list[IndexState] = []
    for kind in types_of(catalog):
        pin = snapshot.pin(kind.table_key)
        if pin is not None:
            states.extend(_states(store, kind, pin))
    return IndexReport(tuple(states))


def _states(store: GraphStore, kind: NodeType | EdgeType, pin: Pin) -> Iterator[IndexState]:
    table = store.table(pin)
    known = table.indexes()
    for spec in wanted_indexes(kind):
        coverage = known.get(spec.name)
        reason = None if coverage is not None else obstacle(table, pin, spec)
        yield IndexState(kind.table_key, spec.column, spec.kind, coverage, reason)


def obstacle(table: Table, pin: Pin, spec: IndexSpec) -> str | None:
    """Why an index cannot be built now, or ``None`` when it can."""
    if not pin.row_count:
        return "the table is empty"
    if spec.kind is IndexKind.VECTOR and not table.has_values(spec.column):
        return "no row has a vector"
    return None


def ensure_indexes(
    store: GraphStore, catalog: Catalog, branch: str | None, actor: str | None
) -> IndexReport:
    """Build every index that is missing and can be built, in one commit.

    On a branch only tables that it or an ancestor branch owns are indexed; main's stay main's.
    """
    manifest = store.manifest(branch)
    missing = _missing(store, catalog, manifest.current())
    receipt = None
    builder = _Builder(store, catalog)
    if missing:
        request = WriteRequest(
            WriterKind.ENSURE_INDICES,
            branch,
            frozenset(missing),
            builder.prepare,
            actor=actor,
            schema_hash=catalog.schema_hash,
        )
        receipt = commit_write(store, request)
    report = index_report(store, catalog, manifest.current())
    failed = {(key, spec.column, spec.kind) for key, spec in builder.failed}
    states = tuple(
        replace(state, reason=UNFIT)
        if (state.table_key, state.column, state.kind) in failed
        else state
        for state in report.indexes
    )
    if receipt is None or receipt.commit_id is None:
        return IndexReport(states)
    return IndexReport(states, tuple(builder.built), receipt.commit_id)


class _Builder:
    """Stages the missing indexes of whatever snapshot it is shown."""

    def __init__(self, store: GraphStore, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self.built: list[tuple[str, str, IndexKind]] = []
        self.failed: list[tuple[str, IndexSpec]] = []

    def prepare(self, view: WriteView) -> Prepared:
        missing = _missing(self._store, self._catalog, view.snapshot)
        staged: dict[str, tuple[StagedTable, ...]] = {}
        self.built, self.failed = [], []
        for key, specs in sorted(missing.items()):
            step, failed = view.stage.stage_indexes(view.table(key), specs)
            if step is not None:
                staged[key] = (step,)
            self.failed += [(key, spec) for spec in failed]
            self.built += [(key, spec.column, spec.kind) for spec in specs if spec not in failed]
        reached(Failpoint.INDEXES_AFTER_STAGE)
        return Prepared(staged)


def _missing(
    store: GraphStore, catalog: Catalog, snapshot: Snapshot
) -> dict[str, tuple[IndexSpec, ...]]:
    found: dict[str, tuple[IndexSpec, ...]] = {}
    for kind in types_of(catalog):
        pin = snapshot.pin(kind.table_key)
        if pin is None or not pin.row_count or (snapshot.branch and pin.branch is None):
            continue
        table = store.table(pin)
        known = table.indexes()
        specs = tuple(
            spec
            for spec in wanted_indexes(kind)
            if spec.name not in known and obstacle(table, pin, spec) is None
        )
        if specs:
            found[kind.table_key] = specs
    return found


def types_of(catalog: Catalog) -> Iterator[NodeType | EdgeType]:
    yield from catalog.node_types.values()
    yield from catalog.edge_types.values()
