"""Binds parameter values to a plan.

The bound plan has no parameters left, and its constants have the types of the columns they are
compared with, so that indexes can be used. Numbers of any type may be compared: a constant is
converted to the column's type if nothing is lost; one that no value can equal becomes a comparison
that is never true. Every engine gets the result, so none needs its own rules.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import TypeVar

from omnigraph.errors import ParameterError
from omnigraph.lang.query import typed
from omnigraph.lang.types import INTEGER_RANGES, PropType, Scalar
from omnigraph.plan.nodes import MutationPlan, NodeScan, PlanStep, ReadPlan

P = TypeVar("P", ReadPlan, MutationPlan)


def bind(plan: P, values: Mapping[str, typed.Value]) -> P:
    """The plan with every parameter replaced by its value (see ``convert_params``)."""
    return plan.map_exprs(lambda expr: bind_expr(expr, values))


def bind_expr(expr: typed.TypedExpr, values: Mapping[str, typed.Value]) -> typed.TypedExpr:
    """One expression with its parameters replaced and its constants aligned.

    >>> age = typed.Parameter("age", typed.INT)
    >>> bind_expr(age, {"age": 41}).value
    41
    """
    if isinstance(expr, typed.Parameter):
        if expr.name not in values:
            raise ParameterError(
                f"parameter '{expr.name}' not provided", details={"parameter": expr.name}
            )
        return typed.Constant(values[expr.name], expr.type)
    expr = typed.rebuild(expr, lambda part: bind_expr(part, values))
    if isinstance(expr, typed.ListOf):
        atoms: list[typed.Atom] = []
        for item in expr.items:
            assert isinstance(item, typed.Constant)
            assert not isinstance(item.value, tuple)
            atoms.append(item.value)
        return typed.Constant(tuple(atoms), expr.type)
    return align(expr)


Binder = Callable[[Mapping[str, typed.Value]], typed.TypedExpr]
"""Makes an expression from the values of its parameters."""


StepBinder = Callable[[Mapping[str, typed.Value]], PlanStep]
"""Makes a step from the values of its parameters."""


def step_binder(step: PlanStep) -> StepBinder:
    """A function that binds the parameters of a step.

    A look-up by key spends much of its time here, so a scan is built anew without the general way.
    """
    if not isinstance(step, NodeScan):
        return lambda values: step.map_exprs(lambda expr: bind_expr(expr, values))
    binders = tuple(map(binder, step.filters))
    variable, type_name, visible = step.variable, step.type_name, step.visible
    return lambda values: NodeScan(
        variable, type_name, tuple([b(values) for b in binders]), visible
    )


def binder(expr: typed.TypedExpr) -> Binder:
    """``bind_expr`` of one expression, with what does not depend on values decided beforehand.

    >>> name = typed.Column("p", "id", typed.STRING)
    >>> param = typed.Parameter("name", typed.STRING)
    >>> binder(typed.Compare(typed.Relation.EQ, name, param))({"name": "Ada"}).right.value
    'Ada'
    """
    match expr:
        case typed.Compare(op=op, left=typed.Column() as left, right=typed.Parameter() as right):
            if not left.type.scalar.is_numeric and not right.type.is_list:
                return _text_binder(expr, op, left, right)
    return lambda values: bind_expr(expr, values)


def _text_binder(
    expr: typed.Compare, op: typed.Relation, left: typed.Column, right: typed.Parameter
) -> Binder:
    """The binder of a comparison whose constant needs no conversion unless it is null."""
    name, type_ = right.name, right.type

    def bound(values: Mapping[str, typed.Value]) -> typed.TypedExpr:
        value = values.get(name)
        if value is None:
            return bind_expr(expr, values)
        return typed.Compare(op, left, typed.Constant(value, type_))

    return bound


EQ, NE, LT, LE, GT, GE = typed.Relation
_MIRRORED = {LT: GT, LE: GE, GT: LT, GE: LE}
# Comparisons of x with a number above the largest or below the smallest value of its type: always
# or never true, expressed with that value so that a null x stays unknown.
_ABOVE_ALL = {EQ: GT, NE: LE, LT: LE, LE: LE, GT: GT, GE: GT}
_BELOW_ALL = {EQ: LT, NE: GE, LT: LT, LE: LT, GT: GE, GE: GE}
# Comparisons of x with a number between two values of its type, expressed with the lower value.
_BETWEEN = {LT: LE, LE: LE, GT: GT, GE: GT}


def align(expr: typed.TypedExpr) -> typed.TypedExpr:
    """A comparison or membership test with its constants in the right type.

    >>> age = typed.Column("p", "age", PropType(Scalar.I32))
    >>> found = align(typed.Compare(typed.Relation.GT, age, typed.Constant(30.5, typed.FLOAT)))
    >>> found.op, found.right.value, str(found.right.type)
    (<Relation.GT: '>'>, 30, 'I32')
    """
    match expr:
        case typed.Compare(op=op, left=typed.Constant() as left, right=right) if not isinstance(
            right, typed.Constant
        ):
            return align(typed.Compare(_MIRRORED.get(op, op), right, left))
        case typed.Compare(left=left, right=typed.Constant() as right):
            return _compare(expr.op, left, right)
        case typed.Membership(item=item, options=typed.Constant() as options):
            possible = _options(options, item.type)
            if options.value and not possible.value:
                return _never(item)
            return typed.Membership(item, possible)
        case typed.Membership(item=typed.Constant() as item, options=options):
            own = options.type.element
            value = _value(item, own)
            if value is None and own.scalar.is_float:
                # No float is equal to the number; converted to a float it would be rounded.
                value = typed.Constant(math.nan, own)
            return typed.Membership(value or item, options)
        case _:
            return expr


def _compare(op: typed.Relation, left: typed.TypedExpr, right: typed.Constant) -> typed.TypedExpr:
    target = left.type
    number = right.value
    aligned = _value(right, target)
    if aligned is not None:
        return typed.Compare(op, left, aligned)
    if target.scalar.is_integer and isinstance(number, int | float):
        low, high = INTEGER_RANGES[target.scalar]
        plain = PropType(target.scalar)
        if number > high:
            return typed.Compare(_ABOVE_ALL[op], left, typed.Constant(high, plain))
        if number < low:
            return typed.Compare(_BELOW_ALL[op], left, typed.Constant(low, plain))
        if op in _BETWEEN:
            # For integers, x > 30.5 is equivalent to x > 30, and x < 30.5 to x <= 30.
            whole = typed.Constant(math.floor(number), plain)
            return typed.Compare(_BETWEEN[op], left, whole)
    if target.scalar is Scalar.F64 and isinstance(number, int):
        return _compare_between_floats(op, left, number)
    return typed.Compare(op, left, right)


def _never(expr: typed.TypedExpr) -> typed.TypedExpr:
    """False, and null where the expression is null; for NaN too."""
    return typed.Compare(LT, expr, expr)


def _compare_between_floats(
    op: typed.Relation, left: typed.TypedExpr, number: int
) -> typed.TypedExpr:
    """A comparison of floats with an integer that no float is equal to."""
    if op is EQ:
        return _never(left)
    if op is NE:
        return typed.Not(_never(left))
    below = float(number)
    if int(below) > number:
        below = math.nextafter(below, -math.inf)
    limit = typed.Constant(below, PropType(left.type.scalar))
    return typed.Compare(_BETWEEN[op], left, limit)


def _options(options: typed.Constant, target: PropType) -> typed.Constant:
    """The members of a list that a value of the target type can equal; nulls are kept."""
    if not isinstance(options.value, tuple):
        return options
    kept: list[typed.Atom] = []
    own = options.type.element
    for item in options.value:
        aligned = _value(typed.Constant(item, own), target)
        if aligned is not None and not isinstance(aligned.value, tuple):
            kept.append(aligned.value)
    element = target.as_nullable(any(item is None for item in kept))
    return typed.Constant(tuple(kept), PropType(element.scalar, element.nullable, is_list=True))


def _value(value: typed.Constant, target: PropType) -> typed.Constant | None:
    """The same value in the target type, or ``None`` if that would change it."""
    given = value.value
    plain = PropType(target.scalar)
    if given is None:
        return typed.Constant(None, plain.as_nullable())
    if not target.scalar.is_numeric or isinstance(given, bool | tuple):
        return value
    if target.scalar.is_integer:
        number = _whole(given)
        low, high = INTEGER_RANGES[target.scalar]
        if number is None or not low <= number <= high:
            return None
        return typed.Constant(number, plain)
    if not isinstance(given, int | float):
        return value
    if target.scalar is Scalar.F32:
        try:
            return typed.Constant(struct.unpack("<f", struct.pack("<f", given))[0], plain)
        except OverflowError:
            return None
    exact = float(given)
    return typed.Constant(exact, plain) if exact == given else None


def _whole(value: typed.Atom) -> int | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None
