"""Random typed conditions over one table that has a column of every type, and random rows of it."""

from __future__ import annotations

import struct
from datetime import date, datetime
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from omnigraph.lang.query import typed
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import arrow_array, arrow_type

_ENUM = ("alpha", "b-2")


def _f32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


# Few values, so that comparisons often meet; each pool has the ends of its range.
POOLS: dict[Scalar, list[Any]] = {
    Scalar.STRING: ["", "a", "ab", "alpha", "b-2", "é", "\U0001f600", "Ab"],
    Scalar.BOOL: [True, False],
    Scalar.I32: [-(2**31), -1, 0, 1, 2, 30, 2**31 - 1],
    Scalar.I64: [-(2**63), -(2**53) - 1, -1, 0, 1, 2, 30, 2**53, 2**53 + 1, 2**63 - 1],
    Scalar.U32: [0, 1, 2, 30, 2**31, 2**32 - 1],
    Scalar.U64: [0, 1, 2, 30, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1],
    Scalar.F32: [-1.0, -0.0, 0.0, 1.0, 2.5, _f32(0.1), _f32(3.4e38), float("inf")],
    Scalar.F64: [-1.0, -0.0, 0.0, 0.1, 1.0, 2.5, 30.0, 2.0**53, 1e300, float("nan")],
    Scalar.DATE: [date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    Scalar.DATETIME: [
        datetime(1, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, 999000),
        datetime(2024, 2, 29),
        datetime(2024, 2, 29, 12, 30, 0, 1000),
        datetime(9999, 12, 31, 23, 59, 59, 999000),
    ],
}
# What a query can write: integers of 64 bits and finite floats, whatever the column is.
CONSTANTS: dict[Scalar, list[tuple[Any, Scalar]]] = {
    scalar: [(value, scalar) for value in pool] for scalar, pool in POOLS.items()
}
_WRITTEN = [(value, Scalar.I64) for value in POOLS[Scalar.I64]] + [
    (value, Scalar.F64)
    for value in (-1e300, -9.3e18, -2.5, -1.0, -0.0, 0.0, 0.1, 2.5, 30.0, 4e9, 1.9e19, 1e300)
]
for _scalar in POOLS:
    if _scalar.is_numeric:
        CONSTANTS[_scalar] = _WRITTEN

PLAIN = tuple(POOLS)
COLUMNS: dict[str, PropType] = {
    **{f"a_{s.lower()}": PropType(s, nullable=True) for s in PLAIN},
    **{f"b_{s.lower()}": PropType(s, nullable=True) for s in PLAIN},
    **{f"r_{s.lower()}": PropType(s) for s in PLAIN},
    **{f"l_{s.lower()}": PropType(s, nullable=True, is_list=True) for s in PLAIN},
    "a_enum": PropType(Scalar.STRING, nullable=True, enum_values=_ENUM),
}


def column(name: str) -> typed.Column:
    return typed.Column("p", name, COLUMNS[name])


def _value(random: Random, type_: PropType) -> Any:
    if type_.nullable and random.random() < 0.25:
        return None
    pool = _ENUM if type_.enum_values else POOLS[type_.scalar]
    if type_.is_list:
        # A null among the items comes from data, never from a literal of the language.
        return tuple(random.choice([None, *pool, *pool]) for _ in range(random.randrange(4)))
    return random.choice(pool)


def _rows(count: int) -> list[dict[str, Any]]:
    random = Random(7)
    empty = {
        name: None if type_.nullable else _value(random, type_) for name, type_ in COLUMNS.items()
    }
    return [empty] + [
        {name: _value(random, type_) for name, type_ in COLUMNS.items()} for _ in range(count)
    ]


# The conditions are random, the rows are not: 80 of them show most pairs of values of two columns.
ROWS = _rows(80)

_columns = {name: column(name) for name in COLUMNS}
_plain = [c for c in _columns.values() if c.type.is_plain]
_lists = [c for c in _columns.values() if c.type.is_list]
_texts = [c for c in _plain if c.type.scalar is Scalar.STRING]
_truths = [c for c in _plain if c.type.scalar is Scalar.BOOL]
_relations = st.sampled_from(list(typed.Relation))
_NULL = typed.Constant(None, typed.NULL)


def _constant(scalar: Scalar) -> st.SearchStrategy[typed.Constant]:
    existing = st.sampled_from(CONSTANTS[scalar]).map(
        lambda pair: typed.Constant(pair[0], PropType(pair[1]))
    )
    finite = existing.filter(lambda c: c.value == c.value)
    return finite | st.just(_NULL)


def _options(scalar: Scalar) -> st.SearchStrategy[typed.Constant]:
    def pack(items: list[typed.Constant]) -> typed.Constant:
        kinds = {item.type.scalar for item in items if item.value is not None}
        element = Scalar.F64 if len(kinds) > 1 else next(iter(kinds), scalar)
        nullable = any(item.value is None for item in items)
        values: Any = tuple(item.value for item in items)
        return typed.Constant(values, PropType(element, nullable, is_list=True))

    return st.lists(_constant(scalar), max_size=4).map(pack)


def _meets(left: typed.Column) -> st.SearchStrategy[typed.TypedExpr]:
    scalar = left.type.scalar
    others = [
        c
        for c in _plain
        if c.type.scalar is scalar or (scalar.is_numeric and c.type.scalar.is_numeric)
    ]
    return _constant(scalar) | st.sampled_from(others)


@st.composite
def comparisons(draw: st.DrawFn) -> typed.TypedExpr:
    left: typed.TypedExpr = draw(st.sampled_from(_plain))
    assert isinstance(left, typed.Column)
    right = draw(_meets(left))
    if draw(st.booleans()):
        left, right = right, left
    return typed.Compare(draw(_relations), left, right)


@st.composite
def memberships(draw: st.DrawFn) -> typed.TypedExpr:
    if draw(st.booleans()):
        item = draw(st.sampled_from(_plain))
        return typed.Membership(item, draw(_options(item.type.scalar)))
    options = draw(st.sampled_from(_lists))
    actual = draw(_meets(typed.Column("p", "", options.type.element)))
    return typed.Membership(actual, options)


@st.composite
def text_tests(draw: st.DrawFn) -> typed.TypedExpr:
    text = draw(st.sampled_from(_texts))
    part = draw(_constant(Scalar.STRING) | st.sampled_from(_texts))
    return draw(st.sampled_from([typed.Substring, typed.StartsWith]))(text, part)


_atoms = (
    comparisons()
    | memberships()
    | text_tests()
    | st.builds(typed.IsNull, st.sampled_from([*_plain, *_lists]), st.booleans())
    | st.sampled_from(_truths)
    | st.sampled_from([typed.Constant(value, typed.BOOL) for value in (True, False)])
    | st.just(typed.Constant(None, typed.BOOL.as_nullable()))
)


def _compound(inner: st.SearchStrategy[typed.TypedExpr]) -> st.SearchStrategy[typed.TypedExpr]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    truth = _constant(Scalar.BOOL) | st.sampled_from(_truths) | inner
    return (
        st.builds(typed.Not, inner)
        | st.builds(typed.And, several)
        | st.builds(typed.Or, several)
        | st.builds(typed.IsNull, inner, st.booleans())
        | st.builds(typed.Compare, _relations, inner, truth)
        | st.builds(typed.Compare, _relations, truth, inner)
        | st.builds(typed.Membership, inner, _options(Scalar.BOOL))
    )


conditions: st.SearchStrategy[typed.TypedExpr] = st.recursive(_atoms, _compound, max_leaves=6)


def arrow_table() -> pa.Table:
    """``ROWS`` as an Arrow table with exactly the column types of the schema, and row numbers."""
    arrays = {"row": pa.array(range(len(ROWS)), pa.int64())}
    for name, type_ in COLUMNS.items():
        values = [row[name] for row in ROWS]
        arrays[name] = (
            _list_array(values, type_) if type_.is_list else arrow_array(tuple(values), type_)
        )
    return pa.table(arrays)


def _list_array(values: list[Any], type_: PropType) -> pa.Array:
    offsets = [0]
    items: list[Any] = []
    for value in values:
        items += value or ()
        offsets.append(len(items))
    flat = arrow_array(tuple(items), type_.element)
    mask = pa.array([value is None for value in values])
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), flat, type=arrow_type(type_), mask=mask
    )
