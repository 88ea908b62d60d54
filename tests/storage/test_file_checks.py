"""Every file that Lance writes passes the checks, and no cut of it does."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import StorageFull, StorageUnavailable
from omnigraph.storage.lance_format.files import (
    Damaged,
    NewFile,
    check_new_file,
    check_transaction_file,
    check_version_file,
)
from omnigraph.storage.read_back import check_blobs, checked_sums

ROWS = 30_000


@pytest.fixture(scope="module")
def top(tmp_path_factory) -> Path:
    """A table with every kind of file: rows, both kinds of deletions, indexes, a branch."""
    top = tmp_path_factory.mktemp("table") / "t.lance"
    vectors = np.arange(ROWS * 4, dtype=np.float32).reshape(-1, 4)
    table = pa.table(
        {
            "id": [f"k{n}" for n in range(ROWS)],
            "n": range(ROWS),
            "text": [f"word{n % 50} and more" for n in range(ROWS)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4),
        }
    )
    dataset = lance.write_dataset(table, top, enable_stable_row_ids=True, max_rows_per_file=20_000)
    dataset.delete("n = 7")
    dataset.delete("n % 3 = 0 or n between 2000 and 9000")
    dataset.create_scalar_index("n", "BTREE")
    dataset.create_scalar_index("text", "INVERTED", with_position=True)
    dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
    dataset.create_branch("feat")
    return top


def files_in(top: Path, *folders: str) -> list[str]:
    actual = [path for folder in folders for path in (top / folder).rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(top)) for path in actual)


def cuts(raw: bytes) -> set[int]:
    """Lengths that a file has when the last writes to it were lost."""
    return {0, 1, 3, 15, len(raw) // 3, len(raw) // 2, len(raw) - 40, len(raw) - 1} - {len(raw)}


def one_cut(top: Path, name: str, tmp_path: Path):
    raw = (top / name).read_bytes()
    target = tmp_path / name
    target.parent.mkdir(parents=True, exist_ok=True)
    for length in sorted(length for length in cuts(raw) if 0 <= length < len(raw)):
        target.write_bytes(raw[:length])
        yield target


def test_all_kinds_of_files_are_there(top):
    names = files_in(top, "data", "_deletions", "_indices", "_versions", "_transactions", "_refs")
    ends = {Path(name).suffix for name in names}
    assert {".lance", ".arrow", ".bin", ".idx", ".manifest", ".txn", ".json"} <= ends


def test_a_whole_file_passes_and_no_cut_of_it_does(top, tmp_path):
    names = files_in(top, "data", "_deletions", "_indices", "_refs")
    for name in names:
        size = os.path.getsize(top / name)
        assert check_new_file(str(top), NewFile(name)).size == size
        for _ in one_cut(top, name, tmp_path):
            with pytest.raises(Damaged):
                check_new_file(str(tmp_path), NewFile(name))


def test_a_size_that_was_written_down_has_to_be_met(top):
    (name, *_) = files_in(top, "data")
    size = os.path.getsize(top / name)
    check_new_file(str(top), NewFile(name, size))
    with pytest.raises(Damaged, match=f"{size} of {size + 1} bytes"):
        check_new_file(str(top), NewFile(name, size + 1))


def test_a_deletion_file_has_to_mark_as_many_rows_as_its_version_says(top):
    dataset = lance.dataset(top)
    marks = [(f.fragment_id, f.metadata.deletion_file) for f in dataset.get_fragments()]
    assert marks
    for number, file in marks:
        name = file.path(number)
        check_new_file(str(top), NewFile(name, deleted=file.num_deleted_rows))
        with pytest.raises(Damaged, match="marks"):
            check_new_file(str(top), NewFile(name, deleted=file.num_deleted_rows + 1))


def test_a_version_file_says_its_number_and_its_transaction(top, tmp_path):
    for version in lance.dataset(top).versions():
        number = version["version"]
        name = f"_versions/{2**64 - 1 - number:020d}.manifest"
        content, _ = check_version_file(str(top / name))
        assert content.version == number
        made_by = lance.dataset(top, version=number).read_transaction(number)
        assert content.transaction_id == made_by.uuid
        assert content.transaction == (top / content.files[1]).read_bytes()
        for path in one_cut(top, name, tmp_path):
            with pytest.raises(Damaged) as caught:
                check_version_file(str(path))
            assert caught.value.unreadable_version


def test_a_transaction_file_is_compared_with_its_copy(top, tmp_path):
    name = f"_versions/{2**64 - 1 - 2:020d}.manifest"
    content, _ = check_version_file(str(top / name))
    transaction = content.files[1]
    check_transaction_file(str(top / transaction), content)
    check_transaction_file(str(top / transaction), content._replace(transaction=None))
    for path in one_cut(top, transaction, tmp_path):
        with pytest.raises(Damaged):
            check_transaction_file(str(path), content)


def test_a_file_that_is_gone_is_damage(top):
    for name in ("data/x.lance", "_deletions/x.arrow", "_indices/x/y.lance"):
        with pytest.raises(Damaged, match="missing"):
            check_new_file(str(top), NewFile(name))
    with pytest.raises(StorageUnavailable, match=r"x\.lance.*was not written completely"):
        checked_sums(str(top), [NewFile("data/x.lance")])


def test_blob_files_are_as_long_as_their_rows_say(tmp_path):
    top = tmp_path / "blobs.lance"
    values = [b"x" * 10, b"y" * 100_000, b"z" * 5_000_000, None]
    schema = pa.schema([pa.field("id", pa.string()), lance.blob_field("data")])
    table = pa.table({"id": list("abcd"), "data": lance.blob_array(values)}, schema=schema)
    dataset = lance.write_dataset(table, top, data_storage_version="2.2")
    names = [name for name in files_in(top, "data") if name.endswith(".lance")]
    check_blobs(dataset, str(top), names)
    blobs = [name for name in files_in(top, "data") if name.endswith(".blob")]
    assert len(blobs) == 2
    for name in blobs:
        raw = (top / name).read_bytes()
        (top / name).write_bytes(raw[:-1])
        with pytest.raises(Damaged, match="bytes"):
            check_blobs(dataset, str(top), names)
        (top / name).write_bytes(raw)


def test_damage_on_a_full_disk_says_so(tmp_path, monkeypatch):
    damage = Damaged(str(tmp_path / "data" / "x.lance"), "it is empty")
    assert isinstance(damage.error(), StorageUnavailable)
    (tmp_path / "data").mkdir()
    actual = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize, f_files, f_favail = 0, actual.f_frsize, actual.f_files, actual.f_favail

    monkeypatch.setattr(os, "statvfs", lambda path: Full)
    assert isinstance(damage.error(), StorageFull)
