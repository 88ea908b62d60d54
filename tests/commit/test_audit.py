"""The audit table: its columns, and one row per recovery."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.commit.audit import (
    SCHEMA,
    AuditLog,
    AuditRow,
    RecoveryKind,
    TableOutcome,
    from_arrow,
    to_arrow,
)
from omnigraph.commit.rows import WriterKind
from omnigraph.errors import StorageCorrupt, StorageUnavailable

FORWARD = AuditRow(
    "01A",
    RecoveryKind.ROLLED_FORWARD,
    "ana",
    "01B",
    WriterKind.MUTATION,
    (TableOutcome("node:Zürich", 5, 6), TableOutcome("edge:Knows", 12, 13)),
    1_700_000_000_123_456,
)
DISCARDED = AuditRow(
    "01C", RecoveryKind.ORPHANED_BRANCH_DISCARDED, None, "01D", WriterKind.LOAD, (), 1
)


class Memory:
    """A log in memory that can be told to fail."""

    def __init__(self) -> None:
        self.table: pa.Table | None = None
        self.failing = False

    def append_log(self, location: str, table: pa.Table) -> None:
        if self.failing:
            raise StorageUnavailable("the disk is away")
        self.table = table if self.table is None else pa.concat_tables([self.table, table])

    def read_log(self, location: str) -> pa.Table | None:
        return self.table


def test_the_columns_are_those_of_the_format():
    assert [(field.name, str(field.type), field.nullable) for field in SCHEMA] == [
        ("graph_commit_id", "string", False),
        ("recovery_kind", "string", False),
        ("recovery_for_actor", "string", True),
        ("operation_id", "string", False),
        ("sidecar_writer_kind", "string", False),
        ("per_table_outcomes_json", "string", False),
        ("created_at", "timestamp[us]", False),
    ]


def test_a_row_is_written_as_the_format_says():
    table = to_arrow([FORWARD, DISCARDED])
    assert table.schema == SCHEMA
    assert table.column("recovery_kind").to_pylist() == ["RolledForward", "OrphanedBranchDiscarded"]
    assert table.column("sidecar_writer_kind").to_pylist() == ["Mutation", "Load"]
    assert table.column("created_at").cast(pa.int64()).to_pylist() == [1_700_000_000_123_456, 1]
    assert table.column("per_table_outcomes_json").to_pylist() == [
        '[{"table_key":"node:Zürich","from_version":5,"to_version":6},'
        '{"table_key":"edge:Knows","from_version":12,"to_version":13}]',
        "[]",
    ]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VERSIONS = st.integers(0, (1 << 64) - 1)
ROWS = st.builds(
    AuditRow,
    TEXTS,
    st.sampled_from(RecoveryKind),
    st.none() | TEXTS,
    TEXTS,
    st.sampled_from([kind.value for kind in WriterKind]),
    st.lists(st.builds(TableOutcome, TEXTS, VERSIONS, VERSIONS), max_size=3).map(tuple),
    st.integers(-(1 << 63), (1 << 63) - 1),
)


@given(st.lists(ROWS, max_size=4))
def test_rows_come_back_as_they_were_written(rows):
    assert from_arrow(to_arrow(rows)) == rows


def test_columns_in_another_order_and_more_of_them_are_read():
    table = to_arrow([FORWARD]).append_column("more", pa.array([1]))
    assert from_arrow(table.select(table.column_names[::-1])) == [FORWARD]


@pytest.mark.parametrize(
    "broken",
    [
        to_arrow([FORWARD]).drop_columns(["operation_id"]),
        to_arrow([FORWARD]).set_column(1, "recovery_kind", pa.array(["Guessed"])),
        to_arrow([FORWARD]).set_column(0, "graph_commit_id", pa.array([None], pa.string())),
        to_arrow([FORWARD]).set_column(5, "per_table_outcomes_json", pa.array(["[{}]"])),
        to_arrow([FORWARD]).set_column(5, "per_table_outcomes_json", pa.array(["[3]"])),
        to_arrow([FORWARD]).set_column(5, "per_table_outcomes_json", pa.array(["{"])),
        to_arrow([FORWARD]).set_column(5, "per_table_outcomes_json", pa.array([[1]])),
        to_arrow([FORWARD]).set_column(6, "created_at", pa.array([[1]])),
    ],
    ids=["column", "kind", "null", "keys", "entry", "json", "list", "time"],
)
def test_a_table_that_is_no_audit_table_is_refused(broken):
    with pytest.raises(StorageCorrupt, match="_graph_commit_recoveries") as caught:
        from_arrow(broken)
    assert caught.value.hint


def test_a_graph_without_recoveries_has_no_rows():
    assert AuditLog(Memory()).rows() == []


def test_a_recovery_is_recorded_once():
    log = AuditLog(Memory())
    assert log.record_once(FORWARD) is True
    again = replace(FORWARD, graph_commit_id="01Z", created_at=FORWARD.created_at + 1)
    assert log.record_once(again) is False
    assert log.rows() == [FORWARD]


def test_another_kind_or_another_operation_is_another_recovery():
    log = AuditLog(Memory())
    back = replace(FORWARD, recovery_kind=RecoveryKind.ROLLED_BACK)
    other = replace(FORWARD, operation_id="01Y")
    assert [log.record_once(row) for row in (FORWARD, back, other)] == [True, True, True]
    assert log.rows() == [FORWARD, back, other]


def test_rows_are_listed_oldest_first():
    log = AuditLog(Memory())
    log.record_once(FORWARD)
    log.record_once(DISCARDED)
    assert log.rows() == [DISCARDED, FORWARD]


def test_after_a_failure_the_row_is_recorded_by_the_next_attempt():
    memory = Memory()
    log = AuditLog(memory)
    memory.failing = True
    with pytest.raises(StorageUnavailable):
        log.record_once(FORWARD)
    memory.failing = False
    assert log.record_once(FORWARD) is True
    assert log.rows() == [FORWARD]
