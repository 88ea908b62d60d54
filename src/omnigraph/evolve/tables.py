"""The tables of a schema apply: created, altered, renamed or removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

import pyarrow as pa

from omnigraph.commit.lifecycle import table_location
from omnigraph.commit.rows import TableRow, TombstoneRow, VersionRow
from omnigraph.commit.sidecar import HardDrop
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import WriteView
from omnigraph.errors import InternalError
from omnigraph.evolve.changes import SchemaChanges, TypeChange, new_values
from omnigraph.lang.fnv import fnv1a_64
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.lang.schema.steps import DropMode
from omnigraph.records import dataclass
from omnigraph.storage.tables.alter import stage_alter, stage_repeats
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import CommittedTable, StagedTable, TableRef
from omnigraph.storage.tables.wide_columns import batch_rows


@dataclass(slots=True)
class StagedChanges:
    """The staged tables of an apply, before anything is visible."""

    tables: dict[str, list[StagedTable]] = field(default_factory=dict)
    registrations: list[TableRow] = field(default_factory=list)
    tombstones: list[TombstoneRow] = field(default_factory=list)
    created: list[VersionRow] = field(default_factory=list)
    renames: dict[str, str] = field(default_factory=dict)
    hard_drops: list[HardDrop] = field(default_factory=list)
    consulted: dict[str, int] = field(default_factory=dict)


def stage_changes(store: GraphStore, view: WriteView, changes: SchemaChanges) -> StagedChanges:
    """Stage every table; nothing is visible yet.

    The caller holds the leases of all tables and the schema lock.
    """
    return _Staging(store, view, changes).run()


class _Staging:
    def __init__(self, store: GraphStore, view: WriteView, changes: SchemaChanges) -> None:
        self._store = store
        self._view = view
        self._changes = changes
        self._out = StagedChanges()
        self._locations, self._hidden = store.manifest(None).with_state(
            lambda state, _: (dict(state.locations), dict(state.tombstones))
        )

    def run(self) -> StagedChanges:
        out, snapshot = self._out, self._view.snapshot
        # Detects publishes to any table, also by writers without our leases.
        out.consulted.update({key: pin.version for key, pin in snapshot.pins.items()})
        for change in self._changes.changed:
            self._change(change)
        for entity_type, mode in self._changes.dropped:
            pin = _pin(snapshot, entity_type)
            self._hide(pin)
            if mode is DropMode.HARD:
                out.hard_drops.append(HardDrop(pin.table_key, pin.location, pin.version))
        for entity_type in self._changes.added:
            self._add(entity_type)
        return out

    def _change(self, change: TypeChange) -> None:
        pin = _pin(self._view.snapshot, change.old)
        table = self._view.table(pin.table_key)
        steps: list[StagedTable] = []
        if change.loses:
            steps = [self._view.stage.stage_overwrite(table, _rows(table, pin, change))]
        elif change.alters:
            steps = stage_alter(self._view.stage, table, change.columns)
        new = change.new.table_key
        if new != pin.table_key:
            reached = pin.version + len(steps)
            missing = max(0, self._hidden.get(new, 0) + 1 - reached)
            steps += stage_repeats(table, reached, missing)
            self._out.renames[pin.table_key] = new
            self._out.registrations.append(TableRow(new, pin.location))
            self._out.consulted[new] = self._hidden.get(new, 0)
            self._hide(pin)
        if steps:
            self._out.tables[pin.table_key] = steps
        if change.loses:
            last = pin.version + len(steps) - 1
            self._out.hard_drops.append(HardDrop(new, pin.location, last))

    def _hide(self, pin: Pin) -> None:
        self._out.tombstones.append(TombstoneRow(pin.table_key, pin.version + 1))

    def _add(self, entity_type: EntityType) -> None:
        made = self._created(entity_type)
        key = entity_type.table_key
        self._out.registrations.append(TableRow(key, made.ref.location))
        self._out.created.append(VersionRow.of(key, made))
        self._out.consulted[key] = self._hidden.get(key, 0)

    def _created(self, entity_type: EntityType) -> CommittedTable:
        """An empty table, with versions above all hidden ones of its key."""
        key, schema = entity_type.table_key, entity_type.arrow_schema()
        inline = self._store.inline
        taken = {path for other, path in self._locations.items() if other != key}
        before = self._locations.get(key)
        has_versions = before is not None and self._store.objects.list(f"{before}/_versions")
        if before is not None and before not in taken and has_versions:
            return inline.begin_again(before, schema, self._hidden[key])
        location = _free_location(entity_type, taken)
        # Files of an unpublished attempt.
        self._store.objects.delete_prefix(location)
        if before is None:
            return inline.create(location, schema)
        return inline.begin_again(location, schema, self._hidden[key], self._numbering(before))

    def _numbering(self, location: str) -> CommittedTable | None:
        """The table at a location, whose version numbers a new table continues."""
        for key, pin in self._view.snapshot.pins.items():
            if pin.location == location:
                info = self._store.datasets.info(pin.ref, pin.version)
                if info is None:
                    raise InternalError(f"version {pin.version} of '{key}' was removed")
                return CommittedTable(pin.ref, pin.version, pin.row_count, info)
        ref = TableRef(location)
        head = self._store.tables.head(ref)
        info = self._store.datasets.info(ref, head)
        return None if info is None else CommittedTable(ref, head, 0, info)


def _pin(snapshot: Snapshot, entity_type: EntityType) -> Pin:
    pin = snapshot.pin(entity_type.table_key)
    if pin is None:
        raise InternalError(f"'{entity_type.table_key}' is in the schema but has no table")
    return pin


def _free_location(entity_type: EntityType, taken: set[str]) -> str:
    """A free location: that of its name, unless a former table of that name uses it."""
    location, life = table_location(entity_type), 1
    folder = location.partition("/")[0]
    while location in taken:
        life += 1
        location = f"{folder}/{fnv1a_64(f'{entity_type.name}#{life}'):016x}"
    return location


def _rows(table: Table, pin: Pin, change: TypeChange) -> pa.Table | pa.RecordBatchReader:
    """All rows in the new columns, without dropped values."""
    schema = change.new.arrow_schema()
    if not pin.row_count:
        return schema.empty_table()

    def batches() -> Iterator[pa.RecordBatch]:
        reads = [plan.source for plan in change.columns if plan.source is not None]
        for batch in _pieces(table.whole_rows(reads), batch_rows(schema)):
            arrays = [new_values(plan, batch) for plan in change.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _pieces(batches: Iterable[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, len(batch), rows or max(len(batch), 1)):
            yield batch.slice(start, rows)
