"""Rows that wait for their commit, in memory or in a file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.errors import StorageFull, StorageMissing
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.write.load import intake, spool
from omnigraph.write.load.rejects import file_and_line, source_line
from omnigraph.write.load.spool import Budget, Spool
from tests.write.load.world import edge, names, node, people, rows

KIND = compile_schema("node N { name: String @key  words: [String]?  body: Blob? }").node("N")


def batch(*names):
    rows = pa.table(
        {
            "id": pa.array(names, pa.string()),
            "body": pa.array([name.encode() for name in names], pa.large_binary()),
            "name": pa.array(names, pa.string()),
            "words": pa.array([[name, ""] for name in names], pa.list_(pa.string())),
            "source_line~": pa.array([source_line(1, int(name)) for name in names], pa.int64()),
        }
    )
    schema = Spool(KIND, Path(), Budget()).schema
    return rows.select(schema.names).cast(schema).to_batches()[0]


@pytest.fixture(params=[0, 1 << 20], ids=["on disk", "in memory"])
def filled_spool(request, tmp_path):
    waiting = Spool(KIND, tmp_path, Budget(request.param))
    for some in ("012", "34", "56789"):
        waiting.add(batch(*some))
    waiting.close()
    assert waiting.is_large == (request.param == 0)
    return waiting


def as_table(data):
    return data.read_all() if isinstance(data, pa.RecordBatchReader) else data


def test_rows_come_out_as_they_went_in_again_and_again(filled_spool):
    for _ in range(2):
        table = as_table(filled_spool.data())
        assert table.column_names == KIND.arrow_schema().names
        assert table["name"].to_pylist() == list("0123456789")
        assert table["words"].to_pylist()[3] == ["3", ""]
        assert table["body"].to_pylist()[9] == b"9"


def test_columns_are_read_alone_and_in_any_order(filled_spool):
    table = filled_spool.select(["words", "id"])
    assert table.column_names == ["words", "id"]
    assert table["id"].to_pylist() == list("0123456789")


def test_rows_that_are_dropped_are_gone_from_every_view(filled_spool):
    """Positions are those after earlier drops."""
    filled_spool.drop([0, 4])
    filled_spool.drop([1, 7])
    assert filled_spool.num_rows == 6
    assert as_table(filled_spool.data())["name"].to_pylist() == list("135678")
    assert filled_spool.select(["id"])["id"].to_pylist() == list("135678")
    lines = filled_spool.source_lines([5, 0, 2])
    assert [file_and_line(number) for number in lines] == [(1, 8), (1, 1), (1, 5)]


def test_everything_may_be_dropped(filled_spool):
    filled_spool.drop(range(10))
    assert filled_spool.num_rows == 0
    assert as_table(filled_spool.data()).num_rows == 0


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files here need a name")
def test_a_file_has_no_name_so_that_a_killed_load_leaves_none(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    waiting = Spool(KIND, tmp_path, Budget(0))
    waiting.add(batch(*"01"))
    assert list(tmp_path.iterdir()) == []
    waiting.add(batch("2"))
    waiting.close()
    assert waiting.select(["id"])["id"].to_pylist() == list("012")
    assert as_table(waiting.data())["name"].to_pylist() == list("012")
    del waiting
    assert len(os.listdir("/proc/self/fd")) == before


def test_spools_share_what_they_may_hold(tmp_path):
    """Many types together hold no more than one; who comes too late goes to disk."""
    size = batch("1").nbytes
    budget = Budget(2 * size)
    spools = [Spool(KIND, tmp_path / str(n), budget) for n in range(3)]
    for n, item in enumerate(spools):
        (tmp_path / str(n)).mkdir()
        item.add(batch("1"))
        item.close()
    assert [item.is_large for item in spools] == [False, False, True]


def test_a_disk_that_is_full_is_said(tmp_path):
    rows = Spool(KIND, tmp_path, Budget(0))
    rows._path.symlink_to("/dev/full")
    with pytest.raises(StorageFull, match="temporary directory has no room"):
        rows.add(batch("1"))


def test_a_temporary_directory_that_is_gone_is_not_called_full(tmp_path):
    rows = Spool(KIND, tmp_path / "not there", Budget(0))
    with pytest.raises(StorageMissing, match="temporary directory"):
        rows.add(batch("1"))


# -- whole loads ------------------------------------------------------------------------------


@pytest.fixture
def all_on_disk(monkeypatch):
    """Every row goes through a file, in many batches."""
    monkeypatch.setattr(spool, "_IN_MEMORY", 0)
    monkeypatch.setattr(intake, "_MAX_GATHERED", 0)


@pytest.mark.parametrize("mode", ["merge", "append", "overwrite"])
@pytest.mark.usefixtures("all_on_disk")
def test_a_load_through_files(filled, monkeypatch, tmp_path, mode):
    """The same graph comes out; no file is left behind."""
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    loops = [edge("Knows", f"p{n}", f"p{n}") for n in range(50)]
    data = [*people(*(f"p{n:02}" for n in range(10, 60))), *loops[10:], edge("Knows", "Z", "Z")]
    data += [*people("Ada", "Bob", "Cyd")] if mode == "overwrite" else []
    data += [*people("p10")]
    receipt = filled.load(data, mode, max_rejects=5)
    assert receipt.rejected == 2
    assert len(names(filled)) == 53
    assert len(rows(filled, "Knows", "id")) == (40 if mode == "overwrite" else 41)
    assert list(own.iterdir()) == []


@pytest.mark.usefixtures("all_on_disk")
def test_a_refused_load_leaves_no_file(filled, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(Exception, match="not found"):
        filled.load([*people("X"), edge("Knows", "X", "Y")])
    assert [name for name in os.listdir(tmp_path) if name.startswith("omnigraph-load")] == []


@pytest.mark.usefixtures("all_on_disk")
def test_many_rows_replace_older_ones_also_under_indexes(empty):
    """What streams is deleted and added in one version; nobody sees a row twice or not at all."""
    empty.load([node("Person", name=f"p{n}", age=n) for n in range(100)])
    empty.indexes.ensure()
    receipt = empty.load([node("Person", name=f"p{n}", age=n % 7) for n in range(50, 130)])
    counts = receipt.tables["node:Person"]
    assert (counts.inserted, counts.updated, counts.deleted) == (30, 50, 0)
    expected = [(f"p{n}", n if n < 50 else n % 7) for n in range(130)]
    assert rows(empty, "Person", "name", "age") == sorted(expected)
    for name, age in expected[::13]:
        actual = empty.snapshot().read("Person", ["age"], pc.field("id") == name)
        assert actual["age"].to_pylist() == [age]
    empty.mutate('query q() { delete Person where name = "p99" }')
    empty.load([node("Person", name="p98", age=1), edge("Knows", "p98", "p0")])
    assert len(names(empty)) == 129
    assert empty.load([node("Person", name="p99")]).tables["node:Person"].inserted == 1
