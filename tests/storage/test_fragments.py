"""Rows that other processes wrote beside a table, committed by the one that coordinates them."""

from __future__ import annotations

import pickle

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.file import LanceFileReader

from omnigraph.errors import StorageMissing
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.fragments import (
    Deletions,
    delete_keys,
    fragment_target,
    locate_table,
    read_staged_fragments,
    require_fragment_files,
    write_staged_fragments,
)
from omnigraph.storage.tables.inline import InlineTables
from omnigraph.storage.tables.store import TableStore
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.wide_columns import stored_schema
from omnigraph.write.ids import new_ids

SCHEMA = pa.schema(
    [
        pa.field(
            "id",
            pa.string(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        pa.field("file", pa.large_binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("age", pa.int32()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)
REF = TableRef("nodes/person")
STAMPS = ["_row_created_at_version", "_row_last_updated_at_version"]


def rows(**ages):
    return pa.table(
        {
            "id": list(ages),
            "file": pa.array([name.encode() for name in ages], pa.large_binary()),
            "tags": [[name, "x"] for name in ages],
            "age": pa.array(ages.values(), pa.int32()),
            "vector": pa.array([[1.0, 0.0]] * len(ages), pa.list_(pa.float32(), 2)),
        },
        schema=SCHEMA,
    )


@pytest.fixture
def datasets(tmp_path):
    root = parse_root(str(tmp_path / "g.omni"))
    LanceDataset.commit(
        root.path(REF.path),
        LanceOperation.Overwrite(stored_schema(SCHEMA), []),
        enable_stable_row_ids=True,
    )
    return Datasets(ObjectStore(root, Durability.DISK), Durability.DISK)


@pytest.fixture
def store(datasets):
    store = TableStore(datasets)
    store.commit_staged(store.stage_append(store.open(REF, 1), rows(ana=30, bo=40)))
    return store


def write(datasets, table, data, ref=REF):
    location = pickle.loads(pickle.dumps(fragment_target(datasets, table, ref)))
    return location, write_staged_fragments(location, SCHEMA, data.to_batches())


def content(table):
    actual = table.read(["id", "age", "tags"])
    return {row["id"]: (row["age"], row["tags"]) for row in actual.to_pylist()}


def test_parts_are_part_of_no_version_until_they_are_committed(datasets, store):
    table = store.open(REF, 2)
    location, parts = write(datasets, table, rows(cy=50, dee=60))
    assert [part.rows for part in parts] == [2]
    assert store.head(REF, 2) == 2
    read = pa.Table.from_batches(read_staged_fragments(location, parts, ["id", "age"]))
    assert read.to_pydict() == {"id": ["cy", "dee"], "age": [50, 60]}
    done = store.commit_staged(store.stage_fragments(table, parts, replaces=False))
    assert content(store.open(REF, done.version)) == {
        "ana": (30, ["ana", "x"]),
        "bo": (40, ["bo", "x"]),
        "cy": (50, ["cy", "x"]),
        "dee": (60, ["dee", "x"]),
    }


def test_ids_are_compressed_in_the_file_and_the_table_does_not_know_of_it(datasets, store):
    table = store.open(REF, 2)
    ids = new_ids(20_000).to_pylist()
    _, parts = write(datasets, table, rows(**{name: number for number, name in enumerate(ids)}))
    done = store.commit_staged(store.stage_fragments(table, parts, replaces=False))
    dataset = lance.dataset(datasets.root.path(REF.path), version=done.version)
    assert dataset.schema == lance.dataset(dataset.uri, version=1).schema
    assert dataset.schema.field("id").metadata == SCHEMA.field("id").metadata
    assert dataset.take([2, 12_345], columns=["id"])["id"].to_pylist() == [ids[0], ids[12_343]]
    assert dataset.count_rows(f"id = '{ids[4_321]}'") == 1
    (file,) = dataset.get_fragments()[-1].data_files()
    columns = LanceFileReader(f"{dataset.uri}/data/{file.path}").metadata().columns
    size = sum(buffer.size for page in columns[0].pages for buffer in page.buffers)
    assert size < len("".join(ids)) / 4


def test_parts_may_replace_all_rows(datasets, store):
    table = store.open(REF, 2)
    _, parts = write(datasets, table, rows(cy=50))
    staged = store.stage_fragments(table, parts, replaces=True)
    assert (staged.inserted, staged.deleted) == (1, 2)
    done = store.commit_staged(staged)
    assert content(store.open(REF, done.version)) == {"cy": (50, ["cy", "x"])}


def test_a_table_whose_columns_changed_takes_parts_too(datasets, store):
    path = datasets.root.path(REF.path)
    dataset = lance.dataset(path)
    dataset.drop_columns(["tags"])
    dataset.add_columns(pa.field("note", pa.string()))
    table = store.open(REF, store.head(REF))
    schema = pa.schema([*(f for f in SCHEMA if f.name != "tags"), pa.field("note", pa.string())])
    data = rows(cy=50).drop_columns(["tags"]).append_column("note", pa.array(["n"]))
    location = fragment_target(datasets, table, REF)
    parts = write_staged_fragments(location, schema, data.cast(schema).to_batches())
    done = store.commit_staged(store.stage_fragments(table, parts, replaces=False))
    actual = store.open(REF, done.version).read(["id", "age", "note"]).to_pylist()
    assert actual[-1] == {"id": "cy", "age": 50, "note": "n"}
    assert actual[0] == {"id": "ana", "age": 30, "note": None}


def test_parts_may_be_written_for_a_branch_that_has_no_copy_yet(datasets, store):
    table = store.open(REF, 2)
    branch = TableRef(REF.location, "review")
    path, early = write(datasets, table, rows(cy=50), branch)
    InlineTables(datasets).create_branch(REF, 2, "review")
    # It was not there when the place was looked up; that makes no difference.
    late = write_staged_fragments(path, SCHEMA, rows(dee=60).to_batches())
    copy = store.open(branch, store.head(branch))
    require_fragment_files(datasets, branch, [*early, *late])
    done = store.commit_staged(store.stage_fragments(copy, [*early, *late], replaces=False))
    assert sorted(content(store.open(branch, done.version))) == ["ana", "bo", "cy", "dee"]
    assert sorted(content(store.open(REF, store.head(REF)))) == ["ana", "bo"]


def test_rows_whose_files_are_gone_are_never_committed(datasets, store):
    table = store.open(REF, 2)
    _, parts = write(datasets, table, rows(cy=50))
    require_fragment_files(datasets, REF, parts)
    datasets.objects.delete(f"{REF.path}/{parts[0].files[0]}")
    with pytest.raises(StorageMissing, match="were removed"):
        require_fragment_files(datasets, REF, parts)


def test_an_upsert_by_parts_makes_what_an_upsert_by_lance_makes(datasets, store):
    many = {f"k{number:03}": number for number in range(300)}
    store.commit_staged(store.stage_append(store.open(REF, 2), rows(**many)))
    store.commit_staged(store.stage_append(store.open(REF, 3), rows(one=1, two=2)))
    before = store.open(REF, 4)
    changed = rows(bo=41, k007=-7, one=-1, two=-2)
    new = rows(zoe=70)

    location, replaced = write(datasets, before, changed)
    added = write_staged_fragments(location, SCHEMA, new.to_batches())
    wanted = changed["id"].combine_chunks()
    where = pickle.loads(pickle.dumps(locate_table(datasets, before)))
    splits = [[fragment.number] for fragment in before.fragments()]
    actual = [delete_keys(where, split, "id", wanted) for split in splits]
    row_ids = np.zeros(len(wanted), np.int64)
    for positions, ids, _ in actual:
        row_ids[positions] = ids
    deletions = Deletions.of(item[2] for item in actual)
    # The fragment of which every row is replaced is gone.
    assert (deletions.rows, len(deletions.changed), len(deletions.removed)) == (4, 2, 1)
    staged = store.stage_upsert_fragments(before, deletions, [(replaced[0], row_ids)], added)
    assert (staged.inserted, staged.updated, staged.deleted) == (1, 4, 0)
    done = store.commit_staged(staged)
    ours = _with_stamps(datasets, done.version)

    theirs = _by_lance(datasets, 4, pa.concat_tables([changed, new]))
    assert ours == theirs


def _with_stamps(datasets, version):
    dataset = lance.dataset(datasets.root.path(REF.path), version=version)
    actual = dataset.to_table(columns=["id", "age", *STAMPS], with_row_id=True)
    return sorted(
        (r["id"], r["age"], r["_rowid"], *(r[stamp] for stamp in STAMPS))
        for r in actual.to_pylist()
    )


def _by_lance(datasets, version, data):
    """What Lance's own upsert makes of the same rows, on a branch beside."""
    InlineTables(datasets).create_branch(REF, version, "other")
    store = TableStore(datasets)
    ref = TableRef(REF.location, "other")
    table = store.open(ref, store.head(ref))
    done = store.commit_staged(store.stage_upsert(table, data))
    dataset = lance.dataset(datasets.root.path(ref.path), version=done.version)
    actual = dataset.to_table(columns=["id", "age", *STAMPS], with_row_id=True)
    return sorted(
        (r["id"], r["age"], r["_rowid"], *(r[stamp] for stamp in STAMPS))
        for r in actual.to_pylist()
    )
