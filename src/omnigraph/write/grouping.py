"""Mutations, appends and loads as members of a group: each is validated on the ones before it.

Members have no id and no unique value in common, so their rows are committed in one step as if
they were committed one after the other: nothing that a member wrote is replaced by a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import MemberPart, PreparedWrite, WriteView
from omnigraph.errors import LimitExceeded
from omnigraph.lang.schema.catalog import Catalog, EntityType
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Effect, TableDelta, TableRows
from omnigraph.write.row_security import RowSecurity
from omnigraph.write.stage import stage_deltas
from omnigraph.write.validate import GroupState, Validator

MOST_ROWS = 256
"""A write with more rows is committed by itself."""
_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TypeRows:
    """Whole rows of one type.

    ``is_strict``: an existing id is an error, else its row is replaced; ``made_ids``: the ids were
    generated, so no other row has one of them.
    """

    entity_type: EntityType
    rows: pa.Table
    is_strict: bool = False
    made_ids: bool = False


def type_rows(delta: TableDelta) -> TypeRows:
    """The rows of a delta in memory; one that appends is strict."""
    schema = delta.entity_type.arrow_schema()
    rows = schema.empty_table() if delta.rows is None else delta.rows.select(schema.names)
    return TypeRows(delta.entity_type, rows, delta.effect is Effect.APPEND, delta.made_ids)


@dataclass(frozen=True, slots=True)
class MemberRows:
    """The rows of one write by table key, and what its receipt and commit say about them."""

    tables: Mapping[str, TypeRows]
    met: Mapping[str, int] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A write that only inserts or replaces whole rows, which do not depend on what is there."""

    store: GraphStore
    catalog: Catalog
    make: Callable[[], MemberRows]
    security: RowSecurity | None = None
    """Given if the actor of the write may not see all rows."""

    @cached_property
    def content(self) -> MemberRows:
        return self.make()

    def get_ready(self) -> None:
        """Convert the rows."""
        if sum(table.rows.nbytes for table in self.content.tables.values()) > _MOST_BYTES:
            raise LimitExceeded("the rows of a member of a group are too large")

    def begin_group(self, view: WriteView) -> RowGroup:
        return RowGroup(self.store, self.catalog, view)


class RowGroup:
    """The rows of a group, member by member."""

    def __init__(self, store: GraphStore, catalog: Catalog, view: WriteView) -> None:
        self._store = store
        self._catalog = catalog
        self._view = view
        self._state = GroupState(store, view.snapshot)
        self._taken: dict[tuple[str, tuple[str, ...]], set[Any]] = {}
        self._consulted: dict[str, int] = {}
        self._deltas: dict[str, list[TableDelta]] = {}
        self._parts: list[MemberPart] = []

    def expect(self, members: Sequence[Member]) -> None:
        """Look up what is needed to validate some members, all at once."""
        for member in members:
            columns_of = _key_only if member.security is None else member.security.columns
            for table in member.content.tables.values():
                self._state.expect(
                    table.entity_type, table.rows, made_ids=table.made_ids, columns_of=columns_of
                )
        self._state.read()

    def add(self, member: Member) -> bool:
        """Add a member that is valid after the others; ``False`` if it overlaps with one."""
        tables = member.content.tables
        values = {at: own for key in sorted(tables) for at, own in _values(tables[key])}
        if any(not own.isdisjoint(self._taken.get(at, ())) for at, own in values.items()):
            return False
        existing = {key: self._existing(table) for key, table in tables.items()}
        deltas = {key: _delta(table, existing[key]) for key, table in tables.items()}
        validator = Validator(
            self._store, self._catalog, deltas, group=self._state, security=member.security
        )
        self._consulted |= validator.check(self._view.snapshot)
        for at, own in values.items():
            self._taken.setdefault(at, set()).update(own)
        for key, delta in deltas.items():
            self._state.add(key, tables[key].rows)
            self._deltas.setdefault(key, []).append(delta)
        self._parts.append(_part(member.content, existing))
        return True

    def stage(self) -> tuple[PreparedWrite, Sequence[MemberPart]]:
        """Stage every table once. A consulted table that moves later undoes the group."""
        deltas: dict[str, TableDelta] = {}
        for key, rows in self._state.rows().items():
            effects = {delta.effect for delta in self._deltas[key]}
            effect = Effect.APPEND if effects == {Effect.APPEND} else Effect.UPSERT
            entity_type = self._deltas[key][0].entity_type
            deltas[key] = TableDelta(entity_type, effect, TableRows(rows.combine_chunks()))
        staged = stage_deltas(self._view, deltas)
        consulted = {key: seen for key, seen in self._consulted.items() if key not in staged}
        return PreparedWrite(staged, consulted), self._parts

    def _existing(self, table: TypeRows) -> int:
        """How many of the rows have the id of a committed one."""
        if table.made_ids:
            return 0
        key, ids = table.entity_type.table_key, table.rows[KEY].combine_chunks()
        return len(self._state.existing(key, ids))


def _key_only(_table_key: str) -> Sequence[str]:
    return (KEY,)


def _delta(table: TypeRows, existing: int) -> TableDelta:
    is_new = not existing
    effect = Effect.APPEND if is_new or table.is_strict else Effect.UPSERT
    rows = TableRows(table.rows)
    return TableDelta(table.entity_type, effect, rows, new_ids=is_new, made_ids=table.made_ids)


def _values(table: TypeRows) -> Iterator[tuple[tuple[str, tuple[str, ...]], set[Any]]]:
    """The ids and the unique values of rows, by table and columns; nulls are not compared."""
    for columns in ((KEY,), *table.entity_type.unique):
        given = table.rows.select(list(columns))
        for column in columns:
            given = given.filter(pc.is_valid(given[column]))
        own = set(zip(*(given[column].to_pylist() for column in columns), strict=True))
        yield (table.entity_type.table_key, columns), own


def _part(content: MemberRows, existing: Mapping[str, int]) -> MemberPart:
    ids = {key: tuple(table.rows[KEY].to_pylist()) for key, table in content.tables.items()}
    tables = {key: TableCounts(len(own) - existing[key], existing[key]) for key, own in ids.items()}
    return MemberPart(ids, tables, content.met, content.extra)
