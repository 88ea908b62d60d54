"""The plan of a merge, table by table, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.merge.ancestry import AncestryGap, Inherited
from omnigraph.merge.bases import CommitState, MergeState, changes_between, table_versions
from omnigraph.merge.changes import TableChanges, mark_unknown
from omnigraph.merge.conflicts import Conflicts, Resolution, RowConflict, in_order, of_violation
from omnigraph.merge.rows import MergedRows, merge_rows
from omnigraph.merge.stage import LocatedRows, locate_rows
from omnigraph.write.delta import Effect, Kind, TableDelta, TableRows
from omnigraph.write.validate import Validator


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The changes of one side since a base, applied to another side."""

    deltas: dict[str, TableDelta]
    counts: dict[str, TableCounts]
    conflicts: Conflicts
    consulted: dict[str, int]
    validator: Validator
    located: dict[str, LocatedRows]
    """The replaced and deleted rows by row id, where those are known."""


def changed_tables(
    catalog: Catalog, base: MergeState, source: Snapshot, gap: AncestryGap | None
) -> dict[str, Kind]:
    """The types whose tables a merge may write.

    The source has another version of them than the base. Where the base is incomplete, it may be
    any.
    """
    kinds: Iterable[Kind] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    types = {kind.table_key: kind for kind in kinds}
    return {
        key: types[key]
        for key in sorted(types)
        if gap is not None or table_versions(base, key) != {source.table_version(key)}
    }


def plan_merge(
    store: GraphStore,
    catalog: Catalog,
    base: MergeState,
    source: Snapshot,
    target: Snapshot,
    resolution: Resolution,
    gap: AncestryGap | None = None,
) -> MergePlan:
    """Apply the changes from base to source to the target, collecting conflicts."""
    deltas: dict[str, TableDelta] = {}
    counts: dict[str, TableCounts] = {}
    conflicts: list[RowConflict] = []
    located: dict[str, LocatedRows] = {}
    for key, kind in changed_tables(catalog, base, source, gap).items():
        if source.table_version(key) == target.table_version(key):
            continue
        theirs = changes_between(store, kind, base, CommitState(source))
        if theirs.is_empty and gap is None:
            continue
        ours = changes_between(store, kind, base, CommitState(target))
        if gap is not None:
            ids = _unknown_ids(store, kind, base, gap, theirs, ours)
            theirs, ours = mark_unknown(kind, theirs, ours, ids)
        merged = merge_rows(kind, theirs, ours, resolution)
        conflicts += merged.conflicts
        if not merged.is_empty:
            deltas[key] = _delta(kind, merged)
            is_simple = isinstance(base, CommitState) and gap is None
            rows = locate_rows(kind, merged, theirs, ours) if is_simple else None
            if rows is not None:
                located[key] = rows
            counts[key] = TableCounts(
                merged.new.num_rows, merged.changed.num_rows, len(merged.deleted)
            )
    validator = Validator(store, catalog, deltas)
    judged = validator.judge(target, None)
    conflicts += [of_violation(violation) for violation in judged.violations]
    ordered = Conflicts(in_order(conflicts))
    return MergePlan(deltas, counts, ordered, judged.consulted, validator, located)


def _unknown_ids(
    store: GraphStore,
    kind: Kind,
    base: MergeState,
    gap: AncestryGap,
    theirs: TableChanges,
    ours: TableChanges,
) -> pa.Array:
    """Rows whose base is unknown, because the newest common state cannot be read.

    A side that merged exactly the lost commit has written all of its changes; one that merged a
    later commit may have got them reverted. What a side wrote after that is its own.
    """

    def written(side: TableChanges, how: Inherited) -> pa.Array:
        if how.until is None:
            return side.written
        return changes_between(store, kind, base, CommitState(how.until)).written

    source, target = written(theirs, gap.source), written(ours, gap.target)
    if gap.source.is_exact and gap.target.is_exact:
        ids = source.filter(pc.is_in(source, value_set=target))
    elif gap.source.is_exact or gap.target.is_exact:
        ids = source if gap.source.is_exact else target
    else:
        ids = pc.unique(pa.concat_arrays([source, target]))
    # Rows that both inserted are compared without a base anyway.
    new = theirs.inserted.filter(pc.is_in(theirs.inserted, value_set=ours.inserted))
    either = pa.concat_arrays([theirs.written, ours.written])
    ids = ids.filter(pc.is_in(ids, value_set=either))
    return ids.filter(pc.invert(pc.is_in(ids, value_set=new)))


def _delta(kind: Kind, merged: MergedRows) -> TableDelta:
    schema = kind.arrow_schema()
    deleted = merged.deleted.cast(pa.string())
    if not merged.new.num_rows and not merged.changed.num_rows:
        return TableDelta(kind, Effect.DELETE, None, deleted)
    rows = pa.concat_tables([merged.new, merged.changed]).cast(schema).combine_chunks()
    if not merged.changed.num_rows and not len(deleted):
        # Ids that are new to the target need no look at its table.
        return TableDelta(kind, Effect.APPEND, TableRows(rows), new_ids=True)
    return TableDelta(kind, Effect.UPSERT, TableRows(rows), deleted)
