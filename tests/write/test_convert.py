"""Loose values into exact columns: what fits, what does not, and a plain model of both."""

from __future__ import annotations

import base64
import math
import re
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import arrow_type
from omnigraph.lang.values.columns import convert_column
from omnigraph.lang.values.spelling import show
from omnigraph.write.blobs import LocalFiles, blob_bytes

INTEGERS = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
HUGE = 10**400
NAN, INF = float("nan"), float("inf")
MILLIS = 1_714_557_600_123
DAY = 19_844
ZONE = timezone(timedelta(hours=2))


def converted(type_, *values, files=LocalFiles.NEVER):
    """The stored values, moments as numbers, and what was said about the others."""
    column, problems = convert_column(
        "p", type_, list(values), read_blob=partial(blob_bytes, files=files)
    )
    assert column.type == arrow_type(type_)
    assert {problem.field for problem in problems} <= {"p"}
    return stored(column, type_), {problem.row: problem.message for problem in problems}


def stored(column, type_):
    if type_.scalar is Scalar.DATETIME:
        numbers = pa.list_(pa.int64()) if type_.is_list else pa.int64()
        if type_.is_list:
            flat = column.values.view(pa.int64())
            nulls = column.is_null() if column.null_count else None
            column = pa.ListArray.from_arrays(column.offsets, flat, mask=nulls, type=numbers)
        else:
            column = column.view(numbers)
    return column.to_pylist()


# -- case by case -----------------------------------------------------------------------------

GOOD = [
    (Scalar.STRING, "", ""),
    (Scalar.STRING, "a\n\x00é😀", "a\n\x00é😀"),
    (Scalar.BOOL, True, True),
    (Scalar.BOOL, False, False),
    *[(scalar, low, low) for scalar, (low, _) in INTEGERS.items()],
    *[(scalar, high, high) for scalar, (_, high) in INTEGERS.items()],
    *[(scalar, 7.0, 7) for scalar in INTEGERS],
    (Scalar.F64, 3, 3.0),
    (Scalar.F64, 2**53, 2.0**53),
    (Scalar.F64, 1.7976931348623157e308, 1.7976931348623157e308),
    (Scalar.F32, 0.5, 0.5),
    (Scalar.F32, 0.1, 0.10000000149011612),
    (Scalar.F32, 16_777_216, 16_777_216.0),
    (Scalar.DATE, "2024-05-01", date(2024, 5, 1)),
    (Scalar.DATE, "2024-02-29", date(2024, 2, 29)),
    (Scalar.DATE, DAY, date(2024, 5, 1)),
    (Scalar.DATE, -1, date(1969, 12, 31)),
    (Scalar.DATE, "0001-01-01", date(1, 1, 1)),
    (Scalar.DATE, "9999-12-31", date(9999, 12, 31)),
    (Scalar.DATE, date(2024, 5, 1), date(2024, 5, 1)),
    (Scalar.DATETIME, "2024-05-01T10:00:00.123Z", MILLIS),
    (Scalar.DATETIME, "2024-05-01 10:00:00.123", MILLIS),
    (Scalar.DATETIME, "2024-05-01T12:00:00.123000+02:00", MILLIS),
    (Scalar.DATETIME, "2024-05-01", MILLIS - 123 - 36_000_000),
    (Scalar.DATETIME, "1969-12-31T23:59:59.999Z", -1),
    (Scalar.DATETIME, MILLIS, MILLIS),
    (Scalar.DATETIME, datetime(2024, 5, 1, 10, 0, 0, 123_000), MILLIS),
    (Scalar.DATETIME, datetime(2024, 5, 1, 12, 0, 0, 123_000, ZONE), MILLIS),
    (Scalar.DATETIME, datetime(2024, 5, 1, 10, 0, 0, 123_000, UTC), MILLIS),
    (Scalar.BLOB, b"", b""),
    (Scalar.BLOB, b"\x00\xff", b"\x00\xff"),
    (Scalar.BLOB, bytearray(b"x"), b"x"),
    (Scalar.BLOB, "base64:aGk=", b"hi"),
    (Scalar.BLOB, "base64:", b""),
]


@pytest.mark.parametrize(("scalar", "value", "expected"), GOOD, ids=repr)
def test_a_value_that_fits(scalar, value, expected):
    """Alone, beside null, and as an item of a list."""
    assert converted(PropType(scalar, True), value, None) == ([expected, None], {})
    if scalar is not Scalar.BLOB:
        items = PropType(scalar, True, is_list=True)
        assert converted(items, [value], [], None) == ([[expected], [], None], {})


BAD = [
    *[(Scalar.STRING, v) for v in (1, 1.5, True, ["a"], {}, b"a", "half \ud800")],
    *[(Scalar.BOOL, v) for v in (0, 1, "true", 1.0, [])],
    *[(s, v) for s in INTEGERS for v in (1.5, "1", True, NAN, INF, [1], {}, HUGE, -HUGE)],
    *[(scalar, low - 1) for scalar, (low, _) in INTEGERS.items()],
    *[(scalar, high + 1) for scalar, (_, high) in INTEGERS.items()],
    (Scalar.U64, -1.0),
    (Scalar.I64, 2.0**60),
    *[(s, v) for s in (Scalar.F32, Scalar.F64) for v in (NAN, INF, -INF, "1.5", True, HUGE, [])],
    (Scalar.F32, 1e39),
    (Scalar.F32, 2**24 + 1),
    (Scalar.F64, 2**53 + 1),
    *[
        (Scalar.DATE, v)
        for v in ("2024-5-1", "2024-02-30", "2023-02-29", "20240501", "", "2024-05-01T00:00:00Z")
    ],
    *[(Scalar.DATE, v) for v in (True, 1.0, HUGE, 3_000_000, datetime(2024, 5, 1), [])],
    *[
        (Scalar.DATETIME, v)
        for v in ("2024-05-01T25:00:00Z", "2024-02-30T00:00:00Z", "10:00", "now", "", "²024-05-01")
    ],
    *[(Scalar.DATETIME, v) for v in (True, 1.5, HUGE, -(10**15), [], {})],
    *[(Scalar.BLOB, v) for v in (1, "hi", "base64:!", "https://x/y", "s3://x/y", [])],
    (Scalar.BLOB, "file:///nowhere/at/all"),
]


@pytest.mark.parametrize(("scalar", "value"), BAD, ids=repr)
def test_a_value_that_does_not_fit(scalar, value):
    """Only its own row is null, and the message says what is wrong, whatever it is beside."""
    values, problems = converted(PropType(scalar, True), None, value)
    assert values == [None, None]
    assert list(problems) == [1]
    assert 0 < len(problems[1]) < 200
    problems[1].encode("utf-8")
    if scalar is not Scalar.BLOB:
        values, problems = converted(PropType(scalar, True, is_list=True), [value], [])
        assert values == [None, []]
        assert re.match("item 0: ", problems[0])


LISTS = {
    "no list": (PropType(Scalar.I32, True, is_list=True), 1, "1 is not a list"),
    "text": (PropType(Scalar.STRING, True, is_list=True), "ab", "ab is not a list"),
    "a null item": (PropType(Scalar.I32, True, is_list=True), [1, None], "item 1 is null"),
    "a list in a list": (
        PropType(Scalar.I32, True, is_list=True),
        [[1]],
        "item 0: [1] is not an I32",
    ),
}
VECTOR = PropType(Scalar.VECTOR, True, dimension=2)
VECTORS = {
    "no vector": (VECTOR, 1.5, "1.5 is not a vector"),
    "too short": (VECTOR, [1.0], "1 numbers instead of 2"),
    "too long": (VECTOR, [1, 2, 3], "3 numbers instead of 2"),
    "empty": (VECTOR, [], "0 numbers instead of 2"),
    "text": (VECTOR, [1, "2"], "item 1: 2 is not a number"),
    "null": (VECTOR, [1, None], "item 1: null is not a number"),
    "a truth": (VECTOR, [1, True], "item 1: true is not a number"),
    "not finite": (VECTOR, [1.0, NAN], "item 1: nan is not a finite number"),
    "beyond singles": (VECTOR, [1.0, 1e39], "item 1: 1e+39 does not fit F32"),
    "zeros": (VECTOR, [0, -0.0], "a vector of zeros has no direction"),
    "zeros once stored": (VECTOR, [1e-60, 0.0], "a vector of zeros has no direction"),
}


@pytest.mark.parametrize(
    ("type_", "value", "message"), [*LISTS.values(), *VECTORS.values()], ids=[*LISTS, *VECTORS]
)
def test_lists_and_vectors_that_do_not_fit(type_, value, message):
    assert converted(type_, value, None) == ([None, None], {0: message})


def test_vectors_that_fit():
    values = [[1, 2], None, (0.5, -0.0), [1e-40, 0]]
    actual, problems = converted(VECTOR, *values)
    assert problems == {}
    assert actual[:3] == [[1.0, 2.0], None, [0.5, 0.0]]
    assert actual[3][0] > 0


def test_a_blob_is_read_from_a_file(tmp_path):
    path = tmp_path / "with space.bin"
    path.write_bytes(b"content")
    for value in (path, path.as_uri()):
        actual = converted(PropType(Scalar.BLOB, True), value, files=LocalFiles.READ)
        assert actual == ([b"content"], {})


def test_every_bad_row_is_named_and_the_good_ones_are_kept():
    values, problems = converted(PropType(Scalar.I32, True), 1, "x", None, 2**40, 5.0)
    assert values == [1, None, None, None, 5]
    assert problems == {1: "x is not an I32", 3: "1099511627776 does not fit I32"}


def test_an_empty_column():
    for scalar in Scalar:
        type_ = PropType(scalar, True, dimension=2 if scalar is Scalar.VECTOR else None)
        assert converted(type_) == ([], {})


# -- the model --------------------------------------------------------------------------------


class Misfit(Exception):
    """A value that the model does not take."""


def need(condition):
    if not condition:
        raise Misfit


def model_text(value, scalar):
    need(isinstance(value, str) and not re.search("[\ud800-\udfff]", value))
    return value


def model_bool(value, scalar):
    need(isinstance(value, bool))
    return value


def model_int(value, scalar):
    need(isinstance(value, int | float) and not isinstance(value, bool))
    if isinstance(value, float):
        need(value.is_integer() and abs(value) < 2**53)
    low, high = INTEGERS[scalar]
    need(low <= value <= high)
    return int(value)


def model_float(value, scalar):
    need(isinstance(value, int | float) and not isinstance(value, bool))
    try:
        number = float(value)
        kept = struct.unpack("<f", struct.pack("<f", number))[0] if scalar is Scalar.F32 else number
    except OverflowError:
        raise Misfit from None
    need(math.isfinite(kept))
    need(isinstance(value, float) or kept == value)
    return kept


def model_date(value, scalar):
    if isinstance(value, int) and not isinstance(value, bool):
        need(-719_162 <= value <= 2_932_896)
        return date(1970, 1, 1) + timedelta(days=value)
    need(isinstance(value, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value))
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise Misfit from None


def model_moment(value, scalar):
    epoch, unit = datetime(1970, 1, 1), timedelta(milliseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        need(-62_135_596_800_000 <= value <= 253_402_300_799_999)
        return value
    need(isinstance(value, str) and value.isascii())
    value = value.strip()
    need(re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)", value))
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            moment = (moment - moment.utcoffset()).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise Misfit from None
    need(moment.microsecond % 1000 == 0)
    return (moment - epoch) // unit


def model_blob(value, scalar):
    if isinstance(value, bytes):
        return value
    need(isinstance(value, str) and value.startswith("base64:"))
    try:
        return base64.b64decode(value[7:], validate=True)
    except ValueError:
        raise Misfit from None


MODEL = {
    Scalar.STRING: model_text,
    Scalar.BOOL: model_bool,
    **dict.fromkeys(INTEGERS, model_int),
    Scalar.F32: model_float,
    Scalar.F64: model_float,
    Scalar.DATE: model_date,
    Scalar.DATETIME: model_moment,
    Scalar.BLOB: model_blob,
}


def model(value, type_):
    if value is None:
        return None
    if type_.scalar is Scalar.VECTOR:
        need(isinstance(value, list) and len(value) == type_.dimension)
        items = [model_float(item, Scalar.F32) for item in value]
        need(any(items))
        return items
    convert = MODEL[type_.scalar]
    if not type_.is_list:
        return convert(value, type_.scalar)
    need(isinstance(value, list))
    return [convert(item, type_.scalar) for item in value]


EDGES = [n + d for bound in (0, 2**24, 2**31, 2**32, 2**53, 2**63, 2**64) for n in (bound, -bound)
         for d in (-1, 0, 1)]  # fmt: skip
integers = st.sampled_from([*EDGES, HUGE]) | st.integers()
floats = st.floats() | st.sampled_from([float(n) for n in EDGES] + [1e39, 1e-46, 0.1])
days = st.dates().map(str) | st.from_regex(r"\A[0-9]{4}-[01][0-9]-[0-3][0-9]\Z")
times = st.from_regex(
    r"\A[0-9]{4}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,9})?"
    r"(Z|[+-][0-2][0-9]:[0-5][0-9])?\Z"
)
moments = st.datetimes().map(str) | st.datetimes().map(lambda m: m.isoformat() + "Z") | times
coded = st.binary(max_size=6).map(lambda data: "base64:" + base64.b64encode(data).decode())
texts = st.text(max_size=6) | st.sampled_from(["half \ud800", "base64:?", "1", "true", " "])
FITTING = {
    Scalar.STRING: texts,
    Scalar.BOOL: st.booleans(),
    **dict.fromkeys(INTEGERS, integers),
    Scalar.F32: floats | integers,
    Scalar.F64: floats | integers,
    Scalar.DATE: days | integers | st.integers(-800_000, 3_000_000),
    Scalar.DATETIME: moments | days | integers,
    Scalar.BLOB: st.binary(max_size=6) | coded,
    Scalar.VECTOR: floats | integers,
}
anything = st.one_of(
    st.none(), st.booleans(), integers, floats, texts, days, moments, coded, st.just({})
)


@st.composite
def columns(draw):
    """A type, and values that mostly fit it: all of one kind, or some of any."""
    scalar = draw(st.sampled_from(list(Scalar)))
    is_list = scalar not in (Scalar.VECTOR, Scalar.BLOB) and draw(st.booleans())
    dimension = 2 if scalar is Scalar.VECTOR else None
    item = FITTING[scalar] | anything if draw(st.booleans()) else FITTING[scalar]
    value = item
    if dimension:
        value = st.lists(item, min_size=2, max_size=2) | st.lists(item, max_size=3)
    elif is_list:
        value = st.lists(item, max_size=3)
    if draw(st.booleans()):
        value = value | anything
    return PropType(scalar, True, is_list=is_list, dimension=dimension), draw(
        st.lists(value | st.none(), max_size=5)
    )


@given(columns())
def test_a_column_is_converted_as_the_model_converts_each_value(case):
    """Whole columns take shortcuts; none of them may show."""
    type_, values = case
    expected, wrong = [], []
    for row, value in enumerate(values):
        try:
            expected.append(model(value, type_))
        except Misfit:
            expected.append(None)
            wrong.append(row)
    actual, problems = converted(type_, *values)
    assert sorted(problems) == wrong
    assert actual == expected


@pytest.mark.parametrize(
    ("scalar", "value", "expected"),
    [
        (Scalar.I32, np.int64(7), 7),
        (Scalar.U64, np.uint64(2**64 - 1), 2**64 - 1),
        (Scalar.F64, np.float32(0.5), 0.5),
        (Scalar.BOOL, np.bool_(True), True),
        (Scalar.STRING, np.str_("a"), "a"),
        (Scalar.DATE, np.datetime64("2024-05-01"), date(2024, 5, 1)),
        (Scalar.DATETIME, np.datetime64("2024-05-01T10:00:00.123", "ns"), MILLIS),
    ],
    ids=repr,
)
def test_values_of_numpy_are_what_they_stand_for(scalar, value, expected):
    """Alone and as items; an array is a list."""
    assert converted(PropType(scalar, True), value, None) == ([expected, None], {})
    items = PropType(scalar, True, is_list=True)
    assert converted(items, [value], np.array([value])) == ([[expected], [expected]], {})


def test_values_of_numpy_are_judged_as_others():
    for value in (np.float64("nan"), np.float64(1.5), np.int64(2**40)):
        assert converted(PropType(Scalar.I32, True), value)[0] == [None]
    assert converted(PropType(Scalar.I32, True), np.datetime64("NaT")) == ([None], {})
    assert converted(PropType(Scalar.VECTOR, True, dimension=2), np.array([1, 2], "float32")) == (
        [[1.0, 2.0]],
        {},
    )
    fine = np.datetime64("2024-05-01T10:00:00.000000001")
    assert "finer than a millisecond" in str(converted(PropType(Scalar.DATETIME, True), fine)[1])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (None, "null"),
        ([True, None, "ä"], '[true, null, "ä"]'),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_values_are_shown_as_json_spells_them(value, shown):
    assert show(value) == shown
