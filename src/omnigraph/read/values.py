"""The value of an expression for every row of a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.lang.values.arrow import arrow_type
from omnigraph.plan.arrow import ArrowVisitor

if TYPE_CHECKING:
    from omnigraph.read.context import EvalContext
    from omnigraph.read.frame import Frame, Mask


class _Values(ArrowVisitor):
    """Evaluates columns and searches by the context, everything else by Arrow."""

    unsupported = "has no value in a row"

    def __init__(self, context: EvalContext, frame: Frame, *, exact: bool) -> None:
        super().__init__(exact=exact)
        self._context = context
        self._frame = frame

    def visit_Compare(self, expr: typed.Compare) -> Any:  # noqa: N802
        """The same property of two nodes is compared by numbers, not by its texts."""
        left, right = expr.left, expr.right
        if (
            expr.op is typed.Relation.EQ
            and isinstance(left, typed.Column)
            and isinstance(right, typed.Column)
            and left.name == right.name
            and self._context.types.get(left.variable) == self._context.types.get(right.variable)
        ):
            a, b = self._context.codes(self._frame, left), self._context.codes(self._frame, right)
            if a is not None and b is not None:
                unknown = (a.codes == a.null) | (b.codes == b.null)
                return pa.array(a.codes == b.codes, mask=unknown if unknown.any() else None)
        return super().visit_Compare(expr)

    def visit_Column(self, expr: typed.Column) -> Any:  # noqa: N802
        return self._context.column(self._frame, expr.variable, expr.name)

    def visit_Entity(self, expr: typed.Entity) -> Any:  # noqa: N802
        return self._context.column(self._frame, expr.variable, typed.ID_COLUMN)

    def visit_TextMatch(self, expr: typed.TextMatch) -> Any:  # noqa: N802
        return self._context.searches.matches(self._frame, expr, exact=self._exact)

    def visit_Nearest(self, expr: typed.Nearest) -> Any:  # noqa: N802
        return self._context.searches.distances(self._frame, expr)

    def visit_Bm25(self, expr: typed.Bm25) -> Any:  # noqa: N802
        return self._context.searches.scores(self._frame, expr)

    def visit_Rrf(self, expr: typed.Rrf) -> Any:  # noqa: N802
        return self._context.searches.fused(self._frame, expr)


def values_of(context: EvalContext, frame: Frame, expr: typed.TypedExpr) -> pa.Array:
    """The exact values of an expression, one for each row."""
    if isinstance(expr, typed.Column):
        return context.column(frame, expr.variable, expr.name)
    if isinstance(expr, typed.Entity):
        return context.column(frame, expr.variable, typed.ID_COLUMN)
    context.fetch(frame, [expr])
    return _whole(_Values(context, frame, exact=True).visit(expr), frame.rows, expr)


def keeps(context: EvalContext, frame: Frame, condition: typed.TypedExpr) -> Mask:
    """For which rows a condition is true."""
    truth = _Values(context, frame, exact=False).visit(condition)
    if isinstance(truth, pa.Scalar):
        return np.full(frame.rows, truth.as_py() is True)
    mask: Mask = truth.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


def _whole(values: Any, rows: int, expr: typed.TypedExpr) -> pa.Array:
    if isinstance(values, pa.Scalar):
        return pa.repeat(values, rows)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    target = arrow_type(expr.type)
    return values if values.type == target else values.cast(target)
