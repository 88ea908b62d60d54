"""Normalizes conditions: no ``= true``, no double negation, no nested chains.

Every rewrite is valid in three-valued logic, so also under ``not``.
"""

from __future__ import annotations

from omnigraph.lang.query import typed
from omnigraph.plan.nodes import Plan

_LEAVES = (typed.Column, typed.Entity, typed.Constant, typed.Parameter, typed.Output)
"""Expressions without operands: they cannot be simplified."""


def simplify(plan: Plan) -> Plan:
    """Simplify every condition of a plan."""
    return plan.map_exprs(simplify_expr)


def simplify_expr(expr: typed.TypedExpr) -> typed.TypedExpr:
    """One expression in its simplest form.

    >>> flag = typed.Column("p", "active", typed.BOOL)
    >>> yes = typed.Constant(True, typed.BOOL)
    >>> simplify_expr(typed.Compare(typed.Relation.EQ, flag, yes)) == flag
    True
    """
    if isinstance(expr, _LEAVES):
        return expr
    expr = typed.rebuild(expr, simplify_expr)
    match expr:
        case typed.Compare():
            return _truth_test(expr)
        case typed.Not(operand=typed.Not(operand=inner)):
            return inner
        case typed.Not(operand=typed.IsNull(operand=inner, negated=negated)):
            return typed.IsNull(inner, not negated)
        case typed.And(operands=operands) if any(isinstance(o, typed.And) for o in operands):
            return typed.And(_flat(operands, typed.And))
        case typed.Or(operands=operands) if any(isinstance(o, typed.Or) for o in operands):
            return typed.Or(_flat(operands, typed.Or))
        case _:
            return expr


def _flat(
    operands: tuple[typed.TypedExpr, ...], operator: type[typed.And] | type[typed.Or]
) -> tuple[typed.TypedExpr, ...]:
    flat: list[typed.TypedExpr] = []
    for operand in operands:
        if isinstance(operand, operator):
            flat += operand.operands
        else:
            flat.append(operand)
    return tuple(flat)


def _truth_test(expr: typed.Compare) -> typed.TypedExpr:
    """``condition = true`` is the condition, ``condition = false`` its negation."""
    if expr.op not in (typed.Relation.EQ, typed.Relation.NE):
        return expr
    for condition, value in ((expr.left, expr.right), (expr.right, expr.left)):
        if isinstance(value, typed.Constant) and isinstance(value.value, bool):
            if isinstance(condition, typed.Constant):
                return expr
            wanted = value.value is (expr.op is typed.Relation.EQ)
            return condition if wanted else simplify_expr(typed.Not(condition))
    return expr
