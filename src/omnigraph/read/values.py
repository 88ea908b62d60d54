"""Evaluates expressions for every row of a frame."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.lang.types import Scalar
from omnigraph.lang.values.arrow import arrow_type
from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.plan.arrow import ArrowVisitor, ColumnVisitor
from omnigraph.read.frame import Frame, Mask

if TYPE_CHECKING:
    from omnigraph.topology.cache import Codes


class SearchEvaluator(Protocol):
    """The values of search expressions, one for each row of a frame."""

    def matches(self, frame: Frame, expr: typed.TextMatch, *, exact: bool) -> Any:
        """Whether the text of each row matches; null where there is no text."""

    def distances(self, frame: Frame, expr: typed.Nearest) -> pa.Array:
        """The distance of each row's vector; null where there is none."""

    def scores(self, frame: Frame, expr: typed.Bm25) -> pa.Array:
        """The BM25 score of each row; null where the text does not match."""

    def fused(self, frame: Frame, expr: typed.Rrf) -> pa.Array:
        """The fused score of each row; null where neither ranking has it."""


class EvalContext(Protocol):
    """Evaluates expressions over frames.

    Implemented by the embedded engine (``read.run.Run``) and by Spark workers
    (``spark.query.rows.WorkerRun``).
    """

    types: Mapping[str, str]
    """The node type of each variable."""

    @property
    @abstractmethod
    def searches(self) -> SearchEvaluator:
        """The searches of the query."""

    @abstractmethod
    def read_columns(
        self, frame: Frame, variable: str, names: Sequence[str]
    ) -> Mapping[str, pa.Array]:
        """Columns of a variable, one value for each row."""

    @abstractmethod
    def codes(self, frame: Frame, expr: typed.TypedExpr, *, few: bool = False) -> Codes | None:
        """Integer codes that are equal where the values of a column are, if available.

        ``few`` is whether they are only useful for a column with few distinct values.
        """

    def column(self, frame: Frame, variable: str, name: str) -> pa.Array:
        """One column of a variable; read once and cached in the frame."""
        key = (variable, name)
        if key not in frame.values:
            frame.values[key] = self.read_columns(frame, variable, [name])[name]
        return frame.values[key]

    def fetch(self, frame: Frame, exprs: Iterable[typed.TypedExpr]) -> None:
        """Read the columns that the expressions need into the frame, one read per variable."""
        missing: dict[str, dict[str, None]] = {}
        for expr in exprs:
            for variable, name in columns_read(expr):
                if (variable, name) not in frame.values:
                    missing.setdefault(variable, {})[name] = None
        for variable, names in missing.items():
            for name, values in self.read_columns(frame, variable, list(names)).items():
                frame.values[variable, name] = values


def columns_read(expr: typed.TypedExpr, *, searched: bool = False) -> Iterator[tuple[str, str]]:
    """The (variable, column) pairs that an expression reads.

    Searches read their own columns; ``searched`` includes the columns of text searches.
    """
    match expr:
        case typed.Column():
            yield expr.variable, expr.name
        case typed.Entity():
            yield expr.variable, typed.ID_COLUMN
        case typed.TextMatch():
            if searched:
                yield expr.field.variable, expr.field.name
        case typed.Score():
            return
        case _:
            for operand in typed.children(expr):
                yield from columns_read(operand, searched=searched)


_RELATIONS: Mapping[typed.Relation, Callable[[Any, Any], Any]] = {
    typed.Relation.EQ: operator.eq,
    typed.Relation.NE: operator.ne,
    typed.Relation.LT: operator.lt,
    typed.Relation.LE: operator.le,
    typed.Relation.GT: operator.gt,
    typed.Relation.GE: operator.ge,
}


def _compares_numbers(left: typed.TypedExpr, right: typed.Constant) -> bool:
    """Whether a column of numbers is compared with a constant of the same type."""
    return (
        isinstance(left, typed.Column)
        and isinstance(right.value, int | float)
        and left.type.scalar is right.type.scalar
        and left.type.scalar.is_numeric
        and not left.type.is_list
    )


def compared_text(expr: typed.TypedExpr) -> typed.Column | None:
    """The text column that a condition compares with constants; ``None`` for other conditions."""
    match expr:
        case typed.Compare(
            op=typed.Relation.EQ | typed.Relation.NE,
            left=typed.Column() as column,
            right=typed.Constant(value=str()),
        ):
            return column
        case typed.Membership(item=typed.Column() as column, options=typed.Constant(value=tuple())):
            is_text = column.type.scalar is Scalar.STRING and not column.type.is_list
            return column if is_text else None
        case typed.Substring(text=typed.Column() as column, part=typed.Constant()):
            return column
        case typed.StartsWith(text=typed.Column() as column, prefix=typed.Constant()):
            return column
    return None


class _Values(ArrowVisitor):
    """Evaluates columns and searches with the context, everything else with Arrow."""

    unsupported = "has no value in a row"

    def __init__(self, context: EvalContext, frame: Frame, *, exact: bool) -> None:
        super().__init__(exact=exact)
        self._context = context
        self._frame = frame

    def visit_Compare(self, expr: typed.Compare) -> Any:  # noqa: N802
        """Compare texts by numbers or codes: with a constant, or the same property of two nodes."""
        left, right = expr.left, expr.right
        if isinstance(right, typed.Constant) and _compares_numbers(left, right):
            values = self.visit(left)
            if not values.null_count:
                # NumPy takes a tenth of Arrow's time.
                return arrow_view(_RELATIONS[expr.op](numpy_view(values), right.value))
        if compared_text(expr) is not None:
            codes = self._context.codes(self._frame, left, few=True)
            if codes is not None:
                code = codes.code_of(self.visit(right))
                same = (codes.codes == code) == (expr.op is typed.Relation.EQ)
                return arrow_view(same, codes.codes == codes.null if codes.null >= 0 else None)
        if (
            expr.op in (typed.Relation.EQ, typed.Relation.NE)
            and isinstance(left, typed.Column)
            and isinstance(right, typed.Column)
            and left.name == right.name
            and self._context.types.get(left.variable) == self._context.types.get(right.variable)
        ):
            is_equal = expr.op is typed.Relation.EQ
            nodes = self._frame.nodes
            if left.name == typed.ID_COLUMN and {left.variable, right.variable} <= nodes.keys():
                return arrow_view((nodes[left.variable] == nodes[right.variable]) == is_equal)
            a, b = self._context.codes(self._frame, left), self._context.codes(self._frame, right)
            if a is not None and b is not None:
                unknown = (a.codes == a.null) | (b.codes == b.null)
                same = (a.codes == b.codes) == is_equal
                return arrow_view(same, unknown if unknown.any() else None)
        return super().visit_Compare(expr)

    def visit_Membership(self, expr: typed.Membership) -> Any:  # noqa: N802
        truth = self._by_codes(expr)
        return super().visit_Membership(expr) if truth is None else truth

    def visit_Substring(self, expr: typed.Substring) -> Any:  # noqa: N802
        truth = self._by_codes(expr)
        return super().visit_Substring(expr) if truth is None else truth

    def visit_StartsWith(self, expr: typed.StartsWith) -> Any:  # noqa: N802
        truth = self._by_codes(expr)
        return super().visit_StartsWith(expr) if truth is None else truth

    def _by_codes(self, expr: typed.Condition) -> pa.Array | None:
        """A condition on a text column, evaluated once for each distinct value if these are few."""
        column = compared_text(expr)
        if column is None:
            return None
        codes = self._context.codes(self._frame, column, few=True)
        if codes is None or len(codes.values) > self._frame.rows:
            return None
        truth = ColumnVisitor({column.name: codes.values}, exact=self._exact).visit(expr)
        if isinstance(truth, pa.Scalar):
            return pa.repeat(truth, self._frame.rows)
        is_null = numpy_view(truth.is_null()).take(codes.codes) if truth.null_count else None
        return arrow_view(numpy_view(truth.fill_null(False)).take(codes.codes), is_null)

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
    """A mask of the rows for which a condition is true."""
    truth = _Values(context, frame, exact=False).visit(condition)
    if isinstance(truth, pa.Scalar):
        return np.full(frame.rows, truth.as_py() is True)
    mask: Mask = numpy_view(truth.fill_null(False) if truth.null_count else truth)
    return mask


def _whole(values: Any, rows: int, expr: typed.TypedExpr) -> pa.Array:
    if isinstance(values, pa.Scalar):
        return pa.repeat(values, rows)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    target = arrow_type(expr.type)
    return values if values.type == target else values.cast(target)
