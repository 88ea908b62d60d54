"""Evaluates the parts of a condition that do not depend on the row.

After the attributes of an actor are bound, a part such as ``$actor.level > 3`` is constant. A view
should say *all* or *hidden* instead of such a condition, because whole tables are read faster and
compared better.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from omnigraph.lang.query import typed

Truth = bool | None

_RELATIONS: dict[typed.Relation, Callable[[Any, Any], bool]] = {
    typed.Relation.EQ: operator.eq,
    typed.Relation.NE: operator.ne,
    typed.Relation.LT: operator.lt,
    typed.Relation.LE: operator.le,
    typed.Relation.GT: operator.gt,
    typed.Relation.GE: operator.ge,
}


def reduce_condition(expr: typed.TypedExpr) -> typed.TypedExpr:
    """A condition without parameters in which only parts with columns are left.

    The result is a constant if the condition does not depend on the row. Valid in three-valued
    logic, so also under ``not``.

    >>> yes, column = typed.Constant(True, typed.BOOL), typed.Column("r", "ok", typed.BOOL)
    >>> reduce_condition(typed.And((yes, column))) == column
    True
    """
    match expr:
        case typed.And(operands=operands):
            return _joined(typed.And, operands, neutral=True)
        case typed.Or(operands=operands):
            return _joined(typed.Or, operands, neutral=False)
        case typed.Not(operand=operand):
            inner = reduce_condition(operand)
            if isinstance(inner, typed.Constant):
                return _constant(None if inner.value is None else not inner.value)
            return typed.Not(inner)
    if typed.variables(expr):
        return expr
    return _constant(_truth(expr))


def _joined(
    operator_: type[typed.And] | type[typed.Or],
    operands: tuple[typed.TypedExpr, ...],
    *,
    neutral: bool,
) -> typed.TypedExpr:
    reduced = list(dict.fromkeys(map(reduce_condition, operands)))
    if _constant(not neutral) in reduced:
        return _constant(not neutral)
    left = [part for part in reduced if part != _constant(neutral)]
    if not left:
        return _constant(neutral)
    return left[0] if len(left) == 1 else operator_(tuple(left))


def _constant(value: Truth) -> typed.Constant:
    return typed.Constant(value, typed.BOOL.as_nullable(value is None))


def _truth(expr: typed.TypedExpr) -> Truth:
    """The value of a condition over constants; null if an operand is null."""
    if isinstance(expr, typed.Constant):
        return None if expr.value is None else expr.value is True
    values = [child.value for child in typed.children(expr) if isinstance(child, typed.Constant)]
    if isinstance(expr, typed.IsNull):
        return (values[0] is None) is not expr.negated
    if None in values:
        return None
    left, right = values
    match expr:
        case typed.Compare(op=op):
            return _RELATIONS[op](left, right)
        case typed.Membership():
            return _is_member(left, right)
        case typed.Substring():
            return str(right) in str(left)
        case typed.StartsWith():
            return str(left).startswith(str(right))
    raise TypeError(f"{type(expr).__name__} is not a condition over constants")


def _is_member(item: typed.Value, options: typed.Value) -> Truth:
    assert isinstance(options, tuple)
    if item in options:
        return True
    return None if None in options else False
