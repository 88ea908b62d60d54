"""Arrow tables and frames that do not fit: the table, the row, the field, what is said."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa


class Frame:
    """A foreign frame: all that is known of it is the stream protocol of Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class BrokenFrame:
    """A frame whose stream cannot be made."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise TypeError("mixed types")


def _things(**columns: Any) -> pa.Table:
    """A second row that does not fit, below one that does."""
    (name, column), *_ = columns.items()
    return pa.table({"slug": ["a", "b"], name: column})


def _people(**columns: Any) -> pa.Table:
    return pa.table(columns)


FIT = "do not fit"
TABLES: dict[str, tuple[dict[str, Any], int, str | None, str]] = {
    "a number too great": ({"Thing": _things(i32=[1, 2**31])}, 2, "i32", FIT),
    "a number too small": ({"Thing": _things(i32=[1, -(2**31) - 1])}, 2, "i32", FIT),
    "a fraction": ({"Thing": _things(i64=[1.0, 1.5])}, 2, "i64", FIT),
    "an infinite integer": ({"Thing": _things(i64=[1.0, float("inf")])}, 2, "i64", FIT),
    "a negative unsigned": ({"Thing": _things(u32=[1, -1])}, 2, "u32", FIT),
    "a float beyond single": ({"Thing": _things(f32=[1.0, 1e39])}, 2, "f32", "not finite"),
    "NaN": ({"Thing": _things(f64=[1.0, float("nan")])}, 2, "f64", "not finite"),
    "infinity": ({"Thing": _things(f64=[1.0, float("-inf")])}, 2, "f64", "not finite"),
    "an inexact float": ({"Thing": _things(f64=[1, 2**53 + 1])}, 2, "f64", FIT),
    "texts for integers": ({"Thing": _things(i32=["1", "2"])}, 1, "i32", FIT),
    "bools for integers": ({"Thing": _things(i32=[True, False])}, 1, "i32", FIT),
    "integers for bools": ({"Thing": _things(ok=[1, 0])}, 1, "ok", FIT),
    "integers for texts": ({"Thing": _things(text=[1, 2])}, 1, "text", FIT),
    "bytes for texts": ({"Thing": _things(text=[b"a", b"b"])}, 1, "text", FIT),
    "texts for blobs": ({"Thing": _things(body=["a", "b"])}, 1, "body", FIT),
    "base64 that is none": ({"Thing": _things(body=["base64:aGk=", "base64:?"])}, 2, "body", FIT),
    "texts for days": ({"Thing": _things(day=["2024-05-01", "x"])}, 1, "day", FIT),
    "moments for days": ({"Thing": _things(day=[dt.datetime(2024, 5, 1, 7)] * 2)}, 1, "day", FIT),
    "times of day": ({"Thing": _things(moment=[dt.time(1), dt.time(2)])}, 1, "moment", FIT),
    "microseconds": (
        {"Thing": _things(moment=[dt.datetime(2024, 5, 1), dt.datetime(2024, 5, 1, 0, 0, 0, 1)])},
        2,
        "moment",
        FIT,
    ),
    "a day after all calendars": (
        {"Thing": _things(day=pa.array([0, 2**31 - 1], pa.int32()).view("date32"))},
        2,
        "day",
        "holds a value outside the range of Date",
    ),
    "a moment before all calendars": (
        {"Thing": _things(moment=pa.array([0, -(2**62)], pa.int64()).view("timestamp[ms]"))},
        2,
        "moment",
        "holds a value outside the range of DateTime",
    ),
    "decimals": ({"Thing": _things(f64=[Decimal("1.5"), Decimal("2")])}, 1, "f64", FIT),
    "durations": ({"Thing": _things(i64=[dt.timedelta(1)] * 2)}, 1, "i64", FIT),
    "structs": ({"Thing": _things(text=[{"a": 1}, {"a": 2}])}, 1, "text", FIT),
    "maps": (
        {"Thing": _things(words=pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int32())))},
        1,
        "words",
        FIT,
    ),
    "lists of the wrong items": ({"Thing": _things(numbers=[["1"], ["2"]])}, 1, "numbers", FIT),
    "a list with a number too great": (
        {"Thing": _things(numbers=[[1], [2**31]])},
        2,
        "numbers",
        FIT,
    ),
    "a list with a null": ({"Thing": _things(words=[["a"], ["b", None]])}, 2, "words", "a null"),
    "a scalar for a list": ({"Thing": _things(words=["a", "b"])}, 1, "words", FIT),
    "a short vector": ({"Thing": _things(vector=[[1.0, 2.0, 3.0], [1.0, 2.0]])}, 2, "vector", FIT),
    "a vector of zeros": (
        {"Thing": _things(vector=[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])},
        2,
        "vector",
        "zeros",
    ),
    "a vector with NaN": (
        {"Thing": _things(vector=[[1.0, 2.0, 3.0], [1.0, float("nan"), 0.0]])},
        2,
        "vector",
        "not finite",
    ),
    "a vector with a null": (
        {"Thing": _things(vector=[[1.0, 2.0, 3.0], [1.0, None, 0.0]])},
        2,
        "vector",
        "a null",
    ),
    "a kind that is not listed": ({"Thing": _things(kind=["note", "book"])}, 2, "kind", "enum"),
    "no key": ({"Person": _people(age=[1])}, 1, "name", "'name' is missing"),
    "a null key": ({"Person": _people(name=["A", None])}, 2, "name", "null values"),
    "nulls for keys": ({"Person": _people(name=pa.nulls(1))}, 1, "name", "null values"),
    "an id that is not the key": (
        {"Person": _people(name=["A", "B"], id=["A", "C"])},
        2,
        "id",
        "key",
    ),
    "an empty id": ({"Note": _people(text=["a", "b"], id=["1", ""])}, 2, "id", "is empty"),
    "an empty key": ({"Person": _people(name=["A", ""])}, 2, "name", "is empty"),
    "ids that are numbers": ({"Note": _people(text=["a"], id=[1])}, 1, "id", FIT),
    "half of a key": ({"Seat": _people(row=["A"])}, 1, "number", "is missing"),
    "a column twice": (
        {"Person": pa.Table.from_arrays([pa.array(["A"])] * 2, ["name", "name"])},
        1,
        "name",
        "given twice",
    ),
    "from and src": (
        {"Knows": pa.Table.from_arrays([pa.array(["Ada"])] * 3, ["from", "src", "to"])},
        1,
        "src",
        "given twice",
    ),
    "an edge without to": ({"Knows": _people(**{"from": ["Ada"]})}, 1, "to", "'dst' is missing"),
    "an edge from null": (
        {"Knows": _people(**{"from": ["Ada", None], "to": ["Bob", "Bob"]})},
        2,
        "from",
        "null values",
    ),
    "an edge from a number": ({"Knows": _people(**{"from": [1], "to": ["Bob"]})}, 1, "from", FIT),
    "an edge to nobody": (
        {"Knows": _people(**{"from": ["Ada", "Ada"], "to": ["Bob", "X"]})},
        2,
        "to",
        "not found",
    ),
    "an age out of range": ({"Person": _people(name=["A", "B"], age=[1, 151])}, 2, "age", "@range"),
    "an email that is there": (
        {"Person": _people(name=["A", "B"], email=["a@x", "cyd@x"])},
        2,
        "email",
        "@unique",
    ),
    "a key twice": ({"Person": _people(name=["A", "B", "A"])}, 3, "name", "@unique"),
    "a frame with a number too great": ({"Thing": Frame(_things(i32=[1, 2**31]))}, 2, "i32", FIT),
}

NOT_TABLES: dict[str, tuple[dict[Any, Any], str]] = {
    "a frame that breaks": ({"Person": BrokenFrame()}, "cannot be read as Arrow"),
    "no type": ({"Robot": pa.table({"name": ["A"]})}, "no type 'Robot'"),
    "a type that is nearly one": ({"Persn": pa.table({"name": ["A"]})}, "no type 'Persn'"),
    "a node as an edge": ({"edge:Person": pa.table({"name": ["A"]})}, "no type 'edge:Person'"),
    "a number as a type": ({7: pa.table({"name": ["A"]})}, "no type '7'"),
    "an array": ({"Person": pa.array(["A"])}, "the rows of 'Person' are"),
    "a dict of lists": ({"Person": {"name": ["A"]}}, "the rows of 'Person' are dict"),
    "None": ({"Person": None}, "the rows of 'Person' are NoneType"),
}
