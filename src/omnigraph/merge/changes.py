"""The difference between two states of one table, by row id.

Only rows that changed since the common ancestor are read. If one state descends from the other,
Lance reports the changed rows; two states of different branches are both compared with their common
ancestor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import EntityType, NodeType
from omnigraph.lang.schema.migrate import is_wider
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.merge.equal import Mask, same_values
from omnigraph.storage.tables.branch_list import BranchInfo
from omnigraph.storage.tables.deltas import (
    all_rows,
    changed_since,
    column_names,
    deleted_since,
    rows_of,
    rows_where,
)
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import ROW_ID, Table
from omnigraph.storage.tables.types import TableVersion
from omnigraph.storage.tables.wide_columns import is_blob, null_column

UNKNOWN = -1
"""The row id of a row whose values are unknown."""


@dataclass(frozen=True)
class TableChanges:
    """Rows that differ, before and after, each in the order of their ids.

    An id on both sides is an updated row; rows with equal values are left out.
    """

    before: pa.Table
    after: pa.Table
    is_straight: bool = False
    """Whether the later state descends from the earlier: unchanged rows keep their row ids."""
    rewritten: pa.Table | None = None
    """Rows that were written again with equal values."""

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
        return ids_without(_ids(self.after), _ids(self.before))

    @cached_property
    def deleted(self) -> pa.Array:
        return ids_without(_ids(self.before), _ids(self.after))

    @cached_property
    def updated(self) -> pa.Array:
        return ids_with(_ids(self.after), _ids(self.before))

    @property
    def same(self) -> pa.Table:
        """Rows that were written with equal values."""
        return self.after.slice(0, 0) if self.rewritten is None else self.rewritten

    @cached_property
    def written(self) -> pa.Array:
        """The ids of all rows that were written, changed or not."""
        return pc.unique(pa.concat_arrays([self.ids, _ids(self.same)]))

    def reversed(self) -> TableChanges:
        return TableChanges(self.after, self.before)

    def of_rows(self, ids: Sequence[str]) -> TableChanges:
        """The changes of some rows only."""
        some = pa.array(ids, pa.string())
        rewritten = None if self.rewritten is None else rows_with(self.rewritten, some)
        before, after = rows_with(self.before, some), rows_with(self.after, some)
        return TableChanges(before, after, self.is_straight, rewritten)


@dataclass(frozen=True)
class Earlier:
    """A type in the earlier state, where the schema has changed since."""

    entity_type: EntityType
    names: Mapping[str, str]
    """The earlier names of its columns, by their current names, without new columns."""

    def schema(self, entity_type: EntityType) -> pa.Schema:
        """Columns that can hold the values of both states."""
        old = self.entity_type.arrow_schema()
        fields = []
        for now in entity_type.arrow_schema():
            was = old.field(self.names[now.name]) if now.name in self.names else now
            if was.type != now.type:
                old_type = self.entity_type.properties[was.name].type
                new_type = entity_type.properties[now.name].type
                if not is_wider(old_type, new_type.as_nullable(old_type.nullable)):
                    now = now.with_type(was.type)
            fields.append(now)
        return pa.schema(fields)


def find_changes(
    store: GraphStore,
    entity_type: EntityType,
    before: Pin | None,
    after: Pin | None,
    earlier: Earlier | None = None,
) -> TableChanges:
    """The difference between two states of a type's table; ``None`` is an empty table."""
    return _Comparison(store, entity_type, before, earlier).between(before, after)


def diff_via_base(schema: pa.Schema, one: TableChanges, other: TableChanges) -> TableChanges:
    """The difference between two states, from the changes of each since a common base."""
    # A row that one side did not change has the values of the base.
    before = pa.concat_tables([one.after, rows_without(other.before, one.ids)])
    after = pa.concat_tables([other.after, rows_without(one.before, other.ids)])
    return _without_equal_rows(schema, before, after)


def with_unknown_rows(
    entity_type: EntityType, before: pa.Table, after: pa.Table, ids: pa.Array
) -> TableChanges:
    """Changes after which some rows are unknown; an unknown row differs from every other."""
    ids = pa.table({KEY: ids})
    rows = _marked(entity_type, after, 0)
    return TableChanges(before, pa.concat_tables([rows, _marked(entity_type, ids, UNKNOWN)]))


def mark_unknown(
    entity_type: EntityType, one: TableChanges, other: TableChanges, ids: pa.Array
) -> tuple[TableChanges, TableChanges]:
    """The changes of two sides since a state with unknown rows, which count as changed by both."""
    unknown = _marked(entity_type, pa.table({KEY: ids}), UNKNOWN)

    def with_unknown(side: TableChanges, opposite: TableChanges) -> TableChanges:
        before = pa.concat_tables([rows_without(side.before, ids), unknown])
        # A side that did not write a row has the values from before the other side wrote it.
        untouched = ids_without(ids, side.written)
        as_it_was = [rows_with(rows, untouched) for rows in (opposite.before, opposite.same)]
        after = pa.concat_tables([side.after, rows_with(side.same, ids), *as_it_was])
        return TableChanges(_sorted(before), _sorted(after))

    return with_unknown(one, other), with_unknown(other, one)


def _marked(entity_type: EntityType, rows: pa.Table, mark: int) -> pa.Table:
    """Rows with a mark instead of their row ids; missing columns are null."""
    schema = row_schema(entity_type.arrow_schema())
    columns = [
        rows[field.name] if field.name in rows.column_names else null_column(len(rows), field.type)
        for field in schema
        if field.name != ROW_ID
    ]
    marks = pa.array(np.full(len(rows), mark, np.int64))
    return pa.Table.from_arrays([*columns, marks], schema=schema)


class _Comparison:
    def __init__(
        self,
        store: GraphStore,
        entity_type: EntityType,
        before: Pin | None,
        earlier: Earlier | None,
    ) -> None:
        self._store = store
        self._entity_type = entity_type
        self._before = before
        self._earlier = earlier
        self._schema = (
            entity_type.arrow_schema() if earlier is None else earlier.schema(entity_type)
        )
        self._empty = row_schema(self._schema).empty_table()
        key = entity_type.key if isinstance(entity_type, NodeType) else ()
        if earlier is not None and isinstance(earlier.entity_type, NodeType):
            was = tuple(earlier.names.get(name, "") for name in key)
            key = key if was == earlier.entity_type.key else ()
        self._fixed = {KEY, *key}
        """Columns whose values never change in a row."""
        self._like: Table | None = None
        """A version whose columns have the names of the schema."""

    def between(self, before: Pin | None, after: Pin | None) -> TableChanges:
        if before is not None and after is not None and before.location == after.location:
            if before.table_version == after.table_version:
                # The table is not opened: it may have been removed.
                return TableChanges(self._empty, self._empty, is_straight=True)
            self._like = self._store.table(after)
            return self._related(before, after)
        return _without_equal_rows(self._schema, self._all(before), self._all(after))

    def _all(self, pin: Pin | None) -> pa.Table:
        if pin is None:
            return self._empty
        table = self._store.table(pin)
        return all_rows(table, self._schema, self._names(table))

    def _names(self, table: Table) -> Mapping[str, str]:
        """The column names in a table, by their current names, without missing columns."""
        pin = self._before
        if self._earlier is None or pin is None or not _is_at(table, pin):
            return column_names(table, self._schema, self._like)
        columns = set(table.schema.names)
        return {name: was for name, was in self._earlier.names.items() if was in columns}

    # -- states of one table -------------------------------------------------------------

    def _related(self, before: Pin, after: Pin) -> TableChanges:
        branches: Mapping[str, BranchInfo] = {}
        if before.branch is not None or after.branch is not None:
            branches = self._store.inline.branches(before.location)
        path_before, path_after = _path(before, branches), _path(after, branches)
        common = _common_state(path_before, path_after)
        if common is None:
            return _without_equal_rows(self._schema, self._all(before), self._all(after))
        base = self._store.tables.open(common.ref, common.version)
        left = self._since(base, common, before, path_before)
        right = self._since(base, common, after, path_after)
        is_straight = common == before.table_version
        return replace(diff_via_base(self._schema, left, right), is_straight=is_straight)

    def _since(
        self, base: Table, common: TableVersion, pin: Pin, path: list[TableVersion]
    ) -> TableChanges:
        """The changes of a state since its base."""
        if common == pin.table_version:
            return TableChanges(self._empty, self._empty)
        table = self._store.table(pin)
        touched = changed_since(table, common.version, self._schema, self._names(table))
        row_ids = numpy_view(touched.rows[ROW_ID])
        now = [touched.rows]
        before = [self._earlier_values(base, np.setdiff1d(row_ids, touched.created), now[0], table)]
        if self._earlier is not None and self._before is not None:
            states = (base, table) if _is_at(base, self._before) else (table, base)
            refilled = np.setdiff1d(self._refilled(self._earlier, *states), row_ids)
            if len(refilled):
                now.append(rows_of(table, refilled, self._schema, None, self._names(table)))
                before.append(self._earlier_values(base, refilled, now[1], None))
        gone = self._deleted_rows(common, path)
        before.append(rows_of(base, gone, self._schema, table, self._names(base)))
        return TableChanges(pa.concat_tables(before), pa.concat_tables(now))

    def _refilled(self, earlier: Earlier, old: Table, new: Table) -> np.ndarray:
        """Rows of both states with values in columns that only the later one has.

        Lance reports written values. Values that reappear on the way back to a state from before a
        column was dropped were not written in between.
        """
        added = [
            field for field in self._entity_type.arrow_schema() if field.name not in earlier.names
        ]
        row_ids = [
            rows_where(new, None if is_blob(field) else pc.field(field.name).is_valid())
            for field in added
        ]
        if not any(len(some) for some in row_ids):
            return np.empty(0, np.int64)
        return np.intersect1d(np.concatenate(row_ids), rows_where(old, None))

    def _earlier_values(
        self, base: Table, row_ids: np.ndarray, now: pa.Table, table: Table | None
    ) -> pa.Table:
        """Earlier values of existing rows; columns that never change are not read again."""
        wanted = pa.schema([field for field in self._schema if field.name not in self._fixed])
        rows = rows_of(base, row_ids, wanted, table, self._names(base))
        where = pc.index_in(rows[ROW_ID].combine_chunks(), value_set=_one(now[ROW_ID]))
        columns = [
            now[field.name].take(where) if field.name in self._fixed else rows[field.name]
            for field in self._schema
        ]
        return pa.Table.from_arrays([*columns, rows[ROW_ID]], schema=row_schema(self._schema))

    def _deleted_rows(self, common: TableVersion, path: list[TableVersion]) -> np.ndarray:
        """Rows of the base that were deleted since, on any branch of the path."""
        deleted = [np.empty(0, np.int64)]
        born = np.empty(0, np.int64)
        # The path goes from the state back to main; each step begins where the next one ends.
        steps = path[: [step.branch for step in path].index(common.branch) + 1]
        start = common.version
        for step in reversed(steps):
            if step.version > start:
                table = self._store.tables.open(step.ref, step.version)
                deleted.append(np.setdiff1d(deleted_since(table, start), born))
                if step is not steps[0]:
                    touched = changed_since(table, start, _KEY_ONLY, {KEY: KEY})
                    born = np.concatenate([born, touched.created])
            start = step.version
        return np.concatenate(deleted)


_KEY_ONLY = pa.schema([(KEY, pa.string())])


def _is_at(table: Table, pin: Pin) -> bool:
    return bool(table.ref == pin.ref and table.version == pin.version)


def row_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of compared rows: those of their type, and their row ids."""
    fields = [*schema, pa.field(ROW_ID, pa.int64())]
    return pa.schema([field.with_nullable(True) for field in fields])


def _without_equal_rows(schema: pa.Schema, before: pa.Table, after: pa.Table) -> TableChanges:
    """Sorted changes, without rows that are equal on both sides."""
    before, after = _sorted(before), _sorted(after)
    ids, others = _ids(before), _ids(after)
    where = pc.index_in(ids, value_set=others)
    rows = np.flatnonzero(numpy_view(where.is_valid()))
    if len(rows):
        partners = numpy_view(where.drop_null())
        one, other = before.take(pa.array(rows)), after.take(pa.array(partners))
        same: Mask = (numpy_view(one[ROW_ID]) != UNKNOWN) & (numpy_view(other[ROW_ID]) != UNKNOWN)
        for name in schema.names:
            same &= same_values(_one(one[name]), _one(other[name]))
        rewritten = other.filter(pa.array(same))
        before = before.take(pa.array(np.delete(np.arange(len(ids)), rows[same])))
        after = after.take(pa.array(np.delete(np.arange(len(others)), partners[same])))
        return TableChanges(before, after, rewritten=rewritten)
    return TableChanges(before, after)


def _path(pin: Pin, branches: Mapping[str, BranchInfo]) -> list[TableVersion]:
    """A state and the states from which its branches were forked, back to main."""
    path = [pin.table_version]
    while (branch := path[-1].branch) is not None and branch in branches:
        fork = branches[branch]
        path.append(TableVersion(pin.location, fork.parent, fork.parent_version))
    return path


def _common_state(one: list[TableVersion], other: list[TableVersion]) -> TableVersion | None:
    """The newest state that two paths have in common."""
    for step in one:
        for candidate in other:
            if step.branch == candidate.branch:
                return min(step, candidate, key=lambda state: state.version)
    return None


def _ids(rows: pa.Table) -> pa.Array:
    return _one(rows[KEY])


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def ids_with(ids: pa.Array, others: pa.Array) -> pa.Array:
    """The ids that are also in ``others``."""
    return ids.filter(pc.is_in(ids, value_set=others))


def ids_without(ids: pa.Array, others: pa.Array) -> pa.Array:
    return ids.filter(pc.invert(pc.is_in(ids, value_set=others)))


def rows_with(rows: pa.Table, ids: pa.Array) -> pa.Table:
    """The rows whose id is in ``ids``."""
    return rows.filter(pc.is_in(rows[KEY], value_set=ids))


def rows_without(rows: pa.Table, ids: pa.Array) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows[KEY], value_set=ids)))


def _sorted(rows: pa.Table) -> pa.Table:
    return rows.take(pc.sort_indices(_ids(rows))).combine_chunks()
