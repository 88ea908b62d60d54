"""What a merge would do: table by table, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.merge.bases import Committed, State, changes_between, place, places
from omnigraph.merge.changes import doubted
from omnigraph.merge.conflicts import Conflict, Conflicts, Resolution, in_order, of_violation
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


def changed_tables(catalog: Catalog, base: State, source: Snapshot) -> dict[str, Kind]:
    """The types whose tables the source has another version of than the base."""
    kinds: Iterable[Kind] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    found = {kind.table_key: kind for kind in kinds}
    return {
        key: found[key] for key in sorted(found) if places(base, key) != {place(source.pin(key))}
    }


def plan_merge(
    store: GraphStore,
    catalog: Catalog,
    base: State,
    source: Snapshot,
    target: Snapshot,
    resolution: Resolution,
) -> MergePlan:
    """Bring the changes from base to source onto the target; what cannot be is a conflict."""
    deltas: dict[str, TableDelta] = {}
    counts: dict[str, TableCounts] = {}
    conflicts: list[Conflict] = []
    homes: dict[str, Placed] = {}
    is_early = isinstance(base, Committed) and base.is_early
    for key, kind in changed_tables(catalog, base, source).items():
        if place(source.pin(key)) == place(target.pin(key)):
            continue
        theirs = changes_between(store, kind, base, Committed(source))
        if theirs.is_empty and not is_early:
            continue
        ours = changes_between(store, kind, base, Committed(target))
        if is_early:
            theirs, ours = doubted(kind, theirs, ours)
        merged = merge_rows(kind, theirs, ours, resolution)
        conflicts += merged.conflicts
        if not merged.is_empty:
            deltas[key] = _delta(kind, merged)
            home = placed(kind, merged, theirs, ours) if isinstance(base, Committed) else None
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
