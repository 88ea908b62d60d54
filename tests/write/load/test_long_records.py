"""Records that are too long, read by one process and by many: the same error, and little memory."""

from __future__ import annotations

import tracemalloc

import pytest

from omnigraph.errors import LoadError
from omnigraph.spark.load import read_tasks
from omnigraph.spark.load.run import split_reader
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.write.load import limits, ndjson
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.run import load_into

pytestmark = pytest.mark.rotates(3)

SMALL = 1 << 16
GOOD = b'{"type": "Person", "data": {"name": "Ada"}}\n'
FILES = {
    "a line of NDJSON": ("x.ndjson", GOOD + b'{"type": "' + b"x" * (20 * SMALL), 2),
    "an open bracket": ("x.ndjson", GOOD + b'{"type":\n' + b"\n" * (4 * SMALL), 2),
    "lines behind a long one": ("x.ndjson", b"x" * (20 * SMALL) + b"\n" + GOOD, 1),
    "a line of CSV": ("Person.csv", b"name\nAda\n" + b"x" * (20 * SMALL), 3),
    "an open quote": ("Person.csv", b'name\nAda\n"' + b"x\n" * (10 * SMALL), 3),
}


def load_in_splits(graph, path):
    reader = split_reader(ThreadExecutor(1), split_bytes=SMALL)
    job, destination = LoadJob([str(path)], LoadMode.MERGE), LoadDestination("main")
    load_into(graph._handle.store, graph.catalog, job, destination, reader)


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("how", ["local", "shares"])
def test_a_record_that_is_too_long_is_refused_alike(empty, tmp_path, monkeypatch, case, how):
    monkeypatch.setattr(limits, "LONGEST_RECORD", SMALL)
    monkeypatch.setattr(ndjson, "_BLOCK", 1 << 12)
    monkeypatch.setattr(read_tasks, "_READ_BYTES", 1 << 12)
    name, text, line = FILES[case]
    path = tmp_path / name
    path.write_bytes(text)
    with pytest.raises(LoadError) as caught:
        empty.load(path) if how == "local" else load_in_splits(empty, path)
    assert caught.value.message == f"{path}:{line}: the record is too long"
    assert "not closed" in caught.value.hint


def test_shares_of_one_long_line_hold_only_pieces_of_it(empty, tmp_path, monkeypatch):
    """Each of them looks for the end of the line that it begins in."""
    monkeypatch.setattr(limits, "LONGEST_RECORD", SMALL)
    monkeypatch.setattr(read_tasks, "_READ_BYTES", 1 << 12)
    path = tmp_path / "x.ndjson"
    path.write_bytes(b"x" * (256 * SMALL))
    tracemalloc.start()
    with pytest.raises(LoadError, match="too long"):
        load_in_splits(empty, path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 64 * SMALL


def test_a_long_text_inside_of_a_record_takes_little_memory():
    text = '{"a": "' + "x" * (1 << 20)
    tracemalloc.start()
    assert ndjson._opened(text + '"}') == 0
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20
