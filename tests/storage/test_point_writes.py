"""Changes of a few rows: the same result as Lance's own upsert and delete, whatever was there."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation

from omnigraph.errors import StorageCorrupt
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables import point_writes
from omnigraph.storage.tables import store as tables
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.deletion_files import read_deletions
from omnigraph.storage.tables.store import KEY, TableStore
from omnigraph.storage.tables.types import IndexKind, IndexSpec, TableRef

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
REF = TableRef("nodes/thing")


def rows(values):
    return pa.table({"id": list(values), "n": list(values.values())}, schema=SCHEMA)


@pytest.fixture
def store(tmp_path):
    root = parse_root(str(tmp_path / "g.omni"))
    LanceDataset.commit(
        root.path(REF.path), LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True
    )
    return TableStore(Datasets(ObjectStore(root, Durability.OS), Durability.OS))


class World:
    """A table, and what it should have: the value and the row id of each key."""

    def __init__(self, store):
        self.store = store
        self.version = 1
        self.model = {}
        self.row_ids = {}

    @property
    def table(self):
        return self.store.open(REF, self.version)

    def commit(self, staged):
        if staged is not None:
            self.version = self.store.commit_staged(staged).version
        return staged

    def append(self, values):
        self.commit(self.store.stage_append(self.table, rows(values)))
        self.model |= values
        self.remember()

    def upsert(self, values):
        staged = self.commit(self.store.stage_upsert(self.table, rows(values)))
        existing = values.keys() & self.model.keys()
        assert (staged.inserted, staged.updated) == (len(values) - len(existing), len(existing))
        self.model |= values
        self.check()
        self.remember()

    def update(self, values):
        staged = self.commit(self.store.stage_update(self.table, rows(values)))
        existing = {key: value for key, value in values.items() if key in self.model}
        assert (staged.inserted, staged.updated, staged.deleted) == (0, len(existing), 0)
        self.model |= existing
        self.check()

    def delete(self, keys):
        staged = self.commit(self.store.stage_delete_keys(self.table, pa.array(keys, pa.string())))
        existing = self.model.keys() & set(keys)
        assert (0 if staged is None else staged.deleted) == len(existing)
        for key in existing:
            del self.model[key], self.row_ids[key]
        self.check()

    def stored(self):
        return self.table.read(["id", "n"], row_ids=True)

    def remember(self):
        read = self.stored()
        for key, row_id in zip(read["id"].to_pylist(), read["_rowid"].to_pylist(), strict=True):
            self.row_ids.setdefault(key, row_id)

    def check(self):
        read = self.stored()
        keys, values = read["id"].to_pylist(), read["n"].to_pylist()
        assert dict(zip(keys, values, strict=True)) == self.model
        assert len(keys) == len(self.model)
        for key, row_id in zip(keys, read["_rowid"].to_pylist(), strict=True):
            assert self.row_ids.get(key, row_id) == row_id, "a changed row keeps its row id"
        self.table.dataset.validate()


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_agree_with_a_model(store, monkeypatch, seed):
    chance = random.Random(seed)
    # Some fragments get so many deleted rows that Lance writes a bitmap for them.
    monkeypatch.setattr(point_writes, "_MOST_IN_ARRAY", chance.choice([1, 3, 4_096]))
    monkeypatch.setattr(tables, "FEW", chance.choice([1_000, 4]))
    world = World(store)
    for numbers in (range(20), range(20, 25), range(25, 35)):
        world.append({f"k{number}": number for number in numbers})
    if chance.random() < 0.5:
        staged, _ = store.stage_indexes(world.table, [IndexSpec(KEY, IndexKind.EQUALITY)])
        world.commit(staged)
    for step in range(25):
        keys = [f"k{number}" for number in chance.sample(range(50), chance.randint(1, 8))]
        match chance.randrange(3):
            case 0:
                world.upsert({key: step * 100 + i for i, key in enumerate(keys)})
            case 1:
                world.update({key: -step * 100 - i for i, key in enumerate(keys)})
            case _:
                world.delete(keys)


def test_the_last_row_of_a_fragment_removes_the_fragment(store):
    world = World(store)
    world.append({"a": 1})
    world.append({"b": 2})
    world.delete(["a"])
    assert [fragment.rows for fragment in world.table.fragments()] == [1]


def test_a_deletion_file_has_the_form_that_lance_gives_it(store, tmp_path):
    world = World(store)
    world.append({f"k{number}": number for number in range(9)})
    world.delete(["k3"])
    world.delete(["k7", "k1"])
    (ours,) = [f.metadata.deletion_file for f in world.table.dataset.get_fragments()]
    path = tmp_path / "g.omni" / REF.path / ours.path(0)
    assert read_deletions(path.read_bytes(), str(path)).tolist() == [1, 3, 7]
    world.table.dataset.delete("id = 'k5'")
    theirs = LanceDataset(str(tmp_path / "g.omni" / REF.path))
    assert theirs.count_rows() == 5
    mark = theirs.get_fragments()[0].metadata.deletion_file
    raw = (tmp_path / "g.omni" / REF.path / mark.path(0)).read_bytes()
    assert sorted(read_deletions(raw, "").tolist()) == [1, 3, 5, 7]
    assert (
        pa.ipc.open_file(pa.BufferReader(raw)).schema
        == pa.ipc.open_file(pa.BufferReader(path.read_bytes())).schema
    )


def test_a_damaged_deletion_file_is_reported(store):
    with pytest.raises(StorageCorrupt, match="is damaged"):
        read_deletions(b"ARROW1 and nothing else", "nodes/thing/_deletions/x.arrow")


def test_row_ids_follow_the_order_of_the_values():
    located = pa.table({"id": ["b", "a"], "_rowid": pa.array([7, 3], pa.uint64())})
    order = point_writes.row_ids_in_order(located, "id", pa.array(["a", "x", "b"]), -1)
    assert order.tolist() == [3, -1, 7]
    assert order.dtype == np.int64
