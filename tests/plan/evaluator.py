"""Typed expressions evaluated in plain Python, one row at a time: the oracle of the plan tests.

It knows nothing of Arrow and nothing of rewriting. Truth is true, false or ``None`` (unknown);
in comparisons of numbers, integers compare exactly, an integer column
meets a float column as doubles, and a constant takes the width of the float column it meets.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from omnigraph.lang.query import typed
from omnigraph.lang.types import PropType, Scalar

Row = Mapping[str, Any]
Truth = bool | None

_RELATIONS: dict[typed.Relation, Callable[[Any, Any], bool]] = {
    typed.Relation.EQ: operator.eq,
    typed.Relation.NE: operator.ne,
    typed.Relation.LT: operator.lt,
    typed.Relation.LE: operator.le,
    typed.Relation.GT: operator.gt,
    typed.Relation.GE: operator.ge,
}


def evaluate(expr: typed.TypedExpr, row: Row) -> Any:
    """The value of an expression for one row, whose columns are found by their bare names."""
    match expr:
        case typed.Constant(value=value):
            return value
        case typed.Column(name=name):
            return row[name]
        case typed.Compare(op=op, left=left, right=right):
            return _compare(_RELATIONS[op], left, evaluate(left, row), right, evaluate(right, row))
        case typed.Membership(item=item, options=options):
            return _member(item, evaluate(item, row), options, evaluate(options, row))
        case typed.Substring(text=text, part=part):
            return _existing(lambda a, b: b in a, evaluate(text, row), evaluate(part, row))
        case typed.StartsWith(text=text, prefix=prefix):
            return _existing(str.startswith, evaluate(text, row), evaluate(prefix, row))
        case typed.IsNull(operand=operand, negated=negated):
            return (evaluate(operand, row) is None) is not negated
        case typed.Not(operand=operand):
            return _existing(operator.not_, evaluate(operand, row))
        case typed.And(operands=operands):
            return all_of(evaluate(operand, row) for operand in operands)
        case typed.Or(operands=operands):
            return any_of(evaluate(operand, row) for operand in operands)
        case _:
            raise AssertionError(f"no rule for {type(expr).__name__}")


def all_of(truths: Iterable[Truth]) -> Truth:
    """False beats unknown, unknown beats true."""
    seen = list(truths)
    return False if False in seen else None if None in seen else True


def any_of(truths: Iterable[Truth]) -> Truth:
    """True beats unknown, unknown beats false."""
    seen = list(truths)
    return True if True in seen else None if None in seen else False


def _existing(function: Callable[..., bool], *values: Any) -> Truth:
    return None if any(value is None for value in values) else function(*values)


def _compare(
    relation: Callable[[Any, Any], bool],
    left: typed.TypedExpr,
    left_value: Any,
    right: typed.TypedExpr,
    right_value: Any,
) -> Truth:
    left_value, right_value = (
        meeting(left, left_value, right.type),
        meeting(right, right_value, left.type),
    )
    return _existing(relation, left_value, right_value)


def _member(item: typed.TypedExpr, value: Any, options: typed.TypedExpr, members: Any) -> Truth:
    if members is None:
        return None
    value = meeting(item, value, options.type.element)
    actual: list[Truth] = []
    for member in members:
        member = meeting(options, member, item.type)
        actual.append(_existing(operator.eq, value, member))
    return any_of(actual)


def meeting(expr: typed.TypedExpr, value: Any, other: PropType) -> Any:
    """A number as it is compared with a value of another numeric type."""
    if value is None or isinstance(value, bool) or not other.scalar.is_float:
        return value
    if not isinstance(value, int | float):
        return value
    if isinstance(expr, typed.Constant):
        # Python compares an integer with a float exactly, which is what a constant means.
        return _narrow(float(value)) if other.scalar is Scalar.F32 else value
    return float(value)


def _narrow(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return value
