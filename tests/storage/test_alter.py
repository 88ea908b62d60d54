"""Other columns for a table: one commit, no file of what stays is written again."""

from __future__ import annotations

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.alter import ColumnPlan, stage_alter, stage_repeats
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.inline import InlineTables
from omnigraph.storage.tables.store import TableStore
from omnigraph.storage.tables.types import IndexKind, IndexSpec, TableRef
from omnigraph.storage.tables.wide_columns import stored_schema

REF = TableRef("nodes/person")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("age", pa.int32()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("text", pa.string()),
    ]
)
ROWS = [
    {"id": "a", "age": 1, "tags": ["x"], "text": "red fox"},
    {"id": "b", "age": None, "tags": None, "text": "blue cat"},
    {"id": "c", "age": 3, "tags": [], "text": "red dog"},
]


@pytest.fixture
def objects(tmp_path):
    return ObjectStore(parse_root(str(tmp_path / "g.omni")), Durability.OS)


@pytest.fixture
def inline(objects):
    return InlineTables(Datasets(objects, Durability.OS))


@pytest.fixture
def store(objects, inline):
    inline.create(REF.location, SCHEMA)
    store = TableStore(Datasets(objects, Durability.OS))
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    # Two parts, one with a row that is deleted.
    for piece in (rows.slice(0, 2), rows.slice(2)):
        commit(store, store.stage_append(newest(store), piece))
    extra = pa.Table.from_pylist([{**ROWS[0], "id": "gone"}], schema=SCHEMA)
    commit(store, store.stage_append(newest(store), extra))
    commit(store, store.stage_delete_keys(newest(store), pa.array(["gone"])))
    return store


def newest(store, ref=REF):
    return store.open(ref, store.head(ref))


def commit(store, staged):
    steps = staged if isinstance(staged, list) else [staged]
    after = steps[0].base
    for step in steps:
        done = store.commit_staged(step, after)
        after = done.version
    return done


def keep(*names):
    return [ColumnPlan(SCHEMA.field(name), name) for name in names]


def data_files(tmp_path):
    return {path: path.stat().st_mtime_ns for path in (tmp_path / "g.omni").rglob("nodes/*/data/*")}


def read(store):
    return newest(store).read().sort_by("id").to_pylist()


def test_a_table_that_has_the_columns_is_left_alone(store):
    assert stage_alter(store, newest(store), keep(*SCHEMA.names)) == []


def test_renaming_dropping_and_adding_writes_no_row(store, tmp_path):
    before = data_files(tmp_path)
    columns = [
        *keep("id"),
        ColumnPlan(pa.field("born", pa.date32()), None),
        ColumnPlan(pa.field("labels", pa.list_(pa.string())), "tags"),
        ColumnPlan(pa.field("photo", pa.large_binary()), None),
        ColumnPlan(pa.field("years", pa.int32()), "age"),
    ]
    staged = stage_alter(store, newest(store), columns)
    assert read(store) == ROWS
    done = commit(store, staged)
    assert (done.row_count, data_files(tmp_path)) == (3, before)
    assert read(store) == [
        {"id": "a", "born": None, "labels": ["x"], "photo": None, "years": 1},
        {"id": "b", "born": None, "labels": None, "photo": None, "years": None},
        {"id": "c", "born": None, "labels": [], "photo": None, "years": 3},
    ]
    earlier = store.open(REF, done.version - 1)
    assert earlier.read().sort_by("id").to_pylist() == ROWS


def as_required(name, field_type, **plan):
    return ColumnPlan(pa.field(name, field_type, nullable=False), name, **plan)


@pytest.mark.parametrize(
    "beside",
    [
        ColumnPlan(pa.field("new", pa.string()), None),
        ColumnPlan(pa.field("new", pa.string(), nullable=False), None, lambda ids: ids),
        ColumnPlan(pa.field("age", pa.int64()), "age", lambda ages: ages.cast(pa.int64())),
    ],
    ids=["empty", "filled", "widened"],
)
def test_another_nullability_beside_a_column_that_grows_is_a_step_of_its_own(
    store, tmp_path, beside
):
    """Lance refuses both in one transaction."""
    before = data_files(tmp_path)
    columns = [*keep("id", "tags"), as_required("text", pa.string()), beside]
    staged = stage_alter(store, newest(store), columns)
    assert [bool(step.files) for step in staged] == [False, beside.compute is not None]
    store.check_staged(staged)
    assert read(store) == ROWS
    done = commit(store, staged)
    assert not newest(store).schema.field("text").nullable
    assert [row["text"] for row in read(store)] == [row["text"] for row in ROWS]
    # The first step wrote nothing, the second the computed column of each part.
    assert len(data_files(tmp_path)) - len(before) == (2 if beside.compute else 0)
    back = [*keep("id", "tags", "text"), beside]
    again = [ColumnPlan(c.field, c.field.name) for c in back]
    commit(store, stage_alter(store, newest(store), again))
    assert newest(store).schema.field("text").nullable
    assert done.row_count == newest(store).count() == 3


def test_a_required_column_has_a_value_in_deleted_rows_too(store, tmp_path):
    """Else Lance cannot read the column where it reads it with all rows."""
    commit(store, store.stage_delete_keys(newest(store), pa.array(["b"])))
    columns = [
        *keep("id", "text"),
        as_required("age", pa.int64(), compute=lambda ages: ages.cast(pa.int64())),
        as_required("tags", pa.list_(pa.string()), compute=lambda tags: tags),
        ColumnPlan(pa.field("new", pa.string(), nullable=False), None, lambda ids: ids),
    ]
    commit(store, stage_alter(store, newest(store), columns))
    dataset = lance.dataset(str(tmp_path / "g.omni" / REF.location))
    every = dataset.scanner(
        columns=["age", "tags", "new"], with_row_id=True, include_deleted_rows=True
    ).to_table()
    assert every.num_rows == 3
    assert [every[name].null_count for name in ("age", "tags", "new")] == [0, 0, 0]
    assert [(row["id"], row["age"], row["new"]) for row in read(store)] == [
        ("a", 1, "a"),
        ("c", 3, "c"),
    ]


def test_a_new_column_never_shows_what_a_dropped_one_held(store):
    commit(store, stage_alter(store, newest(store), keep("id", "tags", "text")))
    commit(store, stage_alter(store, newest(store), keep("id", "age", "tags")[:1]))
    columns = [*keep("id"), *(ColumnPlan(SCHEMA.field(n), None) for n in SCHEMA.names[1:])]
    commit(store, stage_alter(store, newest(store), columns))
    assert read(store) == [
        {"id": item, "age": None, "tags": None, "text": None} for item in ("a", "b", "c")
    ]


def test_values_are_computed_where_they_are_asked_for(store, tmp_path):
    before = data_files(tmp_path)
    columns = [
        *keep("id"),
        ColumnPlan(
            pa.field("age", pa.int64(), nullable=False),
            "age",
            lambda values: pc.fill_null(values.cast(pa.int64()), 7),
        ),
        ColumnPlan(
            pa.field("kind", pa.string(), nullable=False),
            None,
            lambda ids: pa.array(["k"] * len(ids)),
        ),
        *keep("tags", "text"),
    ]
    commit(store, stage_alter(store, newest(store), columns))
    after = data_files(tmp_path)
    assert {path: after[path] for path in before} == before
    assert len(after) == len(before) + 2
    assert [(row["age"], row["kind"]) for row in read(store)] == [(1, "k"), (7, "k"), (3, "k")]
    schema = newest(store).schema
    assert schema.field("age") == pa.field("age", pa.int64(), nullable=False)
    assert not schema.field("kind").nullable
    more = pa.Table.from_pylist([{**ROWS[0], "id": "d", "kind": "n"}], schema=schema)
    commit(store, store.stage_upsert(newest(store), more))
    assert [row["kind"] for row in read(store)] == ["k", "k", "k", "n"]


def test_an_empty_table_gets_its_columns_too(objects, inline):
    inline.create("nodes/empty", SCHEMA)
    ref = TableRef("nodes/empty")
    store = TableStore(Datasets(objects, Durability.OS))
    columns = [
        *keep("id"),
        ColumnPlan(pa.field("n", pa.int64(), nullable=False), None, lambda ids: ids),
        ColumnPlan(pa.field("photo", pa.large_binary()), None),
    ]
    commit(store, stage_alter(store, newest(store, ref), columns))
    schema = newest(store, ref).schema
    assert schema.names == ["id", "n", "photo"]
    plain = pa.schema([column.field for column in columns])
    rows = pa.Table.from_pylist([{"id": "a", "n": 1, "photo": b"x"}], schema=plain)
    commit(store, store.stage_append(newest(store, ref), rows))
    assert [b.to_pylist() for b in newest(store, ref).whole_rows(["n", "photo"])] == [
        [{"n": 1, "photo": b"x"}]
    ]


def test_indexes_follow_a_column_to_its_new_name(store):
    specs = [IndexSpec("age", IndexKind.EQUALITY), IndexSpec("text", IndexKind.TEXT)]
    staged, failed = store.stage_indexes(newest(store), specs)
    assert not failed
    commit(store, staged)
    columns = [
        *keep("id"),
        ColumnPlan(SCHEMA.field("age").with_name("years"), "age"),
        ColumnPlan(SCHEMA.field("text").with_name("story"), "text"),
    ]
    commit(store, stage_alter(store, newest(store), columns))
    actual = newest(store).indexes()
    assert {name: item.complete for name, item in actual.items()} == {
        "years_equality": True,
        "story_text": True,
    }
    # A new column under the old name has no index, and can get one.
    again = [ColumnPlan(column.field, column.field.name) for column in columns]
    again.append(ColumnPlan(pa.field("age", pa.int32()), None))
    commit(store, stage_alter(store, newest(store), again))
    assert sorted(newest(store).indexes()) == ["story_text"]
    staged, failed = store.stage_indexes(newest(store), specs[:1])
    assert not failed
    commit(store, staged)
    assert newest(store).indexes()["age_equality"].complete


def test_the_layout_of_a_table_tells_a_name_from_an_earlier_one(store):
    first = newest(store).layout
    commit(store, stage_alter(store, newest(store), keep("id", "tags", "text")))
    columns = [*keep("id"), ColumnPlan(SCHEMA.field("age"), None), *keep("tags", "text")]
    commit(store, stage_alter(store, newest(store), columns))
    second = newest(store).layout
    assert [name for name, _ in first] == [name for name, _ in second]
    assert first != second


def test_versions_can_be_repeated(store):
    table = newest(store)
    steps = stage_alter(store, table, keep("id"))
    done = commit(store, [*steps, *stage_repeats(table, table.version + 1, 3)])
    assert done.version == table.version + 4
    assert read(store) == [{"id": "a"}, {"id": "b"}, {"id": "c"}]


# -- tables that begin again ----------------------------------------------------------------------


def test_a_table_that_begins_again_counts_on(store, inline):
    version = newest(store).version
    made = inline.begin_again(REF.location, SCHEMA, version + 1)
    assert (made.version, made.row_count) == (version + 2, 0)
    assert newest(store).read().num_rows == 0
    assert store.open(REF, version).read().num_rows == 3


def test_counting_can_be_taken_over_by_a_table_elsewhere(store, inline):
    table = newest(store)
    staged = store.stage_append(table, pa.Table.from_pylist([{"id": "z"}], schema=SCHEMA))
    numbering = commit(store, staged)
    made = inline.begin_again("nodes/other", SCHEMA, numbering.version, numbering)
    ref = TableRef("nodes/other")
    assert made.version > numbering.version
    assert newest(store, ref).schema.names == stored_schema(SCHEMA).names
    rows = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    commit(store, store.stage_append(newest(store, ref), rows))
    assert newest(store, ref).count() == 3
    assert newest(store).count() == 4
