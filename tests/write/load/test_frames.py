"""Frames of pandas and polars: what they hold comes over exactly, or is refused."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from omnigraph.errors import InputError, LoadError
from tests.write.load.world import rows

pytestmark = pytest.mark.rotates(2)

MOMENT = dt.datetime(2024, 5, 1, 10, 11, 12, 345000)
MILLIS = (MOMENT - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)
BERLIN = "Europe/Berlin"
DAY = dt.date(2024, 5, 1)
GREATEST = 2**64 - 1


def things(library, name, values):
    """A frame of two things with one property; the values may be a column of the library."""
    return library.DataFrame({"slug": ["a", "b"], name: values})


def stored(graph, name):
    column = graph.snapshot().read("Thing", ["slug", name]).sort_by("slug")[name]
    is_moment = pa.types.is_date64(column.type)
    return column.cast(pa.int64()).to_pylist() if is_moment else column.to_pylist()


FITS = {
    "pandas: the last float that is exact": ("i64", pd, [1 - 2.0**53, None], [1 - 2**53, None]),
    "polars: lists of categories": (
        "words",
        pl,
        pl.Series([["x", "y"], None], dtype=pl.List(pl.Categorical)),
        [["x", "y"], None],
    ),
    "pandas: texts": ("text", pd, ["x", None], ["x", None]),
    "pandas: texts of its own": ("text", pd, pd.array(["ü", None], "string"), ["ü", None]),
    "pandas: NaN is null": ("f64", pd, [-0.5, np.nan], [-0.5, None]),
    "pandas: whole floats, as integers with nulls become": ("i64", pd, [7.0, None], [7, None]),
    "pandas: nullable integers": (
        "i64",
        pd,
        pd.array([2**63 - 1, None], "Int64"),
        [2**63 - 1, None],
    ),
    "pandas: nullable unsigned": (
        "u64",
        pd,
        pd.array([GREATEST, None], "UInt64"),
        [GREATEST, None],
    ),
    "pandas: Arrow inside": (
        "u64",
        pd,
        pd.array([GREATEST, None], "uint64[pyarrow]"),
        [GREATEST, None],
    ),
    "pandas: small integers": ("i64", pd, np.array([-1, 2], "int8"), [-1, 2]),
    "pandas: nullable bools": ("ok", pd, pd.array([True, None], "boolean"), [True, None]),
    "pandas: categories": ("kind", pd, pd.Categorical(["paper", None]), ["paper", None]),
    "pandas: days": ("day", pd, [DAY, None], [DAY, None]),
    "pandas: midnights for days": ("day", pd, [pd.Timestamp(DAY), pd.NaT], [DAY, None]),
    "pandas: moments": ("moment", pd, [pd.Timestamp(MOMENT), pd.NaT], [MILLIS, None]),
    "pandas: moments in seconds": (
        "moment",
        pd,
        pd.Series([pd.Timestamp("2024-05-01 10:11:12"), pd.NaT]).astype("datetime64[s]"),
        [MILLIS - 345, None],
    ),
    "pandas: moments of a zone": (
        "moment",
        pd,
        [pd.Timestamp(MOMENT, tz="UTC").tz_convert(BERLIN), pd.NaT],
        [MILLIS, None],
    ),
    "pandas: lists": ("words", pd, [["x", ""], []], [["x", ""], []]),
    "pandas: arrays for vectors": ("vector", pd, [np.arange(3.0), None], [[0.0, 1.0, 2.0], None]),
    "polars: texts": ("text", pl, ["x", None], ["x", None]),
    "polars: null": ("f64", pl, [-0.5, None], [-0.5, None]),
    "polars: integers": ("i64", pl, [2**63 - 1, None], [2**63 - 1, None]),
    "polars: unsigned": ("u64", pl, pl.Series([GREATEST, None], dtype=pl.UInt64), [GREATEST, None]),
    "polars: small integers": ("i64", pl, pl.Series([-1, 2], dtype=pl.Int8), [-1, 2]),
    "polars: bools": ("ok", pl, [True, None], [True, None]),
    "polars: categories": (
        "kind",
        pl,
        pl.Series(["paper", None], dtype=pl.Categorical),
        ["paper", None],
    ),
    "polars: enums": (
        "kind",
        pl,
        pl.Series(["note", None], dtype=pl.Enum(["note"])),
        ["note", None],
    ),
    "polars: days": ("day", pl, [DAY, None], [DAY, None]),
    "polars: moments": ("moment", pl, [MOMENT, None], [MILLIS, None]),
    "polars: moments of a zone": (
        "moment",
        pl,
        pl.Series([MOMENT, None]).dt.replace_time_zone("UTC").dt.convert_time_zone(BERLIN),
        [MILLIS, None],
    ),
    "polars: lists": ("words", pl, [["x", ""], []], [["x", ""], []]),
    "polars: lists of days": ("days", pl, [[DAY], None], [[DAY], None]),
    "polars: lists of midnights": ("days", pl, [[dt.datetime(2024, 5, 1)], []], [[DAY], []]),
    "polars: arrays for vectors": (
        "vector",
        pl,
        pl.Series([[0.0, 1.0, 2.0], None], dtype=pl.Array(pl.Float32, 3)),
        [[0.0, 1.0, 2.0], None],
    ),
}


@pytest.mark.parametrize(("name", "library", "given", "expected"), FITS.values(), ids=list(FITS))
def test_what_frames_hold_comes_over_exactly(empty, name, library, given, expected):
    empty.load({"Thing": things(library, name, given)})
    assert stored(empty, name) == expected


def test_zeros_keep_their_signs(empty):
    empty.load({"Thing": things(pl, "f64", [-0.0, 0.0])})
    assert [str(value) for value in stored(empty, "f64")] == ["-0.0", "0.0"]


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_blobs(empty, library):
    empty.load({"Thing": things(library, "body", [b"\x00hi", None])})
    assert empty.snapshot().read_blob("Thing", "a", "body") == b"\x00hi"
    assert empty.snapshot().read_blob("Thing", "b", "body") is None


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_nodes_and_edges_in_one_load(empty, library):
    people = library.DataFrame({"name": ["Ada", "Bob"], "age": [36.0, None]})
    edges = library.DataFrame({"from": ["Ada"], "to": ["Bob"], "weight": [1]})
    empty.load({"Knows": edges, "Person": people})
    assert rows(empty, "Person", "name", "age") == [("Ada", 36), ("Bob", None)]
    assert rows(empty, "Knows", "src", "dst", "weight") == [("Ada", "Bob", 1.0)]


def test_the_index_of_a_frame_is_no_column(empty):
    frame = pd.DataFrame({"name": ["Ada"]}, index=pd.Index([36], name="age"))
    empty.load({"Person": frame})
    assert rows(empty, "Person", "name", "age") == [("Ada", None)]


def test_parts_of_frames(empty):
    """What a slice leaves out is not looked at."""
    whole = pl.DataFrame({"slug": ["a", "b", "c"], "kind": ["robot", "note", "robot"]})
    whole = whole.with_columns(pl.col("kind").cast(pl.Categorical))
    empty.load({"Thing": whole.slice(1, 1)})
    assert stored(empty, "kind") == ["note"]


REFUSED = {
    "pandas: infinity": ("f64", pd, [1.0, np.inf], 2, "not finite"),
    "pandas: a fraction": ("i64", pd, [1.0, 1.5], 2, "do not fit"),
    "pandas: a float that may be rounded": ("i64", pd, [1.0, 2.0**60], 2, "do not fit"),
    "pandas: the first float that may be": ("i64", pd, [1.0, 2.0**53], 2, "F64. do not fit I64"),
    "pandas: a short float that may be rounded": (
        "i64",
        pd,
        np.array([1, 2**24], "float32"),
        2,
        "do not fit",
    ),
    "pandas: too great": ("i32", pd, pd.array([1, 2**31], "Int64"), 2, "do not fit"),
    "pandas: a category that the enum has not": (
        "kind",
        pd,
        pd.Categorical(["note", "robot"]),
        2,
        "invalid enum value 'robot'",
    ),
    "pandas: a time for a day": (
        "day",
        pd,
        [pd.Timestamp(DAY), pd.Timestamp(MOMENT)],
        2,
        "do not fit",
    ),
    "pandas: nanoseconds": ("moment", pd, [pd.Timestamp(MOMENT), pd.Timestamp(1)], 2, "do not fit"),
    "pandas: spans of time": ("moment", pd, [pd.Timedelta(1, "s")] * 2, 1, "do not fit"),
    "polars: NaN": ("f64", pl, [1.0, float("nan")], 2, "not finite"),
    "polars: a float that may be rounded": ("i64", pl, [1.0, 2.0**60], 2, "do not fit"),
    "polars: a negative unsigned": ("u64", pl, [1, -1], 2, "do not fit"),
    "polars: microseconds": (
        "moment",
        pl,
        [MOMENT, MOMENT.replace(microsecond=1)],
        2,
        "do not fit",
    ),
    "polars: a midnight of a zone for a day": (
        "day",
        pl,
        pl.Series([dt.datetime(2024, 5, 1)] * 2).dt.replace_time_zone("UTC"),
        1,
        "do not fit",
    ),
    "polars: a list of times for days": ("days", pl, [[], [MOMENT]], 2, "do not fit"),
    "polars: a null in a list": ("words", pl, [["x"], [None]], 2, "null in it"),
    "polars: a structure": ("text", pl, [{"a": 1}] * 2, 1, "do not fit"),
    "polars: a short vector": ("vector", pl, [[1.0, 2.0, 3.0], [1.0]], 2, "do not fit"),
}


@pytest.mark.parametrize(
    ("name", "library", "given", "line", "says"), REFUSED.values(), ids=list(REFUSED)
)
def test_what_does_not_fit_is_refused_by_its_row(empty, name, library, given, line, says):
    with pytest.raises(Exception, match=says) as caught:
        empty.load({"Thing": things(library, name, given)})
    assert (caught.value.details["line"], caught.value.details["field"]) == (line, name)
    assert empty.snapshot().count("Thing") == 0


@pytest.mark.parametrize("name", ["body", "text", "shoe"])
def test_objects_of_polars_are_refused(empty, name):
    """All that Arrow gets to see of them is where they lie in memory."""
    column = pl.Series([object(), b"x"], dtype=pl.Object)
    with pytest.raises(InputError, match=f"the column '{name}' holds Python objects"):
        empty.load({"Thing": things(pl, name, column)})
    assert empty.snapshot().count("Thing") == 0


def test_a_column_of_several_kinds_is_named(empty):
    with pytest.raises(InputError, match="the column 'text' holds values of several kinds"):
        empty.load({"Thing": things(pd, "text", ["x", 1])})


def test_what_is_no_frame_of_its_library(empty):
    with pytest.raises(InputError, match="are Series"):
        empty.load({"Thing": pd.Series(["a"], name="slug")})
    with pytest.raises(InputError, match="are LazyFrame"):
        empty.load({"Thing": pl.LazyFrame({"slug": ["a"]})})


def test_a_column_that_is_there_twice(empty):
    with pytest.raises((InputError, LoadError)):
        empty.load({"Thing": pd.DataFrame([["a", "b"]], columns=["slug", "slug"])})
