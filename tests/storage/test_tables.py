"""The table store: pinned reads, staged writes that move nothing, commits that are exactly next."""

from __future__ import annotations

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset, LanceOperation

from omnigraph.errors import LimitExceeded, StorageMissing, VersionMismatch
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables import transactions, wide_columns
from omnigraph.storage.tables.alter import stage_repeats
from omnigraph.storage.tables.compaction import compact, compaction_split, stage_before_indexes
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.fragments import locate_table
from omnigraph.storage.tables.store import TableStore
from omnigraph.storage.tables.types import IndexKind, IndexSpec, TableChange, TableRef

SCHEMA = pa.schema(
    [
        pa.field(
            "id",
            pa.string(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        pa.field("age", pa.int32()),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)
REF = TableRef("nodes/person")


def rows(**ages):
    return pa.table(
        {
            "id": list(ages),
            "age": pa.array(ages.values(), pa.int32()),
            "text": [f"hello {name}" for name in ages],
            "vector": pa.array([[1.0, 0.0]] * len(ages), pa.list_(pa.float32(), 2)),
        },
        schema=SCHEMA,
    )


@pytest.fixture(params=list(Durability))
def store(tmp_path, request):
    root = parse_root(str(tmp_path / "g.omni"))
    LanceDataset.commit(
        root.path(REF.path), LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True
    )
    store = TableStore(Datasets(ObjectStore(root, request.param), request.param))
    store.commit_staged(store.stage_append(store.open(REF, 1), rows(ana=30, bo=40)))
    return store


def content(store, version):
    table = store.open(REF, version).read(["id", "age"])
    return dict(zip(table["id"].to_pylist(), table["age"].to_pylist(), strict=True))


def delete_where(store, table, condition):
    keys = table.read(["id"], condition)["id"].combine_chunks()
    return store.stage_delete_keys(table, keys)


def compacted(store, table):
    parts = [part.number for part in table.fragments()]
    done = compact(compaction_split(table, locate_table(store._datasets, table), parts))
    (staged,) = stage_before_indexes(table, [], [], [done])
    return staged


STAGES = {
    TableChange.APPEND: lambda store, table: store.stage_append(table, rows(cy=50)),
    TableChange.UPSERT: lambda store, table: store.stage_upsert(table, rows(bo=41, cy=50)),
    TableChange.UPDATE: lambda store, table: store.stage_update(
        table, rows(bo=41, nobody=1).select(["id", "age"])
    ),
    TableChange.OVERWRITE: lambda store, table: store.stage_overwrite(table, rows(dee=1)),
    TableChange.DELETE: lambda store, table: delete_where(store, table, pc.field("age") > 30),
    TableChange.INDEX: lambda store, table: store.stage_indexes(
        table, [IndexSpec("age", IndexKind.EQUALITY)]
    )[0],
    TableChange.COMPACT: lambda store, table: compacted(store, table),
    TableChange.ALTER: lambda store, table: stage_repeats(table, table.version, 1)[0],
    TableChange.SETTINGS: lambda store, table: stage_before_indexes(table, ["none"], [], [])[0],
}
RESULTS = {
    TableChange.APPEND: ({"ana": 30, "bo": 40, "cy": 50}, (1, 0, 0)),
    TableChange.UPSERT: ({"ana": 30, "bo": 41, "cy": 50}, (1, 1, 0)),
    TableChange.UPDATE: ({"ana": 30, "bo": 41}, (0, 1, 0)),
    TableChange.OVERWRITE: ({"dee": 1}, (1, 0, 2)),
    TableChange.DELETE: ({"ana": 30}, (0, 0, 1)),
    TableChange.INDEX: ({"ana": 30, "bo": 40}, (0, 0, 0)),
    TableChange.COMPACT: ({"ana": 30, "bo": 40}, (0, 0, 0)),
    TableChange.ALTER: ({"ana": 30, "bo": 40}, (0, 0, 0)),
    TableChange.SETTINGS: ({"ana": 30, "bo": 40}, (0, 0, 0)),
}


@pytest.mark.parametrize("change", list(TableChange))
def test_a_staged_write_moves_nothing_until_it_is_committed(store, change):
    staged = STAGES[change](store, store.open(REF, 2))
    expected, counts = RESULTS[change]
    assert (staged.change, staged.base) == (change, 2)
    assert (staged.inserted, staged.updated, staged.deleted) == counts
    assert store.head(REF) == 2
    assert store.commit_staged(staged).version == 3
    assert content(store, 3) == expected
    assert content(store, 2) == {"ana": 30, "bo": 40}
    assert store.landed(staged, 3)
    assert not store.landed(staged, 2)


@pytest.mark.parametrize(
    "change", [TableChange.APPEND, TableChange.UPSERT, TableChange.INDEX, TableChange.COMPACT]
)
def test_a_commit_that_lance_rebased_is_reported_as_lost(store, change):
    late = STAGES[change](store, store.open(REF, 2))
    store.commit_staged(store.stage_append(store.open(REF, 2), rows(eve=1)))
    with pytest.raises(VersionMismatch) as caught:
        store.commit_staged(late)
    assert caught.value.details == {"expected": 2, "actual": 3}
    assert caught.value.retryable


def test_an_overwrite_with_nothing_leaves_an_empty_table(store):
    staged = store.stage_overwrite(store.open(REF, 2), SCHEMA.empty_table())
    assert store.commit_staged(staged).version == 3
    assert content(store, 3) == {}


@pytest.mark.parametrize("most_looked_up", [0, 100])
def test_rows_too_wide_to_be_read_are_deleted_by_their_keys(store, monkeypatch, most_looked_up):
    monkeypatch.setattr(transactions, "_FEW_KEYS", most_looked_up)
    for limit in ("BATCH_BYTES", "WIDEST_ROW"):
        monkeypatch.setattr(wide_columns, limit, 1)
    table = store.open(REF, 2)
    with pytest.raises(LimitExceeded):
        table.read()
    staged = store.stage_delete_keys(table, pa.array(["bo", "nobody", "bo"]))
    assert staged.deleted == 1
    store.commit_staged(staged)
    assert content(store, 3) == {"ana": 30}
    assert store.stage_delete_keys(store.open(REF, 3), pa.array(["bo"])) is None


def test_a_delete_that_finds_nothing_stages_nothing(store):
    table = store.open(REF, 2)
    assert delete_where(store, table, pc.field("age") > 99) is None
    assert store.stage_delete_keys(table, pa.array(["nobody"])) is None
    assert store.stage_delete_keys(table, pa.array([], pa.string())) is None


def test_row_ids_survive_an_upsert(store):
    before = store.open(REF, 2).read(["id"], row_ids=True)
    ids = dict(zip(before["id"].to_pylist(), before["_rowid"].to_pylist(), strict=True))
    store.commit_staged(store.stage_upsert(store.open(REF, 2), rows(bo=41)))
    actual = store.open(REF, 3).take([ids["bo"], ids["ana"]], ["id", "age"])
    assert actual.to_pylist() == [{"id": "bo", "age": 41}, {"id": "ana", "age": 30}]


def test_a_handle_is_opened_once(store, monkeypatch):
    store.open(REF, 2)
    monkeypatch.setattr(lance, "dataset", None)
    assert store.open(REF, 2).count() == 2
    assert store.open(REF, 2).count(pc.field("age") > 30) == 1


def test_what_is_not_there_is_a_typed_error(store):
    with pytest.raises(StorageMissing):
        store.open(REF, 99)
    with pytest.raises(StorageMissing):
        store.open(TableRef("nodes/nobody"), 1)
    with pytest.raises(StorageMissing):
        store.open(TableRef(REF.location, "no-branch"), 1)


@pytest.mark.parametrize(
    "spec",
    [
        IndexSpec("age", IndexKind.EQUALITY),
        IndexSpec("text", IndexKind.TEXT),
        IndexSpec("text", IndexKind.EQUALITY),
        IndexSpec("vector", IndexKind.VECTOR),
    ],
    ids=lambda spec: spec.name,
)
def test_an_index_covers_the_rows_it_was_built_on_and_can_be_built_again(store, spec):
    store.commit_staged(store.stage_indexes(store.open(REF, 2), [spec])[0])
    assert store.open(REF, 3).indexes()[spec.name].complete
    store.commit_staged(store.stage_append(store.open(REF, 3), rows(cy=50)))
    assert not store.open(REF, 4).indexes()[spec.name].complete
    store.commit_staged(store.stage_indexes(store.open(REF, 4), [spec])[0])
    assert list(store.open(REF, 5).indexes()) == [spec.name]
    assert store.open(REF, 5).indexes()[spec.name].complete
    assert len(content(store, 5)) == 3


def test_a_branch_is_written_without_touching_main(store, tmp_path):
    lance.dataset(str(tmp_path / "g.omni" / REF.path), version=2).create_branch("review/x")
    branch = TableRef(REF.location, "review/x")
    assert store.head(branch) == 2
    store.commit_staged(store.stage_upsert(store.open(branch, 2), rows(ana=31)))
    assert store.open(branch, 3).count(pc.field("age") == 31) == 1
    assert (store.head(REF), content(store, 2)["ana"]) == (2, 30)
