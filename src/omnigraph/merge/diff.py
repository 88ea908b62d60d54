"""The difference between two states of the graph: schema events, and rows or their counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.group_members import WrittenIds
from omnigraph.commit.metadata import CommitMetadata, SchemaEvent
from omnigraph.commit.names import branch_label
from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.store import GraphStore
from omnigraph.errors import LimitExceeded
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.lang.schema.identified import IdentifiedSchema, phase, schema_difference
from omnigraph.lang.schema.steps import AddType
from omnigraph.lang.values.columns import json_rows
from omnigraph.merge.change_filter import ROW_OPERATIONS, ChangeFilter, Operation
from omnigraph.merge.changes import TableChanges, rows_with
from omnigraph.merge.conflicts import as_json
from omnigraph.merge.states import (
    SchemaSnapshot,
    changes_of_type,
    is_seen_whole,
    kind_name,
    wanted_types,
)
from omnigraph.merge.visible_changes import VisibleChanges
from omnigraph.records import dataclass
from omnigraph.representation import brief, counts_html
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import NO_IDS


@dataclass(frozen=True, slots=True)
class Change:
    """One changed node or edge, before and after."""

    table_key: str
    kind: str
    type_name: str
    id: str
    op: Operation
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def endpoints(self) -> dict[str, str] | None:
        """The endpoints of an edge."""
        row = self.after or self.before or {}
        return None if self.kind == "node" else {"src": row["src"], "dst": row["dst"]}

    @property
    def properties(self) -> tuple[str, ...]:
        """The properties that an update changed."""
        if self.before is None or self.after is None:
            return ()
        was = self.before
        return tuple(name for name, value in self.after.items() if repr(was[name]) != repr(value))

    def to_json(self) -> dict[str, Any]:
        record = {name: getattr(self, name) for name in _NAMES} | {"op": self.op.value}
        return record if self.endpoints is None else {**record, "endpoints": self.endpoints}


_NAMES = tuple(field.name for field in fields(Change))
_SCHEMA = pa.schema([(name, pa.string()) for name in (*_NAMES, "schema_event")])


def plain_rows(
    events: Iterable[SchemaEvent], changes: Iterable[Change]
) -> Iterator[dict[str, str | None]]:
    """Events and changes as rows of text columns; images and events are JSON."""
    for event in events:
        yield dict.fromkeys(_SCHEMA.names) | {
            "table_key": event.table_key,
            "kind": event.type_kind,
            "type_name": event.type_name,
            "op": Operation.SCHEMA.value,
            "schema_event": as_json(event.to_json()),
        }
    for change in changes:
        images = {"before": change.before, "after": change.after}
        texts = {side: None if row is None else as_json(row) for side, row in images.items()}
        plain = {name: getattr(change, name) for name in _NAMES}
        yield plain | texts | {"op": change.op.value, "schema_event": None}


@dataclass(frozen=True, slots=True)
class Diff:
    """The net difference between two states: the schema first, then nodes before edges."""

    __repr__ = brief

    from_version: int
    to_version: int
    branch: str
    changes: tuple[Change, ...]
    """By type and id, with the names of the later state; empty for a summary."""
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    schema_events: tuple[SchemaEvent, ...] = ()
    """Changes of types and properties; rows of a dropped type are not listed."""

    @property
    def is_empty(self) -> bool:
        return not self.tables and not self.schema_events

    @property
    def stats(self) -> dict[str, Any]:
        """The numbers of inserts, updates and deletes, and the changed types."""
        tables = list(self.tables.values())
        return {
            "inserts": sum(counts.inserted for counts in tables),
            "updates": sum(counts.updated for counts in tables),
            "deletes": sum(counts.deleted for counts in tables),
            "types_affected": sorted({key.partition(":")[2] for key in self.tables}),
        }

    def _repr_html_(self) -> str:
        title = f"{self.branch}: version {self.from_version} to {self.to_version}"
        return counts_html(title, self.tables)

    def to_arrow(self) -> pa.Table:
        """One row per event and change; images and events are JSON."""
        rows = list(plain_rows(self.schema_events, self.changes))
        return pa.Table.from_pylist(rows, schema=_SCHEMA)


def find_diff(
    store: GraphStore,
    before: SchemaSnapshot,
    after: SchemaSnapshot,
    wanted: ChangeFilter,
    *,
    summary: bool = False,
    max_changes: int | None = None,
) -> Diff:
    """The difference between two states, of any branches; refused above ``max_changes``."""
    changes: list[Change] = []
    tables: dict[str, TableCounts] = {}
    wanted = wanted.resolve([after.schema, before.schema])
    for entity_type, rows in table_changes(store, before, after, wanted):
        counts = counts_of(rows, wanted)
        if counts.affected:
            tables[entity_type.table_key] = counts
        if summary:
            continue
        if max_changes is not None and len(changes) + counts.affected > max_changes:
            raise LimitExceeded(
                f"there are more than {max_changes} changes between the two states",
                hint="ask for a summary, or for some types only",
                details={"max_changes": max_changes},
            )
        changes += changes_of(entity_type, rows, wanted)
    events = filter(wanted.takes_event, events_between(before.schema, after.schema))
    return Diff(
        before.snapshot.manifest_version,
        after.snapshot.manifest_version,
        branch_label(after.snapshot.branch),
        tuple(changes),
        tables,
        tuple(events),
    )


def table_changes(
    store: GraphStore, before: SchemaSnapshot | None, after: SchemaSnapshot, wanted: ChangeFilter
) -> Iterator[tuple[EntityType, TableChanges]]:
    """The changes of every wanted type: nodes before edges, in the order of names.

    A type is compared with itself, whatever its earlier name. A dropped type has no changes. Each
    state is seen through its own view.
    """
    if not is_seen_whole(before, after):
        yield from VisibleChanges(store, before, after).tables(wanted)
        return
    for entity_type in wanted_types(after, wanted):
        changes = changes_of_type(store, before, after, entity_type)
        if not changes.is_empty:
            yield entity_type, changes


def restricted(
    changes: Iterable[tuple[EntityType, TableChanges]], ids: WrittenIds | None
) -> Iterator[tuple[EntityType, TableChanges]]:
    """The changes of the rows in ``ids``, by table key of the later state; all if ``None``."""
    for entity_type, table in changes:
        own = table if ids is None else table.of_rows(ids.get(entity_type.table_key, ()))
        if not own.is_empty:
            yield entity_type, own


def _ids(changes: TableChanges, wanted: ChangeFilter) -> dict[Operation, pa.Array]:
    """The wanted rows, by operation."""
    every = {
        Operation.INSERT: changes.inserted,
        Operation.UPDATE: changes.updated,
        Operation.DELETE: changes.deleted,
    }
    return {op: ids for op, ids in every.items() if wanted.ops is None or op in wanted.ops}


def counts_of(changes: TableChanges, wanted: ChangeFilter) -> TableCounts:
    """The number of wanted changes of a table, by operation."""
    counts = {op: len(ids) for op, ids in _ids(changes, wanted).items()}
    return TableCounts(*(counts.get(op, 0) for op in ROW_OPERATIONS))


def changes_of(
    entity_type: EntityType,
    changes: TableChanges,
    wanted: ChangeFilter,
    start: int = 0,
    most: int | None = None,
) -> list[Change]:
    """At most ``most`` changes of a table from ``start`` on, ordered by id."""
    schema = entity_type.arrow_schema()
    ids = pa.concat_arrays([NO_IDS, *_ids(changes, wanted).values()])
    page = ids.take(pc.sort_indices(ids)).slice(start, len(ids) if most is None else most)
    old = {row[KEY]: row for row in json_rows(rows_with(changes.before, page), schema)}
    new = {row[KEY]: row for row in json_rows(rows_with(changes.after, page), schema)}
    return [
        Change(
            entity_type.table_key,
            kind_name(entity_type),
            entity_type.name,
            row_id,
            _operation(row_id in old, row_id in new),
            old.get(row_id),
            new.get(row_id),
        )
        for row_id in page.to_pylist()
    ]


def _operation(was: bool, is_there: bool) -> Operation:
    if not was:
        return Operation.INSERT
    return Operation.UPDATE if is_there else Operation.DELETE


# -- schema events --------------------------------------------------------------------------------


def recorded_events(row: CommitRow) -> tuple[SchemaEvent, ...]:
    """The events recorded in a commit; empty unless it is a schema apply of this program."""
    events = CommitMetadata.of(row).schema_events
    return tuple(sorted(events, key=lambda event: phase(event.kind)))


def events_between(
    before: IdentifiedSchema | None, after: IdentifiedSchema
) -> Iterator[SchemaEvent]:
    """The net difference of two schemas; ``None`` is a schema without types."""
    for identified in schema_difference(before, after):
        step = identified.step.to_json()
        # The mode of a drop is only known from its commit.
        step.pop("mode", None)
        if isinstance(identified.step, AddType):
            step |= after.types[identified.type_id].shape_json()
        yield SchemaEvent(step, identified.type_id, identified.property_id)
