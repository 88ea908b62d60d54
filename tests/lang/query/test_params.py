"""Parameter values: how each declared type converts them, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ParameterError
from omnigraph.lang.query.params import JsonMode, convert_params
from omnigraph.lang.query.typed import NOW_PARAMETER
from omnigraph.lang.types import SAFE_INTEGER, PropType, Scalar
from omnigraph.lang.values.spelling import json_type
from tests.lang.query.world import parse_one, read

I64_MAX = 2**63 - 1


def type_of(written: str) -> PropType:
    return parse_one(read("$x: X", params=f"$p: {written}")).params[0].type


def convert(written: str, value: Any, mode: JsonMode = JsonMode.STANDARD) -> Any:
    return convert_params({"p": type_of(written)}, {"p": value}, mode=mode)["p"]


def refusal(written: str, value: Any, mode: JsonMode = JsonMode.STANDARD) -> str:
    with pytest.raises(ParameterError) as caught:
        convert(written, value, mode)
    assert caught.value.details["parameter"] == "p" or str(caught.value).startswith("param 'p[")
    return caught.value.message


ACCEPTED: list[tuple[str, Any, Any]] = [
    ("String", "", ""),
    ("String", "é\U0001f600", "é\U0001f600"),
    ("I32", 5, 5),
    ("I32", "-5", -5),
    ("I32", 2**31 - 1, 2**31 - 1),
    ("I32", -(2**31), -(2**31)),
    ("I64", I64_MAX, I64_MAX),
    ("I64", str(-(2**63)), -(2**63)),
    ("U32", 2**32 - 1, 2**32 - 1),
    ("U32", "0", 0),
    ("U64", I64_MAX, I64_MAX),
    ("U64", str(I64_MAX), I64_MAX),
    ("F64", 1, 1.0),
    ("F64", -2.5, -2.5),
    ("F32", 0.1, 0.1),
    ("Bool", True, True),
    ("Bool", False, False),
    ("Date", "2024-02-29", date(2024, 2, 29)),
    ("DateTime", "2024-02-29T12:00:00Z", datetime(2024, 2, 29, 12)),
    ("DateTime", "2024-02-29T12:00:00.5+02:00", datetime(2024, 2, 29, 10, 0, 0, 500000)),
    ("DateTime", "2024-02-29 12:00:00", datetime(2024, 2, 29, 12)),
    ("DateTime", "2024-02-29", datetime(2024, 2, 29)),
    ("DateTime", "2024-02-29T12:00:00.123000000Z", datetime(2024, 2, 29, 12, 0, 0, 123000)),
    ("Blob", "base64:AA==", "base64:AA=="),
    ("Blob", "s3://b/k", "s3://b/k"),
    ("Blob", b"hi", "base64:aGk="),
    ("Blob", bytearray(b"hi"), "base64:aGk="),
    ("Blob", memoryview(b"hi"), "base64:aGk="),
    ("Blob", Path("/a b"), "file:///a%20b"),
    ("[String]", [], ()),
    ("[I32]", [1, "2"], (1, 2)),
    ("[Date]", ["2024-01-01"], (date(2024, 1, 1),)),
    ("[DateTime]?", ["2024-01-01T00:00:00Z"], (datetime(2024, 1, 1),)),
    ("[I64]", (1, 2), (1, 2)),
    ("Vector(2)", [1, 2.5], (1.0, 2.5)),
    ("String?", None, None),
    ("[I32]?", None, None),
    ("Vector(2)?", None, None),
]


@pytest.mark.parametrize(("written", "value", "expected"), ACCEPTED)
def test_l220_values_convert_to_their_declared_type(
    written: str, value: Any, expected: Any
) -> None:
    actual = convert(written, value)
    assert actual == expected
    assert type(actual) is type(expected)


REFUSED: list[tuple[str, Any, str]] = [
    ("String", 1, "param 'p': expected string, got number"),
    ("String", None, "param 'p': null is not accepted for non-nullable parameter"),
    ("String", ["a"], "param 'p': expected string, got array"),
    ("String", {}, "param 'p': expected string, got object"),
    ("String", "\ud800", "param 'p': text is not valid Unicode"),
    ("I32", "x", "param 'p': expected integer"),
    ("I32", "1.0", "param 'p': expected integer"),
    ("I32", True, "param 'p': expected integer"),
    ("I32", 1.0, "param 'p': expected integer"),
    ("I32", 2**31, "param 'p': value 2147483648 exceeds I32"),
    ("I32", -(2**31) - 1, "param 'p': value -2147483649 exceeds I32"),
    ("I64", 2**63, "param 'p': value 9223372036854775808 exceeds I64"),
    ("I64", 10**30, "param 'p': value exceeds 64 bits"),
    ("U32", 2**32, "param 'p': value 4294967296 exceeds U32"),
    ("U32", -1, "param 'p': expected a non-negative integer, got -1"),
    ("U64", "-1", "param 'p': expected a non-negative integer, got -1"),
    (
        "U64",
        2**63,
        "param 'p': value 9223372036854775808 exceeds current engine range for U64 "
        "(max 9223372036854775807)",
    ),
    ("F64", "1.5", "param 'p': expected float, got string"),
    ("F64", True, "param 'p': expected float, got boolean"),
    ("F64", float("nan"), "param 'p': expected a finite number for F64"),
    ("F64", float("inf"), "param 'p': expected a finite number for F64"),
    ("F64", 10**400, "param 'p': expected a finite number for F64"),
    ("F32", 1e39, "param 'p': value 1e+39 exceeds F32"),
    ("Bool", "true", "param 'p': expected boolean, got string"),
    ("Bool", 1, "param 'p': expected boolean, got number"),
    ("Date", 20240101, "param 'p': expected date string, got number"),
    ("Date", "2024-13-01", "param 'p': invalid Date '2024-13-01'"),
    ("Date", "20240101", "param 'p': invalid Date '20240101'"),
    ("Date", datetime(2024, 1, 1), "param 'p': expected date string, got datetime"),
    ("DateTime", 1, "param 'p': expected datetime string, got number"),
    ("DateTime", "noon", "param 'p': invalid DateTime 'noon'"),
    ("DateTime", "9999-12-31T23:59:59-23:00", "param 'p': invalid DateTime"),
    (
        "DateTime",
        "2024-02-29T12:00:00.123999Z",
        "param 'p': DateTime '2024-02-29T12:00:00.123999Z' is finer than a millisecond",
    ),
    ("DateTime", "2024-02-29T12:00:00.123000001Z", "param 'p': DateTime '2024"),
    ("DateTime", datetime(2024, 1, 1, microsecond=1999), "param 'p': DateTime '2024"),
    ("DateTime", np.datetime64("2024-01-01T00:00:00.000000001"), "param 'p': DateTime '2024"),
    ("DateTime", pd.Timestamp("2024-01-01T00:00:00.000000001Z"), "param 'p': DateTime '2024"),
    ("[DateTime]", ["2024-01-01T00:00:00.0001Z"], "param 'p[0]': DateTime '2024"),
    ("Blob", 1, "param 'p': expected blob URI string, got number"),
    ("[I32]", 1, "param 'p': expected array for [I32], got number"),
    ("[I32]", "1", "param 'p': expected array for [I32], got string"),
    ("[I32]", [1, "x"], "param 'p[1]': expected integer"),
    ("[I32]", [2**31], "param 'p[0]': value 2147483648 exceeds I32"),
    ("[I32]", [None], "param 'p': item 0 of the array is null"),
    ("Vector(2)", [1], "param 'p': expected 2 values for Vector(2), got 1"),
    ("Vector(2)", [1, "x"], "param 'p': vector element is not numeric"),
    ("Vector(2)", [1, None], "param 'p': vector element is not numeric"),
    ("Vector(2)", [1, True], "param 'p': vector element is not numeric"),
    ("Vector(2)", "ab", "param 'p': expected array for Vector(2), got string"),
    ("Vector(2)", [1, float("inf")], "param 'p[1]': expected a finite number"),
]


@pytest.mark.parametrize(("written", "value", "message"), REFUSED)
def test_what_does_not_fit_is_refused_by_name(written: str, value: Any, message: str) -> None:
    assert refusal(written, value).startswith(message)


# -- modes and shapes ------------------------------------------------------------------


@pytest.mark.parametrize("value", [SAFE_INTEGER, -SAFE_INTEGER, 5.0, "9007199254740993"])
def test_l218_javascript_mode_takes_safe_numbers_and_any_text(value: Any) -> None:
    assert convert("I64", value, JsonMode.JAVASCRIPT) == int(value)


@pytest.mark.parametrize("value", [SAFE_INTEGER + 1, -SAFE_INTEGER - 1, 1e300, 2.0**53])
def test_l218_javascript_mode_refuses_unsafe_integers(value: Any) -> None:
    with pytest.raises(ParameterError, match="safe range") as caught:
        convert("I64", value, JsonMode.JAVASCRIPT)
    assert caught.value.hint == "pass a decimal string"


def test_l218_javascript_mode_still_refuses_fractions() -> None:
    assert refusal("I64", 1.5, JsonMode.JAVASCRIPT) == "param 'p': expected integer, got 1.5"


def test_l218_standard_mode_takes_all_of_64_bits() -> None:
    assert convert("I64", SAFE_INTEGER + 1) == SAFE_INTEGER + 1


@pytest.mark.parametrize(("given", "name"), [([], "array"), ("x", "string"), (1, "number")])
def test_l218_params_must_be_an_object(given: Any, name: str) -> None:
    with pytest.raises(ParameterError, match=f"params must be an object, got {name}"):
        convert_params({}, given)


@pytest.mark.parametrize("given", [None, {}])
def test_params_may_be_absent(given: Mapping[str, Any] | None) -> None:
    assert set(convert_params({}, given)) == {NOW_PARAMETER}


# -- host values -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value", "expected"),
    [
        ("I32", np.int64(5), 5),
        ("U64", np.uint64(5), 5),
        ("I64", np.int8(-3), -3),
        ("F64", np.float32(0.5), 0.5),
        ("F32", np.float64(0.5), 0.5),
        ("Bool", np.bool_(True), True),
        ("String", np.str_("a"), "a"),
        ("Date", date(2024, 1, 1), date(2024, 1, 1)),
        ("Date", np.datetime64("2024-01-01"), date(2024, 1, 1)),
        ("DateTime", datetime(2024, 1, 1, 12), datetime(2024, 1, 1, 12)),
        (
            "DateTime",
            datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))),
            datetime(2024, 1, 1, 10),
        ),
        (
            "DateTime",
            datetime(2024, 1, 1, microsecond=1000),
            datetime(2024, 1, 1, microsecond=1000),
        ),
        ("DateTime", np.datetime64("2024-01-01T12:00:00", "s"), datetime(2024, 1, 1, 12)),
        ("DateTime", np.datetime64("2024-01-01T12:00:00", "ns"), datetime(2024, 1, 1, 12)),
        ("[I64]", np.array([1, 2]), (1, 2)),
        ("[I64]", [np.int32(1), np.int64(2)], (1, 2)),
        ("[DateTime]", np.array(["2024-01-01"], "datetime64[ns]"), (datetime(2024, 1, 1),)),
        ("Vector(2)", np.array([1, 2], np.float32), (1.0, 2.0)),
        ("Vector(2)", [np.float32(1), np.int64(2)], (1.0, 2.0)),
        ("I64?", np.datetime64("NaT"), None),
    ],
)
def test_l219_host_values(written: str, value: Any, expected: Any) -> None:
    actual = convert(written, value)
    assert actual == expected
    assert type(actual) is type(expected)


def test_l219_unsigned_values_must_fit_the_engine() -> None:
    assert "current engine range for U64" in refusal("U64", np.uint64(2**63))


def test_a_moment_that_has_no_utc_form_is_refused() -> None:
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))
    assert "out of range" in refusal("DateTime", early)
    with pytest.raises(ParameterError):
        convert_params({}, {"extra": early})


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", 1j])
def test_values_of_other_types_are_refused(value: Any) -> None:
    for written in ("String", "I64", "F64", "Bool", "Date", "DateTime", "[I64]", "Vector(2)"):
        refusal(written, value)


# -- null, missing and undeclared ------------------------------------------------------


def test_l221_an_omitted_nullable_parameter_is_null() -> None:
    declared = {"a": type_of("I32?"), "b": type_of("[Date]?")}
    values = convert_params(declared, {})
    assert (values["a"], values["b"]) == (None, None)


def test_l221_a_missing_required_parameter_is_an_error() -> None:
    with pytest.raises(ParameterError, match="parameter 'a' not provided") as caught:
        convert_params({"a": type_of("I32")}, {"b": 1})
    assert caught.value.hint == "pass a value for $a: I32"


def test_a_value_that_looks_like_the_missing_parameter_is_named() -> None:
    with pytest.raises(ParameterError, match="parameter 'name' not provided") as caught:
        convert_params({"name": type_of("String"), "age": type_of("I32?")}, {"age": 1, "nmae": "x"})
    assert (
        caught.value.hint
        == "pass a value for $name: String; 'nmae' is not a parameter of this query"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", "x"),
        (True, True),
        (5, 5),
        (2.5, 2.5),
        (2**70, float(2**70)),
        (None, None),
        ([1, "a", None], (1, "a", None)),
        (np.float32(0.5), 0.5),
        ([np.int64(1)], (1,)),
        (date(2024, 1, 1), date(2024, 1, 1)),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1)),
    ],
)
def test_l221_undeclared_values_are_kept_as_they_look(value: Any, expected: Any) -> None:
    actual = convert_params({}, {"extra": value})["extra"]
    assert actual == expected
    assert type(actual) is type(expected)


@pytest.mark.parametrize("value", [{}, {"a": 1}, [[1]], [{}], float("nan"), "\ud800"])
def test_undeclared_objects_are_refused(value: Any) -> None:
    with pytest.raises(ParameterError, match="param 'extra"):
        convert_params({}, {"extra": value})


# -- now --------------------------------------------------------------------------------------


def test_now_is_one_utc_moment_in_milliseconds() -> None:
    zone = timezone(timedelta(hours=-3))
    values = convert_params({}, {}, now=datetime(2024, 1, 1, 12, 0, 0, 123456, zone))
    assert values[NOW_PARAMETER] == datetime(2024, 1, 1, 15, 0, 0, 123000)


def test_now_defaults_to_the_clock() -> None:
    before = datetime.now(UTC).replace(tzinfo=None) - timedelta(milliseconds=1)
    moment = convert_params({}, None)[NOW_PARAMETER]
    assert isinstance(moment, datetime)
    assert before <= moment <= datetime.now(UTC).replace(tzinfo=None)


def test_a_caller_may_preset_now() -> None:
    given = {NOW_PARAMETER: "2020-01-01T00:00:00Z"}
    values = convert_params({}, given, now=datetime(2024, 1, 1))
    assert values[NOW_PARAMETER] == datetime(2020, 1, 1)
    with pytest.raises(ParameterError, match="expected datetime string"):
        convert_params({}, {NOW_PARAMETER: 5})


# -- anything at all --------------------------------------------------------------------------

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=5,
)
_types = st.builds(
    PropType,
    st.sampled_from([s for s in Scalar if s is not Scalar.VECTOR]),
    nullable=st.booleans(),
    is_list=st.booleans(),
) | st.just(PropType(Scalar.VECTOR, dimension=2))


@given(_types, _json, st.sampled_from(JsonMode))
def test_every_json_value_converts_or_is_refused(
    type_: PropType, value: Any, mode: JsonMode
) -> None:
    try:
        actual = convert_params({"p": type_}, {"p": value}, mode=mode)["p"]
    except ParameterError:
        return
    assert actual is None or isinstance(actual, tuple) == (type_.is_list or type_.is_vector)
    assert actual is not None or type_.nullable


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "boolean"),
        (1.5, "number"),
        ("", "string"),
        ([], "array"),
        ({}, "object"),
    ],
)
def test_json_type_names(value: Any, name: str) -> None:
    assert json_type(value) == name
