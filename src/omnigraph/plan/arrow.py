"""Translates typed expressions to Arrow: to expressions pushed into scans, or directly to values.

Both come from one visitor, which only calls Arrow functions that accept either. They follow
three-valued logic. A filter needs less: both null and false drop a row, so a membership test may
be a plain ``is_in``, which an index supports. Under ``not``, and for returned values, the exact
form is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.lang.query import typed
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import arrow_array, arrow_scalar, arrow_type
from omnigraph.plan.arrow_functions import contains_function, text_function


def filter_expression(condition: typed.TypedExpr) -> pc.Expression:
    """A condition for keeping rows; rows where it is null may be dropped."""
    return ExpressionVisitor(exact=False).visit(condition)


def pushable(condition: typed.TypedExpr) -> bool:
    """Whether storage can evaluate a condition itself.

    Lists, and texts compared with texts of another column, need functions that only exist in this
    process; searches use their own indexes.
    """
    match condition:
        case typed.Compare(left=typed.Column(), right=typed.Constant()):
            return True
    for part in typed.walk(condition):
        if isinstance(part, typed.TextMatch | typed.Score | typed.Output | typed.Aggregate):
            return False
        if isinstance(part, typed.Membership) and not _is_short(part.options):
            return False
        pattern = part.part if isinstance(part, typed.Substring) else None
        pattern = part.prefix if isinstance(part, typed.StartsWith) else pattern
        if pattern is not None and not isinstance(pattern, typed.Constant):
            return False
    return True


def _is_short(options: typed.TypedExpr) -> bool:
    """Whether a list is short enough for storage, which needs a kilobyte per value."""
    if not isinstance(options, typed.Constant):
        return False
    return not isinstance(options.value, tuple) or len(options.value) <= _MOST_PUSHED


_MOST_PUSHED = 10_000
_NULL = pa.scalar(None, pa.bool_())
_FALSE = pa.scalar(False, pa.bool_())
_RELATIONS = {
    typed.Relation.EQ: "equal",
    typed.Relation.NE: "not_equal",
    typed.Relation.LT: "less",
    typed.Relation.LE: "less_equal",
    typed.Relation.GT: "greater",
    typed.Relation.GE: "greater_equal",
}


class ArrowVisitor(typed.Visitor[Any]):
    """Translates expressions; the leaves decide between Arrow expressions and arrays or scalars."""

    unsupported = "must be resolved to a column before it becomes an Arrow expression"

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact

    def _constant(self, value: pa.Scalar) -> Any:
        return value

    def refuse(self, expr: typed.TypedExpr) -> Exception:
        return InternalError(f"{type(expr).__name__} {self.unsupported}")

    # -- leaves --------------------------------------------------------------------------

    def visit_Constant(self, expr: typed.Constant) -> Any:  # noqa: N802
        return self._constant(arrow_scalar(expr.value, expr.type))

    # -- conditions ----------------------------------------------------------------------

    def visit_Compare(self, expr: typed.Compare) -> Any:  # noqa: N802
        if _is_null(expr.left) or _is_null(expr.right):
            return self._constant(_NULL)
        left, right = self._common(expr.left, expr.right)
        return call(_RELATIONS[expr.op], left, right)

    def _common(self, left: typed.TypedExpr, right: typed.TypedExpr) -> tuple[Any, Any]:
        """Both sides, cast to a type that holds the values of either."""
        target = _common_type(left.type, right.type)
        sides = self._operand(left), self._operand(right)
        if target is None:
            return sides
        # A double cannot hold integers beyond 2^53 exactly; they are rounded without an error.
        safe = not pa.types.is_floating(target)
        return _cast(sides[0], target, safe=safe), _cast(sides[1], target, safe=safe)

    def _operand(self, expr: typed.TypedExpr) -> Any:
        """An operand in its exact form: an unknown condition is not equal to false."""
        if self._exact or isinstance(expr, typed.Column | typed.Constant):
            return self.visit(expr)
        twin = copy(self)
        twin._exact = True
        return twin.visit(expr)

    def visit_Membership(self, expr: typed.Membership) -> Any:  # noqa: N802
        if not isinstance(expr.options, typed.Constant):
            return self._in_list_column(expr)
        if expr.options.value == ():
            return self._constant(_FALSE)
        if expr.options.value is None or _is_null(expr.item):
            return self._constant(_NULL)
        assert isinstance(expr.options.value, tuple)
        item = self._operand(expr.item)
        values = tuple(value for value in expr.options.value if value is not None)
        # A set of values distinguishes the two zeros, a comparison does not.
        zeros = (0.0, -0.0) if expr.item.type.scalar.is_float and 0.0 in values else ()
        options = arrow_array((*values, *zeros), expr.options.type.element)
        is_member = pc.is_in(item, value_set=options)
        if not self._exact:
            return is_member
        if len(values) < len(expr.options.value):
            is_member = call("or_kleene", is_member, self._constant(_NULL))
        if not expr.item.type.nullable:
            return is_member
        # `item < item` is null for a null item and false for every other, NaN included.
        return call("or_kleene", is_member, call("less", item, item))

    def _in_list_column(self, expr: typed.Membership) -> Any:
        item = expr.item
        if _is_null(item):
            item = typed.Constant(None, expr.options.type.element.as_nullable())
        function = contains_function(arrow_type(expr.options.type), arrow_type(item.type))
        return call(function, self.visit(expr.options), self.visit(item))

    def visit_Substring(self, expr: typed.Substring) -> Any:  # noqa: N802
        return self._text(expr.text, expr.part, "match_substring")

    def visit_StartsWith(self, expr: typed.StartsWith) -> Any:  # noqa: N802
        return self._text(expr.text, expr.prefix, "starts_with")

    def _text(self, text: typed.TypedExpr, pattern: typed.TypedExpr, function: str) -> Any:
        if _is_null(text) or _is_null(pattern):
            return self._constant(_NULL)
        subject = self.visit(text)
        if isinstance(pattern, typed.Constant):
            return getattr(pc, function)(subject, pattern=pattern.value)
        return call(text_function(function), subject, self.visit(pattern))

    def visit_IsNull(self, expr: typed.IsNull) -> Any:  # noqa: N802
        operand = self._operand(expr.operand)
        return call("is_valid", operand) if expr.negated else pc.is_null(operand)

    def visit_Not(self, expr: typed.Not) -> Any:  # noqa: N802
        return call("invert", self._operand(expr.operand))

    def visit_And(self, expr: typed.And) -> Any:  # noqa: N802
        return _balanced([self.visit(operand) for operand in expr.operands], "and_kleene")

    def visit_Or(self, expr: typed.Or) -> Any:  # noqa: N802
        return _balanced([self.visit(operand) for operand in expr.operands], "or_kleene")


class ExpressionVisitor(ArrowVisitor):
    """Expressions over the columns of one table, for storage to evaluate."""

    def _constant(self, value: pa.Scalar) -> Any:
        return pc.scalar(value)

    def visit_Column(self, expr: typed.Column) -> Any:  # noqa: N802
        return pc.field(expr.name)

    def visit_Entity(self, expr: typed.Entity) -> Any:  # noqa: N802
        return pc.field(typed.ID_COLUMN)


class ColumnVisitor(ArrowVisitor):
    """Evaluates a condition on the columns of some rows."""

    unsupported = "is not a condition on one row"

    def __init__(self, columns: Mapping[str, pa.Array], *, exact: bool = False) -> None:
        super().__init__(exact=exact)
        self._columns = columns

    def visit_Column(self, expr: typed.Column) -> Any:  # noqa: N802
        return self._columns[expr.name]

    def visit_Entity(self, expr: typed.Entity) -> Any:  # noqa: N802
        return self._columns[typed.ID_COLUMN]


def call(function: str, *operands: Any) -> Any:
    """Call an Arrow function on expressions, arrays or scalars."""
    if any(isinstance(operand, pc.Expression) for operand in operands):
        return pc.Expression._call(function, list(operands))
    return pc.call_function(function, list(operands))


def _cast(value: Any, target: pa.DataType, *, safe: bool) -> Any:
    if isinstance(value, pc.Expression):
        return value.cast(target, safe=safe)
    return pc.cast(value, target, safe=safe)


def _balanced(parts: list[Any], join: str) -> Any:
    """Join parts as a balanced tree: Arrow's recursion over expressions has no depth limit."""
    while len(parts) > 1:
        paired = [call(join, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = paired + parts[len(paired) * 2 :]
    return parts[0]


def _is_null(expr: typed.TypedExpr) -> bool:
    return isinstance(expr, typed.Constant) and expr.value is None


def _common_type(left: PropType, right: PropType) -> pa.DataType | None:
    """The type to cast both sides to; ``None`` if they have the same type already."""
    if left.scalar is right.scalar or not (left.scalar.is_numeric and right.scalar.is_numeric):
        return None
    if left.scalar.is_float or right.scalar.is_float:
        return pa.float64()
    if Scalar.U64 in (left.scalar, right.scalar):
        # No integer type holds both: 20 digits hold every 64-bit number of either sign.
        return pa.decimal128(20)
    return pa.int64()
