"""Large loads write fragments while they read; the result is that of a load that waits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.commit.staging import markers
from omnigraph.errors import OrphanEdge, StorageFull, ValueViolation
from omnigraph.write.load import direct, spool
from omnigraph.write.load.direct import SourceLines
from tests.write.load.world import edge, node, people, write

ROWS = 7


@pytest.fixture
def written(monkeypatch):
    """Every row is written at once, in small fragments; counts the fragments."""
    counts = []
    monkeypatch.setattr(spool, "_DIRECT", 0)
    monkeypatch.setattr(direct, "ROWS_PER_FRAGMENT", ROWS)
    real = direct.write_staged_fragments

    def noted(target, schema, batches):
        counts.append(sum(batch.num_rows for batch in batches))
        return real(target, schema, batches)

    monkeypatch.setattr(direct, "write_staged_fragments", noted)
    return counts


def files(graph):
    root = Path(graph.uri)
    return {str(path.relative_to(root)) for path in root.glob("*/*/data/*")}


def store(graph):
    return graph._handle.store


def many(count):
    return [node("Person", name=f"p{n}", age=n % 100) for n in range(count)]


def chain(count):
    return [edge("Knows", f"p{n}", f"p{n + 1}", weight=n / 2) for n in range(count - 1)]


def names(graph):
    return graph.snapshot().read("Person", ["name"])["name"].to_pylist()


def test_rows_are_those_of_a_load_that_waits(empty, tmp_path, written):
    path = write(tmp_path / "a.ndjson", [*many(50), *chain(50)])
    receipt = empty.load(path)
    assert sorted(written) == [1, *[7] * 14]
    assert names(empty) == [f"p{n}" for n in range(50)]
    knows = empty.snapshot().read("Knows", ["src", "dst", "weight"])
    assert knows["src"].to_pylist() == [f"p{n}" for n in range(49)]
    assert receipt.records == 99
    assert {key: count.inserted for key, count in receipt.tables.items()} == {
        "node:Person": 50,
        "edge:Knows": 49,
    }
    assert not markers(store(empty))


def test_the_files_of_a_load_are_checked_and_summed(empty, tmp_path, written):
    empty.load(write(tmp_path / "a.ndjson", many(50)))
    assert empty.maintenance.verify().is_sound
    assert written


@pytest.mark.parametrize("mode", ["merge", "append", "overwrite"])
def test_modes(filled, tmp_path, written, mode):
    """Rows that may replace others wait; those of other modes do not."""
    links = [edge("Knows", "p0", "p1")] * 3
    if mode == "overwrite":
        filled.mutate('query quit() { delete WorksAt where from = "Ada" }')
    filled.load(write(tmp_path / "a.ndjson", [*many(20), *links]), mode)
    there = [] if mode == "overwrite" else ["Ada", "Bob", "Cyd"]
    assert sorted(names(filled)) == sorted([*there, *(f"p{n}" for n in range(20))])
    assert sum(written) == (3 if mode == "merge" else 23)
    assert filled.snapshot().count("Knows") == (3 if mode == "overwrite" else 4)


def test_a_row_that_breaks_a_rule_about_sets_is_named_by_its_line(empty, tmp_path, written):
    records = [*many(20), *chain(20)]
    records.insert(13, edge("Knows", "p1", "nobody"))
    path = write(tmp_path / "a.ndjson", records)
    with pytest.raises(OrphanEdge) as raised:
        empty.load(path)
    assert f"{path}:14: " in str(raised.value)
    assert written
    assert not files(empty)
    assert not markers(store(empty))


def test_rejected_rows_are_taken_out_of_the_fragments(empty, tmp_path, written):
    records = [*many(30), *people("p3", "p17"), edge("Knows", "p1", "nobody"), *chain(9)]
    path = write(tmp_path / "a.ndjson", records)
    receipt = empty.load(path, rejects=tmp_path / "rejects", max_rejects=9)
    assert receipt.rejected == 3
    assert names(empty) == [f"p{n}" for n in range(30)]
    assert empty.snapshot().count("Knows") == 8
    assert empty.maintenance.verify().is_sound
    # The fragments that were replaced by others are deleted.
    assert len(files(empty)) == 5 + 2


def test_of_rows_with_the_same_id_the_last_one_stays(empty, tmp_path, written):
    notes = [node("Note", id=f"n{n % 9}", text=str(n)) for n in range(40)]
    empty.load(write(tmp_path / "a.ndjson", notes))
    assert sorted(empty.snapshot().read("Note", ["text"])["text"].to_pylist()) == [
        str(n) for n in range(31, 40)
    ]


def test_a_refused_load_leaves_no_file(empty, tmp_path, written):
    bad = node("Person", name="x", age=999)
    with pytest.raises(ValueViolation):
        empty.load(write(tmp_path / "a.ndjson", [*many(40), bad]))
    assert not files(empty)
    assert not markers(store(empty))


def test_a_load_that_its_caller_stops_leaves_no_file(empty, tmp_path, written, monkeypatch):
    monkeypatch.setattr(spool, "_DIRECT", -1)

    def stop(progress):
        if progress.phase == "checking":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        empty.load(write(tmp_path / "a.ndjson", many(40)), on_progress=stop)
    assert written
    assert not files(empty)
    assert not markers(store(empty))


def test_a_failed_write_is_the_error_of_the_load(empty, tmp_path, written, monkeypatch):
    noted = direct.write_staged_fragments

    def full(target, schema, batches):
        if len(written) == 3:
            raise StorageFull("no space is left")
        return noted(target, schema, batches)

    monkeypatch.setattr(direct, "write_staged_fragments", full)
    with pytest.raises(StorageFull):
        empty.load(write(tmp_path / "a.ndjson", [*many(100), *chain(100)]))
    assert len(written) == 3
    assert not files(empty)


def test_a_dry_run_writes_nothing(empty, tmp_path, written):
    path = write(tmp_path / "a.ndjson", many(40))
    assert empty.load(path, dry_run=True).met == {"node:Person": 40}
    assert not written


def test_the_first_rows_of_a_branch_wait_for_its_table(empty, tmp_path, written):
    empty.load(write(tmp_path / "a.ndjson", many(40)), branch="review", from_branch="main")
    assert not written
    empty.load(write(tmp_path / "b.ndjson", chain(40)), branch="review")
    empty.load(write(tmp_path / "b.ndjson", chain(40)), branch="review")
    assert sum(written) == 39
    assert empty.snapshot("review").count("Knows") == 78
    assert empty.snapshot().count("Person") == 0


def test_blobs_and_wide_rows_wait(empty, tmp_path, written, monkeypatch):
    monkeypatch.setattr(direct, "_FRAGMENT_BYTES", 200)
    empty.load(
        write(
            tmp_path / "a.ndjson",
            [node("Thing", slug=str(n), body="base64:aGk=") for n in range(9)],
        )
    )
    empty.load(write(tmp_path / "b.ndjson", [node("Note", text="x" * 100) for _ in range(9)]))
    assert not written
    assert empty.snapshot().count("Thing") == empty.snapshot().count("Note") == 9


def test_rows_that_another_writer_added_meanwhile_are_replaced(
    empty, tmp_path, written, monkeypatch
):
    """The table was empty when the load began to write."""
    close = direct.FragmentWriter.close

    def add_first(writer):
        monkeypatch.setattr(direct.FragmentWriter, "close", close)
        with Graph.open(empty.uri, durability="os") as other:
            other.load([node("Person", name="p4", age=1), node("Person", name="other")])
        return close(writer)

    path = write(tmp_path / "a.ndjson", many(20))
    monkeypatch.setattr(direct.FragmentWriter, "close", add_first)
    receipt = empty.load(path)
    counts = receipt.tables["node:Person"]
    assert (counts.inserted, counts.updated) == (19, 1)
    people = empty.snapshot().read("Person", ["name", "age"])
    assert sorted(people["name"].to_pylist()) == sorted([*(f"p{n}" for n in range(20)), "other"])
    assert dict(zip(*people.to_pydict().values(), strict=True))["p4"] == 4


def test_lines_of_rows():
    lines = SourceLines()
    for some in ([5, 6, 7], [8, 9], [20, 22], [23], []):
        lines.add(pa.array(some, pa.int64()).to_numpy())
    assert lines.at([0, 3, 4, 5, 6, 7]) == [5, 8, 9, 20, 22, 23]
    assert lines._parts[0] == range(5, 10)
