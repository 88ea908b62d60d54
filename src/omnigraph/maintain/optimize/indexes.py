"""The indexes of a schema: those declared, those existing, and building the missing ones.

Indexes are derived data: a missing one costs time, never a row. A column that cannot be indexed
yet, such as a vector column without a vector, is reported as pending and fails nothing. An existing
index that no longer fits is rebuilt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.names import branch_label
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import InputError, NotFound, OmniGraphError
from omnigraph.lang.closest import closest
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType, Property, entity_types
from omnigraph.lang.types import Scalar
from omnigraph.maintain.optimize.vector_indexes import (
    IndexChoice,
    choose_index,
    declared_vector_index,
    may_be_degraded,
    measure_recall,
    rebuild_reason,
)
from omnigraph.maintain.report import plain
from omnigraph.records import dataclass
from omnigraph.representation import brief
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.tables.segments import IndexFacts, index_facts, partitions_of
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import Coverage, IndexKind, IndexSpec, StagedTable

DAMAGED = "its files are damaged"
UNFIT = "it cannot be built from the existing values"
_BUILDS_AT_ONCE = 2
_LARGE_ROWS = 500_000
RECALL = 0.9
"""The recall that an approximate index has to reach, unless a policy sets another."""


@dataclass(frozen=True, slots=True)
class IndexState:
    """One index of the schema. ``coverage`` is None until it is built."""

    table_key: str
    column: str
    kind: IndexKind
    coverage: Coverage | None
    reason: str | None = None
    """Why it cannot be built yet."""
    rows: int = 0
    rows_outside: int = 0
    """Rows in the index, and rows that only a scan finds."""
    size: int = 0
    """Bytes of its files."""
    segments: int = 0
    created_at: datetime | None = None
    """When its newest segment was built."""
    method: str | None = None
    """``BTREE``, ``INVERTED``, or the method of a vector index."""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of a vector index, as built; of one not built, as it would be."""
    why: str | None = None
    """The reason for the parameters."""
    rebuild: str | None = None
    """Why the next ``ensure`` or ``optimize`` rebuilds it."""
    recall: float | None = None
    """The fraction of the nearest rows that it finds, if it was measured."""

    @property
    def is_pending(self) -> bool:
        return self.coverage is None

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        own = {"kind": self.kind.name.lower(), "built": not self.is_pending, "bytes": self.size}
        return {key: own[key] if key in own else plain(getattr(self, key)) for key in _STATE_KEYS}


_STATE_KEYS = (
    *("table_key", "column", "kind", "method", "built", "reason", "rows", "rows_outside"),
    *("bytes", "segments", "created_at", "parameters", "why", "rebuild", "recall"),
)


@dataclass(frozen=True, slots=True)
class IndexReport:
    """All indexes of a graph at one version, by table key and column.

    ``built`` are those that this call built, in ``seconds``.
    """

    __repr__ = brief

    indexes: tuple[IndexState, ...]
    built: tuple[tuple[str, str, IndexKind], ...] = ()
    commit_id: str | None = None
    seconds: float = 0.0

    @property
    def pending(self) -> tuple[IndexState, ...]:
        return tuple(state for state in self.indexes if state.is_pending)

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "commit_id": self.commit_id,
            "seconds": round(self.seconds, 3),
            "built": [
                {"table_key": key, "column": column, "kind": kind.name.lower()}
                for key, column, kind in self.built
            ],
            "indexes": [state.to_json() for state in self.indexes],
        }


# -- declared indexes -----------------------------------------------------------------------------


def declared_indexes(entity_type: EntityType) -> tuple[IndexSpec, ...]:
    """The indexes of a type. A String without an enum gets one for equality and one for text.

    Parameters that depend on the number of rows are still open.
    """
    specs = [IndexSpec(KEY, IndexKind.EQUALITY)]
    if isinstance(entity_type, EdgeType):
        specs += [IndexSpec("src", IndexKind.EQUALITY), IndexSpec("dst", IndexKind.EQUALITY)]
        return tuple(specs)
    for columns in entity_type.indexes:
        if len(columns) == 1:
            specs.extend(_property_indexes(entity_type.properties[columns[0]]))
    return tuple(dict.fromkeys(specs))


def _property_indexes(prop: Property) -> Iterator[IndexSpec]:
    scalar = prop.type.scalar
    if prop.type.is_list or scalar is Scalar.BLOB:
        return
    if scalar is Scalar.VECTOR:
        yield declared_vector_index(prop)
        return
    yield IndexSpec(prop.name, IndexKind.EQUALITY)
    if scalar is Scalar.STRING and not prop.type.enum_values:
        yield IndexSpec(prop.name, IndexKind.TEXT)


def obstacle(table: Table, pin: Pin, spec: IndexSpec) -> str | None:
    """Why an index cannot be built now, or None if it can."""
    if not pin.row_count:
        return "the table is empty"
    if spec.kind is IndexKind.VECTOR and not table.has_values(spec.column):
        return "no row has a vector"
    return None


def fit_index(
    table: Table, pin: Pin, spec: IndexSpec, facts: IndexFacts | None, least_recall: float | None
) -> tuple[IndexSpec, str | None]:
    """The index for the existing rows, and why the existing index has to be rebuilt, if so.

    Without ``least_recall`` no recall is measured.
    """
    fitted = choose_index(spec, pin.row_count).spec
    if facts is None:
        return fitted, None
    if spec.name in table.damaged_indexes():
        return fitted, DAMAGED
    why = rebuild_reason(facts, fitted, pin.row_count)
    if why is None and least_recall is not None and may_be_degraded(facts, fitted):
        recall = measure_recall(table, fitted)
        if recall is not None and recall < least_recall:
            why = f"it finds {recall:.2f} of the nearest rows, less than {least_recall:.2f}"
    return fitted, why


# -- existing indexes -----------------------------------------------------------------------------


def index_report(
    store: GraphStore, catalog: Catalog, snapshot: Snapshot, *, with_recall: bool = False
) -> IndexReport:
    """The state of every declared index."""
    states: list[IndexState] = []
    for entity_type in entity_types(catalog):
        pin = snapshot.pin(entity_type.table_key)
        if pin is not None:
            states.extend(_states(store, entity_type, pin, with_recall))
    return IndexReport(tuple(states))


def _states(
    store: GraphStore, entity_type: EntityType, pin: Pin, with_recall: bool
) -> Iterator[IndexState]:
    table = store.table(pin)
    coverage, facts = table.indexes(), index_facts(table)
    damaged = table.damaged_indexes()
    for spec in declared_indexes(entity_type):
        choice = choose_index(spec, pin.row_count)
        state = IndexState(
            entity_type.table_key,
            spec.column,
            spec.kind,
            coverage.get(spec.name),
            method=spec.lance_type,
        )
        existing = facts.get(spec.name)
        if existing is None:
            yield replace(
                state,
                reason=obstacle(table, pin, spec),
                rows_outside=pin.row_count,
                method=choice.spec.lance_type,
                parameters=_parameters(choice.spec, choice.spec.partitions),
                why=choice.why or None,
            )
            continue
        state = replace(
            state,
            rows=existing.rows,
            rows_outside=existing.outside,
            size=existing.size,
            segments=existing.segments,
            created_at=existing.created_at,
        )
        if spec.name in damaged:
            yield replace(state, rebuild=DAMAGED)
            continue
        if spec.kind is IndexKind.VECTOR:
            state = _with_vector_facts(table, state, choice, existing, with_recall)
        yield state


def _with_vector_facts(
    table: Table, state: IndexState, choice: IndexChoice, existing: IndexFacts, with_recall: bool
) -> IndexState:
    spec = choice.spec
    partitions = None
    try:
        partitions = partitions_of(table, spec.name)
    except OmniGraphError:
        # Verify reports the damaged file; the rest is known without it.
        with_recall = False
    built = replace(
        spec,
        method=existing.method.upper(),
        metric=existing.metric or spec.metric,
        sub_vectors=existing.sub_vectors,
    )
    return replace(
        state,
        method=built.method,
        parameters=_parameters(built, partitions),
        why=choice.why,
        rebuild=rebuild_reason(existing, spec, existing.rows + existing.outside),
        recall=measure_recall(table, built) if with_recall else None,
    )


def _parameters(spec: IndexSpec, partitions: int | None) -> dict[str, Any]:
    if spec.kind is not IndexKind.VECTOR:
        return {}
    parameters: dict[str, Any] = {
        "metric": spec.metric,
        "partitions": partitions,
        "sub_vectors": spec.sub_vectors,
        "probes": spec.probes,
        "exact": spec.is_exact,
    }
    return {name: value for name, value in parameters.items() if value is not None}


# -- building -------------------------------------------------------------------------------------

Needs = dict[str, tuple[IndexSpec, ...]]
"""The indexes to build, by table key."""


def ensure_indexes(
    store: GraphStore,
    catalog: Catalog,
    branch: str | None,
    actor: str | None,
    least_recall: float = RECALL,
) -> IndexReport:
    """Build every missing index that can be built, and rebuild those that do not fit.

    All in one commit. On a branch only tables of its own or of an ancestor branch are indexed,
    never those of main.
    """
    needs = partial(_needed, store, catalog, least_recall)
    return _build(store, catalog, branch, actor, needs)


def rebuild_indexes(
    store: GraphStore,
    catalog: Catalog,
    branch: str | None,
    actor: str | None,
    type_name: str,
    column: str | None = None,
) -> IndexReport:
    """Rebuild the indexes of a table, or of one of its columns, in one commit."""
    entity_type = _find_type(catalog, type_name)
    specs = declared_indexes(entity_type)
    if column is not None:
        columns = sorted({spec.column for spec in specs})
        specs = tuple(spec for spec in specs if spec.column == column)
        if not specs:
            raise InputError(
                f"'{type_name}' has no index on '{column}'",
                hint=f"its indexes are on {', '.join(columns)}",
            )

    def needs(snapshot: Snapshot) -> Needs:
        pin = snapshot.pin(entity_type.table_key)
        if pin is None:
            return {}
        if snapshot.branch and pin.branch is None:
            raise InputError(
                f"'{type_name}' on branch '{branch_label(branch)}' is a table of main",
                hint="rebuild it on main",
            )
        table = store.table(pin)
        possible = (spec for spec in specs if obstacle(table, pin, spec) is None)
        fitted = tuple(choose_index(spec, pin.row_count).spec for spec in possible)
        return {entity_type.table_key: fitted} if fitted else {}

    return _build(store, catalog, branch, actor, needs)


def _find_type(catalog: Catalog, name: str) -> EntityType:
    """A type by its name or the key of its table."""
    types = entity_types(catalog)
    for entity_type in types:
        if name in (entity_type.name, entity_type.table_key):
            return entity_type
    near = closest(name, [*(t.table_key for t in types), *(t.name for t in types)])
    raise NotFound(
        f"there is no type '{name}' in the schema",
        hint=f"did you mean '{near}'?" if near else "name a type, or a table such as node:Person",
    )


def _build(
    store: GraphStore,
    catalog: Catalog,
    branch: str | None,
    actor: str | None,
    needs: Callable[[Snapshot], Needs],
) -> IndexReport:
    manifest = store.manifest(branch)
    touched = needs(manifest.current())
    built: list[tuple[str, str, IndexKind]] = []
    failed: list[tuple[str, str, IndexKind]] = []

    def prepare(view: WriteView) -> PreparedWrite:
        staged: dict[str, tuple[StagedTable, ...]] = {}
        built.clear()
        failed.clear()
        wanted = dict(sorted(needs(view.snapshot).items()))
        done = _stage_all(view, wanted)
        for key, specs in wanted.items():
            step, unfit = done[key]
            if step is not None:
                staged[key] = (step,)
            for spec in specs:
                (failed if spec in unfit else built).append((key, spec.column, spec.kind))
        reached(Failpoint.INDEXES_AFTER_STAGE)
        return PreparedWrite(staged)

    commit_id = None
    started = time.monotonic()
    if touched:
        request = WriteRequest(
            WriterKind.ENSURE_INDICES,
            branch,
            frozenset(touched),
            prepare,
            actor=actor,
            schema_hash=catalog.schema_hash,
        )
        commit_id = commit_write(store, request).commit_id
    seconds = time.monotonic() - started
    report = index_report(store, catalog, manifest.current())
    states = tuple(
        replace(state, reason=UNFIT)
        if (state.table_key, state.column, state.kind) in failed
        else state
        for state in report.indexes
    )
    if commit_id is None:
        return IndexReport(states)
    return IndexReport(states, tuple(built), commit_id, seconds)


def _stage_all(
    view: WriteView, wanted: Needs
) -> dict[str, tuple[StagedTable | None, tuple[IndexSpec, ...]]]:
    """Build the indexes of all tables, those of large ones one after another.

    Lance releases the interpreter lock and uses less than two cores for most builds, so small
    tables are indexed meanwhile. A build has its column in memory: only one large column is.
    """
    tables = {key: view.table(key) for key in wanted}
    large = [key for key in wanted if view.snapshot.pins[key].row_count > _LARGE_ROWS]
    lanes = [large, *([key] for key in wanted if key not in large)]

    def build(keys: Sequence[str]) -> list[tuple[StagedTable | None, tuple[IndexSpec, ...]]]:
        return [view.stage.stage_indexes(tables[key], wanted[key]) for key in keys]

    done = ThreadExecutor(_BUILDS_AT_ONCE).run(build, [keys for keys in lanes if keys])
    order = [key for keys in lanes for key in keys]
    return dict(zip(order, chain.from_iterable(done), strict=True))


def _needed(store: GraphStore, catalog: Catalog, least_recall: float, snapshot: Snapshot) -> Needs:
    """Missing indexes that can be built, and existing ones that do not fit."""
    needs: Needs = {}
    for entity_type in entity_types(catalog):
        pin = snapshot.pin(entity_type.table_key)
        if pin is None or not pin.row_count or (snapshot.branch and pin.branch is None):
            continue
        table = store.table(pin)
        facts = index_facts(table)
        specs = []
        for spec in declared_indexes(entity_type):
            existing = facts.get(spec.name)
            if existing is None and obstacle(table, pin, spec) is not None:
                continue
            fitted, why = fit_index(table, pin, spec, existing, least_recall)
            if existing is None or why is not None:
                specs.append(fitted)
        if specs:
            needs[entity_type.table_key] = tuple(specs)
    return needs
