"""Transactions of Lance that replace and delete rows by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation, Transaction
from lance.fragment import FragmentMetadata

from omnigraph.errors import InternalError
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import KEY, RowCounts
from omnigraph.storage.tables.upserts import NEW, row_ids_of
from omnigraph.storage.tables.wide_columns import is_wide

if TYPE_CHECKING:
    from omnigraph.storage.tables.fragments import Deletions

# Up to so many keys are looked up in the index.
_FEW_KEYS = 1_024


def delete_keys(table: Table, keys: pa.Array) -> tuple[Transaction, int]:
    """A transaction that deletes rows by key, and their number."""
    if is_wide(table.schema):
        return _delete_wide(table, keys)
    transaction, stats = (
        table.dataset_for(KEY)
        .merge_insert(KEY)
        .when_matched_delete()
        .execute_uncommitted(pa.table({KEY: keys}))
    )
    return transaction, int(stats["num_deleted_rows"])


def _delete_wide(table: Table, keys: pa.Array) -> tuple[Transaction, int]:
    """As ``_delete_keys``; only keys are read. Lance would read whole rows, thousands at a time."""
    from omnigraph.storage.tables.deltas import delete_rows, rows_where
    from omnigraph.storage.tables.fragments import Deletions

    if len(keys) <= _FEW_KEYS:
        existing = rows_where(table, pc.field(KEY).isin(keys))
    else:
        row_ids = row_ids_of(table, KEY, keys)
        existing = row_ids[row_ids != NEW]
    deletions = delete_rows(table, existing) if len(existing) else Deletions()
    if deletions is None:
        raise InternalError(f"rows of '{table.ref.path}' to delete are missing")
    return mark_rows(table, deletions), deletions.rows


def mark_rows(table: Table, deletions: Deletions) -> Transaction:
    operation = LanceOperation.Update(
        removed_fragment_ids=list(deletions.removed),
        updated_fragments=[FragmentMetadata.from_json(text) for text in deletions.changed],
        new_fragments=[],
        fields_modified=[],
    )
    return Transaction(table.version, operation)


def replace_rows(
    table: Table,
    transaction: Transaction,
    replaced: Sequence[FragmentMetadata],
    added: Sequence[FragmentMetadata],
    deleted: int,
) -> RowCounts:
    """Add replacements and new rows to the deletions of a transaction; returns the counts."""
    operation: Any = transaction.operation
    operation.new_fragments = [*replaced, *added]
    updated = sum(fragment.physical_rows for fragment in replaced)
    if deleted < updated:
        raise InternalError(f"rows of '{table.ref.path}' to replace are missing")
    inserted = sum(fragment.physical_rows for fragment in added)
    return {"inserted": inserted, "updated": updated, "deleted": deleted - updated}
