"""Columns of small tables in memory: bounded, and never those of another version."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables import warm_rows
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.warm_rows import WarmRows

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
REF = TableRef("nodes/thing")
ROWS = 100


class World:
    def __init__(self, top):
        root = parse_root(str(top))
        self.warm = WarmRows(ObjectStore(root))
        self.dataset = LanceDataset.commit(
            root.path(REF.path), LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True
        )
        self.opened = 0

    @property
    def fragments(self):
        return [fragment.metadata for fragment in self.dataset.get_fragments()]

    @property
    def fields(self):
        return {field.name(): field.id() for field in self.dataset.lance_schema.fields()}

    def add(self, number, *, noted):
        rows = pa.table(
            {"id": [f"{number}-{n}" for n in range(ROWS)], "n": list(range(ROWS))}, schema=SCHEMA
        )
        added = write_fragments(rows, self.dataset, mode="append")
        if noted:
            self.warm.note_rows(added[0], self.fields, SCHEMA, rows)
        self.dataset = LanceDataset.commit(
            self.dataset, LanceOperation.Append(added), read_version=self.dataset.version
        )

    def open(self):
        self.opened += 1
        return self.dataset

    def read(self, *names, row_ids=False, opens=True):
        fields = {name: self.fields[name] for name in names}
        return self.warm.read(
            REF,
            self.fragments,
            fields,
            lambda _: REF.path,
            self.open if opens else None,
            row_ids=row_ids,
        )


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "g.omni")


def test_what_was_written_is_not_read(world):
    for number in range(3):
        world.add(number, noted=True)
        assert world.read("id", row_ids=True).num_rows == (number + 1) * ROWS
    assert world.opened == 0
    theirs = world.dataset.scanner(with_row_id=True, with_row_address=True).to_table()
    assert world.read("id", "n", row_ids=True).to_pylist() == theirs.to_pylist()


def test_what_others_wrote_is_read_once(world):
    world.add(0, noted=False)
    assert world.read("id", opens=False) is None
    assert world.read("id").num_rows == ROWS
    world.add(1, noted=True)
    assert world.read("id", opens=False).num_rows == 2 * ROWS
    assert world.opened == 1
    assert world.read("n").num_rows == 2 * ROWS
    assert world.opened == 2


def test_a_table_of_many_rows_is_left_to_lance(world, monkeypatch):
    world.add(0, noted=True)
    monkeypatch.setattr(warm_rows, "MOST_ROWS", ROWS - 1)
    assert world.read("id") is None


def test_memory_is_bounded(world, monkeypatch):
    monkeypatch.setattr(warm_rows, "_MOST_BYTES", 4_000)
    for number in range(10):
        world.add(number, noted=True)
        world.read("id")
    assert world.warm.nbytes <= 4_000
    assert world.warm.assembled_bytes <= 4_000
    assert world.read("id") is None or world.read("id").num_rows == 10 * ROWS


def test_another_version_has_its_own_rows(world):
    world.add(0, noted=True)
    first = world.dataset
    assert world.read("id").num_rows == ROWS
    world.dataset = LanceDataset.commit(
        first, LanceOperation.Overwrite(SCHEMA, []), read_version=first.version
    )
    world.add(1, noted=True)
    assert world.read("id")["id"].to_pylist()[0] == "1-0"
    world.dataset = first
    assert world.read("id")["id"].to_pylist()[0] == "0-0"
