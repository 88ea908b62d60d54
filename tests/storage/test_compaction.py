"""What compaction and index segments rely on in Lance, each with the rule that follows from it."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.query import MatchQuery

from omnigraph.storage.tables.compaction import (
    compact,
    compaction_split,
    stage_before_indexes,
    stage_segments,
)
from omnigraph.storage.tables.fragments import TableLocator, open_version
from omnigraph.storage.tables.inline import as_if_committed
from omnigraph.storage.tables.segments import IndexBuild, build_segment, oldest_rows, segments_of
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import IndexKind, IndexSpec, TableRef

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False, metadata=KEY), pa.field("text", pa.string())]
)
STAMPS = ["_row_created_at_version", "_row_last_updated_at_version"]
TEXT = IndexSpec("text", IndexKind.TEXT)
EQUALITY = IndexSpec("text", IndexKind.EQUALITY)


@pytest.fixture
def uri(tmp_path):
    """Three parts of two rows each, at version 4."""
    path = str(tmp_path / "t")
    LanceDataset.commit(path, LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True)
    for n in range(3):
        append(path, f"a{n}", f"b{n}")
    return path


def append(uri, *ids):
    rows = pa.table({"id": list(ids), "text": [f"word of {name}" for name in ids]}, SCHEMA)
    return lance.write_dataset(rows, uri, mode="append")


def at(uri, version=None):
    dataset = lance.dataset(uri, version=version)
    return Table(TableRef("t"), dataset), TableLocator(uri, "t", int(dataset.version))


def rewritten(uri, parts=(0, 1, 2)):
    table, location = at(uri)
    return table, location, compact(compaction_split(table, location, parts))


def commit(uri, *steps):
    for step in steps:
        dataset = lance.dataset(uri, version=step.base)
        LanceDataset.commit(dataset, step.transaction, max_retries=0)
    return lance.dataset(uri)


def indexed(uri, spec, parts, dropped=()):
    table, location = at(uri)
    built = build_segment(IndexBuild(location, spec, tuple(parts)))
    return commit(uri, stage_segments(table, 0, [built], dropped))


def rows_of(dataset):
    return dataset.to_table(columns=["id", *STAMPS], with_row_id=True).sort_by("id").to_pylist()


def actual(dataset, words):
    rows = dataset.to_table(columns=["id"], full_text_query=MatchQuery(words, "text"))
    return sorted(rows["id"].to_pylist())


def test_a_staged_rewriting_is_one_version_with_the_same_rows(uri):
    """Lance's own commit of a compaction makes two, of which nobody knows the transactions."""
    before = rows_of(lance.dataset(uri))
    table, _, done = rewritten(uri)
    (step,) = stage_before_indexes(table, [], [], [done])
    after = commit(uri, step)
    assert after.version == 5
    assert after.read_transaction(5).uuid == step.transaction_id
    assert len(after.get_fragments()) == 1
    assert rows_of(after) == before


def test_parts_that_are_rewritten_need_not_be_neighbours_and_come_last(uri):
    table, _, done = rewritten(uri, (0, 2))
    after = commit(uri, *stage_before_indexes(table, [], [], [done]))
    assert [part.rows for part in Table(TableRef("t"), after).fragments()] == [2, 4]
    assert [part.number for part in Table(TableRef("t"), after).fragments()] == [1, 3]


def test_a_text_segment_may_not_know_a_half_of_what_is_rewritten(uri):
    """So such a segment is dropped in a step before."""
    indexed(uri, TEXT, [0, 1])
    table, location, done = rewritten(uri)
    steps = stage_before_indexes(table, [], [], [done])
    with pytest.raises(OSError, match="split of indexed and non-indexed"):
        commit(uri, *steps)
    dropped = segments_of(table)[TEXT.name]
    steps = stage_before_indexes(table, [], dropped, [done])
    with as_if_committed(location, steps) as view:
        (part,) = open_version(view).fragments()
        built = build_segment(IndexBuild(view, TEXT, (part.number,)))
    after = commit(uri, *steps, stage_segments(table, len(steps), [built], ()))
    assert after.version == table.version + 3
    assert actual(after, "b2") == ["b2"]
    assert [s.fragments for s in segments_of(Table(TableRef("t"), after))[TEXT.name]] == [{3}]


def test_an_equality_index_knows_nothing_of_what_is_rewritten(uri):
    """It holds where rows lie, so it is built on the version that it is meant for."""
    indexed(uri, EQUALITY, [0, 1, 2])
    table, _, done = rewritten(uri)
    after = commit(uri, *stage_before_indexes(table, [], [], [done]))
    (segment,) = segments_of(Table(TableRef("t"), after))[EQUALITY.name]
    assert segment.fragments == set()


def test_beside_an_older_text_segment_a_changed_row_is_found_by_its_old_words(uri):
    """So a segment goes that may know a row of a new one: the age of the rows tells."""
    indexed(uri, TEXT, [0, 1, 2])
    dataset = lance.dataset(uri)
    rows = pa.table({"id": ["a0"], "text": ["changed"]}, SCHEMA)
    transaction, _ = dataset.merge_insert("id").when_matched_update_all().execute_uncommitted(rows)
    LanceDataset.commit(dataset, transaction)
    assert actual(lance.dataset(uri), "a0") == []
    table, _ = at(uri)
    (old,) = segments_of(table)[TEXT.name]
    assert oldest_rows(table, [3]) == {3: 2}
    assert old.version >= 2
    assert actual(indexed(uri, TEXT, [3]), "a0") == ["a0"]
    table, _ = at(uri)
    assert actual(indexed(uri, TEXT, range(4), segments_of(table)[TEXT.name]), "a0") == []


def test_a_view_is_of_the_version_that_was_meant_whoever_commits_meanwhile(uri):
    table, location, done = rewritten(uri)
    append(uri, "late")
    with as_if_committed(location, stage_before_indexes(table, [], [], [done])) as view:
        assert [part.rows for part in open_version(view).fragments()] == [6]
    assert lance.dataset(uri).version == 5


def test_from_an_address_it_would_be_of_the_newest(uri):
    table, _, done = rewritten(uri)
    (step,) = stage_before_indexes(table, [], [], [done])
    append(uri, "late")
    made = LanceDataset.commit(
        uri, step.transaction.operation, read_version=table.version, detached=True
    )
    assert sorted(fragment.count_rows() for fragment in made.get_fragments()) == [1, 6]


def test_a_rewriting_whose_parts_were_changed_is_refused(uri):
    table, _, done = rewritten(uri)
    lance.dataset(uri).delete("id = 'a1'")
    (step,) = stage_before_indexes(table, [], [], [done])
    with pytest.raises(OSError, match="conflict"):
        LanceDataset.commit(lance.dataset(uri, version=4), step.transaction, max_retries=0)


def test_a_transaction_names_the_version_that_it_is_staged_on(uri):
    """Steps of one write are staged on versions that are not there yet."""
    table, _, done = rewritten(uri)
    steps = stage_before_indexes(table, ["lance.auto_cleanup.interval"], [], [done])
    assert [step.base for step in steps] == [4, 5]
    assert all(isinstance(step.transaction, Transaction) for step in steps)
    assert commit(uri, *steps).version == 6
