"""Staging the plan of a merge.

Where the target descends from the base, rows keep their row ids. Then the rows to replace or delete
are known without a search for their keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.write_request import WriteView
from omnigraph.merge.changes import TableChanges
from omnigraph.merge.rows import MergedRows
from omnigraph.storage.tables.deltas import ROW_ID, delete_rows
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.types import StagedTable
from omnigraph.write.delta import Kind, TableDelta
from omnigraph.write.stage import stage_deltas

_MOST_ROWS = 100_000
"""Above this, searching by key is faster."""


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """The changes of a table, by the row ids of the target."""

    rows: pa.Table
    row_ids: np.ndarray
    new: pa.Table
    deleted: np.ndarray


def locate_rows(
    kind: Kind, merged: MergedRows, source: TableChanges, target: TableChanges
) -> LocatedRows | None:
    """The rows that a merge replaces and deletes; none where their row ids are unknown."""
    if not 0 < merged.changed.num_rows + len(merged.deleted) <= _MOST_ROWS:
        return None
    sources = [target.after]
    if source.is_straight and target.is_straight:
        sources.append(source.before)
    keys = pa.concat_arrays([rows[KEY].combine_chunks() for rows in sources])
    numbers = np.concatenate([rows[ROW_ID].to_numpy() for rows in sources])
    changed = pc.index_in(merged.changed[KEY].combine_chunks(), value_set=keys)
    deleted = pc.index_in(merged.deleted, value_set=keys)
    if changed.null_count or deleted.null_count:
        return None
    schema = kind.arrow_schema()
    return LocatedRows(
        merged.changed.cast(schema),
        numbers[changed.to_numpy()],
        merged.new.cast(schema),
        numbers[deleted.to_numpy()],
    )


def stage_merge(
    view: WriteView, deltas: dict[str, TableDelta], located: dict[str, LocatedRows]
) -> dict[str, tuple[StagedTable, ...]]:
    """Stage every table once."""
    staged: dict[str, tuple[StagedTable, ...]] = {}
    for key in sorted(deltas):
        step = _by_row_ids(view, key, located.get(key))
        if step is not None:
            staged[key] = (step,)
        else:
            staged |= stage_deltas(view, {key: deltas[key]})
    return staged


def _by_row_ids(view: WriteView, key: str, located: LocatedRows | None) -> StagedTable | None:
    if located is None:
        return None
    table = view.table(key)
    deletions = delete_rows(table, np.concatenate([located.row_ids, located.deleted]))
    if deletions is None:
        # Deleted and inserted again with the same values: search by key.
        return None
    return view.stage.stage_changes(table, deletions, located.rows, located.row_ids, located.new)
