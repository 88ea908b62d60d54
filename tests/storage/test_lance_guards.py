"""What we rely on in Lance. A release that changes one of these turns red here, with the reason."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments
from obstore.store import LocalStore

from omnigraph.errors import AlreadyExists, Conflict, StorageMissing
from omnigraph.storage.objects.paths import parse_root, version_file
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.failures import translate_lance

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


def ids(dataset):
    return sorted(dataset.to_table()["id"].to_pylist())


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
    """Nothing is looked for in a directory, since directories grow with the history."""
    dataset = lance.dataset(uri)
    dataset = LanceDataset.commit(dataset, staged(dataset, "append", "a", "b"), max_retries=0)
    deletion, _ = dataset.merge_insert("id").when_matched_delete().execute_uncommitted(rows("a"))
    part = deletion.operation.updated_fragments[0]
    dataset = LanceDataset.commit(dataset, deletion, max_retries=0)
    made_by = dataset.read_transaction(3)
    assert (part.deletion_file.read_version, made_by.read_version) == (2, 2)
    top = tmp_path / "t"
    for name in (
        version_file(3),
        f"_transactions/2-{made_by.uuid}.txn",
        part.deletion_file.path(part.id),
        f"data/{part.files[0].path}",
    ):
        assert (top / name).is_file(), name


def test_a_branch_lies_in_the_tree_and_numbers_its_versions_on(uri, tmp_path):
    branch = lance.dataset(uri).create_branch("review/x")
    assert (branch.version, (tmp_path / "t" / "tree" / "review" / "x").is_dir()) == (1, True)
    opened = lance.dataset(f"{uri}/tree/review/x")
    committed = LanceDataset.commit(opened, staged(opened, "append", "a"), max_retries=0)
    assert (committed.version, lance.dataset(uri).version) == (2, 1)


def test_a_branch_is_made_from_a_version_of_a_branch(uri):
    """A branch of a branch forks where its parent was, not where main or the parent is now."""
    lance.dataset(uri).create_branch("a")
    parent = lance.dataset(f"{uri}/tree/a")
    for name in ("x", "y"):
        parent = LanceDataset.commit(parent, staged(parent, "append", name), max_retries=0)
    child = lance.dataset(uri).create_branch("b", ("a", 2))
    assert (child.version, ids(child)) == (2, ["x"])
    existing = lance.dataset(uri).branches.list()["b"]
    assert (existing["parent_branch"], existing["parent_version"]) == ("a", 2)


def test_a_handle_of_a_branch_moves_between_versions_of_that_branch(uri):
    lance.dataset(uri).create_branch("a")
    branch = lance.dataset(f"{uri}/tree/a")
    for name in ("x", "y"):
        branch = LanceDataset.commit(branch, staged(branch, "append", name), max_retries=0)
    before = branch.checkout_version(2)
    assert (before.version, ids(before), ids(before.checkout_version(3))) == (2, ["x"], ["x", "y"])


@pytest.mark.parametrize("name", ["plain", "review/x", "a.b-c_d"])
def test_a_branch_exists_by_a_file_of_this_name(uri, tmp_path, name):
    """Whether a branch lives, and which life of it this is, is read off that file."""
    lance.dataset(uri).create_branch(name)
    made = sorted(path.name for path in (tmp_path / "t" / "_refs" / "branches").iterdir())
    assert made == [f"{name.replace('/', '%2F')}.json"]


# -- restoring ------------------------------------------------------------------------------------


LATE = {
    "append": lambda at: staged(at, "append", "c"),
    "overwrite": lambda at: staged(at, "overwrite", "c"),
    "upsert": lambda at: (
        at.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute_uncommitted(rows("a", "c"))[0]
    ),
    "delete": lambda at: (
        at.merge_insert("id").when_matched_delete().execute_uncommitted(rows("a"))[0]
    ),
    "index": lambda at: Transaction(
        at.version,
        LanceOperation.CreateIndex(
            [at.create_index_uncommitted("id", "BTREE", name="i", fragment_ids=[0])], []
        ),
    ),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_after_a_restore_no_late_commit_lands(uri, late):
    """The reason why a write is undone in every table that it names, moved or not."""
    dataset = lance.dataset(uri)
    pinned = LanceDataset.commit(dataset, staged(dataset, "append", "a", "b"), max_retries=0)
    transaction = late(pinned)
    restored = LanceDataset.commit(pinned, LanceOperation.Restore(2), read_version=2, max_retries=0)
    assert (restored.version, ids(restored)) == (3, ["a", "b"])
    error = failure(lambda: LanceDataset.commit(pinned, transaction, max_retries=0))
    assert (type(error), lance.dataset(uri).version) == (Conflict, 3)


def test_a_late_restore_wins_in_silence(uri):
    """The reason why a restore has to be exactly the next version, too."""
    dataset = lance.dataset(uri)
    LanceDataset.commit(dataset, staged(dataset, "append", "a"), max_retries=0)
    late = LanceDataset.commit(dataset, LanceOperation.Restore(1), read_version=1, max_retries=0)
    assert (late.version, ids(late)) == (3, [])


# -- the parts of a table -------------------------------------------------------------------------


def test_an_upsert_puts_all_changed_rows_into_new_parts(uri):
    """The reason why a newer manifest is reached by reading its new parts only."""
    dataset = lance.dataset(uri)
    dataset = LanceDataset.commit(dataset, staged(dataset, "append", "a", "b", "c"), max_retries=0)
    before = {part.fragment_id: part for part in dataset.get_fragments()}
    (
        dataset.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .conflict_retries(0)
        .use_index(False)
        .execute(rows("d", "b"))
    )
    after = {part.fragment_id: part for part in dataset.get_fragments()}
    new = [part for number, part in after.items() if number not in before]
    read = dataset.scanner(fragments=new).to_table().sort_by("id").to_pydict()
    assert read == {"id": ["b", "d"], "age": [1, 0]}
    assert min(part.fragment_id for part in new) > max(before)
    for number in before:
        old, now = before[number].metadata, after[number].metadata
        assert [file.path for file in now.files] == [file.path for file in old.files]
        assert after[number].count_rows() == 2


def test_an_overwrite_is_one_version_and_keeps_what_the_table_is(tmp_path):
    """The manifest compacts by this: stamp, key and stable row ids have to survive."""
    schema = SCHEMA.with_metadata({"stamp": "4"})
    uri = str(tmp_path / "stamped")
    lance.write_dataset(rows("a").cast(schema), uri, enable_stable_row_ids=True)
    dataset = lance.dataset(uri)
    for name in ("b", "c"):
        dataset.insert(rows(name).cast(schema))
    parts = max(part.fragment_id for part in dataset.get_fragments())
    rewritten = LanceDataset.commit(
        dataset,
        write_fragments(
            dataset.to_table(),
            dataset,
            mode="overwrite",
            return_transaction=True,
            enable_stable_row_ids=True,
        ),
        max_retries=0,
    )
    assert (dataset.version, rewritten.version, ids(rewritten)) == (3, 4, ["a", "b", "c"])
    assert rewritten.schema.equals(schema, check_metadata=True)
    assert rewritten.has_stable_row_ids
    assert [part.fragment_id for part in rewritten.get_fragments()] == [parts + 1]
    losers = 0
    for handle in (lance.dataset(uri), lance.dataset(uri)):
        try:
            handle.merge_insert("id").when_not_matched_insert_all().conflict_retries(0).execute(
                rows("new").cast(schema)
            )
        except OSError:
            losers += 1
    assert losers == 1


# -- indexes --------------------------------------------------------------------------------------


def test_several_indexes_are_one_commit_and_tell_what_they_cover(uri):
    dataset = lance.dataset(uri)
    dataset = LanceDataset.commit(dataset, staged(dataset, "append", "a", "b"), max_retries=0)
    built = [
        dataset.create_index_uncommitted(column, "BTREE", name=f"{column}_i", fragment_ids=[0])
        for column in ("id", "age")
    ]
    transaction = Transaction(2, LanceOperation.CreateIndex(built, []))
    indexed = LanceDataset.commit(dataset, transaction, max_retries=0)
    indexed = LanceDataset.commit(indexed, staged(indexed, "append", "c"), max_retries=0)
    covered = {
        index.name: [number for part in index.segments for number in part.fragment_ids]
        for index in indexed.describe_indices()
    }
    assert (indexed.version, covered) == (4, {"id_i": [0], "age_i": [0]})
    assert [part.fragment_id for part in indexed.get_fragments()] == [0, 1]
    assert indexed.to_table(filter="id = 'c'").num_rows == 1


# -- files ----------------------------------------------------------------------------------------


def test_the_tag_of_a_local_file_is_that_of_the_store_below_lance(uri, tmp_path):
    path = f"t/{version_file(1)}"
    actual = ObjectStore(parse_root(str(tmp_path))).head(path)
    theirs = LocalStore(str(tmp_path)).head(path)["e_tag"]
    assert theirs is not None
    assert actual.e_tag == theirs.strip('"')


# -- failures -------------------------------------------------------------------------------------


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
