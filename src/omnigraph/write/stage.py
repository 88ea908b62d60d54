"""From deltas to staged tables."""

from __future__ import annotations

from omnigraph.commit.protocol import WriteView
from omnigraph.storage.table_types import StagedTable
from omnigraph.write.delta import Deltas, Effect, TableDelta


def stage_deltas(view: WriteView, deltas: Deltas) -> dict[str, tuple[StagedTable, ...]]:
    """Stage every delta that does something; one commit for each table."""
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
            empty = delta.kind.arrow_schema().empty_table()
            return view.stage.stage_overwrite(table, empty)
        return view.stage.stage_delete_keys(table, delta.deleted)
    match delta.effect:
        case Effect.APPEND:
            return view.stage.stage_append(table, delta.rows.data())
        case Effect.UPSERT:
            return view.stage.stage_upsert(table, delta.rows.data())
        case Effect.UPDATE:
            return view.stage.stage_update(table, delta.rows.data())
        case Effect.OVERWRITE:
            return view.stage.stage_overwrite(table, delta.rows.data())
        case Effect.DELETE:
            return view.stage.stage_delete_keys(table, delta.deleted)
