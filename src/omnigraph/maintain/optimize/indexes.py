"""Indexes as the schema asks for them: which there should be, which there are, building the rest.

They are derived: a missing one costs time, never a row. A column that cannot be indexed yet, such
as a vector column without a vector, is reported as pending and fails nothing. One that is there and
does not fit any more is built anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.names import branch_label
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import InputError, NotFound, OmniGraphError
from omnigraph.lang.closest import closest
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType, Property
from omnigraph.lang.types import Scalar
from omnigraph.maintain.optimize.vector_indexes import (
    chosen,
    declared_index,
    may_have_worn,
    recall,
    unfit,
)
from omnigraph.storage.tables.segments import IndexFacts, index_facts, partitions_of
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import Coverage, IndexKind, IndexSpec, StagedTable

DAMAGED = "its files are damaged"
UNFIT = "it cannot be built from the values that are there"
RECALL = 0.9
"""What an index that is not exact has to find, unless a policy says otherwise."""


@dataclass(frozen=True, slots=True)
class IndexState:
    """One index that the schema asks for. ``coverage`` is none while it is not built."""

    table_key: str
    column: str
    kind: IndexKind
    coverage: Coverage | None
    reason: str | None = None
    """Why it cannot be built yet."""
    rows: int = 0
    rows_outside: int = 0
    """Rows that it knows, and rows that only a scan finds."""
    size: int = 0
    """Bytes of its files."""
    segments: int = 0
    created_at: datetime | None = None
    """When its newest segment was built."""
    method: str | None = None
    """How it works: ``BTREE``, ``INVERTED``, or which kind of index of vectors."""
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of an index of vectors, as it was built; without one, as it would be."""
    why: str | None = None
    """Why the parameters are these."""
    rebuild: str | None = None
    """Why the next ``ensure`` or ``optimize`` builds it anew."""
    recall: float | None = None
    """What share of the near rows it finds, where that was asked for."""

    @property
    def is_pending(self) -> bool:
        return self.coverage is None

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "table_key": self.table_key,
            "column": self.column,
            "kind": self.kind.name.lower(),
            "method": self.method,
            "built": not self.is_pending,
            "reason": self.reason,
            "rows": self.rows,
            "rows_outside": self.rows_outside,
            "bytes": self.size,
            "segments": self.segments,
            "created_at": None if self.created_at is None else self.created_at.isoformat(),
            "parameters": dict(self.parameters),
            "why": self.why,
            "rebuild": self.rebuild,
            "recall": self.recall,
        }


@dataclass(frozen=True, slots=True)
class IndexReport:
    """All indexes of a graph at one version, by table key and column.

    ``built`` are those that this call made, in so many ``seconds``.
    """

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


# -- what the schema asks for ---------------------------------------------------------------------


def wanted_indexes(kind: NodeType | EdgeType) -> tuple[IndexSpec, ...]:
    """The indexes of a type. A free String gets one for equality and one for text.

    What depends on the number of rows is still to be chosen.
    """
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
        yield declared_index(prop)
        return
    yield IndexSpec(prop.name, IndexKind.EQUALITY)
    if scalar is Scalar.STRING and not prop.type.enum_values:
        yield IndexSpec(prop.name, IndexKind.TEXT)


def types_of(catalog: Catalog) -> Iterator[NodeType | EdgeType]:
    yield from catalog.node_types.values()
    yield from catalog.edge_types.values()


def obstacle(table: Table, pin: Pin, spec: IndexSpec) -> str | None:
    """Why an index cannot be built now, or ``None`` when it can."""
    if not pin.row_count:
        return "the table is empty"
    if spec.kind is IndexKind.VECTOR and not table.has_values(spec.column):
        return "no row has a vector"
    return None


def fitted(
    table: Table, pin: Pin, spec: IndexSpec, facts: IndexFacts | None, least_recall: float
) -> tuple[IndexSpec, str | None]:
    """An index as it is to be for the rows that are there, and why the present one does not fit."""
    choice = chosen(spec, pin.row_count).spec
    if facts is None:
        return choice, None
    if spec.name in table.damaged_indexes():
        return choice, DAMAGED
    why = unfit(facts, choice, pin.row_count)
    if why is None and may_have_worn(facts, choice):
        found = recall(table, choice)
        if found is not None and found < least_recall:
            why = f"it finds {found:.2f} of the near rows, less than {least_recall:.2f}"
    return choice, why


# -- what there is --------------------------------------------------------------------------------


def index_report(
    store: GraphStore, catalog: Catalog, snapshot: Snapshot, *, measure_recall: bool = False
) -> IndexReport:
    """What the schema asks for, and how far it is there."""
    states: list[IndexState] = []
    for kind in types_of(catalog):
        pin = snapshot.pin(kind.table_key)
        if pin is not None:
            states.extend(_states(store, kind, pin, measure_recall))
    return IndexReport(tuple(states))


def _states(
    store: GraphStore, kind: NodeType | EdgeType, pin: Pin, measure_recall: bool
) -> Iterator[IndexState]:
    table = store.table(pin)
    known, facts = table.indexes(), index_facts(table)
    damaged = table.damaged_indexes()
    for spec in wanted_indexes(kind):
        choice = chosen(spec, pin.row_count)
        state = IndexState(
            kind.table_key, spec.column, spec.kind, known.get(spec.name), method=spec.lance_type
        )
        found = facts.get(spec.name)
        if found is None:
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
            rows=found.rows,
            rows_outside=found.outside,
            size=found.size,
            segments=found.segments,
            created_at=found.created_at,
        )
        if spec.name in damaged:
            yield replace(state, rebuild=DAMAGED)
            continue
        yield _of_vectors(table, state, choice.spec, choice.why, found, measure_recall)


def _of_vectors(
    table: Table,
    state: IndexState,
    spec: IndexSpec,
    why: str,
    found: IndexFacts,
    measure_recall: bool,
) -> IndexState:
    if spec.kind is not IndexKind.VECTOR:
        return state
    partitions = None
    try:
        partitions = partitions_of(table, spec.name)
    except OmniGraphError:
        # A file that is damaged is for verify to name; the rest is known without it.
        measure_recall = False
    built = replace(
        spec,
        method=found.method.upper(),
        metric=found.metric or spec.metric,
        sub_vectors=found.sub_vectors,
    )
    return replace(
        state,
        method=built.method,
        parameters=_parameters(built, partitions),
        why=why,
        rebuild=unfit(found, spec, found.rows + found.outside),
        recall=recall(table, built) if measure_recall else None,
    )


def _parameters(spec: IndexSpec, partitions: int | None) -> dict[str, Any]:
    if spec.kind is not IndexKind.VECTOR:
        return {}
    told: dict[str, Any] = {
        "metric": spec.metric,
        "partitions": partitions,
        "sub_vectors": spec.sub_vectors,
        "probes": spec.probes,
        "exact": spec.is_exact,
    }
    return {name: value for name, value in told.items() if value is not None}


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
    """Build every index that is missing and can be built, or does not fit, in one commit.

    On a branch only tables that it or an ancestor branch owns are indexed; main's stay main's.
    """

    def needs(snapshot: Snapshot) -> Needs:
        return _needed(store, catalog, snapshot, least_recall)

    return _build(store, catalog, branch, actor, needs)


def rebuild_indexes(
    store: GraphStore,
    catalog: Catalog,
    branch: str | None,
    actor: str | None,
    what: str,
    column: str | None = None,
) -> IndexReport:
    """Build the indexes of a table, or of one column of it, whatever there is, in one commit."""
    kind = _named(catalog, what)
    specs = wanted_indexes(kind)
    if column is not None:
        columns = sorted({spec.column for spec in specs})
        specs = tuple(spec for spec in specs if spec.column == column)
        if not specs:
            raise InputError(
                f"'{what}' has no index on '{column}'", hint=f"it has some on {', '.join(columns)}"
            )

    def needs(snapshot: Snapshot) -> Needs:
        pin = snapshot.pin(kind.table_key)
        if pin is None:
            return {}
        if snapshot.branch and pin.branch is None:
            raise InputError(
                f"'{what}' on branch '{branch_label(branch)}' is main's table",
                hint="rebuild it on main",
            )
        table = store.table(pin)
        possible = (spec for spec in specs if obstacle(table, pin, spec) is None)
        found = tuple(chosen(spec, pin.row_count).spec for spec in possible)
        return {kind.table_key: found} if found else {}

    return _build(store, catalog, branch, actor, needs)


def _named(catalog: Catalog, what: str) -> NodeType | EdgeType:
    """A type by its name or the key of its table."""
    known = {kind.table_key: kind for kind in types_of(catalog)}
    for kind in known.values():
        if what in (kind.name, kind.table_key):
            return kind
    near = closest(what, [*known, *(kind.name for kind in known.values())])
    raise NotFound(
        f"there is no type and no table '{what}'",
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
    receipt = None
    builder = _Builder(needs)
    started = time.monotonic()
    if touched:
        request = WriteRequest(
            WriterKind.ENSURE_INDICES,
            branch,
            frozenset(touched),
            builder.prepare,
            actor=actor,
            schema_hash=catalog.schema_hash,
        )
        receipt = commit_write(store, request)
    seconds = time.monotonic() - started
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
    return IndexReport(states, tuple(builder.built), receipt.commit_id, seconds)


class _Builder:
    """Stages the indexes that are needed of whatever snapshot it is shown."""

    def __init__(self, needs: Callable[[Snapshot], Needs]) -> None:
        self._needs = needs
        self.built: list[tuple[str, str, IndexKind]] = []
        self.failed: list[tuple[str, IndexSpec]] = []

    def prepare(self, view: WriteView) -> PreparedWrite:
        staged: dict[str, tuple[StagedTable, ...]] = {}
        self.built, self.failed = [], []
        for key, specs in sorted(self._needs(view.snapshot).items()):
            step, failed = view.stage.stage_indexes(view.table(key), specs)
            if step is not None:
                staged[key] = (step,)
            self.failed += [(key, spec) for spec in failed]
            self.built += [(key, spec.column, spec.kind) for spec in specs if spec not in failed]
        reached(Failpoint.INDEXES_AFTER_STAGE)
        return PreparedWrite(staged)


def _needed(store: GraphStore, catalog: Catalog, snapshot: Snapshot, least_recall: float) -> Needs:
    """Indexes that are missing and can be built, and those that do not fit."""
    found: Needs = {}
    for kind in types_of(catalog):
        pin = snapshot.pin(kind.table_key)
        if pin is None or not pin.row_count or (snapshot.branch and pin.branch is None):
            continue
        table = store.table(pin)
        facts = index_facts(table)
        specs = []
        for spec in wanted_indexes(kind):
            known = facts.get(spec.name)
            if known is None and obstacle(table, pin, spec) is not None:
                continue
            choice, why = fitted(table, pin, spec, known, least_recall)
            if known is None or why is not None:
                specs.append(choice)
        if specs:
            found[kind.table_key] = tuple(specs)
    return found
