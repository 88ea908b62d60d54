"""The three-way merge of rows: changes of one side are applied, changes of both must agree.

Changes of different properties of one row are combined. A property that both sides changed to
different values is a conflict, and so is a row that one side deleted and the other changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError, ValueConversionError
from omnigraph.lang.schema.catalog import EdgeType, EntityType, NodeType
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.columns import convert_column, json_row
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.merge.changes import (
    UNKNOWN,
    TableChanges,
    ids_with,
    ids_without,
    rows_with,
    rows_without,
)
from omnigraph.merge.conflicts import OURS, THEIRS, Choice, ConflictKind, Resolution, RowConflict
from omnigraph.merge.equal import Mask, same_values
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import ROW_ID

ENDS = ("src", "dst")


@dataclass(frozen=True)
class MergedRows:
    """The effect of a merge on the table of the target, and its conflicts."""

    new: pa.Table
    """Rows that the target does not have."""
    changed: pa.Table
    """Rows that replace those of the target with the same ids."""
    deleted: pa.Array
    conflicts: tuple[RowConflict, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.new.num_rows or self.changed.num_rows or len(self.deleted))


def merge_rows(
    entity_type: EntityType, source: TableChanges, target: TableChanges, resolution: Resolution
) -> MergedRows:
    """Merge two sets of changes since one state, on top of the target."""
    both = ids_with(source.ids, target.ids)
    schema = _nullable_schema(entity_type)
    alone = rows_without(source.after, both).select(schema.names).cast(schema)
    new, changed = rows_with(alone, source.inserted), rows_with(alone, source.updated)
    merged = MergedRows(new, changed, ids_without(source.deleted, both))
    if len(both):
        other = _ThreeWay(entity_type, source, target, both).merge(resolution)
        merged = MergedRows(
            pa.concat_tables([merged.new, other.new]),
            pa.concat_tables([merged.changed, other.changed]),
            pa.concat_arrays([merged.deleted, other.deleted]),
            other.conflicts,
        )
    return (
        _deduplicate_edges(entity_type, merged, target)
        if isinstance(entity_type, EdgeType)
        else merged
    )


class _ThreeWay:
    """Rows that both sides changed, in three aligned states; absent rows are all null."""

    def __init__(
        self, entity_type: EntityType, source: TableChanges, target: TableChanges, ids: pa.Array
    ) -> None:
        self._entity_type = entity_type
        self._ids = ids
        self._names = entity_type.arrow_schema().names
        # Both sides changed these rows since the same state: either one has the base values.
        before, self._was = _aligned(source.before, ids, [*self._names, ROW_ID])
        self._unknown: Mask = numpy_view(before.pop(ROW_ID).fill_null(0)) == UNKNOWN
        self._base = before
        self._theirs, self._is_theirs = _aligned(source.after, ids, self._names)
        self._ours, self._is_ours = _aligned(target.after, ids, self._names)
        self._changed: dict[str, Mask] = {}
        """By column: the rows that the source changed."""
        self._differs: dict[str, Mask] = {}
        self._clashes: dict[str, Mask] = {}
        for name in self._names:
            base, ours, theirs = self._base[name], self._ours[name], self._theirs[name]
            self._changed[name] = ~same_values(base, theirs) | self._unknown
            self._differs[name] = ~same_values(ours, theirs)
            both = (~same_values(base, ours) | self._unknown) & self._changed[name]
            self._clashes[name] = both & self._differs[name]

    def merge(self, resolution: Resolution) -> MergedRows:
        differ = np.logical_or.reduce(list(self._differs.values()))
        clash = np.logical_or.reduce(list(self._clashes.values()))
        agreed = (self._is_ours == self._is_theirs) & ~differ
        combined = self._was & self._is_ours & self._is_theirs & ~agreed & ~clash
        decided = self._decided(np.flatnonzero(~agreed & ~combined), resolution)
        mixed = self._combined_rows(np.flatnonzero(combined))
        return replace(decided, changed=pa.concat_tables([mixed, decided.changed]))

    def _combined_rows(self, rows: np.ndarray) -> pa.Table:
        """Rows with the columns changed by the source, and all others from the target."""
        columns = []
        for name in self._names:
            both = pa.concat_arrays([self._theirs[name], self._ours[name]])
            indices = np.where(self._changed[name][rows], rows, rows + len(self._ids))
            columns.append(both.take(pa.array(indices)))
        return pa.Table.from_arrays(columns, schema=_nullable_schema(self._entity_type))

    # -- conflicts -----------------------------------------------------------------------

    def _decided(self, rows: np.ndarray, resolution: Resolution) -> MergedRows:
        new: list[dict[str, pa.Array]] = []
        changed: list[dict[str, pa.Array]] = []
        deleted: list[str] = []
        conflicts: list[RowConflict] = []
        for row in rows.tolist():
            conflict = self._conflict(row)
            choice = resolution.choice(conflict)
            if choice is None:
                conflicts.append(conflict)
                continue
            result = self._resolved(row, conflict, choice)
            if result is not None:
                (changed if self._is_ours[row] else new).append(result)
            elif self._is_ours[row]:
                deleted.append(self._ids[row].as_py())
        return MergedRows(
            self._table(new), self._table(changed), pa.array(deleted, pa.string()), tuple(conflicts)
        )

    def _conflict(self, row: int) -> RowConflict:
        row_id = self._ids[row].as_py()
        key = self._entity_type.table_key
        is_new = not self._was[row]
        base = None if is_new or self._unknown[row] else json_row(self._base, row)
        ours = json_row(self._ours, row) if self._is_ours[row] else None
        theirs = json_row(self._theirs, row) if self._is_theirs[row] else None
        names: tuple[str, ...] = ()
        if ours is None or theirs is None:
            who = "target" if ours is None else "source"
            kind = ConflictKind.DELETE_VS_UPDATE
            text = f"{key} '{row_id}' was changed, and the {who} deleted it"
        else:
            clashes = self._differs if is_new else self._clashes
            names = tuple(name for name in self._names if clashes[name][row])
            kind = ConflictKind.DIVERGENT_INSERT if is_new else ConflictKind.DIVERGENT_UPDATE
            what = "inserted" if is_new else "changed"
            text = f"{key} '{row_id}' was {what} on both sides, differing in {', '.join(names)}"
        return RowConflict(key, row_id, kind, text, names, base, ours, theirs)

    def _resolved(
        self, row: int, conflict: RowConflict, choice: Choice
    ) -> dict[str, pa.Array] | None:
        """The resolved row, each column with one value; ``None`` if it is deleted."""
        if not isinstance(choice, Mapping):
            return self._side(row, conflict, choice)
        start = self._side(row, conflict, OURS)
        if start is None:
            start = self._side(row, conflict, THEIRS)
        assert start is not None
        return start | _values(self._entity_type, conflict, choice)

    def _side(self, row: int, conflict: RowConflict, side: str) -> dict[str, pa.Array] | None:
        """The row with one side's value where both clash; changes of only one side are kept."""
        chosen, exists = (
            (self._ours, self._is_ours) if side == OURS else (self._theirs, self._is_theirs)
        )
        if not exists[row]:
            return None
        row_values = {}
        for name in self._names:
            column = chosen[name]
            if conflict.kind is ConflictKind.DIVERGENT_UPDATE and not self._clashes[name][row]:
                column = (self._theirs if self._changed[name][row] else self._ours)[name]
            row_values[name] = column.slice(row, 1)
        return row_values

    def _table(self, rows: list[dict[str, pa.Array]]) -> pa.Table:
        schema = _nullable_schema(self._entity_type)
        if not rows:
            return schema.empty_table()
        columns = [pa.concat_arrays([row[name] for row in rows]) for name in schema.names]
        return pa.Table.from_arrays(columns, schema=schema)


def _nullable_schema(entity_type: EntityType) -> pa.Schema:
    """The columns of a type, all nullable: nulls are checked by the validator."""
    return pa.schema([field.with_nullable(True) for field in entity_type.arrow_schema()])


def _aligned(rows: pa.Table, ids: pa.Array, names: list[str]) -> tuple[dict[str, pa.Array], Mask]:
    """Columns in the order of ids, null where there is no row, and a mask of existing rows."""
    where = pc.index_in(ids, value_set=rows[KEY].combine_chunks())
    exists = numpy_view(where.is_valid())
    columns = {name: rows[name].combine_chunks().take(where) for name in names}
    return columns, exists


def _values(
    entity_type: EntityType, conflict: RowConflict, choice: Mapping[str, Any]
) -> dict[str, pa.Array]:
    """The chosen values, each as a column of length 1."""
    columns = {}
    for name, value in choice.items():
        is_end = isinstance(entity_type, EdgeType) and name in ENDS
        key = entity_type.key if isinstance(entity_type, NodeType) else ()
        if name in key or (name not in entity_type.properties and not is_end):
            why = "is its key" if name in key else f"is not a property of {entity_type.name}"
            raise InputError(
                f"the choice for '{conflict.conflict_id}' names '{name}', which {why}",
                details={"conflict_id": conflict.conflict_id, "property": name},
            )
        type_ = PropType(Scalar.STRING) if is_end else entity_type.properties[name].type
        column, problems = convert_column(name, type_, [value])
        if problems or (value is None and not type_.nullable):
            problem = problems[0].message if problems else "it is required"
            raise ValueConversionError(
                f"the choice for '{conflict.conflict_id}': {entity_type.name}.{name}: {problem}",
                details={"conflict_id": conflict.conflict_id, "property": name},
            )
        columns[name] = column
    return columns


# -- edges inserted on both sides ----------------------------------------------------------------


def _deduplicate_edges(
    entity_type: EdgeType, merged: MergedRows, target: TableChanges
) -> MergedRows:
    """Drop new edges that the target also has, if src and dst make an edge unique."""
    if not any(set(columns) == set(ENDS) for columns in entity_type.unique):
        return merged
    mine = rows_with(target.after, target.inserted)
    if not mine.num_rows or not merged.new.num_rows:
        return merged
    names = [name for name in entity_type.arrow_schema().names if name != KEY]
    ours, theirs = (
        zip(rows["src"].to_pylist(), rows["dst"].to_pylist(), strict=True)
        for rows in (mine, merged.new)
    )
    existing = {ends: row for row, ends in enumerate(ours)}
    pairs = [(row, existing[ends]) for row, ends in enumerate(theirs) if ends in existing]
    if not pairs:
        return merged
    rows, partners = (pa.array(side) for side in zip(*pairs, strict=True))
    one, other = merged.new.take(rows), mine.take(partners)
    same = np.logical_and.reduce(
        [same_values(one[n].combine_chunks(), other[n].combine_chunks()) for n in names]
    )
    dropped = numpy_view(rows)[same]
    left = np.delete(np.arange(merged.new.num_rows), dropped)
    return replace(merged, new=merged.new.take(pa.array(left)))
