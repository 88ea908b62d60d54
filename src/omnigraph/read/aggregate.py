"""Grouping and aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import typed
from omnigraph.lang.values.arrow import arrow_type
from omnigraph.lang.values.numpy_view import arrow_view, numpy_view
from omnigraph.plan.live import SET_FUNCTIONS
from omnigraph.plan.statistics import text_key
from omnigraph.read.frame import Frame, Numbers, sums
from omnigraph.read.order import SortColumn, sort_indices
from omnigraph.read.values import values_of
from omnigraph.topology.sets import distinct

if TYPE_CHECKING:
    from omnigraph.plan.nodes import ReadPlan
    from omnigraph.read.limits import Check
    from omnigraph.read.run import Run

Ints = npt.NDArray[np.int64]
# Up to this many (group, value) pairs, a distinct count uses one flag per pair.
_MOST_FLAGS = 64_000_000
# With so many rows for each code, the first half of as many is searched for all codes.
_ROWS_OF_A_CODE = 32


def aggregated(run: Run, plan: ReadPlan, frame: Frame) -> list[pa.Array]:
    """The result columns of a plan with groups; groups are in the order of their first rows."""
    exprs = [column.expr for column in plan.columns]
    keys = [e for e in exprs if not isinstance(e, typed.Aggregate)]
    check = run.guard.check
    run.guard.hold(frame.nbytes + frame.rows * 8 * (len(keys) + 2))
    if keys:
        codes = [_key_codes(run, frame, key) for key in run.guard.between(keys)]
        groups, first = _grouped(codes, frame.rows, check)
    else:
        groups, first = np.zeros(frame.rows, np.int64), np.zeros(1, np.int64)
    count = len(first)
    heads = frame.take(first) if keys else frame
    return [
        _aggregate(run, frame, expr, groups, count)
        if isinstance(expr, typed.Aggregate)
        else values_of(run, heads, expr)
        for expr in run.guard.between(exprs)
    ]


def _key_codes(run: Run, frame: Frame, expr: typed.TypedExpr) -> tuple[Ints, int]:
    """Codes of the distinct values of a grouping column."""
    if isinstance(expr, typed.Entity | typed.Column) and _is_identity(run, frame, expr):
        numbers = frame.nodes[expr.variable].astype(np.int64)
        return numbers, int(numbers.max()) + 1 if len(numbers) else 1
    dictionary = run.codes(frame, expr)
    if dictionary is not None:
        return dictionary.codes.astype(np.int64), max(dictionary.size, 1)
    return _codes(values_of(run, frame, expr))


def _is_identity(run: Run, frame: Frame, expr: typed.Entity | typed.Column) -> bool:
    """Whether a column has another value for each node: the node itself, its id, its text key."""
    if expr.variable not in frame.nodes or isinstance(expr, typed.Entity):
        return expr.variable in frame.nodes
    node_type = run.context.catalog.node_types.get(run.types[expr.variable])
    return expr.name in (typed.ID_COLUMN, text_key(node_type))


def _grouped(columns: Sequence[tuple[Ints, int]], rows: int, check: Check) -> tuple[Ints, Ints]:
    """Returns the group number of each row, and the first row of each group."""
    (codes, size), *others = columns
    for own, count in others:
        check()
        if size * count > 2**62:
            _, codes = np.unique(codes, return_inverse=True)
            size = int(codes.max()) + 1 if rows else 1
        codes = codes * count + own
        size *= count
    check()
    return _numbered(codes, size)


def _numbered(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """Renumber codes in the order of their first rows; returns also those rows."""
    rows = len(codes)
    if size * _ROWS_OF_A_CODE <= rows:
        # As a rule the first rows have all codes.
        own, first = _numbered(codes[: size * _ROWS_OF_A_CODE // 2], size)
        number = np.full(size, -1, np.int64)
        number[codes[first]] = own[first]
        groups = number.take(codes)
        if groups.min() >= 0:
            return groups, first
    if size <= max(4 * rows, 1024):
        first_of = np.full(size, rows, np.int64)
        np.minimum.at(first_of, codes, np.arange(rows)) if rows < 1024 else _first(first_of, codes)
        is_first = np.zeros(rows, bool)
        is_first[first_of[first_of < rows]] = True
        first = np.flatnonzero(is_first)
        number = np.empty(size, np.int64)
        number[codes[first]] = np.arange(len(first))
        return number[codes], first
    unique, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(unique), np.int64)
    number[order] = np.arange(len(unique))
    return number[inverse], first[order]


def _first(first_of: Ints, codes: Ints) -> None:
    """Store the first row of each code. Of several assignments to an index the last one wins."""
    rows = len(codes)
    first_of[codes[::-1]] = np.arange(rows - 1, -1, -1)


def _codes(column: pa.Array) -> tuple[Ints, int]:
    """Codes of the distinct values of a column; null has a code of its own."""
    if pa.types.is_floating(column.type):
        # Both zeros form one group, and all NaN form one.
        column = pc.add(column, pa.scalar(0, column.type))
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    if pa.types.is_nested(column.type):
        numbers: dict[Any, int] = {}
        texts = [repr(value) for value in column.to_pylist()]
        codes = np.array([numbers.setdefault(t, len(numbers)) for t in texts], np.int64)
        return codes, len(numbers) or 1
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    codes = numpy_view(encoded.indices).astype(np.int64)
    return codes, max(len(encoded.dictionary), 1)


# -- one aggregate ----------------------------------------------------------------------------


def _aggregate(run: Run, frame: Frame, expr: typed.Aggregate, groups: Ints, count: int) -> pa.Array:
    weights = frame.weights
    if expr.function is typed.AggregateFunction.COUNT:
        return arrow_view(_count(run, frame, expr, groups, count))
    if expr.distinct or expr.function in SET_FUNCTIONS:
        frame, groups = _distinct_nodes(frame, expr.arg, groups, count)
        weights = frame.weights
    values = values_of(run, frame, expr.arg)
    valid = numpy_view(values.is_valid())
    if expr.function in SET_FUNCTIONS:
        return _extreme(run, values, valid, groups, count, expr)
    if expr.distinct:
        values, groups, weights = _distinct_values(values, valid, groups)
        valid = np.ones(len(values), bool)
    numbers = numpy_view(values.cast(pa.float64(), safe=False).fill_null(0.0))
    counts = _sums(groups, valid.astype(np.int64), weights, count)
    sums = np.bincount(groups, numbers if weights is None else numbers * weights, count)
    empty = counts == 0
    if expr.function is typed.AggregateFunction.SUM:
        return arrow_view(sums, empty)
    with np.errstate(invalid="ignore", divide="ignore"):
        return arrow_view(sums / counts, empty)


def _sums(groups: Ints, values: Ints, weights: Ints | None, count: int) -> Ints:
    return sums(groups, values if weights is None else values * weights, count)


def _count(run: Run, frame: Frame, expr: typed.Aggregate, groups: Ints, count: int) -> Ints:
    if isinstance(expr.arg, typed.Entity) and not expr.distinct:
        return sums(groups, frame.counts(), count)
    if isinstance(expr.arg, typed.Entity) and expr.arg.variable in frame.nodes:
        return _count_distinct_nodes(frame.nodes[expr.arg.variable], groups, count)
    values = values_of(run, frame, expr.arg)
    valid = numpy_view(values.is_valid())
    if not expr.distinct:
        return _sums(groups, valid.astype(np.int64), frame.weights, count)
    _, groups, _ = _distinct_values(values, valid, groups)
    return np.bincount(groups, minlength=count)


def _count_distinct_nodes(numbers: Numbers, groups: Ints, count: int) -> Ints:
    """The number of distinct nodes of each group."""
    nodes = int(numbers.max()) + 1 if len(numbers) else 1
    if count * nodes <= _MOST_FLAGS:
        seen = np.zeros(count * nodes, bool)
        seen[groups * nodes + numbers] = True
        counts: Ints = seen.reshape(count, nodes).sum(axis=1)
        return counts
    pairs = distinct((groups << 32) | numbers)
    return np.bincount(pairs >> 32, minlength=count)


def _distinct_nodes(
    frame: Frame, arg: typed.TypedExpr, groups: Ints, count: int
) -> tuple[Frame, Ints]:
    """Keep each node once per group, for aggregates over distinct values."""
    if not isinstance(arg, typed.Column) or arg.variable not in frame.nodes:
        return frame, groups
    numbers = frame.nodes[arg.variable]
    nodes = int(numbers.max()) + 1 if len(numbers) else 1
    if frame.rows <= nodes or count * nodes > _MOST_FLAGS:
        return frame, groups
    seen = np.zeros(count * nodes, bool)
    seen[groups * nodes + numbers] = True
    pairs = np.flatnonzero(seen)
    own = (pairs % nodes).astype(np.int32)
    return Frame(len(own), {arg.variable: own}), pairs // nodes


def _distinct_values(
    values: pa.Array, valid: npt.NDArray[np.bool_], groups: Ints
) -> tuple[pa.Array, Ints, None]:
    """The distinct values of each group, and the group of each value."""
    values, groups = values.filter(arrow_view(valid)), groups[valid]
    codes, size = _codes(values)
    _, first = np.unique(groups * size + codes, return_index=True)
    return values.take(arrow_view(first)), groups[first], None


def _extreme(
    run: Run,
    values: pa.Array,
    valid: npt.NDArray[np.bool_],
    groups: Ints,
    count: int,
    expr: typed.Aggregate,
) -> pa.Array:
    """The smallest or greatest value of each group."""
    indices = np.flatnonzero(valid)
    present, own = values.take(arrow_view(indices)), groups[indices]
    is_max = expr.function is typed.AggregateFunction.MAX
    order = sort_indices(
        [SortColumn(arrow_view(own)), SortColumn(present, is_max)], run.guard.check
    )
    sorted_groups = own[order]
    first = np.ones(len(order), bool)
    first[1:] = sorted_groups[1:] != sorted_groups[:-1]
    best = np.full(count, -1, np.int64)
    best[sorted_groups[first]] = order[first]
    result = present.take(arrow_view(best, best < 0))
    return result.cast(arrow_type(expr.type)) if result.type != arrow_type(expr.type) else result
