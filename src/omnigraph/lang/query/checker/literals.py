"""Literals: their types, their values, and whether they fit a property."""

from __future__ import annotations

import math

from omnigraph.lang.closest import suggest
from omnigraph.lang.diagnostics import Span
from omnigraph.lang.query import ast, typed
from omnigraph.lang.query.checker.context import Context
from omnigraph.lang.types import F32_MAX, INTEGER_RANGES, PropType, Scalar, comparable
from omnigraph.lang.values.spelling import SubMillisecond, parse_date, parse_datetime

_SCALARS = {
    ast.LiteralKind.BOOL: Scalar.BOOL,
    ast.LiteralKind.INT: Scalar.I64,
    ast.LiteralKind.FLOAT: Scalar.F64,
    ast.LiteralKind.STRING: Scalar.STRING,
    ast.LiteralKind.DATE: Scalar.DATE,
    ast.LiteralKind.DATETIME: Scalar.DATETIME,
}


_ROUNDED = 2**53


def is_null(expr: typed.TypedExpr | None) -> bool:
    return isinstance(expr, typed.Constant) and expr.value is None


def constant(context: Context, literal: ast.LiteralExpr) -> typed.Constant:
    """A single literal with its type."""
    kind = literal.kind
    if kind is ast.LiteralKind.NULL:
        return typed.Constant(None, typed.NULL)
    value: typed.Atom = literal.value
    if kind is ast.LiteralKind.DATE or kind is ast.LiteralKind.DATETIME:
        name, form = ("Date", "YYYY-MM-DD") if kind is ast.LiteralKind.DATE else _DATETIME
        text = str(value)
        try:
            value = parse_date(text) if kind is ast.LiteralKind.DATE else parse_datetime(text)
        except SubMillisecond:
            message = f"invalid {name} literal: '{text}' is finer than a millisecond"
            hint = "leave out what follows the milliseconds"
            raise context.refuse("T34", message, literal.span, hint) from None
        except ValueError:
            hint = f"write a real day as {form}"
            raise context.refuse("T34", f"invalid {name} literal", literal.span, hint) from None
    return typed.Constant(value, PropType(_SCALARS[kind]))


_DATETIME = ("DateTime", "YYYY-MM-DDTHH:MM:SS, with a zone such as Z or +02:00 if it is not UTC")


def list_constant(
    context: Context, literal: ast.ListExpr, items: list[typed.TypedExpr]
) -> typed.TypedExpr:
    """A list literal from its typed items: one element type, numbers are widened to 64 bits."""
    types = [item.type for item in items if not is_null(item)]
    nullable = len(types) < len(items) or any(type_.nullable for type_ in types)
    if any(type_.is_list or type_.is_vector for type_ in types):
        raise context.refuse("T27", "list literals cannot be nested", literal.span)
    element = types[0] if types else PropType(Scalar.STRING)
    for type_ in types[1:]:
        if not comparable(element, type_):
            message = f"the items of a list must have one type, got {element} and {type_}"
            raise context.refuse("T27", message, literal.span)
        if type_.scalar is not element.scalar:
            floating = element.scalar.is_float or type_.scalar.is_float
            element = typed.FLOAT if floating else typed.INT
    type_ = PropType(element.scalar, nullable=nullable, is_list=True)
    if all(isinstance(item, typed.Constant) for item in items):
        values = tuple(item.value for item in items if isinstance(item, typed.Constant))
        return typed.Constant(values, type_)  # type: ignore[arg-type]
    return typed.ListOf(tuple(items), type_)


def numeric_items(expr: typed.TypedExpr | None) -> int | None:
    """The number of items of a list of numbers; ``None`` for anything else."""
    if not isinstance(expr, typed.Constant) or not isinstance(expr.value, tuple):
        return None
    numbers = [
        item
        for item in expr.value
        if isinstance(item, int | float) and not isinstance(item, bool) and math.isfinite(item)
    ]
    return len(numbers) if len(numbers) == len(expr.value) else None


def check_fits(
    context: Context, value: typed.Constant, target: PropType, label: str, span: Span
) -> None:
    """Check that a literal can be compared with a property (T3 otherwise)."""
    if value.value is None:
        if not target.nullable:
            raise context.refuse("T3", f"property {label} is {target} and never null", span)
        return
    if not comparable(value.type, target):
        raise context.refuse("T3", f"property {label} is {target}, got {value.type}", span)
    allowed = target.enum_values
    for item in value.value if isinstance(value.value, tuple) else (value.value,):
        if allowed is not None and item is not None and item not in allowed:
            message = f"invalid enum value '{item}' for {label} (expected: {', '.join(allowed)})"
            raise context.refuse("T3", message, span, suggest(str(item), allowed))


def check_assignable(
    context: Context, value: typed.Constant, target: PropType, label: str, span: Span
) -> None:
    """Check that a literal can be stored in a property: like ``check_fits``, and without loss."""
    if target.is_vector and value.value is not None:
        _check_vector(context, value, target, label, span)
        return
    if target.is_blob and value.value is not None:
        if value.type != typed.STRING:
            raise context.refuse("T3", f"property {label} is {target}, got {value.type}", span)
        return
    if value.value == () and target.is_list:
        return
    check_fits(context, value, target, label, span)
    given = value.value if isinstance(value.value, tuple) else (value.value,)
    if target.is_list and any(item is None for item in given):
        raise context.refuse("T3", f"the items of {label} cannot be null", span)
    for item in given:
        _check_lossless(context, item, target, label, span)


def _check_lossless(
    context: Context, item: typed.Atom, target: PropType, label: str, span: Span
) -> None:
    if target.scalar is Scalar.F32 or target.is_vector:
        if isinstance(item, int | float) and abs(item) > F32_MAX:
            raise context.refuse("T3", f"a number is out of range for {label}: {target}", span)
        return
    if not target.scalar.is_integer:
        return
    if isinstance(item, float):
        if not item.is_integer():
            message = f"property {label} is {target}, {item} has a fraction"
            raise context.refuse("T3", message, span)
        if abs(item) >= _ROUNDED:
            message = f"property {label} is {target}, {item} may be rounded"
            raise context.refuse("T3", message, span, "write it without a point")
        item = int(item)
    low, high = INTEGER_RANGES[target.scalar]
    if isinstance(item, int) and not low <= item <= high:
        message = f"{item} is out of range for {label}: {target} ({low} to {high})"
        raise context.refuse("T3", message, span)


def _check_vector(
    context: Context, value: typed.Constant, target: PropType, label: str, span: Span
) -> None:
    count = numeric_items(value)
    if count is None:
        raise context.refuse("T3", f"property {label} is {target}, got {value.type}", span)
    if count != target.dimension:
        message = f"property {label} is {target}, got a list of {count} numbers"
        raise context.refuse("T3", message, span)
    for item in value.value if isinstance(value.value, tuple) else ():
        _check_lossless(context, item, target, label, span)
