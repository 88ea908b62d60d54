"""Which record ends a load: the first by file and line, whenever it was found to be bad."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InputError, LoadError, OrphanEdge, ValueViolation
from omnigraph.write.load import gather, rejects
from tests.write.load.lines import catalogs, streams
from tests.write.load.test_decoders import ALL, pieces_of, sizes, taken
from tests.write.load.world import edge, names, node, people, write

# What is wrong with each is found at another time.
TOO_OLD = node("Person", name="old", age=999)
NO_NUMBER = node("Person", name="none", age="x")
NO_TYPE = {"type": "Robot", "data": {}}
NO_TEXT = node("Note", text=5)
NO_WEIGHT = edge("Knows", "Ada", "Ada", weight="much")
BAD = [TOO_OLD, NO_TEXT, NO_TYPE, NO_NUMBER, NO_WEIGHT]


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(params=[2, 16_384])
def together(request, monkeypatch):
    """How many rows of a type are looked at together."""
    monkeypatch.setattr(gather, "_ROWS", request.param)
    return request.param


@pytest.mark.parametrize("second", BAD, ids=["range", "value", "type", "number", "edge"])
@pytest.mark.parametrize("first", BAD, ids=["range", "value", "type", "number", "edge"])
def test_a_strict_load_names_the_first(empty, tmp_path, together, first, second):
    path = write(tmp_path / "a.ndjson", [*people("Ada"), first, *people("Bob"), second])
    with pytest.raises((LoadError, ValueViolation)) as caught:
        empty.load(path)
    assert caught.value.details["line"] == 2


def test_a_rule_that_is_broken_first_is_what_the_error_says(empty):
    """Its class is that of the rule, though a later record cannot even be read."""
    data = f"{json.dumps(TOO_OLD)}\n{{oops\n"
    with pytest.raises(ValueViolation, match=r"1: @range violation on Person\.age"):
        empty.load(io.BytesIO(data.encode()))


@pytest.mark.parametrize("allowed", range(8))
def test_of_some_that_are_allowed_the_next_ends_the_load(empty, tmp_path, together, allowed):
    """And the file has those before it, in their order."""
    path = write(tmp_path / "a.ndjson", [*people("Ada"), *BAD, *people("Bob"), *reversed(BAD[:3])])
    lines = [2, 3, 4, 5, 6, 8, 9, 10]
    with pytest.raises((LoadError, ValueViolation)) as caught:
        empty.load(path, max_rejects=allowed, rejects=tmp_path / "rejects")
    assert caught.value.details["line"] == lines[allowed]
    assert [reject["line"] for reject in read(tmp_path / "rejects")] == lines[:allowed]
    assert empty.snapshot().version == 1


def test_the_file_of_rejects_has_the_order_of_the_input(empty, tmp_path, together, monkeypatch):
    """However few may wait for others to be looked at."""
    monkeypatch.setattr(rejects, "_MAX_DEFERRED", 3)
    one = write(tmp_path / "one.ndjson", [*BAD, *people("Ada", "Bob"), *BAD])
    two = tmp_path / "Person.csv"
    two.write_text("name,age\nCyd,1\nDan,x\nEve,999\n")
    three = write(tmp_path / "three.ndjson", [NO_TEXT, TOO_OLD])
    receipt = empty.load([one, two, three], rejects=tmp_path / "rejects")
    assert (receipt.rejected, names(empty)) == (14, ["Ada", "Bob", "Cyd"])
    locations = [(reject["file"], reject["line"]) for reject in read(tmp_path / "rejects")]
    assert locations == [
        *((str(one), line) for line in (1, 2, 3, 4, 5, 8, 9, 10, 11, 12)),
        *((str(two), line) for line in (3, 4)),
        *((str(three), line) for line in (1, 2)),
    ]


def test_what_breaks_a_rule_among_others_comes_after_all_that_is_wrong_by_itself(empty, tmp_path):
    """In the order of the rules: values that repeat, then ends that are missing."""
    data = [edge("Knows", "Ada", "Nobody"), *people("Ada", "Ada"), NO_NUMBER, TOO_OLD]
    path = write(tmp_path / "a.ndjson", data)
    empty.load(path, rejects=tmp_path / "rejects")
    assert [reject["line"] for reject in read(tmp_path / "rejects")] == [4, 5, 3, 1]
    with pytest.raises(LoadError, match=r"a\.ndjson:4"):
        empty.load(path, "overwrite")
    with pytest.raises(OrphanEdge, match=r"a\.ndjson:1"):
        empty.load(path, "overwrite", max_rejects=3)


def test_a_record_counts_once_with_its_first_reason(empty, tmp_path):
    """Values that do not fit by the names of their properties, before rules that are broken."""
    records = [
        node("Person", name=5, email=5, age="x"),
        node("Person", name="a", age=999, email=5),
        node("Person", name="b", email="no", status="odd", age=999),
        edge("Knows", 5, 5, weight="x"),
        edge("Knows", 5, 6),
    ]
    path = write(tmp_path / "a.ndjson", records)
    assert empty.load(path, rejects=tmp_path / "rejects").rejected == 5
    actual = [reject["field"] for reject in read(tmp_path / "rejects")]
    assert actual == ["age", "email", "age", "weight", "from"]


# -- beside what ends a load at once ----------------------------------------------------------


def broken(tmp_path):
    """Sources that end a load, each for another reason."""
    (tmp_path / "Company.csv").write_text('name\n"Acme\n')
    (tmp_path / "broken.ndjson.gz").write_bytes(b"no gzip")
    (tmp_path / "Company.parquet").write_bytes(b"no parquet")
    return [
        tmp_path / "missing.ndjson",
        tmp_path / "Company.csv",
        tmp_path / "broken.ndjson.gz",
        tmp_path / "Company.parquet",
    ]


@pytest.mark.parametrize("bad", [TOO_OLD, NO_TEXT, NO_TYPE], ids=["range", "value", "type"])
def test_a_record_before_a_source_that_cannot_be_read_is_named(empty, tmp_path, bad):
    first = write(tmp_path / "a.ndjson", [*people("Ada"), bad])
    for source in broken(tmp_path):
        with pytest.raises((LoadError, ValueViolation), match=r"a\.ndjson:2: "):
            empty.load([first, source])
        with pytest.raises(InputError) as caught:
            empty.load([first, source], max_rejects=1, rejects=tmp_path / "rejects")
        assert "a.ndjson" not in caught.value.message
        assert [reject["line"] for reject in read(tmp_path / "rejects")] == [2]


def test_a_record_before_a_bad_table_is_named(empty, tmp_path):
    first = write(tmp_path / "a.ndjson", [TOO_OLD])
    second = tmp_path / "Person.parquet"
    pq.write_table(pa.table({"name": ["Bob"], "age": ["x"]}), second)
    with pytest.raises(ValueViolation, match=r"a\.ndjson:1: "):
        empty.load([first, second])
    with pytest.raises(LoadError, match=r"Person\.parquet:1: "):
        empty.load([first, second], max_rejects=1)
    assert empty.load([first, second], max_rejects=2).rejected == 2


# -- any stream -------------------------------------------------------------------------------


@given(st.data(), catalogs(), st.integers(0, 4))
def test_what_is_allowed_only_says_where_to_end(data, catalog, allowed):
    """The rejects of a load that ends early are the first of those that there are."""
    stream = data.draw(streams(catalog))
    every = taken(catalog, stream, allowed=ALL)["rejects"]
    locations = [reject["line"] for reject, _ in every]
    assert locations == sorted(locations)
    with pieces_of(*data.draw(sizes)):
        assert taken(catalog, stream, allowed=allowed)["rejects"] == every[: allowed + 1]
