"""Mutations: statements are executed into deltas, which are validated, staged and committed.

Statements run in order on one snapshot and the pending rows of earlier statements: the same
condition filters committed and pending rows. Nothing is staged before the last statement has run
and the deltas are valid.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.group import commit_grouped
from omnigraph.commit.receipts import Receipt
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import InputError, InternalError, ValueConversionError
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import CheckedStatement, StatementKind
from omnigraph.lang.query.typed import NOW_PARAMETER, EntityKind
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType, NodeType
from omnigraph.lang.types import Scalar
from omnigraph.lang.values.arrow import to_timestamp
from omnigraph.lang.values.columns import convert_column
from omnigraph.lang.values.spelling import key_id
from omnigraph.plan.bind import bind
from omnigraph.plan.explain import show
from omnigraph.plan.nodes import MutationPlan
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.write.blobs import LocalFiles, blob_bytes
from omnigraph.write.delta import NO_IDS, Effect, TableDelta, TableRows, refuse_wide
from omnigraph.write.grouping import MOST_ROWS, Member, MemberRows, TypeRows
from omnigraph.write.pending import PendingTable, filtered, scan_visible
from omnigraph.write.row_security import RowSecurity
from omnigraph.write.stage import stage_deltas
from omnigraph.write.validate import Validator
from omnigraph.write.validate.lookup import any_present, look_up

_ENDS = {"from": "src", "to": "dst"}


def mutate(
    store: GraphStore,
    contract: Contract,
    plan: MutationPlan,
    params: Mapping[str, Any],
    branch: str | None,
    actor: str | None,
    *,
    if_commit: str | None = None,
    idempotency_key: str | None = None,
    allow_local_files: bool = False,
    security: RowSecurity | None = None,
) -> Receipt:
    """Commit a compiled mutation with its parameters.

    ``security`` is given if the actor may not see all rows.
    """
    bound = bind(plan, params)
    mutation = Mutation(
        store, contract.catalog, bound, allow_local_files=allow_local_files, security=security
    )
    digest = fingerprint(plan, params) if idempotency_key else None
    request = WriteRequest(
        WriterKind.MUTATION,
        branch,
        mutation.touches,
        mutation.prepare,
        mutation.is_strict,
        actor,
        if_commit=if_commit,
        idempotency_key=idempotency_key,
        fingerprint=digest if security is None else security.own_fingerprint(digest),
        schema_hash=contract.schema_hash,
        member=mutation.member() if if_commit is None else None,
    )
    return commit_grouped(store, request)


class Mutation:
    """A bound mutation, which can run on a snapshot more than once."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        plan: MutationPlan,
        *,
        allow_local_files: bool = False,
        security: RowSecurity | None = None,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._plan = plan
        self._security = security
        self._files = LocalFiles.READ if allow_local_files else LocalFiles.REFUSED
        _refuse_mixed_blobs(catalog, plan)
        self.is_strict = any(step.kind is not StatementKind.INSERT for step in plan.statements)
        """Whether a changed table fails it: updates and deletes depend on the rows they read."""
        touches: set[str] = set()
        for step in plan.statements:
            entity_type = _entity_type(catalog, step)
            touches.add(entity_type.table_key)
            if step.kind is StatementKind.DELETE and isinstance(entity_type, NodeType):
                touches.update(edge.table_key for edge in _incident(catalog, entity_type))
        self.touches = frozenset(touches)
        """Every table that the statements may change."""

    def member(self) -> Member | None:
        """The mutation as a member of a group; none if it has many rows, or reads any."""
        if self.is_strict or len(self._plan.statements) > MOST_ROWS:
            return None
        return Member(self._store, self._catalog, self._inserted, self._security)

    def _inserted(self) -> MemberRows:
        """The rows of a mutation that only inserts."""
        run = self._run(None)
        return MemberRows(run.inserted(), dict(run.affected))

    def prepare(self, view: WriteView) -> PreparedWrite:
        run = self._run(view.snapshot)
        deltas = run.deltas()
        if not deltas:
            return PreparedWrite({}, met=dict(run.affected))
        validator = Validator(self._store, self._catalog, deltas, security=self._security)
        consulted = validator.check(view.snapshot)
        staged = stage_deltas(view, deltas)
        return PreparedWrite(staged, consulted, validator.check, met=dict(run.affected))

    def _run(self, snapshot: Snapshot | None) -> _Run:
        run = _Run(self._store, self._catalog, snapshot, self._files, self._security)
        for step in self._plan.statements:
            run.execute(step, _entity_type(self._catalog, step))
        return run


class _Run:
    """One execution: pending rows, deleted ids and counts. Inserts need no snapshot."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        snapshot: Snapshot | None,
        files: LocalFiles,
        security: RowSecurity | None = None,
    ) -> None:
        self._store = store
        self._security = security
        self._files = files
        self._catalog = catalog
        self._snapshot = snapshot
        self._pending: dict[str, PendingTable] = {}
        self._deleted: dict[str, pa.Array] = {}
        self._entity_types: dict[str, EntityType] = {}
        self._inserted: set[str] = set()
        self._updated: set[str] = set()
        self.affected: Counter[str] = Counter()

    def execute(self, step: CheckedStatement, entity_type: EntityType) -> None:
        self._entity_types[entity_type.table_key] = entity_type
        match step.kind:
            case StatementKind.INSERT:
                self._insert(step, entity_type)
            case StatementKind.UPDATE:
                self._update(step, entity_type)
            case StatementKind.DELETE:
                self._delete(step, entity_type)

    def deltas(self) -> dict[str, TableDelta]:
        deltas: dict[str, TableDelta] = {}
        for key, pending in self._pending.items():
            rows, effect = pending.image(), Effect.UPDATE
            if not rows.num_rows:
                continue
            if key in self._inserted:
                is_new = key not in self._updated and not self._meets(pending)
                # Appending new ids is cheaper than an upsert.
                effect = Effect.APPEND if is_new else Effect.UPSERT
            deltas[key] = TableDelta(
                pending.entity_type, effect, TableRows(rows), new_ids=effect is Effect.APPEND
            )
        for key, ids in self._deleted.items():
            if len(ids):
                deltas[key] = TableDelta(self._entity_types[key], Effect.DELETE, None, ids)
        return deltas

    def inserted(self) -> dict[str, TypeRows]:
        """All rows of inserts."""
        return {
            key: TypeRows(
                pending.entity_type, pending.image(), made_ids=not _has_key(pending.entity_type)
            )
            for key, pending in self._pending.items()
        }

    def _meets(self, pending: PendingTable) -> bool:
        """Whether a pending row has the id of a committed one; generated ids are new."""
        entity_type = pending.entity_type
        table = self._committed(entity_type) if _has_key(entity_type) else None
        return table is not None and any_present(table, pending.ids())

    # -- statements ----------------------------------------------------------------------

    def _insert(self, step: CheckedStatement, entity_type: EntityType) -> None:
        values = {
            _ENDS.get(name, name): _assigned(entity_type, name, expr, self._files)
            for name, expr in step.assignments
        }
        for prop in entity_type.properties.values():
            if not prop.type.nullable and prop.name not in values:
                raise _required(entity_type, prop.name)
        row_id = new_ulid()
        if isinstance(entity_type, NodeType) and entity_type.key:
            row_id = key_id([to_timestamp(values[name])[0].as_py() for name in entity_type.key])
        self._inserted.add(entity_type.table_key)
        self._table(entity_type).insert(row_id, values)
        self.affected[entity_type.table_key] += 1

    def _update(self, step: CheckedStatement, entity_type: EntityType) -> None:
        columns = None
        blobs = [p.name for p in entity_type.properties.values() if p.type.scalar is Scalar.BLOB]
        assigned = {name for name, _ in step.assignments}
        if set(blobs) - assigned:
            schema = entity_type.arrow_schema()
            columns = tuple(n for n in schema.names if n not in blobs or n in assigned)
        pending = self._table(entity_type, columns)
        names = [name for name in pending.schema.names if name not in blobs]
        matched = self._matching(entity_type, names, step.where, pending)
        self.affected[entity_type.table_key] += matched.num_rows
        values = [
            (name, _assigned(entity_type, name, expr, self._files))
            for name, expr in step.assignments
        ]
        if not matched.num_rows:
            return
        self._updated.add(entity_type.table_key)
        for name, value in values:
            column, field = pa.repeat(value[0], matched.num_rows), pending.schema.field(name)
            if name in matched.column_names:
                matched = matched.set_column(matched.column_names.index(name), field, column)
            else:
                matched = matched.append_column(field, column)
        pending.put(matched)

    def _delete(self, step: CheckedStatement, entity_type: EntityType) -> None:
        table = self._committed(entity_type)
        ids = NO_IDS
        if table is not None:
            ids = self._scan(entity_type.table_key, table, [KEY], step.where)[KEY].combine_chunks()
        gone = self._remove(entity_type, ids)
        if isinstance(entity_type, NodeType) and len(gone):
            for edge in _incident(self._catalog, entity_type):
                self._entity_types[edge.table_key] = edge
                self._remove(edge, self._edges_of(edge, entity_type, gone))

    def _remove(self, entity_type: EntityType, ids: pa.Array) -> pa.Array:
        """Mark rows as deleted; returns those that were not marked before."""
        deleted = self._deleted.get(entity_type.table_key, NO_IDS)
        new = ids.filter(pc.invert(pc.is_in(ids, value_set=deleted)))
        self._deleted[entity_type.table_key] = pa.concat_arrays([deleted, new])
        self.affected[entity_type.table_key] += len(new)
        return new

    def _edges_of(self, edge: EdgeType, node: NodeType, ids: pa.Array) -> pa.Array:
        table = self._committed(edge)
        if table is None:
            return NO_IDS
        conditions = []
        if edge.from_type == node.name:
            conditions.append(pc.field("src").isin(ids))
        if edge.to_type == node.name:
            conditions.append(pc.field("dst").isin(ids))
        condition = conditions[0] if len(conditions) == 1 else conditions[0] | conditions[1]
        return table.read([KEY], condition)[KEY].combine_chunks()

    # -- rows ----------------------------------------------------------------------------

    def _matching(
        self,
        entity_type: EntityType,
        names: list[str],
        condition: typed.TypedExpr | None,
        pending: PendingTable,
    ) -> pa.Table:
        """Committed rows without a pending version, and pending rows, that match a condition."""
        image = pending.image().select(names)
        matches = [filtered(image, condition)]
        table = self._committed(entity_type)
        if table is not None:
            rows = self._scan(entity_type.table_key, table, names, condition)
            rows = rows.filter(pc.invert(pc.is_in(rows[KEY], value_set=pending.ids())))
            matches.insert(0, rows.cast(image.schema))
        return pa.concat_tables(matches)

    def _scan(
        self, key: str, table: Table, names: list[str], condition: typed.TypedExpr | None
    ) -> pa.Table:
        """Committed rows that match a condition, without those that the actor does not see."""

        def fetch(key: str, ids: pa.Array, columns: Sequence[str]) -> pa.Table | None:
            nodes = self._table_of(key)
            return None if nodes is None else look_up(nodes, KEY, ids, columns)

        return scan_visible(table, key, names, condition, self._security, fetch)

    def _committed(self, entity_type: EntityType) -> Table | None:
        return self._table_of(entity_type.table_key)

    def _table_of(self, table_key: str) -> Table | None:
        """A table of the snapshot; ``None`` if it has no rows."""
        pin = None if self._snapshot is None else self._snapshot.pin(table_key)
        if pin is None:
            raise InternalError(f"'{table_key}' is not in the snapshot")
        return self._store.table(pin) if pin.row_count else None

    def _table(
        self, entity_type: EntityType, columns: tuple[str, ...] | None = None
    ) -> PendingTable:
        pending = self._pending.get(entity_type.table_key)
        if pending is None:
            refuse_wide(entity_type)
            pending = self._pending[entity_type.table_key] = PendingTable(entity_type, columns)
        return pending


def _has_key(entity_type: EntityType) -> bool:
    """Whether ids come from the values of a row; else they are generated."""
    return isinstance(entity_type, NodeType) and bool(entity_type.key)


def _incident(catalog: Catalog, node: NodeType) -> list[EdgeType]:
    return [
        edge for edge in catalog.edge_types.values() if node.name in (edge.from_type, edge.to_type)
    ]


def _assigned(
    entity_type: EntityType, name: str, expr: typed.TypedExpr, files: LocalFiles
) -> pa.Array:
    """The value of an assignment as a column of one row, converted like loaded values."""
    if not isinstance(expr, typed.Constant):
        raise InternalError(f"the value of '{name}' is not bound")
    if name in _ENDS and isinstance(entity_type, EdgeType):
        type_ = typed.STRING
    else:
        type_ = entity_type.properties[name].type
    value = list(expr.value) if isinstance(expr.value, tuple) else expr.value
    if value is None and not type_.nullable:
        raise _required(entity_type, name)
    if type_.scalar is Scalar.BLOB:
        return pa.array([_blob(entity_type, name, value, files)], pa.large_binary())
    column, problems = convert_column(name, type_, [value])
    for problem in problems:
        raise ValueConversionError(
            f"{entity_type.name}.{name}: {problem.message}",
            details={"property": name, "value": problem.value},
        )
    return column


def _required(entity_type: EntityType, name: str) -> ValueConversionError:
    return ValueConversionError(
        f"{entity_type.name}.{name} is required", details={"property": name, "value": None}
    )


def _blob(entity_type: EntityType, name: str, value: Any, files: LocalFiles) -> bytes | None:
    try:
        return blob_bytes(value, files)
    except ValueConversionError as error:
        raise ValueConversionError(
            f"{entity_type.name}.{name}: {error.message}",
            hint=error.hint,
            details={"property": name},
        ) from None


def _refuse_mixed_blobs(catalog: Catalog, plan: MutationPlan) -> None:
    """All updates of a table in one commit must assign the same Blobs; inserts assign all."""
    seen: dict[str, set[str]] = {}
    for step in plan.statements:
        entity_type = _entity_type(catalog, step)
        blobs = {p.name for p in entity_type.properties.values() if p.type.scalar is Scalar.BLOB}
        if not blobs or step.kind is StatementKind.DELETE:
            continue
        if step.kind is StatementKind.UPDATE:
            blobs &= {name for name, _ in step.assignments}
        if seen.setdefault(entity_type.table_key, blobs) != blobs:
            raise InputError(
                f"{entity_type.name}: the updates of one query must assign the same Blob "
                "properties, and all of them if it also inserts",
                hint="Split the mutation",
            )


def _entity_type(catalog: Catalog, step: CheckedStatement) -> EntityType:
    if step.entity is EntityKind.NODE:
        return catalog.node_types[step.type_name]
    return catalog.edge_types[step.type_name]


def fingerprint(plan: MutationPlan, values: Mapping[str, Any]) -> str:
    """A digest of name, statements and parameters.

    The layout of the text and the value of ``now()`` do not count: they differ in a repeat.
    """
    params = sorted((key, repr(value)) for key, value in values.items() if key != NOW_PARAMETER)
    statements = [_spelled(step) for step in plan.statements]
    return hashlib.sha256(repr((plan.name, statements, params)).encode()).hexdigest()[:32]


def _spelled(step: CheckedStatement) -> tuple[object, ...]:
    values = [(name, show(value)) for name, value in step.assignments]
    where = None if step.where is None else show(step.where)
    return str(step.kind), step.type_name, values, where
