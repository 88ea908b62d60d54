"""Evaluates checked conditions on a row of plain values, in three-valued logic."""

from __future__ import annotations

import operator
from typing import Any

from omnigraph.lang.query import typed

_RELATIONS = {
    typed.Relation.EQ: operator.eq,
    typed.Relation.NE: operator.ne,
    typed.Relation.LT: operator.lt,
    typed.Relation.LE: operator.le,
    typed.Relation.GT: operator.gt,
    typed.Relation.GE: operator.ge,
}


def matches(condition: typed.TypedExpr, row: dict[str, Any]) -> bool:
    """Whether a filter keeps a row."""
    return truth(condition, row) is True


def truth(expr: typed.TypedExpr, row: dict[str, Any]) -> bool | None:
    match expr:
        case typed.And(operands=operands):
            values = [truth(part, row) for part in operands]
            return False if False in values else None if None in values else True
        case typed.Or(operands=operands):
            values = [truth(part, row) for part in operands]
            return True if True in values else None if None in values else False
        case typed.Not(operand=operand):
            inner = truth(operand, row)
            return None if inner is None else not inner
        case typed.IsNull(operand=operand, negated=negated):
            return (_value(operand, row) is None) is not negated
        case typed.Constant() | typed.Column():
            value = _value(expr, row)
            return None if value is None else value is True
    left, right = (_value(part, row) for part in typed.children(expr))
    if left is None or right is None:
        return None
    match expr:
        case typed.Compare(op=op):
            return bool(_RELATIONS[op](left, right))
        case typed.Membership():
            return left in right
        case typed.StartsWith():
            return bool(left.startswith(right))
        case typed.Substring():
            return right in left
    raise TypeError(type(expr).__name__)


def _value(expr: typed.TypedExpr, row: dict[str, Any]) -> Any:
    return expr.value if isinstance(expr, typed.Constant) else row[expr.name]  # type: ignore[attr-defined]
