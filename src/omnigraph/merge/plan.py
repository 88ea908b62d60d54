"""Plans a merge, table by table, before anything is written, and stages it.

If the target descends from the base, rows keep their row ids. Then the rows to replace or delete
are known without a search by key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.group_members import WrittenIds
from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import WriteView
from omnigraph.lang.schema.catalog import Catalog, EntityType, entity_types
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.merge.bases import (
    AncestryGap,
    Inherited,
    MergeState,
    changes_between,
    table_versions,
)
from omnigraph.merge.changes import TableChanges, ids_with, ids_without, mark_unknown
from omnigraph.merge.conflicts import Conflicts, Resolution, RowConflict, of_violation
from omnigraph.merge.rows import MergedRows, merge_rows
from omnigraph.records import dataclass
from omnigraph.storage.tables.deltas import delete_rows
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import ROW_ID
from omnigraph.storage.tables.types import StagedTable
from omnigraph.write.delta import Effect, TableDelta, TableRows
from omnigraph.write.stage import stage_deltas
from omnigraph.write.validate import Validator

_MOST_ROWS = 100_000
"""Above this number of replaced rows, a search by key is faster."""


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """The changes of a table, by the row ids of the target."""

    rows: pa.Table
    row_ids: np.ndarray
    new: pa.Table
    deleted: np.ndarray


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The changes of one side since a base, applied to another side."""

    deltas: dict[str, TableDelta]
    counts: dict[str, TableCounts]
    conflicts: Conflicts
    consulted: dict[str, int]
    validator: Validator
    located: dict[str, LocatedRows]
    """The replaced and deleted rows by row id, where the row ids are known."""


def changed_tables(
    catalog: Catalog,
    base: MergeState,
    source: Snapshot,
    gap: AncestryGap | None,
    ids: WrittenIds | None = None,
) -> dict[str, EntityType]:
    """The types whose tables a merge may write: all of them if the base is incomplete.

    With ``ids``, only the tables of these rows.
    """
    types = {entity_type.table_key: entity_type for entity_type in entity_types(catalog)}
    return {
        key: types[key]
        for key in sorted(types)
        if (ids is None or key in ids)
        and (gap is not None or table_versions(base, key) != {source.table_version(key)})
    }


def plan_merge(
    store: GraphStore,
    catalog: Catalog,
    base: MergeState,
    source: Snapshot,
    target: Snapshot,
    resolution: Resolution,
    gap: AncestryGap | None = None,
    ids: WrittenIds | None = None,
) -> MergePlan:
    """Apply the changes from base to source to the target, collecting conflicts.

    ``ids`` restrict the changes to some rows of some tables.
    """
    deltas: dict[str, TableDelta] = {}
    counts: dict[str, TableCounts] = {}
    conflicts: list[RowConflict] = []
    located: dict[str, LocatedRows] = {}
    for key, entity_type in changed_tables(catalog, base, source, gap, ids).items():
        if source.table_version(key) == target.table_version(key):
            continue
        theirs = changes_between(store, entity_type, base, source)
        if ids is not None:
            theirs = theirs.of_rows(ids[key])
        if theirs.is_empty and gap is None:
            continue
        ours = changes_between(store, entity_type, base, target)
        if gap is not None:
            unknown = _unknown_ids(store, entity_type, base, gap, theirs, ours)
            theirs, ours = mark_unknown(entity_type, theirs, ours, unknown)
        merged = merge_rows(entity_type, theirs, ours, resolution)
        conflicts += merged.conflicts
        if not merged.is_empty:
            deltas[key] = _delta(entity_type, merged)
            changed, deleted = merged.changed.num_rows, len(merged.deleted)
            counts[key] = TableCounts(merged.new.num_rows, changed, deleted)
            is_simple = isinstance(base, Snapshot) and gap is None
            if is_simple and 0 < changed + deleted <= _MOST_ROWS:
                rows = locate_rows(entity_type, merged, theirs, ours)
                located |= {} if rows is None else {key: rows}
    validator = Validator(store, catalog, deltas)
    judged = validator.judge(target, None)
    conflicts += [of_violation(violation) for violation in judged.violations]
    conflicts.sort(key=lambda c: (c.table_key, c.row_id or "", c.kind.value, c.message))
    ordered = Conflicts(tuple(conflicts))
    return MergePlan(deltas, counts, ordered, judged.consulted, validator, located)


def _unknown_ids(
    store: GraphStore,
    entity_type: EntityType,
    base: MergeState,
    gap: AncestryGap,
    theirs: TableChanges,
    ours: TableChanges,
) -> pa.Array:
    """Rows whose base is unknown, because the newest common state cannot be read.

    The states in which a side had just merged the lost commits have all of their changes, except
    where a conflict was resolved otherwise. Later writes of the side are its own changes, and may
    have reverted some. If no side has such states, any row that one of them changed is unknown.
    """

    def written(how: Inherited) -> pa.Array | None:
        if how.states is None:
            return None
        changes = (changes_between(store, entity_type, base, state) for state in how.states)
        return pa.concat_arrays(
            [pa.array([], pa.string()), *(change.written for change in changes)]
        )

    source, target = written(gap.source), written(gap.target)
    if source is not None and target is not None:
        ids = ids_with(source, target)
    elif source is not None:
        ids = source
    elif target is not None:
        ids = target
    else:
        ids = pa.concat_arrays([theirs.written, ours.written])
    prefix = f"{entity_type.table_key}/"
    resolved = [key.removeprefix(prefix) for key in gap.resolved if key.startswith(prefix)]
    ids = pc.unique(pa.concat_arrays([ids, pa.array(sorted(resolved), ids.type)]))
    # Rows that both sides inserted are compared without a base anyway.
    new = ids_with(theirs.inserted, ours.inserted)
    either = pa.concat_arrays([theirs.written, ours.written])
    return ids_without(ids_with(ids, either), new)


def _delta(entity_type: EntityType, merged: MergedRows) -> TableDelta:
    schema = entity_type.arrow_schema()
    deleted = merged.deleted.cast(pa.string())
    if not merged.new.num_rows and not merged.changed.num_rows:
        return TableDelta(entity_type, Effect.DELETE, None, deleted)
    rows = pa.concat_tables([merged.new, merged.changed]).cast(schema).combine_chunks()
    if not merged.changed.num_rows and not len(deleted):
        # Ids that are new to the target need no search in its table.
        return TableDelta(entity_type, Effect.APPEND, TableRows(rows), new_ids=True)
    return TableDelta(entity_type, Effect.UPSERT, TableRows(rows), deleted)


def locate_rows(
    entity_type: EntityType, merged: MergedRows, source: TableChanges, target: TableChanges
) -> LocatedRows | None:
    """The rows that a merge replaces and deletes; ``None`` where their row ids are unknown."""
    sources = [target.after]
    if source.is_straight and target.is_straight:
        sources.append(source.before)
    keys = pa.concat_arrays([rows[KEY].combine_chunks() for rows in sources])
    numbers = np.concatenate([numpy_view(rows[ROW_ID]) for rows in sources])
    changed = pc.index_in(merged.changed[KEY].combine_chunks(), value_set=keys)
    deleted = pc.index_in(merged.deleted, value_set=keys)
    if changed.null_count or deleted.null_count:
        return None
    schema = entity_type.arrow_schema()
    return LocatedRows(
        merged.changed.cast(schema),
        numbers[numpy_view(changed)],
        merged.new.cast(schema),
        numbers[numpy_view(deleted)],
    )


def stage_merge(
    view: WriteView, deltas: dict[str, TableDelta], located: dict[str, LocatedRows]
) -> dict[str, tuple[StagedTable, ...]]:
    """Stage every table once."""
    staged: dict[str, tuple[StagedTable, ...]] = {}
    for key in sorted(deltas):
        rows, deletions = located.get(key), None
        if rows is not None:
            table = view.table(key)
            # No rows remain if they were deleted and inserted again with the same values.
            deletions = delete_rows(table, np.concatenate([rows.row_ids, rows.deleted]))
        if rows is None or deletions is None:
            staged |= stage_deltas(view, {key: deltas[key]})
        else:
            stage = view.stage.stage_changes
            staged[key] = (stage(table, deletions, rows.rows, rows.row_ids, rows.new),)
    return staged
