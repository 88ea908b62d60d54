"""From a table that was just committed to the row that pins it."""

from __future__ import annotations

from omnigraph.commit.rows import VersionRow
from omnigraph.storage.tables.types import CommittedTable


def version_row(table_key: str, table: CommittedTable) -> VersionRow:
    """The pin of a table at the version it was just given."""
    return VersionRow(
        table_key, table.version, table.ref.branch, table.row_count, table.info.to_json()
    )
