"""Values that parameters of a mutation do not take: the declared type, the value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

_NOT_NUMBERS = ["x", "", True, [1], {}, b"1", Decimal("1"), object()]
_INTEGERS = [*_NOT_NUMBERS, "1.5", 1.5, float("nan"), float("inf"), 10**400, 10**5000, "9" * 30]
_FLOATS = [*_NOT_NUMBERS, float("nan"), float("inf"), -float("inf"), 10**400, 10**5000, "1.5"]

PARAMS: dict[str, list[Any]] = {
    "String": [None, 1, 1.5, True, [], {}, b"a", "\ud800", "a\udfff"],
    "I32": [None, *_INTEGERS, 2**31, -(2**31) - 1],
    "I64": [None, *_INTEGERS, 2**63, -(2**63) - 1],
    "U32": [None, *_INTEGERS, -1, 2**32],
    "U64": [None, *_INTEGERS, -1, 2**64],
    "F32": [None, *_FLOATS, 1e39, -1e39],
    "F64": [None, *_FLOATS],
    "Bool": [None, 1, 0, "true", "", [], {}],
    "Date": [
        None,
        "x",
        "",
        "2024-02-30",
        "2024-5-1",
        "20240501",
        1.5,
        True,
        [],
        dt.datetime(2024, 5, 1),
    ],
    "DateTime": [
        None,
        "x",
        "",
        "2024-05-01T25:00:00",
        "2024-05-01T10:00:00.0001Z",
        "0001-01-01T00:00:00+02:00",
        1.5,
        True,
        [],
    ],
    "[String]": [None, "a", 1, {}, [1], ["a", 1], [None], [["a"]], ["\ud800"]],
    "[I32]": [None, 1, "1", {}, [1.5], [2**31], [None], [True], ["x"], [10**5000]],
    "Vector(3)": [
        None,
        [],
        [1, 2],
        [1, 2, 3, 4],
        [1, "2", 3],
        [1, None, 3],
        [1, True, 3],
        [1, float("nan"), 3],
        [1, float("inf"), 3],
        [1e39, 0, 0],
        [10**400, 0, 0],
        "1,2,3",
        1,
        {},
    ],
}

BY_TYPE = {
    "String": "text",
    "I32": "i32",
    "I64": "i64",
    "U32": "u32",
    "U64": "u64",
    "F32": "f32",
    "F64": "f64",
    "Bool": "ok",
    "Date": "day",
    "DateTime": "moment",
    "[String]": "words",
    "[I32]": "numbers",
    "Vector(3)": "vector",
}
"""The property of ``Thing`` that a parameter of each type is assigned to."""

BLOBS: list[Any] = [
    1,
    True,
    [],
    {},
    "hello",
    "base64:?",
    "base64:aGk",
    "file:///no/such/file",
    "file:///dev/zero",
    "file://elsewhere/x",
    "file://[::1/x",
    "http://example.org/x",
    "\ud800",
]

SHAPES: dict[str, Any] = {
    "a list": ["a"],
    "a text": "slug=a",
    "a number": 7,
    "nothing of what is declared": {"other": 1},
    "a name of another case": {"Slug": "a"},
}
"""What ``params`` itself cannot be, for a mutation with the parameter ``slug``."""
