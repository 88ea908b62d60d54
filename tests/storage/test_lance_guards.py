"""What we rely on in Lance. A release that changes one of these turns red here, with the reason."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from omnigraph.errors import AlreadyExists, Conflict, StorageMissing
from omnigraph.storage.datasets import manifest_name
from omnigraph.storage.lance_failures import translate_lance

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False, metadata=KEY), pa.field("age", pa.int32())]
)


@pytest.fixture
def uri(tmp_path):
    path = str(tmp_path / "t")
    LanceDataset.commit(path, LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True)
    return path


def rows(*ids):
    return pa.table({"id": list(ids), "age": pa.array(range(len(ids)), pa.int32())}, SCHEMA)


def staged(dataset, mode, *ids):
    return write_fragments(rows(*ids), dataset, mode=mode, return_transaction=True)


def failure(work):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        work()
    return translate_lance(caught.value, "use", "t", writes=True)


def test_an_empty_table_starts_at_version_one_with_stable_row_ids(uri):
    dataset = lance.dataset(uri)
    assert (dataset.version, dataset.count_rows()) == (1, 0)
    assert dataset.has_stable_row_ids


def test_staging_moves_nothing(uri):
    dataset = lance.dataset(uri)
    staged(dataset, "append", "a")
    dataset.merge_insert("id").when_not_matched_insert_all().execute_uncommitted(rows("b"))
    assert lance.dataset(uri).version == 1


def test_a_late_append_is_rebased_in_silence_even_without_retries(uri):
    """The reason why a commit must be exactly the next version to count as ours."""
    dataset = lance.dataset(uri)
    first, second = staged(dataset, "append", "a"), staged(dataset, "append", "b")
    assert LanceDataset.commit(dataset, first, max_retries=0).version == 2
    assert LanceDataset.commit(dataset, second, max_retries=0).version == 3


def test_two_staged_upserts_of_one_new_key_both_win(uri):
    """The reason why writers of one table exclude each other."""
    dataset = lance.dataset(uri)
    upserts = [
        dataset.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute_uncommitted(rows("same"))[0]
        for _ in range(2)
    ]
    for upsert in upserts:
        LanceDataset.commit(dataset, upsert, max_retries=0)
    assert lance.dataset(uri).count_rows() == 2


def test_a_late_overwrite_without_retries_is_a_conflict(uri):
    """The reason why the manifest compacts by one strict overwrite."""
    dataset = lance.dataset(uri)
    late = staged(dataset, "overwrite", "x")
    LanceDataset.commit(dataset, staged(dataset, "append", "a"), max_retries=0)
    error = failure(lambda: LanceDataset.commit(dataset, late, max_retries=0))
    assert type(error) is Conflict


def test_an_upsert_executed_directly_has_one_winner_for_a_new_key(uri):
    """The compare-and-set of the manifest: key metadata, no index on the key, no retries."""
    losers: list[OSError] = []
    handles = [lance.dataset(uri), lance.dataset(uri)]
    for handle in handles:
        upsert = (
            handle.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .conflict_retries(0)
            .use_index(False)
        )
        try:
            upsert.execute(rows("same"))
        except OSError as error:
            losers.append(error)
    kinds = [type(translate_lance(error, "use", "t", writes=True)) for error in losers]
    assert (kinds, lance.dataset(uri).count_rows()) == ([Conflict], 1)


def test_a_transaction_can_be_found_by_its_id(uri):
    dataset = lance.dataset(uri)
    transaction = staged(dataset, "append", "a")
    committed = LanceDataset.commit(dataset, transaction, max_retries=0)
    assert committed.read_transaction(2).uuid == transaction.uuid
    assert committed.read_transaction(1).uuid != transaction.uuid


def test_files_have_the_names_that_are_synced(uri, tmp_path):
    dataset = lance.dataset(uri)
    dataset = LanceDataset.commit(dataset, staged(dataset, "append", "a", "b"), max_retries=0)
    deletion, _ = dataset.merge_insert("id").when_matched_delete().execute_uncommitted(rows("a"))
    LanceDataset.commit(dataset, deletion, max_retries=0)
    top = tmp_path / "t"
    assert (top / "_versions" / manifest_name(3)).exists()
    assert len(list((top / "_transactions").glob("2-*.txn"))) == 1
    assert len(list((top / "_deletions").glob("*-2-*"))) == 1


def test_a_branch_lies_in_the_tree_and_numbers_its_versions_on(uri, tmp_path):
    branch = lance.dataset(uri).create_branch("review/x")
    assert (branch.version, (tmp_path / "t" / "tree" / "review" / "x").is_dir()) == (1, True)
    opened = lance.dataset(f"{uri}/tree/review/x")
    committed = LanceDataset.commit(opened, staged(opened, "append", "a"), max_retries=0)
    assert (committed.version, lance.dataset(uri).version) == (2, 1)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda uri: lance.dataset(f"{uri}-gone"), StorageMissing),
        (lambda uri: lance.dataset(uri, version=9), StorageMissing),
        (lambda uri: lance.dataset(uri).checkout_version(9), StorageMissing),
        (lambda uri: lance.dataset(f"{uri}/tree/gone"), StorageMissing),
        (lambda uri: lance.write_dataset(rows("a"), uri, mode="create"), AlreadyExists),
    ],
    ids=["dataset", "version", "checkout", "branch", "existing dataset"],
)
def test_failures_are_told_apart(uri, work, expected):
    error = failure(lambda: work(uri))
    assert type(error) is expected
    assert "/rust/" not in error.message
