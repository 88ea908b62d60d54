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


def constant(context: Context, literal: ast.LiteralExpr) -> typed.Constant | None:
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
            context.error("T34", message, literal.span, "leave out what follows the milliseconds")
            return None
        except ValueError:
            hint = f"write a real day as {form}"
            context.error("T34", f"invalid {name} literal", literal.span, hint)
            return None
    return typed.Constant(value, PropType(_SCALARS[kind]))


_DATETIME = ("DateTime", "YYYY-MM-DDTHH:MM:SS, with a zone such as Z or +02:00 if it is not UTC")


def list_constant(
    context: Context, literal: ast.ListExpr, items: list[typed.TypedExpr]
) -> typed.TypedExpr | None:
    """A list literal from its typed items: one element type, numbers widen to 64 bits."""
    types = [item.type for item in items if not is_null(item)]
    nullable = len(types) < len(items) or any(type_.nullable for type_ in types)
    if any(type_.is_list or type_.is_vector for type_ in types):
        context.error("T27", "list literals cannot be nested", literal.span)
        return None
    element = types[0] if types else PropType(Scalar.STRING)
    for type_ in types[1:]:
        if not comparable(element, type_):
            message = f"the items of a list must have one type, got {element} and {type_}"
            context.error("T27", message, literal.span)
            return None
        if type_.scalar is not element.scalar:
            floating = element.scalar.is_float or type_.scalar.is_float
            element = typed.FLOAT if floating else typed.INT
    type_ = PropType(element.scalar, nullable=nullable, is_list=True)
    if all(isinstance(item, typed.Constant) for item in items):
        values = tuple(item.value for item in items if isinstance(item, typed.Constant))
        return typed.Constant(values, type_)  # type: ignore[arg-type]
    return typed.ListOf(tuple(items), type_)


def numeric_items(expr: typed.TypedExpr | None) -> int | None:
    """How many items a list of numbers has; ``None`` for anything else."""
    if not isinstance(expr, typed.Constant) or not isinstance(expr.value, tuple):
        return None
    numbers = [
        item
        for item in expr.value
        if isinstance(item, int | float) and not isinstance(item, bool) and math.isfinite(item)
    ]
    return len(numbers) if len(numbers) == len(expr.value) else None


def fits(context: Context, value: typed.Constant, target: PropType, label: str, span: Span) -> bool:
    """Whether a literal may be compared with a property (T3 otherwise)."""
    if value.value is None:
        if target.nullable:
            return True
        context.error("T3", f"property {label} is {target} and never null", span)
        return False
    if not comparable(value.type, target):
        context.error("T3", f"property {label} is {target}, got {value.type}", span)
        return False
    if target.enum_values is not None:
        return _in_enum(context, value, target, label, span)
    return True


def _in_enum(
    context: Context, value: typed.Constant, target: PropType, label: str, span: Span
) -> bool:
    allowed = target.enum_values or ()
    given = value.value if isinstance(value.value, tuple) else (value.value,)
    for item in given:
        if item is not None and item not in allowed:
            message = f"invalid enum value '{item}' for {label} (expected: {', '.join(allowed)})"
            context.error("T3", message, span, suggest(str(item), allowed))
            return False
    return True


def assignable(
    context: Context, value: typed.Constant, target: PropType, label: str, span: Span
) -> bool:
    """Whether a literal may be stored in a property: as ``fits``, and nothing may be lost."""
    if target.is_vector:
        return _vector(context, value, target, label, span)
    if target.is_blob:
        if value.value is None or value.type == typed.STRING:
            return value.value is not None or fits(context, value, target, label, span)
        context.error("T3", f"property {label} is {target}, got {value.type}", span)
        return False
    if isinstance(value.value, tuple) and not value.value and target.is_list:
        return True
    if not fits(context, value, target, label, span):
        return False
    given = value.value if isinstance(value.value, tuple) else (value.value,)
    if target.is_list and any(item is None for item in given):
        context.error("T3", f"the items of {label} cannot be null", span)
        return False
    return all(_lossless(context, item, target, label, span) for item in given)


def _lossless(context: Context, item: typed.Atom, target: PropType, label: str, span: Span) -> bool:
    if item is None:
        return True
    if target.scalar is Scalar.F32:
        return _fits_f32(context, item, target, label, span)
    if not target.scalar.is_integer:
        return True
    if isinstance(item, float):
        if not item.is_integer():
            message = f"property {label} is {target}, {item} has a fraction"
            context.error("T3", message, span)
            return False
        if abs(item) >= _ROUNDED:
            message = f"property {label} is {target}, {item} may be rounded"
            context.error("T3", message, span, "write it without a point")
            return False
        item = int(item)
    low, high = INTEGER_RANGES[target.scalar]
    if isinstance(item, int) and not low <= item <= high:
        message = f"{item} is out of range for {label}: {target} ({low} to {high})"
        context.error("T3", message, span)
        return False
    return True


def _fits_f32(context: Context, item: typed.Atom, target: PropType, label: str, span: Span) -> bool:
    if not isinstance(item, int | float) or abs(item) <= F32_MAX:
        return True
    context.error("T3", f"a number is out of range for {label}: {target}", span)
    return False


def _vector(
    context: Context, value: typed.Constant, target: PropType, label: str, span: Span
) -> bool:
    if value.value is None:
        return fits(context, value, target, label, span)
    count = numeric_items(value)
    if count is None:
        context.error("T3", f"property {label} is {target}, got {value.type}", span)
        return False
    if count != target.dimension:
        message = f"property {label} is {target}, got a list of {count} numbers"
        context.error("T3", message, span)
        return False
    items = value.value if isinstance(value.value, tuple) else ()
    return all(_fits_f32(context, item, target, label, span) for item in items)
