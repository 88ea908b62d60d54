"""From the plan of a merge to staged tables.

Where the target came from the common state, rows have the row ids that they had there. Then it is
known which rows are to be replaced or deleted, and nobody has to look for their keys.
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
"""More are found sooner by their keys."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What happens to a table, by the row ids of the target."""

    rows: pa.Table
    row_ids: np.ndarray
    new: pa.Table
    deleted: np.ndarray


def placed(
    kind: Kind, merged: MergedRows, source: TableChanges, target: TableChanges
) -> Placed | None:
    """The rows that a merge replaces and deletes; none where their row ids are not known."""
    if not 0 < merged.changed.num_rows + len(merged.deleted) <= _MOST_ROWS:
        return None
    known = [target.after]
    if source.is_straight and target.is_straight:
        known.append(source.before)
    keys = pa.concat_arrays([each[KEY].combine_chunks() for each in known])
    numbers = np.concatenate([each[ROW_ID].to_numpy() for each in known])
    changed = pc.index_in(merged.changed[KEY].combine_chunks(), value_set=keys)
    deleted = pc.index_in(merged.deleted, value_set=keys)
    if changed.null_count or deleted.null_count:
        return None
    schema = kind.arrow_schema()
    return Placed(
        merged.changed.cast(schema),
        numbers[changed.to_numpy()],
        merged.new.cast(schema),
        numbers[deleted.to_numpy()],
    )


def stage_merge(
    view: WriteView, deltas: dict[str, TableDelta], places: dict[str, Placed]
) -> dict[str, tuple[StagedTable, ...]]:
    """Stage every table once."""
    staged: dict[str, tuple[StagedTable, ...]] = {}
    for key in sorted(deltas):
        step = _by_row_ids(view, key, places.get(key))
        if step is not None:
            staged[key] = (step,)
        else:
            staged |= stage_deltas(view, {key: deltas[key]})
    return staged


def _by_row_ids(view: WriteView, key: str, place: Placed | None) -> StagedTable | None:
    if place is None:
        return None
    table = view.table(key)
    deletions = delete_rows(table, np.concatenate([place.row_ids, place.deleted]))
    if deletions is None:
        # Deleted and made again meanwhile, with the values it had: its key has to be looked for.
        return None
    return view.stage.stage_changes(table, deletions, place.rows, place.row_ids, place.new)
