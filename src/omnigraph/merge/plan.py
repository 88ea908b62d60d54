"""What a merge would do: table by table, before anything is written."""

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
from omnigraph.merge.changes import TableChanges, doubted
from omnigraph.merge.conflicts import Conflicts, Resolution, RowConflict, in_order, of_violation
from omnigraph.merge.rows import MergedRows, merge_rows
from omnigraph.merge.stage import Placed, placed
from omnigraph.write.delta import Effect, Kind, TableDelta, TableRows
from omnigraph.write.validate import Validator


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The changes of one side since a base, on top of another side."""

    deltas: dict[str, TableDelta]
    counts: dict[str, TableCounts]
    conflicts: Conflicts
    consulted: dict[str, int]
    validator: Validator
    places: dict[str, Placed]
    """Where the rows lie that are replaced or deleted, if that is known."""


def changed_tables(
    catalog: Catalog, base: MergeState, source: Snapshot, gap: AncestryGap | None
) -> dict[str, Kind]:
    """The types whose tables a merge may write.

    The source has another version of them than the base. Where the base does not say everything
    that both sides have in common, it may be any.
    """
    kinds: Iterable[Kind] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    found = {kind.table_key: kind for kind in kinds}
    return {
        key: found[key]
        for key in sorted(found)
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
    """Bring the changes from base to source onto the target; what cannot be is a conflict."""
    deltas: dict[str, TableDelta] = {}
    counts: dict[str, TableCounts] = {}
    conflicts: list[RowConflict] = []
    homes: dict[str, Placed] = {}
    for key, kind in changed_tables(catalog, base, source, gap).items():
        if source.table_version(key) == target.table_version(key):
            continue
        theirs = changes_between(store, kind, base, CommitState(source))
        if theirs.is_empty and gap is None:
            continue
        ours = changes_between(store, kind, base, CommitState(target))
        if gap is not None:
            ids = _unsure_ids(store, kind, base, gap, theirs, ours)
            theirs, ours = doubted(kind, theirs, ours, ids)
        merged = merge_rows(kind, theirs, ours, resolution)
        conflicts += merged.conflicts
        if not merged.is_empty:
            deltas[key] = _delta(kind, merged)
            is_simple = isinstance(base, CommitState) and gap is None
            home = placed(kind, merged, theirs, ours) if is_simple else None
            if home is not None:
                homes[key] = home
            counts[key] = TableCounts(
                merged.new.num_rows, merged.changed.num_rows, len(merged.deleted)
            )
    validator = Validator(store, catalog, deltas)
    judged = validator.judge(target, None)
    conflicts += [of_violation(violation) for violation in judged.violations]
    found = Conflicts(in_order(conflicts))
    return MergePlan(deltas, counts, found, judged.consulted, validator, homes)


def _unsure_ids(
    store: GraphStore,
    kind: Kind,
    base: MergeState,
    gap: AncestryGap,
    theirs: TableChanges,
    ours: TableChanges,
) -> pa.Array:
    """Rows that were perhaps different when both sides last had the same.

    A side that merged just what is lost has written all that it changed; one that merged something
    later may have got it set back. What a side wrote after it had all of it is its own.
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
    # What both inserted is compared without a base anyway.
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
