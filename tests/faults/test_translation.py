"""What Lance and the object store really raise, and what becomes of it: one table.

Everything here is provoked. A release of Lance that words an error differently turns red.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments
from obstore.store import LocalStore, S3Store

from omnigraph.errors import (
    AlreadyExists,
    Conflict,
    InternalError,
    OmniGraphError,
    StorageCorrupt,
    StorageDenied,
    StorageFull,
    StorageMissing,
    StorageUnavailable,
    StorageUnknown,
)
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import Root
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.failures import UnfitValues, index_build, lance_call
from tests.faults.aftermath import Ending
from tests.faults.disks import SmallDisk, small_disk
from tests.s3.proxy import Action, Fault, Kind, S3Proxy
from tests.s3.server import options_for

pytestmark = pytest.mark.rotates(2)

ROWS = pa.table({"id": ["a", "b", "c"], "n": [1, 2, 3]})


def new_table(location: Path) -> LanceDataset:
    return lance.write_dataset(ROWS, location, enable_stable_row_ids=True)


def spoken(error: OmniGraphError) -> OmniGraphError:
    """An error that speaks our words and keeps what caused it."""
    Ending(error).check_words()
    assert error.__cause__ is not None
    return error


@dataclass(frozen=True)
class Provoked:
    """A call of Lance that fails, and the error that is made of it."""

    name: str
    call: Callable[[Path], Any]
    expected: type[OmniGraphError]
    writes: bool = False

    def __str__(self) -> str:
        return self.name

    def check(self, location: Path) -> None:
        with (
            pytest.raises(self.expected) as raised,
            lance_call("use", "the table", writes=self.writes),
        ):
            self.call(location)
        assert type(spoken(raised.value)) is self.expected


# -- not there, or there already ------------------------------------------------------------------


def branch_of_no_version(location: Path) -> None:
    new_table(location).create_branch("b", 9)


def branch_twice(location: Path) -> None:
    table = new_table(location)
    table.create_branch("b", 1)
    table.create_branch("b", 1)


def without_its_data(location: Path) -> None:
    new_table(location)
    only(location / "data").unlink()
    lance.dataset(location).to_table()


def removed_under_the_writer(location: Path) -> None:
    """As a branch that is deleted while rows for it are staged."""
    table = new_table(location)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        shutil.rmtree(location)
        yield from ROWS.to_batches()

    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    write_fragments(reader, table, mode="append", return_transaction=True)


def only(folder: Path) -> Path:
    (actual,) = folder.iterdir()
    return actual


ABSENCES = [
    Provoked("open nothing", lambda location: lance.dataset(location), StorageMissing),
    Provoked(
        "open a version that is not there",
        lambda location: lance.dataset(new_table(location).uri, version=9),
        StorageMissing,
    ),
    Provoked(
        "move to a version that is not there",
        lambda location: new_table(location).checkout_version(9),
        StorageMissing,
    ),
    Provoked(
        "ask who made a version that is not there",
        lambda location: new_table(location).read_transaction(9),
        StorageMissing,
    ),
    Provoked(
        "open a branch that is not there",
        lambda location: lance.dataset(f"{new_table(location).uri}/tree/b"),
        StorageMissing,
    ),
    Provoked(
        "delete a branch that is not there",
        lambda location: new_table(location).branches.delete("b"),
        StorageMissing,
        writes=True,
    ),
    Provoked("fork a version that is not there", branch_of_no_version, StorageMissing, True),
    Provoked("read without the data", without_its_data, StorageMissing),
    Provoked("write where the place is removed", removed_under_the_writer, StorageMissing),
    Provoked("the same in a commit", removed_under_the_writer, StorageUnknown, True),
    Provoked(
        "create it again",
        lambda location: lance.write_dataset(ROWS, new_table(location).uri, mode="create"),
        AlreadyExists,
        writes=True,
    ),
    Provoked("fork it again", branch_twice, AlreadyExists, True),
]


# -- somebody was faster --------------------------------------------------------------------------


def overwrite(table: LanceDataset) -> LanceDataset:
    staged = write_fragments(
        ROWS, table, mode="overwrite", return_transaction=True, enable_stable_row_ids=True
    )
    return LanceDataset.commit(table, staged, max_retries=0)


def overwrite_twice(location: Path) -> None:
    table = new_table(location)
    overwrite(table)
    overwrite(table)


def append_to_what_was_replaced(location: Path) -> None:
    table = new_table(location)
    staged = write_fragments(ROWS, table, mode="append", return_transaction=True)
    overwrite(table)
    LanceDataset.commit(lance.dataset(location, version=1), staged, max_retries=0)


def append_to_what_was_restored(location: Path) -> None:
    table = new_table(location)
    staged = write_fragments(ROWS, table, mode="append", return_transaction=True)
    LanceDataset.commit(table, LanceOperation.Restore(1), read_version=1, max_retries=0)
    LanceDataset.commit(lance.dataset(location, version=1), staged, max_retries=0)


def upsert(table: LanceDataset) -> None:
    (
        table.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .conflict_retries(0)
        .use_index(False)
        .execute(ROWS)
    )


def upsert_twice(location: Path) -> None:
    new_table(location)
    first, second = lance.dataset(location), lance.dataset(location)
    upsert(first)
    upsert(second)


def delete_twice(location: Path) -> None:
    table = new_table(location)
    gone = pa.table({"id": ["a"]})
    first, second = (
        table.merge_insert("id").when_matched_delete().execute_uncommitted(gone)[0]
        for _ in range(2)
    )
    LanceDataset.commit(table, first, max_retries=0)
    LanceDataset.commit(table, second, max_retries=0)


def delete_a_branch_with_branches(location: Path) -> None:
    table = new_table(location)
    table.create_branch("parent", 1)
    table.create_branch("child", ("parent", 1))
    table.branches.delete("parent")


CONFLICTS = [
    Provoked("overwrite", overwrite_twice, Conflict, True),
    Provoked("append after an overwrite", append_to_what_was_replaced, Conflict, True),
    Provoked("append after a restore", append_to_what_was_restored, Conflict, True),
    Provoked("upsert", upsert_twice, Conflict, True),
    Provoked("delete", delete_twice, Conflict, True),
    Provoked("delete a branch with branches", delete_a_branch_with_branches, Conflict, True),
]


# -- damaged --------------------------------------------------------------------------------------


def damaged(folder: str, damage: Callable[[bytes], bytes], read: Callable[[LanceDataset], Any]):
    """A table one of whose files is not what it was, and a look at it."""

    def call(location: Path) -> None:
        table = new_table(location)
        if folder == "_deletions":
            table.delete("n = 1")
        file = sorted((location / folder).iterdir())[0]
        file.write_bytes(damage(file.read_bytes()))
        read(lance.dataset(location))

    return call


def read_all(table: LanceDataset) -> pa.Table:
    return table.to_table()


def filter_rows(table: LanceDataset) -> pa.Table:
    return table.to_table(filter=pc.field("n") > 1)


def take_row(table: LanceDataset) -> pa.Table:
    return table._take_rows([1])


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut in half": lambda data: data[: len(data) // 2],
    "cut to its beginning": lambda data: data[:10],
    "empty": lambda data: b"",
    "something else": lambda data: b"x" * len(data),
    "with zeros in front": lambda data: bytes(100) + data[100:],
    "with another end": lambda data: data[:-40] + b"x" * 40,
}

CORRUPTIONS = [
    *(
        Provoked(f"{read.__name__}: {name}", damaged("data", damage, read), StorageCorrupt)
        for name, damage in DAMAGES.items()
        for read in (read_all, filter_rows, take_row)
    ),
    *(
        Provoked(
            f"open a version: {name}", damaged("_versions", DAMAGES[name], read_all), StorageCorrupt
        )
        for name in ("cut in half", "cut to its beginning", "empty", "something else")
    ),
    # Lance panics on this one.
    Provoked(
        "open a version: with an impossible length",
        damaged("_versions", lambda data: b"\xff" * 40 + data[40:], read_all),
        StorageCorrupt,
    ),
    *(
        Provoked(
            f"deletions, {read.__name__}",
            damaged("_deletions", DAMAGES["something else"], read),
            StorageCorrupt,
        )
        for read in (read_all, take_row)
    ),
]


# -- our own mistakes -----------------------------------------------------------------------------

MISTAKES = [
    Provoked(
        "a filter that is no SQL",
        lambda location: new_table(location).to_table(filter="n >"),
        InternalError,
    ),
    Provoked(
        "a filter on no column",
        lambda location: new_table(location).to_table(filter=pc.field("corrupt") > 1),
        InternalError,
    ),
    Provoked(
        "a filter of another type",
        lambda location: new_table(location).to_table(filter=pc.field("n") == "x"),
        InternalError,
    ),
    Provoked(
        "a set of another type",
        lambda location: new_table(location).to_table(filter=pc.field("n").isin(pa.array(["x"]))),
        InternalError,
    ),
    Provoked(
        "count with a filter on no column",
        lambda location: new_table(location).count_rows(filter="zz > 1"),
        InternalError,
    ),
    Provoked(
        "no such column",
        lambda location: new_table(location).to_table(columns=["zz"]),
        InternalError,
    ),
    Provoked(
        "an argument of another type",
        lambda location: new_table(location).to_table(columns=3),
        InternalError,
    ),
    Provoked(
        "rows of another schema",
        lambda location: lance.write_dataset(
            pa.table({"q": [1]}), new_table(location).uri, mode="append"
        ),
        InternalError,
        writes=True,
    ),
    Provoked(
        "staged rows of another schema",
        lambda location: write_fragments(
            pa.table({"id": [1], "n": ["x"]}),
            new_table(location),
            mode="append",
            return_transaction=True,
        ),
        InternalError,
    ),
    Provoked(
        "upsert by no column",
        lambda location: (
            new_table(location).merge_insert("zz").when_matched_update_all().execute(ROWS)
        ),
        InternalError,
        writes=True,
    ),
    Provoked(
        "upsert one key twice",
        lambda location: (
            new_table(location)
            .merge_insert("id")
            .when_matched_update_all()
            .execute_uncommitted(pa.table({"id": ["a", "a"], "n": [1, 2]}))
        ),
        InternalError,
    ),
    Provoked(
        "index no column",
        lambda location: new_table(location).create_index_uncommitted(
            "zz", "BTREE", name="i", fragment_ids=[0]
        ),
        InternalError,
    ),
    Provoked(
        "index a number as text",
        lambda location: new_table(location).create_index_uncommitted(
            "n", "INVERTED", name="i", fragment_ids=[0]
        ),
        InternalError,
    ),
]


@pytest.mark.parametrize("provoked", [*ABSENCES, *CONFLICTS, *CORRUPTIONS, *MISTAKES], ids=str)
def test_what_lance_raises_becomes_an_error_of_ours(tmp_path, provoked):
    provoked.check(tmp_path / "table")


@pytest.mark.parametrize("name", ["503", "not found", "already exists", "403 Forbidden"])
def test_the_name_of_a_place_decides_nothing(tmp_path, name):
    table = new_table(tmp_path / name / "in between" / "table")
    for file in (tmp_path / name / "in between" / "table" / "data").iterdir():
        file.write_bytes(b"")
    with pytest.raises(StorageCorrupt), lance_call("read", "the table"):
        lance.dataset(table.uri).to_table()
    with pytest.raises(StorageMissing), lance_call("read", "the table"):
        lance.dataset(f"{table.uri}/deep 503/table")


def test_vectors_without_a_direction_are_values_that_cannot_be_indexed(tmp_path):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.0, 0.0], pa.float32()), 2)
    dataset = lance.write_dataset(pa.table({"v": vectors}), tmp_path / "t")
    with pytest.raises(UnfitValues), index_build("v_vector", "t"):
        dataset.create_index_uncommitted(
            "v", "IVF_FLAT", fragment_ids=[0], name="x", metric="cosine", num_partitions=1
        )


@pytest.mark.parametrize(
    "error",
    [OSError("LanceError(IO): Request precondition failure"), RuntimeError("what is this?")],
)
def test_what_nobody_knows_is_never_the_fault_of_the_values(error):
    with pytest.raises(StorageUnavailable) as caught, index_build("v_vector", "t"):
        raise error
    assert spoken(caught.value).retryable


def test_a_process_that_may_open_no_more_files_has_no_damaged_ones(tmp_path):
    lance.write_dataset(ROWS, str(tmp_path / "t"))
    table = lance.dataset(str(tmp_path / "t"))
    table.delete("true")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(StorageUnavailable) as raised, lance_call("read", "it"):
            lance.dataset(str(tmp_path / "t"), version=1).to_table()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    spoken(raised.value)
    assert "too many files" in raised.value.message


def test_what_is_no_error_of_lance_goes_through():
    with pytest.raises(KeyboardInterrupt), lance_call("read", "the table"):
        raise KeyboardInterrupt


# -- the disk -------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    top = tmp_path / "disk"
    top.mkdir()
    with small_disk(top) as actual:
        yield actual


CHANGES: dict[str, Callable[[LanceDataset, Any], Any]] = {
    "stage": lambda table, staged: write_fragments(
        ROWS, table, mode="append", return_transaction=True
    ),
    "commit": lambda table, staged: LanceDataset.commit(table, staged, max_retries=0),
    "upsert": lambda table, staged: upsert(table),
    "create": lambda table, staged: lance.write_dataset(ROWS, f"{table.uri}2"),
    "branch": lambda table, staged: table.create_branch("b", 1),
    "index": lambda table, staged: table.create_index_uncommitted(
        "id", "BTREE", name="i", fragment_ids=[0]
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("state", ["no pages", "no entries", "read-only"])
def test_a_disk_that_takes_nothing_is_told_from_one_that_does_not_answer(disk, change, state):
    table = new_table(disk.top / "table")
    staged = write_fragments(ROWS, table, mode="append", return_transaction=True)
    limits = {
        "no pages": (StorageFull, lambda: disk.only(pages=0)),
        "no entries": (StorageFull, lambda: disk.only(entries=0)),
        "read-only": (StorageDenied, disk.read_only),
    }
    expected, limit = limits[state]
    with limit(), pytest.raises(expected) as raised, lance_call("write", "it", writes=True):
        CHANGES[change](lance.dataset(table.uri), staged)
    spoken(raised.value)


@pytest.mark.parametrize("state", ["full", "read-only"])
def test_the_object_store_tells_why_a_disk_takes_nothing(disk, state):
    store = LocalStore(disk.top)
    limit, expected = (
        (disk.only(entries=0), StorageFull)
        if state == "full"
        else (disk.read_only(), StorageDenied)
    )
    with limit, pytest.raises(expected) as raised, storage_call("write", "it", writes=True):
        store.put("a", b"x")
    spoken(raised.value)


# -- S3 -------------------------------------------------------------------------------------------

STRANGER = {"aws_secret_access_key": "wrong"}


@pytest.fixture
def remote(s3_root) -> Root:
    root = s3_root("table")
    lance.write_dataset(ROWS, root.uri, storage_options=dict(root.options))
    return root


@pytest.mark.parametrize(
    "call",
    [
        lambda uri, options: lance.dataset(uri, storage_options=options),
        lambda uri, options: lance.write_dataset(ROWS, f"{uri}2", storage_options=options),
    ],
    ids=["open", "create"],
)
def test_a_stranger_is_denied_by_lance(remote, call):
    options = {**remote.options, **STRANGER}
    with pytest.raises(StorageDenied) as raised, lance_call("use", "it", writes=True):
        call(remote.uri, options)
    spoken(raised.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.read("a"),
        lambda store: store.write("a", "x"),
        lambda store: store.create("a", "x"),
        lambda store: store.head("a"),
        lambda store: store.exists("a"),
        lambda store: store.list(""),
        lambda store: store.delete("a"),
    ],
    ids=["read", "write", "create", "head", "exists", "list", "delete"],
)
def test_a_stranger_is_denied_by_the_object_store(remote, call):
    store = ObjectStore(Root(remote.uri, {**remote.options, **STRANGER}))
    with pytest.raises(StorageDenied) as raised:
        call(store)
    spoken(raised.value)


def test_a_bucket_that_is_not_there_is_missing(remote):
    with pytest.raises(StorageMissing), lance_call("open", "it"):
        lance.dataset("s3://no-such-bucket/table", storage_options=dict(remote.options))


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (Action.UNAVAILABLE, Kind.LIST),
        (Action.TRUNCATE, Kind.LIST),
        (Action.TRUNCATE, Kind.GET),
        # Lance tries these for nine seconds.
        pytest.param(Action.UNAVAILABLE, Kind.GET, marks=pytest.mark.slow),
        pytest.param(Action.CUT_BEFORE, Kind.GET, marks=pytest.mark.slow),
        pytest.param(Action.CUT_BEFORE, Kind.LIST, marks=pytest.mark.slow),
    ],
)
def test_a_server_that_does_not_answer_is_unavailable(remote, proxy: S3Proxy, action, kind):
    proxy.plan(Fault(action, times=float("inf"), kind=kind))
    with pytest.raises(StorageUnavailable) as raised, lance_call("read", "it"):
        lance.dataset(remote.uri, storage_options=options_for(proxy.endpoint)).to_table()
    spoken(raised.value)


@pytest.mark.parametrize("action", [Action.UNAVAILABLE, Action.CUT_BEFORE, Action.CUT_AFTER])
def test_a_write_without_an_answer_is_unknown(remote, proxy: S3Proxy, action):
    proxy.plan(Fault(action, times=float("inf"), kind=Kind.PUT))
    options = options_for(proxy.endpoint)
    with pytest.raises(StorageUnknown) as raised, lance_call("write", "it", writes=True):
        lance.write_dataset(ROWS, remote.uri, mode="append", storage_options=options)
    spoken(raised.value)


@pytest.mark.parametrize("action", [Action.PRECONDITION, Action.CONFLICT])
def test_a_version_that_is_taken_is_a_conflict(remote, proxy: S3Proxy, action):
    options = options_for(proxy.endpoint)
    table = lance.dataset(remote.uri, storage_options=options)
    staged = write_fragments(
        ROWS, table, mode="append", return_transaction=True, storage_options=options
    )
    proxy.plan(Fault(action, kind=Kind.PUT, path=".manifest"))
    with pytest.raises(Conflict) as raised, lance_call("commit", "it", writes=True):
        LanceDataset.commit(table, staged, max_retries=0, storage_options=options)
    spoken(raised.value)


@pytest.mark.parametrize("name", ["cut in half", "empty", "something else"])
@pytest.mark.parametrize("folder", ["data", "_versions"])
def test_a_damaged_object_is_corrupt(remote, folder, name):
    store = S3Store(remote.bucket, prefix=remote.prefix, config=dict(remote.options))
    path = store.list_with_delimiter(f"{folder}/")["objects"][0]["path"]
    store.put(path, DAMAGES[name](bytes(store.get(path).bytes())))
    with pytest.raises(StorageCorrupt) as raised, lance_call("read", "it"):
        lance.dataset(remote.uri, storage_options=dict(remote.options)).to_table()
    spoken(raised.value)


@pytest.mark.parametrize(("start", "end"), [(-120, -80), (-40, -4)])
def test_what_the_reader_of_files_refuses_is_damage(tmp_path, start, end):
    """Lance calls it invalid input of the user, and no user sees these bytes."""
    dataset = lance.write_dataset(pa.table({"a": range(200)}), tmp_path / "t.lance")
    file = next((tmp_path / "t.lance" / "data").iterdir())
    whole = bytearray(file.read_bytes())
    whole[start:end] = b"\xff" * (end - start)
    file.write_bytes(whole)
    with pytest.raises(StorageCorrupt), lance_call("read", "t"):
        dataset.to_table()


def test_a_directory_that_cannot_be_looked_at_is_unavailable(tmp_path):
    """Lance only says that it exists; here it is a file."""
    dataset = new_table(tmp_path / "t.lance")
    shutil.rmtree(tmp_path / "t.lance" / "data")
    (tmp_path / "t.lance" / "data").write_text("")
    with (
        pytest.raises(StorageUnavailable) as caught,
        lance_call("stage an append to", "t"),
    ):
        write_fragments(ROWS, dataset.uri)
    spoken(caught.value)
