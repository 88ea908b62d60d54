"""Parquet files, Arrow tables and frames."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import LoadError, UniqueViolation
from omnigraph.write.load import tables
from tests.write.corpus.tables import Frame
from tests.write.load.world import names, rows

PEOPLE = pa.table({"name": ["Ada", "Bob"], "age": [36, None]})
EXPECTED = [("Ada", 36), ("Bob", None)]

SHAPES = {
    "a table": PEOPLE,
    "a table of many chunks": pa.concat_tables([PEOPLE.slice(0, 1), PEOPLE.slice(1)]),
    "a batch": PEOPLE.to_batches()[0],
    "a reader": lambda: PEOPLE.to_reader(),
    "a frame": lambda: Frame(PEOPLE),
    "dictionaries": pa.table(
        {"name": pa.array(["Ada", "Bob"]).dictionary_encode(), "age": [36, None]}
    ),
    "wide columns": pa.table(
        {"name": pa.array(["Ada", "Bob"], pa.large_string()), "age": [36.0, None]}
    ),
    "views": pa.table({"name": pa.array(["Ada", "Bob"], pa.string_view()), "age": [36, None]}),
}


@pytest.mark.parametrize("given", SHAPES.values(), ids=list(SHAPES))
def test_tables_and_frames(empty, given):
    """Frames are read by the stream protocol of Arrow, whoever made them."""
    empty.load({"Person": given() if callable(given) else given})
    assert rows(empty, "Person", "name", "age") == EXPECTED


def test_several_types_in_one_commit(empty):
    receipt = empty.load(
        {
            "Knows": pa.table({"from": ["Ada"], "to": ["Bob"], "weight": [1]}),
            "node:Person": PEOPLE,
            "Company": pa.table({"name": ["Acme"]}),
        }
    )
    assert receipt.version == 2
    assert rows(empty, "Knows", "src", "dst", "weight") == [("Ada", "Bob", 1.0)]


def test_parquet(empty, tmp_path):
    """One file for each type, by its name or by the mapping."""
    pq.write_table(PEOPLE, tmp_path / "Person.parquet")
    pq.write_table(pa.table({"src": ["Ada"], "dst": ["Bob"]}), tmp_path / "edges.pq")
    files = [tmp_path / "edges.pq", tmp_path / "Person.parquet"]
    empty.load(files, types={tmp_path / "edges.pq": "Knows"})
    assert rows(empty, "Person", "name", "age") == EXPECTED
    assert empty.snapshot().count("Knows") == 1


def test_moments_keep_their_time(empty, tmp_path):
    moment = dt.datetime(1969, 7, 20, 20, 17, 40, 123000)
    given = pa.table({"slug": ["a"], "moment": [moment], "moments": [[moment]]})
    pq.write_table(given, tmp_path / "Thing.parquet")
    empty.load(tmp_path / "Thing.parquet")
    stored = empty.snapshot().read("Thing", ["moment", "moments"])
    expected = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)
    assert stored["moment"].combine_chunks().cast(pa.int64()).to_pylist() == [expected]
    assert stored["moments"].combine_chunks().flatten().cast(pa.int64()).to_pylist() == [expected]


def test_unknown_columns_are_ignored_and_counted(empty):
    receipt = empty.load({"Person": PEOPLE.append_column("nick", pa.array(["a", "b"]))})
    assert receipt.ignored == {"Person.nick": 2}


def test_ids_are_those_given_the_key_or_new(empty):
    empty.load({"Note": pa.table({"id": ["n1"], "text": ["a"]}), "Person": PEOPLE})
    empty.load({"Note": pa.table({"text": ["b", "c"]})})
    empty.load({"Note": pa.table({"id": ["n1"], "text": ["d"]})})
    actual = dict(rows(empty, "Note", "id", "text"))
    assert actual["n1"] == "d"
    assert len(actual) == 3
    assert rows(empty, "Person", "id") == [("Ada",), ("Bob",)]


def test_a_null_id_is_a_new_one(empty):
    """As in records; beside a key it says nothing."""
    ids = pa.chunked_array([["n1", None], [None]], pa.string())
    empty.load({"Note": pa.table({"id": ids, "text": ["a", "b", "c"]})})
    actual = dict(rows(empty, "Note", "id", "text"))
    assert actual["n1"] == "a"
    assert len(actual) == 3
    empty.load({"Person": pa.table({"id": ["Ada", None], "name": ["Ada", "Bob"]})})
    assert rows(empty, "Person", "id") == [("Ada",), ("Bob",)]


def test_of_an_edge_that_is_listed_twice_the_last_counts(empty):
    """Over batches too."""
    edges = {"id": ["k", "j", "k"], "from": ["Ada"] * 3, "to": ["Bob", "Bob", "Ada"]}
    empty.load({"Person": PEOPLE, "Knows": pa.table(edges)})
    assert rows(empty, "Knows", "id", "dst") == [("j", "Bob"), ("k", "Ada")]


def test_a_keyed_node_that_is_listed_twice_is_refused(empty):
    """Also with its id beside the key."""
    twice = pa.table({"id": ["A", "A"], "name": ["A", "A"]})
    with pytest.raises(UniqueViolation, match="Person"):
        empty.load({"Person": twice})


def test_the_row_that_is_wrong_is_found_in_the_middle_of_many(empty, tmp_path):
    """Rows are converted together; the error still names one."""
    ages = [*range(100)] * 2_000
    ages[150_123] = 2**40
    table = pa.table({"name": [f"p{n}" for n in range(len(ages))], "age": ages})
    with pytest.raises(LoadError) as caught:
        empty.load({"Person": table})
    details = caught.value.details
    assert (details["line"], details["field"], details["value"]) == (150_124, "age", str(2**40))


def test_rows_that_are_wrong_can_be_set_aside(empty, tmp_path, monkeypatch):
    """Whatever size the pieces have in which rows are taken."""
    monkeypatch.setattr(tables, "_ROWS", 3)
    table = pa.table(
        {
            "slug": [f"t{n}" for n in range(10)],
            "numbers": [[n, 2**40] if n in (1, 2, 7) else [n] for n in range(10)],
            "kind": ["book" if n == 4 else "note" for n in range(10)],
        }
    )
    pq.write_table(table, tmp_path / "Thing.parquet")
    receipt = empty.load(tmp_path / "Thing.parquet", rejects=tmp_path / "rejects")
    assert receipt.rejected == 4
    assert rows(empty, "Thing", "slug") == [(f"t{n}",) for n in (0, 3, 5, 6, 8, 9)]
    rejects = [json.loads(line) for line in (tmp_path / "rejects").read_text().splitlines()]
    assert [(r["line"], r["field"]) for r in rejects] == [
        (2, "numbers"),
        (3, "numbers"),
        (5, "kind"),
        (8, "numbers"),
    ]


def test_a_table_without_rows_replaces_nothing(filled):
    """A type is in a load when one of its rows is."""
    receipt = filled.load({"Person": PEOPLE.slice(0, 0)}, "overwrite")
    assert receipt.commit_id is None
    assert names(filled) == ["Ada", "Bob", "Cyd"]
