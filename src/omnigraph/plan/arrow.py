"""Typed expressions as ``pyarrow.compute.Expression``: pushed into scans, and run on tables.

The expressions follow three-valued logic. A filter needs less: there null and false drop a row
alike, so a membership test may be a plain ``is_in``, which an index can answer. Under ``not``, and
for values that are returned, the exact form is built.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.lang.query import typed
from omnigraph.lang.schema.arrow import arrow_type
from omnigraph.lang.types import PropType, Scalar
from omnigraph.plan.arrow_functions import contains_function, text_function

_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)


def column_name(column: typed.Column) -> str:
    """How a column is called in the table of its own type."""
    return column.name


def wide_name(column: typed.Column) -> str:
    """How a column is called where several variables stand side by side."""
    return f"{column.variable}.{column.name}"


def filter_expression(
    condition: typed.TypedExpr, name: Callable[[typed.Column], str] = column_name
) -> pc.Expression:
    """A condition for keeping rows; rows where it is null may be dropped."""
    return _ArrowVisitor(name, exact=False).visit(condition)


def value_expression(
    expr: typed.TypedExpr, name: Callable[[typed.Column], str] = column_name
) -> pc.Expression:
    """The value of an expression for each row, null where it is unknown."""
    return _ArrowVisitor(name, exact=True).visit(expr)


def pushable(condition: typed.TypedExpr) -> bool:
    """Whether storage can evaluate a condition itself.

    Lists, and texts compared with texts of another column, need functions that only exist here;
    searches are answered by their indexes.
    """
    for part in typed.walk(condition):
        if isinstance(part, typed.TextMatch | typed.Score | typed.Output | typed.Aggregate):
            return False
        if isinstance(part, typed.Membership) and not isinstance(part.options, typed.Constant):
            return False
        pattern = part.part if isinstance(part, typed.Substring) else None
        pattern = part.prefix if isinstance(part, typed.StartsWith) else pattern
        if pattern is not None and not isinstance(pattern, typed.Constant):
            return False
    return True


def arrow_scalar(value: typed.Value, type_: PropType) -> pa.Scalar:
    """A constant as an Arrow scalar of exactly its type."""
    if isinstance(value, tuple):
        items = arrow_array(value, type_.element)
        return pa.ListArray.from_arrays([0, len(items)], items, type=arrow_type(type_))[0]
    if value is None:
        return pa.scalar(None, arrow_type(type_))
    return arrow_array((value,), type_)[0]


def arrow_array(values: tuple[typed.Atom, ...], type_: PropType) -> pa.Array:
    """Values as an Arrow array of exactly their type.

    Arrow would cut the time of day off a date-time on its way into a ``date64``; counting the
    milliseconds here keeps it.
    """
    target = arrow_type(type_)
    if type_.scalar.is_float:
        # An integer among floats is rounded; Arrow alone would refuse it beyond 2^53.
        values = tuple(float(v) if isinstance(v, int) else v for v in values)
    if type_.scalar is not Scalar.DATETIME:
        return pa.array(values, target)
    moments = [
        (value - _EPOCH) // _MILLISECOND if isinstance(value, datetime) else None
        for value in values
    ]
    return pa.array(moments, pa.int64()).view(target)


_NULL = pa.scalar(None, pa.bool_())


class _ArrowVisitor(typed.Visitor[pc.Expression]):
    unsupported = "must be resolved to a column before it becomes an Arrow expression"

    def __init__(self, name: Callable[[typed.Column], str], *, exact: bool) -> None:
        self._name = name
        self._exact = exact

    def refuse(self, expr: typed.TypedExpr) -> Exception:
        return InternalError(f"{type(expr).__name__} {self.unsupported}")

    # -- leaves --------------------------------------------------------------------------

    def visit_Constant(self, expr: typed.Constant) -> pc.Expression:  # noqa: N802
        return pc.scalar(arrow_scalar(expr.value, expr.type))

    def visit_Column(self, expr: typed.Column) -> pc.Expression:  # noqa: N802
        return pc.field(self._name(expr))

    def visit_Entity(self, expr: typed.Entity) -> pc.Expression:  # noqa: N802
        return pc.field(self._name(typed.Column(expr.variable, typed.ID_COLUMN, expr.type)))

    def visit_Output(self, expr: typed.Output) -> pc.Expression:  # noqa: N802
        return pc.field(expr.name)

    # -- conditions ----------------------------------------------------------------------

    def visit_Compare(self, expr: typed.Compare) -> pc.Expression:  # noqa: N802
        if _is_null(expr.left) or _is_null(expr.right):
            return pc.scalar(_NULL)
        left, right = self._common(expr.left, expr.right)
        match expr.op:
            case typed.Relation.EQ:
                return left == right
            case typed.Relation.NE:
                return left != right
            case typed.Relation.LT:
                return left < right
            case typed.Relation.LE:
                return left <= right
            case typed.Relation.GT:
                return left > right
            case typed.Relation.GE:
                return left >= right

    def _common(
        self, left: typed.TypedExpr, right: typed.TypedExpr
    ) -> tuple[pc.Expression, pc.Expression]:
        """Both sides in a type that holds the values of either."""
        target = _common_type(left.type, right.type)
        sides = self._operand(left), self._operand(right)
        if target is None:
            return sides
        # A double holds no integer beyond 2^53 exactly; the nearest one is meant, not an error.
        safe = not pa.types.is_floating(target)
        return sides[0].cast(target, safe=safe), sides[1].cast(target, safe=safe)

    def _operand(self, expr: typed.TypedExpr) -> pc.Expression:
        """What is compared must be exact: an unknown condition is not equal to false."""
        return _ArrowVisitor(self._name, exact=True).visit(expr)

    def visit_Membership(self, expr: typed.Membership) -> pc.Expression:  # noqa: N802
        if not isinstance(expr.options, typed.Constant):
            return self._in_list_column(expr)
        if expr.options.value == ():
            return pc.scalar(False)
        if expr.options.value is None or _is_null(expr.item):
            return pc.scalar(_NULL)
        assert isinstance(expr.options.value, tuple)
        item = self._operand(expr.item)
        known = tuple(value for value in expr.options.value if value is not None)
        # A set of values keeps the two zeros apart, a comparison does not.
        zeros = (0.0, -0.0) if expr.item.type.scalar.is_float and 0.0 in known else ()
        found = item.isin(arrow_array((*known, *zeros), expr.options.type.element))
        if not self._exact:
            return found
        if len(known) < len(expr.options.value):
            found = found | pc.scalar(_NULL)
        # `item < item` is null for a null item and false for every other, NaN included.
        return found | (item < item) if expr.item.type.nullable else found

    def _in_list_column(self, expr: typed.Membership) -> pc.Expression:
        item = expr.item
        if _is_null(item):
            item = typed.Constant(None, expr.options.type.element.as_nullable())
        function = contains_function(arrow_type(expr.options.type), arrow_type(item.type))
        return pc.Expression._call(function, [self.visit(expr.options), self.visit(item)])

    def visit_Substring(self, expr: typed.Substring) -> pc.Expression:  # noqa: N802
        return self._text(expr.text, expr.part, "match_substring")

    def visit_StartsWith(self, expr: typed.StartsWith) -> pc.Expression:  # noqa: N802
        return self._text(expr.text, expr.prefix, "starts_with")

    def _text(
        self, text: typed.TypedExpr, pattern: typed.TypedExpr, function: str
    ) -> pc.Expression:
        if _is_null(text) or _is_null(pattern):
            return pc.scalar(_NULL)
        subject = self.visit(text)
        if isinstance(pattern, typed.Constant):
            return getattr(pc, function)(subject, pattern=pattern.value)
        return pc.Expression._call(text_function(function), [subject, self.visit(pattern)])

    def visit_IsNull(self, expr: typed.IsNull) -> pc.Expression:  # noqa: N802
        operand = self._operand(expr.operand)
        return operand.is_valid() if expr.negated else operand.is_null()

    def visit_Not(self, expr: typed.Not) -> pc.Expression:  # noqa: N802
        return ~self._operand(expr.operand)

    def visit_And(self, expr: typed.And) -> pc.Expression:  # noqa: N802
        return _balanced([self.visit(operand) for operand in expr.operands], operator.and_)

    def visit_Or(self, expr: typed.Or) -> pc.Expression:  # noqa: N802
        return _balanced([self.visit(operand) for operand in expr.operands], operator.or_)


def _balanced(
    parts: list[pc.Expression], join: Callable[[pc.Expression, pc.Expression], pc.Expression]
) -> pc.Expression:
    """Parts joined as a shallow tree: Arrow walks expressions by recursion and has no limit."""
    while len(parts) > 1:
        paired = [join(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = paired + parts[len(paired) * 2 :]
    return parts[0]


def _is_null(expr: typed.TypedExpr) -> bool:
    return isinstance(expr, typed.Constant) and expr.value is None


def _common_type(left: PropType, right: PropType) -> pa.DataType | None:
    """What both sides must be cast to; ``None`` when they agree already."""
    if left.scalar is right.scalar or not (left.scalar.is_numeric and right.scalar.is_numeric):
        return None
    if left.scalar.is_float or right.scalar.is_float:
        return pa.float64()
    if Scalar.U64 in (left.scalar, right.scalar):
        # No integer type holds both: 20 digits hold every 64-bit number of either sign.
        return pa.decimal128(20)
    return pa.int64()
