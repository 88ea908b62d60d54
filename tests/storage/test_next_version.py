"""A version that is built on a copy of its version file alone is the one that Lance commits."""

from __future__ import annotations

import random
import shutil

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.storage.lance_format.manifests import (
    index_entries,
    manifest_message,
    parse_version,
    read_fields,
)
from omnigraph.storage.objects.paths import version_file
from omnigraph.storage.tables.deletion_files import mark_deleted
from omnigraph.storage.tables.next_version import LocalCopy
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.upserts import keep_row_ids

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
REF, FORK = TableRef("nodes/thing"), TableRef("nodes/thing", "team/x")
_TIMESTAMP = 7


def rows(keys):
    return pa.table({"id": keys, "n": [len(key) for key in keys]}, schema=SCHEMA)


def decoded(raw):
    """Every field of a version file except for its time, with the content of its sections."""
    fields = [
        (field.number, field.value)
        for field in read_fields(manifest_message(raw, "v"))
        if field.number != _TIMESTAMP
    ]
    return fields, parse_version(raw, "v"), index_entries(raw, "v")


class World:
    """A table of Lance on local disk, and random transactions on it."""

    def __init__(self, top, ref, chance, *, stable):
        self.top, self.ref, self.chance, self.stable = top, ref, chance, stable
        self.fresh = 0
        base = top / REF.path
        self.dataset = LanceDataset.commit(
            str(base), LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=stable
        )
        self.commit(self.append(5))
        if chance.random() < 0.5:
            self.dataset.create_scalar_index("id", "BTREE")
        if ref.branch is not None:
            self.dataset = self.dataset.create_branch(ref.branch)

    @property
    def folder(self):
        return self.top / self.ref.path

    def new_rows(self, count):
        self.fresh += count
        return rows([f"k{self.fresh - n}" for n in range(count)])

    def append(self, count):
        added = write_fragments(self.new_rows(count), self.dataset, mode="append")
        return Transaction(self.dataset.version, LanceOperation.Append(added))

    def change(self, *, replaces, adds, empties=False):
        fragment = self.chance.choice(self.dataset.get_fragments()).metadata
        live = self.dataset.scanner(
            fragments=[self.dataset.get_fragment(fragment.id)],
            with_row_id=True,
            with_row_address=True,
        ).to_table()
        count = live.num_rows if empties else self.chance.randint(1, max(1, live.num_rows - 1))
        offsets = live["_rowaddr"].to_numpy()[:count] & np.uint64(0xFFFFFFFF)
        gone = set(range(fragment.physical_rows)) - set(
            (live["_rowaddr"].to_numpy() & np.uint64(0xFFFFFFFF)).tolist()
        )
        changed, removed = [], []
        if count == live.num_rows:
            removed.append(fragment.id)
        else:
            deleted = sorted(gone | set(offsets.tolist()))
            changed.append(
                mark_deleted(self.put, self.ref, self.dataset.version, fragment, deleted)
            )
        new = []
        if replaces and self.stable:
            kept = write_fragments(
                live.select(["id", "n"]).slice(0, count), self.dataset, mode="append"
            )
            keep_row_ids(kept, live["_rowid"].to_numpy()[:count])
            new += kept
        if adds:
            new += write_fragments(self.new_rows(2), self.dataset, mode="append")
        operation = LanceOperation.Update(
            removed_fragment_ids=removed,
            updated_fragments=changed,
            new_fragments=new,
            fields_modified=[],
        )
        return Transaction(self.dataset.version, operation)

    def put(self, path, data):
        target = self.top / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)

    def overwrite(self):
        return write_fragments(
            self.new_rows(3),
            self.dataset,
            mode="overwrite",
            return_transaction=True,
            enable_stable_row_ids=self.stable,
        )

    def transaction(self):
        kinds = [
            lambda: self.append(self.chance.randint(1, 4)),
            lambda: self.change(replaces=False, adds=False),
            lambda: self.change(replaces=False, adds=True),
            lambda: self.change(replaces=True, adds=False),
            lambda: self.change(replaces=True, adds=True),
            lambda: self.change(replaces=False, adds=True, empties=True),
            self.overwrite,
        ]
        return self.chance.choice(kinds)()

    def commit(self, transaction):
        self.dataset = LanceDataset.commit(self.dataset, transaction, max_retries=0)


@pytest.mark.parametrize("stable", [True, False], ids=["stable row ids", "row addresses"])
@pytest.mark.parametrize("ref", [REF, FORK], ids=["main", "branch"])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_lance_would_have_committed(tmp_path, ref, stable, seed):
    world = World(tmp_path / "g", ref, random.Random(seed), stable=stable)
    for number in range(12):
        version = world.dataset.version
        raw = (world.folder / version_file(version)).read_bytes()
        transaction = world.transaction()
        folder = tmp_path / str(number)
        copy = LocalCopy(str(folder), ref, version, raw, None)
        built = copy.commit(transaction)
        shutil.rmtree(folder)
        world.commit(transaction)
        assert built.version == world.dataset.version == version + 1
        theirs = (world.folder / version_file(built.version)).read_bytes()
        assert decoded(built.raw) == decoded(theirs)
        names = [f.metadata.files[0].path for f in built.dataset.get_fragments()]
        assert names == [f.metadata.files[0].path for f in world.dataset.get_fragments()]


def test_lance_goes_on_from_a_version_that_was_built_elsewhere(tmp_path):
    world = World(tmp_path / "g", REF, random.Random(1), stable=True)
    for _ in range(3):
        version = world.dataset.version
        raw = (world.folder / version_file(version)).read_bytes()
        copy = LocalCopy(str(tmp_path / f"copy{version}"), REF, version, raw, None)
        fragments = copy.write(world.new_rows(2), 100)
        built = copy.commit(Transaction(version, LanceOperation.Append(fragments)))
        for path, data in copy.new_files().items():
            world.put(path, data)
        (world.folder / version_file(built.version)).write_bytes(built.raw)
        world.dataset = lance.dataset(world.folder)
        assert world.dataset.version == built.version
        assert world.dataset.read_transaction(built.version).uuid == built.transaction_id
    dataset = world.dataset
    count = dataset.count_rows()
    dataset.validate()
    assert dataset.checkout_version(built.version - 1).count_rows() == count - 2
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        rows(["k1", "new"])
    )
    dataset.optimize.compact_files()
    dataset.create_scalar_index("id", "BTREE", replace=True)
    dataset.cleanup_old_versions(retain_versions=1, delete_unverified=True)
    fresh = lance.dataset(world.folder)
    fresh.validate()
    assert fresh.count_rows() == count + 1
    assert fresh.to_table(filter="id = 'k1'").num_rows == 1
