"""Manifest rows and the snapshot they add up to."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.commit.rows import (
    SCHEMA,
    CommitRow,
    HeadRow,
    TableRow,
    TombstoneRow,
    VersionRow,
    VoidRow,
    from_arrow,
    to_arrow,
)
from omnigraph.commit.snapshot import ManifestState
from omnigraph.errors import StorageCorrupt

PERSON = TableRow("node:Person", "nodes/40d76f1f51639ec0")
GENESIS = CommitRow("01A", 1, None, 1_700_000_000_000_000)

ROWS = [
    PERSON,
    VersionRow("node:Person", 7, "review/x", 120, {"manifest_path": "a", "e_tag": None}),
    TombstoneRow("edge:Old", 3),
    CommitRow("01B", 2, "review/x", 5, "01A", "01C", "ana", {"idempotency_key": "k"}),
    HeadRow(None, "01A"),
    HeadRow("review/x", "01B", "01A"),
    VoidRow(None, 12, 1_700_000_000_000_000, "data/a.lance is 0 bytes long"),
    VoidRow("review/x", 3, 7, "the transaction cannot be read"),
]


def test_rows_come_back_as_they_were_written():
    assert list(from_arrow(to_arrow(ROWS))) == ROWS


def test_ids_are_those_of_the_format():
    assert [row.object_id for row in ROWS] == [
        "node:Person",
        "node:Person$00000000000000000007",
        "edge:Old$tombstone$00000000000000000003",
        "01B",
        "graph_head:main",
        "graph_head:review/x",
        "graph_void:main:00000000000000000012",
        "graph_void:review/x:00000000000000000003",
    ]


def test_a_commit_leaves_out_what_it_does_not_have():
    (record,) = to_arrow([GENESIS]).to_pylist()
    assert json.loads(record["metadata"]) == {"created_at": 1_700_000_000_000_000}
    assert (record["table_key"], record["table_version"], record["table_branch"]) == ("", 1, None)


def test_a_void_version_says_when_and_why():
    (record,) = to_arrow([ROWS[-1]]).to_pylist()
    assert json.loads(record["metadata"]) == {
        "created_at": 7,
        "reason": "the transaction cannot be read",
    }
    assert (record["object_type"], record["table_key"]) == ("graph_void", "")
    assert (record["table_version"], record["table_branch"]) == (3, "review/x")


def test_void_versions_are_known_by_branch_and_version():
    state = ManifestState()
    state.add(ROWS[-2:])
    assert state.voids == {(None, 12): ROWS[-2], ("review/x", 3): ROWS[-1]}


def test_unknown_kinds_are_ignored():
    record = {"object_id": "tag:x", "object_type": "tag", "table_key": ""}
    table = pa.concat_tables([to_arrow([PERSON]), pa.Table.from_pylist([record], SCHEMA)])
    assert list(from_arrow(table)) == [PERSON]


@pytest.mark.parametrize("metadata", ["not json", "[]", "{}"])
def test_a_commit_that_cannot_be_read_is_corrupt(metadata):
    record = {
        "object_id": "01X",
        "object_type": "graph_commit",
        "table_key": "",
        "table_version": 1,
        "metadata": metadata,
    }
    with pytest.raises(StorageCorrupt, match="01X"):
        list(from_arrow(pa.Table.from_pylist([record], SCHEMA)))


def test_a_snapshot_takes_the_greatest_version_and_drops_what_is_hidden():
    state = ManifestState()
    state.add([PERSON, TableRow("edge:Old", "edges/old")])
    state.add([VersionRow("node:Person", v, None, v) for v in (3, 1, 2)])
    state.add([VersionRow("edge:Old", 2, None, 0), TombstoneRow("edge:Old", 3)])
    snapshot = state.snapshot(9, None)
    assert list(snapshot.pins) == ["node:Person"]
    assert snapshot.pins["node:Person"].version == 3
    assert (state.visible_version("edge:Old"), state.visible_version("node:No")) == (3, 0)


def test_a_name_that_comes_back_above_its_tombstone_is_visible():
    state = ManifestState()
    state.add([PERSON, VersionRow("node:Person", 1, None, 0), TombstoneRow("node:Person", 2)])
    state.add([VersionRow("node:Person", 3, None, 5)])
    assert state.snapshot(4, None).pins["node:Person"].row_count == 5


def test_a_pin_without_a_place_is_corrupt():
    state = ManifestState()
    state.add([VersionRow("node:Ghost", 1, None, 0)])
    with pytest.raises(StorageCorrupt, match="node:Ghost"):
        state.snapshot(1, None)


def test_the_head_is_the_newest_commit():
    state = ManifestState()
    state.add([CommitRow("01C", 3, None, 1), CommitRow("01B", 3, None, 2), GENESIS])
    head = state.snapshot(3, None).head
    assert head is not None
    assert head.commit_id == "01B"


@given(st.permutations(ROWS[:3]), st.integers(0, 3))
def test_the_order_and_grouping_of_rows_play_no_role(rows, cut):
    whole, parts = ManifestState(), ManifestState()
    whole.add(ROWS[:3])
    parts.add(rows[:cut])
    parts.add(rows[cut:])
    assert whole.snapshot(1, None) == parts.snapshot(1, None)
