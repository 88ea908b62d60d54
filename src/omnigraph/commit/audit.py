"""The audit table of recoveries: one row per sidecar that was rolled forward, back or dropped.

The table is stored beside the graph's own tables and no manifest pins it; its columns are those of
the reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa

from omnigraph.errors import StorageCorrupt
from omnigraph.records import dataclass
from omnigraph.storage.tables.inline import InlineTables

AUDIT_TABLE = "_graph_commit_recoveries.lance"

SCHEMA = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("operation_id", pa.string(), nullable=False),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("per_table_outcomes_json", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)


class RecoveryKind(StrEnum):
    """How a recovery ended."""

    ROLLED_FORWARD = "RolledForward"
    ROLLED_BACK = "RolledBack"
    ORPHANED_BRANCH_DISCARDED = "OrphanedBranchDiscarded"


class TableOutcome(NamedTuple):
    """The version of a table before and after a recovery."""

    table_key: str
    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One recovery. ``graph_commit_id`` is its own commit, the actor the interrupted writer's.

    ``created_at`` is in microseconds.
    """

    graph_commit_id: str
    recovery_kind: RecoveryKind
    recovery_for_actor: str | None
    operation_id: str
    sidecar_writer_kind: str
    per_table_outcomes: tuple[TableOutcome, ...]
    created_at: int


class AuditLog:
    """The recoveries of one graph. A writer holds the leases of the sidecar it records."""

    def __init__(self, tables: InlineTables) -> None:
        self._tables = tables

    def rows(self) -> list[AuditRow]:
        """Every recovery, oldest first."""
        table = self._tables.read_log(AUDIT_TABLE)
        rows = [] if table is None else from_arrow(table)
        return sorted(rows, key=lambda row: row.created_at)

    def record_once(self, row: AuditRow) -> bool:
        """Add a row unless the recovery is recorded already; returns whether it was added.

        A recovery that failed after its row was written is repeated.
        """
        same = (row.operation_id, row.recovery_kind)
        if any((earlier.operation_id, earlier.recovery_kind) == same for earlier in self.rows()):
            return False
        self._tables.append_log(AUDIT_TABLE, to_arrow([row]))
        return True


def to_arrow(rows: Iterable[AuditRow]) -> pa.Table:
    """Rows as a table with the columns of the audit table."""
    records = [
        {
            **{spec.name: getattr(row, spec.name) for spec in fields(row)},
            "per_table_outcomes_json": json.dumps(
                [outcome._asdict() for outcome in row.per_table_outcomes],
                separators=(",", ":"),
                ensure_ascii=False,
            ),
        }
        for row in rows
    ]
    return pa.Table.from_pylist(records, schema=SCHEMA)


def from_arrow(table: pa.Table) -> list[AuditRow]:
    """The rows of an audit table, in its order."""
    try:
        # As integers, since the range of datetime is smaller than that of the column.
        plain = table.select(SCHEMA.names).cast(
            pa.schema([*list(SCHEMA)[:-1], pa.field("created_at", pa.int64(), nullable=False)])
        )
        return [_row(record) for record in plain.to_pylist()]
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise StorageCorrupt(
            f"the recovery audit table '{AUDIT_TABLE}' cannot be read",
            hint="move the table away to continue; the graph does not need its records",
        ) from error


def _row(record: dict[str, Any]) -> AuditRow:
    outcomes = tuple(
        TableOutcome(str(entry["table_key"]), int(entry["from_version"]), int(entry["to_version"]))
        for entry in json.loads(record.pop("per_table_outcomes_json"))
    )
    kind = RecoveryKind(record["recovery_kind"])
    return AuditRow(**{**record, "recovery_kind": kind, "per_table_outcomes": outcomes})
