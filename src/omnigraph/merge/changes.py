"""What differs between two states of one table, by the ids of the rows.

Only what changed since the two states parted is read. Where one state came from the other, Lance
says which rows changed; two states of different branches are both compared with the one that they
came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.migrate import is_wider
from omnigraph.merge.equal import Mask, same_values
from omnigraph.storage.tables.blobs import is_blob
from omnigraph.storage.tables.deltas import (
    ROW_ID,
    all_rows,
    changed_since,
    column_names,
    deleted_since,
    rows_of,
    rows_where,
)
from omnigraph.storage.tables.inline import BranchInfo
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.widths import null_column

UNSURE = -1
"""In the place of its row id: a row whose values nobody knows."""


@dataclass(frozen=True)
class TableChanges:
    """Rows that differ, as they were and as they are, each in the order of their ids.

    An id on both sides is a row that changed; none is there whose values are all the same.
    """

    before: pa.Table
    after: pa.Table
    is_straight: bool = False
    """Whether the later state came from the earlier: a row that did not change has its row id."""
    rewritten: pa.Table | None = None
    """Rows that were written again until they held what they had held."""

    @property
    def is_empty(self) -> bool:
        return not self.before.num_rows and not self.after.num_rows

    @cached_property
    def ids(self) -> pa.Array:
        """The ids of all rows that differ, in order."""
        both = pa.concat_arrays([_ids(self.before), _ids(self.after)])
        return pc.unique(both).take(pc.sort_indices(pc.unique(both)))

    @cached_property
    def inserted(self) -> pa.Array:
        return _only(_ids(self.after), _ids(self.before))

    @cached_property
    def deleted(self) -> pa.Array:
        return _only(_ids(self.before), _ids(self.after))

    @cached_property
    def updated(self) -> pa.Array:
        ids = _ids(self.after)
        return ids.filter(pc.is_in(ids, value_set=_ids(self.before)))

    @property
    def same(self) -> pa.Table:
        """Rows that were written and hold what they had held."""
        return self.after.slice(0, 0) if self.rewritten is None else self.rewritten

    @cached_property
    def written(self) -> pa.Array:
        """The ids of all rows that were written, whatever came of it."""
        return pc.unique(pa.concat_arrays([self.ids, _ids(self.same)]))

    def reversed(self) -> TableChanges:
        return TableChanges(self.after, self.before)


@dataclass(frozen=True)
class Earlier:
    """A type as it was in the state before, when the schema has changed since."""

    kind: NodeType | EdgeType
    names: Mapping[str, str]
    """What its columns were called, by their names now; those that are new are not there."""

    def schema(self, kind: NodeType | EdgeType) -> pa.Schema:
        """Columns that hold the values of both states."""
        old = self.kind.arrow_schema()
        fields = []
        for now in kind.arrow_schema():
            was = old.field(self.names[now.name]) if now.name in self.names else now
            if was.type != now.type and not self._is_wider(kind, now.name):
                now = now.with_type(was.type)
            fields.append(now)
        return pa.schema(fields)

    def _is_wider(self, kind: NodeType | EdgeType, name: str) -> bool:
        now, was = kind.properties[name].type, self.kind.properties[self.names[name]].type
        return is_wider(was, now.as_nullable(was.nullable))

    def added(self, kind: NodeType | EdgeType) -> list[pa.Field]:
        """The columns that are new, as they are now."""
        return [field for field in kind.arrow_schema() if field.name not in self.names]


def find_changes(
    store: GraphStore,
    kind: NodeType | EdgeType,
    before: Pin | None,
    after: Pin | None,
    earlier: Earlier | None = None,
) -> TableChanges:
    """What differs between two states of the table of a type; none is a table without rows."""
    return _Comparison(store, kind, before, earlier).between(before, after)


def apart(kind: NodeType | EdgeType, one: TableChanges, other: TableChanges) -> TableChanges:
    """What differs between two states, from what each changed since the same third one."""
    return _across(kind.arrow_schema(), one, other)


def with_unsure(
    kind: NodeType | EdgeType, before: pa.Table, after: pa.Table, unsure: pa.Array
) -> TableChanges:
    """Changes after which some rows are there of which nobody knows the values.

    Such a row differs from every other.
    """
    unknown = pa.table({KEY: unsure})
    known = _marked(kind, after, 0)
    return TableChanges(before, pa.concat_tables([known, _marked(kind, unknown, UNSURE)]))


def doubted(
    kind: NodeType | EdgeType, one: TableChanges, other: TableChanges, ids: pa.Array
) -> tuple[TableChanges, TableChanges]:
    """The changes of two sides since a state that does not say how some rows were.

    These count as written by both.
    """
    unknown = _marked(kind, pa.table({KEY: ids}), UNSURE)

    def doubt(side: TableChanges, opposite: TableChanges) -> TableChanges:
        before = pa.concat_tables([_without(side.before, ids), unknown])
        # What a side did not write it has as it was before the other side wrote it.
        untouched = _only(ids, side.written)
        as_it_was = [_with(rows, untouched) for rows in (opposite.before, opposite.same)]
        after = pa.concat_tables([side.after, _with(side.same, ids), *as_it_was])
        return TableChanges(_sorted(before), _sorted(after))

    return doubt(one, other), doubt(other, one)


def _marked(kind: NodeType | EdgeType, rows: pa.Table, mark: int) -> pa.Table:
    """Rows with a mark in the place of their row ids; columns that they lack are null."""
    schema = _row_schema(kind.arrow_schema())
    columns = [
        rows[field.name] if field.name in rows.column_names else null_column(len(rows), field.type)
        for field in schema
        if field.name != ROW_ID
    ]
    marks = pa.array(np.full(len(rows), mark, np.int64))
    return pa.Table.from_arrays([*columns, marks], schema=schema)


@dataclass(frozen=True, slots=True)
class _State:
    """A version of a table on the branch that holds it."""

    branch: str | None
    version: int


class _Comparison:
    def __init__(
        self,
        store: GraphStore,
        kind: NodeType | EdgeType,
        before: Pin | None,
        earlier: Earlier | None,
    ) -> None:
        self._store = store
        self._kind = kind
        self._before = before
        self._earlier = earlier
        self._schema = kind.arrow_schema() if earlier is None else earlier.schema(kind)
        self._fixed = {KEY, *_lasting_key(kind, earlier)}
        """Columns in which a row always has the value that it began with."""
        self._like: Table | None = None
        """A version in which the columns have the names of the schema."""

    def between(self, before: Pin | None, after: Pin | None) -> TableChanges:
        if before is not None and after is not None and before.location == after.location:
            if (before.branch, before.version) == (after.branch, after.version):
                # Not even opened: it may be gone, which changes nothing here.
                return TableChanges(self._nothing(), self._nothing(), is_straight=True)
            self._like = self._store.table(after)
            return self._related(before, after)
        return _settled(self._schema, self._all(before), self._all(after))

    def _all(self, pin: Pin | None) -> pa.Table:
        if pin is None:
            return self._nothing()
        table = self._store.table(pin)
        return all_rows(table, self._schema, self._names(table))

    def _names(self, table: Table) -> Mapping[str, str]:
        """What the columns are called in a table, those that it has."""
        pin = self._before
        if self._earlier is None or pin is None or not _is_at(table, pin):
            return column_names(table, self._schema, self._like)
        there = set(table.schema.names)
        return {name: was for name, was in self._earlier.names.items() if was in there}

    def _nothing(self) -> pa.Table:
        return _row_schema(self._schema).empty_table()

    # -- states of one table -------------------------------------------------------------

    def _related(self, before: Pin, after: Pin) -> TableChanges:
        known: Mapping[str, BranchInfo] = {}
        if before.branch is not None or after.branch is not None:
            known = self._store.inline.branches(before.location)
        path_before, path_after = _path(before, known), _path(after, known)
        met = _meeting(path_before, path_after)
        if met is None:
            return _settled(self._schema, self._all(before), self._all(after))
        there = self._table(before.location, met)
        left = self._since(there, met, before, path_before)
        right = self._since(there, met, after, path_after)
        is_straight = met == _State(before.branch, before.version)
        return replace(_across(self._schema, left, right), is_straight=is_straight)

    def _since(self, there: Table, met: _State, pin: Pin, path: list[_State]) -> TableChanges:
        """What a state changed since the one that it came from."""
        if met == _State(pin.branch, pin.version):
            return TableChanges(self._nothing(), self._nothing())
        table = self._store.table(pin)
        touched = changed_since(table, met.version, self._schema, self._names(table))
        row_ids = touched.rows[ROW_ID].to_numpy()
        now, before = [touched.rows], []
        before.append(self._kept(there, np.setdiff1d(row_ids, touched.created), now[0], table))
        refilled = np.setdiff1d(self._refilled(there, table), row_ids)
        if len(refilled):
            now.append(rows_of(table, refilled, self._schema, None, self._names(table)))
            before.append(self._kept(there, refilled, now[1], None))
        gone = self._gone(met, pin, path)
        before.append(rows_of(there, gone, self._schema, table, self._names(there)))
        return TableChanges(pa.concat_tables(before), pa.concat_tables(now))

    def _refilled(self, there: Table, table: Table) -> np.ndarray:
        """Rows of both states that have values in columns which only the later one knows.

        Lance says of values that were put in when they were written. Those that come back on the
        way to a state from before a column was dropped were never written in between.
        """
        earlier, pin = self._earlier, self._before
        if earlier is None or pin is None:
            return np.empty(0, np.int64)
        old, new = (there, table) if _is_at(there, pin) else (table, there)
        found = [
            rows_where(new, None if is_blob(field) else pc.field(field.name).is_valid())
            for field in earlier.added(self._kind)
        ]
        if not any(len(some) for some in found):
            return np.empty(0, np.int64)
        return np.intersect1d(np.concatenate(found), rows_where(old, None))

    def _kept(
        self, there: Table, row_ids: np.ndarray, now: pa.Table, table: Table | None
    ) -> pa.Table:
        """Rows as they were that still are there; what never changes is not read again."""
        wanted = pa.schema([field for field in self._schema if field.name not in self._fixed])
        rows = rows_of(there, row_ids, wanted, table, self._names(there))
        where = pc.index_in(rows[ROW_ID].combine_chunks(), value_set=_one(now[ROW_ID]))
        columns = [
            now[field.name].take(where) if field.name in self._fixed else rows[field.name]
            for field in self._schema
        ]
        return pa.Table.from_arrays([*columns, rows[ROW_ID]], schema=_row_schema(self._schema))

    def _gone(self, met: _State, pin: Pin, path: list[_State]) -> np.ndarray:
        """Rows of the state before that are not there any more, along the branches between."""
        found = [np.empty(0, np.int64)]
        born = np.empty(0, np.int64)
        # The path leads back from the state; each of its steps begins where the next one ends.
        steps = path[: path.index(_on(path, met.branch)) + 1]
        start = met.version
        for step in reversed(steps):
            if step.version > start:
                table = self._table(pin.location, step)
                found.append(np.setdiff1d(deleted_since(table, start), born))
                if step is not steps[0]:
                    touched = changed_since(table, start, _KEY_ONLY, {KEY: KEY})
                    born = np.concatenate([born, touched.created])
            start = step.version
        return np.concatenate(found)

    def _table(self, location: str, state: _State) -> Table:
        return self._store.tables.open(TableRef(location, state.branch), state.version)


_KEY_ONLY = pa.schema([(KEY, pa.string())])


def _is_at(table: Table, pin: Pin) -> bool:
    return bool(table.ref == pin.ref and table.version == pin.version)


def _lasting_key(kind: NodeType | EdgeType, earlier: Earlier | None) -> tuple[str, ...]:
    """The key of a type, if it was the key in both states."""
    if not isinstance(kind, NodeType):
        return ()
    if earlier is not None and isinstance(earlier.kind, NodeType):
        was = tuple(earlier.names.get(name, "") for name in kind.key)
        return kind.key if was == earlier.kind.key else ()
    return kind.key


def _row_schema(schema: pa.Schema) -> pa.Schema:
    fields = [*schema, pa.field(ROW_ID, pa.int64())]
    return pa.schema([field.with_nullable(True) for field in fields])


def _across(schema: pa.Schema, one: TableChanges, other: TableChanges) -> TableChanges:
    # A row that one side did not touch is there as it was when they parted.
    before = pa.concat_tables([one.after, _without(other.before, one.ids)])
    after = pa.concat_tables([other.after, _without(one.before, other.ids)])
    return _settled(schema, before, after)


def _settled(schema: pa.Schema, before: pa.Table, after: pa.Table) -> TableChanges:
    """In order, without the rows that are the same on both sides."""
    before, after = _sorted(before), _sorted(after)
    ids, others = _ids(before), _ids(after)
    where = pc.index_in(ids, value_set=others)
    rows = np.flatnonzero(where.is_valid().to_numpy(zero_copy_only=False))
    if len(rows):
        partners = where.drop_null().to_numpy()
        one, other = before.take(pa.array(rows)), after.take(pa.array(partners))
        same: Mask = (one[ROW_ID].to_numpy() != UNSURE) & (other[ROW_ID].to_numpy() != UNSURE)
        for name in schema.names:
            same &= same_values(_one(one[name]), _one(other[name]))
        rewritten = other.filter(pa.array(same))
        before = before.take(pa.array(np.delete(np.arange(len(ids)), rows[same])))
        after = after.take(pa.array(np.delete(np.arange(len(others)), partners[same])))
        return TableChanges(before, after, rewritten=rewritten)
    return TableChanges(before, after)


def _path(pin: Pin, known: Mapping[str, BranchInfo]) -> list[_State]:
    """A state and those that its branches were forked from, back to main."""
    path = [_State(pin.branch, pin.version)]
    while path[-1].branch is not None:
        info = known.get(path[-1].branch)
        if info is None:
            break
        path.append(_State(info.parent, info.parent_version))
    return path


def _meeting(one: list[_State], other: list[_State]) -> _State | None:
    """The newest state that two paths have in common."""
    for step in one:
        for candidate in other:
            if step.branch == candidate.branch:
                return _State(step.branch, min(step.version, candidate.version))
    return None


def _on(path: list[_State], branch: str | None) -> _State:
    return next(step for step in path if step.branch == branch)


def _ids(rows: pa.Table) -> pa.Array:
    return _one(rows[KEY])


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _only(ids: pa.Array, others: pa.Array) -> pa.Array:
    return ids.filter(pc.invert(pc.is_in(ids, value_set=others)))


def _without(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows[KEY], value_set=ids)))


def _with(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows[KEY], value_set=ids))


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.take(pc.sort_indices(_ids(rows))).combine_chunks()
