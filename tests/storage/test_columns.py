"""Columns replaced fragment by fragment: what changes, what stays, and what reaches the disk."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation

from omnigraph.errors import InternalError, VersionMismatch
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.columns import (
    Unfilled,
    count_blank,
    count_unfilled,
    stage_columns,
    unfilled_rows,
    update_columns,
)
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.store import TableStore
from omnigraph.storage.tables.table import ROW_ADDRESS
from omnigraph.storage.tables.types import TableRef

VECTOR = pa.list_(pa.float32(), 2)
SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), ("text", pa.string()), ("vector", VECTOR)]
)
REF = TableRef("nodes/person")


def rows(**people):
    return pa.table(
        {
            "id": list(people),
            "text": [text for text, _ in people.values()],
            "vector": pa.array([vector for _, vector in people.values()], VECTOR),
        },
        schema=SCHEMA,
    )


@pytest.fixture
def store(tmp_path):
    """Two fragments, of which the first has lost a row; one row has a vector."""
    root = parse_root(str(tmp_path / "g.omni"))
    LanceDataset.commit(
        root.path(REF.path), LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True
    )
    store = TableStore(Datasets(ObjectStore(root, Durability.DISK), Durability.DISK))
    first = rows(gone=("x", None), ana=("a", None), bo=("b", [1, 2]), cy=("", None))
    store.commit_staged(store.stage_append(store.open(REF, 1), first))
    more = rows(dan=("d", None), eve=(None, None))
    store.commit_staged(store.stage_append(store.open(REF, 2), more))
    deleted = store.stage_delete_keys(store.open(REF, 3), pa.array(["gone"]))
    store.commit_staged(deleted)
    return store


def unfilled(table, wanted, fragments=(0, 1)):
    actual = unfilled_rows(table, wanted, ["id"], fragments, 1000)
    return [row["id"] for batch in actual for row in batch.to_pylist()]


def update(table, fragment, **vectors):
    batches = unfilled_rows(table, None, ["id"], [fragment], 1000)
    there = {row["id"]: row[ROW_ADDRESS] for batch in batches for row in batch.to_pylist()}
    new = pa.table(
        {
            ROW_ADDRESS: pa.array([there[name] for name in vectors], pa.uint64()),
            "vector": pa.array(list(vectors.values()), VECTOR),
        }
    )
    return update_columns(table, fragment, new, len(vectors))


def content(store, version):
    return {row["id"]: row["vector"] for row in store.open(REF, version).read().to_pylist()}


def test_rows_without_a_value_are_found_and_counted(store):
    table = store.open(REF, 4)
    assert unfilled(table, Unfilled(("vector",))) == ["ana", "cy", "dan", "eve"]
    assert unfilled(table, Unfilled(("vector",)), [1]) == ["dan", "eve"]
    assert unfilled(table, None) == ["ana", "bo", "cy", "dan", "eve"]
    assert unfilled(table, Unfilled(("vector",), until=2)) == ["ana", "bo", "cy", "dan", "eve"]
    assert unfilled(table, Unfilled((), until=2)) == ["ana", "bo", "cy"]
    assert count_unfilled(table, "vector") == 4
    assert count_blank(table, "vector", "text") == 2


def test_a_name_that_ends_its_quotes_is_refused(store):
    with pytest.raises(InternalError):
        count_unfilled(store.open(REF, 4), "x` IS NULL OR `id")


def test_fragments_that_were_changed_apart_become_one_version(store):
    table = store.open(REF, 4)
    parts = [update(table, 1, dan=[3, 4]), update(table, 0, ana=[5, 6], bo=[7, 8])]
    staged = stage_columns(table, parts)
    assert staged is not None
    assert (staged.inserted, staged.updated, staged.deleted) == (0, 3, 0)
    assert store.head(REF) == 4
    assert store.commit_staged(staged).version == 5
    assert content(store, 5) == {
        "ana": [5, 6],
        "bo": [7, 8],
        "cy": None,
        "dan": [3, 4],
        "eve": None,
    }
    assert content(store, 4)["ana"] is None


def test_rows_keep_their_ids_and_only_changed_ones_are_stamped(store):
    table = store.open(REF, 4)
    before = table.read(["id"], row_ids=True)
    store.commit_staged(stage_columns(table, [update(table, 0, ana=[5, 6])]))
    after = store.open(REF, 5)
    assert after.read(["id"], row_ids=True).equals(before)
    assert unfilled(after, Unfilled((), until=4)) == ["bo", "cy", "dan", "eve"]


def test_nothing_to_change_is_nothing_to_stage(store):
    assert stage_columns(store.open(REF, 4), []) is None


def test_a_table_that_moved_is_told(store):
    table = store.open(REF, 4)
    late = stage_columns(table, [update(table, 0, ana=[5, 6])])
    store.commit_staged(store.stage_append(table, rows(fay=("f", None))))
    with pytest.raises(VersionMismatch):
        store.commit_staged(late)


def test_the_files_of_replaced_columns_are_named_so_that_they_reach_the_disk(store):
    table = store.open(REF, 4)
    part = update(table, 1, dan=[3, 4])
    staged = stage_columns(table, [part])
    (new,) = (file for file in json.loads(part.fragment)["files"] if set(file["fields"]) & {2})
    assert f"data/{new['path']}" in {file.name for file in staged.files}
    some = pa.table({"id": ["ana"], "vector": pa.array([[1, 1]], VECTOR)})
    by_key = store.stage_update(table, some)
    assert [file for file in by_key.files if file.name.endswith(".lance")]
