"""Turns deltas into staged tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.commit.write_request import WriteView
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import StagedTable
from omnigraph.storage.tables.upserts import NEW, Replacement, row_ids_of
from omnigraph.write.delta import Deltas, Effect, RowSource, TableDelta
from omnigraph.write.fragments import FragmentRows


def stage_deltas(view: WriteView, deltas: Deltas) -> dict[str, tuple[StagedTable, ...]]:
    """Stage every non-empty delta; one commit per table."""
    staged: dict[str, tuple[StagedTable, ...]] = {}
    for key in sorted(deltas):
        step = _stage(view, deltas[key])
        if step is not None:
            staged[key] = (step,)
    return staged


def _stage(view: WriteView, delta: TableDelta) -> StagedTable | None:
    if delta.is_empty:
        return None
    table = view.table(delta.table_key)
    if delta.rows is None:
        if delta.replaces:
            empty = delta.entity_type.arrow_schema().empty_table()
            return view.stage.stage_overwrite(table, empty)
        return view.stage.stage_delete_keys(table, delta.deleted)
    if isinstance(delta.rows, FragmentRows):
        return delta.rows.stage(view, table, delta.effect)
    match delta.effect:
        case Effect.APPEND:
            return view.stage.stage_append(table, delta.rows.data())
        case Effect.UPSERT:
            if delta.rows.is_large or len(delta.deleted):
                return _stage_changes(view, table, delta.rows, delta.deleted)
            return view.stage.stage_upsert(table, delta.rows.data())
        case Effect.UPDATE:
            return view.stage.stage_update(table, delta.rows.data())
        case Effect.OVERWRITE:
            return view.stage.stage_overwrite(table, delta.rows.data())
        case Effect.DELETE:
            return view.stage.stage_delete_keys(table, delta.deleted)


def _stage_changes(
    view: WriteView, table: Table, rows: RowSource, deleted: pa.Array
) -> StagedTable:
    """Stage new rows, replacements and deletions as one write."""
    ids = rows.select([KEY])[KEY].combine_chunks()
    row_ids = row_ids_of(table, KEY, ids)
    there = row_ids != NEW
    existing, new = np.flatnonzero(there), np.flatnonzero(~there)
    keys = pa.concat_arrays([ids.filter(pa.array(there)), deleted])
    replacement = Replacement(rows.rows_at(existing), keys, row_ids[there])
    added = rows.rows_at(new) if len(new) else None
    return view.stage.stage_upsert_streams(table, replacement, added)
