"""What differs between two states of the graph, row by row or in numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.names import branch_label
from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.merge.changes import TableChanges, find_changes
from omnigraph.merge.conflicts import as_json
from omnigraph.merge.images import images
from omnigraph.storage.tables import KEY
from omnigraph.write.conform import find_type
from omnigraph.write.delta import NO_IDS, Kind

KINDS = ("node", "edge")


class Operation(StrEnum):
    """What happened to a row."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """One node or edge that differs, as it was and as it is."""

    table_key: str
    kind: str
    type_name: str
    id: str
    op: Operation
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def endpoints(self) -> dict[str, str] | None:
        """The ends of an edge."""
        row = self.after or self.before or {}
        return None if self.kind == "node" else {"src": row["src"], "dst": row["dst"]}

    @property
    def properties(self) -> tuple[str, ...]:
        """What an update changed."""
        if self.before is None or self.after is None:
            return ()
        was = self.before
        return tuple(name for name, value in self.after.items() if repr(was[name]) != repr(value))

    def to_json(self) -> dict[str, Any]:
        found = {
            "table_key": self.table_key,
            "kind": self.kind,
            "type_name": self.type_name,
            "id": self.id,
            "op": self.op.value,
            "before": self.before,
            "after": self.after,
        }
        return found if self.endpoints is None else {**found, "endpoints": self.endpoints}


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes are wanted; nothing said is everything."""

    kinds: frozenset[str] | None = None
    types: frozenset[str] | None = None
    """By the keys of their tables."""
    ops: frozenset[Operation] | None = None
    locations: frozenset[str] = frozenset()
    """Where those tables lie: a type keeps its place when it gets another name."""

    @staticmethod
    def of(
        catalog: Catalog,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> ChangeFilter:
        """From what a caller says."""
        for kind in kinds or ():
            if kind not in KINDS:
                raise InputError(f"'{kind}' is no kind of change", hint="use node or edge")
        for op in ops or ():
            if op not in tuple(Operation):
                known = ", ".join(Operation)
                raise InputError(f"'{op}' is no operation", hint=f"use one of {known}")
        keys = None if types is None else {find_type(catalog, name).table_key for name in types}
        return ChangeFilter(
            None if kinds is None else frozenset(kinds),
            None if keys is None else frozenset(keys),
            None if ops is None else frozenset(map(Operation, ops)),
        )

    def within(self, snapshot: Snapshot) -> ChangeFilter:
        """The same for states in which the types of a snapshot had other names."""
        pins = [snapshot.pin(key) for key in self.types or ()]
        return replace(self, locations=frozenset(pin.location for pin in pins if pin is not None))

    def takes(self, kind: Kind, pin: Pin | None) -> bool:
        if self.kinds is not None and kind_name(kind) not in self.kinds:
            return False
        if self.types is None or kind.table_key in self.types:
            return True
        return pin is not None and pin.location in self.locations

    def text(self) -> str:
        """The same for the same filter."""
        parts = (self.kinds, self.types, self.ops)
        return ";".join("*" if part is None else ",".join(sorted(part)) for part in parts)


_SCHEMA = pa.schema(
    [
        (name, pa.string())
        for name in ("table_key", "kind", "type_name", "id", "op", "before", "after")
    ]
)


@dataclass(frozen=True, slots=True)
class Diff:
    """The net effect between two states, nodes before edges, by type and id."""

    from_version: int
    to_version: int
    branch: str
    changes: tuple[Change, ...]
    """Empty when only numbers were asked for."""
    tables: Mapping[str, TableCounts] = field(default_factory=dict)

    @property
    def stats(self) -> dict[str, Any]:
        """Inserts, updates, deletes, and which types they touch."""
        every = list(self.tables.values())
        return {
            "inserts": sum(each.inserted for each in every),
            "updates": sum(each.updated for each in every),
            "deletes": sum(each.deleted for each in every),
            "types_affected": sorted({key.partition(":")[2] for key in self.tables}),
        }

    def to_arrow(self) -> pa.Table:
        """One row for each change; the states as JSON."""
        rows = []
        for change in self.changes:
            told = change.to_json()
            for side in ("before", "after"):
                told[side] = None if told[side] is None else as_json(told[side])
            rows.append({name: told[name] for name in _SCHEMA.names})
        return pa.Table.from_pylist(rows, schema=_SCHEMA)


@dataclass(frozen=True, slots=True)
class State:
    """A state of the graph and the schema that it is read under."""

    snapshot: Snapshot
    catalog: Catalog


def find_diff(
    store: GraphStore, before: State, after: State, wanted: ChangeFilter, *, summary: bool = False
) -> Diff:
    """What differs between two states, of whatever branches."""
    changes: list[Change] = []
    tables: dict[str, TableCounts] = {}
    for kind, found in table_changes(store, before, after, wanted.within(after.snapshot)):
        counts = _counts(found, wanted)
        if counts.affected:
            tables[kind.table_key] = counts
        if not summary:
            changes += changes_of(kind, found, wanted)
    return Diff(
        before.snapshot.manifest_version,
        after.snapshot.manifest_version,
        branch_label(after.snapshot.branch),
        tuple(changes),
        tables,
    )


def table_changes(
    store: GraphStore, before: State | None, after: State, wanted: ChangeFilter
) -> Iterator[tuple[Kind, TableChanges]]:
    """What differs in every type that is wanted, nodes before edges, each by name."""
    for kind, old, new in _pairs(before, after):
        if wanted.takes(kind, new or old):
            found = find_changes(store, kind, old, new)
            if not found.is_empty:
                yield kind, found


def _pairs(before: State | None, after: State) -> Iterator[tuple[Kind, Pin | None, Pin | None]]:
    """Every type with its table in both states, whatever it was called before."""
    known = {} if before is None else {p.location: p for p in before.snapshot.pins.values()}
    found: list[tuple[Kind, Pin | None, Pin | None]] = []
    for kind in _kinds(after.catalog):
        pin = after.snapshot.pin(kind.table_key)
        old = None if pin is None else known.pop(pin.location, None)
        found.append((kind, old, pin))
    gone = [] if before is None else _kinds(before.catalog)
    for kind in gone:
        old = before.snapshot.pin(kind.table_key) if before is not None else None
        if old is not None and old.location in known:
            found.append((kind, old, None))
    yield from sorted(found, key=lambda each: (isinstance(each[0], EdgeType), each[0].name))


def _kinds(catalog: Catalog) -> list[Kind]:
    return [*catalog.node_types.values(), *catalog.edge_types.values()]


def kind_name(kind: Kind) -> str:
    return "edge" if isinstance(kind, EdgeType) else "node"


def _ids(found: TableChanges, wanted: ChangeFilter) -> dict[Operation, pa.Array]:
    """The rows that are wanted, by what happened to them."""
    every = {
        Operation.INSERT: found.inserted,
        Operation.UPDATE: found.updated,
        Operation.DELETE: found.deleted,
    }
    return {op: ids for op, ids in every.items() if wanted.ops is None or op in wanted.ops}


def _counts(found: TableChanges, wanted: ChangeFilter) -> TableCounts:
    counts = {op: len(ids) for op, ids in _ids(found, wanted).items()}
    return TableCounts(*(counts.get(op, 0) for op in Operation))


def changes_of(
    kind: Kind,
    found: TableChanges,
    wanted: ChangeFilter,
    start: int = 0,
    most: int | None = None,
) -> list[Change]:
    """Some of the changes of a table, in the order of their ids."""
    names = kind.arrow_schema().names
    ids = pa.concat_arrays([NO_IDS, *_ids(found, wanted).values()])
    page = ids.take(pc.sort_indices(ids)).slice(start, len(ids) if most is None else most)
    old = {row[KEY]: row for row in images(_rows(found.before, page), names)}
    new = {row[KEY]: row for row in images(_rows(found.after, page), names)}
    return [
        Change(
            kind.table_key,
            kind_name(kind),
            kind.name,
            row_id,
            _operation(row_id in old, row_id in new),
            old.get(row_id),
            new.get(row_id),
        )
        for row_id in page.to_pylist()
    ]


def count_of(found: TableChanges, wanted: ChangeFilter) -> int:
    """How many changes of a table are wanted."""
    return _counts(found, wanted).affected


def _rows(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows[KEY], value_set=ids))


def _operation(was: bool, is_there: bool) -> Operation:
    if not was:
        return Operation.INSERT
    return Operation.UPDATE if is_there else Operation.DELETE
